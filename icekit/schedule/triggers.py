"""Say whether a table is due, from its metadata and what its last pass saw; pure, reads no manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from icekit.compact.lineage import RUN_TAG
from icekit.facts.metadata import Json, settings
from icekit.facts.sizes import min_file_size
from icekit.facts.snapshots import choose_snapshot, lineage, snapshots_by_id
from icekit.schedule.model import Trigger
from icekit.units import count, span


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last finished pass of a table saw: its snapshot then, and when that was, in milliseconds since 1970.

    ``left_id`` is the snapshot that the pass left, after icekit's own commits; None where it made none, or it is not known.
    """

    table_uuid: str | None
    snapshot_id: int | None
    passed_ms: int
    left_id: int | None = None


@dataclass(frozen=True, slots=True)
class Since:
    """What came to a table since a snapshot, by the summaries of its commits.

    ``small_files`` counts the data files of commits whose mean added file is undersized: a summary tells no
    single file's size.
    """

    commits: int = 0
    delete_records: int = 0
    small_files: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a table is due, and why or why not."""

    is_due: bool
    why: str


def due(metadata: Json, seen: Seen | None, trigger: Trigger, now_ms: int, small_ratio: float) -> Due:
    """Judge one table. ``small_ratio`` is the share of the target under which a file is undersized."""
    if seen is None:
        return Due(True, "its first pass")
    if seen.table_uuid is not None and metadata.get("table-uuid") != seen.table_uuid:
        return Due(True, "it is another table than at its last pass")
    ago = max(0, now_ms - seen.passed_ms)
    if trigger.every is not None and ago >= trigger.every * 1000:
        return Due(True, f"its last pass was {span(ago)} ago")
    found = since(metadata, seen.snapshot_id, small_ratio)
    if found is None:
        return Due(True, "the snapshot of its last pass is gone (expired or rolled back)")
    if seen.left_id is not None and since(metadata, seen.left_id, small_ratio) is None:
        return Due(True, "what its last pass committed is no longer in its history (rolled back or put back)")
    reached, not_yet = [], []
    for name, noun in (("commits", "commit"), ("delete_records", "delete record"), ("small_files", "small file")):
        limit, value = getattr(trigger, name), getattr(found, name)
        if limit is None:
            continue
        if value >= limit:
            reached.append(f"{count(value, noun)} since its last pass (due from {limit:,})")
        else:
            not_yet.append(f"{value:,} of {count(limit, noun)}")
    if reached:
        return Due(True, "; ".join(reached))
    if trigger.every is not None:
        not_yet.append(f"{span(ago)} of {span(trigger.every * 1000)}")
    return Due(False, f"since its last pass {', '.join(not_yet)}")


def since(metadata: Json, snapshot_id: int | None, small_ratio: float) -> Since | None:
    """What came after a snapshot; None if it is no ancestor of the current one any more."""
    current, _ = choose_snapshot(metadata, None)
    in_force = settings(metadata.get("properties") or {})
    target = int(next(s.value for s in in_force if s.name == "write.target-file-size-bytes") or 0)
    small = min_file_size(target, small_ratio)
    commits = deletes = files = 0
    for snapshot in lineage(snapshots_by_id(metadata), current):
        if snapshot["snapshot-id"] == snapshot_id:
            return Since(commits, deletes, files)
        said: Mapping[str, Any] = snapshot.get("summary") or {}
        if RUN_TAG in said:
            continue  # what icekit itself commits asks for nothing
        commits += 1
        deletes += _number(said, "added-position-deletes") + _number(said, "added-equality-deletes")
        added = _number(said, "added-data-files")
        if added and _number(said, "added-files-size") / added < small:
            files += added
    return Since(commits, deletes, files) if snapshot_id is None else None


def _number(summary: Mapping[str, Any], name: str) -> int:
    return int(summary.get(name) or 0)
