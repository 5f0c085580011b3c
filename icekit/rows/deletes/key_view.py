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
from icekit.rows.deletes.applies import order_of
from icekit.rows.deletes.find import ConversionInputs
from icekit.rows.deletes.key_table import KeyTable
from icekit.rows.deletes.keys import DeleteKeys, KeySet
from icekit.rows.deletes.listing import File, joined

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
    the listing), :data:`SEQUENCE` (:func:`~icekit.rows.deletes.applies.order_of`) and :data:`PART`.
    """

    def __init__(
        self, spark: SparkSession, inputs: ConversionInputs, stack: contextlib.ExitStack
    ) -> None:
        self._spark = spark
        self._inputs = inputs
        self._stack = stack
        metadata = _metadata(
            inputs.snapshot_deletes.metadata, inputs.keys, inputs.snapshot_deletes.specs
        )
        self._table = KeyTable(spark, inputs.snapshot_deletes.table, metadata)
        self._spec_of_deletes = int(metadata["default-spec-id"])
        self._deletes: dict[int, DataFrame] = {}
        self._parts: Collection[int] | None = None

    def of_parts(self, parts: Collection[int]) -> KeyView:
        """The view of some partitions, by their numbers, with the deletes that apply there."""
        view = copy.copy(self)
        view.__dict__.pop("data", None)
        view._deletes = {}
        view._parts = {*parts, -1}
        return view

    def _has(self, file: File) -> bool:
        return self._parts is None or file.part in self._parts

    @cached_property
    def data(self) -> DataFrame:
        """The rows of all data files."""
        files = [(i, file) for i, file in enumerate(self._inputs.data) if self._has(file)]
        rows = [(i, order_of(file.sequence), file.part) for i, file in files]
        return self._read(rows, sum(file.size for _, file in files), is_data=True)

    def deletes(self, key_set: KeySet) -> DataFrame:
        """The delete records of a key set."""
        if key_set.kind not in self._deletes:
            files = [each for each in self._inputs.deletes_of(key_set) if self._has(each[1])]
            rows = [(i, order_of(f.sequence, order), f.part) for i, f, order in files]
            size = sum(file.size for _, file, _ in files)
            self._deletes[key_set.kind] = self._read(rows, size, is_data=False)
        return self._deletes[key_set.kind]

    def _read(
        self, rows: Sequence[tuple[int, ...]], size_bytes: int, *, is_data: bool
    ) -> DataFrame:
        text = joined(number for row in rows for number in row)
        listing = self._inputs.snapshot_deletes.listing.java
        staging = self._table.staging
        tasks = self._table.java.tasks(staging.java, listing, text, is_data, self._spec_of_deletes)
        split = size_bytes // self._spark.sparkContext.defaultParallelism
        options = {
            "split-size": str(min(max(split, _SMALLEST_SPLIT), _SPLIT)),
            "file-open-cost": str(_FILE_COST),
        }
        return self._stack.enter_context(staging.staged_rows(tasks, options))


def _metadata(
    table: Mapping[str, Any], keys: DeleteKeys, specs: Mapping[int, PartitionSpec]
) -> dict[str, Any]:
    """The metadata of an empty table with the key columns and those that describe a file."""
    first = int(table.get("last-column-id") or 0) + 1
    columns = [
        {"id": first + i, "name": name, "required": True, "type": kind}
        for i, (name, kind) in enumerate(_COLUMNS)
    ]
    own_fields = [
        _identity(name, first + i, _PARTITION + i) for i, (name, _) in enumerate(_COLUMNS)
    ]
    places = {
        column: _PARTITION + len(_COLUMNS) + i for i, column in enumerate(sorted(keys.columns))
    }
    constants = {
        number: {f.source_id for f in spec.fields if f.transform == "identity"} & places.keys()
        for number, spec in specs.items()
    }
    of_deletes = max(specs, default=0) + 1
    mapping = properties_of(table).get("schema.name-mapping.default")
    return {
        "format-version": 2,
        "location": str(table["location"]),
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": first + len(_COLUMNS),
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [*keys.fields, *columns]}],
        "default-spec-id": of_deletes,
        "partition-specs": [
            {
                "spec-id": number,
                "fields": [
                    *own_fields,
                    *(_identity(f"i{i}", i, places[i]) for i in sorted(columns_of)),
                ],
            }
            for number, columns_of in {**constants, of_deletes: set()}.items()
        ],
        "last-partition-id": _PARTITION + len(_COLUMNS) + len(places),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"schema.name-mapping.default": mapping} if mapping else {},
        "snapshots": [],
    }


def _identity(name: str, source_id: int, field_id: int) -> dict[str, Any]:
    """A partition field."""
    return {"name": name, "transform": "identity", "source-id": source_id, "field-id": field_id}
