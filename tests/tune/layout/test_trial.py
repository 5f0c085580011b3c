"""What a trial of a layout measures comes from its sandbox, within the budget, before and after in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from icekit.engine.planner import PlannedScan
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import Budget, BudgetSpent, Committed, Trial
from icekit.tune.filters import Filter, Leaf
from icekit.tune.layout import AskedFilters, run_trial
from icekit.tune.layout.clustering import plans
from icekit.tune.layout.model import SORT, Field, LayoutOrder
from icekit.tune.queries import Filters
from tests.factories import MIB, file_group, partition, table_facts

ORDER = LayoutOrder(SORT, ("carrier",))
DAY = (Field("event_time", "day"),)
LOOKUP = Filter("carrier = 'UA'", Leaf("carrier", "=", ("UA",)))
ASKED = AskedFilters(found=Filters((LOOKUP,)), bound=[LOOKUP], opened={LOOKUP: PlannedScan(40, 8_000 * MIB, 0)})


def of_files(number: int, size: int) -> TableFacts:
    """A table of so many files of one size in one partition."""
    return table_facts(groups=(file_group(*[size] * number, of=partition()),))


def spent(_: str) -> PlannedScan:
    raise BudgetSpent("time is up")


@dataclass
class Box:
    """A sandbox that runs nothing: each rewrite makes it the next of ``written``, and ``plan`` answers for the planner."""

    written: Sequence[TableFacts]
    plan: Callable[[str], PlannedScan]
    is_sample: bool = False
    scale: float = 1.0
    rewrites: int = 0
    observed: int = 0
    settings: list[str] = field(default_factory=list)
    name: tuple[str, ...] = ("lake", "scratch", "copy")

    @property
    def size_in_bytes(self) -> int:
        return self.written[0].data.size_in_bytes

    def set(self, sql: str) -> None:
        self.settings.append(sql)

    def run(self, _: str, **__: int) -> Committed:
        self.rewrites += 1
        return Committed(10.0, [], cast("Any", None))

    def observe(self) -> TableFacts:
        self.observed += 1
        return self.written[self.rewrites]


class TrialOn(Trial):
    """A trial that lends one box."""

    box: Box

    @contextlib.contextmanager
    def sandbox(self, **_: bool) -> Iterator[Any]:
        yield self.box


def trial_on(box: Box, facts: TableFacts) -> TrialOn:
    trial = TrialOn(lake=cast("Any", None), facts=facts, budget=Budget(3_600), sample_bytes=1, progress=lambda _: None)
    trial.box = box
    return trial


def test_planning_lets_a_spent_budget_through_and_leaves_out_what_cannot_be_planned() -> None:
    def refused(_: str) -> PlannedScan:
        raise KeyError("a column that is gone")

    assert plans(refused, table_facts(), [LOOKUP], lambda _: None) == {}
    with pytest.raises(BudgetSpent):
        plans(spent, table_facts(), [LOOKUP], lambda _: None)


def test_planning_in_the_sandbox_is_held_to_the_budget() -> None:
    trial = trial_on(Box([table_facts()] * 2, spent), table_facts())

    ran = run_trial(trial, ASKED, (DAY, ORDER))

    assert ran.tried is None
    assert trial.stopped == "time is up"


def test_a_sample_that_is_rewritten_first_is_compared_with_what_that_rewrite_left() -> None:
    opened = iter([PlannedScan(30, 12 * MIB, 0), PlannedScan(10, 3 * MIB, 0)])
    box = Box([of_files(2, 50 * MIB), of_files(40, MIB), of_files(40, MIB)], lambda _: next(opened), is_sample=True, scale=10.0)
    trial = trial_on(box, of_files(200, 500 * MIB))

    tried = run_trial(trial, ASKED, (DAY, ORDER)).tried

    assert tried is not None
    assert (tried.files_before, tried.bytes_before, tried.share_before) == (40, 40 * MIB, 12 / 40)
    assert (tried.files_after, tried.bytes_after, tried.share_after) == (40, 40 * MIB, 3 / 40)
    # The copy, what the first rewrite left, and what the layout made of it.
    assert box.observed == 3


def test_a_clone_is_compared_with_the_table_and_looked_at_once() -> None:
    box = Box([of_files(40, 500 * MIB)] * 2, lambda _: PlannedScan(4, 2_000 * MIB, 0))

    tried = run_trial(trial_on(box, of_files(40, 500 * MIB)), ASKED, (DAY, ORDER)).tried

    assert tried is not None
    assert (tried.files_before, tried.bytes_before, tried.share_before) == (40, 20_000 * MIB, 0.4)
    assert tried.share_after == 0.1
    assert box.observed == 1


def test_a_filter_that_cannot_be_planned_any_more_counts_on_neither_side() -> None:
    other = Filter("event_id = 7", Leaf("event_id", "=", (7,)))
    asked = AskedFilters(found=Filters((LOOKUP, other)), bound=[LOOKUP, other], opened={**ASKED.opened, other: PlannedScan(1, MIB, 0)})

    def planned(where: str) -> PlannedScan:
        if "event_id" in where:
            raise KeyError("event_id")
        return PlannedScan(4, 2_000 * MIB, 0)

    tried = run_trial(trial_on(Box([of_files(40, 500 * MIB)] * 2, planned), of_files(40, 500 * MIB)), asked, (DAY, ORDER)).tried

    assert tried is not None
    assert (tried.share_before, tried.share_after) == (0.4, 0.1)
