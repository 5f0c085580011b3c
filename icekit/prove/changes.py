"""Find what a commit changed: its partitions, from the manifest entries that it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.facts.model import Partition, PartitionSpec
from icekit.facts.spark import Partitions, metadata_table, partition_columns, unified
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
    its changed partitions say too little.
    """

    partitions: tuple[Partition, ...]
    is_complete: bool


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
    return Changes(tuple(partitions), is_complete=_files(kept) == _files(before))


def _files(entries: DataFrame) -> Print:
    return prints(entries.selectExpr(f"{_FILE} AS h"))[()]


def _order(partition: Partition) -> tuple[int, list[tuple[bool, str]]]:
    # Values of one field may be null or, where a spec changed, of different types.
    return partition.spec_id, [(value is None, str(value)) for value in partition.values]
