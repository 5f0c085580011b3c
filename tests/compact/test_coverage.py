"""What a budget covers is counted from the plan that it makes."""

from icekit.compact.candidates import candidates
from icekit.compact.plan import coverage, plan
from icekit.compact.policy import Policy
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds
from tests.factories import FIRST_DAY, MIB, file_group, partition, table_facts

FACTS = table_facts(
    groups=tuple(
        file_group(*[MIB] * (10 * (day + 1)), of=partition(FIRST_DAY + day)) for day in range(4)
    )
)
FINDINGS = diagnose(FACTS)
FOUND = candidates(FACTS, FINDINGS, Policy(), Thresholds())


def test_no_budget_covers_everything() -> None:
    what = coverage(FOUND, plan(FACTS, FINDINGS))

    assert what.candidates == 4
    assert what.of_candidates == 4
    assert what.files_in == 100
    assert what.share_won == 1.0


def test_a_budget_covers_a_part_and_says_of_how_much() -> None:
    what = coverage(FOUND, plan(FACTS, FINDINGS, Policy(budget_files=45)))

    assert what.files_in <= 45
    assert what.of_files_in == 100
    assert what.of_candidates == 4
    assert what.share_won is not None
    assert 0 < what.share_won < 1


def test_nothing_to_save_has_no_share() -> None:
    healthy = table_facts()

    assert coverage((), plan(healthy, diagnose(healthy))).share_won is None
