"""A trial on a clone tells what a run will come to, and leaves nothing behind."""

import pytest

from icekit.api import Lake
from icekit.compact.trial import try_plan
from icekit.sandbox.scratch import NAMESPACE
from tests.compact.tables import MERGE_ON_READ, Named, Table, contents

pytestmark = pytest.mark.spark


def test_a_trial_leaves_the_table_as_it_was_and_predicts_what_comes_of_a_run(
    named: Named, lake: Lake
) -> None:
    sick = named("tried").create(**MERGE_ON_READ).fill()
    sick.sql("DELETE FROM {t} WHERE id % 4 = 0")
    before = (
        lake.tables.source(sick.name).metadata_location,
        sick.snapshot_id(),
        contents(sick.location),
    )
    plan = sick.plan(trial=True)

    assert (
        lake.tables.source(sick.name).metadata_location,
        sick.snapshot_id(),
        contents(sick.location),
    ) == before
    assert not [name for name in lake.tables.names() if name[0] == NAMESPACE]
    assert not (sick.location.parent / NAMESPACE).exists()
    assert not sick.book.exists()
    assert {a.prediction.source for a in plan.actions} == {"trial"}
    assert plan.rehearsed is not None
    assert "Tried on a zero-copy clone" in repr(plan)

    outcome = sick.run(plan)
    predicted, actual = plan.prediction, outcome.actual
    assert outcome.proof is not None
    assert outcome.proof.ok is True
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
        of_a_large_table.setattr("icekit.compact.service.PLANNED_FILES", 10)
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


@pytest.mark.lab("skewed_small_files", "position_deletes")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["skewed_small_files", "position_deletes"])
def test_files_are_predicted_nearly_as_exactly_without_a_trial(lake: Lake, name: str) -> None:
    """Small partitions share no file, so dividing bytes by the target says too few. Iceberg packs
    files in any order, which may make one more.
    """
    facts = lake.observe(f"lab.{name}")
    predicted, tried = (
        lake.plan(facts, leave_alone="0 minutes", trial=trial).prediction for trial in (False, True)
    )

    assert predicted.source == "planner"
    assert tried.source == "trial"
    assert abs(predicted.files_out - tried.files_out) <= 1
