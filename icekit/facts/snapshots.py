"""Read the snapshots of table metadata JSON: which one is meant, its lineage, and the history they tell."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from icekit.errors import MetadataUnreadable, SnapshotNotFound, nearest
from icekit.facts.metadata import Json
from icekit.facts.model import Commit, History, Ref

MAX_COMMITS = 1000


class Damaged(MetadataUnreadable):
    """What is wrong in a table's metadata, and where."""


class CyclicLineage(Damaged):
    """A snapshot that is its own ancestor."""

    def __init__(self, ids: Sequence[object]) -> None:
        shown = " → ".join(str(one) for one in (*ids[:5], *(["…"] if len(ids) > 5 else []), ids[0]))
        super().__init__(f"parent-snapshot-id goes round in a circle ({shown}), so the history of the table is not known")


def choose_snapshot(metadata: Json, ref: str | int | None) -> tuple[Json | None, str | None]:
    """The snapshot to look at, and the name of the branch or tag it was chosen by.

    ``ref`` is a branch, a tag, a snapshot id, or None for the current snapshot. Raises
    :class:`~icekit.errors.SnapshotNotFound`.
    """
    snapshots = {s["snapshot-id"]: s for s in metadata.get("snapshots") or ()}
    refs = metadata.get("refs") or {}
    if ref is None or ref == "":
        current = metadata.get("current-snapshot-id")
        return snapshots.get(current), None
    if str(ref) in refs:
        return snapshots[refs[str(ref)]["snapshot-id"]], str(ref)
    if str(ref).lstrip("-").isdigit():
        if int(ref) in snapshots:
            return snapshots[int(ref)], None
        newest = max(snapshots.values(), key=lambda s: s["timestamp-ms"], default=None)
        there = f"the newest of {len(snapshots)} is {newest['snapshot-id']}" if newest else "the table has no snapshots"
        raise SnapshotNotFound(f"Snapshot {ref} does not exist, or has expired; {there}.")
    known = ", ".join(sorted(refs)) or "none"
    raise SnapshotNotFound(f"There is no branch or tag {str(ref)!r}{nearest(str(ref), refs) or f'; there are {known}.'}")


def snapshots_by_id(metadata: Json) -> Mapping[int | None, Json]:
    """The snapshots that are still there, by id; no id, as of a first snapshot's parent, finds none."""
    return {s["snapshot-id"]: s for s in metadata.get("snapshots") or ()}


def lineage(snapshots: Mapping[int | None, Json], snapshot: Json | None) -> Iterator[Json]:
    """A snapshot and its ancestors that are still there, newest first; ``snapshots`` are those by id.

    Raises :class:`CyclicLineage` where it would never end.
    """
    seen: dict[object, None] = {}
    while snapshot is not None:
        if snapshot["snapshot-id"] in seen:
            ids = list(seen)
            raise CyclicLineage(ids[ids.index(snapshot["snapshot-id"]) :])
        seen[snapshot["snapshot-id"]] = None
        yield snapshot
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))


def history(metadata: Json, snapshot: Json | None) -> History:
    """Cadence, operations, writers and refs; of all snapshots and of the chosen one's lineage."""
    snapshots = snapshots_by_id(metadata)
    ancestors = list(lineage(snapshots, snapshot))[::-1]
    times = [s["timestamp-ms"] for s in ancestors]
    gaps = [(b - a) / 1000 for a, b in pairwise(times)]
    every = [s["timestamp-ms"] for s in snapshots.values()]
    operations = Counter(str((s.get("summary") or {}).get("operation", "unknown")) for s in ancestors)
    return History(
        snapshot_count=len(snapshots),
        lineage_count=len(ancestors),
        oldest_snapshot_ms=min(every, default=None),
        newest_snapshot_ms=max(every, default=None),
        median_seconds_between_commits=statistics.median(gaps) if gaps else None,
        operations=tuple(sorted(operations.items())),
        commits=tuple(_commit(s) for s in ancestors[-MAX_COMMITS:]),
        refs=tuple(Ref(name, ref["type"], ref["snapshot-id"]) for name, ref in sorted((metadata.get("refs") or {}).items())),
        metadata_log_count=len(metadata.get("metadata-log") or ()),
    )


def _commit(snapshot: Json) -> Commit:
    summary = snapshot.get("summary") or {}

    def number(key: str) -> int | None:
        return int(summary[key]) if key in summary else None

    return Commit(
        snapshot["snapshot-id"],
        snapshot["timestamp-ms"],
        summary.get("operation"),
        _writer(summary),
        number("added-data-files"),
        number("added-delete-files"),
        number("added-files-size"),
        number("added-records"),
        number("deleted-data-files"),
        number("changed-partition-count"),
        number("removed-delete-files"),
        number("removed-files-size"),
    )


def _writer(summary: Mapping[str, str]) -> str | None:
    if "engine-name" in summary:
        return " ".join(filter(None, (summary["engine-name"], summary.get("engine-version"), summary.get("app-id"))))
    if "flink.job-id" in summary:
        return f"flink {summary['flink.job-id']}"
    if "spark.app.id" in summary:
        return f"spark {summary['spark.app.id']}"
    return summary.get("iceberg-version")
