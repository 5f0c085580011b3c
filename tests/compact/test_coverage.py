"""What a budget covers is counted from the plan that it makes."""

from __future__ import annotations

from icekit.compact import Policy, candidates
from icekit.compact.plan import coverage, plan
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds
from icekit.show.widgets.compaction import budget_text, budgets
from tests.factories import FIRST_DAY, MIB, file_group, partition, table_facts

FACTS = table_facts(groups=tuple(file_group(*[MIB] * (10 * (day + 1)), of=partition(FIRST_DAY + day)) for day in range(4)))
FINDINGS = diagnose(FACTS)
FOUND = candidates(FACTS, FINDINGS, Policy(), Thresholds())


def test_no_budget_covers_everything() -> None:
    what = coverage(FOUND, plan(FACTS, FINDINGS))

    assert (what.candidates, what.of_candidates, what.files_in, what.share_won) == (4, 4, 100, 1.0)


def test_a_budget_covers_a_part_and_says_of_how_much() -> None:
    what = coverage(FOUND, plan(FACTS, FINDINGS, Policy(budget_files=45)))

    assert what.files_in <= 45
    assert (what.of_files_in, what.of_candidates) == (100, 4)
    assert what.share_won is not None
    assert 0 < what.share_won < 1


def test_nothing_to_save_has_no_share() -> None:
    healthy = table_facts()

    assert coverage((), plan(healthy, diagnose(healthy))).share_won is None


def test_a_budget_in_bytes_is_written_in_a_unit_that_is_exact() -> None:
    assert [budget_text(Policy(budget_bytes=b)) for b in (50 * 10**9, 3 * 2**30, 10**9 + 1)] == ["50 GB", "3 GiB", "1000000001 B"]


def test_rows_of_budgets_end_with_all_there_is() -> None:
    grid = budgets(FOUND, lambda limit: plan(FACTS, FINDINGS, Policy(budget_bytes=limit)))

    assert (grid["candidates"][-1], grid["of_candidates"][-1], grid["share_saved"][-1]) == (4, 4, 1.0)
    assert grid.lines()[-1].endswith("100 %")


def test_a_budget_reads_back_as_it_was_given() -> None:
    for given in (
        Policy(),
        Policy(budget_bytes=5),
        Policy(budget_bytes=50 * 10**9),
        Policy(budget_bytes=3 * 2**30),
        Policy(budget_files=7),
        Policy(budget_minutes=1.5),
    ):
        again = Policy.of({"budget": budget_text(given)})
        assert (again.budget_bytes, again.budget_files, again.budget_minutes) == (
            given.budget_bytes,
            given.budget_files,
            given.budget_minutes,
        )
