"""What a write mode costs by commit and by read, and the reads at which two modes cost the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from icekit.common import frozen
from icekit.common.units import plain_number
from icekit.tune.write_history import COPY_ON_WRITE

TOTAL = "cost of a commit with its reads"
#: Commits between compactions to consider, a dozen numbers; and reads that are as good as never.
_CYCLES = (1, 2, 3, 5, *(round(10 ** (1 + step / 4)) for step in range(8)), 1000)
_MOST_READS = 1e6


@dataclass(frozen=True, slots=True, order=True)
class WriteMode:
    """A way to write: the mode, the format version and (version 2, merge-on-read) the delete
    granularity.
    """

    mode: str
    format_version: int
    delete_granularity: str = ""

    @property
    def is_copy_on_write(self) -> bool:
        """Tell whether changed files are rewritten."""
        return self.mode == COPY_ON_WRITE

    def properties(self, *operations: str) -> dict[str, str]:
        """The table properties of the mode for some operations."""
        granularity_property = (
            {"write.delete.granularity": self.delete_granularity} if self.delete_granularity else {}
        )
        return {
            **granularity_property,
            **{f"write.{operation}.mode": self.mode for operation in operations},
        }

    @property
    def name(self) -> str:
        """The name of the variant."""
        if self.is_copy_on_write:
            return COPY_ON_WRITE
        return (
            f"position deletes per {self.delete_granularity}"
            if self.delete_granularity
            else f"deletion vectors (v{self.format_version})"
        )


@frozen
class ModeCosts:
    """What a mode costs, in seconds of one unit; the errors are what repeats differed by.

    A commit reaches the share ``touched_share_per_commit`` of the table's ``data_file_count``
    files, and a scan needs ``seconds_per_delete_file`` for each delete file that it opens.
    ``compaction_seconds`` is the cost after the ``trial_commit_count`` commits of the trial.
    """

    mode: WriteMode
    write_seconds: float
    scan_seconds: float
    data_file_count: int
    seconds_per_delete_file: float = 0.0
    touched_share_per_commit: float = 0.0
    compaction_seconds: float = 0.0
    trial_commit_count: int = 1
    write_error_seconds: float = 0.0
    error_seconds_per_delete_file: float = 0.0

    def reached_share(self, commit_count: int) -> float:
        """The share of the data files that this many commits reach, if each draws its files
        again.
        """
        return float(1 - (1 - min(self.touched_share_per_commit, 1.0)) ** commit_count)

    def delete_files_opened(self, commit_count: int) -> float:
        """The delete files that a scan opens after this many commits: position deletes pile up,
        and a data file has at most one vector.
        """
        return self.data_file_count * (
            self.touched_share_per_commit * commit_count
            if self.mode.delete_granularity
            else self.reached_share(commit_count)
        )

    def seconds_per_read(self, commits_per_compaction: int) -> float:
        """What a read costs, on average over a cycle of this many commits."""
        mean_delete_files_opened = (
            sum(map(self.delete_files_opened, range(1, commits_per_compaction + 1)))
            / commits_per_compaction
        )
        return self.scan_seconds + self.seconds_per_delete_file * mean_delete_files_opened

    def seconds_per_commit(self, reads_per_commit: float, commits_per_compaction: int) -> float:
        """What a commit costs, on average over a cycle of this many commits, with the reads that
        follow it.
        """
        cycle_compaction_seconds = (
            self.compaction_seconds
            * self.reached_share(commits_per_compaction)
            / (self.reached_share(self.trial_commit_count) or 1.0)
        )
        return (
            self.write_seconds
            + reads_per_commit * self.seconds_per_read(commits_per_compaction)
            + cycle_compaction_seconds / commits_per_compaction
        )

    def with_error(self, error_sign: int) -> ModeCosts:
        """The costs at the upper (1) or lower (-1) end of what repeats differed by."""
        return replace(
            self,
            write_seconds=max(0.0, self.write_seconds + error_sign * self.write_error_seconds),
            seconds_per_delete_file=max(
                0.0, self.seconds_per_delete_file + error_sign * self.error_seconds_per_delete_file
            ),
        )


@frozen
class BreakEven:
    """Reads per commit above which copy-on-write costs less: 0.0 if it always does, ``inf`` if it
    never does; between ``low_reads`` and ``high_reads`` by repeats.
    """

    reads_per_commit: float
    low_reads: float
    high_reads: float

    def is_too_close_to_call(self, reads_per_commit: float) -> bool:
        """Tell whether this many reads are too close to say which mode is cheaper."""
        return (
            self.low_reads < self.high_reads
            and self.low_reads <= reads_per_commit <= self.high_reads
        )

    def __str__(self) -> str:
        if math.isinf(self.reads_per_commit):
            return "merge-on-read is cheaper at any number of reads"
        if not self.reads_per_commit:
            return "copy-on-write is cheaper at any number of reads"
        break_even_text = (
            f"copy-on-write is cheaper above {plain_number(self.reads_per_commit, 2)} reads per "
            "commit"
        )
        if self.low_reads >= self.high_reads:
            return break_even_text
        if not math.isinf(self.high_reads):
            interval_clause = (
                f"between {plain_number(self.low_reads, 2)} and {plain_number(self.high_reads, 2)}"
            )
        elif self.low_reads:
            interval_clause = f"at least {plain_number(self.low_reads, 2)}"
        else:
            return f"{break_even_text} (repeated measurements differ too much for a range)"
        return f"{break_even_text} ({interval_clause} by repeated measurements)"


def commit_and_read_seconds(
    mode_costs: ModeCosts, reads_per_commit: float, commits_per_compaction: int | None
) -> float:
    """What a commit costs with its reads, with this many commits between compactions
    (None: the cheapest number).
    """
    cycle_lengths = [commits_per_compaction] if commits_per_compaction else _CYCLES
    return min(
        mode_costs.seconds_per_commit(reads_per_commit, cycle_length)
        for cycle_length in cycle_lengths
    )


def break_even_reads(
    copying_costs: ModeCosts, merging_costs: ModeCosts, commits_per_compaction: int | None
) -> float:
    """Reads per commit above which copy-on-write costs less, with this many commits between
    compactions (None: the cheapest number).

    Costs grow evenly with the reads. With the cheapest number, copy-on-write has to beat each.
    """

    def reads_at_equal_cost(cycle_length: int) -> float:
        write_seconds_saved = copying_costs.seconds_per_commit(
            0, cycle_length
        ) - merging_costs.seconds_per_commit(0, cycle_length)
        extra_read_seconds = merging_costs.seconds_per_read(
            cycle_length
        ) - copying_costs.seconds_per_read(cycle_length)
        if write_seconds_saved <= 0:
            return 0.0
        return (
            write_seconds_saved / extra_read_seconds
            if write_seconds_saved < extra_read_seconds * _MOST_READS
            else math.inf
        )

    return max(
        map(reads_at_equal_cost, [commits_per_compaction] if commits_per_compaction else _CYCLES)
    )


def break_even_of_modes(
    costs_of_modes: Sequence[ModeCosts], commits_per_compaction: int | None
) -> BreakEven | None:
    """The break-even point of copy-on-write and the merge-on-read mode that holds out longest; None
    unless both were measured.
    """
    copying_costs = next((c for c in costs_of_modes if c.mode.is_copy_on_write), None)
    merging_costs_of_modes = [c for c in costs_of_modes if not c.mode.is_copy_on_write]
    if copying_costs is None or not merging_costs_of_modes:
        return None
    best_merging_costs = max(
        merging_costs_of_modes,
        key=lambda c: break_even_reads(copying_costs, c, commits_per_compaction),
    )
    # As measured, and where repeats favour one mode or the other most.
    measured_reads = break_even_reads(
        copying_costs.with_error(0), best_merging_costs.with_error(0), commits_per_compaction
    )
    low_reads = break_even_reads(
        copying_costs.with_error(-1), best_merging_costs.with_error(1), commits_per_compaction
    )
    high_reads = break_even_reads(
        copying_costs.with_error(1), best_merging_costs.with_error(-1), commits_per_compaction
    )
    return BreakEven(measured_reads, low_reads, high_reads)
