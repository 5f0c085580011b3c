"""Find what a commit changed: its partitions, from the manifest entries that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.sql import Identifier, identifier
from icekit.engine.compat import arrow_of
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.health.facts.rollup import sort_key
from icekit.health.facts.spark_entries import Partitions, scalar_sql
from icekit.iceberg.definition import Column, PartitionField, PartitionSpec
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import field_expression
from icekit.rows.proof.fingerprint import Fingerprint, summed_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The identity of a file, and the order in which deletes apply to it.
_FILE = (
    "xxhash64(data_file.content, data_file.file_path, data_file.spec_id, sequence_number, "
    "data_file.record_count, isnull(data_file.content_offset), data_file.content_offset)"
)


@frozen
class Changes:
    """The partitions that a commit changed, sorted.

    ``is_complete`` is false if the files of the parent, minus the files it says it removed, plus
    the files it says it added, are not the commit's files: then it lost or gained files silently,
    and the changed partitions are not all of them. ``sides`` are the live entries at the parent
    and at the commit, and ``changed`` the partitions as a frame.
    """

    partitions: tuple[Partition, ...]
    is_complete: bool
    sides: tuple[DataFrame, DataFrame]
    changed: DataFrame
    partition_ids: Partitions
    specs: Mapping[int, PartitionSpec]
    catalog: str

    @property
    def may_disagree(self) -> bool:
        """Whether a file may hold rows with other values than its partition's: an identity value is
        read from the partition itself.
        """
        return bool(self._checked_fields)

    @property
    def _checked_fields(self) -> Sequence[tuple[int, PartitionField]]:
        """The fields, each with its spec's id, whose values rows have in columns of their own."""
        return [
            (spec_id, field)
            for spec_id in {p.spec_id for p in self.partitions}
            for field in self.specs[spec_id].fields
            if field.transform not in {"identity", "void"}
        ]

    def holds_rows(self, columns: Sequence[Column]) -> bool:
        """Whether all rows in the files of the changed partitions certainly have their partition's
        values, according to the files' bounds; ``columns`` are the table's current columns.
        """
        by_id = {column.field_id: column for column in columns}
        return all(
            self._agrees(side, spec_id, field, by_id.get(field.source_id))
            for side in self.sides
            for spec_id, field in self._checked_fields
            # Where a predicate selects complete partitions of every existing spec, Spark does not
            # check the bucket of each row (SparkScanBuilder).
            if not (len(self.specs) == 1 and field.transform.startswith("bucket"))
        )

    def _agrees(
        self, entries: DataFrame, spec_id: int, field: PartitionField, column: Column | None
    ) -> bool:
        """Whether the bounds of each data file of the changed partitions equal the partition's
        value in one field.

        Then all its rows do, because these transforms keep the order. Buckets have no order, and a
        file may have no bounds: neither counts as equal.
        """
        from pyspark.sql import functions as F

        bounds: Any = entries.schema["readable_metrics"].dataType
        if column is None or field.transform.startswith("bucket"):
            return False
        values = [
            field_expression(self.catalog, field, [replace(column, name=end, path=())])
            for end in ("low", "high")
        ]
        if column.name not in bounds.names or None in values:
            return False
        metrics = f"readable_metrics.{identifier(column.name)}"
        files = entries.where(f"{CONTENT} = 0 AND data_file.spec_id = {spec_id}").selectExpr(
            *self.partition_ids.entry_columns(entries),
            f"{metrics}.lower_bound AS low",
            f"{metrics}.upper_bound AS high",
            f"{metrics}.null_value_count = data_file.record_count AS are_null",
        )
        ids = [field_id for field_id, _ in self.partition_ids.names]
        same = [
            F.col(f"e.{name}").eqNullSafe(F.col(f"c.{name}"))
            for name in self.partition_ids.partition_columns
        ]
        inside = files.alias("e").join(F.broadcast(self.changed).alias("c"), same, "left_semi")
        ends = inside.selectExpr(
            f"p{ids.index(field.field_id)} AS value",
            "are_null",
            *(f"{value} AS {end}" for value, end in zip(values, ("low", "high"), strict=True)),
        )
        low = scalar_sql("low", ends.schema["low"].dataType.typeName())
        high = scalar_sql("high", ends.schema["high"].dataType.typeName())
        agree = f"{low} = value AND {high} = value OR value IS NULL AND are_null"
        return ends.where(f"NOT coalesce({agree}, false)").isEmpty()


def changes(
    spark: SparkSession,
    table: Identifier,
    parent_id: int,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
) -> Changes:
    """Read what a commit added and removed, data and delete files; ``table`` is named with its
    catalog.

    Two aggregations of the commit's ``entries`` and one of its parent's, without statistics;
    the driver receives a row per changed partition.
    """
    entries = metadata_table(spark, table, "entries", snapshot_id)
    commit_entries = entries.where(f"snapshot_id = {snapshot_id} AND status > 0")
    partition_ids = Partitions(specs)
    changed = commit_entries.selectExpr(*partition_ids.entry_columns(commit_entries)).distinct()
    partitions = sorted(set(partition_ids.read(arrow_of(changed))), key=sort_key)
    # Live in the commit and not added by it, or removed by it: the parent's live files.
    parent_files = entries.where(
        f"CASE WHEN snapshot_id = {snapshot_id} THEN status <> 1 ELSE status < 2 END"
    )
    before = metadata_table(spark, table, "entries", parent_id).where("status < 2")
    return Changes(
        tuple(partitions),
        is_complete=_files(parent_files) == _files(before),
        sides=(before, entries.where("status < 2")),
        changed=changed,
        partition_ids=partition_ids,
        specs=specs,
        catalog=table[0],
    )


def _files(entries: DataFrame) -> Fingerprint:
    return summed_up(entries, _FILE)
