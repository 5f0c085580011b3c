"""Read how large a table's files were at snapshots of its past; metadata only, a few snapshots of many."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.errors import SnapshotNotFound
from icekit.facts.collect import observe
from icekit.facts.measures import HistogramBar, file_size_histogram
from icekit.facts.model import Commit, Kind, TableFacts

if TYPE_CHECKING:
    from icekit.catalog.lake import Lake

#: Snapshots that are read at most.
MOST = 30


@dataclass(frozen=True, slots=True)
class SizesAt:
    """The data files of a table at one snapshot, by size; without its partitions, so that many can be held."""

    snapshot_id: int
    committed_at_ms: int
    operation: str | None
    file_count: int
    size_in_bytes: int
    delete_file_count: int
    bars: tuple[HistogramBar, ...]

    @property
    def mean_bytes(self) -> float | None:
        """Mean file size; None without files."""
        return self.size_in_bytes / self.file_count if self.file_count else None


def spread(commits: Sequence[Commit], at_most: int = MOST) -> tuple[Commit, ...]:
    """Commits spread evenly over a history, the first and the last among them, oldest first."""
    if at_most < 1 or not commits:
        return ()
    if len(commits) <= at_most:
        return tuple(commits)
    if at_most == 1:
        return (commits[-1],)
    last = len(commits) - 1
    return tuple(commits[round(i * last / (at_most - 1))] for i in range(at_most))


def sizes_at(facts: TableFacts, commit: Commit) -> SizesAt:
    """What facts of a snapshot say of its file sizes."""
    deletes = sum(facts.total(kind).file_count for kind in Kind if kind is not Kind.DATA)
    return SizesAt(
        commit.snapshot_id,
        commit.committed_at_ms,
        commit.operation,
        facts.data.file_count,
        facts.data.size_in_bytes,
        deletes,
        file_size_histogram(facts),
    )


def through_time(
    lake: Lake,
    facts: TableFacts,
    at_most: int = MOST,
    *,
    known: MutableMapping[int, SizesAt] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SizesAt, ...]:
    """File sizes at up to ``at_most`` snapshots of the facts' lineage, oldest first.

    Sizes are cut at the target in force now, at every snapshot. ``known`` holds what was read
    before, by snapshot id, and takes in what is read; whoever gives it must give it for one table
    only. ``progress`` is called with (snapshots read, of how many), before the first one too; what
    it raises ends the reading. A snapshot that has expired meanwhile is left out.
    """
    chosen = spread(facts.history.commits, at_most)
    found = known if known is not None else {}
    for place, commit in enumerate(chosen):
        if progress is not None:
            progress(place, len(chosen))
        if commit.snapshot_id in found:
            continue
        if commit.snapshot_id == facts.snapshot_id:
            found[commit.snapshot_id] = sizes_at(facts, commit)
            continue
        try:
            then = observe(lake, facts.table, ref=commit.snapshot_id)
        except SnapshotNotFound:
            continue
        found[commit.snapshot_id] = sizes_at(then, commit)
    return tuple(found[c.snapshot_id] for c in chosen if c.snapshot_id in found)
