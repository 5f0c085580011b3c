"""Read the current state of a table, and its recent commits; no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.errors import SnapshotNotFound
from icekit.facts.files import Partition
from icekit.facts.lineage import choose_snapshot, lineage, snapshots_by_id
from icekit.facts.metadata import Json
from icekit.facts.metadata_file import load_metadata
from icekit.facts.recent import written_since
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


def written_within(
    lake: Lake, table: Identifier, at: Head, minutes: float, now_ms: int
) -> frozenset[Partition]:
    """The partitions written within so many minutes before ``now_ms``, as
    :func:`icekit.facts.recent.written_since` finds them.
    """
    if not minutes:
        return frozenset()
    return written_since(
        lake.tables.source(table).read, at.metadata, at.snapshot, now_ms - round(minutes * 60_000)
    )


def since(at: Head, before: int | None) -> tuple[Json, ...]:
    """The commits after a snapshot, oldest first.

    Raises :class:`~icekit.errors.SnapshotNotFound` if that snapshot is no longer an ancestor: the
    table was rolled back, or the snapshot expired.
    """
    commits: list[Json] = []
    for snapshot in at.lineage():
        if snapshot["snapshot-id"] == before:
            return tuple(reversed(commits))
        commits.append(snapshot)
    if before is None:
        return tuple(reversed(commits))
    raise SnapshotNotFound(
        f"Snapshot {before}, from which the run started, is no longer an ancestor of the table's "
        "current snapshot; plan again."
    )
