"""Read the current state of a table, and its recent commits; no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.errors import SnapshotNotFound
from icekit.common.sql import Identifier
from icekit.health.facts.metadata_file import load_metadata
from icekit.iceberg.manifests import Record, files_of, manifest_list, read_manifests_ahead
from icekit.iceberg.metadata import Json, choose_snapshot, lineage, snapshots_by_id, summary_of
from icekit.iceberg.partition import Partition

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

#: A choice: a partition written within this many minutes may still be written to.
RECENT_MINUTES = 60.0
#: A choice: the most entries to read to find such partitions, those of the newest manifests.
MOST_ENTRIES = 10_000
#: A choice: the manifests that an observation reads for it, the newest ones; it has read them once
# before.
MOST_MANIFESTS = 16


@frozen
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
    """Read the current state of a table; raises the errors of :mod:`icekit.common.errors`."""
    metadata = load_metadata(lake.tables.source(table))
    snapshot, _ = choose_snapshot(metadata, branch)
    return Head(metadata, snapshot)


def partitions_written_within(
    read: Callable[[str], bytes],
    table_head: Head,
    minutes: float,
    now_ms: int,
    snapshot_manifests: Sequence[Record] | None = None,
    most_manifests: int | None = None,
) -> frozenset[Partition]:
    """The partitions to which commits of the lineage added files within the minutes before
    ``now_ms``.

    Commits that only replace files (compactions) do not count. Reads the manifests that were added
    since then, which may hold older entries too, newest first, until these have
    :data:`MOST_ENTRIES`, and at most ``most_manifests``. A partition that is left out is not waited
    for. ``snapshot_manifests`` is the snapshot's manifest list, if it has been read.
    """
    window_start_ms = now_ms - round(minutes * 60_000)
    recent_operations_by_id = {
        s["snapshot-id"]: summary_of(s).get("operation")
        for s in takewhile(lambda s: s["timestamp-ms"] >= window_start_ms, table_head.lineage())
    }
    writing_snapshot_ids = {
        snapshot_id
        for snapshot_id, operation in recent_operations_by_id.items()
        if operation != "replace"
    }
    manifest_list_path = (table_head.snapshot or {}).get("manifest-list")
    if not minutes or not writing_snapshot_ids or manifest_list_path is None:
        return frozenset()
    manifests = (
        manifest_list(read(manifest_list_path), manifest_list_path)
        if snapshot_manifests is None
        else snapshot_manifests
    )
    recent_manifests = [
        m for m in manifests if m.get("added_snapshot_id") in recent_operations_by_id
    ]
    newest_manifests = sorted(recent_manifests, key=lambda m: -(m.get("sequence_number") or 0))[
        :most_manifests
    ]
    partitions: set[Partition] = set()
    entry_budget = MOST_ENTRIES
    for manifest, manifest_bytes in read_manifests_ahead(read, newest_manifests):
        for _, partition, _, snapshot_id in files_of(manifest, manifest_bytes, frozenset()):
            entry_budget -= 1
            if snapshot_id in writing_snapshot_ids:
                partitions.add(partition)
        if entry_budget <= 0:
            break
    return frozenset(partitions)


def commits_since(table_head: Head, start_snapshot_id: int | None) -> tuple[Json, ...]:
    """The commits after a snapshot, oldest first.

    Raises :class:`~icekit.common.errors.SnapshotNotFound` if that snapshot is no longer an
    ancestor: the table was rolled back, or the snapshot expired.
    """
    commits: list[Json] = []
    for snapshot in table_head.lineage():
        if snapshot["snapshot-id"] == start_snapshot_id:
            return tuple(reversed(commits))
        commits.append(snapshot)
    if start_snapshot_id is None:
        return tuple(reversed(commits))
    raise SnapshotNotFound(
        f"Snapshot {start_snapshot_id}, from which the run started, is no longer an ancestor of "
        "the table's current snapshot; plan again."
    )
