"""What a write mode costs by commit and by read, and the reads at which two modes cost the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from icekit.common import frozen
from icekit.common.units import plain
from icekit.tune.write_history import COPY_ON_WRITE

TOTAL = "cost of a commit with its reads"
#: Commits between compactions to consider, a dozen numbers; and reads that are as good as never.
_CYCLES = (1, 2, 3, 5, *(round(10 ** (1 + step / 4)) for step in range(8)), 1000)
_MOST_READS = 1e6


@dataclass(frozen=True, slots=True, order=True)
class Mode:
    """A way to write: the mode, the format version and (version 2, merge-on-read) the delete
    granularity.
    """

    mode: str
    format_version: int
    granularity: str = ""

    @property
    def is_copy_on_write(self) -> bool:
        """Tell whether changed files are rewritten."""
        return self.mode == COPY_ON_WRITE

    def properties(self, *operations: str) -> dict[str, str]:
        """The table properties of the mode for some operations."""
        granular = {"write.delete.granularity": self.granularity} if self.granularity else {}
        return {**granular, **{f"write.{each}.mode": self.mode for each in operations}}

    @property
    def name(self) -> str:
        """The name of the variant."""
        if self.is_copy_on_write:
            return COPY_ON_WRITE
        return (
            f"position deletes per {self.granularity}"
            if self.granularity
            else f"deletion vectors (v{self.format_version})"
        )


@frozen
class Costs:
    """What a mode costs, in seconds of one unit; the errors are what repeats differed by.

    A commit reaches the share ``touched`` of the table's ``data_files``, and a scan needs
    ``open_seconds`` for each delete file. ``compaction`` is the cost after the ``commits`` of the
    trial.
    """

    mode: Mode
    write: float
    scan: float
    data_files: int
    open_seconds: float = 0.0
    touched: float = 0.0
    compaction: float = 0.0
    commits: int = 1
    write_error: float = 0.0
    open_error: float = 0.0

    def reached(self, commits: int) -> float:
        """The share of the data files that ``commits`` reach, if each draws its files again."""
        return float(1 - (1 - min(self.touched, 1.0)) ** commits)

    def opens(self, commits: int) -> float:
        """The delete files that a scan opens after ``commits``: position deletes pile up, and a
        data file has at most one vector.
        """
        return self.data_files * (
            self.touched * commits if self.mode.granularity else self.reached(commits)
        )

    def per_read(self, commits: int) -> float:
        """What a read costs, on average over a cycle of this many commits."""
        opens = sum(map(self.opens, range(1, commits + 1))) / commits
        return self.scan + self.open_seconds * opens

    def per_commit(self, reads: float, commits: int) -> float:
        """What a commit costs, on average over a cycle of this many commits, with the reads that
        follow it.
        """
        compaction = self.compaction * self.reached(commits) / (self.reached(self.commits) or 1.0)
        return self.write + reads * self.per_read(commits) + compaction / commits

    def shifted(self, sign: int) -> Costs:
        """The costs at the upper (1) or lower (-1) end of what repeats differed by."""
        return replace(
            self,
            write=max(0.0, self.write + sign * self.write_error),
            open_seconds=max(0.0, self.open_seconds + sign * self.open_error),
        )


@frozen
class BreakEven:
    """Reads per commit above which copy-on-write costs less: 0.0 if it always does, ``inf`` if it
    never does; between ``low`` and ``high`` by repeats.
    """

    reads: float
    low: float
    high: float

    def is_close(self, reads: float) -> bool:
        """Tell whether this many reads are too close to say which mode is cheaper."""
        return self.low < self.high and self.low <= reads <= self.high

    def __str__(self) -> str:
        if math.isinf(self.reads):
            return "merge-on-read is cheaper at any number of reads"
        if not self.reads:
            return "copy-on-write is cheaper at any number of reads"
        reads = f"copy-on-write is cheaper above {plain(self.reads, 2)} reads per commit"
        if self.low >= self.high:
            return reads
        if not math.isinf(self.high):
            interval = f"between {plain(self.low, 2)} and {plain(self.high, 2)}"
        elif self.low:
            interval = f"at least {plain(self.low, 2)}"
        else:
            return f"{reads} (repeated measurements differ too much for a range)"
        return f"{reads} ({interval} by repeated measurements)"


def total(costs: Costs, reads: float, commits: int | None) -> float:
    """What a commit costs with its reads, with ``commits`` between compactions (None: the cheapest
    number).
    """
    cycles = [commits] if commits else _CYCLES
    return min(costs.per_commit(reads, cycle) for cycle in cycles)


def break_even(copying: Costs, merging: Costs, commits: int | None) -> float:
    """Reads per commit above which copy-on-write costs less, with this many commits between
    compactions (None: the cheapest number).

    Costs grow evenly with the reads. With the cheapest number, copy-on-write has to beat each.
    """

    def crossing(cycle: int) -> float:
        saved = copying.per_commit(0, cycle) - merging.per_commit(0, cycle)
        more = merging.per_read(cycle) - copying.per_read(cycle)
        if saved <= 0:
            return 0.0
        return saved / more if saved < more * _MOST_READS else math.inf

    return max(map(crossing, [commits] if commits else _CYCLES))


def interval_of(costs: Sequence[Costs], commits: int | None) -> BreakEven | None:
    """The break-even point of copy-on-write and the merge-on-read mode that holds out longest; None
    unless both were measured.
    """
    copying = next((c for c in costs if c.mode.is_copy_on_write), None)
    merging = [c for c in costs if not c.mode.is_copy_on_write]
    if copying is None or not merging:
        return None
    rival = max(merging, key=lambda c: break_even(copying, c, commits))
    # As measured, and where repeats favour one mode or the other most.
    reads = break_even(copying.shifted(0), rival.shifted(0), commits)
    low = break_even(copying.shifted(-1), rival.shifted(1), commits)
    high = break_even(copying.shifted(1), rival.shifted(-1), commits)
    return BreakEven(reads, low, high)
