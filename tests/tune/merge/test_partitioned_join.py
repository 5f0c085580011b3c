"""A storage-partitioned join is found by the engine itself, with the fewest settings, or what the
layouts lack is told.
"""

from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.sql import set_session_sql
from icekit.engine.bridge import temporary_settings
from icekit.engine.lake import session_in_catalog
from icekit.tune.merge.engine import merge_plan
from tests.tune.merge.targets import COPY_ON_WRITE, Target, said

pytestmark = pytest.mark.spark

PRESERVE = ("spark.sql.iceberg.planning.preserve-data-grouping", "true")
FEWER_KEYS = ("spark.sql.requireAllClusterKeysForCoPartition", "false")
COMPATIBLE = ("spark.sql.sources.v2.bucketing.allowCompatibleTransforms.enabled", "true")
SUBSET = ("spark.sql.sources.v2.bucketing.allowJoinKeysSubsetOfPartitionKeys.enabled", "true")
ROWS = "SELECT id, date'2024-01-01' + CAST(id % 3 AS int), 'old' FROM range(4000)"
TABLE = "scratch.sp_source s"
SOME = "SELECT id * 7, date'2024-01-01' + CAST(id * 7 % 3 AS int), 'new' FROM range(600)"


def pair(
    lake: Lake, scratch: str, by: str, source_by: str, **properties: Any
) -> tuple[Target, Target]:
    target = Target(lake, scratch, "sp_target").filled(by=by, rows=ROWS, **properties)
    return target, Target(lake, scratch, "sp_source").filled(by=source_by, rows=SOME)


MORE_SETTINGS = [
    ("bucket(8, id)", "bucket(8, id)", "t.id = s.id AND t.d = s.d", {PRESERVE, FEWER_KEYS}),
    ("bucket(8, id)", "bucket(16, id)", "t.id = s.id", {PRESERVE, COMPATIBLE}),
    ("days(d)", "days(d)", "t.d = s.d AND t.id = s.id", {PRESERVE, FEWER_KEYS}),
]


@pytest.mark.parametrize(
    ("by", "source_by", "on", "settings"),
    [
        ("bucket(8, id)", "bucket(8, id)", "t.id = s.id", {PRESERVE}),
        ("bucket(8, id), d", "bucket(8, id)", "t.id = s.id", {PRESERVE, FEWER_KEYS, SUBSET}),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in MORE_SETTINGS),
    ],
)
def test_the_settings_are_those_without_which_the_target_is_shuffled(
    lake: Lake, scratch: str, by: str, source_by: str, on: str, settings: set[tuple[str, str]]
) -> None:
    target, source = pair(lake, scratch, by, source_by)
    review = target.review(target.merge(f"{source.sql_name} s", on))
    joined = review.join_change

    assert review.plan.is_target_shuffled
    assert joined.is_change
    assert set(joined.sql) == {set_session_sql(key, value) for key, value in settings}
    with session_in_catalog(lake) as spark:
        for left_out in settings:
            with temporary_settings(spark, dict(settings - {left_out})):
                assert merge_plan(
                    spark, review.statement.sql, review.statement.target
                ).is_target_shuffled, left_out
        with temporary_settings(spark, dict(settings)):
            plan = merge_plan(spark, review.statement.sql, review.statement.target)
            assert not plan.is_target_shuffled
            assert plan.scan.keeps_partitions_apart
            assert not target.review(review.statement.sql).join_change.is_change


@pytest.mark.parametrize("properties", [{}, COPY_ON_WRITE])
def test_the_settings_leave_the_same_rows(
    lake: Lake, scratch: str, properties: dict[str, Any]
) -> None:
    target, source = pair(lake, scratch, "bucket(8, id)", "bucket(16, id)", **properties)
    sql = target.merge(f"{source.sql_name} s", "t.id = s.id")
    joined = target.review(sql).join_change

    with temporary_settings(lake.spark, dict({PRESERVE, COMPATIBLE})):
        after = target.after(sql)

    assert set(joined.sql) == {set_session_sql(*PRESERVE), set_session_sql(*COMPATIBLE)}
    assert after == target.after(sql) != target.rows()


@pytest.mark.parametrize(
    ("by", "source_by", "source", "on", "lacks"),
    [
        ("", "bucket(8, id)", TABLE, "t.id = s.id", "target is partitioned by nothing"),
        (
            "bucket(8, id)",
            "",
            TABLE,
            "t.id = s.id",
            "by bucket(8, id), the source is partitioned by nothing",
        ),
        (
            "bucket(8, id)",
            "truncate(10, v), d, days(d)",
            TABLE,
            "t.id = s.id",
            "the source is partitioned by truncate(10, v), d, days(d)",
        ),
        ("bucket(8, id)", "bucket(8, id)", TABLE, "t.d = s.d", "ON sets d = s.d"),
        ("d", "", f"(SELECT id, d, v FROM {TABLE} LIMIT 9) s", "t.id = s.id", "partitioned by d,"),
        (
            "bucket(8, id)",
            "",
            "(SELECT id, date'2024-01-01' AS d, 'n' AS v FROM range(9)) s",
            "t.id = s.id",
            "the source is not a plain Iceberg table",
        ),
    ],
)
def test_what_the_layout_lacks_is_told(
    lake: Lake, scratch: str, by: str, source_by: str, source: str, on: str, lacks: str
) -> None:
    target, _ = pair(lake, scratch, by, source_by)

    review = target.review(target.merge(source, on))

    assert lacks in said(review, "storage-partitioned join")


def test_a_target_that_is_not_shuffled_needs_none(lake: Lake, scratch: str) -> None:
    target, source = pair(lake, scratch, "bucket(8, id)", "bucket(8, id)")

    review = target.review(
        target.merge(f"{source.sql_name} s", "t.id = s.id", "WHEN MATCHED THEN DELETE")
    )

    assert "Broadcast" in review.plan.join_description
    assert "not needed" in said(review, "storage-partitioned join")
    assert "without a shuffle of the target" in said(review, "shuffle")
