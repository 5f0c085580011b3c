"""Try on a clone what rewriting the manifests would do for planning: they come out clustered by partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.planner import PlannedScan, plan_scan
from icekit.facts.collect import observe
from icekit.facts.model import TableFacts
from icekit.sql import Identifier, call, display_name
from icekit.tune.budget import Budget
from icekit.tune.filters.model import Filter, predicates

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Filters that are planned before and after; the most frequent.
MOST_FILTERS = 20


@dataclass(frozen=True, slots=True)
class Read:
    """Planning one filter, as SQL (None: a full scan), on the manifests as they are, and rewritten."""

    text: str | None
    weight: float
    before: PlannedScan
    after: PlannedScan


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What rewriting the manifests came to; counts and bytes are of data manifests.

    ``reads`` begin with the full scan.
    """

    count_before: int
    count_after: int
    bytes_before: int
    bytes_after: int
    reads: tuple[Read, ...]

    @property
    def mean_before(self) -> float:
        """Manifests that a query opens, by the weight of the filters; of a full scan where there are none."""
        return _mean((r.before.manifests, r) for r in self.reads)

    @property
    def mean_after(self) -> float:
        """The same afterwards."""
        return _mean((r.after.manifests, r) for r in self.reads)


def _mean(opened: Iterable[tuple[int, Read]]) -> float:
    every = list(opened)
    some = [(n, read) for n, read in every if read.text is not None] or every
    weight = sum(read.weight for _, read in some)
    return sum(n * read.weight for n, read in some) / weight if weight else 0.0


def try_rewrite(lake: Lake, facts: TableFacts, clone: Identifier, filters: Sequence[Filter], *, repeats: int, budget: Budget) -> Rewritten:
    """Rewrite a clone's manifests and plan the filters before and after; only manifests are written."""
    columns = {c.name: c for c in facts.columns}
    asked: list[tuple[str | None, float]] = [(None, 1.0)]
    asked += [(where, one.weight) for one, where in predicates(filters[:MOST_FILTERS], columns)]
    name = lake.sql_name(clone)

    def plan() -> list[PlannedScan]:
        found = []
        for where, _ in asked:
            with budget.watching(lake.spark):
                found.append(min((plan_scan(lake.spark, name, where) for _ in range(repeats)), key=lambda p: p.seconds))
        return found

    before = plan()
    with budget.watching(lake.spark, facts.manifests.data_bytes):
        lake.spark.sql(call(lake.name, "rewrite_manifests", table=display_name(clone))).collect()
    budget.bytes_written += facts.manifests.data_bytes
    after = plan()
    rewritten = observe(lake, clone, collector="spark").manifests
    return Rewritten(
        facts.manifests.data_count,
        rewritten.data_count,
        facts.manifests.data_bytes,
        rewritten.data_bytes,
        tuple(Read(text, weight, b, a) for (text, weight), b, a in zip(asked, before, after, strict=True)),
    )
