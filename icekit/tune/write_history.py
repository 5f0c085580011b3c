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

    ``changed_row_count`` is None if a copy-on-write commit does not say how many of the rows that
    it wrote were only copied; ``file_share`` is relative to the data files before the commit.
    """

    kind: str
    committed_at_ms: int
    changed_row_count: int | None
    file_share: float | None

    @classmethod
    def from_snapshot(cls, snapshot: Json) -> PastCommit:
        """Read one from a snapshot of the metadata file."""
        summary = summary_of(snapshot)

        def summary_number(key: str) -> int:
            return int(summary.get(key) or 0)

        added_file_count, removed_file_count, added_row_count, removed_row_count = map(
            summary_number,
            ("added-data-files", "deleted-data-files", "added-records", "deleted-records"),
        )
        position_delete_count = summary_number("added-position-deletes")
        equality_delete_count = summary_number("added-equality-deletes")
        merge_row_counts = [
            summary_number(_MERGE + counter_name)
            for counter_name in ("deleted", "updated", "inserted")
            if _MERGE + counter_name in summary
        ]
        commit_kind = str(summary.get("operation") or "unknown")
        added_delete_file_count = summary_number("added-delete-files")
        changed_row_count: int | None = None
        touched_file_count = 0
        # A dynamic overwrite puts other rows in the place of whole partitions.
        if commit_kind in ("append", "replace") or summary.get("replace-partitions") == "true":
            pass
        elif equality_delete_count:
            commit_kind = "upsert"
            changed_row_count = max(equality_delete_count, added_row_count)
        elif merge_row_counts:
            commit_kind = "merge"
            changed_row_count = sum(merge_row_counts)
            touched_file_count = (
                added_delete_file_count if position_delete_count else removed_file_count
            )
        elif position_delete_count:
            # An update writes each row that it deletes again; a MERGE of an older Spark may look
            # like one.
            commit_kind = "update" if added_file_count else "delete"
            changed_row_count = max(position_delete_count, added_row_count)
            touched_file_count = added_delete_file_count
        elif removed_file_count and not added_file_count:
            commit_kind = "drop"
        elif removed_file_count and added_row_count <= removed_row_count:
            changed_row_count = removed_row_count - added_row_count or None
            touched_file_count = removed_file_count
            commit_kind = "delete" if changed_row_count else "update"
        file_count_before = (
            summary_number("total-data-files") - added_file_count + removed_file_count
        )
        return cls(
            commit_kind,
            int(snapshot["timestamp-ms"]),
            changed_row_count,
            min(touched_file_count, file_count_before) / file_count_before
            if touched_file_count and file_count_before > 0
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
    history_ms = commit_times_ms[-1] - commit_times_ms[0] if commit_times_ms else 0
    return (
        sum(c.kind in ROW_LEVEL for c in history[1:]) / history_ms * _DAY_MS if history_ms else None
    )


def commits_between_compactions(history: Sequence[PastCommit]) -> float | None:
    """Row-level commits from one compaction to the next; None before there were two. Partial
    progress makes one compaction of several commits.
    """
    cycle_commit_counts: list[int] = []
    commits_since_compaction: int | None = None
    for commit in history:
        if commit.kind == "replace":
            cycle_commit_counts += [commits_since_compaction] if commits_since_compaction else []
            commits_since_compaction = 0
        elif commits_since_compaction is not None and commit.kind in ROW_LEVEL:
            commits_since_compaction += 1
    return statistics.fmean(cycle_commit_counts) if cycle_commit_counts else None


def _median(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


@frozen
class CommitShape:
    """What a synthetic commit changes: this share of the rows, in this share of the files."""

    operation: str
    row_share: float
    file_share: float

    def __post_init__(self) -> None:
        require_known(self.operation, OPERATIONS, "operation")
        for share_name, share in (
            ("share of rows", self.row_share),
            ("share of files", self.file_share),
        ):
            if not 0 < share <= 1:
                raise ParameterError(
                    f"The {share_name} is {share}, but must be above 0 and at most 1, such as 0.01."
                )

    def __str__(self) -> str:
        update_instead_note = (
            " (an UPDATE replaces the MERGE: its join costs the same in each mode)"
            if self.operation == "merge"
            else ""
        )
        row_percent_text = percent(self.row_share)
        file_percent_text = percent(self.file_share)
        return (
            f"{self.operation.upper()} of {row_percent_text} of the rows in {file_percent_text} "
            f"of the files{update_instead_note}"
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
    operation_counts = Counter(c.kind for c in row_level_commits if c.kind in OPERATIONS)
    operation = options.operation or (
        operation_counts.most_common(1)[0][0]
        if operation_counts
        else "update"
        if row_level_commits
        else "merge"
    )
    commits_of_operation = [
        c for c in row_level_commits if c.kind == operation
    ] or row_level_commits
    median_changed_row_count = _median(c.changed_row_count for c in commits_of_operation)
    median_file_share = _median(c.file_share for c in commits_of_operation)
    if not row_share:
        row_share = (
            min(max(median_changed_row_count / facts.data.record_count, 1e-6), 1.0)
            if median_changed_row_count and facts.data.record_count
            else _DEFAULT_SHARE
        )
    if not file_share:
        # A delete file per partition hides how many data files it reaches.
        is_median_plausible = (
            median_file_share is not None and row_share <= median_file_share <= _SCATTERED_SHARE
        )
        file_share = median_file_share if median_file_share and is_median_plausible else 1.0
    return CommitShape(operation, row_share, file_share)


def synthetic_statements(
    lake: Lake, facts: TableFacts, shape: CommitShape, commit_count: int
) -> list[SqlForTable]:
    """Statements of a shape, each for other rows of the table as it is now.

    A MERGE needs a key, which nobody has named, so an UPDATE stands in for it: it writes the same
    rows and files, without the join.
    """
    plain_columns = [
        c for c in _top_level_columns(facts) if not c.type.startswith(("variant", "geo"))
    ]
    if not plain_columns:
        raise ParameterError(
            "The table has no column of a plain type to choose rows by; give your own statement."
        )
    hashed_columns_sql = ", ".join(identifier(c.name) for c in plain_columns[:_HASHED_COLUMNS])
    predicates_and_row_counts = [("", facts.data.record_count)] * commit_count
    if shape.file_share < 1.0:
        predicates_and_row_counts = _clustered_predicates(lake, facts, shape, commit_count)
    reached_row_share = (
        sum(row_count for _, row_count in predicates_and_row_counts)
        / commit_count
        / max(facts.data.record_count, 1)
    )
    hash_limit = max(1, round(min(1.0, shape.row_share / max(reached_row_share, 1e-9)) * _UNIT))
    statements_for_tables = []
    for commit_number, (predicate, _) in enumerate(predicates_and_row_counts):
        # Other rows each time; and no BETWEEN, which Iceberg 1.12 cannot take of an expression in a
        # DELETE.
        row_condition = (
            f"pmod(xxhash64({hashed_columns_sql}, {commit_number}), {_UNIT}) < {hash_limit}"
        )
        full_condition = f"({predicate}) AND {row_condition}" if predicate else row_condition
        statements_for_tables.append(_sql_for_table(facts, shape.operation, full_condition))
    return statements_for_tables


def _sql_for_table(facts: TableFacts, operation: str, predicate: str) -> SqlForTable:
    if operation == "delete":
        return lambda table: f"DELETE FROM {identifier(*table)} WHERE {predicate}"
    # Set to itself: the row is rewritten, wherever it belongs.
    column_sql = identifier(_top_level_columns(facts)[0].name)
    return lambda table: (
        f"UPDATE {identifier(*table)} SET {column_sql} = {column_sql} WHERE {predicate}"
    )


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
    paths_and_row_counts = (
        data_files.select("file_path", "record_count")
        .orderBy("file_path")
        .limit(min(files_per_commit, 1_000) * commit_count)
        .collect()
    )
    # With fewer files than commits, several commits change the same one.
    files_by_commit = [
        paths_and_row_counts[commit_number::commit_count] or paths_and_row_counts[:1]
        for commit_number in range(commit_count)
    ]
    return [
        (
            f"_file IN ({', '.join(literal(path) for path, _ in commit_files)})",
            sum(n for _, n in commit_files),
        )
        for commit_files in files_by_commit
    ]


def _partition_predicates(
    facts: TableFacts, file_count: int, commit_count: int
) -> list[tuple[str, int]]:
    """Predicates for the last partitions with this many files together, and their rows."""
    predicates_and_row_counts: list[tuple[str, int]] = []
    remaining_partition_groups = sorted(
        facts.of_kind(Kind.DATA),
        key=lambda g: (g.partition.spec_id, [str(v) for v in g.partition.values]),
    )
    if any(facts.spec(g.partition.spec_id).is_unpartitioned for g in remaining_partition_groups):
        return []
    while remaining_partition_groups and len(predicates_and_row_counts) < commit_count:
        groups_of_commit = [remaining_partition_groups.pop()]
        while (
            remaining_partition_groups
            and sum(g.file_count for g in (*groups_of_commit, remaining_partition_groups[-1]))
            <= file_count
        ):
            groups_of_commit.append(remaining_partition_groups.pop())
        partitions = [g.partition for g in groups_of_commit]
        predicate = facts.where(partitions, is_for_query=True)
        if predicate is None:
            break
        predicates_and_row_counts.append((predicate, sum(g.record_count for g in groups_of_commit)))
    return predicates_and_row_counts
