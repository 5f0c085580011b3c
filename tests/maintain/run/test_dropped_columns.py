"""Deletes of partitions by a column that was dropped: applied in one commit, and no other commit is
made while they apply.
"""

from dataclasses import replace
from typing import Any

import pytest

from icekit.engine.planner import PlannedRewrite
from icekit.health.diagnose import diagnose
from icekit.maintain.planning.conversion import plan_conversion
from icekit.maintain.prediction import Prediction
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.rewrite import RewriteResult
from icekit.maintain.run.run_plan import PlanRun
from tests.deletes.tables import of_every_file
from tests.maintain.tables import Named, Table, is_proved
from tests.maintain.test_execute import raised
from tests.versions import dangling_of_dropped_columns

pytestmark = [pytest.mark.spark, pytest.mark.core]

#: What becomes of the spec before its column is dropped.
UNPARTITIONED, BY_ANOTHER = "DROP PARTITION FIELD p", "REPLACE PARTITION FIELD p WITH q"


@pytest.fixture
def table(named: Named) -> Table:
    return named("dropped")


def with_deletes(
    table: Table, change: str, *, commits: int = 1, by: Any = "id", key: str = "", more: int = 0
) -> Table:
    """Three of thirty rows of each of two partitions are deleted; then the partition column is
    dropped, and more rows follow.
    """
    table.create("id bigint, p int, q int", "p", commit_manifest__merge_enabled="false")
    for n in range(commits):
        commit = table.commit()
        for p in (1, 2):
            commit.data(f"SELECT id + {1000 * p + 30 * n}, {p}, 1 FROM range(15)", {"p": p})
            commit.data(f"SELECT id + {1000 * p + 30 * n + 15}, {p}, 1 FROM range(15)", {"p": p})
        commit.done()
    commit = table.commit()
    for p in (1, 2):
        commit.deletes(by, f"SELECT {1000 * p} + id * 10{key.format(p=p)} FROM range(3)", {"p": p})
    commit.done()
    for statement in (
        change,
        "DROP COLUMN p",
        "UNSET TBLPROPERTIES ('commit.manifest-merge.enabled')",
    ):
        table.sql(f"ALTER TABLE {{t}} {statement}")
    for n in range(more):
        table.sql(f"INSERT INTO {{t}} VALUES ({9000 + n}, 1)")
    table.files.refresh()
    return table


@dangling_of_dropped_columns
@pytest.mark.parametrize(
    ("change", "more"),
    [(UNPARTITIONED, 0), (BY_ANOTHER, 1)],
    ids=["unpartitioned", "by another column"],
)
@pytest.mark.parametrize(
    ("by", "key"), [("id", ""), (["id", "p"], ", {p}")], ids=["key", "key with the column"]
)
def test_one_commit_rewrites_the_whole_table(
    table: Table, change: str, more: int, by: Any, key: str
) -> None:
    with_deletes(table, change, more=more, by=by, key=key)
    before = table.rows()
    plan = table.plan()
    outcome = is_proved(table.run(plan))
    table.files.refresh()

    assert len(before) == 2 * 27 + more
    assert [(a.where, a.options.get("partial-progress.enabled")) for a in plan.actions] == [
        (None, None)
    ]
    assert outcome.actual.files_in == 4 + more
    assert table.rows() == before
    assert table.delete_files("WHERE content = 2") == 0
    assert table.plan().actions == ()


@dangling_of_dropped_columns
def test_the_statement_of_the_finding_does_the_same(table: Table) -> None:
    with_deletes(table, BY_ANOTHER)
    before = table.rows()
    (finding,) = [
        f for f in diagnose(table.lake.observe(table.name)) if f.name == "equality_deletes"
    ]
    table.sql(finding.sql[0])
    table.files.refresh()

    assert table.rows() == before
    assert table.delete_files("WHERE content = 2") == 0


def test_no_other_commit_is_made(table: Table) -> None:
    """Iceberg would write the manifests of the old files again, with nulls for their partitions,
    and their deletes would apply no more.
    """
    with_deletes(table, BY_ANOTHER, commits=3)
    before, snapshots = table.rows(), table.snapshots()
    part = replace(of_every_file(table), where="q = 1")
    parts = replace(of_every_file(table), options={"partial-progress.enabled": "true"})
    manifests = replace(
        of_every_file(table, "rewrite_manifests"),
        options={},
        prediction=Prediction(source="metadata"),
    )
    plan = table.plan()
    for action in (part, parts, manifests):
        outcome = table.run(replace(plan, actions=(action,)))
        assert "The column of partition field `p` was dropped" in str(outcome.actions[0].error)
    converted = table.run(plan_conversion(table.lake, table.name))

    assert "The column of partition field `p` was dropped" in str(converted.actions[0].error)
    assert table.snapshots() == snapshots
    assert table.rows() == before


@pytest.mark.slow
def test_what_iceberg_does_at_any_commit(table: Table) -> None:
    """If this fails, Iceberg keeps the values of such partitions, and the rewrite of the whole
    table is no longer needed.
    """
    with_deletes(table, BY_ANOTHER, commits=3)
    before = len(table.rows())
    table.sql("INSERT INTO {t} VALUES (9000, 1)")

    assert len(table.rows()) == before + 1 + 6


@pytest.mark.slow
def test_both_collectors_read_partitions_whose_every_column_was_dropped(table: Table) -> None:
    with_deletes(table, UNPARTITIONED)
    local, spark = (
        table.lake.observe(table.name, collector=collector) for collector in ("local", "spark")
    )

    assert local.dropped_fields_under_deletes == spark.dropped_fields_under_deletes == ("p",)
    assert local.groups == spark.groups
    assert local.data.file_count == 4


ICEBERG = "org.apache.iceberg.exceptions."
SPARK = ("org.apache.spark.SparkException", "Writing job aborted")


@pytest.mark.parametrize(
    ("fails", "attempts"),
    [
        ([SPARK, (f"{ICEBERG}ValidationException", "Cannot find source column")], 2),
        ([SPARK, (f"{ICEBERG}CommitStateUnknownException", "Service failed: 503")], 3),
        ([], 3),
    ],
    ids=["refused twice", "503", "without an error"],
)
def test_what_fails_while_nobody_else_writes_is_tried_again_until_iceberg_refuses_it_twice(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    fails: list[tuple[str, str | None]],
    attempts: int,
) -> None:
    table.create(by="").fill(6)

    def execute(*_: Any, **__: Any) -> RewriteResult:
        if fails:
            raise raised("An error occurred while calling o99.execute", *fails)
        return RewriteResult(PlannedRewrite(1, 6, 6000, 1))

    monkeypatch.setattr(PlanRun, "_execute", execute)
    limits = Limits(retry=Retry(attempts=3, first_wait=0))
    outcome = table.run(table.plan(), limits=limits)

    (action,) = outcome.actions
    assert action.status == "failed"
    assert action.attempts == attempts
    assert (fails[-1][1] or "" if fails else "6 of 6 planned data files not replaced") in str(
        action.error
    )
