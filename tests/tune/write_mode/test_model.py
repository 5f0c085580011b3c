"""Costs between two compactions, where modes break even, and what the answer rests on."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from icekit.engine.effort import Effort
from icekit.tune.write_mode.history import COPY_ON_WRITE, MERGE_ON_READ
from icekit.tune.write_mode.model import CostComparison, Costs, Variant, best_cycle, commits_until, even_sentence, is_robust, sensitivity
from icekit.tune.write_mode.trial import VariantMeasures, is_settled

COW = Variant(COPY_ON_WRITE, 2)
MOR = Variant(MERGE_ON_READ, 2, "file")
VECTORS = Variant(MERGE_ON_READ, 3)

copying = Costs(COW, write_seconds=20.0, open_seconds=0.0, opens_per_commit=1)
merging = Costs(MOR, write_seconds=4.0, open_seconds=0.01, opens_per_commit=50, touched_share=0.5, rewrite_seconds=30.0)
vectors = Costs(
    VECTORS, write_seconds=5.0, open_seconds=0.01, opens_per_commit=50, opens_limit=100, touched_share=0.5, rewrite_seconds=30.0
)


def test_position_delete_files_pile_up_and_vectors_do_not() -> None:
    assert [merging.opens(n) for n in (1, 2, 10)] == [50, 100, 500]
    assert [vectors.opens(n) for n in (1, 2)] == [50, 75]
    assert vectors.opens(1000) == pytest.approx(100)


def test_the_cost_of_a_cycle_is_what_a_simulation_adds_up() -> None:
    commits, reads = 7, 3
    spent = 0.0
    for n in range(1, commits + 1):
        spent += 4.0 + reads * (1.0 + 0.01 * 50 * n)
    spent += 30.0 * (1 - 0.5**commits)

    cost = CostComparison((copying, merging), 1.0, commits).per_commit(merging, reads)

    assert cost.total * commits == pytest.approx(spent)


@given(
    write=some.floats(0.1, 100),
    saved=some.floats(0.1, 100),
    opening=some.floats(1e-4, 0.1),
    opens=some.floats(1, 500),
    commits=some.integers(1, 50),
    limit=some.none() | some.floats(500, 5000),
)
def test_at_the_break_even_both_modes_cost_the_same(
    write: float, saved: float, opening: float, opens: float, commits: int, limit: float | None
) -> None:
    one = Costs(COW, write + saved, 0.0, 1)
    other = Costs(MOR, write, opening, opens, limit)
    comparison = CostComparison((one, other), 1.0, commits)

    reads = comparison.break_even(one, other)

    if math.isinf(reads):
        assert comparison.winner(1e5) is other
        return
    assert comparison.per_commit(one, reads).total == pytest.approx(comparison.per_commit(other, reads).total)
    assert comparison.winner(reads * 1.01 + 1e-6) is one
    assert comparison.winner(reads * 0.99 - 1e-6) is other


def test_a_mode_that_is_cheaper_at_any_number_of_reads_is_said_to_be() -> None:
    free = Costs(MOR, 1.0, 0.0, 10)
    expensive = Costs(MOR, 30.0, 0.1, 10)

    assert CostComparison((copying, free), 1.0, 5).break_even(copying, free) == math.inf
    assert CostComparison((copying, expensive), 1.0, 5).break_even(copying, expensive) == 0


def test_the_rival_of_copy_on_write_is_the_variant_that_holds_out_longest() -> None:
    comparison = CostComparison((copying, merging, vectors), 1.0, 10)

    found = comparison.main_break_even()

    assert found is not None
    assert found.merging is vectors
    assert found.reads == max(comparison.break_even(copying, merging), comparison.break_even(copying, vectors))


def test_no_break_even_of_one_mode_alone() -> None:
    assert CostComparison((copying,), 1.0, 10).main_break_even() is None


@pytest.mark.parametrize("reads", [0.1, 1.0, 20.0])
def test_no_other_cadence_costs_less_than_the_best(reads: float) -> None:
    best = best_cycle(merging, reads)

    def cost(n: int) -> float:
        made = CostComparison((merging,), 1.0, n).per_commit(merging, reads)
        return made.read + made.compaction

    assert all(cost(best) <= cost(n) + 1e-9 for n in range(1, 300))


def test_without_a_cadence_each_variant_has_the_best_at_any_number_of_reads() -> None:
    free = CostComparison((copying, merging), 1.0, None)

    assert free.cycle(merging, 1.0) == best_cycle(merging, 1.0) > free.cycle(merging, 20.0) == best_cycle(merging, 20.0)
    even = free.break_even(copying, merging)
    assert free.per_commit(copying, even).total == pytest.approx(free.per_commit(merging, even).total, rel=1e-3)
    # No cadence that is stated does better.
    assert all(CostComparison((copying, merging), 1.0, n).break_even(copying, merging) <= even + 1e-6 for n in range(1, 60))
    assert len(sensitivity(free, even)) == 10


def test_without_reads_compacting_never_pays() -> None:
    assert best_cycle(merging, 0.0) == 1000


def test_commits_until_reads_cost_more() -> None:
    # 0.5 s a commit: the fifth takes a scan of 8 s past a quarter more.
    assert commits_until(merging, 8.0, 0.25) == 5
    # 100 vectors cost a second, and there are never more.
    assert commits_until(vectors, 8.0, 0.25) is None


def test_sensitivity_halves_and_doubles_each_input_and_knows_a_narrow_answer() -> None:
    wide = CostComparison((copying, merging), 1.0, 20)
    even = wide.break_even(copying, merging)

    near, far = sensitivity(wide, even * 0.9), sensitivity(wide, even * 0.01)

    assert len(near) == 12
    assert not is_robust(near, wide.winner(even * 0.9).variant)
    assert is_robust(far, wide.winner(even * 0.01).variant)


def _uncertain(of_writes: float = 0.0, of_opens: float = 0.0, of_compaction: float = 0.0) -> CostComparison:
    one = replace(copying, error_seconds=of_writes)
    other = replace(merging, error_seconds=of_writes, open_error=of_opens, rewrite_error=of_compaction)
    return CostComparison((one, other), 1.0, 10)


@pytest.mark.parametrize("errors", [{"of_writes": 1.0}, {"of_opens": 0.002}, {"of_compaction": 10.0}])
def test_each_input_that_differs_between_repeats_widens_the_interval_of_the_break_even(errors: dict[str, float]) -> None:
    certain, even = _uncertain().main_break_even(), _uncertain(**errors).main_break_even()

    assert certain is not None
    assert even is not None
    assert certain.low == certain.reads == certain.high
    assert even.low < even.reads == certain.reads < even.high


def test_the_ends_of_the_interval_are_the_break_even_of_the_costs_at_their_ends() -> None:
    even = _uncertain(1.0, 0.002, 10.0).main_break_even()

    low = CostComparison(
        (replace(copying, write_seconds=19.0), replace(merging, write_seconds=5.0, open_seconds=0.012, rewrite_seconds=40.0)), 1.0, 10
    )
    assert even is not None
    assert even.low == low.break_even(*low.costs)
    assert (even.is_close(even.low * 0.99), even.is_close(even.reads), even.is_close(even.high * 1.01)) == (False, True, False)


def test_opens_that_may_cost_nothing_leave_the_interval_open_above() -> None:
    comparison = _uncertain(of_opens=0.01)
    even = comparison.main_break_even()

    assert even is not None
    assert even.high == math.inf
    assert even.is_close(1e6)
    assert "(above " in even_sentence(comparison)


def test_the_sentence_tells_the_interval() -> None:
    assert re.search(r"above 4\.\d reads per commit \(between 3\.\d and 5\.\d by repeated", even_sentence(_uncertain(1.0, 0.0005, 1.0)))
    assert "by repeated" not in even_sentence(_uncertain())


def test_scans_are_repeated_until_what_deletes_add_stands_out() -> None:
    def settled(*costs: float) -> bool:
        reference = VariantMeasures(COW, scans=[Effort(9.0, cost) for cost in (1.0, 1.02, 1.5)])
        return is_settled([reference, VariantMeasures(MOR, scans=[Effort(9.0, cost) for cost in costs])])

    assert settled(1.2, 1.22, 3.0)
    assert not settled(1.03, 1.04)
    assert not settled(1.2, 1.3)
