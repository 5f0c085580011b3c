"""From what a trial wrote to an advisory size. Pure.

A task's rows become one file when they fit under the size at which the writer begins another; a little more and
they become a full file and a sliver. So the size is either below that, or several times as large, where the
slivers do not weigh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icekit.tune.advisory_size.written import TOLERANCE, Written
from icekit.units import percent

#: Room under the size at which the writer rolls: adaptive execution packs map outputs up to the advisory size, never beyond.
HEADROOM = 0.97
#: The same where that was too little: ratios differ from task to task.
MORE_ROOM = 0.9
#: Files of one task where one alone cannot be met: more of them dilute the last one, and make fewer tasks.
SEVERAL = (4, 8)
#: Tasks that left a sliver, as a share of all, from which on room is wanting.
_SLIVERS = 0.1
#: Sizes that are tried at most.
_TRIES = 4
#: Two ratios that differ by no more are the same.
_SAME = 0.05
_STEP = 2**20


@dataclass(frozen=True, slots=True)
class Candidate:
    """An advisory size to try; bytes, for the target it was worked out at."""

    size_in_bytes: int
    why: str


def rolled_bytes(tried: Sequence[Written]) -> int:
    """The size at which the writer begins another file: the largest file seen that is near the target, else the target itself.

    It is below the target, as the open row group counts uncompressed (``ParquetWriter.length``).
    """
    target = tried[-1].target_bytes
    near = [
        w.max_bytes for w in tried if w.max_bytes is not None and w.max_bytes >= (1 - 2 * TOLERANCE) * target and w.files > w.partitions
    ]
    return min(max(near, default=target), target)


def next_candidate(tried: Sequence[tuple[int | None, Written]]) -> Candidate | None:
    """The advisory size to try next, after those tried (None: what is in force), None when there is no better guess.

    First one file a task by the measured ratio, then the same by the ratio measured with it, then
    several files a task.
    """
    shuffled = [w for _, w in tried if w.ratio]
    sizes = [advisory for advisory, _ in tried if advisory is not None]
    if not shuffled or len(sizes) == _TRIES or any(w.hits for _, w in tried) or (not sizes and shuffled[-1].is_fine):
        return None
    last = shuffled[-1]
    ratio, target = last.ratio or 0.0, last.target_bytes
    rolled = rolled_bytes(shuffled)
    slivers = bool(sizes) and last.shuffle is not None and last.files > (1 + _SLIVERS) * max(last.shuffle.tasks, last.partitions)
    room = MORE_ROOM if slivers else HEADROOM
    one = rounded(room * rolled * ratio)
    if not any(abs(one / other - 1) <= _SAME for other in sizes):
        measured = f"{ratio:.2f} bytes of shuffle for a byte of file, and the writer begins another file at {percent(rolled / target)} of the target"
        return Candidate(one, f"one file a task: {measured}" + (", with more room as some tasks left a sliver" if slivers else ""))
    for files in SEVERAL:
        several = rounded(files * target * ratio)
        if several > max(sizes) * (1 + _SAME):
            return Candidate(several, f"{files} files a task, cut by the writer, as fewer a task did not come out")
    return None


def best(tried: Sequence[tuple[int | None, Written]]) -> tuple[int | None, Written]:
    """The one that came nearest: what hits, then the fewest files beyond the fewest possible, then the one tried first."""
    return min(tried, key=lambda pair: (not pair[1].hits, round(_excess(pair[1]), 2)))


def _excess(written: Written) -> float:
    if written.enough_mean is not None:
        return abs(written.enough_mean / written.target_bytes - 1)
    return max(0.0, written.files / max(written.fewest, 1) - 1)


def rounded(size_in_bytes: float) -> int:
    """A size to write into a property: whole MiB from 16 MiB on, else three binary digits' worth of KiB."""
    step = _STEP if size_in_bytes >= 16 * _STEP else 2**14 if size_in_bytes >= 2**20 else 2**10
    return max(1, int(size_in_bytes // step)) * step


def scaled(advisory: int, tried_at: int, target: int) -> int:
    """An advisory size found at a smaller target, for the table's own: both grow alike."""
    return advisory if tried_at == target else rounded(advisory * target / tried_at)


def spill_limit(written: Written, task_memory_bytes: int) -> int | None:
    """The largest advisory size whose rows a task sorts in memory; None where nothing was shuffled."""
    if written.shuffle is None or not written.shuffle.row_bytes:
        return None
    return int(task_memory_bytes * written.shuffle.planned_bytes / written.shuffle.row_bytes)
