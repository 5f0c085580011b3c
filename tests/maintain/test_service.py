"""Plans of tables in a catalog: whether Spark is asked, what the planner says of files of older
specs, which files are missing, and which statistics end with the plan's commits.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.errors import IcekitError, MetadataUnreadable
from icekit.common.sql import literal
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.head import head
from icekit.health.facts.retention import Retention
from icekit.health.facts.snapshot_statistics import statistics_of
from icekit.iceberg.snapshots import SnapshotStatistics
from icekit.maintain.plan import Plan
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.prediction import Certainty, Prediction
from tests.maintain.tables import Named, Table, is_proved

pytestmark = pytest.mark.spark


# A plan that is only looked at starts no Spark where the metadata tells what the planner selects.

LAB = ["small_files", "skewed_small_files", "oversized_files", "frequent_commits"]


@pytest.fixture
def stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake whose Spark is not running, and does not start."""

    def start(_: Lake) -> None:
        raise AssertionError("Spark was started")

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "spark_is_running", False)
        patch.setattr(Lake, "spark", property(start))
        yield lake


def predicted(lake: Lake, table: str, *, exact: bool) -> list[Prediction]:
    planned = plan_table(lake, lake.observe(f"lab.{table}"), exact=exact)
    return [action.prediction for action in planned.actions]


@pytest.fixture
def by_planner(lake: Lake) -> dict[str, list[Prediction]]:
    return {table: predicted(lake, table, exact=True) for table in LAB}


@pytest.mark.lab(*LAB)
def test_the_metadata_tells_what_the_planner_selects(
    by_planner: dict[str, list[Prediction]], stopped: Lake
) -> None:
    for table, planned in by_planner.items():
        assert planned
        by_metadata = predicted(stopped, table, exact=False)
        for ours, its in zip(by_metadata, planned, strict=True):
            assert ours.budget_figures == its.budget_figures
            assert ours.delete_files_removed == its.delete_files_removed
            # Where a file has to be split, only its footer says where that is possible.
            is_about = Certainty.ABOUT in {ours.certainty, its.certainty}
            assert abs(ours.files_out - its.files_out) <= (1 if is_about else 0)


@pytest.mark.lab("position_deletes", "small_files")
@pytest.mark.parametrize(("table", "exact"), [("position_deletes", False), ("small_files", True)])
def test_the_planner_is_asked_where_deletes_decide_what_is_rewritten_and_where_the_plan_is_to_be_run(
    stopped: Lake, table: str, exact: bool
) -> None:
    with pytest.raises(AssertionError, match="Spark was started"):
        predicted(stopped, table, exact=exact)


# Files that are gone.


@pytest.mark.parametrize("by", ["part", ""], ids=["one group of two", "the only group"])
def test_a_trial_and_a_run_name_the_file_that_is_gone(named: Named, by: str) -> None:
    table = named(f"gone_{by or 'whole'}").create(by=by).fill()
    plan, before = table.plan(), table.snapshot_id()
    gone = table.data_files()[0]
    gone.unlink()

    with pytest.raises(IcekitError, match=gone.name):
        table.plan(trial=True)
    assert table.snapshot_id() == before
    outcome = table.run(plan)

    assert outcome.status == "failed"
    assert gone.name in repr(outcome)
    with pytest.raises(MetadataUnreadable, match=rf"{gone.name}, so it is not compacted\. Restore"):
        table.plan(storage=True)


# Files of older partition specs.


def test_files_of_an_older_spec_move_once_partition_by_partition_into_at_most_the_files_that_are_predicted(
    named: Named,
) -> None:
    table = named("evolved").create().fill()
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)")
    table.fill(1, 4, start=40)
    before, plan = table.rows(), table.plan(old_specs=True, max_action_partitions=1)

    # Five files of a partition may become a file in each bucket, and one for nulls.
    assert table.plan().actions == ()
    assert [
        (a.prediction.files_in, a.prediction.files_out, str(a.prediction.certainty))
        for a in plan.actions
    ] == [(5, 5, "at most")] * 2
    assert len({a.where for a in plan.actions}) == 2

    outcome = table.run(plan)
    assert outcome.actual.files_in == plan.prediction.files_in
    assert outcome.actual.files_out == 8
    assert table.rows() == before
    assert table.plan(old_specs=True).actions == ()


# Statistics in files of their own belong to one snapshot.


def compute(table: Table, kind: str, more: str = "") -> None:
    table.sql(
        f"CALL lake.system.compute_{kind}_stats(table => {literal('.'.join(table.name))}{more})"
    )


def statistics(table: Table) -> tuple[SnapshotStatistics, ...]:
    at = head(table.lake, table.name)
    return statistics_of(at.metadata, at.snapshot_id)


def noted(plan: Plan) -> list[str]:
    return [note for note in plan.notes if "those that this plan commits have none" in note]


def test_a_compaction_says_that_the_statistics_end_and_offers_the_calls_that_renew_them(
    sick: Table,
) -> None:
    compute(sick, "table")
    compute(sick, "partition")
    (note,) = noted(sick.plan())
    assert "has table statistics and partition statistics" in note

    assert sick.compact().status == "done"
    assert statistics(sick) == ()
    for statement in note.partition("snapshot_id): ")[2].split("; "):
        sick.sql(statement)
    assert statistics(sick) == (SnapshotStatistics("table"), SnapshotStatistics("partition"))
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


def test_deletes_that_dangle_are_predicted_once_however_many_actions_there_are(
    named: Named,
) -> None:
    table = named("dangling").under_deletes()
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    table.fill(start=1000)
    table.files.refresh()
    dangling = table.delete_files()
    plan = table.plan(max_action_partitions=1)
    outcome = is_proved(table.run(plan))
    table.files.refresh()

    assert dangling > 1
    assert len(plan.actions) == 2
    assert plan.prediction.delete_files_removed == dangling
    for action in outcome.actions:
        predicted_count = action.action.prediction.delete_files_removed
        assert action.actual.delete_files_removed == predicted_count
    assert table.delete_files() == 0
