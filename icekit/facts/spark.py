"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from icekit.engine.bridge import iceberg_version
from icekit.engine.errors import explain
from icekit.errors import MetadataUnreadable
from icekit.facts.counts import Rollup
from icekit.facts.files import Kind
from icekit.facts.integrity import DeleteState
from icekit.facts.local_deletes import NEVER
from icekit.facts.manifests import FileCounts
from icekit.facts.spark_deletes import (
    add_integrity,
    named_deletes,
    rule_out_by_keys,
    with_new_keys,
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


def roll_up(rollup: Rollup, spark: SparkSession, table: Identifier, snapshot_id: int) -> None:
    """Count every live file of a snapshot; ``table`` includes its catalog.

    Without delete files this reads ``data_files``, which reads no statistics. With delete files it
    reads ``entries``, the only table with sequence numbers. The columns that count are cached while
    they are aggregated: by partition, by file and by manifest. The driver receives a row per
    partition, kind, size bucket and, with deletes, sequence number, and a row per manifest. More is
    read only to join delete files with the data files that they name, to compare the key bounds of
    equality deletes, and to name what contradicts itself.
    """
    snapshot = Snapshot(spark, table, snapshot_id, rollup)
    has_deletes = rollup.has_deletes
    try:
        rows = (_with_deletes(snapshot) if has_deletes else _plain(snapshot)).persist()
        try:
            (_count_deletes if has_deletes else _count_data)(snapshot, rows)
            add_integrity(snapshot, rows)
        finally:
            rows.unpersist()
    except Exception as error:
        raise explain(error, table) from error


#: A column of every row: a hash of the manifest's path, which Python computes too.
_MANIFEST = "crc32(input_file_name()) AS manifest"


def _plain(snapshot: Snapshot) -> DataFrame:
    files = snapshot.files("data_files")
    return files.selectExpr(
        "spec_id",
        *partition_columns(files, "partition", snapshot.partitions.names),
        f"{kind_code(Kind.DATA)} AS kind",
        f"{_bucket('file_size_in_bytes', snapshot.rollup.cut.data)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
        f"{file_hash('file_path')} AS file",
        _MANIFEST,
    )


def _count_data(snapshot: Snapshot, rows: DataFrame) -> None:
    keys = [*snapshot.scope, "kind", "bucket"]
    _read_buckets(snapshot, grouped(rows, keys, *_COUNTS, "0L AS scoped"))


def _with_deletes(snapshot: Snapshot) -> DataFrame:
    cut, data = snapshot.rollup.cut, kind_code(Kind.DATA)
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
    bucket = (
        f"if(kind = {data}, {_bucket('size', cut.data)}, {_bucket('size', cut.deletes)}) AS bucket"
    )
    return snapshot.with_place(entries.selectExpr("*", size).selectExpr("*", bucket))


def _count_deletes(snapshot: Snapshot, rows: DataFrame) -> None:
    rollup, scope, data = snapshot.rollup, snapshot.scope, kind_code(Kind.DATA)
    named = named_deletes(snapshot, rows)
    settled = rows.selectExpr("*", "CAST(NULL AS INT) AS state")
    if named is not None:
        states = grouped(named, ["file"], "min(state) AS state")
        deletes = rows.where(f"kind <> {data}").join(states, "file", "left")
        settled = settled.where(f"kind = {data}").unionByName(deletes)
    # Shuffled by partition alone, so that the aggregations below do not shuffle again.
    keys = [*scope, "kind", "bucket", "sequence", "state"]
    fine = summed(settled.repartition(REDUCERS, *scope), keys, *_COUNTS).persist()
    try:
        judged = _judged(snapshot, fine)
        _read_judged(snapshot, judged)
        _read_equality_keys(snapshot)
        rollup.set_width(len({partition for partition, _ in rollup.buckets}))
        if new_keys := rule_out_by_keys(snapshot, judged):
            judged = with_new_keys(snapshot, judged, new_keys)
            _read_judged(snapshot, judged)
        _read_sequences(snapshot, judged.where("state = 0"))
    finally:
        fine.unpersist()


def _read_judged(snapshot: Snapshot, judged: DataFrame) -> None:
    """Read the counts of files, of those that apply and of those that do not; instead of what was
    read before.
    """
    rollup, scope = snapshot.rollup, snapshot.scope
    rollup.buckets.clear()
    rollup.file_scoped.clear()
    rollup.unapplied.clear()
    applied = judged.where("state = 0")
    _read_buckets(snapshot, summed(applied, [*scope, "kind", "bucket"], *_MERGED))
    unapplied = summed(judged.where("state > 0"), [*scope, "kind", "state"], *_MERGED)
    for partition, kind, state, *counts in snapshot.partitions.rows(
        unapplied, "kind", "state", "files", "bytes", "records"
    ):
        rollup.unapplied[partition, KINDS[kind], STATES[state - 1]] = counts


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
    return (
        fine.selectExpr("*", f"{lowest} AS lowest")
        .withColumnRenamed("state", "named_state")
        .selectExpr(
            "*",
            f"CASE WHEN named_state > 0 THEN named_state WHEN {is_older} THEN "
            f"{state_code(DeleteState.DANGLING)} ELSE 0 END AS state",
        )
        .selectExpr(
            "*",
            f"if(kind = {kind_code(Kind.POSITION_DELETES)} AND named_state = 0, files, 0L) AS "
            "scoped",
        )
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


def _read_buckets(snapshot: Snapshot, frame: DataFrame) -> None:
    rollup = snapshot.rollup
    for partition, kind, edge, scoped, *row in snapshot.partitions.rows(
        frame, "kind", "bucket", "scoped", "files", "bytes", "records", "low", "high"
    ):
        rollup.add_bucket(partition, KINDS[kind], edge, row)
        if scoped:
            rollup.file_scoped[partition] += scoped


def _read_equality_keys(snapshot: Snapshot) -> None:
    rollup = snapshot.rollup
    if not any(key[1] is Kind.EQUALITY_DELETES for key in (*rollup.buckets, *rollup.unapplied)):
        return
    deletes = snapshot.files("delete_files").where("content + 0 = 2")
    rows = deletes.selectExpr("array_sort(equality_ids) AS ids", "record_count AS records")
    for ids, *counts in grouped(rows, ["ids"], "count(*)", "sum(records)").collect():
        rollup.add_key(ids or (), *counts)


def _read_sequences(snapshot: Snapshot, fine: DataFrame) -> None:
    rollup, scope = snapshot.rollup, snapshot.scope
    low, high = rollup.cut.well_sized
    if not rollup.has_global_deletes:
        # Only partitions with deletes; the rest never reach the driver.
        fine = fine.selectExpr(
            "*",
            f"max(kind <> {kind_code(Kind.DATA)}) OVER (PARTITION BY {', '.join(scope)}) AS "
            "has_deletes",
        ).where("has_deletes")
    ranged = fine.selectExpr(
        "*",
        f"{range_end_sql(rollup.width)} AS end",
        f"low >= {low} AND high <= {high} AS is_well_sized",
    )
    counted = summed(ranged, [*scope, "kind", "end", "is_well_sized"], *_MERGED)
    for partition, end, kind, is_well_sized, *counts in snapshot.partitions.rows(
        counted, "end", "kind", "is_well_sized", "files", "bytes", "records"
    ):
        rollup.add_sequence(partition, end, KINDS[kind], counts, is_well_sized)
