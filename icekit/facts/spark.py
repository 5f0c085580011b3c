"""Collect the file rollup in Spark: files are counted where their manifests are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from icekit.facts.bridge import explain
from icekit.facts.model import Bucket, Kind, Partition, PartitionSpec, Scalar
from icekit.facts.rollup import Cut, Rollup, add_sequence
from icekit.facts.values import to_scalar
from icekit.sql import Identifier, identifier, literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PATH_FIELD_ID = 2147483546


def roll_up(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
    cut: Cut,
    width: Callable[[int], int],
    *,
    with_deletes: bool,
) -> tuple[Rollup, int]:
    """Roll every live file of a snapshot up; ``table`` is named with its catalog.

    Without delete files this is one aggregation of ``data_files``, which reads no
    statistics. With them it is one of ``entries``, the only table with sequence numbers,
    kept while it is rolled up both ways. The driver receives rows per partition, kind, size
    bucket and, with deletes, sequence number.
    """
    try:
        # The session may hold an older version of the table that lacks the snapshot.
        spark.sql(f"REFRESH TABLE {identifier(*table)}")
        if not with_deletes:
            return _plain(spark, table, snapshot_id, specs, cut), 1
        return _with_deletes(spark, table, snapshot_id, specs, cut, width)
    except Exception as error:
        raise explain(error, table) from error


def _plain(spark: SparkSession, table: Identifier, snapshot_id: int, specs: Mapping[int, PartitionSpec], cut: Cut) -> Rollup:
    files = _metadata_table(spark, table, "data_files", snapshot_id)
    names = _unified(specs.values())
    columns = _partition_columns(files, "partition", names)
    rows = files.selectExpr(
        "spec_id",
        *columns,
        f"{literal(Kind.DATA.value)} AS kind",
        f"{_bucket('file_size_in_bytes', cut.data)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
    )
    rollup = Rollup()
    _read_buckets(_aggregated(rows, len(names)), specs, names, rollup)
    return rollup


def _with_deletes(
    spark: SparkSession, table: Identifier, snapshot_id: int, specs: Mapping[int, PartitionSpec], cut: Cut, width: Callable[[int], int]
) -> tuple[Rollup, int]:
    entries = _metadata_table(spark, table, "entries", snapshot_id).where("status < 2")
    names = _unified(specs.values())
    columns = _partition_columns(entries, "data_file.partition", names)
    kind = (
        f"CASE WHEN data_file.content = 0 THEN {literal(Kind.DATA.value)} WHEN data_file.content = 2 THEN {literal(Kind.EQUALITY_DELETES.value)} "
        f"WHEN upper(data_file.file_format) = 'PUFFIN' THEN {literal(Kind.DELETION_VECTORS.value)} ELSE {literal(Kind.POSITION_DELETES.value)} END"
    )
    size = "CASE WHEN upper(data_file.file_format) = 'PUFFIN' THEN data_file.content_size_in_bytes ELSE data_file.file_size_in_bytes END"
    rows = entries.selectExpr(
        "data_file.spec_id AS spec_id",
        *columns,
        f"{kind} AS kind",
        f"{size} AS size",
        "data_file.record_count AS records",
        "sequence_number AS sequence",
        "data_file.content AS content",
    ).selectExpr("*", f"CASE WHEN content = 0 THEN {_bucket('size', cut.data)} ELSE {_bucket('size', cut.deletes)} END AS bucket")
    fine = _aggregated(rows, len(names), "sequence").persist()
    rollup = Rollup()
    try:
        _read_buckets(_merged(fine, len(names)), specs, names, rollup)
        _read_file_scoped(spark, table, snapshot_id, specs, names, rollup)
        step = width(len({partition for partition, _ in rollup.buckets}))
        _read_sequences(fine, specs, names, rollup, cut, step)
    finally:
        fine.unpersist()
    return rollup, step


def _metadata_table(spark: SparkSession, table: Identifier, name: str, snapshot_id: int) -> DataFrame:
    return spark.sql(f"SELECT * FROM {identifier(*table, name)} VERSION AS OF {snapshot_id}")


def _unified(specs: Iterable[PartitionSpec]) -> list[tuple[int, str]]:
    """(field id, name) of the one partition struct that metadata tables show for all specs.

    Source: Partitioning.partitionType: by field id, named as the newest spec names it.
    """
    names: dict[int, str] = {}
    for spec in sorted(specs, key=lambda s: -s.spec_id):
        for field in spec.fields:
            names.setdefault(field.field_id, field.name)
    return sorted(names.items())


def _partition_columns(frame: DataFrame, path: str, names: Sequence[tuple[int, str]]) -> list[str]:
    """SQL that brings each partition field to the form that facts keep, as columns p0, p1 and so on."""
    if not names:
        return []
    struct: Any = frame.schema
    for part in path.split("."):
        struct = struct[part].dataType
    types = {field.name: field.dataType.typeName() for field in struct.fields}
    return [f"{_scalar_sql(f'{path}.{identifier(name)}', types.get(name))} AS p{i}" for i, (_, name) in enumerate(names)]


def _scalar_sql(column: str, type_name: str | None) -> str:
    if type_name is None:  # a field that was void in every spec has no column
        return "NULL"
    return {
        "date": f"unix_date({column})",
        "timestamp": f"unix_micros({column})",
        "timestamp_ntz": f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {column})",
        "binary": f"lower(hex({column}))",
        "decimal": f"CAST({column} AS STRING)",
    }.get(type_name, column)


def _bucket(size: str, edges: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {size} < {upper}L THEN {lower}L" for lower, upper in pairwise(edges))
    return f"CASE {cases} ELSE {edges[-1]}L END"


def _keys(field_count: int, *more: str) -> list[str]:
    return ["spec_id", *(f"p{i}" for i in range(field_count)), "kind", "bucket", *more]


def _aggregated(rows: DataFrame, field_count: int, *more: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(*_keys(field_count, *more)).agg(
        F.count("*").alias("files"), F.sum("size").alias("bytes"), F.sum("records").alias("records"), F.min("size").alias("low"), F.max("size").alias("high")
    )


def _merged(fine: DataFrame, field_count: int) -> DataFrame:
    from pyspark.sql import functions as F

    return fine.groupBy(*_keys(field_count)).agg(
        F.sum("files").alias("files"), F.sum("bytes").alias("bytes"), F.sum("records").alias("records"), F.min("low").alias("low"), F.max("high").alias("high")
    )


class _Partitions:
    """Partitions of arrow rows, each made once."""

    def __init__(self, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]]) -> None:
        place = {field_id: i for i, (field_id, _) in enumerate(names)}
        self.places = {spec_id: [place[f.field_id] for f in spec.fields] for spec_id, spec in specs.items()}
        self.width = len(names)
        self.known: dict[tuple[Any, ...], Partition] = {}

    def read(self, table: pa.Table) -> list[Partition]:
        columns = [table.column("spec_id").to_pylist(), *(table.column(f"p{i}").to_pylist() for i in range(self.width))]
        return [self._one(key) for key in zip(*columns, strict=True)]

    def _one(self, key: tuple[Any, ...]) -> Partition:
        found = self.known.get(key)
        if found is None:
            values: tuple[Scalar, ...] = tuple(to_scalar(key[1 + i]) for i in self.places[key[0]])
            found = self.known[key] = Partition(key[0], values)
        return found


def _read_buckets(frame: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup) -> None:
    table = frame.toArrow()
    columns = [table.column(c).to_pylist() for c in ("kind", "bucket", "files", "bytes", "records", "low", "high")]
    for partition, kind, *row in zip(_Partitions(specs, names).read(table), *columns, strict=True):
        rollup.add_bucket(partition, Kind(kind), Bucket(*row))


def _read_file_scoped(
    spark: SparkSession, table: Identifier, snapshot_id: int, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup
) -> None:
    """Count the position delete files that name one data file; their bounds are needed only here."""
    if not any(kind is Kind.POSITION_DELETES for _, kind in rollup.buckets):
        return
    deletes = _metadata_table(spark, table, "delete_files", snapshot_id)
    scoped = deletes.where(
        "content = 1 AND upper(file_format) <> 'PUFFIN' AND "
        f"(referenced_data_file IS NOT NULL OR lower_bounds[{PATH_FIELD_ID}] = upper_bounds[{PATH_FIELD_ID}])"
    ).selectExpr("spec_id", *_partition_columns(deletes, "partition", names))
    counted = scoped.groupBy("spec_id", *(f"p{i}" for i in range(len(names)))).count().toArrow()
    for partition, count in zip(_Partitions(specs, names).read(counted), counted.column("count").to_pylist(), strict=True):
        rollup.file_scoped[partition] += count


def _read_sequences(
    fine: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup, cut: Cut, width: int
) -> None:
    low, high = cut.well_sized
    well = f"kind = {literal(Kind.DATA.value)} AND low >= {low} AND high <= {high}"
    keys = ["spec_id", *(f"p{i}" for i in range(len(names))), "kind"]
    globally = any(kind is Kind.EQUALITY_DELETES and not specs[p.spec_id].fields for p, kind in rollup.buckets)
    if not globally:
        # Only partitions that hold deletes; the rest never reach the driver.
        scope = ", ".join(keys[:-1])
        fine = fine.selectExpr("*", f"max(kind <> {literal(Kind.DATA.value)}) OVER (PARTITION BY {scope}) AS has_deletes").where("has_deletes")
    counted = (
        fine.selectExpr(
            *keys,
            f"CAST(ceil(sequence / {width}D) AS BIGINT) * {width} AS sequence",
            "files",
            "records",
            f"if({well}, files, 0L) AS well_files",
            f"if({well}, bytes, 0L) AS well_bytes",
        )
        .groupBy(*keys, "sequence")
        .sum("files", "records", "well_files", "well_bytes")
        .toArrow()
    )
    sums = [counted.column(c).to_pylist() for c in ("kind", "sequence", "sum(files)", "sum(records)", "sum(well_files)", "sum(well_bytes)")]
    for partition, kind, sequence, *counts in zip(_Partitions(specs, names).read(counted), *sums, strict=True):
        add_sequence(rollup.by_sequence[partition, sequence], Kind(kind), *counts)
