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

    def files(self, name: str) -> DataFrame:
        """One of the metadata tables."""
        return metadata_table(self.spark, self.table, name, self.snapshot_id)

    def entries(self, *columns: str) -> DataFrame:
        """The live entries: their partition, kind, sequence number, records, and these columns; with
        delete files also a hash of the partition as ``place``. Without, ``data_files`` has all that
        counts, and takes less time. ``columns`` are SQL on an entry, and use no alias of each
        other: Spark would read all statistics of every file.
        """
        if self.rollup.has_deletes:
            entries = self.files("entries").where("status < 2")
        else:
            # Spark reads only the fields of this struct that are used.
            files = self.files("data_files")
            entries = files.selectExpr("0L AS sequence_number", "struct(*) AS data_file")
        rows = entries.selectExpr(
            *self.partitions.entry_columns(entries),
            # Also here: a manifest list may take delete files for data.
            f"{KIND} AS kind",
            "sequence_number AS sequence",
            "data_file.record_count AS records",
            *columns,
        )
        if not self.rollup.has_deletes:
            return rows
        # xxhash64 leaves nulls out, so that they have a hash of their own.
        hash_inputs = ", ".join(
            [*self.partition_columns, *(f"{column} IS NULL" for column in self.partition_columns)]
        )
        return rows.selectExpr("*", f"xxhash64({hash_inputs}) AS place")


def file_hash(*columns: str) -> str:
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
    f"if({CONTENT} = 0, {file_hash('data_file.file_path')}, "
    f"{file_hash('data_file.file_path', 'data_file.content_offset')})"
)


def file_name_sql(path: str) -> str:
    """SQL for the name of a file without its folders."""
    return f"substring_index({path}, '/', -1)"


def aggregate(rows: DataFrame, keys: Sequence[str], *sums: str) -> DataFrame:
    """Aggregate by keys in a few tasks.

    By default Spark counts per task first and then shuffles into
    ``spark.sql.shuffle.partitions`` (200 by default): for so few rows, opening that many files
    per task takes longer than reading the manifests. The session's setting belongs to the user.
    """
    from pyspark.sql import functions as F

    return rows.repartition(REDUCERS, *keys).groupBy(*keys).agg(*map(F.expr, sums))


def state_code(state: DeleteState) -> int:
    """A number for why deletes apply to nothing."""
    return 1 + STATES.index(state)


def range_end_sql(width: int) -> str:
    """SQL for the last sequence number of the range that a row's is in."""
    return f"CAST(ceil(sequence / {width}D) AS BIGINT) * {width}"


def unified_fields(specs: Iterable[PartitionSpec]) -> list[tuple[int, str]]:
    """(field id, name) of the partition struct that metadata tables have for all specs.

    Source: Partitioning.partitionType: by field id, with the names of the newest spec.
    """
    names: dict[int, str] = {}
    for spec in sorted(specs, key=lambda s: -s.spec_id):
        for field in spec.fields:
            names.setdefault(field.field_id, field.name)
    return sorted(names.items())


def scalar_sql(column: str, type_name: str | None) -> str:
    """SQL that converts a value of a Spark type (``typeName()``) to the form that facts keep;
    :func:`icekit.iceberg.values.to_scalar` does the rest.
    """
    if type_name is None:  # a field that was void in every spec has no column
        return "NULL"
    return {
        "date": f"unix_date({column})",
        "timestamp": f"unix_micros({column})",
        "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', "
        f"{column})",
        "binary": f"lower(hex({column}))",
    }.get(type_name, column)


class Partitions:
    """Partitions of Arrow rows, each created once."""

    def __init__(self, specs: Mapping[int, PartitionSpec]) -> None:
        self.names = unified_fields(specs.values())
        indexes = {field_id: i for i, (field_id, _) in enumerate(self.names)}
        self.indexes = {
            spec_id: [indexes[f.field_id] for f in spec.fields] for spec_id, spec in specs.items()
        }
        self.columns = [f"p{i}" for i in range(len(self.names))]
        self.partition_columns = ["spec_id", *self.columns]
        self.partitions_by_key: dict[tuple[Any, ...], Partition] = {}

    def entry_columns(self, entries: DataFrame) -> list[str]:
        """SQL for the columns that identify the partition of an entry: each partition field in the
        form that facts keep.
        """
        file_type: Any = entries.schema["data_file"].dataType
        # Without it if every partition field was void, or its column was dropped.
        partition_fields = file_type["partition"].dataType if "partition" in file_type.names else ()
        types_by_name = {field.name: field.dataType.typeName() for field in partition_fields}
        values_sql = (
            scalar_sql(f"data_file.partition.{identifier(name)}", types_by_name.get(name))
            for _, name in self.names
        )
        columns = (f"{value} AS p{i}" for i, value in enumerate(values_sql))
        return ["data_file.spec_id AS spec_id", *columns]

    def read(self, table: pa.Table) -> list[Partition]:
        """The partition of each row of ``spec_id, p0, p1, …``."""
        columns = [table.column(name).to_pylist() for name in self.partition_columns]
        return [self._partition(key) for key in zip(*columns, strict=True)]

    def rows(self, frame: DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The partition and these columns of each row of a data frame."""
        table = arrow_of(frame)
        values = (table.column(name).to_pylist() for name in columns)
        return zip(self.read(table), *values, strict=True)

    def _partition(self, key: tuple[Any, ...]) -> Partition:
        partition = self.partitions_by_key.get(key)
        if partition is None:
            values = (key[1 + i] for i in self.indexes[key[0]])
            partition = self.partitions_by_key[key] = partition_of(key[0], values)
        return partition
