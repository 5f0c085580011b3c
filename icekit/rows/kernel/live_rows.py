"""Which rows of the old files live, by all deletes that apply to them.

DuckDB compares keys alone, and says by number which rows are deleted. Executors get the source of
this module from the driver, so it imports nothing of icekit but modules that they get, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from icekit.rows.kernel.current_schema import constant_column, field_id_of, fields_of
from icekit.rows.kernel.duckdb_io import (
    RowSource,
    can_store,
    connect,
    duckdb_settings,
    storage_type_of,
    to_duckdb,
)
from icekit.rows.kernel.old_files import OldFiles
from icekit.rows.kernel.part import DataFile, EqualityDeletes
from icekit.rows.kernel.refusals import KernelRefused, RuledOut

# Rows of only a few columns that are decoded at a time.
_BATCH_ROWS = 65_536
# An order has the sequence number above the index of the file
# (icekit.rows.deletes.ruled_out.delete_order).
_INDEX_BITS = 32


def without_deleted_positions(old_files: OldFiles) -> Any:
    """A boolean for each row of the old files, in their order: whether it lives according to
    position deletes and deletion vectors.
    """
    import numpy as np

    part = old_files.part
    is_live = np.ones(old_files.row_count, bool)
    for positions, file_number in _deleted_positions(old_files):
        first_row = old_files.first_rows[file_number]
        if len(positions) and int(positions.max()) >= part.data_files[file_number].row_count:
            raise KernelRefused("a position delete beyond the end of its data file")
        is_live[first_row + positions] = False
    return is_live


def _deleted_positions(old_files: OldFiles) -> Iterator[tuple[Any, int]]:
    """The deleted positions of data files, each with the number of its file."""
    import numpy as np
    import pyarrow.compute as pc

    part = old_files.part
    numbers_with_vector = {file_number for file_number, *_ in part.vectors}
    for delete_path, file_numbers in part.position_deletes:
        # A vector replaces all other position deletes of its data file.
        numbers_by_path: dict[str, list[int]] = {}
        for file_number in file_numbers:
            if file_number not in numbers_with_vector:
                data_path = part.data_files[file_number].path
                numbers_by_path.setdefault(data_path, []).append(file_number)
        delete_file = old_files.open(delete_path)
        for batch in delete_file.iter_batches(_BATCH_ROWS, columns=["file_path", "pos"]):
            for data_path in pc.unique(batch.column(0)).to_pylist():
                if data_path not in numbers_by_path:
                    continue
                positions = batch.column(1).filter(pc.equal(batch.column(0), data_path))
                # A table may have a data file twice.
                for file_number in numbers_by_path[data_path]:
                    yield positions.to_numpy(zero_copy_only=False), file_number
    for file_number, vector_path, offset, length in part.vectors:
        from pyroaring import BitMap64

        blob = old_files.read_range(vector_path, offset, length)
        # Length, magic, bitmap, checksum (Puffin spec, "deletion-vector-v1").
        bitmap = BitMap64.deserialize(blob[8:-4])
        yield np.fromiter(bitmap, np.int64, len(bitmap)), file_number


def rows_deleted_by_keys(old_files: OldFiles, spill_folder: str) -> Iterator[Any]:
    """The numbers of the rows that equality deletes of any key delete; a row may come twice.

    Raises :class:`RuledOut` for a row whose delete Iceberg's scan rules out for its file.
    """
    for equality_deletes in old_files.part.equality_deletes:
        for row_numbers, orders in _deleted_by_key(old_files, equality_deletes, spill_folder):
            _check_listed(old_files, equality_deletes, row_numbers, orders)
            yield row_numbers


def _deleted_by_key(
    old_files: OldFiles, equality_deletes: EqualityDeletes, spill_folder: str
) -> Iterator[tuple[Any, Any]]:
    """The numbers of the rows with a newer delete of their key, and the order of the newest."""
    import duckdb

    field_ids = equality_deletes.field_ids
    data_files = old_files.part.data_files
    data_paths = [
        (data_file.path, (data_file.sequence_number + 1 << _INDEX_BITS) - 1)
        for data_file in data_files
    ]
    key_names = [f"k{i}" for i in range(len(field_ids))]
    keys_sql = ", ".join(key_names)
    # Not USING, and not =: a delete of a null deletes the rows with a null.
    same_key_sql = " AND ".join(f"d.{name} IS NOT DISTINCT FROM n.{name}" for name in key_names)
    config = duckdb_settings(old_files.settings.memory_bytes, spill_folder)
    with connect(config) as connection:
        deleted_keys = _key_source(old_files, field_ids, equality_deletes.paths_and_orders)
        row_keys = _key_source(old_files, field_ids, data_paths, data_files)
        connection.register("deletes", deleted_keys.reader)
        connection.register("data", row_keys.reader)
        dead_rows = connection.sql(
            f"SELECT d.row, n.newest FROM data d "
            f"JOIN (SELECT {keys_sql}, max(file_order) AS newest FROM deletes GROUP BY "
            f"{keys_sql}) n ON {same_key_sql} WHERE n.newest > d.file_order"
        )
        try:
            for batch in dead_rows.to_arrow_reader(1_000_000):
                yield batch.column(0).to_numpy(), batch.column(1).to_numpy()
        except duckdb.OutOfMemoryException as error:
            raise KernelRefused("its keys take more memory than a worker has") from error
        except Exception:
            deleted_keys.raise_error()
            row_keys.raise_error()
            raise


def _check_listed(
    old_files: OldFiles, equality_deletes: EqualityDeletes, row_numbers: Any, orders: Any
) -> None:
    """Refuse rows whose delete Iceberg's scan rules out for their file."""
    import numpy as np

    if not equality_deletes.ruled_out_words or not len(row_numbers):
        return
    file_numbers = np.searchsorted(old_files.first_rows, row_numbers, side="right") - 1
    delete_indexes = orders & ((1 << _INDEX_BITS) - 1)
    for file_number in np.unique(file_numbers):
        words = equality_deletes.ruled_out_words[file_number]
        if words is None:
            continue
        word_bits = np.array(words, np.int64).view(np.uint64)
        indexes = delete_indexes[file_numbers == file_number]
        indexes = indexes[indexes // 64 < len(word_bits)]
        shifts = (indexes % 64).astype(np.uint64)
        if np.any(word_bits[indexes // 64] >> shifts & np.uint64(1)):
            raise RuledOut(old_files.part.data_files[file_number].path)


def _key_source(
    old_files: OldFiles,
    field_ids: Sequence[int],
    paths_and_orders: Iterable[tuple[str, int]],
    data_files: Sequence[DataFile] = (),
) -> RowSource:
    """The keys in some files as columns ``k0``, ``k1`` …, with the order of the file; if these are
    ``data_files``, also with the number of each row.
    """
    import numpy as np

    key_types = [old_files.settings.key_types[field_id] for field_id in field_ids]
    fields = [
        pa.field(f"k{i}", _comparable(pa.nulls(0, key_type), key_type).type)
        for i, key_type in enumerate(key_types)
    ]
    fields.append(pa.field("file_order", pa.int64()))
    if data_files:
        fields.append(pa.field("row", pa.int64()))
    schema = pa.schema(fields)

    def key_batches() -> Iterator[pa.RecordBatch]:
        first_row = 0
        for index, (path, order) in enumerate(paths_and_orders):
            constants = data_files[index].constants if data_files else {}
            parquet_file = (
                old_files.opened_data(data_files[index]) if data_files else old_files.open(path)
            )
            name_paths = [_names_to(parquet_file.schema_arrow, field_id) for field_id in field_ids]
            column_names = [".".join(names) for names in name_paths if names]
            for batch in parquet_file.iter_batches(
                _BATCH_ROWS, columns=column_names, use_threads=False
            ):
                row_count = batch.num_rows
                columns: list[pa.Array] = []
                for field_id, names, key_type in zip(field_ids, name_paths, key_types, strict=True):
                    if str(field_id) in constants:
                        column = constant_column(constants[str(field_id)], key_type, row_count)
                    else:
                        column = _nested_column(batch, names, key_type)
                    columns.append(_comparable(column, key_type))
                columns.append(pa.repeat(pa.scalar(order, pa.int64()), row_count))
                if data_files:
                    columns.append(pa.array(np.arange(first_row, first_row + row_count)))
                first_row += row_count
                yield pa.record_batch(columns, schema=schema)

    return RowSource(schema, key_batches())


def _names_to(fields: Iterable[pa.Field], field_id: int) -> list[str]:
    """The names from the outermost struct to a field; empty where a file lacks it."""
    for field in fields:
        if field_id_of(field) == field_id:
            return [field.name]
        if pa.types.is_struct(field.type):
            inner_names = _names_to(fields_of(field.type), field_id)
            if inner_names:
                return [field.name, *inner_names]
    return []


def _nested_column(
    batch: pa.RecordBatch, names: Sequence[str], arrow_type: pa.DataType
) -> pa.Array:
    """A column by its names; nulls where the file lacks it."""
    if not names:
        return pa.nulls(batch.num_rows, arrow_type)
    column = batch.column(names[0])
    for name in names[1:]:
        # Of a struct that is null, each field is null.
        column = column.flatten()[column.type.get_field_index(name)]
    return column


def _comparable(column: pa.Array, key_type: pa.DataType) -> pa.Array:
    """A key column as values that DuckDB compares as Iceberg does; ``key_type`` is its type in the
    table.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    storage_type = storage_type_of(key_type)
    if column.type != storage_type:
        column = column.cast(storage_type)
    if pa.types.is_floating(storage_type) or not can_store(storage_type):
        raise KernelRefused(f"a key of the type {storage_type}")
    return to_duckdb(column)
