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
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint_of

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
    entries_before_and_after: tuple[DataFrame, DataFrame]
    changed_partitions: DataFrame
    partition_reader: Partitions
    specs_by_id: Mapping[int, PartitionSpec]
    catalog_name: str

    @property
    def may_hold_other_values(self) -> bool:
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
            for field in self.specs_by_id[spec_id].fields
            if field.transform not in {"identity", "void"}
        ]

    def holds_rows(self, columns: Sequence[Column]) -> bool:
        """Whether all rows in the files of the changed partitions certainly have their partition's
        values, according to the files' bounds; ``columns`` are the table's current columns.
        """
        columns_by_id = {column.field_id: column for column in columns}
        return all(
            self._bounds_agree(entries, spec_id, field, columns_by_id.get(field.source_id))
            for entries in self.entries_before_and_after
            for spec_id, field in self._checked_fields
            # Where a predicate selects complete partitions of every existing spec, Spark does not
            # check the bucket of each row (SparkScanBuilder).
            if not (len(self.specs_by_id) == 1 and field.transform.startswith("bucket"))
        )

    def _bounds_agree(
        self, entries: DataFrame, spec_id: int, field: PartitionField, column: Column | None
    ) -> bool:
        """Whether the bounds of each data file of the changed partitions equal the partition's
        value in one field.

        Then all its rows do, because these transforms keep the order. Buckets have no order, and a
        file may have no bounds: neither counts as equal.
        """
        from pyspark.sql import functions as F

        bounds_type: Any = entries.schema["readable_metrics"].dataType
        if column is None or field.transform.startswith("bucket"):
            return False
        bounds_sql = [
            field_expression(self.catalog_name, field, [replace(column, name=bound_name, path=())])
            for bound_name in ("low", "high")
        ]
        if column.name not in bounds_type.names or None in bounds_sql:
            return False
        metrics_sql = f"readable_metrics.{identifier(column.name)}"
        data_files = entries.where(f"{CONTENT} = 0 AND data_file.spec_id = {spec_id}").selectExpr(
            *self.partition_reader.entry_columns(entries),
            f"{metrics_sql}.lower_bound AS low",
            f"{metrics_sql}.upper_bound AS high",
            f"{metrics_sql}.null_value_count = data_file.record_count AS are_null",
        )
        field_ids = [field_id for field_id, _ in self.partition_reader.names]
        same_partition = [
            F.col(f"e.{partition_column}").eqNullSafe(F.col(f"c.{partition_column}"))
            for partition_column in self.partition_reader.partition_columns
        ]
        changed_files = data_files.alias("e").join(
            F.broadcast(self.changed_partitions).alias("c"), same_partition, "left_semi"
        )
        file_bounds = changed_files.selectExpr(
            f"p{field_ids.index(field.field_id)} AS value",
            "are_null",
            *(
                f"{bound_sql} AS {bound_name}"
                for bound_sql, bound_name in zip(bounds_sql, ("low", "high"), strict=True)
            ),
        )
        low_sql = scalar_sql("low", file_bounds.schema["low"].dataType.typeName())
        high_sql = scalar_sql("high", file_bounds.schema["high"].dataType.typeName())
        agree_sql = f"{low_sql} = value AND {high_sql} = value OR value IS NULL AND are_null"
        return file_bounds.where(f"NOT coalesce({agree_sql}, false)").isEmpty()


def changes(
    spark: SparkSession,
    table: Identifier,
    parent_id: int,
    snapshot_id: int,
    specs_by_id: Mapping[int, PartitionSpec],
) -> Changes:
    """Read what a commit added and removed, data and delete files; ``table`` is named with its
    catalog.

    Two aggregations of the commit's ``entries`` and one of its parent's, without statistics;
    the driver receives a row per changed partition.
    """
    entries = metadata_table(spark, table, "entries", snapshot_id)
    commit_entries = entries.where(f"snapshot_id = {snapshot_id} AND status > 0")
    partition_reader = Partitions(specs_by_id)
    changed_partitions = commit_entries.selectExpr(
        *partition_reader.entry_columns(commit_entries)
    ).distinct()
    partitions = sorted(set(partition_reader.read(arrow_of(changed_partitions))), key=sort_key)
    # Live in the commit and not added by it, or removed by it: the parent's live files.
    inherited_entries = entries.where(
        f"CASE WHEN snapshot_id = {snapshot_id} THEN status <> 1 ELSE status < 2 END"
    )
    parent_entries = metadata_table(spark, table, "entries", parent_id).where("status < 2")
    return Changes(
        tuple(partitions),
        is_complete=_files_fingerprint(inherited_entries) == _files_fingerprint(parent_entries),
        entries_before_and_after=(parent_entries, entries.where("status < 2")),
        changed_partitions=changed_partitions,
        partition_reader=partition_reader,
        specs_by_id=specs_by_id,
        catalog_name=table[0],
    )


def _files_fingerprint(entries: DataFrame) -> Fingerprint:
    return fingerprint_of(entries, _FILE)
