"""A rewrite that sorts no rows keeps the order of files, so that a filter on one value opens no more
files than before; where it cannot, it says so before it runs.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.health.facts.column_bounds import bounded_columns
from icekit.health.facts.head import head
from icekit.iceberg.filter_opens import FilterOpens
from icekit.iceberg.manifests import manifest_list
from icekit.maintain.action import Action
from icekit.maintain.plan import SkipReason
from icekit.maintain.planning.file_order import FileBounds
from icekit.maintain.planning.table_plan import plan_table
from icekit.rows.rewrite import rewrite_session
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from tests.maintain.tables import FILES, STEP, Named, Table, is_proved, scattered

pytestmark = pytest.mark.spark

# Some values of the ranges of old files.
VALUES = [file * STEP + 7 for file in range(0, FILES, 3)]
DELETES = {"write_delete_mode": "merge-on-read"}


def opened(table: Table, column: str) -> float:
    """The mean number of files that Iceberg's scan opens for a value of a column."""
    expressions = table.java.expressions.Expressions
    iterables = table.java.relocated.com.google.common.collect.Iterables
    loaded = table.files.table()
    loaded.refresh()
    files = 0
    for value in VALUES:
        tasks = loaded.newScan().filter(expressions.equal(column, value)).planFiles()
        files += int(iterables.size(tasks))
        tasks.close()
    return files / len(VALUES)


def of_column(filters: tuple[FilterOpens, ...], column: str) -> FilterOpens:
    return next(opens for opens in filters if opens.column == column)


def delete_by_position(table: Table) -> None:
    table.sql("DELETE FROM {t} WHERE id % 5 = 3")


def delete_by_equality(table: Table) -> None:
    table.delete("id", "SELECT id FROM range(0, 20000, 5)")


@pytest.mark.parametrize(
    "delete",
    [delete_by_equality, lambda _: None, delete_by_position],
    ids=["under equality deletes", "without deletes", "under position deletes"],
)
def test_a_filter_opens_no_more_files_after_a_rewrite(
    named: Named, delete: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A join applies the deletes.
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", 0)
    table = scattered(named("ordered"), icekit_filter__columns="id", **DELETES)
    delete(table)
    assert opened(table, "id") == 1

    plan = table.plan()
    outcome = is_proved(table.run(plan))

    assert plan.actions[0].order.files_by == "id"
    assert table.file_count() <= FILES / 2
    assert opened(table, "id") == 1
    opens = of_column(outcome.actions[0].filters, "id")
    assert (opens.files_before, opens.files_after) == (FILES, table.file_count())
    assert (opens.opens_before, round(opens.opens_after, 2)) == (1, 1)
    assert f"a filter on id opens 1 of {FILES} files before, 1 of" in outcome.text()


def test_groups_of_a_partition_hold_neighbours(named: Named) -> None:
    table = scattered(named("groups"), icekit_filter__columns="id")
    plan = table.plan()
    (action,) = plan.actions
    half = action.prediction.bytes_in // 2 + 1000
    in_two = {**action.options, "max-file-group-size-bytes": str(half)}

    is_proved(table.run(replace(plan, actions=(replace(action, options=in_two),))))

    assert table.file_count() <= FILES / 2
    assert opened(table, "id") == 1


def test_files_that_move_to_another_spec_are_sorted_by_what_they_were_in_the_order_of(
    named: Named,
) -> None:
    table = scattered(named("moved"), icekit_filter__columns="id")
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, v)")

    is_proved(table.compact(old_specs=True))

    # Both buckets have rows of each old file; and a new file of each may end at the value.
    assert table.file_count() > 4
    assert opened(table, "id") <= 3


def test_what_the_metadata_predicts_is_what_the_planner_predicts(named: Named) -> None:
    table = scattered(named("predicted"))
    (action,) = table.plan().actions
    at = head(table.lake, table.name)
    assert at.snapshot is not None
    location = at.snapshot["manifest-list"]
    read = table.lake.tables.source(table.name).read
    facts = table.lake.observe(table.name)

    filters = FileBounds(facts, read, manifest_list(read(location), location)).filter_opens(action)

    assert [column.name for column in bounded_columns(facts)][:2] == ["id", "other"]
    assert action.prediction.source == "planner"
    by_planner = {opens.column: opens for opens in action.prediction.filters}
    assert by_planner.keys() == {opens.column for opens in filters} == {"id", "other", "code", "v"}
    for opens in filters:
        other = by_planner[opens.column]
        assert opens.opens_before == pytest.approx(other.opens_before)
        assert opens.files_after == other.files_after
        assert opens.opens_after == pytest.approx(other.opens_after, rel=0.1)


def test_a_rewrite_that_makes_a_filter_slower_says_so_first_and_waits_for_a_person(
    named: Named,
) -> None:
    table = scattered(named("slower"), icekit_filter__columns="id")
    facts = table.lake.observe(table.name)
    policy = CompactionPolicy(leave_alone="0 minutes")
    before = opened(table, "other")

    plan = plan_table(table.lake, facts, policy=policy)
    unattended = plan_table(table.lake, facts, policy=policy, attended=False)

    (opens,) = plan.actions[0].prediction.slower_filters
    assert opens.column == "other"
    assert opens.opens_before == before == 1
    assert plan.text().splitlines()[2].startswith("Slower filter: A filter on other opens ")
    assert not unattended.actions
    assert [left.reason for left in unattended.left_alone] == [SkipReason.SLOWER_FILTERS]
    assert unattended.waits is not None
    assert unattended.waits.startswith("A filter on other opens ")
    # A person may want it all the same.
    outcome = is_proved(table.run(plan))
    actual = of_column(outcome.actions[0].filters, "other")
    assert actual.opens_after == pytest.approx(opened(table, "other"), abs=1.5)
    assert opens.opens_after == pytest.approx(actual.opens_after, abs=1)


def test_a_rewrite_that_sorts_rows_does_not_order_files(named: Named) -> None:
    table = scattered(named("sorted"))
    (action,) = table.plan(strategy="sort", columns="id").actions
    assert isinstance(action, Action)
    assert action.order == RewriteOrder("sort", (("id",),))
