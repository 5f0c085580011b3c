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
    shared,
)
from icekit.rows.proof.proof import CHECKED, SCANNED, CommitProof, Mismatch, Proof
from icekit.rows.proof.readers import Reader, resolving

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
    started = time.monotonic()
    reader = Reader(lake, table, head(lake, table))
    schemas = metadata.schemas_of(reader.head.metadata)
    with explain_errors(reader.name):
        # The session may cache an older version of the table without these snapshots.
        lake.spark.sql(f"REFRESH TABLE {identifier(*reader.name)}")
    with (
        # A cache of deletes may hide some (apache/iceberg 15039).
        temporary_settings(lake.spark, {CACHE_KEYS[1]: "false", **reading_settings(*schemas)}),
        resolving(reader, snapshot_ids) as reader,
        # Most of a small commit's proof is planning in the driver, so several run at once.
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        proofs = tuple(pool.map(lambda i: _prove(reader, i), snapshot_ids))
    return Proof(display_name(table), proofs, time.monotonic() - started)


@frozen
class _Side:
    """A snapshot to read: its columns, and the rows to compare, in its own names."""

    snapshot_id: int
    schema: StructType
    where: str | None


def _prove(reader: Reader, snapshot_id: int) -> CommitProof:
    commit = reader.snapshots.get(snapshot_id) or {}
    parent_id = commit.get("parent-snapshot-id")
    parent = reader.snapshots.get(parent_id)
    if not commit:
        reason = "the commit has expired, or never belonged to this table"
    elif parent_id is None:
        reason = "it has no parent to compare with"
    elif parent is None:
        reason = f"its parent {parent_id} has expired"
    elif snapshot_id in reader.unreadable or parent_id in reader.unreadable:
        reason = reader.unreadable.get(parent_id) or reader.unreadable[snapshot_id]
    else:
        try:
            with ruled_out_as_disagreement():
                return _compare(reader, parent, commit)
        except Exception as error:
            explained = explain(error, reader.name)
            if not isinstance(explained, (MetadataUnreadable, ReadersDisagree)):
                raise explained from error
            reason = str(explained)
    return CommitProof(snapshot_id, reason)


def _compare(reader: Reader, parent: Json, commit: Json) -> CommitProof:
    parent_id = parent["snapshot-id"]
    snapshot_id = commit["snapshot-id"]
    changed = None
    if not fields_blocking_files_table_of(reader.head.metadata):
        changed = changes(reader.lake.spark, reader.name, parent_id, snapshot_id, reader.specs)
    schemas = [
        metadata.schema_of(reader.head.metadata, snapshot.get("schema-id"))
        for snapshot in (parent, commit)
    ]
    before_columns, after_columns, left_out = shared(reader.lake.spark, *schemas)
    predicates, reason = _predicates(reader, changed, schemas)
    sides = [
        _Side(side["snapshot-id"], columns, _where(reader, side, predicate))
        for side, columns, predicate in zip(
            (parent, commit), (before_columns, after_columns), predicates, strict=True
        )
    ]
    lineage = _has_lineage(parent, commit, schemas)
    before, after = _read(reader, sides, lineage=lineage)
    columns = metadata.columns(reader.head.metadata, schemas[1])
    if (
        changed is not None
        and not reason
        and ((before != after and changed.may_disagree) or not changed.holds_rows(columns))
    ):
        reason = "rows may be in other partitions than their values say"
        sides = [replace(side, where=None) for side in sides]
        before, after = _read(reader, sides, lineage=lineage)
    mismatches: list[Mismatch] = []
    if before != after:
        # Only now, because the driver gets a row for each partition.
        fields, keys = _keys(reader, schemas)
        grouped = _read(reader, sides, keys, lineage=lineage)
        mismatches = _differences(grouped[0], grouped[1], fields) or [
            Mismatch("whole table", before[()], after[()])
        ]
    rollback = call_sql(
        reader.lake.name,
        "rollback_to_snapshot",
        table=display_name(reader.table),
        snapshot_id=parent_id,
    )
    return CommitProof(
        snapshot_id,
        reason,
        partitions=len(changed.partitions) if changed is not None else 0,
        before=before[()],
        after=after[()],
        rows_read=before[()].row_count + after[()].row_count,
        mismatches=tuple(sorted(mismatches, key=lambda mismatch: mismatch.partition)),
        columns_left_out=left_out,
        rollback_sql=rollback if mismatches else None,
    )


_Prints = Mapping[tuple[Scalar, ...], Fingerprint]


def _differences(
    before: _Prints, after: _Prints, fields: Sequence[PartitionField]
) -> list[Mismatch]:
    """The partitions that differ."""
    spec = PartitionSpec(-1, tuple(fields))
    none = Fingerprint()
    return [
        Mismatch(
            partition_path(spec, key) or "whole table", before.get(key, none), after.get(key, none)
        )
        for key in {*before, *after}
        if before.get(key, none) != after.get(key, none)
    ]


def _read(
    reader: Reader,
    sides: Sequence[_Side],
    keys: Sequence[Sequence[str]] = ((), ()),
    *,
    lineage: bool,
) -> Sequence[_Prints]:
    """Read the parent and the commit at the same time, each by its keys."""

    def read(side: _Side, by: Sequence[str]) -> _Prints:
        return fingerprint(
            reader.lake.spark,
            reader.name,
            snapshot_id=side.snapshot_id,
            where=side.where,
            by=by,
            schema=side.schema,
            resolved_snapshot=reader.read.get(side.snapshot_id),
            lineage=lineage,
        )

    with ThreadPoolExecutor(len(sides)) as pool:
        return list(pool.map(read, sides, keys))


def _has_lineage(parent: Json, commit: Json, schemas: Sequence[Json]) -> bool:
    """Whether every row of both sides has an id: an upgraded table gets row ids with its next
    commit.
    """
    column_names = {field["name"].lower() for schema in schemas for field in schema["fields"]}
    return all(
        snapshot.get("first-row-id") is not None for snapshot in (parent, commit)
    ) and column_names.isdisjoint(LINEAGE)


def _predicates(
    reader: Reader, changed: Changes | None, schemas: Sequence[Json]
) -> tuple[Sequence[str | None], str]:
    """The rows to compare at the parent and at the commit; and, if all rows are compared, why.
    ``changed`` is None where it cannot be read.
    """
    if changed is None:
        why = "Iceberg cannot read which files changed: a partition column was dropped"
        return (None, None), why
    partitions = changed.partitions
    if not changed.is_complete:
        return (None, None), "its files are not those of its parent plus its own changes"
    if len(partitions) > MAX_PARTITIONS:
        return (None, None), f"it changed more than {MAX_PARTITIONS:,} partitions"
    catalog = reader.lake.name
    predicates = [
        where(
            catalog,
            reader.specs,
            metadata.columns(reader.head.metadata, schema),
            partitions,
            is_for_query=True,
        )
        for schema in schemas
    ]
    if None not in predicates:
        return predicates, ""
    unpartitioned = any(
        reader.specs[partition.spec_id].is_unpartitioned for partition in partitions
    )
    return (
        (None, None),
        "it changed unpartitioned files"
        if unpartitioned
        else "no predicate selects the partitions it changed",
    )


def _where(reader: Reader, snapshot: Json, predicate: str | None) -> str | None:
    """A predicate in a snapshot's own names, as this Iceberg can read it."""
    if predicate is None or snapshot.get("schema-id") == reader.head.metadata.get(
        "current-schema-id"
    ):
        return predicate
    return historical_filter(predicate, iceberg_version(reader.lake.spark, reader.lake.name))


def _keys(
    reader: Reader, schemas: Sequence[Json]
) -> tuple[list[PartitionField], list[tuple[str, ...]]]:
    """The fields of the current spec that rows of both sides can be grouped by, and the SQL for
    each side.
    """
    default = reader.specs.get(reader.head.metadata.get("default-spec-id", 0), PartitionSpec(0, ()))
    columns = [metadata.columns(reader.head.metadata, schema) for schema in schemas]
    keys = [
        (field, [field_expression(reader.lake.name, field, each) for each in columns])
        for field in default.fields
    ]
    usable = [(field, sides) for field, sides in keys if None not in sides]
    sql_before = tuple(str(sides[0]) for _, sides in usable)
    sql_after = tuple(str(sides[1]) for _, sides in usable)
    return [field for field, _ in usable], [sql_before, sql_after]


def prove_rewrites(lake: Lake, table: Identifier, commits: Mapping[int, Json]) -> Proof:
    """The proof of commits of rewrites and conversions: those checked before they were made say
    what was checked, and the rest are compared in full.

    A commit that only dropped delete files is proved by the scan of the snapshot before it, which
    gives none of them to a data file. ``commits`` are by id, as the table had them right
    after each: they may have expired since.
    """
    started = time.monotonic()
    proofs: dict[int, CommitProof] = {}
    for snapshot_id, commit in commits.items():
        if proof := _checked_before(snapshot_id, commit) or _scanned(lake, table, commit):
            proofs[snapshot_id] = proof
    unproved_ids = [snapshot_id for snapshot_id in commits if snapshot_id not in proofs]
    if unproved_ids:
        compared = prove_commits(lake, table, unproved_ids)
        proofs |= {proof.snapshot_id: proof for proof in compared.commits}
    in_order = tuple(proofs[snapshot_id] for snapshot_id in commits)
    return Proof(display_name(table), in_order, time.monotonic() - started)


def _checked_before(snapshot_id: int, commit: Json) -> CommitProof | None:
    """The proof of a commit that was checked before it was made, by its own summary; None without
    such a check, or if the commit is not what was checked.
    """
    summary = metadata.summary_of(commit)
    proof = CommitProof(snapshot_id, mode=CHECKED)
    if CHECKED_TAG in summary:
        rows = CheckedRows.of(summary[CHECKED_TAG])
        if int(summary.get("added-records") or 0) != rows.rows:
            return None
        unseen = rows.unseen_keys if rows.is_sampled else 0
        return replace(proof, statement=str(rows), rows_read=rows.read, unseen_keys=unseen)
    if _DATA_CHANGES.intersection(summary):
        return None
    if COMPARED_POSITIONS_TAG in summary:
        deletes = count(int(summary.get("added-delete-files") or 0), "new delete file")
        statement = (
            f"{deletes}: of each data file, the rows that are deleted by position were read before "
            "the commit, from the old and from the new delete files: the same"
        )
        return replace(proof, statement=statement)
    if CHECKED_POSITIONS_TAG not in summary:
        return None
    positions = CheckedPositions.of(summary[CHECKED_POSITIONS_TAG])
    if int(summary.get("added-position-deletes") or 0) != positions.positions:
        return None
    return replace(
        proof,
        statement=str(positions),
        rows_read=positions.sampled + 2 * positions.of_files,
        unseen_keys=positions.unseen_keys if positions.is_sampled else 0,
    )


def _scanned(lake: Lake, table: Identifier, commit: Json) -> CommitProof | None:
    """The proof of a commit that only dropped delete files, none of which applied before it; None
    if it did something else, or where that cannot be asked.
    """
    summary = metadata.summary_of(commit)
    parent_id = commit.get("parent-snapshot-id")
    if "removed-delete-files" not in summary or _CHANGES.intersection(summary) or parent_id is None:
        return None
    try:
        dropped_count, needed = removed_delete_counts(
            lake.spark, lake.sql_name(table), parent_id, commit["snapshot-id"]
        )
    except Exception:
        # An expired parent, or a file that is gone: the full comparison says so.
        return None
    if needed or not dropped_count:
        return None
    statement = (
        f"dropped {count(dropped_count, 'delete file')}; a scan of the table before it gives none of them "
        "to a data file"
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
