"""Find the partitions that were written lately, from the manifests that recent commits added; no Spark."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from icekit.facts.avro import SIZE_FIELDS, entries, manifest_list
from icekit.facts.files import Partition
from icekit.facts.metadata import Json
from icekit.facts.snapshots import lineage, snapshots_by_id
from icekit.facts.values import to_scalar

if TYPE_CHECKING:
    from icekit.catalog.source import Source


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
