"""Read the entries and the partitions of manifests in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.common.sql import Identifier, identifier
from icekit.engine.compat import arrow_of
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.health.facts.counts import Rollup
from icekit.health.facts.integrity import DeleteState
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.iceberg.values import partition_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


KINDS = tuple(Kind)
# Why deletes apply to nothing, as numbers from 1; 0 is those that apply.
STATES = tuple(DeleteState)
# The number of tasks after a shuffle: few, because each task costs some milliseconds, and one
# task handles a million rows in half a second.
REDUCERS = 4


@dataclass(frozen=True)
class Snapshot:
    """What is read: a snapshot of a table (named with its catalog), and the rollup that counts
    it.
    """

    spark: SparkSession
    table: Identifier
    snapshot_id: int
    rollup: Rollup

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions of all specs."""
        return Partitions(self.rollup.specs)

    @property
    def partition_columns(self) -> list[str]:
        """The columns that identify a partition."""
        return self.partitions.partition_columns

    def metadata_rows(self, table_name: str) -> DataFrame:
        """One of the metadata tables."""
        return metadata_table(self.spark, self.table, table_name, self.snapshot_id)

    def entries(self, *columns: str) -> DataFrame:
        """The live entries: their partition, kind, sequence number, records, and these columns;
        with delete files also a hash of the partition as ``place``. Without, ``data_files`` has all
        that counts, and takes less time. ``columns`` are SQL on an entry, and use no alias of each
        other: Spark would read all statistics of every file.
        """
        if self.rollup.has_deletes:
            entries = self.metadata_rows("entries").where("status < 2")
        else:
            # Spark reads only the fields of this struct that are used.
            data_files = self.metadata_rows("data_files")
            entries = data_files.selectExpr("0L AS sequence_number", "struct(*) AS data_file")
        entry_rows = entries.selectExpr(
            *self.partitions.entry_columns(entries),
            # Also here: a manifest list may take delete files for data.
            f"{KIND} AS kind",
            "sequence_number AS sequence",
            "data_file.record_count AS records",
            *columns,
        )
        if not self.rollup.has_deletes:
            return entry_rows
        # xxhash64 leaves nulls out, so that they have a hash of their own.
        hash_inputs_sql = ", ".join(
            [*self.partition_columns, *(f"{column} IS NULL" for column in self.partition_columns)]
        )
        return entry_rows.selectExpr("*", f"xxhash64({hash_inputs_sql}) AS place")


def file_hash_sql(*columns: str) -> str:
    """SQL for a number that identifies a file: by its path and, because a Puffin file holds many
    deletion vectors, the offset of a delete.
    """
    return f"xxhash64({', '.join(columns)})"


def kind_code(kind: Kind) -> int:
    """A number for a kind: Spark groups by numbers several times faster than by strings."""
    return KINDS.index(kind)


# Of an entry: its kind, and the hash of its file.
KIND = (
    f"CASE WHEN {CONTENT} = 0 THEN {kind_code(Kind.DATA)} WHEN {CONTENT} = 2 THEN "
    f"{kind_code(Kind.EQUALITY_DELETES)} WHEN upper(data_file.file_format) = 'PUFFIN' THEN "
    f"{kind_code(Kind.DELETION_VECTORS)} ELSE {kind_code(Kind.POSITION_DELETES)} END"
)
ENTRY = (
    f"if({CONTENT} = 0, {file_hash_sql('data_file.file_path')}, "
    f"{file_hash_sql('data_file.file_path', 'data_file.content_offset')})"
)


def file_name_sql(path_sql: str) -> str:
    """SQL for the name of a file without its folders."""
    return f"substring_index({path_sql}, '/', -1)"


def aggregate(rows: DataFrame, key_columns: Sequence[str], *sums: str) -> DataFrame:
    """Aggregate by keys in a few tasks.

    By default Spark counts per task first and then shuffles into
    ``spark.sql.shuffle.partitions`` (200 by default): for so few rows, opening that many files
    per task takes longer than reading the manifests. The session's setting belongs to the user:
    where counting per task first pays, it is changed for the time of that query.
    """
    from pyspark.sql import functions as F

    return rows.repartition(REDUCERS, *key_columns).groupBy(*key_columns).agg(*map(F.expr, sums))


def state_code(state: DeleteState) -> int:
    """A number for why deletes apply to nothing."""
    return 1 + STATES.index(state)


def range_end_sql(sequence_width: int) -> str:
    """SQL for the last sequence number of the range that a row's is in."""
    return f"CAST(ceil(sequence / {sequence_width}D) AS BIGINT) * {sequence_width}"


def unified_partition_fields(specs: Iterable[PartitionSpec]) -> list[tuple[int, str]]:
    """(field id, name) of the partition struct that metadata tables have for all specs.

    Source: Partitioning.partitionType: by field id, with the names of the newest spec.
    """
    names_by_id: dict[int, str] = {}
    for spec in sorted(specs, key=lambda s: -s.spec_id):
        for partition_field in spec.fields:
            names_by_id.setdefault(partition_field.field_id, partition_field.name)
    return sorted(names_by_id.items())


def scalar_sql(value_sql: str, type_name: str | None) -> str:
    """SQL that converts a value of a Spark type (``typeName()``) to the form that facts keep;
    :func:`icekit.iceberg.values.to_scalar` does the rest.
    """
    if type_name is None:  # a field that was void in every spec has no column
        return "NULL"
    return {
        "date": f"unix_date({value_sql})",
        "timestamp": f"unix_micros({value_sql})",
        "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', "
        f"{value_sql})",
        "binary": f"lower(hex({value_sql}))",
    }.get(type_name, value_sql)


class Partitions:
    """Partitions of Arrow rows, each created once."""

    def __init__(self, specs: Mapping[int, PartitionSpec]) -> None:
        self.names = unified_partition_fields(specs.values())
        index_by_field_id = {field_id: i for i, (field_id, _) in enumerate(self.names)}
        self.indexes = {
            spec_id: [index_by_field_id[f.field_id] for f in spec.fields]
            for spec_id, spec in specs.items()
        }
        self.value_columns = [f"p{i}" for i in range(len(self.names))]
        self.partition_columns = ["spec_id", *self.value_columns]
        self.partitions_by_key: dict[tuple[Any, ...], Partition] = {}

    def entry_columns(self, entries: DataFrame) -> list[str]:
        """SQL for the columns that identify the partition of an entry: each partition field in the
        form that facts keep.
        """
        data_file_type: Any = entries.schema["data_file"].dataType
        # Without it if every partition field was void, or its column was dropped.
        partition_fields = (
            data_file_type["partition"].dataType if "partition" in data_file_type.names else ()
        )
        spark_types_by_name = {field.name: field.dataType.typeName() for field in partition_fields}
        values_sql = (
            scalar_sql(
                f"data_file.partition.{identifier(field_name)}", spark_types_by_name.get(field_name)
            )
            for _, field_name in self.names
        )
        value_columns = (f"{value_sql} AS p{i}" for i, value_sql in enumerate(values_sql))
        return ["data_file.spec_id AS spec_id", *value_columns]

    def read(self, arrow_table: pa.Table) -> list[Partition]:
        """The partition of each row of ``spec_id, p0, p1, …``."""
        column_values = [
            arrow_table.column(column_name).to_pylist() for column_name in self.partition_columns
        ]
        return [self._partition(key) for key in zip(*column_values, strict=True)]

    def rows(self, frame: DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The partition and these columns of each row of a data frame."""
        arrow_table = arrow_of(frame)
        column_values = (arrow_table.column(column_name).to_pylist() for column_name in columns)
        return zip(self.read(arrow_table), *column_values, strict=True)

    def _partition(self, key: tuple[Any, ...]) -> Partition:
        partition = self.partitions_by_key.get(key)
        if partition is None:
            partition_values = (key[1 + i] for i in self.indexes[key[0]])
            partition = self.partitions_by_key[key] = partition_of(key[0], partition_values)
        return partition
