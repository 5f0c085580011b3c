"""Read from a table's snapshots what its row-level writes cost so far: bytes and rows written per row changed, and how scattered.

Pure: works on the snapshots of a metadata file. Spark does not say in a snapshot which
statement made it, so kinds are told by what a commit added and removed (keys of
``SnapshotSummary``), and by the row counters that Spark 4.1 adds to a MERGE.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icekit.facts.metadata import Json

_MERGE = "spark.merge-into.num-target-rows-"
_DAY_MS = 86_400_000

#: Kinds that change rows where they are, and so have a write mode.
ROW_LEVEL = ("delete", "update", "merge", "upsert")
#: How a commit did it.
COPY_ON_WRITE, MERGE_ON_READ, EQUALITY = "copy-on-write", "merge-on-read", "equality deletes"


@dataclass(frozen=True, slots=True)
class Change:
    """One commit, as far as its summary tells.

    ``kind`` is one of :data:`ROW_LEVEL`, or append, replace (a compaction), drop (whole files
    removed) or overwrite. ``rows_changed`` counts rows deleted, updated or inserted, and is None
    where a copy-on-write commit does not say how many of the rows it wrote were only copied.
    Shares are of what the table had before the commit.
    """

    kind: str
    mode: str | None
    committed_at_ms: int
    writer: str | None
    rows_changed: int | None
    rows_written: int
    bytes_written: int
    files_written: int
    files_touched: int
    deletes_added: int
    deletes_removed: int
    file_share: float | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class OperationHistory:
    """The commits of one kind and mode, rolled up; medians per commit, None where no commit tells."""

    kind: str
    mode: str | None
    commit_count: int
    rows_changed: float | None
    rows_written: float
    bytes_written: float
    files_written: float
    file_share: float | None
    partitions: float | None
    row_amplification: float | None
    bytes_per_row_changed: float | None


@dataclass(frozen=True, slots=True)
class WriteHistory:
    """What a table's snapshots tell of its writes.

    ``writes_per_day`` counts row-level commits; ``appends_per_day`` the others that add rows.
    Both are None with fewer than two snapshots. ``position_deletes_per_day`` is churn: deleted
    rows that wait in delete files for a compaction, new ones per day. ``writer_count`` counts the
    applications that committed, compactions aside.
    """

    snapshot_count: int
    days: float | None
    operations: tuple[OperationHistory, ...]
    writes_per_day: float | None
    appends_per_day: float | None
    position_deletes_per_day: float | None
    compaction_count: int
    commits_between_compactions: float | None
    writer_count: int

    def of_kind(self, kind: str) -> OperationHistory | None:
        """The most frequent of a kind's modes; None if the kind was not seen."""
        return max((o for o in self.operations if o.kind == kind), key=lambda o: o.commit_count, default=None)

    @property
    def row_level(self) -> tuple[OperationHistory, ...]:
        """The operations that have a write mode, most frequent first."""
        return tuple(o for o in self.operations if o.kind in ROW_LEVEL)


def write_history(snapshots: Iterable[Json]) -> WriteHistory:
    """Roll up the snapshots of one lineage, in any order."""
    ordered = sorted(snapshots, key=lambda s: int(s["timestamp-ms"]))
    changes = [change(snapshot) for snapshot in ordered]
    span = changes[-1].committed_at_ms - changes[0].committed_at_ms if len(changes) > 1 else 0
    days = span / _DAY_MS if span else None
    # The first commit starts the clock: what it did took place before the span.
    later = changes[1:]
    grouped: dict[tuple[str, str | None], list[Change]] = {}
    for one in changes:
        grouped.setdefault((one.kind, one.mode), []).append(one)
    operations = [_rolled_up(kind, mode, some) for (kind, mode), some in grouped.items()]
    return WriteHistory(
        len(changes),
        days,
        tuple(sorted(operations, key=lambda o: (-o.commit_count, o.kind, o.mode or ""))),
        sum(c.kind in ROW_LEVEL for c in later) / days if days else None,
        sum(c.kind == "append" for c in later) / days if days else None,
        sum(c.deletes_added for c in later) / days if days else None,
        sum(c.kind == "replace" for c in changes),
        _between(changes),
        len({c.writer for c in changes if c.writer and c.kind != "replace"}),
    )


def change(snapshot: Json) -> Change:
    """Tell what one commit did."""
    summary = snapshot.get("summary") or {}
    added, removed = _number(summary, "added-data-files"), _number(summary, "deleted-data-files")
    added_rows, removed_rows = _number(summary, "added-records"), _number(summary, "deleted-records")
    positions, equalities = _number(summary, "added-position-deletes"), _number(summary, "added-equality-deletes")
    delete_files = _number(summary, "added-delete-files")
    counters = {name: _number(summary, _MERGE + name) for name in ("deleted", "updated", "inserted") if _MERGE + name in summary}
    operation = str(summary.get("operation") or "")
    # A dynamic overwrite puts other rows in the place of whole partitions.
    operation = "replace-partitions" if summary.get("replace-partitions") == "true" else operation
    kind, mode = _kind(operation, added, removed, added_rows, removed_rows, positions, equalities, counters)
    before = _number(summary, "total-data-files") - added + removed
    touched = removed if mode == COPY_ON_WRITE else min(delete_files, before) if mode == MERGE_ON_READ else 0
    return Change(
        kind,
        mode,
        int(snapshot["timestamp-ms"]),
        summary.get("spark.app.id") or summary.get("flink.job-id") or summary.get("app-id"),
        _rows_changed(kind, mode, counters, positions, equalities, added_rows, removed_rows),
        # A position delete is a row written too, though a small one.
        added_rows + positions + equalities,
        _number(summary, "added-files-size"),
        added + delete_files,
        touched,
        positions + equalities,
        _number(summary, "removed-position-deletes") + _number(summary, "removed-equality-deletes"),
        touched / before if before > 0 and mode in (COPY_ON_WRITE, MERGE_ON_READ) else None,
        _number(summary, "changed-partition-count") if "changed-partition-count" in summary else None,
    )


def _kind(
    operation: str,
    added: int,
    removed: int,
    added_rows: int,
    removed_rows: int,
    positions: int,
    equalities: int,
    counters: Mapping[str, int],
) -> tuple[str, str | None]:
    if operation in ("append", "replace"):
        return operation, None
    if operation == "replace-partitions":
        return "overwrite", None
    if equalities:
        return "upsert", EQUALITY
    if counters:
        return "merge", MERGE_ON_READ if positions else COPY_ON_WRITE
    if positions:
        # An update writes each row that it deletes again; a MERGE of an older Spark may look like one.
        return ("delete" if not added else "update"), MERGE_ON_READ
    if removed and not added:
        return "drop", None
    if removed and added_rows <= removed_rows:
        return ("update" if added_rows == removed_rows else "delete"), COPY_ON_WRITE
    return operation or "unknown", None


def _rows_changed(
    kind: str, mode: str | None, counters: Mapping[str, int], positions: int, equalities: int, added_rows: int, removed_rows: int
) -> int | None:
    if counters:
        return sum(counters.values())
    if mode == MERGE_ON_READ:
        return max(positions, added_rows)
    if mode == EQUALITY:
        return max(equalities, added_rows)
    if kind == "delete":
        return removed_rows - added_rows
    if kind == "append":
        return added_rows
    return removed_rows if kind == "drop" else None


def _rolled_up(kind: str, mode: str | None, changes: Sequence[Change]) -> OperationHistory:
    told = [c for c in changes if c.rows_changed]
    rows = sum(c.rows_changed or 0 for c in told)
    return OperationHistory(
        kind,
        mode,
        len(changes),
        _median(c.rows_changed for c in changes),
        statistics.median(c.rows_written for c in changes),
        statistics.median(c.bytes_written for c in changes),
        statistics.median(c.files_written for c in changes),
        _median(c.file_share for c in changes),
        _median(c.partitions for c in changes),
        sum(c.rows_written for c in told) / rows if rows else None,
        sum(c.bytes_written for c in told) / rows if rows else None,
    )


def _between(changes: Sequence[Change]) -> float | None:
    """Row-level commits from one compaction to the next; None before there were two."""
    counts: list[int] = []
    since: int | None = None
    for one in changes:
        if one.kind == "replace":
            # Partial progress makes one compaction of several commits.
            if since:
                counts.append(since)
            since = 0
        elif since is not None and one.kind in ROW_LEVEL:
            since += 1
    return statistics.fmean(counts) if counts else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _number(summary: Mapping[str, Any], key: str) -> int:
    return int(summary.get(key) or 0)
