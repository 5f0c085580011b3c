"""Read a table's past row-level commits from its snapshots, and make statements like them to try.

A snapshot does not name the statement that made it, so the kind follows from what a commit added
and removed (keys of ``SnapshotSummary``), and from the row counters that Spark 4.1 adds for a
MERGE.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import metadata_table
from icekit.errors import ParameterError, require_known
from icekit.facts.definition import Column
from icekit.facts.files import Kind
from icekit.facts.metadata import Json
from icekit.facts.model import TableFacts
from icekit.options.commands import WriteModeOptions
from icekit.sql import Identifier, identifier, literal
from icekit.units import percent

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: A statement for any table, named with its catalog.
ForTable = Callable[[Identifier], str]
COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
OPERATIONS = ("delete", "update", "merge")
#: Kinds of commits that change existing rows. An upsert writes equality deletes, which no write
# mode governs.
ROW_LEVEL = (*OPERATIONS, "upsert")
SCATTERED, CLUSTERED = "scattered", "clustered"
#: Choices: the share of rows that a commit changes where the history does not say; the share of
# files from which on a commit is scattered.
_DEFAULT_SHARE, _SCATTERED_SHARE = 0.01, 0.5
_MERGE = "spark.merge-into.num-target-rows-"
_DAY_MS = 86_400_000
_HASHED_COLUMNS, _UNIT = 8, 1_000_000


@dataclass(frozen=True, slots=True)
class PastCommit:
    """One commit: ``kind`` is one of :data:`ROW_LEVEL`, or append, replace (a compaction), drop or
    overwrite.

    ``rows_changed`` is None if a copy-on-write commit does not say how many of the rows that it
    wrote were only copied; ``file_share`` is relative to the data files before the commit.
    """

    kind: str
    mode: str | None
    committed_at_ms: int
    rows_changed: int | None
    file_share: float | None

    @classmethod
    def of(cls, snapshot: Json) -> PastCommit:
        """Read one from a snapshot of the metadata file."""
        summary = snapshot.get("summary") or {}

        def number(key: str) -> int:
            return int(summary.get(key) or 0)

        added, removed, added_rows, removed_rows = map(
            number, ("added-data-files", "deleted-data-files", "added-records", "deleted-records")
        )
        positions, equalities = number("added-position-deletes"), number("added-equality-deletes")
        merged = [
            number(_MERGE + name)
            for name in ("deleted", "updated", "inserted")
            if _MERGE + name in summary
        ]
        kind, mode, rows = str(summary.get("operation") or "unknown"), None, None
        # A dynamic overwrite puts other rows in the place of whole partitions.
        if kind in ("append", "replace") or summary.get("replace-partitions") == "true":
            pass
        elif equalities:
            kind, rows = "upsert", max(equalities, added_rows)
        elif merged:
            kind, mode, rows = "merge", MERGE_ON_READ if positions else COPY_ON_WRITE, sum(merged)
        elif positions:
            # An update writes each row that it deletes again; a MERGE of an older Spark may look
            # like one.
            kind = "update" if added else "delete"
            mode, rows = MERGE_ON_READ, max(positions, added_rows)
        elif removed and not added:
            kind = "drop"
        elif removed and added_rows <= removed_rows:
            mode, rows = COPY_ON_WRITE, removed_rows - added_rows or None
            kind = "delete" if rows else "update"
        before = number("total-data-files") - added + removed
        touched = removed if mode == COPY_ON_WRITE else min(number("added-delete-files"), before)
        return cls(
            kind,
            mode,
            int(snapshot["timestamp-ms"]),
            rows,
            touched / before if mode and before > 0 else None,
        )


def past_commits(snapshots: Iterable[Json]) -> list[PastCommit]:
    """The commits of one lineage, oldest first, from its snapshots in any order."""
    return sorted(map(PastCommit.of, snapshots), key=lambda commit: commit.committed_at_ms)


def writes_per_day(history: Sequence[PastCommit]) -> float | None:
    """Row-level commits a day; None with fewer than two snapshots. The first commit starts the
    clock.
    """
    times = [commit.committed_at_ms for commit in history]
    span = times[-1] - times[0] if times else 0
    return sum(c.kind in ROW_LEVEL for c in history[1:]) / span * _DAY_MS if span else None


def commits_between_compactions(history: Sequence[PastCommit]) -> float | None:
    """Row-level commits from one compaction to the next; None before there were two. Partial
    progress makes one compaction of several commits.
    """
    counts: list[int] = []
    since: int | None = None
    for commit in history:
        if commit.kind == "replace":
            counts += [since] if since else []
            since = 0
        elif since is not None and commit.kind in ROW_LEVEL:
            since += 1
    return statistics.fmean(counts) if counts else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Shape:
    """What a synthetic commit changes: this share of the rows, in all files or in this share of
    them.
    """

    operation: str
    share: float
    spread: str
    file_share: float

    def __post_init__(self) -> None:
        require_known(self.operation, OPERATIONS, "operation")
        require_known(self.spread, (SCATTERED, CLUSTERED), "spread")
        for name, value in (("share of rows", self.share), ("share of files", self.file_share)):
            if not 0 < value <= 1:
                raise ParameterError(
                    f"The {name} is {value}, but must be above 0 and at most 1, such as 0.01."
                )

    def __str__(self) -> str:
        files = (
            "all files" if self.spread == SCATTERED else f"{percent(self.file_share)} of the files"
        )
        stand_in = (
            " (an UPDATE replaces the MERGE: its join costs the same in each mode)"
            if self.operation == "merge"
            else ""
        )
        return f"{self.operation.upper()} of {percent(self.share)} of the rows in {files}{stand_in}"


def shaped_like(
    facts: TableFacts, history: Sequence[PastCommit], options: WriteModeOptions
) -> Shape:
    """The shape of a table's row-level commits so far; what the options state is taken, what is
    unknown is the default.
    """
    share, file_share = options.share, options.file_share
    row_level = [c for c in history if c.kind in ROW_LEVEL]
    kinds = Counter(c.kind for c in row_level if c.kind in OPERATIONS)
    kind = options.operation or (
        kinds.most_common(1)[0][0] if kinds else "update" if row_level else "merge"
    )
    same = [c for c in row_level if c.kind == kind] or row_level
    rows, touched = _median(c.rows_changed for c in same), _median(c.file_share for c in same)
    if not share:
        share = (
            min(max(rows / facts.data.record_count, 1e-6), 1.0)
            if rows and facts.data.record_count
            else _DEFAULT_SHARE
        )
    if not file_share:
        # A delete file per partition hides how many data files it reaches.
        is_hidden = (
            touched is not None and touched < share and any(c.mode == MERGE_ON_READ for c in same)
        )
        file_share = touched if touched and not is_hidden else 1.0
    spread = options.spread or (SCATTERED if file_share > _SCATTERED_SHARE else CLUSTERED)
    if spread == CLUSTERED and file_share == 1.0:
        file_share = min(1.0, max(share * 2, 1 / max(facts.data.file_count, 1)))
    return Shape(kind, share, spread, file_share if spread == CLUSTERED else 1.0)


def synthetic(
    lake: Lake, facts: TableFacts, shape: Shape, commits: int, *, is_copied: bool = False
) -> list[ForTable]:
    """Statements of a shape, each for other rows of the table as it is now.

    A MERGE needs a key, which nobody has named, so an UPDATE stands in for it: it writes the same
    rows and files, without the join. ``is_copied`` says that each sandbox has files of its own.
    """
    columns = [c for c in _tops(facts) if not c.type.startswith(("variant", "geo"))]
    if not columns:
        raise ParameterError(
            "The table has no column of a plain type to choose rows by; give your own statement."
        )
    hashed = ", ".join(identifier(c.name) for c in columns[:_HASHED_COLUMNS])
    parts = [("", facts.data.record_count)] * commits
    if shape.spread == CLUSTERED:
        parts = _clusters(lake, facts, shape, commits, is_copied=is_copied)
    reached = sum(rows for _, rows in parts) / commits / max(facts.data.record_count, 1)
    limit = max(1, round(min(1.0, shape.share / max(reached, 1e-9)) * _UNIT))
    statements = []
    for number, (predicate, _) in enumerate(parts):
        # Other rows each time; and no BETWEEN, which Iceberg 1.12 cannot take of an expression in a
        # DELETE.
        chosen = f"pmod(xxhash64({hashed}, {number}), {_UNIT}) < {limit}"
        condition = f"({predicate}) AND {chosen}" if predicate else chosen
        statements.append(_statement(facts, shape.operation, condition))
    return statements


def _statement(facts: TableFacts, operation: str, predicate: str) -> ForTable:
    if operation == "delete":
        return lambda table: f"DELETE FROM {identifier(*table)} WHERE {predicate}"
    sources = {f.source for spec in facts.specs for f in spec.fields}
    sources |= {f.source for f in facts.sort_order}
    tops = [c.name for c in _tops(facts)]
    # Set to itself: the row is rewritten, wherever it belongs.
    column = identifier(next((name for name in tops if name not in sources), tops[0]))
    return lambda table: f"UPDATE {identifier(*table)} SET {column} = {column} WHERE {predicate}"


def _tops(facts: TableFacts) -> list[Column]:
    """The columns of a plain type; what lists and maps hold is named after them, and cannot be
    asked for by that name.
    """
    return [
        c
        for c in facts.columns
        if len(c.names) == 1 and not c.name.endswith((".element", ".key", ".value"))
    ]


def _clusters(
    lake: Lake, facts: TableFacts, shape: Shape, commits: int, *, is_copied: bool
) -> list[tuple[str, int]]:
    """For each commit a predicate for where its rows are, and the rows there: partitions where
    there are enough, else files.
    """
    files = max(1, round(shape.file_share * facts.data.file_count))
    parts = _partitions(facts, files, commits)
    if len(parts) == commits:
        return parts
    if is_copied:
        raise ParameterError(
            "A copied sample has too few partitions to cluster changes in; give spread=scattered, "
            "or your own statement."
        )
    data_files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    listed = (
        data_files.select("file_path", "record_count")
        .orderBy("file_path")
        .limit(min(files, 1_000) * commits)
        .collect()
    )
    if len(listed) < commits:
        raise ParameterError(
            "The table has fewer data files than the trial has commits; give commits=1, or your "
            "own statement."
        )
    each = len(listed) // commits
    chunks = [listed[i * each : (i + 1) * each] for i in range(commits)]
    return [
        (f"_file IN ({', '.join(literal(path) for path, _ in chunk)})", sum(n for _, n in chunk))
        for chunk in chunks
    ]


def _partitions(facts: TableFacts, files: int, commits: int) -> list[tuple[str, int]]:
    """Predicates for the last partitions with this many files together, and their rows."""
    parts: list[tuple[str, int]] = []
    left = sorted(
        facts.of_kind(Kind.DATA),
        key=lambda g: (g.partition.spec_id, [str(v) for v in g.partition.values]),
    )
    if any(facts.spec(g.partition.spec_id).is_unpartitioned for g in left):
        return []
    while left and len(parts) < commits:
        taken = [left.pop()]
        while left and sum(g.file_count for g in (*taken, left[-1])) <= files:
            taken.append(left.pop())
        partitions = [g.partition for g in taken]
        predicate = facts.where(partitions, of_rows=True)
        if predicate is None:
            break
        parts.append((predicate, sum(g.record_count for g in taken)))
    return parts
