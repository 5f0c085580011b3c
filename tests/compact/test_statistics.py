"""Statistics in files of their own belong to one snapshot: a plan says that its commits leave them
behind.
"""

from typing import Any

import pytest

from icekit.compact.model import Plan
from icekit.diagnose.findings import Thresholds
from icekit.facts.head import head
from icekit.facts.retention import Retention
from icekit.facts.snapshot_statistics import statistics_of
from icekit.facts.snapshots import SnapshotStatistics
from icekit.sql import literal
from tests.compact.tables import Table

pytestmark = pytest.mark.spark
NOTE = "those that this plan commits have none"


def compute(table: Table, kind: str, more: str = "") -> None:
    table.sql(
        f"CALL lake.system.compute_{kind}_stats(table => {literal('.'.join(table.name))}{more})"
    )


def now(table: Table) -> tuple[SnapshotStatistics, ...]:
    at = head(table.lake, table.name)
    return statistics_of(at.metadata, at.snapshot_id)


def noted(plan: Plan) -> list[str]:
    return [note for note in plan.notes if NOTE in note]


def test_a_compaction_says_that_the_statistics_end_and_offers_the_calls_that_renew_them(
    sick: Table,
) -> None:
    compute(sick, "table")
    compute(sick, "partition")
    (note,) = noted(sick.plan())
    assert "has table statistics and partition statistics" in note

    assert sick.compact().status == "done"
    assert now(sick) == ()
    for statement in note.partition("snapshot_id): ")[2].split("; "):
        sick.sql(statement)
    assert now(sick) == (SnapshotStatistics("table"), SnapshotStatistics("partition"))
    assert noted(sick.plan()) == []


def test_maintenance_says_so_unless_it_only_removes(sick: Table) -> None:
    for _ in range(2):
        sick.fill(1, 1)
    compute(sick, "partition")
    how: Any = {
        "retention": Retention(keep_last=1),
        "thresholds": Thresholds(fragmented_manifests=1),
    }
    rewrites, expires = (
        sick.maintenance(procedure, **how)
        for procedure in ("rewrite_manifests", "expire_snapshots")
    )

    assert len(rewrites.actions) == 1
    assert [len(noted(plan)) for plan in (rewrites, expires)] == [1, 0]


def test_a_branch_has_statistics_of_its_own(sick: Table) -> None:
    sick.sql("ALTER TABLE {t} CREATE BRANCH other")
    sick.fill(3, 30, branch="other")

    assert noted(sick.plan(ref="other")) == []
    compute(sick, "table", f", snapshot_id => {sick.snapshot_id('other')}")
    assert len(noted(sick.plan(ref="other"))) == 1
