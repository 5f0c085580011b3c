"""What a plan covers of the candidates: their bytes, files and file opens."""

from icekit.compact.candidates import candidates
from icekit.compact.plan import covered, plan, sums
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
    assert covered(FOUND, plan(FACTS, FINDINGS)) == list(FOUND)
    assert sums(FOUND) == (100 * MIB, 100, 96)


def test_a_budget_covers_a_part() -> None:
    chosen = covered(FOUND, plan(FACTS, FINDINGS, Policy(budget_files=45)))

    assert 0 < len(chosen) < len(FOUND)
    assert sums(chosen)[1] <= 45
