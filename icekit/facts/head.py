"""Read where a table is now, and what was committed of late; no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from icekit.errors import SnapshotNotFound
from icekit.facts.avro import SIZE_FIELDS, entries, manifest_list
from icekit.facts.collect import load_metadata
from icekit.facts.files import Partition
from icekit.facts.metadata import Json
from icekit.facts.snapshots import choose_snapshot, lineage, snapshots_by_id
from icekit.facts.values import to_scalar
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.catalog.source import Source


@dataclass(frozen=True)
class Head:
    """A table's metadata at one moment, and the snapshot that a branch or the table itself is at."""

    metadata: Json
    snapshot: Json | None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot's id; None for a table that nothing was written to."""
        return None if self.snapshot is None else int(self.snapshot["snapshot-id"])

    @property
    def sequence_number(self) -> int:
        """The snapshot's sequence number; 0 in format version 1."""
        return 0 if self.snapshot is None else int(self.snapshot.get("sequence-number") or 0)

    def lineage(self) -> Iterable[Json]:
        """The snapshot and its ancestors that are still there, newest first."""
        return lineage(snapshots_by_id(self.metadata), self.snapshot)


def head(lake: Lake, table: Identifier, branch: str | None = None) -> Head:
    """Read where the table is now; raises the errors of :mod:`icekit.errors`."""
    metadata = load_metadata(lake.tables.source(table))
    snapshot, _ = choose_snapshot(metadata, branch)
    return Head(metadata, snapshot)


def since(at: Head, before: int | None) -> tuple[Json, ...]:
    """The commits after a snapshot, oldest first.

    Raises :class:`~icekit.errors.SnapshotNotFound` if it is not an ancestor any more: the
    table was rolled back, or the snapshot expired.
    """
    found: list[Json] = []
    for snapshot in at.lineage():
        if snapshot["snapshot-id"] == before:
            return tuple(reversed(found))
        found.append(snapshot)
    if before is None:
        return tuple(reversed(found))
    raise SnapshotNotFound(f"Snapshot {before}, which the run began from, is no ancestor of the table's state any more; plan anew.")


def written_since(source: Source, metadata: Json, snapshot: Json | None, since_ms: int) -> frozenset[Partition]:
    """Partitions to which a commit of the snapshot's lineage added files at or after ``since_ms``.

    Commits that only replace files (compactions) do not count. Reads the manifests that
    those commits added and no others; rows that a later rewrite of manifests has moved on are
    not seen.
    """
    young = takewhile(lambda s: s["timestamp-ms"] >= since_ms, lineage(snapshots_by_id(metadata), snapshot))
    recent = {s["snapshot-id"] for s in young if (s.get("summary") or {}).get("operation") != "replace"}
    if snapshot is None or not recent or "manifest-list" not in snapshot:
        return frozenset()
    found: set[Partition] = set()
    listing = snapshot["manifest-list"]
    for manifest in manifest_list(source.read(listing), listing):
        if manifest.get("added_snapshot_id") in recent:
            location = manifest["manifest_path"]
            for entry in entries(source.read(location), location, SIZE_FIELDS):
                if entry["status"] == 1:
                    values = entry["data_file"]["partition"].values()
                    found.add(Partition(manifest["partition_spec_id"], tuple(to_scalar(v) for v in values)))
    return frozenset(found)
