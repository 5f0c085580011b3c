"""Let the kernel find the rows that equality deletes delete, in Spark's tasks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from icekit.engine.bridge import java_object
from icekit.engine.compat import arrow_of
from icekit.iceberg.key_fields import field_paths
from icekit.rows.deletes.applies import EVERYWHERE, FILE, OWN, not_shown, order_of
from icekit.rows.deletes.find import ConversionInputs
from icekit.rows.deletes.listing import joined
from icekit.rows.kernel.job import KernelFailed, deleted_positions
from icekit.rows.kernel.kernel import RuledOut
from icekit.rows.kernel.table_writer import KernelUnavailable, key_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A choice: deletes of all partitions are read once for each of so many partitions; Spark reads them
# once.
_MOST_PARTITIONS = 8


def positions_by_kernel(
    spark: SparkSession, inputs: ConversionInputs, meanwhile: Callable[[], None]
) -> dict[int, BitMap64]:
    """The deleted positions per data file, by its place in ``inputs.data``; ``meanwhile`` is other
    work that has a core of its own.

    Raises :class:`~icekit.rows.kernel.table_writer.KernelUnavailable` where Spark has to find them.
    """
    _check_defaults(inputs)
    keys = {field_id: column.type_name for field_id, column in inputs.keys.columns.items()}
    reader = key_reader(spark, inputs.snapshot_deletes.table, keys)
    numbers_by_part: dict[int, list[int]] = defaultdict(list)
    for number, file in enumerate(inputs.data):
        numbers_by_part[file.part].append(number)
    is_global = any(key_set.is_global for key_set in inputs.key_sets)
    if is_global and len(numbers_by_part) > _MOST_PARTITIONS:
        raise KernelUnavailable("deletes of all partitions apply to many")
    parts = list(_parts(spark, inputs, numbers_by_part))
    size = sum(file.size for file in (*inputs.data, *inputs.deletes))
    try:
        by_part = deleted_positions(spark, parts, reader, meanwhile, size)
    except RuledOut as error:
        raise not_shown(str(error)) from None
    except KernelFailed as error:
        raise KernelUnavailable("it failed") from error
    return {
        numbers[index]: BitMap64.deserialize(bitmap)
        for numbers, bitmaps in zip(numbers_by_part.values(), by_part, strict=True)
        for index, bitmap in bitmaps.items()
    }


def _check_defaults(inputs: ConversionInputs) -> None:
    for field_id in inputs.keys.columns:
        for path in field_paths(inputs.snapshot_deletes.metadata, field_id):
            if any(each.get("initial-default") is not None for each in path):
                raise KernelUnavailable("a key column has an initial default")


def _parts(
    spark: SparkSession, inputs: ConversionInputs, numbers_by_part: Mapping[int, Sequence[int]]
) -> Iterator[str]:
    """What the kernel is told of each partition."""
    table = inputs.snapshot_deletes.table
    listing = inputs.snapshot_deletes.listing.java
    java = java_object(spark, table, "Kernel", table)
    if refusal := java.refusal(listing, len(inputs.data), len(inputs.deletes)):
        raise KernelUnavailable(str(refusal))
    first_places = joined(numbers[0] for numbers in numbers_by_part.values())
    constants = json.loads(java.constants(listing, first_places))
    ruled_out = _ruled_out(inputs)
    for (part, numbers), values in zip(numbers_by_part.items(), constants, strict=True):
        data = [
            {
                "path": inputs.data[number].path,
                "sequence": inputs.data[number].sequence,
                "first_row_id": None,
                "rows": inputs.data[number].records,
                "constants": values,
            }
            for number in numbers
        ]
        yield json.dumps(
            {
                "data": data,
                "deletes": list(_deletes(inputs, part, numbers, ruled_out)),
                "position_deletes": [],
                "vectors": [],
                "chosen": [],
                "outputs": [],
                "files": 0,
                "max_file_bytes": 0,
            }
        )


def _deletes(
    inputs: ConversionInputs,
    part: int,
    numbers: Sequence[int],
    ruled_out: Mapping[int, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """The equality deletes of a partition, by their key."""
    for key_set in inputs.key_sets:
        column = EVERYWHERE if key_set.is_global else OWN
        files = [
            (file.path, order_of(file.sequence, index))
            for _, file, index in inputs.deletes_of(key_set)
            if key_set.is_global or file.part == part
        ]
        if files:
            yield {
                "field_ids": key_set.field_ids,
                "files": files,
                "ruled_out": [ruled_out.get(number, {}).get(column) for number in numbers],
            }


def _ruled_out(inputs: ConversionInputs) -> Mapping[int, Mapping[str, Any]]:
    """The deletes that are ruled out for data files, by the file's number."""
    if inputs.ruled_out is None:
        return {}
    return {row[FILE]: row for row in arrow_of(inputs.ruled_out).to_pylist()}
