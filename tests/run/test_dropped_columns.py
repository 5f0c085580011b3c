"""Deletes of partitions by a column that was dropped: applied in one commit, and no other commit is
made while they apply.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.compact.execute import RewriteResult
from icekit.compact.model import Plan, Prediction
from icekit.compact.outcome import Outcome
from icekit.compact.policy import Policy
from icekit.compact.service import plan_table
from icekit.diagnose import diagnose
from icekit.engine.planner import PlannedRewrite
from icekit.run import attempt
from icekit.run.limits import Limits, Retry
from icekit.run.verbs import run
from tests.compact.test_execute import raised
from tests.resolve.tables import Table, of_every_file
from tests.versions import dangling_of_dropped_columns

pytestmark = pytest.mark.spark

#: What becomes of the spec before its column is dropped.
UNPARTITIONED, BY_ANOTHER = "DROP PARTITION FIELD p", "REPLACE PARTITION FIELD p WITH q"


@pytest.fixture
def table(lake: Lake, scratch: str) -> Table:
    """A table of the test's own."""
    return Table(lake, scratch, "dropped")


@pytest.fixture
def go(table: Table, tmp_path: Path) -> Callable[[Plan], Outcome]:
    """Runs a plan on it."""
    return lambda plan: run(
        table.lake, plan, execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None
    )


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


def planned(table: Table, **policy: Any) -> Plan:
    return plan_table(
        table.lake,
        table.lake.observe(table.name),
        policy=Policy.of({"leave_alone": "0 minutes", **policy}),
        ledger=":memory:",
        progress=lambda _: None,
    )


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
    table: Table, go: Callable[[Plan], Outcome], change: str, more: int, by: Any, key: str
) -> None:
    with_deletes(table, change, more=more, by=by, key=key)
    before = table.rows()
    plan = planned(table)
    outcome = go(plan)
    table.files.refresh()

    assert len(before) == 2 * 27 + more
    assert [(a.where, a.options.get("partial-progress.enabled")) for a in plan.actions] == [
        (None, None)
    ]
    assert outcome.status == "done"
    assert outcome.actual.files_in == 4 + more
    assert outcome.proof is not None
    assert outcome.proof.ok is True, outcome
    assert table.rows() == before
    assert table.equality_deletes() == 0
    assert planned(table).actions == ()


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
    assert table.equality_deletes() == 0


def test_no_other_commit_is_made(
    table: Table, go: Callable[[Plan], Outcome], tmp_path: Path
) -> None:
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
    plan = planned(table)
    for action in (part, parts, manifests):
        outcome = go(replace(plan, actions=(action,)))
        assert "The column of partition field `p` was dropped" in str(outcome.actions[0].error)
    converted = table.converts(tmp_path)

    assert "The column of partition field `p` was dropped" in str(converted.actions[0].error)
    assert table.snapshots() == snapshots
    assert table.rows() == before


def test_what_iceberg_does_at_any_commit(table: Table) -> None:
    """If this fails, Iceberg keeps the values of such partitions, and the rewrite of the whole
    table is no longer needed.
    """
    with_deletes(table, BY_ANOTHER, commits=3)
    before = sum(table.rows().values())
    table.sql("INSERT INTO {t} VALUES (9000, 1)")

    assert sum(table.rows().values()) == before + 1 + 6


@pytest.mark.slow
def test_both_collectors_read_partitions_whose_every_column_was_dropped(table: Table) -> None:
    with_deletes(table, UNPARTITIONED)
    local, spark = (
        table.lake.observe(table.name, collector=collector) for collector in ("local", "spark")
    )

    assert local.fragile_fields == spark.fragile_fields == ("p",)
    assert local.data.file_count == spark.data.file_count == 4


ICEBERG = "org.apache.iceberg.exceptions."
SPARK = ("org.apache.spark.SparkException", "Writing job aborted")


@pytest.mark.parametrize(
    ("fails", "attempts"),
    [
        ([SPARK, (f"{ICEBERG}ValidationException", "Cannot find source column")], 1),
        (
            [
                ("java.lang.RuntimeException", "ValidationException"),
                ("org.sqlite.SQLiteException", "[SQLITE_BUSY] The database is locked"),
            ],
            3,
        ),
        ([SPARK, (f"{ICEBERG}CommitStateUnknownException", "Service failed: 503")], 3),
        (
            [
                SPARK,
                (
                    f"{ICEBERG}CommitFailedException",
                    "Timed out after 180000 ms waiting for lock on db.t",
                ),
            ],
            3,
        ),
        ([], 3),
    ],
    ids=["refused for good", "another table's commit", "503", "lock", "without an error"],
)
def test_what_fails_while_nobody_else_writes_is_tried_again_unless_iceberg_refuses_it(
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: list[tuple[str, str | None]],
    attempts: int,
) -> None:
    table.create()
    for n in range(6):
        table.insert(f"VALUES ({n}, 'a')")

    def execute(*_: Any, **__: Any) -> RewriteResult:
        if fails:
            raise raised("An error occurred while calling o99.execute", *fails)
        return RewriteResult(PlannedRewrite(1, 6, 6000, 1))

    monkeypatch.setattr(attempt, "execute", execute)
    limits = Limits(retry=Retry(attempts=3, first_wait=0))
    outcome = run(
        table.lake,
        planned(table),
        execute=True,
        ledger=str(tmp_path / "l.db"),
        limits=limits,
        progress=lambda _: None,
    )

    (action,) = outcome.actions
    assert action.status == "failed"
    assert action.attempts == attempts
    assert "fewer writers" not in str(action.error)
    assert (fails[-1][1] or "" if fails else "6 of 6 planned data files not replaced") in str(
        action.error
    )
