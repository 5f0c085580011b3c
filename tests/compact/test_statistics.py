"""Statistics in files of their own belong to one snapshot: a plan says that its commits leave them
behind.
"""

import pytest

from icekit.compact.model import Plan
from icekit.diagnose.findings import Thresholds
from icekit.facts.head import head
from icekit.facts.retention import Retention
from icekit.facts.snapshot_statistics import statistics_of
from icekit.facts.snapshots import SnapshotStatistics
from icekit.maintain.plan import plan_maintenance_table
from icekit.sql import literal
from tests.compact.tables import Table

pytestmark = pytest.mark.spark
BOTH = (SnapshotStatistics("table"), SnapshotStatistics("partition"))


@pytest.fixture
def table(sick: Table) -> Table:
    """Five small files in each of two partitions, and statistics of the table and of its
    partitions.
    """
    compute(sick, "table")
    compute(sick, "partition")
    return sick


def compute(table: Table, kind: str, more: str = "") -> None:
    table.sql(
        f"CALL lake.system.compute_{kind}_stats(table => {literal('.'.join(table.name))}{more})"
    )


def now(table: Table) -> tuple[SnapshotStatistics, ...]:
    at = head(table.lake, table.name)
    return statistics_of(at.metadata, at.snapshot_id)


def renew(table: Table, plan: Plan) -> None:
    for statement in plan.renewals:
        table.sql(statement)


def test_a_compaction_says_that_the_statistics_end_and_offers_the_calls_that_renew_them(
    table: Table,
) -> None:
    plan = table.plan()
    assert now(table) == plan.lost_statistics == BOTH
    assert (
        "The current snapshot has table statistics and partition statistics, and each commit"
        in repr(plan)
    )
    assert all(statement in repr(plan) for statement in plan.renewals)

    outcome = table.run(plan)
    assert outcome.status == "done"
    assert now(table) == ()
    assert (
        f"The current snapshot has no statistics now. To renew them: {'; '.join(plan.renewals)}"
        in repr(outcome)
    )
    renew(table, plan)
    assert now(table) == BOTH
    assert table.plan().lost_statistics == ()


def test_statistics_of_some_columns_are_renewed_for_these(table: Table) -> None:
    compute(table, "table", ", columns => array('name', 'id')")
    plan = table.plan()
    assert {*plan.lost_statistics[0].columns} == {"id", "name"}

    table.fill(1, 1)
    assert now(table) == ()
    renew(table, plan)
    assert now(table) == plan.lost_statistics


def test_maintenance_says_so_unless_it_only_removes(table: Table) -> None:
    for _ in range(2):
        table.fill(1, 1)
    compute(table, "partition")
    facts = table.lake.observe(table.name)
    limits = Thresholds(fragmented_manifests=1)
    rewrites = plan_maintenance_table(
        table.lake, facts, thresholds=limits, procedures=["rewrite_manifests"]
    )
    expires = plan_maintenance_table(
        table.lake, facts, retention=Retention.of({"keep_last": 1}), procedures=["expire_snapshots"]
    )

    assert [action.procedure for action in rewrites.actions] == ["rewrite_manifests"]
    assert rewrites.lost_statistics == (SnapshotStatistics("partition"),)
    assert "The current snapshot has partition statistics" in repr(rewrites)
    assert expires.statistics == rewrites.statistics
    assert expires.lost_statistics == ()


def test_a_branch_has_statistics_of_its_own(table: Table) -> None:
    table.sql("ALTER TABLE {t} CREATE BRANCH other")
    table.fill(3, 30, branch="other")

    assert table.plan(ref="other").lost_statistics == ()
    compute(table, "table", f", snapshot_id => {table.snapshot_id('other')}")
    plan = table.plan(ref="other")
    assert plan.lost_statistics == (SnapshotStatistics("table"),)
    assert plan.renewals == ()
    assert "The snapshot of other has table statistics" in repr(plan)
    assert "with the branch's new snapshot as snapshot_id" in repr(plan)
