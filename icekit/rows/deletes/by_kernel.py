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
from icekit.rows.deletes.conversion_inputs import ConversionInputs
from icekit.rows.deletes.listing import zero_joined
from icekit.rows.deletes.ruled_out import EVERYWHERE, FILE, OWN, delete_order, ruled_out_error
from icekit.rows.kernel.job import KernelFailed, deleted_positions
from icekit.rows.kernel.refusals import RuledOut
from icekit.rows.kernel.table_settings import KernelUnavailable, reader_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A choice: deletes of all partitions are read once for each of so many partitions; Spark reads them
# once.
_MOST_PARTITIONS = 8


def positions_by_kernel(
    spark: SparkSession, inputs: ConversionInputs, meanwhile: Callable[[], None]
) -> dict[int, BitMap64]:
    """The deleted positions per data file, by its place in ``inputs.data_files``; ``meanwhile`` is
    other work that has a core of its own.

    Raises :class:`~icekit.rows.kernel.table_settings.KernelUnavailable` where Spark has to find
    them.
    """
    _refuse_initial_defaults(inputs)
    key_types = {field_id: column.type_name for field_id, column in inputs.keys.columns.items()}
    kernel_settings = reader_settings(spark, inputs.snapshot_deletes.table, key_types)
    file_numbers_by_partition: dict[int, list[int]] = defaultdict(list)
    for file_number, data_file in enumerate(inputs.data_files):
        file_numbers_by_partition[data_file.partition_number].append(file_number)
    is_global = any(key_set.is_global for key_set in inputs.key_sets)
    if is_global and len(file_numbers_by_partition) > _MOST_PARTITIONS:
        raise KernelUnavailable("deletes of all partitions apply to many")
    parts_json = list(_parts_json(spark, inputs, file_numbers_by_partition))
    size_bytes = sum(
        data_file.size_bytes for data_file in (*inputs.data_files, *inputs.delete_files)
    )
    try:
        bitmaps_of_parts = deleted_positions(
            spark, parts_json, kernel_settings, meanwhile, size_bytes
        )
    except RuledOut as error:
        raise ruled_out_error(str(error)) from None
    except KernelFailed as error:
        raise KernelUnavailable("it failed") from error
    return {
        file_numbers[index_in_part]: BitMap64.deserialize(bitmap)
        for file_numbers, bitmaps_by_index in zip(
            file_numbers_by_partition.values(), bitmaps_of_parts, strict=True
        )
        for index_in_part, bitmap in bitmaps_by_index.items()
    }


def _refuse_initial_defaults(inputs: ConversionInputs) -> None:
    for field_id in inputs.keys.columns:
        for key_path in field_paths(inputs.snapshot_deletes.metadata, field_id):
            if any(key_field.get("initial-default") is not None for key_field in key_path):
                raise KernelUnavailable("a key column has an initial default")


def _parts_json(
    spark: SparkSession,
    inputs: ConversionInputs,
    file_numbers_by_partition: Mapping[int, Sequence[int]],
) -> Iterator[str]:
    """What the kernel is told of each partition."""
    table = inputs.snapshot_deletes.table
    listing = inputs.snapshot_deletes.listing.java
    java = java_object(spark, table, "Kernel", table)
    if refusal := java.refusal(listing, len(inputs.data_files), len(inputs.delete_files)):
        raise KernelUnavailable(str(refusal))
    first_file_numbers = zero_joined(
        file_numbers[0] for file_numbers in file_numbers_by_partition.values()
    )
    constants_of_partitions = json.loads(java.constants(listing, first_file_numbers))
    ruled_out_by_file = _ruled_out_by_file(inputs)
    for (partition_number, file_numbers), constants_of_partition in zip(
        file_numbers_by_partition.items(), constants_of_partitions, strict=True
    ):
        data_files = [
            {
                "path": inputs.data_files[file_number].path,
                "sequence": inputs.data_files[file_number].sequence_number,
                "first_row_id": None,
                "rows": inputs.data_files[file_number].records,
                "constants": constants_of_partition,
            }
            for file_number in file_numbers
        ]
        yield json.dumps(
            {
                "data": data_files,
                "deletes": list(
                    _deletes_of_partition(inputs, partition_number, file_numbers, ruled_out_by_file)
                ),
                "position_deletes": [],
                "vectors": [],
                "chosen": [],
                "outputs": [],
                "files": 0,
                "max_file_bytes": 0,
            }
        )


def _deletes_of_partition(
    inputs: ConversionInputs,
    partition_number: int,
    file_numbers: Sequence[int],
    ruled_out_by_file: Mapping[int, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """The equality deletes of a partition, by their key."""
    for key_set in inputs.key_sets:
        ruled_out_column = EVERYWHERE if key_set.is_global else OWN
        paths_and_orders = [
            (delete_file.path, delete_order(delete_file.sequence_number, file_index))
            for _, delete_file, file_index in inputs.deletes_of(key_set)
            if key_set.is_global or delete_file.partition_number == partition_number
        ]
        if paths_and_orders:
            yield {
                "field_ids": key_set.field_ids,
                "files": paths_and_orders,
                "ruled_out": [
                    ruled_out_by_file.get(file_number, {}).get(ruled_out_column)
                    for file_number in file_numbers
                ],
            }


def _ruled_out_by_file(inputs: ConversionInputs) -> Mapping[int, Mapping[str, Any]]:
    """The deletes that are ruled out for data files, by the file's number."""
    if inputs.ruled_out is None:
        return {}
    return {row[FILE]: row for row in arrow_of(inputs.ruled_out).to_pylist()}
