"""Write the metadata of a clone: that of the table, changed so that nothing done with the clone reaches a file of the table."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from icekit.facts.lineage import choose_snapshot
from icekit.facts.metadata import Json

#: These set where files are written, in addition to the location and ``write.data.path``.
_ELSEWHERE = ("write.location-provider.impl", "write.object-storage.path", "write.folder-storage.path")


def own_paths(scratch: str) -> dict[str, str]:
    """The table properties that keep everything written through a clone in its folder, and prevent everything else from being deleted."""
    return {
        "gc.enabled": "false",
        "write.data.path": f"{scratch}/data",
        "write.metadata.path": f"{scratch}/metadata",
        "write.metadata.delete-after-commit.enabled": "false",
    }


def clone_metadata(metadata: Json, scratch: str, properties: Mapping[str, str], snapshot: str | int | None = None) -> dict[str, Any]:
    """The metadata of a clone whose location is ``scratch``, and whose main branch is at ``snapshot``.

    Schemas, specs, snapshots, branches and tags are those of the table. Different are

    - ``location``, because ``remove_orphan_files`` lists it and some engines and catalogs delete it with the table;
    - ``metadata-log``, which is empty: otherwise a commit would delete the table's metadata files under
      ``write.metadata.delete-after-commit.enabled``;
    - ``table-uuid``, because catalogs and caches distinguish tables by it;
    - properties: those of :func:`own_paths`, those given, and none that points to another folder.

    Raises :class:`~icekit.errors.SnapshotNotFound`.
    """
    chosen, _ = choose_snapshot(metadata, snapshot)
    kept = {k: v for k, v in (metadata.get("properties") or {}).items() if k not in _ELSEWHERE}
    made = {
        **metadata,
        "table-uuid": str(uuid.uuid4()),
        "location": scratch,
        "metadata-log": [],
        "properties": {**kept, **own_paths(scratch), **properties},
    }
    if chosen is None or chosen["snapshot-id"] == metadata.get("current-snapshot-id"):
        return made
    # As set_current_snapshot does.
    moved = chosen["snapshot-id"]
    now = max(time.time_ns() // 1_000_000, int(metadata["last-updated-ms"]))
    refs = metadata.get("refs") or {}
    made["current-snapshot-id"] = moved
    made["refs"] = {**refs, "main": {"type": "branch", **refs.get("main", {}), "snapshot-id": moved}}
    made["snapshot-log"] = [*(metadata.get("snapshot-log") or ()), {"timestamp-ms": now, "snapshot-id": moved}]
    made["last-updated-ms"] = now
    return made
