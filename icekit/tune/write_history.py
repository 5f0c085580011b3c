"""Read a table's past row-level commits from its snapshots, and make statements like them to try.

A snapshot does not name the statement that made it, so the kind follows from what a commit added
and removed (keys of ``SnapshotSummary``), and from the row counters that Spark 4.1 adds for a
MERGE.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.commands import WriteModeOptions
from icekit.common.errors import ParameterError, require_known
from icekit.common.sql import Identifier, identifier, literal
from icekit.common.units import percent
from icekit.engine.metadata_tables import metadata_table
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.metadata import Json, summary_of

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

#: A statement for any table, named with its catalog.
ForTable = Callable[[Identifier], str]
COPY_ON_WRITE = "copy-on-write"
MERGE_ON_READ = "merge-on-read"
OPERATIONS = ("delete", "update", "merge")
#: Kinds of commits that change existing rows. An upsert writes equality deletes, which no write
# mode governs.
ROW_LEVEL = (*OPERATIONS, "upsert")
#: Choices: the share of rows that a commit changes where the history does not say; the share of
# files from which on a commit is scattered.
_DEFAULT_SHARE = 0.01
_SCATTERED_SHARE = 0.5
_MERGE = "spark.merge-into.num-target-rows-"
_DAY_MS = 86_400_000
_HASHED_COLUMNS = 8
_UNIT = 1_000_000


@frozen
class PastCommit:
    """One commit: ``kind`` is one of :data:`ROW_LEVEL`, or append, replace (a compaction), drop or
    overwrite.

    ``rows_changed`` is None if a copy-on-write commit does not say how many of the rows that it
    wrote were only copied; ``file_share`` is relative to the data files before the commit.
    """

    kind: str
    committed_at_ms: int
    rows_changed: int | None
    file_share: float | None

    @classmethod
    def of(cls, snapshot: Json) -> PastCommit:
        """Read one from a snapshot of the metadata file."""
        summary = summary_of(snapshot)

        def number(key: str) -> int:
            return int(summary.get(key) or 0)

        added, removed, added_rows, removed_rows = map(
            number, ("added-data-files", "deleted-data-files", "added-records", "deleted-records")
        )
        positions = number("added-position-deletes")
        equalities = number("added-equality-deletes")
        merged = [
            number(_MERGE + name)
            for name in ("deleted", "updated", "inserted")
            if _MERGE + name in summary
        ]
        kind = str(summary.get("operation") or "unknown")
        deletes = number("added-delete-files")
        rows: int | None = None
        touched = 0
        # A dynamic overwrite puts other rows in the place of whole partitions.
        if kind in ("append", "replace") or summary.get("replace-partitions") == "true":
            pass
        elif equalities:
            kind = "upsert"
            rows = max(equalities, added_rows)
        elif merged:
            kind = "merge"
            rows = sum(merged)
            touched = deletes if positions else removed
        elif positions:
            # An update writes each row that it deletes again; a MERGE of an older Spark may look
            # like one.
            kind = "update" if added else "delete"
            rows = max(positions, added_rows)
            touched = deletes
        elif removed and not added:
            kind = "drop"
        elif removed and added_rows <= removed_rows:
            rows = removed_rows - added_rows or None
            touched = removed
            kind = "delete" if rows else "update"
        before = number("total-data-files") - added + removed
        return cls(
            kind,
            int(snapshot["timestamp-ms"]),
            rows,
            min(touched, before) / before if touched and before > 0 else None,
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


@frozen
class Shape:
    """What a synthetic commit changes: this share of the rows, in this share of the files."""

    operation: str
    share: float
    file_share: float

    def __post_init__(self) -> None:
        require_known(self.operation, OPERATIONS, "operation")
        for name, value in (("share of rows", self.share), ("share of files", self.file_share)):
            if not 0 < value <= 1:
                raise ParameterError(
                    f"The {name} is {value}, but must be above 0 and at most 1, such as 0.01."
                )

    def __str__(self) -> str:
        stand_in = (
            " (an UPDATE replaces the MERGE: its join costs the same in each mode)"
            if self.operation == "merge"
            else ""
        )
        rows = percent(self.share)
        files = percent(self.file_share)
        return f"{self.operation.upper()} of {rows} of the rows in {files} of the files{stand_in}"


def shaped_like(
    facts: TableFacts, history: Sequence[PastCommit], options: WriteModeOptions
) -> Shape:
    """The shape of a table's row-level commits so far; what the options state is taken, what is
    unknown is the default.
    """
    share = options.share
    file_share = options.file_share
    row_level = [c for c in history if c.kind in ROW_LEVEL]
    kinds = Counter(c.kind for c in row_level if c.kind in OPERATIONS)
    kind = options.operation or (
        kinds.most_common(1)[0][0] if kinds else "update" if row_level else "merge"
    )
    same = [c for c in row_level if c.kind == kind] or row_level
    rows = _median(c.rows_changed for c in same)
    touched = _median(c.file_share for c in same)
    if not share:
        share = (
            min(max(rows / facts.data.record_count, 1e-6), 1.0)
            if rows and facts.data.record_count
            else _DEFAULT_SHARE
        )
    if not file_share:
        # A delete file per partition hides how many data files it reaches.
        is_known = touched is not None and share <= touched <= _SCATTERED_SHARE
        file_share = touched if touched and is_known else 1.0
    return Shape(kind, share, file_share)


def synthetic(lake: Lake, facts: TableFacts, shape: Shape, commits: int) -> list[ForTable]:
    """Statements of a shape, each for other rows of the table as it is now.

    A MERGE needs a key, which nobody has named, so an UPDATE stands in for it: it writes the same
    rows and files, without the join.
    """
    columns = [c for c in _tops(facts) if not c.type.startswith(("variant", "geo"))]
    if not columns:
        raise ParameterError(
            "The table has no column of a plain type to choose rows by; give your own statement."
        )
    hashed = ", ".join(identifier(c.name) for c in columns[:_HASHED_COLUMNS])
    parts = [("", facts.data.record_count)] * commits
    if shape.file_share < 1.0:
        parts = _clusters(lake, facts, shape, commits)
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
    # Set to itself: the row is rewritten, wherever it belongs.
    column = identifier(_tops(facts)[0].name)
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


def _clusters(lake: Lake, facts: TableFacts, shape: Shape, commits: int) -> list[tuple[str, int]]:
    """For each commit a predicate for where its rows are, and the rows there: partitions where
    there are enough, else files.
    """
    files = max(1, round(shape.file_share * facts.data.file_count))
    parts = _partitions(facts, files, commits)
    if len(parts) == commits:
        return parts
    data_files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    listed = (
        data_files.select("file_path", "record_count")
        .orderBy("file_path")
        .limit(min(files, 1_000) * commits)
        .collect()
    )
    # With fewer files than commits, several commits change the same one.
    chunks = [listed[number::commits] or listed[:1] for number in range(commits)]
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
