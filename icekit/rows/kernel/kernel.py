"""Resolve a part in a Python worker of a Spark task: rows that no delete deletes go to new files,
or the rows that equality deletes delete are only told.

Rows stay in Arrow from the old files to the new ones, unless they are sorted. Executors get the
source of this module and of those that it imports from the driver, and have nothing else of icekit.
"""

from __future__ import annotations

import array
import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from icekit.rows.kernel.current_schema import field_id_of, in_current_schema
from icekit.rows.kernel.duckdb_io import duckdb_settings
from icekit.rows.kernel.hashes import RowSums
from icekit.rows.kernel.kernel_settings import KernelSettings
from icekit.rows.kernel.live_rows import rows_deleted_by_keys, without_deleted_positions
from icekit.rows.kernel.new_files import NewFiles
from icekit.rows.kernel.old_files import OldFiles
from icekit.rows.kernel.part import Part
from icekit.rows.kernel.refusals import KernelRefused
from icekit.rows.kernel.row_order import in_order

# Rows that are decoded at a time: small enough for a processor's cache.
_BATCH_ROWS = 16_384


def resolve(part_json: str, settings: KernelSettings, spill_folder: str, attempt: str) -> str:
    """Write the rows of a part that live; returns as JSON the new files, and what was read.

    ``attempt`` tells the files of one attempt of a task from those of another. DuckDB spills to
    ``spill_folder``. Raises :class:`KernelRefused`, and removes what it has written where it fails.
    """
    part = Part.of_json(part_json, attempt)
    old_files = OldFiles(part, settings)
    is_live = None
    rows_read = old_files.row_count
    if part.equality_deletes or part.position_deletes or part.vectors:
        is_live = without_deleted_positions(old_files)
        rows_read = int(is_live.sum())
        for row_numbers in rows_deleted_by_keys(old_files, spill_folder):
            is_live[row_numbers] = False
    new_files = NewFiles(old_files)
    try:
        total_sums, sums_by_file = _write(old_files, new_files, is_live, spill_folder)
        new_files.close()
    except BaseException:
        new_files.remove()
        raise
    return json.dumps(
        {
            "files": new_files.closed,
            "read": rows_read,
            "rows": total_sums.rows,
            "sum": str(total_sums.hash_sum),
            "chosen": [
                [file_number, file_sums.rows, str(file_sums.hash_sum)]
                for file_number, file_sums in sums_by_file.items()
            ],
        }
    )


def deleted_rows(part_json: str, settings: KernelSettings, spill_folder: str, attempt: str) -> str:
    """The positions of the rows that equality deletes delete in a part's data files; returns as
    JSON a bitmap of each file that has some, by its number. Nothing is written.
    """
    import numpy as np
    from pyroaring import BitMap64

    old_files = OldFiles(Part.of_json(part_json, attempt), settings)
    is_dead = np.zeros(old_files.row_count, bool)
    for row_numbers in rows_deleted_by_keys(old_files, spill_folder):
        is_dead[row_numbers] = True
    bitmaps_by_file = {}
    for file_number, data_file in enumerate(old_files.part.data_files):
        first_row = old_files.first_rows[file_number]
        positions = np.flatnonzero(is_dead[first_row : first_row + data_file.row_count])
        if len(positions):
            bitmap = BitMap64(array.array("Q", positions.astype(np.uint64).tobytes()))
            bitmaps_by_file[file_number] = base64.b64encode(bitmap.serialize()).decode()
    return json.dumps({"bitmaps": bitmaps_by_file})


def _write(
    old_files: OldFiles, new_files: NewFiles, is_live: Any, spill_folder: str
) -> tuple[RowSums, Mapping[int, RowSums]]:
    """Write the rows that live (``is_live`` is None if all do); returns the sums of all of them,
    and of those of each file whose rows are added up by themselves.
    """
    import duckdb

    live_count = old_files.row_count if is_live is None else int(is_live.sum())
    new_files.expect(live_count)
    total_sums = RowSums()
    sums_by_file = {file_number: RowSums() for file_number in old_files.part.summed_files}
    settings = old_files.settings
    batches = _live_batches(old_files, is_live, total_sums, sums_by_file)
    if settings.sort_columns:
        config = duckdb_settings(settings.memory_bytes, spill_folder)
        batches = in_order(batches, settings.schema, settings.sort_columns, config)
    try:
        for batch in batches:
            new_files.write(batch)
    except duckdb.OutOfMemoryException as error:
        raise KernelRefused("its rows take more memory to sort than a worker has") from error
    if total_sums.rows != live_count:
        raise KernelRefused(f"{total_sums.rows:,} rows were read, but {live_count:,} live")
    return total_sums, sums_by_file


def _live_batches(
    old_files: OldFiles, is_live: Any, total_sums: RowSums, sums_by_file: Mapping[int, RowSums]
) -> Iterator[pa.RecordBatch]:
    """The rows that live, in the order of the old files; they are added up as they are read."""
    for file_number, data_file in enumerate(old_files.part.data_files):
        next_position = 0
        parquet_file = old_files.opened_data(data_file)
        # The partition's values take the place of the file's.
        column_names = [
            column.name
            for column in parquet_file.schema_arrow
            if str(field_id_of(column)) not in data_file.constants
        ]
        for batch in parquet_file.iter_batches(
            _BATCH_ROWS, columns=column_names or None, use_threads=False
        ):
            first_position = next_position
            next_position += batch.num_rows
            first_row = old_files.first_rows[file_number] + first_position
            live_mask = None
            if is_live is not None:
                live_mask = is_live[first_row : first_row + batch.num_rows]
                if not live_mask.any():
                    continue
            rows = in_current_schema(batch, data_file, first_position, old_files.settings.schema)
            if live_mask is not None and not live_mask.all():
                rows = rows.filter(pa.array(live_mask))
            # What was read is hashed, and Spark reads what was written.
            total_sums.add(rows)
            if file_number in sums_by_file:
                sums_by_file[file_number].add(rows)
            yield rows
