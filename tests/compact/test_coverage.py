"""What a budget covers is counted from the plan that it makes."""

from __future__ import annotations

from icekit.compact import Policy, candidates
from icekit.compact.plan import coverage, plan
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds
from icekit.show.widgets.compaction import budget_text, budgets, slider_steps
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


def test_each_place_of_the_slider_is_a_budget_that_covers_so_many() -> None:
    for place, (label, budget) in enumerate(slider_steps(FOUND)):
        what = coverage(FOUND, plan(FACTS, FINDINGS, Policy.of({"budget": budget})))
        assert what.candidates == place + 1, label


def test_a_budget_of_ones_own_has_a_place_among_them_by_what_it_covers() -> None:
    labels = [label for label, _ in slider_steps(FOUND, "45 files", 2)]
    assert labels[2] == "own budget, 45 files: 2 of 4 candidates"
    assert labels[-1] == "all of 4 candidates"
    assert slider_steps(FOUND, "lots", None)[0] == ("own budget, lots: not a budget", "lots")

    one_of_them = slider_steps(FOUND)[1][1]
    assert slider_steps(FOUND, one_of_them, 2) == slider_steps(FOUND)
    assert slider_steps((), "45 files", 0) == [("nothing is worth rewriting", "45 files")]


def test_a_slider_over_very_many_candidates_has_few_places() -> None:
    assert len(slider_steps(FOUND * 5_000)) <= 21


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
