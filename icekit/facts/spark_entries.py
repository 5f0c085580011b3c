"""Name the columns by which Spark counts the entries of a snapshot: kinds, states, partitions and files as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind
from icekit.facts.integrity import DeleteState
from icekit.facts.key_bounds import KeyColumn
from icekit.facts.manifests import Record
from icekit.facts.rollup import Cut
from icekit.facts.spark_partitions import scope_columns, unified
from icekit.sql import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = tuple(Kind)
# Why deletes apply to nothing, as numbers from 1; 0 is those that apply.
STATES = tuple(DeleteState)
# The number of tasks after a shuffle: few, because each task costs some milliseconds, and one
# task handles a million rows in half a second.
REDUCERS = 4


@dataclass(frozen=True)
class Snapshot:
    """What is read: a snapshot of a table (named with its catalog), its manifests and its partition specs."""

    spark: SparkSession
    table: Identifier
    snapshot_id: int
    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]
    cut: Cut
    columns: Mapping[int, KeyColumn]

    @property
    def names(self) -> list[tuple[int, str]]:
        """(field id, name) of the partition fields of all specs."""
        return unified(self.specs.values())

    @property
    def scope(self) -> list[str]:
        """The columns that identify a partition."""
        return scope_columns(self.names)

    def files(self, name: str) -> DataFrame:
        """One of the metadata tables."""
        return metadata_table(self.spark, self.table, name, self.snapshot_id)


def file_hash(path: str, offset: str | None = None) -> str:
    """SQL for a number that identifies a file; a Puffin file holds many deletion vectors, each at its offset."""
    return f"xxhash64({path})" if offset is None else f"xxhash64({path}, {offset})"


def kind_code(kind: Kind) -> int:
    """A number for a kind: Spark groups by numbers several times faster than by strings."""
    return KINDS.index(kind)


# Of an entry: its kind, and the hash of its file.
KIND = (
    f"CASE WHEN {CONTENT} = 0 THEN {kind_code(Kind.DATA)} WHEN {CONTENT} = 2 THEN {kind_code(Kind.EQUALITY_DELETES)} "
    f"WHEN upper(data_file.file_format) = 'PUFFIN' THEN {kind_code(Kind.DELETION_VECTORS)} ELSE {kind_code(Kind.POSITION_DELETES)} END"
)
ENTRY = f"if({CONTENT} = 0, {file_hash('data_file.file_path')}, {file_hash('data_file.file_path', 'data_file.content_offset')})"


def last_part(path: str) -> str:
    """SQL for the name of a file without its folders."""
    return f"substring_index({path}, '/', -1)"


def place_hash(scope: Sequence[str]) -> str:
    """A hash of the partition; xxhash64 leaves nulls out, so that they have a hash of their own."""
    return f"xxhash64({', '.join([*scope, *(f'{column} IS NULL' for column in scope)])})"


def grouped(rows: DataFrame, keys: Sequence[str], *sums: str) -> DataFrame:
    """Aggregate by keys in a few tasks."""
    from pyspark.sql import functions as F

    return rows.repartition(REDUCERS, *keys).groupBy(*keys).agg(*map(F.expr, sums))


def state_code(state: DeleteState) -> int:
    """A number for why deletes apply to nothing."""
    return 1 + STATES.index(state)


def range_end_sql(width: int) -> str:
    """SQL for the last sequence number of the range that a row's is in."""
    return f"CAST(ceil(sequence / {width}D) AS BIGINT) * {width}"


def brought_together(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Move rows with equal keys to one task, so that later groupings by these keys do not shuffle.

    By default Spark counts per task first and then shuffles into
    ``spark.sql.shuffle.partitions`` (200 by default): for so few rows, opening that many files
    per task takes longer than reading the manifests. The session's setting belongs to the user.
    """
    return rows.repartition(REDUCERS, *keys)
