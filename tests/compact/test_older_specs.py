"""Files of older partition specs: what a rewrite makes of them is predicted, and they move only
where that is asked or saves opens.
"""

from dataclasses import replace

import pytest

from icekit.compact.model import Plan, Prediction, SkipReason
from icekit.compact.trial import without_gain
from tests.compact.tables import Named
from tests.compact.test_plan import made, of, small


def test_a_rewrite_whose_trial_saves_nothing_is_left_alone() -> None:
    plan = made(of(small(1), small(2)), max_action_partitions=1)
    first, second = plan.actions
    idle = replace(first, prediction=Prediction(5, 50, 5, 50, file_opens_saved=0, source="trial"))
    tried: Plan = without_gain(replace(plan, actions=(idle, second)))

    assert tried.actions == (second,)
    assert tried.left_alone[-1].reason == SkipReason.SAVES_NOTHING
    # The benefit of an order is not fewer files.
    assert without_gain(replace(plan, actions=(replace(idle, must_save=False),))).actions != ()


@pytest.mark.spark
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
        (a.prediction.files_in, a.prediction.files_out, a.prediction.is_maximum)
        for a in plan.actions
    ] == [(5, 5, True)] * 2
    assert len({a.where for a in plan.actions}) == 2

    outcome = table.run(plan)
    assert outcome.actual.files_in == plan.prediction.files_in
    assert outcome.actual.files_out == 8
    assert table.rows() == before
    assert table.plan(old_specs=True).actions == ()
