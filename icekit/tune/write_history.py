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
from icekit.common.commands.tune import WriteModeOptions
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
SqlForTable = Callable[[Identifier], str]
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
    def from_snapshot(cls, snapshot: Json) -> PastCommit:
        """Read one from a snapshot of the metadata file."""
        summary = summary_of(snapshot)

        def summary_number(key: str) -> int:
            return int(summary.get(key) or 0)

        added_files, removed_files, added_rows, removed_rows = map(
            summary_number,
            ("added-data-files", "deleted-data-files", "added-records", "deleted-records"),
        )
        position_deletes = summary_number("added-position-deletes")
        equality_deletes = summary_number("added-equality-deletes")
        merge_row_counts = [
            summary_number(_MERGE + name)
            for name in ("deleted", "updated", "inserted")
            if _MERGE + name in summary
        ]
        kind = str(summary.get("operation") or "unknown")
        delete_files = summary_number("added-delete-files")
        rows_changed: int | None = None
        touched_files = 0
        # A dynamic overwrite puts other rows in the place of whole partitions.
        if kind in ("append", "replace") or summary.get("replace-partitions") == "true":
            pass
        elif equality_deletes:
            kind = "upsert"
            rows_changed = max(equality_deletes, added_rows)
        elif merge_row_counts:
            kind = "merge"
            rows_changed = sum(merge_row_counts)
            touched_files = delete_files if position_deletes else removed_files
        elif position_deletes:
            # An update writes each row that it deletes again; a MERGE of an older Spark may look
            # like one.
            kind = "update" if added_files else "delete"
            rows_changed = max(position_deletes, added_rows)
            touched_files = delete_files
        elif removed_files and not added_files:
            kind = "drop"
        elif removed_files and added_rows <= removed_rows:
            rows_changed = removed_rows - added_rows or None
            touched_files = removed_files
            kind = "delete" if rows_changed else "update"
        files_before = summary_number("total-data-files") - added_files + removed_files
        return cls(
            kind,
            int(snapshot["timestamp-ms"]),
            rows_changed,
            min(touched_files, files_before) / files_before
            if touched_files and files_before > 0
            else None,
        )


def past_commits(snapshots: Iterable[Json]) -> list[PastCommit]:
    """The commits of one lineage, oldest first, from its snapshots in any order."""
    return sorted(
        map(PastCommit.from_snapshot, snapshots), key=lambda commit: commit.committed_at_ms
    )


def writes_per_day(history: Sequence[PastCommit]) -> float | None:
    """Row-level commits a day; None with fewer than two snapshots. The first commit starts the
    clock.
    """
    commit_times_ms = [commit.committed_at_ms for commit in history]
    span_ms = commit_times_ms[-1] - commit_times_ms[0] if commit_times_ms else 0
    return sum(c.kind in ROW_LEVEL for c in history[1:]) / span_ms * _DAY_MS if span_ms else None


def commits_between_compactions(history: Sequence[PastCommit]) -> float | None:
    """Row-level commits from one compaction to the next; None before there were two. Partial
    progress makes one compaction of several commits.
    """
    commit_counts: list[int] = []
    commits_since_compaction: int | None = None
    for commit in history:
        if commit.kind == "replace":
            commit_counts += [commits_since_compaction] if commits_since_compaction else []
            commits_since_compaction = 0
        elif commits_since_compaction is not None and commit.kind in ROW_LEVEL:
            commits_since_compaction += 1
    return statistics.fmean(commit_counts) if commit_counts else None


def _median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


@frozen
class CommitShape:
    """What a synthetic commit changes: this share of the rows, in this share of the files."""

    operation: str
    row_share: float
    file_share: float

    def __post_init__(self) -> None:
        require_known(self.operation, OPERATIONS, "operation")
        for name, value in (("share of rows", self.row_share), ("share of files", self.file_share)):
            if not 0 < value <= 1:
                raise ParameterError(
                    f"The {name} is {value}, but must be above 0 and at most 1, such as 0.01."
                )

    def __str__(self) -> str:
        stand_in_note = (
            " (an UPDATE replaces the MERGE: its join costs the same in each mode)"
            if self.operation == "merge"
            else ""
        )
        row_percent = percent(self.row_share)
        file_percent = percent(self.file_share)
        return (
            f"{self.operation.upper()} of {row_percent} of the rows in {file_percent} of the "
            f"files{stand_in_note}"
        )


def shape_of_history(
    facts: TableFacts, history: Sequence[PastCommit], options: WriteModeOptions
) -> CommitShape:
    """The shape of a table's row-level commits so far; what the options state is taken, what is
    unknown is the default.
    """
    row_share = options.share
    file_share = options.file_share
    row_level_commits = [c for c in history if c.kind in ROW_LEVEL]
    kind_counts = Counter(c.kind for c in row_level_commits if c.kind in OPERATIONS)
    kind = options.operation or (
        kind_counts.most_common(1)[0][0]
        if kind_counts
        else "update"
        if row_level_commits
        else "merge"
    )
    same_kind_commits = [c for c in row_level_commits if c.kind == kind] or row_level_commits
    median_rows_changed = _median(c.rows_changed for c in same_kind_commits)
    median_file_share = _median(c.file_share for c in same_kind_commits)
    if not row_share:
        row_share = (
            min(max(median_rows_changed / facts.data.record_count, 1e-6), 1.0)
            if median_rows_changed and facts.data.record_count
            else _DEFAULT_SHARE
        )
    if not file_share:
        # A delete file per partition hides how many data files it reaches.
        is_plausible = (
            median_file_share is not None and row_share <= median_file_share <= _SCATTERED_SHARE
        )
        file_share = median_file_share if median_file_share and is_plausible else 1.0
    return CommitShape(kind, row_share, file_share)


def synthetic_statements(
    lake: Lake, facts: TableFacts, shape: CommitShape, commit_count: int
) -> list[SqlForTable]:
    """Statements of a shape, each for other rows of the table as it is now.

    A MERGE needs a key, which nobody has named, so an UPDATE stands in for it: it writes the same
    rows and files, without the join.
    """
    columns = [c for c in _top_level_columns(facts) if not c.type.startswith(("variant", "geo"))]
    if not columns:
        raise ParameterError(
            "The table has no column of a plain type to choose rows by; give your own statement."
        )
    hashed_columns_sql = ", ".join(identifier(c.name) for c in columns[:_HASHED_COLUMNS])
    predicates_with_rows = [("", facts.data.record_count)] * commit_count
    if shape.file_share < 1.0:
        predicates_with_rows = _clustered_predicates(lake, facts, shape, commit_count)
    reached_share = (
        sum(rows for _, rows in predicates_with_rows)
        / commit_count
        / max(facts.data.record_count, 1)
    )
    hash_limit = max(1, round(min(1.0, shape.row_share / max(reached_share, 1e-9)) * _UNIT))
    statements = []
    for commit_number, (predicate, _) in enumerate(predicates_with_rows):
        # Other rows each time; and no BETWEEN, which Iceberg 1.12 cannot take of an expression in a
        # DELETE.
        row_condition = (
            f"pmod(xxhash64({hashed_columns_sql}, {commit_number}), {_UNIT}) < {hash_limit}"
        )
        condition = f"({predicate}) AND {row_condition}" if predicate else row_condition
        statements.append(_statement_for_tables(facts, shape.operation, condition))
    return statements


def _statement_for_tables(facts: TableFacts, operation: str, predicate: str) -> SqlForTable:
    if operation == "delete":
        return lambda table: f"DELETE FROM {identifier(*table)} WHERE {predicate}"
    # Set to itself: the row is rewritten, wherever it belongs.
    column = identifier(_top_level_columns(facts)[0].name)
    return lambda table: f"UPDATE {identifier(*table)} SET {column} = {column} WHERE {predicate}"


def _top_level_columns(facts: TableFacts) -> list[Column]:
    """The columns of a plain type; what lists and maps hold is named after them, and cannot be
    asked for by that name.
    """
    return [
        c
        for c in facts.columns
        if len(c.names) == 1 and not c.name.endswith((".element", ".key", ".value"))
    ]


def _clustered_predicates(
    lake: Lake, facts: TableFacts, shape: CommitShape, commit_count: int
) -> list[tuple[str, int]]:
    """For each commit a predicate for where its rows are, and the rows there: partitions where
    there are enough, else files.
    """
    files_per_commit = max(1, round(shape.file_share * facts.data.file_count))
    partition_predicates = _partition_predicates(facts, files_per_commit, commit_count)
    if len(partition_predicates) == commit_count:
        return partition_predicates
    data_files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    file_rows = (
        data_files.select("file_path", "record_count")
        .orderBy("file_path")
        .limit(min(files_per_commit, 1_000) * commit_count)
        .collect()
    )
    # With fewer files than commits, several commits change the same one.
    chunks = [
        file_rows[commit_number::commit_count] or file_rows[:1]
        for commit_number in range(commit_count)
    ]
    return [
        (f"_file IN ({', '.join(literal(path) for path, _ in chunk)})", sum(n for _, n in chunk))
        for chunk in chunks
    ]


def _partition_predicates(
    facts: TableFacts, file_count: int, commit_count: int
) -> list[tuple[str, int]]:
    """Predicates for the last partitions with this many files together, and their rows."""
    predicates_with_rows: list[tuple[str, int]] = []
    remaining_groups = sorted(
        facts.of_kind(Kind.DATA),
        key=lambda g: (g.partition.spec_id, [str(v) for v in g.partition.values]),
    )
    if any(facts.spec(g.partition.spec_id).is_unpartitioned for g in remaining_groups):
        return []
    while remaining_groups and len(predicates_with_rows) < commit_count:
        commit_groups = [remaining_groups.pop()]
        while (
            remaining_groups
            and sum(g.file_count for g in (*commit_groups, remaining_groups[-1])) <= file_count
        ):
            commit_groups.append(remaining_groups.pop())
        partitions = [g.partition for g in commit_groups]
        predicate = facts.where(partitions, is_for_query=True)
        if predicate is None:
            break
        predicates_with_rows.append((predicate, sum(g.record_count for g in commit_groups)))
    return predicates_with_rows
