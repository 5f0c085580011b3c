"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from icekit.engine.bridge import iceberg_version
from icekit.engine.errors import explaining
from icekit.errors import MetadataUnreadable
from icekit.facts.counts import Rollup, add
from icekit.facts.files import Kind
from icekit.facts.integrity import DeleteState
from icekit.facts.local_deletes import NEVER
from icekit.facts.manifests import FileCounts, is_delete_manifest
from icekit.facts.spark_deletes import (
    is_contradicted,
    named_deletes,
    rule_out_by_keys,
)
from icekit.facts.spark_entries import (
    ENTRY,
    KIND,
    KINDS,
    REDUCERS,
    STATES,
    Snapshot,
    file_hash,
    grouped,
    kind_code,
    last_part,
    partition_columns,
    range_end_sql,
    state_code,
    summed,
)
from icekit.sql import Identifier, display_name
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def roll_up(rollup: Rollup, spark: SparkSession, table: Identifier, snapshot_id: int) -> bool:
    """Count every live file of a snapshot; ``table`` includes its catalog.

    Tells whether files are listed more than once or deletes are misplaced:
    :func:`icekit.facts.local.roll_up` names them.

    Without delete files this reads ``data_files``, which reads no statistics. With delete files it
    reads ``entries``, the only table with sequence numbers. The columns that count are cached while
    they are aggregated: by partition, by file and by manifest. The driver receives a row per
    partition, kind, size bucket and, with deletes, sequence number, and a row per manifest. More is
    read only to join delete files with the data files that they name, and to compare the key bounds
    of equality deletes.
    """
    snapshot = Snapshot(spark, table, snapshot_id, rollup)
    has_deletes = rollup.has_deletes
    with explaining(table):
        rows = (_with_deletes(snapshot) if has_deletes else _plain(snapshot)).persist()
        try:
            (_count_deletes if has_deletes else _count_data)(snapshot, rows)
            rollup.add_up()
            return is_contradicted(snapshot, rows)
        finally:
            rows.unpersist()


#: A column of every row: a hash of the manifest's path, which Python computes too.
_MANIFEST = "crc32(input_file_name()) AS manifest"


def _plain(snapshot: Snapshot) -> DataFrame:
    files = snapshot.files("data_files")
    return files.selectExpr(
        "spec_id",
        *partition_columns(files, "partition", snapshot.partitions.names),
        f"{kind_code(Kind.DATA)} AS kind",
        f"{_bucket('file_size_in_bytes', snapshot.rollup.cut.edges)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
        f"{file_hash('file_path')} AS file",
        _MANIFEST,
    )


def _count_data(snapshot: Snapshot, rows: DataFrame) -> None:
    keys = [*snapshot.scope, "kind", "bucket"]
    none = (f"0L AS {name}" for name in ("sequence", "state", "scoped"))
    _read(snapshot, grouped(rows, keys, *_COUNTS, *none))


def _with_deletes(snapshot: Snapshot) -> DataFrame:
    edges, data = snapshot.rollup.cut.edges, kind_code(Kind.DATA)
    entries = snapshot.entries(
        f"{KIND} AS kind",
        "data_file.file_size_in_bytes AS file_size",
        "data_file.content_size_in_bytes AS content_size",
        "data_file.record_count AS records",
        "sequence_number AS sequence",
        f"{ENTRY} AS file",
        f"{file_hash(last_part('data_file.file_path'))} AS name",
        _MANIFEST,
    )
    size = f"if(kind = {kind_code(Kind.DELETION_VECTORS)}, content_size, file_size) AS size"
    bucket = f"if(kind = {data}, {_bucket('size', edges)}, 0L) AS bucket"
    return snapshot.with_place(entries.selectExpr("*", size).selectExpr("*", bucket))


def _count_deletes(snapshot: Snapshot, rows: DataFrame) -> None:
    rollup, scope, data = snapshot.rollup, snapshot.scope, kind_code(Kind.DATA)
    named = named_deletes(snapshot, rows)
    settled = rows.selectExpr("*", "CAST(NULL AS INT) AS named_state")
    if named is not None:
        deletes = rows.where(f"kind <> {data}").join(named, "file", "left")
        settled = settled.where(f"kind = {data}").unionByName(deletes)
    # Shuffled by partition alone, so that the aggregations below do not shuffle again.
    keys = [*scope, "kind", "bucket", "sequence"]
    fine = summed(settled.repartition(REDUCERS, *scope), [*keys, "named_state"], *_COUNTS).persist()
    try:
        judged = _judged(snapshot, fine)
        rollup.set_width(judged.where("state = 0").select(*scope).distinct().count())
        _read(snapshot, summed(_ranged(snapshot, judged), [*keys, "state"], *_MERGED))
        _read_equality_keys(snapshot)
        rule_out_by_keys(snapshot, judged)
    finally:
        fine.unpersist()


def _read(snapshot: Snapshot, frame: DataFrame) -> None:
    """Read the counts of files, of those that apply and of those that do not."""
    rollup = snapshot.rollup
    columns = "kind", "sequence", "bucket", "state", "scoped", "files", "bytes", "records"
    for partition, code, sequence, edge, state, scoped, *row in snapshot.partitions.rows(
        frame, *columns, "low", "high"
    ):
        kind = KINDS[code]
        if state:
            add(rollup.unapplied[partition, kind, STATES[state - 1]], *row[:3])
            continue
        rollup.counted[partition, kind, sequence][edge] = row
        if scoped:
            rollup.file_scoped[partition, kind] += scoped


def _ranged(snapshot: Snapshot, judged: DataFrame) -> DataFrame:
    """The counts with ranges of sequence numbers, and without these in partitions without
    deletes.
    """
    from pyspark.sql import functions as F

    rollup = snapshot.rollup
    end = range_end_sql(rollup.width)
    if not any(
        is_delete_manifest(manifest)
        and rollup.specs[manifest["partition_spec_id"]].is_unpartitioned
        for manifest in rollup.manifests
    ):
        scope = ", ".join(snapshot.scope)
        has_deletes = f"max(kind <> {kind_code(Kind.DATA)}) OVER (PARTITION BY {scope})"
        end = f"if({has_deletes}, {end}, 0L)"
    return judged.withColumn("sequence", F.expr(end))


def _judged(snapshot: Snapshot, fine: DataFrame) -> DataFrame:
    """The counts with a ``state`` for all deletes: those older than all data they could apply to
    are dangling (table spec, "Scan Planning").
    """
    data, equality = kind_code(Kind.DATA), kind_code(Kind.EQUALITY_DELETES)
    specs = snapshot.rollup.specs.values()
    everywhere = [str(spec.spec_id) for spec in specs if spec.is_unpartitioned]
    lowest = (
        f"coalesce(min(if(kind = {data}, sequence, NULL)) OVER (PARTITION BY "
        f"{', '.join(snapshot.scope)}), {NEVER}L)"
    )
    if everywhere:
        (first,) = (
            fine.where(f"kind = {data}").selectExpr(f"coalesce(min(sequence), {NEVER}L)").collect()
        )
        lowest = (
            f"if(kind = {equality} AND spec_id IN ({', '.join(everywhere)}), {first[0]}L, {lowest})"
        )
    is_older = f"kind <> {data} AND (sequence < lowest OR kind = {equality} AND sequence = lowest)"
    return fine.selectExpr("*", f"{lowest} AS lowest").selectExpr(
        "*",
        f"CASE WHEN named_state > 0 THEN named_state WHEN {is_older} THEN "
        f"{state_code(DeleteState.DANGLING)} ELSE 0 END AS state",
        "if(named_state = 0, files, 0L) AS scoped",
    )


def check_listed(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    expected: FileCounts | None,
    listed: FileCounts,
) -> None:
    """Check that the metadata tables list as many files as the snapshot has; ``expected`` is None
    if nothing counts them.

    Raises :class:`~icekit.errors.MetadataUnreadable` otherwise: with a file missing here, icekit
    would call a table healthy, or a delete resolved.
    """
    if expected is None or listed == expected:
        return
    existing, seen = (
        f"{count(n.data, 'data file')} and {count(n.deletes, 'delete file')}"
        for n in (expected, listed)
    )
    raise MetadataUnreadable(
        f"Snapshot {snapshot_id} of {display_name(table[1:])} has {existing}, but the metadata "
        f"tables of this session's Iceberg ({iceberg_version(spark, table[0])}) list {seen}; use "
        "another version of iceberg-spark-runtime."
    )


def _bucket(size: str, edges: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {size} < {upper}L THEN {lower}L" for lower, upper in pairwise(edges))
    return f"CASE {cases} ELSE {edges[-1]}L END"


_COUNTS = (
    "count(*) AS files",
    "sum(size) AS bytes",
    "sum(records) AS records",
    "min(size) AS low",
    "max(size) AS high",
)
_MERGED = (
    "sum(files) AS files",
    "sum(bytes) AS bytes",
    "sum(records) AS records",
    "min(low) AS low",
    "max(high) AS high",
    "sum(scoped) AS scoped",
)


def _read_equality_keys(snapshot: Snapshot) -> None:
    rollup = snapshot.rollup
    if not any(key[1] is Kind.EQUALITY_DELETES for key in (*rollup.counted, *rollup.unapplied)):
        return
    deletes = snapshot.files("delete_files").where("content + 0 = 2")
    rows = deletes.selectExpr("array_sort(equality_ids) AS ids", "record_count AS records")
    for ids, *counts in grouped(rows, ["ids"], "count(*)", "sum(records)").collect():
        rollup.add_key(ids or (), *counts)
