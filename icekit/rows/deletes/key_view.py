"""Present the keys of data files and of equality delete files to Spark, and nothing else from these
files.

A key view is an Iceberg table that exists only in this session's JVM: its scan tasks read the
table's own data files and delete files. Its schema holds the key columns by field id, so Iceberg's
readers handle formats, renamed and promoted columns; the other properties of a file that a join
needs (its number, its order by sequence number, its partition) are its partition values, which cost
nothing to read, unlike a column with the path. A key column that the table is partitioned by has
the value of a data file's partition, as Iceberg reads it, so the view has a spec for each of the
table's.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.metadata import properties_of
from icekit.rows.deletes.conversion_inputs import ConversionInputs
from icekit.rows.deletes.key_table import KeyTable
from icekit.rows.deletes.keys import DeleteKeys, KeySet
from icekit.rows.deletes.listing import File, zero_joined
from icekit.rows.deletes.ruled_out import delete_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The partition fields of a file in the view.
FILE = "f"
SEQUENCE = "s"
PART = "p"
_COLUMNS = ((FILE, "int"), (SEQUENCE, "long"), (PART, "int"))
#: The field id of the first such partition field.
_PARTITION = 1000
# What a task reads, at least and at most (Iceberg's TableScanUtil.adjustSplitSize and
# read.split.target-size), and what a file counts at least: keys are a small part of it, so one task
# can read many.
_SMALLEST_SPLIT = 2**24
_SPLIT = 2**27
_FILE_COST = 2**20


class KeyView:
    """The keys of the files that were found as frames, each staged when it is first asked for and
    valid until ``stack`` ends; writes nothing.

    Columns are named after their field ids. Beside them are :data:`FILE` (a data file's place in
    the listing), :data:`SEQUENCE` (:func:`~icekit.rows.deletes.ruled_out.delete_order`) and
    :data:`PART`.
    """

    def __init__(
        self, spark: SparkSession, inputs: ConversionInputs, stack: contextlib.ExitStack
    ) -> None:
        self._spark = spark
        self._inputs = inputs
        self._stack = stack
        metadata = _view_metadata(
            inputs.snapshot_deletes.metadata, inputs.keys, inputs.snapshot_deletes.specs
        )
        self._table = KeyTable(spark, inputs.snapshot_deletes.table, metadata)
        self._spec_of_deletes = int(metadata["default-spec-id"])
        self._deletes: dict[int, DataFrame] = {}
        self._parts: Collection[int] | None = None

    def of_partitions(self, partition_numbers: Collection[int]) -> KeyView:
        """The view of some partitions, by their numbers, with the deletes that apply there."""
        partial_view = copy.copy(self)
        partial_view.__dict__.pop("data", None)
        partial_view._deletes = {}
        partial_view._parts = {*partition_numbers, -1}
        return partial_view

    def _has_partition_of(self, file: File) -> bool:
        return self._parts is None or file.partition_number in self._parts

    @cached_property
    def data(self) -> DataFrame:
        """The rows of all data files."""
        numbered_files = [
            (i, file)
            for i, file in enumerate(self._inputs.data_files)
            if self._has_partition_of(file)
        ]
        partition_values = [
            (i, delete_order(file.sequence_number), file.partition_number)
            for i, file in numbered_files
        ]
        return self._read_keys(
            partition_values, sum(file.size_bytes for _, file in numbered_files), is_data=True
        )

    def deletes(self, key_set: KeySet) -> DataFrame:
        """The delete records of a key set."""
        if key_set.set_index not in self._deletes:
            numbered_files = [
                numbered_file
                for numbered_file in self._inputs.deletes_of(key_set)
                if self._has_partition_of(numbered_file[1])
            ]
            partition_values = [
                (i, delete_order(f.sequence_number, file_index), f.partition_number)
                for i, f, file_index in numbered_files
            ]
            size_bytes = sum(file.size_bytes for _, file, _ in numbered_files)
            self._deletes[key_set.set_index] = self._read_keys(
                partition_values, size_bytes, is_data=False
            )
        return self._deletes[key_set.set_index]

    def _read_keys(
        self, partition_values: Sequence[tuple[int, ...]], size_bytes: int, *, is_data: bool
    ) -> DataFrame:
        values_text = zero_joined(
            file_value for file_values in partition_values for file_value in file_values
        )
        listing = self._inputs.snapshot_deletes.listing.java
        staging = self._table.staging
        scan_tasks = self._table.java.tasks(
            staging.java, listing, values_text, is_data, self._spec_of_deletes
        )
        split_bytes = size_bytes // self._spark.sparkContext.defaultParallelism
        options = {
            "split-size": str(min(max(split_bytes, _SMALLEST_SPLIT), _SPLIT)),
            "file-open-cost": str(_FILE_COST),
        }
        return self._stack.enter_context(staging.staged_rows(scan_tasks, options))


def _view_metadata(
    table_metadata: Mapping[str, Any], keys: DeleteKeys, specs_by_id: Mapping[int, PartitionSpec]
) -> dict[str, Any]:
    """The metadata of an empty table with the key columns and those that describe a file."""
    first_column_id = int(table_metadata.get("last-column-id") or 0) + 1
    file_columns = [
        {"id": first_column_id + i, "name": name, "required": True, "type": column_type}
        for i, (name, column_type) in enumerate(_COLUMNS)
    ]
    file_fields = [
        _identity_field(name, first_column_id + i, _PARTITION + i)
        for i, (name, _) in enumerate(_COLUMNS)
    ]
    partition_ids = {
        column_id: _PARTITION + len(_COLUMNS) + i
        for i, column_id in enumerate(sorted(keys.columns))
    }
    constant_ids_by_spec = {
        spec_id: {f.source_id for f in spec.fields if f.transform == "identity"}
        & partition_ids.keys()
        for spec_id, spec in specs_by_id.items()
    }
    deletes_spec_id = max(specs_by_id, default=0) + 1
    name_mapping = properties_of(table_metadata).get("schema.name-mapping.default")
    return {
        "format-version": 2,
        "location": str(table_metadata["location"]),
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": first_column_id + len(_COLUMNS),
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [*keys.fields, *file_columns]}],
        "default-spec-id": deletes_spec_id,
        "partition-specs": [
            {
                "spec-id": spec_id,
                "fields": [
                    *file_fields,
                    *(_identity_field(f"i{i}", i, partition_ids[i]) for i in sorted(constant_ids)),
                ],
            }
            for spec_id, constant_ids in {**constant_ids_by_spec, deletes_spec_id: set()}.items()
        ],
        "last-partition-id": _PARTITION + len(_COLUMNS) + len(partition_ids),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"schema.name-mapping.default": name_mapping} if name_mapping else {},
        "snapshots": [],
    }


def _identity_field(name: str, source_id: int, field_id: int) -> dict[str, Any]:
    """A partition field."""
    return {"name": name, "transform": "identity", "source-id": source_id, "field-id": field_id}
