"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from icekit.engine.bridge import iceberg_version
from icekit.engine.compat import arrow_of
from icekit.engine.errors import explain
from icekit.errors import MetadataUnreadable
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Bucket, Kind
from icekit.facts.integrity import DeleteState
from icekit.facts.key_bounds import KeyColumn
from icekit.facts.manifests import FileCounts, Record, is_delete_manifest, may_have_live
from icekit.facts.rollup import Cut, Rollup, add_sequence
from icekit.facts.spark_deletes import (
    NEVER,
    integrity_of,
    named_deletes,
    rule_out_by_keys,
    with_new_keys,
)
from icekit.facts.spark_entries import (
    ENTRY,
    KIND,
    KINDS,
    STATES,
    Partitions,
    Snapshot,
    brought_together,
    file_hash,
    grouped,
    kind_code,
    last_part,
    partition_columns,
    place_hash,
    range_end_sql,
    scope_columns,
    state_code,
)
from icekit.sql import Identifier, display_name
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def roll_up(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    manifests: Sequence[Record],
    specs: Mapping[int, PartitionSpec],
    cut: Cut,
    width: Callable[[int], int],
    columns: Mapping[int, KeyColumn],
) -> tuple[Rollup, int]:
    """Count every live file of a snapshot, which has these ``manifests``; ``table`` includes its
    catalog, ``columns`` are its columns by id.

    Without delete files this reads ``data_files``, which reads no statistics. With delete files it
    reads ``entries``, the only table with sequence numbers. The columns that count are cached while
    they are aggregated: by partition, by file and by manifest. The driver receives a row per
    partition, kind, size bucket and, with deletes, sequence number, and a row per manifest. More is
    read only to join delete files with the data files that they name, to compare the key bounds of
    equality deletes, and to name what contradicts itself.
    """
    snapshot = Snapshot(spark, table, snapshot_id, manifests, specs, cut, columns)
    with_deletes = any(is_delete_manifest(m) and may_have_live(m) for m in manifests)
    rollup = Rollup()
    try:
        rows = (_with_deletes(snapshot) if with_deletes else _plain(snapshot)).persist()
        try:
            step = (
                _count_deletes(snapshot, rows, rollup, width)
                if with_deletes
                else _count_data(snapshot, rows, rollup)
            )
            rollup.integrity = integrity_of(snapshot, rows, rollup)
        finally:
            rows.unpersist()
    except Exception as error:
        raise explain(error, table) from error
    return rollup, step


#: A column of every row: a hash of the manifest's path, which Python computes too.
_MANIFEST = "crc32(input_file_name()) AS manifest"


def _plain(snapshot: Snapshot) -> DataFrame:
    files = snapshot.files("data_files")
    return files.selectExpr(
        "spec_id",
        *partition_columns(files, "partition", snapshot.names),
        f"{_bucket('file_size_in_bytes', snapshot.cut.data)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
        f"{file_hash('file_path')} AS file",
        _MANIFEST,
    )


def _count_data(snapshot: Snapshot, rows: DataFrame, rollup: Rollup) -> int:
    keys = [*snapshot.scope, "bucket"]
    _read_buckets(
        _aggregated(brought_together(rows, keys), keys), snapshot.specs, snapshot.names, rollup
    )
    return 1


def _with_deletes(snapshot: Snapshot) -> DataFrame:
    entries, cut = snapshot.files("entries").where("status < 2"), snapshot.cut
    return (
        entries.selectExpr(
            "data_file.spec_id AS spec_id",
            *partition_columns(entries, "data_file.partition", snapshot.names),
            f"{KIND} AS kind",
            "data_file.file_size_in_bytes AS file_size",
            "data_file.content_size_in_bytes AS content_size",
            "data_file.record_count AS records",
            "sequence_number AS sequence",
            f"{ENTRY} AS file",
            f"{file_hash(last_part('data_file.file_path'))} AS name",
            _MANIFEST,
        )
        .selectExpr(
            "*", f"if(kind = {kind_code(Kind.DELETION_VECTORS)}, content_size, file_size) AS size"
        )
        .selectExpr(
            "*",
            f"if(kind = {kind_code(Kind.DATA)}, {_bucket('size', cut.data)}, "
            f"{_bucket('size', cut.deletes)}) AS bucket",
        )
        .selectExpr("*", f"{place_hash(snapshot.scope)} AS place")
    )


def _count_deletes(
    snapshot: Snapshot, rows: DataFrame, rollup: Rollup, width: Callable[[int], int]
) -> int:
    specs, names, scope = snapshot.specs, snapshot.names, snapshot.scope
    named = named_deletes(snapshot, rows)
    settled = rows.selectExpr("*", "CAST(NULL AS INT) AS state")
    if named is not None:
        states = grouped(named, ["file"], "min(state) AS state")
        deletes = rows.where(f"kind <> {kind_code(Kind.DATA)}").join(states, "file", "left")
        settled = settled.where(f"kind = {kind_code(Kind.DATA)}").unionByName(deletes)
    # Shuffled by partition alone, so that the aggregations below do not shuffle again.
    keys = [*scope, "kind", "bucket", "sequence", "state"]
    fine = _aggregated(brought_together(settled, scope), keys).persist()
    try:
        judged = _judged(snapshot, fine)
        _read_judged(snapshot, judged, rollup)
        _read_equality_keys(snapshot, rollup)
        step = width(len({partition for partition, _ in rollup.buckets}))
        if new_keys := rule_out_by_keys(snapshot, judged, rollup, step):
            judged = with_new_keys(snapshot, judged, new_keys, step)
            _read_judged(snapshot, judged, rollup)
        _read_sequences(judged.where("state = 0"), specs, names, rollup, snapshot.cut, step)
    finally:
        fine.unpersist()
    return step


def _read_judged(snapshot: Snapshot, judged: DataFrame, rollup: Rollup) -> None:
    """Read the counts of files, of those that apply and of those that do not; instead of what was
    read before.
    """
    for held in (rollup.buckets, rollup.file_scoped, rollup.unapplied):
        held.clear()
    specs, names = snapshot.specs, snapshot.names
    _read_buckets(
        _merged(judged.where("state = 0"), [*snapshot.scope, "kind", "bucket"]),
        specs,
        names,
        rollup,
    )
    _read_unapplied(judged, specs, names, rollup)


def _judged(snapshot: Snapshot, fine: DataFrame) -> DataFrame:
    """The counts with a ``state`` for all deletes: those older than all data they could apply to
    are dangling (table spec, "Scan Planning").
    """
    data, equality = kind_code(Kind.DATA), kind_code(Kind.EQUALITY_DELETES)
    everywhere = [str(spec.spec_id) for spec in snapshot.specs.values() if spec.is_unpartitioned]
    lowest = (
        f"coalesce(min(if(kind = {data}, sequence, NULL)) OVER (PARTITION BY "
        f"{', '.join(snapshot.scope)}), {NEVER})"
    )
    if everywhere:
        (first,) = (
            fine.where(f"kind = {data}").selectExpr(f"coalesce(min(sequence), {NEVER})").collect()
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
    there, seen = (
        f"{count(n.data, 'data file')} and {count(n.deletes, 'delete file')}"
        for n in (expected, listed)
    )
    raise MetadataUnreadable(
        f"Snapshot {snapshot_id} of {display_name(table[1:])} has {there}, but the metadata "
        f"tables of this session's Iceberg ({iceberg_version(spark, table[0])}) list {seen}; use "
        "another version of iceberg-spark-runtime."
    )


def _bucket(size: str, edges: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {size} < {upper}L THEN {lower}L" for lower, upper in pairwise(edges))
    return f"CASE {cases} ELSE {edges[-1]}L END"


def _aggregated(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(*keys).agg(
        F.count("*").alias("files"),
        F.sum("size").alias("bytes"),
        F.sum("records").alias("records"),
        F.min("size").alias("low"),
        F.max("size").alias("high"),
    )


def _merged(fine: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    return fine.groupBy(*keys).agg(
        F.sum("files").alias("files"),
        F.sum("bytes").alias("bytes"),
        F.sum("records").alias("records"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
        F.sum("scoped").alias("scoped"),
    )


def _read_buckets(
    frame: DataFrame,
    specs: Mapping[int, PartitionSpec],
    names: Sequence[tuple[int, str]],
    rollup: Rollup,
) -> None:
    table = arrow_of(frame)
    has_deletes = "kind" in table.column_names
    kinds = (
        table.column("kind").to_pylist() if has_deletes else [kind_code(Kind.DATA)] * table.num_rows
    )
    scoped = table.column("scoped").to_pylist() if has_deletes else [0] * table.num_rows
    columns = [
        table.column(c).to_pylist() for c in ("bucket", "files", "bytes", "records", "low", "high")
    ]
    for partition, kind, named, *row in zip(
        Partitions(specs, names).read(table), kinds, scoped, *columns, strict=True
    ):
        rollup.add_bucket(partition, KINDS[kind], Bucket(*row))
        if named:
            rollup.file_scoped[partition] += named


def _read_unapplied(
    judged: DataFrame,
    specs: Mapping[int, PartitionSpec],
    names: Sequence[tuple[int, str]],
    rollup: Rollup,
) -> None:
    counted = (
        judged.where("state > 0")
        .groupBy(*scope_columns(names), "kind", "state")
        .sum("files", "bytes", "records")
    )
    table = arrow_of(counted)
    columns = [
        table.column(c).to_pylist()
        for c in ("kind", "state", "sum(files)", "sum(bytes)", "sum(records)")
    ]
    for partition, kind, state, *row in zip(
        Partitions(specs, names).read(table), *columns, strict=True
    ):
        rollup.unapplied[partition, KINDS[kind], STATES[state - 1]] = row


def _read_equality_keys(snapshot: Snapshot, rollup: Rollup) -> None:
    if not any(key[1] is Kind.EQUALITY_DELETES for key in (*rollup.buckets, *rollup.unapplied)):
        return
    deletes = (
        snapshot.files("delete_files")
        .where("content + 0 = 2")
        .select("equality_ids", "record_count")
    )
    rows = deletes.selectExpr("array_sort(equality_ids) AS ids", "record_count AS records")
    for ids, files, records in (
        brought_together(rows, ["ids"])
        .groupBy("ids")
        .agg({"*": "count", "records": "sum"})
        .select("ids", "count(1)", "sum(records)")
        .collect()
    ):
        rollup.add_key(ids or (), files, records)


def _read_sequences(
    fine: DataFrame,
    specs: Mapping[int, PartitionSpec],
    names: Sequence[tuple[int, str]],
    rollup: Rollup,
    cut: Cut,
    width: int,
) -> None:
    low, high = cut.well_sized
    well = f"kind = {kind_code(Kind.DATA)} AND low >= {low} AND high <= {high}"
    scope = scope_columns(names)
    globally = any(
        kind is Kind.EQUALITY_DELETES and specs[p.spec_id].is_unpartitioned
        for p, kind in rollup.buckets
    )
    if not globally:
        # Only partitions with deletes; the rest never reach the driver.
        fine = fine.selectExpr(
            "*",
            f"max(kind <> {kind_code(Kind.DATA)}) OVER (PARTITION BY {', '.join(scope)}) AS "
            "has_deletes",
        ).where("has_deletes")
    counted = arrow_of(
        fine.selectExpr(
            *scope,
            "kind",
            f"{range_end_sql(width)} AS sequence",
            "files",
            "records",
            f"if({well}, files, 0L) AS well_files",
            f"if({well}, bytes, 0L) AS well_bytes",
        )
        .groupBy(*scope, "kind", "sequence")
        .sum("files", "records", "well_files", "well_bytes")
    )
    sums = [
        counted.column(c).to_pylist()
        for c in (
            "kind",
            "sequence",
            "sum(files)",
            "sum(records)",
            "sum(well_files)",
            "sum(well_bytes)",
        )
    ]
    for partition, kind, sequence, *counts in zip(
        Partitions(specs, names).read(counted), *sums, strict=True
    ):
        add_sequence(rollup.by_sequence[partition, sequence], KINDS[kind], *counts)
