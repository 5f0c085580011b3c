"""Read the cost of a table's past row-level writes from its snapshots, and choose similar statements to try.

Pure: works on the snapshots of a metadata file. A snapshot does not name the statement
that made it, so the kind follows from what a commit added and removed (keys of
``SnapshotSummary``), and from the row counters that Spark 4.1 adds for a MERGE.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.metadata_tables import metadata_table
from icekit.errors import ParameterError
from icekit.facts.files import Kind
from icekit.facts.metadata import Json
from icekit.facts.model import Column, TableFacts
from icekit.facts.where import where
from icekit.sql import Identifier, identifier, literal
from icekit.tune.statement import Statement
from icekit.units import count, percent

if TYPE_CHECKING:
    from icekit.catalog import Lake


_MERGE = "spark.merge-into.num-target-rows-"
_DAY_MS = 86_400_000

#: Kinds that change existing rows, and so have a write mode.
ROW_LEVEL = ("delete", "update", "merge", "upsert")
#: How a commit did it.
COPY_ON_WRITE, MERGE_ON_READ, EQUALITY = "copy-on-write", "merge-on-read", "equality deletes"


@dataclass(frozen=True, slots=True)
class Change:
    """One commit, from its summary.

    ``kind`` is one of :data:`ROW_LEVEL`, or append, replace (a compaction), drop (whole files
    removed) or overwrite. ``rows_changed`` counts rows deleted, updated or inserted, and is None
    if a copy-on-write commit does not say how many of the rows it wrote were only copied.
    Shares are relative to the table before the commit.
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
    """The writes of a table, from its snapshots.

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
        snapshot_count=len(changes),
        days=days,
        operations=tuple(sorted(operations, key=lambda o: (-o.commit_count, o.kind, o.mode or ""))),
        writes_per_day=sum(c.kind in ROW_LEVEL for c in later) / days if days else None,
        appends_per_day=sum(c.kind == "append" for c in later) / days if days else None,
        position_deletes_per_day=sum(c.deletes_added for c in later) / days if days else None,
        compaction_count=sum(c.kind == "replace" for c in changes),
        commits_between_compactions=_between(changes),
        writer_count=len({c.writer for c in changes if c.writer and c.kind != "replace"}),
    )


@dataclass(frozen=True, slots=True)
class _Counters:
    """What a snapshot's summary counts; ``merged`` are the rows that Spark 4.1 counts of a MERGE."""

    operation: str
    added: int
    removed: int
    added_rows: int
    removed_rows: int
    positions: int
    equalities: int
    merged: Mapping[str, int]

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> _Counters:
        """Read them."""
        # A dynamic overwrite puts other rows in the place of whole partitions.
        is_dynamic = summary.get("replace-partitions") == "true"
        return cls(
            operation="replace-partitions" if is_dynamic else str(summary.get("operation") or ""),
            added=_number(summary, "added-data-files"),
            removed=_number(summary, "deleted-data-files"),
            added_rows=_number(summary, "added-records"),
            removed_rows=_number(summary, "deleted-records"),
            positions=_number(summary, "added-position-deletes"),
            equalities=_number(summary, "added-equality-deletes"),
            merged={name: _number(summary, _MERGE + name) for name in ("deleted", "updated", "inserted") if _MERGE + name in summary},
        )

    def kind(self) -> tuple[str, str | None]:
        """The kind of the commit, and how it was done."""
        if self.operation in ("append", "replace"):
            return self.operation, None
        if self.operation == "replace-partitions":
            return "overwrite", None
        if self.equalities:
            return "upsert", EQUALITY
        if self.merged:
            return "merge", MERGE_ON_READ if self.positions else COPY_ON_WRITE
        if self.positions:
            # An update writes each row that it deletes again; a MERGE of an older Spark may look like one.
            return ("delete" if not self.added else "update"), MERGE_ON_READ
        if self.removed and not self.added:
            return "drop", None
        if self.removed and self.added_rows <= self.removed_rows:
            return ("update" if self.added_rows == self.removed_rows else "delete"), COPY_ON_WRITE
        return self.operation or "unknown", None

    def rows_changed(self) -> int | None:
        """Rows deleted, updated or inserted; None where the summary does not tell."""
        kind, mode = self.kind()
        if self.merged:
            return sum(self.merged.values())
        if mode == MERGE_ON_READ:
            return max(self.positions, self.added_rows)
        if mode == EQUALITY:
            return max(self.equalities, self.added_rows)
        if kind == "delete":
            return self.removed_rows - self.added_rows
        if kind == "append":
            return self.added_rows
        return self.removed_rows if kind == "drop" else None


def change(snapshot: Json) -> Change:
    """Tell what one commit did."""
    summary = snapshot.get("summary") or {}
    counted = _Counters.of(summary)
    kind, mode = counted.kind()
    delete_files = _number(summary, "added-delete-files")
    before = _number(summary, "total-data-files") - counted.added + counted.removed
    touched = counted.removed if mode == COPY_ON_WRITE else min(delete_files, before) if mode == MERGE_ON_READ else 0
    deletes = counted.positions + counted.equalities
    return Change(
        kind=kind,
        mode=mode,
        committed_at_ms=int(snapshot["timestamp-ms"]),
        writer=summary.get("spark.app.id") or summary.get("flink.job-id") or summary.get("app-id"),
        rows_changed=counted.rows_changed(),
        # A position delete is a row written too, though a small one.
        rows_written=counted.added_rows + deletes,
        bytes_written=_number(summary, "added-files-size"),
        files_written=counted.added + delete_files,
        files_touched=touched,
        deletes_added=deletes,
        deletes_removed=_number(summary, "removed-position-deletes") + _number(summary, "removed-equality-deletes"),
        file_share=touched / before if before > 0 and mode in (COPY_ON_WRITE, MERGE_ON_READ) else None,
        partitions=_number(summary, "changed-partition-count") if "changed-partition-count" in summary else None,
    )


def _rolled_up(kind: str, mode: str | None, changes: Sequence[Change]) -> OperationHistory:
    told = [c for c in changes if c.rows_changed]
    rows = sum(c.rows_changed or 0 for c in told)
    return OperationHistory(
        kind=kind,
        mode=mode,
        commit_count=len(changes),
        rows_changed=_median(c.rows_changed for c in changes),
        rows_written=statistics.median(c.rows_written for c in changes),
        bytes_written=statistics.median(c.bytes_written for c in changes),
        files_written=statistics.median(c.files_written for c in changes),
        file_share=_median(c.file_share for c in changes),
        partitions=_median(c.partitions for c in changes),
        row_amplification=sum(c.rows_written for c in told) / rows if rows else None,
        bytes_per_row_changed=sum(c.bytes_written for c in told) / rows if rows else None,
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


# --- The statements of a trial: a person's own, or synthetic ones like the table's history


#: Rows that a commit changes where the history does not say.
DEFAULT_SHARE = 0.01
OPERATIONS = ("delete", "update", "merge")
SCATTERED, CLUSTERED = "scattered", "clustered"
#: A commit that touched more than this share of the files is taken for a scattered one.
_SCATTERED_SHARE = 0.5
_HASHED_COLUMNS = 8
_UNIT = 1_000_000


@dataclass(frozen=True)
class Workload:
    """Some statements, each of which is one commit; ``statements`` take the table to aim at, named with its catalog.

    ``operation`` tells which write mode applies (``write.<operation>.mode``).
    """

    operation: str
    described: str
    statements: tuple[Callable[[Identifier], str], ...]
    is_synthetic: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """What a synthetic commit changes: this share of the rows, in all files or in this share of them."""

    operation: str
    share: float
    spread: str
    file_share: float

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ParameterError(f"The operation is {self.operation!r}, but must be one of {', '.join(OPERATIONS)}.")
        if self.spread not in (SCATTERED, CLUSTERED):
            raise ParameterError(f"The spread is {self.spread!r}, but must be {SCATTERED} or {CLUSTERED}.")
        for name, value in (("share of rows", self.share), ("share of files", self.file_share)):
            if not 0 < value <= 1:
                raise ParameterError(f"The {name} is {value}, but must be above 0 and at most 1, such as 0.01.")


def own(statement: Statement) -> Workload:
    """A person's own statement, as one commit."""
    return Workload(statement.kind.lower(), f"your {statement.kind}", (statement.on,), is_synthetic=False)


def shaped_like(
    facts: TableFacts,
    history: WriteHistory,
    *,
    operation: str | None = None,
    share: float | None = None,
    spread: str | None = None,
    file_share: float | None = None,
) -> Shape:
    """The shape of a table's row-level commits so far; what is given is taken, what is unknown is the default."""
    rows = facts.data.record_count
    seen = [o for o in history.row_level if o.kind in OPERATIONS] or list(history.row_level)
    if operation is not None:
        seen = [o for o in seen if o.kind == operation] or seen
    usual = seen[0] if seen else None
    kind = operation or (usual.kind if usual and usual.kind in OPERATIONS else "update" if usual else "merge")
    told = next((o.rows_changed for o in seen if o.rows_changed), None)
    if share is None:
        share = min(max(told / rows, 1e-6), 1.0) if told and rows else DEFAULT_SHARE
    # A partition-granular delete file hides how many data files it reaches.
    touched = next((o.file_share for o in seen if o.file_share), None)
    if file_share is None:
        file_share = touched if touched and not (usual and usual.mode == MERGE_ON_READ and touched < share) else 1.0
    if spread is None:
        spread = SCATTERED if file_share > _SCATTERED_SHARE else CLUSTERED
    if spread == CLUSTERED and file_share == 1.0:
        file_share = min(1.0, max(share * 2, 1 / max(facts.data.file_count, 1)))
    return Shape(kind, share, spread, file_share if spread == CLUSTERED else 1.0)


def synthetic(lake: Lake, facts: TableFacts, shape: Shape, commits: int, *, is_copied: bool = False) -> Workload:
    """Statements of a shape, each for other rows of the table as it is now.

    A MERGE needs a key, which nobody has named, so an UPDATE stands in for it: it writes the same
    rows and files, without the join. ``is_copied`` says that each copy has files of its own.
    """
    columns = [c for c in _tops(facts) if not c.type.startswith(("variant", "geo"))]
    if not columns:
        raise ParameterError("The table has no column of a plain type to choose rows by; give your own statement.")
    hashed = ", ".join(identifier(c.name) for c in columns[:_HASHED_COLUMNS])
    if shape.spread == SCATTERED:
        places: Sequence[str | None] = [None] * commits
        within = shape.share
    else:
        places, reached = _places(lake, facts, shape, commits, is_copied)
        within = min(1.0, shape.share / max(reached, 1e-9))
    made = []
    for number, place in enumerate(places):
        # Other rows each time; and no BETWEEN, which Iceberg 1.12 cannot take of an expression in a DELETE.
        chosen = f"pmod(xxhash64({hashed}, {number}), {_UNIT}) < {max(1, round(within * _UNIT))}"
        made.append(_statement(facts, shape.operation, f"({place}) AND {chosen}" if place is not None else chosen))
    stand_in = " (an UPDATE replaces the MERGE)" if shape.operation == "merge" else ""
    files = "all files" if shape.spread == SCATTERED else f"{percent(shape.file_share)} of the files"
    described = f"{shape.operation.upper()} of {percent(shape.share)} of the rows in {files}{stand_in}, {count(commits, 'commit')}"
    return Workload(shape.operation, described, tuple(made), is_synthetic=True)


def _statement(facts: TableFacts, operation: str, predicate: str) -> Callable[[Identifier], str]:
    if operation == "delete":
        return lambda table: f"DELETE FROM {identifier(*table)} WHERE {predicate}"
    sources = {f.source for s in facts.specs for f in s.fields} | {f.source for f in facts.sort_order}
    tops = [c.name for c in _tops(facts)]
    # Set to itself: the row is rewritten, wherever it belongs.
    column = identifier(next((name for name in tops if name not in sources), tops[0]))
    return lambda table: f"UPDATE {identifier(*table)} SET {column} = {column} WHERE {predicate}"


def _tops(facts: TableFacts) -> list[Column]:
    """The columns of a plain type; what lists and maps hold is named after them, and cannot be asked for by that name."""
    return [c for c in facts.columns if len(c.names) == 1 and not c.name.endswith((".element", ".key", ".value"))]


def _places(lake: Lake, facts: TableFacts, shape: Shape, commits: int, is_copied: bool) -> tuple[list[str], float]:
    """Where each commit's rows are, and the share of all rows that one such place holds: partitions where there are, else files."""
    groups = sorted(facts.of_kind(Kind.DATA), key=lambda g: (g.partition.spec_id, [str(v) for v in g.partition.values]))
    total = facts.data.record_count
    files = max(1, round(shape.file_share * facts.data.file_count))
    found: list[str] = []
    rows, left = 0, list(groups)
    while len(found) < commits and left and not facts.spec(left[0].partition.spec_id).is_unpartitioned:
        taken = [left.pop()]
        count_taken = taken[0].file_count
        while left and count_taken + left[-1].file_count <= files:
            count_taken += left[-1].file_count
            taken.append(left.pop())
        predicate = where(facts.catalog, facts.specs_by_id, facts.columns, [g.partition for g in taken], of_rows=True)
        if predicate is None:
            break
        found.append(predicate)
        rows += sum(g.record_count for g in taken)
    if len(found) == commits:
        return found, rows / commits / max(total, 1)
    if is_copied:
        raise ParameterError("A copied sample has too few partitions to cluster changes in; give spread=scattered, or your own statement.")
    data_files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    listed = data_files.select("file_path", "record_count").orderBy("file_path").limit(files * commits).collect()
    if len(listed) < commits:
        raise ParameterError("The table has fewer data files than the trial has commits; give commits=1, or your own statement.")
    each = len(listed) // commits
    parts = [listed[i * each : (i + 1) * each] for i in range(commits)]
    predicates = [f"_file IN ({', '.join(literal(row.file_path) for row in part)})" for part in parts]
    return predicates, sum(row.record_count for part in parts for row in part) / commits / max(total, 1)
