"""Read the snapshots of table metadata JSON: the chosen snapshot, its lineage, and the history."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from itertools import pairwise

from icekit.errors import MetadataUnreadable, SnapshotNotFound, nearest
from icekit.facts.metadata import Json
from icekit.facts.snapshots import Commit, History, Ref
from icekit.parsing import moment

MAX_COMMITS = 1000


class Damaged(MetadataUnreadable):
    """A table's metadata is wrong; the message says where."""


def choose_snapshot(metadata: Json, ref: str | int | None) -> tuple[Json | None, str | None]:
    """The chosen snapshot, and the name of its branch or tag if ``ref`` is one.

    ``ref`` is a branch, a tag, a snapshot id, a date or time (UTC; what was current then), or None
    for the current snapshot. Raises :class:`~icekit.errors.SnapshotNotFound`.
    """
    snapshots = snapshots_by_id(metadata)
    refs = metadata.get("refs") or {}
    if ref is None or ref == "":
        current = metadata.get("current-snapshot-id")
        return snapshots.get(current), None
    if str(ref) in refs:
        return snapshots[refs[str(ref)]["snapshot-id"]], str(ref)
    if str(ref).lstrip("-").isdigit():
        if int(ref) in snapshots:
            return snapshots[int(ref)], None
        raise SnapshotNotFound(f"Snapshot {ref} does not exist, or has expired.")
    if re.match(r"\d{4}-\d\d-\d\d", str(ref)):
        until = moment(ref).timestamp() * 1000
        earlier = [e for e in metadata.get("snapshot-log") or () if e["timestamp-ms"] <= until]
        if earlier and earlier[-1]["snapshot-id"] in snapshots:
            return snapshots[earlier[-1]["snapshot-id"]], None
        raise SnapshotNotFound(f"The table has no snapshot that was current at {ref}.")
    known = f"; known refs: {', '.join(sorted(refs)) or 'none'}."
    raise SnapshotNotFound(
        f"There is no branch or tag {str(ref)!r}{nearest(str(ref), refs) or known}"
    )


def snapshots_by_id(metadata: Json) -> Mapping[int | None, Json]:
    """The existing snapshots by id; None, the parent of a first snapshot, finds none."""
    return {s["snapshot-id"]: s for s in metadata.get("snapshots") or ()}


def lineage(snapshots: Mapping[int | None, Json], snapshot: Json | None) -> Iterator[Json]:
    """A snapshot and its existing ancestors, newest first; ``snapshots`` are all snapshots by id.

    Raises :class:`Damaged` if a snapshot is its own ancestor.
    """
    seen: set[object] = set()
    while snapshot is not None:
        if snapshot["snapshot-id"] in seen:
            raise Damaged(
                f"parent-snapshot-id forms a circle around {snapshot['snapshot-id']}, so the "
                "history of the table is not known"
            )
        seen.add(snapshot["snapshot-id"])
        yield snapshot
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))


def history(metadata: Json, snapshot: Json | None) -> History:
    """Cadence, writers and refs, of all snapshots and of the chosen snapshot's
    lineage.
    """
    snapshots = snapshots_by_id(metadata)
    ancestors = list(lineage(snapshots, snapshot))[::-1]
    times = [s["timestamp-ms"] for s in ancestors]
    gaps = [(b - a) / 1000 for a, b in pairwise(times)]
    every = [s["timestamp-ms"] for s in snapshots.values()]
    return History(
        snapshot_count=len(snapshots),
        oldest_snapshot_ms=min(every, default=None),
        newest_snapshot_ms=max(every, default=None),
        median_seconds_between_commits=statistics.median(gaps) if gaps else None,
        commits=tuple(_commit(s) for s in ancestors[-MAX_COMMITS:]),
        refs=tuple(
            Ref(name, ref["type"], ref["snapshot-id"])
            for name, ref in sorted((metadata.get("refs") or {}).items())
        ),
        metadata_log_count=len(metadata.get("metadata-log") or ()),
        schema_count=len(metadata.get("schemas") or ()) or 1,
    )


def _commit(snapshot: Json) -> Commit:
    summary = snapshot.get("summary") or {}

    def number(key: str) -> int | None:
        return int(summary[key]) if key in summary else None

    return Commit(
        snapshot_id=snapshot["snapshot-id"],
        committed_at_ms=snapshot["timestamp-ms"],
        operation=summary.get("operation"),
        writer=_writer(summary),
        added_data_files=number("added-data-files"),
        added_delete_files=number("added-delete-files"),
        added_bytes=number("added-files-size"),
        added_records=number("added-records"),
        removed_data_files=number("deleted-data-files"),
        changed_partitions=number("changed-partition-count"),
        removed_delete_files=number("removed-delete-files"),
    )


def _writer(summary: Mapping[str, str]) -> str | None:
    if "engine-name" in summary:
        named = (summary.get(key) for key in ("engine-name", "engine-version", "app-id"))
        return " ".join(filter(None, named))
    for engine, key in (("flink", "flink.job-id"), ("spark", "spark.app.id")):
        if key in summary:
            return f"{engine} {summary[key]}"
    return summary.get("iceberg-version")
