"""Find the partitions that were written a short time ago; reads only recent manifests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from icekit.facts.files import Partition
from icekit.facts.lineage import lineage, snapshots_by_id
from icekit.facts.manifests import SIZE_FIELDS, Record, files_of, manifest_list, read_ahead
from icekit.facts.metadata import Json

#: A choice: a partition written within this many minutes may still be written to.
RECENT_MINUTES = 60.0
#: A choice: the most entries to read, those of the newest manifests.
MOST_ENTRIES = 10_000
#: A choice: the manifests that an observation reads for it, the newest ones; it has read them once
# before.
MOST_MANIFESTS = 16


def written_since(
    read: Callable[[str], bytes],
    metadata: Json,
    snapshot: Json | None,
    since_ms: int,
    manifests: Sequence[Record] | None = None,
    most_manifests: int | None = None,
) -> frozenset[Partition]:
    """Partitions to which a commit of the snapshot's lineage added files at or after ``since_ms``.

    Commits that only replace files (compactions) do not count. Reads the manifests that were added
    since then, which may hold older entries too, newest first, until these have
    :data:`MOST_ENTRIES`, and at most ``most_manifests``. A partition that is left out is not waited
    for. ``manifests`` is the snapshot's manifest list, if it has been read.
    """
    young = list(
        takewhile(
            lambda s: s["timestamp-ms"] >= since_ms, lineage(snapshots_by_id(metadata), snapshot)
        )
    )
    recent = {
        s["snapshot-id"] for s in young if (s.get("summary") or {}).get("operation") != "replace"
    }
    if snapshot is None or not recent or "manifest-list" not in snapshot:
        return frozenset()
    partitions: set[Partition] = set()
    listing, left = snapshot["manifest-list"], MOST_ENTRIES
    listed = manifest_list(read(listing), listing) if manifests is None else manifests
    ids = {s["snapshot-id"] for s in young}
    added = [m for m in listed if m.get("added_snapshot_id") in ids]
    newest = sorted(added, key=lambda m: -(m.get("sequence_number") or 0))[:most_manifests]
    contents = read_ahead(read, [manifest["manifest_path"] for manifest in newest])
    for manifest, content in zip(newest, contents, strict=True):
        for _, partition, snapshot_id in files_of(manifest, content, SIZE_FIELDS):
            left -= 1
            if snapshot_id in recent:
                partitions.add(partition)
        if left <= 0:
            break
    return frozenset(partitions)
