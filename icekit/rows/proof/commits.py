"""Prove from the commits of a run that no row changed: by what was checked before them, or by
comparing rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.errors import MetadataUnreadable, ReadersDisagree
from icekit.common.sql import Identifier, call_sql, display_name, identifier
from icekit.common.units import count
from icekit.engine.bridge import iceberg_version, temporary_settings
from icekit.engine.cluster import CACHE_KEYS
from icekit.engine.compat import historical_filter
from icekit.engine.errors import explain, explain_errors
from icekit.health.facts.head import head
from icekit.iceberg import metadata
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.dropped_fields import fields_blocking_files_table_of
from icekit.iceberg.metadata import Json
from icekit.iceberg.partition import Scalar
from icekit.iceberg.values import partition_path
from icekit.iceberg.where import field_expression, where
from icekit.rows.deletes.dangling import removed_delete_counts
from icekit.rows.deletes.ruled_out import ruled_out_as_disagreement
from icekit.rows.proof.changes import Changes, changes
from icekit.rows.proof.checked import (
    CHECKED_POSITIONS_TAG,
    CHECKED_TAG,
    COMPARED_POSITIONS_TAG,
    CheckedPositions,
    CheckedRows,
)
from icekit.rows.proof.fingerprint import (
    LINEAGE,
    Fingerprint,
    fingerprint,
    reading_settings,
    shared_columns,
)
from icekit.rows.proof.proof import CHECKED, SCANNED, CommitProof, Mismatch, Proof
from icekit.rows.proof.readers import Reader, with_resolved_snapshots

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from icekit.engine.lake import Lake


#: A commit that changed more partitions is compared over the complete table: Spark would take
# longer to plan a : longer predicate than to read the rows.
MAX_PARTITIONS = 1000
_AT_ONCE = 4


def prove_commits(lake: Lake, table: Identifier, snapshot_ids: Sequence[int]) -> Proof:
    """Compare the rows before and after each commit, deletes applied; ``table`` is without its
    catalog.

    Each commit is compared with its own parent, so other commits in between do not
    matter. Rows are compared in the partitions where the commit added or removed a data or
    delete file, of any spec; in the complete table if those are more than
    :data:`MAX_PARTITIONS`, cannot be selected by a predicate, or do not account for all its files.

    A snapshot whose equality deletes easily fit the heap is read with Iceberg's own sets of
    deletes: the strongest evidence. If they do not, it is read from a clone without them, and rows
    whose key has a younger delete are dropped by a plain anti-join of the table's own rows; this
    shares only the list of files and the reading of delete files with a conversion. Where no clone
    can be made (it needs the right to create a table), it is read in the first way.

    A commit is not provable if it, its parent or their files are gone; that is
    never reported as fine. Raises the errors of :mod:`icekit.common.errors`.
    """
    start_seconds = time.monotonic()
    reader = Reader(lake, table, head(lake, table))
    schemas = metadata.schemas_of(reader.head.metadata)
    with explain_errors(reader.sql_name):
        # The session may cache an older version of the table without these snapshots.
        lake.spark.sql(f"REFRESH TABLE {identifier(*reader.sql_name)}")
    with (
        # A cache of deletes may hide some (apache/iceberg 15039).
        temporary_settings(lake.spark, {CACHE_KEYS[1]: "false", **reading_settings(*schemas)}),
        with_resolved_snapshots(reader, snapshot_ids) as reader,
        # Most of a small commit's proof is planning in the driver, so several run at once.
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        proofs = tuple(pool.map(lambda i: _commit_proof(reader, i), snapshot_ids))
    return Proof(display_name(table), proofs, time.monotonic() - start_seconds)


@frozen
class _Side:
    """A snapshot to read: its columns, and the rows to compare, in its own names."""

    snapshot_id: int
    schema: StructType
    predicate_sql: str | None


def _commit_proof(reader: Reader, snapshot_id: int) -> CommitProof:
    commit = reader.snapshots.get(snapshot_id) or {}
    parent_id = commit.get("parent-snapshot-id")
    parent = reader.snapshots.get(parent_id)
    if not commit:
        unprovable_reason = "the commit has expired, or never belonged to this table"
    elif parent_id is None:
        unprovable_reason = "it has no parent to compare with"
    elif parent is None:
        unprovable_reason = f"its parent {parent_id} has expired"
    elif snapshot_id in reader.unreadable_reasons or parent_id in reader.unreadable_reasons:
        unprovable_reason = (
            reader.unreadable_reasons.get(parent_id) or reader.unreadable_reasons[snapshot_id]
        )
    else:
        try:
            with ruled_out_as_disagreement():
                return _compared_proof(reader, parent, commit)
        except Exception as error:
            explained_error = explain(error, reader.sql_name)
            if not isinstance(explained_error, (MetadataUnreadable, ReadersDisagree)):
                raise explained_error from error
            unprovable_reason = str(explained_error)
    return CommitProof(snapshot_id, unprovable_reason)


def _compared_proof(reader: Reader, parent: Json, commit: Json) -> CommitProof:
    parent_id = parent["snapshot-id"]
    snapshot_id = commit["snapshot-id"]
    commit_changes = None
    if not fields_blocking_files_table_of(reader.head.metadata):
        commit_changes = changes(
            reader.lake.spark, reader.sql_name, parent_id, snapshot_id, reader.specs
        )
    schemas = [
        metadata.schema_of(reader.head.metadata, snapshot.get("schema-id"))
        for snapshot in (parent, commit)
    ]
    before_columns, after_columns, columns_left_out = shared_columns(reader.lake.spark, *schemas)
    predicates_sql, whole_table_reason = _predicates_sql(reader, commit_changes, schemas)
    sides = [
        _Side(
            side_snapshot["snapshot-id"],
            side_schema,
            _readable_predicate(reader, side_snapshot, predicate_sql),
        )
        for side_snapshot, side_schema, predicate_sql in zip(
            (parent, commit), (before_columns, after_columns), predicates_sql, strict=True
        )
    ]
    has_lineage = _has_lineage(parent, commit, schemas)
    prints_before, prints_after = _read_sides(reader, sides, has_lineage=has_lineage)
    current_columns = metadata.columns(reader.head.metadata, schemas[1])
    if (
        commit_changes is not None
        and not whole_table_reason
        and (
            (prints_before != prints_after and commit_changes.may_hold_other_values)
            or not commit_changes.holds_rows(current_columns)
        )
    ):
        whole_table_reason = "rows may be in other partitions than their values say"
        sides = [replace(side, predicate_sql=None) for side in sides]
        prints_before, prints_after = _read_sides(reader, sides, has_lineage=has_lineage)
    mismatches: list[Mismatch] = []
    if prints_before != prints_after:
        # Only now, because the driver gets a row for each partition.
        group_fields, group_columns_sql = _group_columns(reader, schemas)
        grouped_prints = _read_sides(reader, sides, group_columns_sql, has_lineage=has_lineage)
        mismatches = _mismatches(grouped_prints[0], grouped_prints[1], group_fields) or [
            Mismatch("whole table", prints_before[()], prints_after[()])
        ]
    rollback_sql = call_sql(
        reader.lake.name,
        "rollback_to_snapshot",
        table=display_name(reader.table),
        snapshot_id=parent_id,
    )
    return CommitProof(
        snapshot_id,
        whole_table_reason,
        partitions=len(commit_changes.partitions) if commit_changes is not None else 0,
        before=prints_before[()],
        after=prints_after[()],
        rows_read=prints_before[()].row_count + prints_after[()].row_count,
        mismatches=tuple(sorted(mismatches, key=lambda mismatch: mismatch.partition_path)),
        columns_left_out=columns_left_out,
        rollback_sql=rollback_sql if mismatches else None,
    )


_Prints = Mapping[tuple[Scalar, ...], Fingerprint]


def _mismatches(
    prints_before: _Prints, prints_after: _Prints, group_fields: Sequence[PartitionField]
) -> list[Mismatch]:
    """The partitions that differ."""
    group_spec = PartitionSpec(-1, tuple(group_fields))
    no_rows = Fingerprint()
    return [
        Mismatch(
            partition_path(group_spec, partition_key) or "whole table",
            prints_before.get(partition_key, no_rows),
            prints_after.get(partition_key, no_rows),
        )
        for partition_key in {*prints_before, *prints_after}
        if prints_before.get(partition_key, no_rows) != prints_after.get(partition_key, no_rows)
    ]


def _read_sides(
    reader: Reader,
    sides: Sequence[_Side],
    group_columns_sql: Sequence[Sequence[str]] = ((), ()),
    *,
    has_lineage: bool,
) -> Sequence[_Prints]:
    """Read the parent and the commit at the same time, each by its keys."""

    def read(side: _Side, group_sql: Sequence[str]) -> _Prints:
        return fingerprint(
            reader.lake.spark,
            reader.sql_name,
            snapshot_id=side.snapshot_id,
            where=side.predicate_sql,
            by=group_sql,
            schema=side.schema,
            resolved_snapshot=reader.resolved_by_id.get(side.snapshot_id),
            lineage=has_lineage,
        )

    with ThreadPoolExecutor(len(sides)) as pool:
        return list(pool.map(read, sides, group_columns_sql))


def _has_lineage(parent: Json, commit: Json, schemas: Sequence[Json]) -> bool:
    """Whether every row of both sides has an id: an upgraded table gets row ids with its next
    commit.
    """
    column_names = {field["name"].lower() for schema in schemas for field in schema["fields"]}
    return all(
        snapshot.get("first-row-id") is not None for snapshot in (parent, commit)
    ) and column_names.isdisjoint(LINEAGE)


def _predicates_sql(
    reader: Reader, commit_changes: Changes | None, schemas: Sequence[Json]
) -> tuple[Sequence[str | None], str]:
    """The rows to compare at the parent and at the commit; and, if all rows are compared, why.
    ``commit_changes`` is None where it cannot be read.
    """
    if commit_changes is None:
        why = "Iceberg cannot read which files changed: a partition column was dropped"
        return (None, None), why
    partitions = commit_changes.partitions
    if not commit_changes.is_complete:
        return (None, None), "its files are not those of its parent plus its own changes"
    if len(partitions) > MAX_PARTITIONS:
        return (None, None), f"it changed more than {MAX_PARTITIONS:,} partitions"
    catalog_name = reader.lake.name
    predicates_sql = [
        where(
            catalog_name,
            reader.specs,
            metadata.columns(reader.head.metadata, schema),
            partitions,
            is_for_query=True,
        )
        for schema in schemas
    ]
    if None not in predicates_sql:
        return predicates_sql, ""
    has_unpartitioned = any(
        reader.specs[partition.spec_id].is_unpartitioned for partition in partitions
    )
    return (
        (None, None),
        "it changed unpartitioned files"
        if has_unpartitioned
        else "no predicate selects the partitions it changed",
    )


def _readable_predicate(reader: Reader, snapshot: Json, predicate_sql: str | None) -> str | None:
    """A predicate in a snapshot's own names, as this Iceberg can read it."""
    if predicate_sql is None or snapshot.get("schema-id") == reader.head.metadata.get(
        "current-schema-id"
    ):
        return predicate_sql
    return historical_filter(predicate_sql, iceberg_version(reader.lake.spark, reader.lake.name))


def _group_columns(
    reader: Reader, schemas: Sequence[Json]
) -> tuple[list[PartitionField], list[tuple[str, ...]]]:
    """The fields of the current spec that rows of both sides can be grouped by, and the SQL for
    each side.
    """
    default_spec = reader.specs.get(
        reader.head.metadata.get("default-spec-id", 0), PartitionSpec(0, ())
    )
    columns_of_sides = [metadata.columns(reader.head.metadata, schema) for schema in schemas]
    fields_with_sql = [
        (
            field,
            [
                field_expression(reader.lake.name, field, side_columns)
                for side_columns in columns_of_sides
            ],
        )
        for field in default_spec.fields
    ]
    shared_fields = [
        (field, sides_sql) for field, sides_sql in fields_with_sql if None not in sides_sql
    ]
    sql_before = tuple(str(sides_sql[0]) for _, sides_sql in shared_fields)
    sql_after = tuple(str(sides_sql[1]) for _, sides_sql in shared_fields)
    return [field for field, _ in shared_fields], [sql_before, sql_after]


def prove_rewrites(lake: Lake, table: Identifier, commits_by_id: Mapping[int, Json]) -> Proof:
    """The proof of commits of rewrites and conversions: those checked before they were made say
    what was checked, and the rest are compared in full.

    A commit that only dropped delete files is proved by the scan of the snapshot before it, which
    gives none of them to a data file. ``commits_by_id`` are by id, as the table had them right
    after each: they may have expired since.
    """
    start_seconds = time.monotonic()
    proofs_by_id: dict[int, CommitProof] = {}
    for snapshot_id, commit in commits_by_id.items():
        if proof := _proof_from_summary(snapshot_id, commit) or _proof_of_dropped_deletes(
            lake, table, commit
        ):
            proofs_by_id[snapshot_id] = proof
    unproved_ids = [snapshot_id for snapshot_id in commits_by_id if snapshot_id not in proofs_by_id]
    if unproved_ids:
        full_proof = prove_commits(lake, table, unproved_ids)
        proofs_by_id |= {proof.snapshot_id: proof for proof in full_proof.commits}
    ordered_proofs = tuple(proofs_by_id[snapshot_id] for snapshot_id in commits_by_id)
    return Proof(display_name(table), ordered_proofs, time.monotonic() - start_seconds)


def _proof_from_summary(snapshot_id: int, commit: Json) -> CommitProof | None:
    """The proof of a commit that was checked before it was made, by its own summary; None without
    such a check, or if the commit is not what was checked.
    """
    summary = metadata.summary_of(commit)
    empty_proof = CommitProof(snapshot_id, mode=CHECKED)
    if CHECKED_TAG in summary:
        checked_rows = CheckedRows.of(summary[CHECKED_TAG])
        if int(summary.get("added-records") or 0) != checked_rows.rows:
            return None
        unseen_keys = checked_rows.unseen_keys if checked_rows.is_sampled else 0
        return replace(
            empty_proof,
            statement=str(checked_rows),
            rows_read=checked_rows.read,
            unseen_keys=unseen_keys,
        )
    if _DATA_CHANGES.intersection(summary):
        return None
    if COMPARED_POSITIONS_TAG in summary:
        files_text = count(int(summary.get("added-delete-files") or 0), "new delete file")
        statement = (
            f"{files_text}: of each data file, the rows that are deleted by position were read "
            "before the commit, from the old and from the new delete files: the same"
        )
        return replace(empty_proof, statement=statement)
    if CHECKED_POSITIONS_TAG not in summary:
        return None
    checked_positions = CheckedPositions.of(summary[CHECKED_POSITIONS_TAG])
    if int(summary.get("added-position-deletes") or 0) != checked_positions.positions:
        return None
    return replace(
        empty_proof,
        statement=str(checked_positions),
        rows_read=checked_positions.sampled + 2 * checked_positions.of_files,
        unseen_keys=checked_positions.unseen_keys if checked_positions.is_sampled else 0,
    )


def _proof_of_dropped_deletes(lake: Lake, table: Identifier, commit: Json) -> CommitProof | None:
    """The proof of a commit that only dropped delete files, none of which applied before it; None
    if it did something else, or where that cannot be asked.
    """
    summary = metadata.summary_of(commit)
    parent_id = commit.get("parent-snapshot-id")
    if "removed-delete-files" not in summary or _CHANGES.intersection(summary) or parent_id is None:
        return None
    try:
        dropped_count, needed_count = removed_delete_counts(
            lake.spark, lake.sql_name(table), parent_id, commit["snapshot-id"]
        )
    except Exception:
        # An expired parent, or a file that is gone: the full comparison says so.
        return None
    if needed_count or not dropped_count:
        return None
    statement = (
        f"dropped {count(dropped_count, 'delete file')}; a scan of the table before it gives none "
        "of them to a data file"
    )
    return CommitProof(commit["snapshot-id"], statement=statement, mode=SCANNED)


# Keys of a summary that a commit without them did not do.
_DATA_CHANGES = {"added-data-files", "deleted-data-files"}
_CHANGES = _DATA_CHANGES | {
    "added-delete-files",
    CHECKED_TAG,
    CHECKED_POSITIONS_TAG,
    COMPARED_POSITIONS_TAG,
}
