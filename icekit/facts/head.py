"""Read the current state of a table, its recent commits, and its past file sizes; no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.errors import SnapshotNotFound
from icekit.facts.collect import load_metadata, observe
from icekit.facts.metadata import Json, choose_snapshot, lineage, snapshots_by_id
from icekit.facts.model import Commit, Kind, TableFacts
from icekit.facts.rollup import HistogramBar, file_size_histogram
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake


@dataclass(frozen=True)
class Head:
    """A table's metadata at one moment, and the current snapshot of a branch or of the table."""

    metadata: Json
    snapshot: Json | None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot's id; None for a table without snapshots."""
        return None if self.snapshot is None else int(self.snapshot["snapshot-id"])

    @property
    def sequence_number(self) -> int:
        """The snapshot's sequence number; 0 in format version 1."""
        return 0 if self.snapshot is None else int(self.snapshot.get("sequence-number") or 0)

    def lineage(self) -> Iterable[Json]:
        """The snapshot and its existing ancestors, newest first."""
        return lineage(snapshots_by_id(self.metadata), self.snapshot)


def head(lake: Lake, table: Identifier, branch: str | None = None) -> Head:
    """Read the current state of a table; raises the errors of :mod:`icekit.errors`."""
    metadata = load_metadata(lake.tables.source(table))
    snapshot, _ = choose_snapshot(metadata, branch)
    return Head(metadata, snapshot)


def since(at: Head, before: int | None) -> tuple[Json, ...]:
    """The commits after a snapshot, oldest first.

    Raises :class:`~icekit.errors.SnapshotNotFound` if that snapshot is no longer an ancestor: the
    table was rolled back, or the snapshot expired.
    """
    found: list[Json] = []
    for snapshot in at.lineage():
        if snapshot["snapshot-id"] == before:
            return tuple(reversed(found))
        found.append(snapshot)
    if before is None:
        return tuple(reversed(found))
    raise SnapshotNotFound(
        f"Snapshot {before}, from which the run started, is no longer an ancestor of the table's current snapshot; plan again."
    )


# --- Read a table's file sizes at past snapshots; metadata only, a few of many snapshots


#: The most snapshots to read.
MOST = 30


@dataclass(frozen=True, slots=True)
class SizesAt:
    """The data files of a table at one snapshot, by size; without partitions, so that many fit into memory."""

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
    """Commits spread evenly over a history, including the first and the last, oldest first."""
    if at_most < 1 or not commits:
        return ()
    if len(commits) <= at_most:
        return tuple(commits)
    if at_most == 1:
        return (commits[-1],)
    last = len(commits) - 1
    return tuple(commits[round(i * last / (at_most - 1))] for i in range(at_most))


def sizes_at(facts: TableFacts, commit: Commit) -> SizesAt:
    """The file sizes of a snapshot, from its facts."""
    deletes = sum(facts.total(kind).file_count for kind in Kind if kind is not Kind.DATA)
    return SizesAt(
        snapshot_id=commit.snapshot_id,
        committed_at_ms=commit.committed_at_ms,
        operation=commit.operation,
        file_count=facts.data.file_count,
        size_in_bytes=facts.data.size_in_bytes,
        delete_file_count=deletes,
        bars=file_size_histogram(facts),
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

    Sizes are cut at the current target, for every snapshot. ``known`` caches sizes by snapshot id;
    use one cache per table. ``progress`` is called with (snapshots read, of how many), also before
    the first; an exception from it ends the reading. A snapshot that expires meanwhile is left out.
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
