"""Compare the cost of write modes between two compactions, find the break-even point, and derive properties. Pure.

Over a cycle of N commits with R reads after each, a variant costs

    N · write  +  R · Σ_{i=1..N} penalty(i)  +  compaction(N)

seconds of the unit that was measured (:mod:`icekit.engine.effort`), in addition to the R · N reads that every variant needs. ``penalty(i)``
is what a full scan costs more after i commits: for merge-on-read, a cost per delete file opened. Position delete files
pile up; a data file has at most one deletion vector, so their number approaches the number of
data files. Copy-on-write leaves no deletes, but may leave files of another size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from icekit.engine.effort import CLOCK
from icekit.facts.model import TableFacts
from icekit.sql import set_properties
from icekit.tune.card import Advice, to_set
from icekit.tune.write_mode.history import COPY_ON_WRITE, MERGE_ON_READ, WriteHistory
from icekit.units import count, elapsed, percent, plain, raised

#: The most commits between compactions to consider.
MAX_CYCLE = 1000
_MOST_READS, _HALVINGS = 1e6, 40


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A way to write: the mode, the format version and (version 2, merge-on-read) the delete granularity."""

    mode: str
    format_version: int
    granularity: str | None = None

    @property
    def is_copy_on_write(self) -> bool:
        """Tell whether changed files are rewritten."""
        return self.mode == COPY_ON_WRITE

    @property
    def name(self) -> str:
        """The name for people."""
        if self.is_copy_on_write:
            return COPY_ON_WRITE
        if self.format_version >= 3:
            return f"{MERGE_ON_READ}, deletion vectors (v{self.format_version})"
        return f"{MERGE_ON_READ}, position deletes per {self.granularity}"


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured cost of one variant, in seconds of the comparison's unit, and counts for a full scan.

    ``opens_per_commit`` is the number of delete files that one commit adds to a scan (for
    copy-on-write: 1 per commit), ``opens_limit`` their maximum, ``open_seconds`` what each
    adds to a scan. A commit changes ``touched_share`` of the data bytes, and
    ``rewrite_seconds`` is the cost to compact the entire table. The errors are by how much repeated runs of the trial differed:
    ``error_seconds`` is that of a commit, ``open_error`` of ``open_seconds``, ``rewrite_error`` of ``rewrite_seconds``.
    """

    variant: Variant
    write_seconds: float
    open_seconds: float
    opens_per_commit: float
    opens_limit: float | None = None
    touched_share: float = 1.0
    rewrite_seconds: float = 0.0
    error_seconds: float = 0.0
    open_error: float = 0.0
    rewrite_error: float = 0.0

    def shifted(self, sign: int) -> Costs:
        """The costs with every measured input at the upper (1) or lower (-1) end of what repeated runs differed by."""
        return replace(
            self,
            write_seconds=max(0.0, self.write_seconds + sign * self.error_seconds),
            open_seconds=max(0.0, self.open_seconds + sign * self.open_error),
            rewrite_seconds=max(0.0, self.rewrite_seconds + sign * self.rewrite_error),
        )

    def opens(self, commits: float) -> float:
        """Delete files that a full scan opens after so many commits, each of which draws its files again."""
        if self.opens_limit is None:
            return self.opens_per_commit * commits
        return self.opens_limit * _reached(self.opens_per_commit / self.opens_limit if self.opens_limit else 0.0, commits)

    def penalty(self, commits: float) -> float:
        """What a full scan costs more after so many commits."""
        return self.open_seconds * self.opens(commits)

    def penalties(self, commits: int) -> float:
        """The sum of the penalties after 1, 2 … commits."""
        if self.opens_limit is None:
            return self.open_seconds * self.opens_per_commit * commits * (commits + 1) / 2
        return sum(self.penalty(i) for i in range(1, commits + 1))

    def compaction(self, commits: float) -> float:
        """The cost to compact what so many commits touched."""
        return 0.0 if self.variant.is_copy_on_write else self.rewrite_seconds * _reached(self.touched_share, commits)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost per commit, on average over a cycle, with the reads that follow it; ``read`` is what deletes add to these, ``scan`` the rest of them."""

    write: float
    scan: float
    read: float
    compaction: float

    @property
    def total(self) -> float:
        """The total."""
        return self.write + self.scan + self.read + self.compaction


@dataclass(frozen=True, slots=True)
class Changed:
    """The answer with one input half or twice as large."""

    name: str
    factor: float
    winner: Variant
    break_even: float | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Reads per commit above which copy-on-write costs less than a merge-on-read variant: 0.0 if it always does, ``inf`` if it never does.

    From ``low`` to ``high`` it lies with the measured inputs at the ends of what repeated runs differed by.
    """

    copying: Costs
    merging: Costs
    reads: float
    low: float
    high: float

    def is_close(self, reads: float) -> bool:
        """Tell whether so many reads per commit are too close to the break-even point to say which mode is cheaper."""
        return self.low < self.high and self.low <= reads <= self.high


@dataclass(frozen=True, slots=True)
class CostComparison:
    """The variants measured, and the circumstances that they are compared in; costs are in seconds of ``unit``.

    ``read_seconds`` is a scan without deletes, ``read_error`` how far two of them differ. ``commits`` are those between two compactions; None
    gives each variant the cadence that costs it least, whatever the reads are.
    """

    costs: tuple[Costs, ...]
    read_seconds: float
    commits: int | None
    read_error: float = 0.0
    unit: str = CLOCK

    def error(self, one: Costs, other: Costs, reads: float) -> float:
        """Seconds a commit by which the costs of two variants may be wrong: what repeated commits and scans differed by."""
        return one.error_seconds + other.error_seconds + reads * self.read_error

    def of(self, variant: Variant) -> Costs | None:
        """What a variant costs; None if it was not measured."""
        return next((c for c in self.costs if c.variant == variant), None)

    def cycle(self, costs: Costs, reads: float) -> int:
        """The commits between two compactions of a variant, with so many reads after each."""
        if self.commits is not None:
            return self.commits
        return 1 if costs.variant.is_copy_on_write else best_cycle(costs, reads)

    def within(self, format_version: int) -> CostComparison:
        """The comparison of a format version's variants alone."""
        return replace(self, costs=tuple(c for c in self.costs if c.variant.format_version == format_version))

    def per_commit(self, costs: Costs, reads: float) -> Cost:
        """What a commit costs with so many reads after each."""
        n = self.cycle(costs, reads)
        return Cost(costs.write_seconds, reads * self.read_seconds, reads * costs.penalties(n) / n, costs.compaction(n) / n)

    def winner(self, reads: float) -> Costs:
        """The cheapest variant with so many reads per commit; the first of equals."""
        return min(self.costs, key=lambda c: self.per_commit(c, reads).total)

    def break_even(self, copying: Costs, merging: Costs) -> float:
        """Reads per commit above which copy-on-write is cheaper: 0.0 if it always is, ``inf`` if it never is."""

        def costs_more(reads: float) -> float:
            return self.per_commit(merging, reads).total - self.per_commit(copying, reads).total

        if costs_more(0.0) >= 0:
            return 0.0
        low, high = 0.0, 1.0
        while costs_more(high) < 0:
            low, high = high, high * 4
            if high > _MOST_READS:
                return math.inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if costs_more(middle) < 0 else (low, middle)
        return (low + high) / 2

    def main_break_even(self) -> BreakEven | None:
        """Copy-on-write against the merge-on-read variant that holds out longest, and where; None unless both were measured."""
        copying = [c for c in self.costs if c.variant.is_copy_on_write]
        merging = [c for c in self.costs if not c.variant.is_copy_on_write]
        if not copying or not merging:
            return None
        cheapest = min(copying, key=lambda c: self.per_commit(c, 0).total)
        reads, rival = max(((self.break_even(cheapest, c), c) for c in merging), key=lambda pair: pair[0])
        low = self.break_even(cheapest.shifted(-1), rival.shifted(1))
        high = self.break_even(cheapest.shifted(1), rival.shifted(-1))
        return BreakEven(cheapest, rival, reads, low, high)


def best_cycle(costs: Costs, reads: float, *, most: int = MAX_CYCLE) -> int:
    """The number of commits between compactions at which a commit costs least; ``most`` where compacting never pays."""
    best, least, read = most, math.inf, 0.0
    for n in range(1, most + 1):
        read += reads * costs.penalty(n)
        total = (read + costs.compaction(n)) / n
        if total < least - 1e-12:
            best, least = n, total
    return best


def commits_until(costs: Costs, read_seconds: float, share: float, *, most: int = MAX_CYCLE) -> int | None:
    """After how many commits a full scan costs ``share`` more than without deletes; None if never."""
    return next((n for n in range(1, most + 1) if costs.penalty(n) > share * read_seconds), None)


def sensitivity(comparison: CostComparison, reads: float) -> tuple[Changed, ...]:
    """The answer with each input halved and doubled."""
    found = []
    for name, change in _INPUTS.items():
        if comparison.commits is None and name == _CADENCE:
            continue
        for factor in (0.5, 2.0):
            other, at = change(comparison, reads, factor)
            even = other.main_break_even()
            found.append(Changed(name, factor, other.winner(at).variant, even.reads if even else None))
    return tuple(found)


def is_robust(changes: Iterable[Changed], winner: Variant) -> bool:
    """Tell whether the mode stays the same whichever input is half or twice as large."""
    return all(change.winner.mode == winner.mode for change in changes)


def _each(comparison: CostComparison, change: Callable[[Costs], Costs]) -> CostComparison:
    return replace(comparison, costs=tuple(map(change, comparison.costs)))


def _when(copying: bool, factor: float) -> Callable[[Costs], Costs]:
    def change(costs: Costs) -> Costs:
        hit = costs.variant.is_copy_on_write == copying
        return replace(costs, write_seconds=costs.write_seconds * factor) if hit else costs

    return change


_CADENCE = "commits between compactions"
_Change = Callable[[CostComparison, float, float], tuple[CostComparison, float]]
_INPUTS: dict[str, _Change] = {
    "reads per commit": lambda c, r, f: (c, r * f),
    _CADENCE: lambda c, r, f: (replace(c, commits=max(1, round(c.commits * f)) if c.commits else None), r),
    "cost of a copy-on-write commit": lambda c, r, f: (_each(c, _when(True, f)), r),
    "cost of a merge-on-read commit": lambda c, r, f: (_each(c, _when(False, f)), r),
    "cost to open a delete file": lambda c, r, f: (
        _each(c, lambda x: x if x.variant.is_copy_on_write else replace(x, open_seconds=x.open_seconds * f)),
        r,
    ),
    "cost to compact": lambda c, r, f: (_each(c, lambda x: replace(x, rewrite_seconds=x.rewrite_seconds * f)), r),
}


def _reached(share: float, commits: float) -> float:
    """The share of files reached after so many commits that each draw a share of them again."""
    return float(1 - (1 - min(max(share, 0.0), 1.0)) ** commits)


def steps(comparison: CostComparison, reads: Sequence[float]) -> dict[str, list[float]]:
    """The cost per commit of each variant at several reads per commit: the lines of a chart."""
    return {c.variant.name: [comparison.per_commit(c, r).total for r in reads] for c in comparison.costs}


def even_sentence(comparison: CostComparison) -> str:
    """The break-even point of the two modes and the interval that it lies in, as a sentence."""
    even = comparison.main_break_even()
    if even is None:
        return "One of the two modes was not measured."
    copying, merging = even.copying.variant.name, even.merging.variant.name
    if math.isinf(even.reads):
        least = "" if math.isinf(even.low) else f" (by repeated measurements at least up to {_reads(even.low)} per commit)"
        return f"{raised(merging)} is cheaper at any number of reads{least}."
    if not even.reads:
        most = "" if not even.high else f" (by repeated measurements at least above {_reads(even.high)} per commit)"
        most = most if math.isfinite(even.high) else " (but repeated measurements differ too much to say so)"
        return f"{raised(copying)} is cheaper at any number of reads{most}."
    span = f"between {_reads(even.low)} and {_reads(even.high)}" if math.isfinite(even.high) else f"above {_reads(even.low)}"
    within = f" ({span} by repeated measurements)" if even.low < even.high else ""
    return f"{raised(copying)} is cheaper above {_reads(even.reads)} reads per commit{within}; {merging} below."


def close_sentence(even: BreakEven, reads: float) -> str:
    """That a number of reads is too close to the break-even point, and what would decide."""
    ends = []
    if even.low > 0:
        ends.append(f"{even.merging.variant.name} is cheaper below {_reads(even.low)}")
    if math.isfinite(even.high):
        ends.append(f"{even.copying.variant.name} {'' if ends else 'is cheaper '}above {_reads(even.high)}")
    decides = f" ({'; '.join(ends)})" if ends else ""
    return f"too close to call at {plain(reads)} reads per commit{decides}. A trial with more commits and repeats would narrow this down"


def _reads(reads: float) -> str:
    return plain(reads, 2)


# --- From a comparison to table properties. Pure


_GRANULARITY = "write.delete.granularity"
#: The setting of the advice on compaction; no statement sets it.
INTERVAL = "compaction interval"
_V3 = (
    "the upgrade cannot be undone, and every reader and writer of the table must support version 3 "
    "(Spark with Iceberg 1.8 or newer for deletion vectors; check Flink, Trino, Athena, Snowflake and pyiceberg, which reads but does not write it)"
)
_V2 = "merge-on-read needs format version 2: the upgrade cannot be undone, and all readers must support deletes"
#: A compaction is due when reads cost this share more.
READS_COST_MORE = 0.25


def current_variant(facts: TableFacts, operation: str) -> Variant:
    """The current write mode of an operation."""
    mode = facts.setting(f"write.{operation}.mode") or "copy-on-write"
    version = max(facts.format_version, 2)
    if mode == "copy-on-write" or version >= 3:
        return Variant(mode, version)
    # The property's default says partition, but Spark writes per file unless it is set (SparkWriteConf).
    return Variant(mode, version, facts.properties.get(_GRANULARITY) or "file")


def advise(
    facts: TableFacts, history: WriteHistory, comparison: CostComparison, operation: str, reads: float | None, *, margin: float
) -> tuple[Advice, ...]:
    """Advice for an operation; ``reads`` are reads per commit.

    Without ``reads`` there is no change, and the break-even point says when there should be one.
    """
    current = current_variant(facts, operation)
    there = comparison.of(current)
    within = comparison.within(current.format_version)
    here = within.costs
    found = [_mode(facts, operation, within, reads, margin)]
    chosen = found[0].proposed or current.mode
    if reads is not None:
        found += _granularity(facts, comparison, chosen, reads, margin)
    if reads is not None and there is not None:
        found += _version(facts, operation, comparison, reads, margin)
    found.append(_isolation(facts, operation, history))
    merging = [c for c in here if not c.variant.is_copy_on_write and c.variant.mode == chosen]
    if merging:
        cheapest = min(merging, key=lambda c: comparison.per_commit(c, reads or 0.0).total)
        found.append(_cadence(comparison, cheapest, reads))
    return tuple(found)


def _mode(facts: TableFacts, operation: str, comparison: CostComparison, reads: float | None, margin: float) -> Advice:
    setting, current = f"write.{operation}.mode", current_variant(facts, operation)
    even = even_sentence(comparison).rstrip(".")
    if reads is None:
        return Advice(
            setting, current.mode, current.mode, f"{even}. The number of reads of the table is not known: give reads_per_day to get advice."
        )
    there = comparison.of(current)
    if there is None:
        return Advice(setting, current.mode, current.mode, f"{even}. The mode in force was not measured, so there is no advice.")
    winner = comparison.winner(reads)
    before, after = (comparison.per_commit(c, reads).total for c in (there, winner))
    gain = 1 - after / before if before else 0.0
    other = winner
    if winner.variant.mode == current.mode:
        rivals = replace(comparison, costs=tuple(c for c in comparison.costs if c.variant.mode != current.mode))
        other = rivals.winner(reads) if rivals.costs else winner
    then = elapsed(comparison.per_commit(other, reads).total)
    point = comparison.main_break_even()
    if point is not None and point.is_close(reads):
        return Advice(setting, current.mode, current.mode, f"{raised(close_sentence(point, reads))}. {even}.")
    said = f"{elapsed(before)} of {comparison.unit} per commit now, including reads, {then} with {other.variant.name}, at {plain(reads)} reads per commit. {even}."
    if winner.variant.mode == current.mode or gain < margin:
        why = (
            "the current mode is cheaper"
            if winner.variant.mode == current.mode
            else f"the gain of {percent(gain)} is less than {percent(margin)}"
        )
        return Advice(setting, current.mode, current.mode, f"{raised(why)}: {said}")
    sets = {setting: winner.variant.mode}
    if facts.format_version < 2 and not winner.variant.is_copy_on_write:
        sets = {"format-version": "2", **sets}
    breaks = _V2 if len(sets) > 1 else None
    return to_set(facts, sets, current=current.mode, evidence=f"It saves {percent(gain)}: {said}", breaks=breaks)


def _granularity(facts: TableFacts, comparison: CostComparison, mode: str, reads: float, margin: float) -> list[Advice]:
    per_file, per_partition = (comparison.of(Variant("merge-on-read", 2, kind)) for kind in ("file", "partition"))
    if facts.format_version >= 3 or mode != "merge-on-read" or per_file is None or per_partition is None:
        return []
    now = facts.properties.get(_GRANULARITY) or "file"
    costs = {k: comparison.per_commit(c, reads).total for k, c in (("file", per_file), ("partition", per_partition))}
    best = min(costs, key=lambda kind: costs[kind])
    said = (
        f"A commit costs {elapsed(costs['file'])} of {comparison.unit} with deletes per file and {elapsed(costs['partition'])} per partition, "
        f"including reads, at {plain(reads)} reads per commit."
    )
    if best == now or 1 - costs[best] / costs[now] < margin:
        return [Advice(_GRANULARITY, now, now, said)]
    return [to_set(facts, {_GRANULARITY: best}, current=now, evidence=said)]


def _version(facts: TableFacts, operation: str, comparison: CostComparison, reads: float, margin: float) -> list[Advice]:
    current = current_variant(facts, operation)
    here = comparison.within(current.format_version).costs
    newer = [c for c in comparison.costs if c.variant.format_version > current.format_version]
    if not newer or not here:
        return []
    best_here, best_newer = (min(some, key=lambda c: comparison.per_commit(c, reads).total) for some in (here, newer))
    before, after = (comparison.per_commit(c, reads).total for c in (best_here, best_newer))
    gain = 1 - after / before if before else 0.0
    said = f"a commit costs {elapsed(before)} of {comparison.unit} with {best_here.variant.name}, including reads, and {elapsed(after)} with {best_newer.variant.name}"
    # The saving is of the mode in the new version.
    sets = {"format-version": str(best_newer.variant.format_version), f"write.{operation}.mode": best_newer.variant.mode}
    now, value = str(facts.format_version), str(best_newer.variant.format_version)
    error = comparison.error(best_here, best_newer, reads)
    if gain < margin:
        return [Advice("format-version", now, now, f"{raised(said)}.")]
    if before - after <= error:
        # The upgrade cannot be undone, so a gain within the error does not count.
        return [
            Advice(
                "format-version", now, now, f"{raised(said)}; the difference is within the variation of repeated runs ({elapsed(error)})."
            )
        ]
    return [
        Advice(
            "format-version",
            now,
            value,
            f"It saves {percent(gain)}: {said}.",
            set_properties(facts.sql_name, sets),
            breaks=_V3,
            is_alternative=True,
        )
    ]


def _isolation(facts: TableFacts, operation: str, history: WriteHistory) -> Advice:
    setting = f"write.{operation}.isolation-level"
    now = facts.setting(setting) or "serializable"
    runs = f"The snapshots name {count(history.writer_count, 'application')} (each run of a job counts)"
    said = (
        f"{runs}. With serializable, a commit fails if another commit has meanwhile added rows that its condition might match. "
        "With snapshot, it succeeds, which is right only if it may miss such rows."
    )
    return Advice(setting, now, now, said)


def _cadence(comparison: CostComparison, costs: Costs, reads: float | None) -> Advice:
    until = commits_until(costs, comparison.read_seconds, READS_COST_MORE)
    more = f"a read costs {percent(READS_COST_MORE)} more"
    said = (
        f"after {count(until, 'commit')} {more}"
        if until is not None
        else f"a read costs less than {percent(READS_COST_MORE)} more even after {MAX_CYCLE:,} commits"
    )
    best, at = (best_cycle(costs, reads), plain(reads)) if reads else (None, "")
    if best == MAX_CYCLE:
        best, said = None, f"{said}; at {at} reads per commit, compaction is not worth it within {MAX_CYCLE:,} commits"
    elif best is not None:
        said += f"; at {at} reads per commit, a compaction every {count(best, 'commit')} is cheapest"
    return Advice(INTERVAL, None, None if best is None else f"every {count(best, 'commit')}", f"With {costs.variant.name}, {said}.")
