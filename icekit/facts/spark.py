"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import iceberg_version
from icekit.engine.compat import arrow_of
from icekit.engine.errors import explain
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.errors import MetadataUnreadable
from icekit.facts.local import PATH_FIELD_ID
from icekit.facts.manifests import FileCounts
from icekit.facts.model import Bucket, Kind, Partition, PartitionSpec, Scalar, to_scalar
from icekit.facts.rollup import Cut, Rollup, add_sequence
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_KINDS = tuple(Kind)
# The number of tasks after a shuffle: few, because each task costs some milliseconds, and one
# task handles a million rows in half a second.
_REDUCERS = 4


def roll_up(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
    cut: Cut,
    width: Callable[[int], int] | None,
) -> tuple[Rollup, int]:
    """Count every live file of a snapshot; ``table`` includes its catalog.

    Without delete files (``width`` is None) this is one aggregation of ``data_files``, which reads no
    statistics. With delete files it aggregates ``entries``, the only table with sequence numbers,
    and caches it for both aggregations. The driver receives a row per partition, kind, size
    bucket and, with deletes, sequence number.
    """
    try:
        if width is None:
            return _plain(spark, table, snapshot_id, specs, cut), 1
        return _with_deletes(spark, table, snapshot_id, specs, cut, width)
    except Exception as error:
        raise explain(error, table) from error


def _plain(spark: SparkSession, table: Identifier, snapshot_id: int, specs: Mapping[int, PartitionSpec], cut: Cut) -> Rollup:
    files = metadata_table(spark, table, "data_files", snapshot_id)
    names = unified(specs.values())
    rows = files.selectExpr(
        "spec_id",
        *partition_columns(files, "partition", names),
        f"{_bucket('file_size_in_bytes', cut.data)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
    )
    keys = [*_scope(names), "bucket"]
    rollup = Rollup()
    _read_buckets(_aggregated(_brought_together(rows, keys), keys), specs, names, rollup)
    return rollup


def _with_deletes(
    spark: SparkSession, table: Identifier, snapshot_id: int, specs: Mapping[int, PartitionSpec], cut: Cut, width: Callable[[int], int]
) -> tuple[Rollup, int]:
    entries = metadata_table(spark, table, "entries", snapshot_id).where("status < 2")
    names = unified(specs.values())
    kind = (
        f"CASE WHEN {CONTENT} = 0 THEN {_code(Kind.DATA)} WHEN {CONTENT} = 2 THEN {_code(Kind.EQUALITY_DELETES)} "
        f"WHEN upper(data_file.file_format) = 'PUFFIN' THEN {_code(Kind.DELETION_VECTORS)} ELSE {_code(Kind.POSITION_DELETES)} END"
    )
    rows = (
        entries.selectExpr(
            "data_file.spec_id AS spec_id",
            *partition_columns(entries, "data_file.partition", names),
            f"{kind} AS kind",
            "data_file.file_size_in_bytes AS file_size",
            "data_file.content_size_in_bytes AS content_size",
            "data_file.record_count AS records",
            "sequence_number AS sequence",
        )
        .selectExpr("*", f"if(kind = {_code(Kind.DELETION_VECTORS)}, content_size, file_size) AS size")
        .selectExpr("*", f"if(kind = {_code(Kind.DATA)}, {_bucket('size', cut.data)}, {_bucket('size', cut.deletes)}) AS bucket")
    )
    scope = _scope(names)
    # Shuffled by partition alone, so that the aggregations below do not shuffle again.
    fine = _aggregated(_brought_together(rows, scope), [*scope, "kind", "bucket", "sequence"]).persist()
    rollup = Rollup()
    try:
        _read_buckets(_merged(fine, [*scope, "kind", "bucket"]), specs, names, rollup)
        _read_file_scoped(spark, table, snapshot_id, specs, names, rollup)
        _read_equality_keys(spark, table, snapshot_id, rollup)
        step = width(len({partition for partition, _ in rollup.buckets}))
        _read_sequences(fine, specs, names, rollup, cut, step)
    finally:
        fine.unpersist()
    return rollup, step


def check_listed(spark: SparkSession, table: Identifier, snapshot_id: int, expected: FileCounts | None, listed: FileCounts) -> None:
    """Check that the metadata tables list as many files as the snapshot has; ``expected`` is None if nothing counts them.

    Raises :class:`~icekit.errors.MetadataUnreadable` otherwise: with a file missing here, icekit would
    call a table healthy, or a delete resolved.
    """
    if expected is None or listed == expected:
        return
    there, seen = (f"{count(n.data, 'data file')} and {count(n.deletes, 'delete file')}" for n in (expected, listed))
    raise MetadataUnreadable(
        f"Snapshot {snapshot_id} of {display_name(table[1:])} has {there}, but the metadata tables of this session's Iceberg "
        f"({iceberg_version(spark, table[0])}) list {seen}; use another version of iceberg-spark-runtime."
    )


def unified(specs: Iterable[PartitionSpec]) -> list[tuple[int, str]]:
    """(field id, name) of the partition struct that metadata tables have for all specs.

    Source: Partitioning.partitionType: by field id, with the names of the newest spec.
    """
    names: dict[int, str] = {}
    for spec in sorted(specs, key=lambda s: -s.spec_id):
        for field in spec.fields:
            names.setdefault(field.field_id, field.name)
    return sorted(names.items())


def partition_columns(frame: DataFrame, path: str, names: Sequence[tuple[int, str]]) -> list[str]:
    """SQL that converts each partition field to the form that facts keep, as columns p0, p1 and so on."""
    if not names:
        return []
    outer, _, name = path.rpartition(".")
    beside: Any = frame.select(f"{outer}.*").schema if outer else frame.schema
    # Without it if every partition field was void, or its column was dropped.
    fields = beside[name].dataType.fields if name in beside.fieldNames() else ()
    types = {field.name: field.dataType.typeName() for field in fields}
    return [f"{scalar_sql(f'{path}.{identifier(name)}', types.get(name))} AS p{i}" for i, (_, name) in enumerate(names)]


def scalar_sql(column: str, type_name: str | None) -> str:
    """SQL that converts a value of a Spark type (``typeName()``) to the form that facts keep; :func:`scalar` does the rest."""
    if type_name is None:  # a field that was void in every spec has no column
        return "NULL"
    return {
        "date": f"unix_date({column})",
        "timestamp": f"unix_micros({column})",
        "timestamp_ntz": f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {column})",
        "binary": f"lower(hex({column}))",
    }.get(type_name, column)


def _bucket(size: str, edges: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {size} < {upper}L THEN {lower}L" for lower, upper in pairwise(edges))
    return f"CASE {cases} ELSE {edges[-1]}L END"


def _code(kind: Kind) -> int:
    """A number for a kind: Spark groups by numbers several times faster than by strings."""
    return _KINDS.index(kind)


def _scope(names: Sequence[tuple[int, str]]) -> list[str]:
    """The columns that identify a partition."""
    return ["spec_id", *(f"p{i}" for i in range(len(names)))]


def _brought_together(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Move rows with equal keys to one task, so that later groupings by these keys do not shuffle.

    By default Spark counts per task first and then shuffles into
    ``spark.sql.shuffle.partitions`` (200 by default): for so few rows, opening that many files
    per task takes longer than reading the manifests. The session's setting belongs to the user.
    """
    return rows.repartition(_REDUCERS, *keys)


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
    )


class Partitions:
    """Partitions of Arrow rows, each created once."""

    def __init__(self, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]]) -> None:
        place = {field_id: i for i, (field_id, _) in enumerate(names)}
        self.places = {spec_id: [place[f.field_id] for f in spec.fields] for spec_id, spec in specs.items()}
        self.width = len(names)
        self.known: dict[tuple[Any, ...], Partition] = {}

    def read(self, table: pa.Table) -> list[Partition]:
        """The partition of each row of ``spec_id, p0, p1, …``."""
        columns = [table.column("spec_id").to_pylist(), *(table.column(f"p{i}").to_pylist() for i in range(self.width))]
        return [self._one(key) for key in zip(*columns, strict=True)]

    def _one(self, key: tuple[Any, ...]) -> Partition:
        found = self.known.get(key)
        if found is None:
            values = tuple(scalar(key[1 + i]) for i in self.places[key[0]])
            found = self.known[key] = Partition(key[0], values)
        return found


def scalar(value: object) -> Scalar:
    """Convert the result of :func:`scalar_sql` to the form that facts keep."""
    # As a string in plain notation: CAST of a small decimal depends on the session's ANSI mode.
    return format(value, "f") if isinstance(value, Decimal) else to_scalar(value)


def _read_buckets(frame: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup) -> None:
    table = arrow_of(frame)
    kinds = table.column("kind").to_pylist() if "kind" in table.column_names else [_code(Kind.DATA)] * table.num_rows
    columns = [table.column(c).to_pylist() for c in ("bucket", "files", "bytes", "records", "low", "high")]
    for partition, kind, *row in zip(Partitions(specs, names).read(table), kinds, *columns, strict=True):
        rollup.add_bucket(partition, _KINDS[kind], Bucket(*row))


def _read_file_scoped(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
    names: Sequence[tuple[int, str]],
    rollup: Rollup,
) -> None:
    """Count the position delete files that name one data file; only this needs their bounds."""
    if not any(kind is Kind.POSITION_DELETES for _, kind in rollup.buckets):
        return
    deletes = metadata_table(spark, table, "delete_files", snapshot_id)
    scoped = deletes.where(
        "content + 0 = 1 AND upper(file_format) <> 'PUFFIN' AND "
        f"(referenced_data_file IS NOT NULL OR lower_bounds[{PATH_FIELD_ID}] = upper_bounds[{PATH_FIELD_ID}])"
    ).selectExpr("spec_id", *partition_columns(deletes, "partition", names))
    scope = _scope(names)
    counted = arrow_of(_brought_together(scoped, scope).groupBy(*scope).count())
    for partition, files in zip(Partitions(specs, names).read(counted), counted.column("count").to_pylist(), strict=True):
        rollup.file_scoped[partition] += files


def _read_equality_keys(spark: SparkSession, table: Identifier, snapshot_id: int, rollup: Rollup) -> None:
    if not any(kind is Kind.EQUALITY_DELETES for _, kind in rollup.buckets):
        return
    deletes = metadata_table(spark, table, "delete_files", snapshot_id).where("content + 0 = 2").select("equality_ids", "record_count")
    rows = deletes.selectExpr("array_sort(equality_ids) AS ids", "record_count AS records")
    for ids, files, records in (
        _brought_together(rows, ["ids"])
        .groupBy("ids")
        .agg({"*": "count", "records": "sum"})
        .select("ids", "count(1)", "sum(records)")
        .collect()
    ):
        rollup.add_key(ids or (), files, records)


def _read_sequences(
    fine: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup, cut: Cut, width: int
) -> None:
    low, high = cut.well_sized
    well = f"kind = {_code(Kind.DATA)} AND low >= {low} AND high <= {high}"
    scope = _scope(names)
    globally = any(kind is Kind.EQUALITY_DELETES and specs[p.spec_id].is_unpartitioned for p, kind in rollup.buckets)
    if not globally:
        # Only partitions with deletes; the rest never reach the driver.
        fine = fine.selectExpr("*", f"max(kind <> {_code(Kind.DATA)}) OVER (PARTITION BY {', '.join(scope)}) AS has_deletes").where(
            "has_deletes"
        )
    counted = arrow_of(
        fine.selectExpr(
            *scope,
            "kind",
            f"CAST(ceil(sequence / {width}D) AS BIGINT) * {width} AS sequence",
            "files",
            "records",
            f"if({well}, files, 0L) AS well_files",
            f"if({well}, bytes, 0L) AS well_bytes",
        )
        .groupBy(*scope, "kind", "sequence")
        .sum("files", "records", "well_files", "well_bytes")
    )
    sums = [counted.column(c).to_pylist() for c in ("kind", "sequence", "sum(files)", "sum(records)", "sum(well_files)", "sum(well_bytes)")]
    for partition, kind, sequence, *counts in zip(Partitions(specs, names).read(counted), *sums, strict=True):
        add_sequence(rollup.by_sequence[partition, sequence], _KINDS[kind], *counts)
