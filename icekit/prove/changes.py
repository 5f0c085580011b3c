"""Find what a commit changed: its partitions, from the manifest entries that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.model import Partition, PartitionSpec
from icekit.facts.spark import Partitions, partition_columns, unified
from icekit.prove.fingerprint import Print, prints
from icekit.sql import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Json = Mapping[str, Any]

# What tells a file, and the order in which deletes apply to it.
_FILE = (
    "xxhash64(data_file.content, data_file.file_path, data_file.spec_id, sequence_number, data_file.record_count, "
    "isnull(data_file.content_offset), data_file.content_offset)"
)


@dataclass(frozen=True)
class Changes:
    """The partitions that a commit changed, sorted.

    ``is_complete`` is false if the files of its parent, less those it says it removed, plus
    those it says it added, are not its files: then it has lost or gained some silently, and
    its changed partitions say too little. ``records`` are the rows that the data files of its
    changed partitions hold at its parent and at itself by their manifests; None where deletes
    apply, so that a reader gets fewer.
    """

    partitions: tuple[Partition, ...]
    is_complete: bool
    records: Callable[[], tuple[int | None, int | None]]

    def holds(self, rows: Sequence[int]) -> bool:
        """Tell whether so many rows at the parent and at the commit are all that their files hold, as far as that can be told.

        There may be more: a predicate also finds rows in files of another spec.
        """
        return all(record is None or row >= record for record, row in zip(self.records(), rows, strict=True))


def changes(spark: SparkSession, table: Identifier, parent_id: int, snapshot_id: int, specs: Mapping[int, PartitionSpec]) -> Changes:
    """Read what a commit added and removed, data and delete files; ``table`` is named with its catalog.

    Two aggregations of the commit's ``entries`` and one of its parent's, without statistics;
    the driver receives a row per changed partition.
    """
    entries = metadata_table(spark, table, "entries", snapshot_id)
    own = entries.where(f"snapshot_id = {snapshot_id} AND status > 0")
    names = unified(specs.values())
    distinct = own.selectExpr("data_file.spec_id AS spec_id", *partition_columns(own, "data_file.partition", names)).distinct()
    partitions = sorted(set(Partitions(specs, names).read(distinct.toArrow())), key=_order)
    # Live in the commit and not added by it, or removed by it: the parent's live files.
    kept = entries.where(f"CASE WHEN snapshot_id = {snapshot_id} THEN status <> 1 ELSE status < 2 END")
    before = metadata_table(spark, table, "entries", parent_id).where("status < 2")

    def records() -> tuple[int | None, int | None]:
        now = entries.where("status < 2")
        first, second = (_records(side, distinct, specs, names) for side in (before, now))
        return first, second

    return Changes(tuple(partitions), is_complete=_files(kept) == _files(before), records=records)


def _records(entries: DataFrame, partitions: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]]) -> int | None:
    """The rows that the data files of some partitions hold, less those that deletion vectors take; None under other deletes."""
    from pyspark.sql import functions as F

    columns = ["spec_id", *(f"p{i}" for i in range(len(names)))]
    rows = entries.selectExpr(
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", names),
        f"{CONTENT} AS content",
        "upper(data_file.file_format) = 'PUFFIN' AS is_vector",
        "data_file.record_count AS records",
    )
    unpartitioned = [spec_id for spec_id, spec in specs.items() if spec.is_unpartitioned]
    everywhere = (F.col("content") == 2) & F.col("spec_id").isin(unpartitioned)
    same = [F.col(f"e.{name}").eqNullSafe(F.col(f"c.{name}")) for name in columns]
    inside = F.col("c.spec_id").isNotNull()
    sums = (
        rows.alias("e")
        .join(F.broadcast(partitions).alias("c"), same, "left")
        .select(inside.alias("inside"), "e.spec_id", "content", "is_vector", "records")
        .agg(
            F.sum(F.when(F.col("inside") & (F.col("content") == 0), F.col("records")).otherwise(0)),
            F.sum(F.when(F.col("inside") & F.col("is_vector"), F.col("records")).otherwise(0)),
            F.count_if((F.col("inside") & (F.col("content") > 0) & ~F.col("is_vector")) | everywhere),
        )
        .first()
    )
    if sums is None or sums[2]:
        return None
    return int(sums[0] or 0) - int(sums[1] or 0)


def _files(entries: DataFrame) -> Print:
    return prints(entries.selectExpr(f"{_FILE} AS h"))[()]


def _order(partition: Partition) -> tuple[int, list[tuple[bool, str]]]:
    # Values of one field may be null or, where a spec changed, of different types.
    return partition.spec_id, [(value is None, str(value)) for value in partition.values]
