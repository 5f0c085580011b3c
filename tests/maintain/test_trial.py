"""A trial on a clone tells what a run will come to, and leaves nothing behind."""

import pytest

from icekit.api import Lake
from icekit.maintain.run.trial import try_plan
from icekit.sandbox.scratch import NAMESPACE
from tests.maintain.tables import Named, Table, contents, is_proved

pytestmark = pytest.mark.spark


def test_a_trial_leaves_the_table_as_it_was_and_predicts_what_comes_of_a_run(
    named: Named, lake: Lake
) -> None:
    sick = named("tried").under_deletes()

    def state() -> tuple[object, ...]:
        return lake.tables.source(sick.name).metadata_location, contents(sick.location)

    before = state()
    plan = sick.plan(trial=True)

    assert state() == before
    assert not [name for name in lake.tables.names() if name[0] == NAMESPACE]
    assert not (sick.location.parent / NAMESPACE).exists()
    assert not sick.book.exists()
    assert {a.prediction.source for a in plan.actions} == {"trial"}
    assert plan.rehearsed is not None
    assert "Tried on a zero-copy clone" in repr(plan)

    predicted, actual = plan.prediction, is_proved(sick.run(plan)).actual
    assert actual.files_in == predicted.files_in
    assert actual.files_out == predicted.files_out
    assert actual.bytes_out == predicted.bytes_out
    assert actual.delete_files_removed == predicted.delete_files_removed


def test_a_trial_of_a_sample_is_scaled_to_all_of_the_action(
    sick: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, plan = sick.snapshot_id(), sick.plan()
    with monkeypatch.context() as of_a_large_table:
        # The planner may go through all ten files, but once.
        of_a_large_table.setattr("icekit.maintain.planning.table_plan.PLANNED_FILES", 10)
        assert [a.prediction.source for a in sick.plan(max_action_partitions=1).actions] == [
            "planner",
            "facts",
        ]

    tried = try_plan(lake, lake.observe(sick.name), plan, sample_bytes=1, progress=lambda _: None)

    assert {a.prediction.source for a in tried.actions} == {"trial of a sample"}
    assert [(a.partitions, a.where) for a in tried.actions] == [
        (a.partitions, a.where) for a in plan.actions
    ]
    assert tried.prediction.files_in == plan.prediction.files_in == 10
    assert sick.snapshot_id() == here
    assert not [name for name in lake.tables.names() if name[0] == NAMESPACE]
