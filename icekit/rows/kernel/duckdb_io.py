"""What DuckDB reads and gives back: settings, rows as a source, and values that it leaves as they
are.

Executors get the source of this module from the driver, so it imports nothing of icekit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa


def duckdb_settings(
    memory_bytes: int, spill_folder: str
) -> dict[str, str | bool | int | float | list[str]]:
    """The settings of DuckDB, which spills to a folder what takes more memory."""
    return {
        # Spark's other tasks have the other cores.
        "threads": 1,
        "memory_limit": f"{memory_bytes}B",
        "temp_directory": spill_folder,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }


def connect(config: Mapping[str, Any]) -> Any:
    """A connection to DuckDB with these settings. In a notebook, it would print its progress."""
    import duckdb

    connection = duckdb.connect(config=dict(config))
    connection.execute("SET enable_progress_bar = false")
    return connection


class RowSource:
    """Rows that DuckDB reads. It gives their error as a text, so the error is kept."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: Exception | None = None
        self.reader = pa.RecordBatchReader.from_batches(schema, self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception as error:
            self._error = error
            raise

    def raise_error(self) -> None:
        """Raise the error that ended the rows, if there was one."""
        if self._error is not None:
            raise self._error


def can_store(arrow_type: pa.DataType) -> bool:
    """Whether values of a type come out of DuckDB as they went in."""
    try:
        to_duckdb(pa.nulls(0, storage_type_of(arrow_type)))
    except NotImplementedError:
        return False
    return True


def storage_type_of(arrow_type: pa.DataType) -> pa.DataType:
    """The type that an extension type is stored as; another type itself."""
    return arrow_type.storage_type if isinstance(arrow_type, pa.BaseExtensionType) else arrow_type


def to_duckdb(column: pa.Array) -> pa.Array:
    """A column without an extension type, in a type whose values DuckDB leaves as they are, and
    orders as Iceberg does, but for floating-point numbers.
    """
    arrow_type = column.type
    if pa.types.is_float32(arrow_type) or pa.types.is_date32(arrow_type):
        return column.view(pa.int32())
    if pa.types.is_float64(arrow_type) or pa.types.is_timestamp(arrow_type):
        return column.view(pa.int64())
    if pa.types.is_string(arrow_type) or pa.types.is_fixed_size_binary(arrow_type):
        return column.cast(pa.binary())
    if (
        pa.types.is_boolean(arrow_type)
        or pa.types.is_integer(arrow_type)
        or pa.types.is_decimal(arrow_type)
        or pa.types.is_binary(arrow_type)
    ):
        return column
    raise NotImplementedError(f"a column of the type {arrow_type}")


def from_duckdb(column: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """A column of :func:`to_duckdb` in the type that it had."""
    storage_type = storage_type_of(arrow_type)
    if column.type != storage_type:
        is_reinterpreted = pa.types.is_integer(column.type) or pa.types.is_string(storage_type)
        column = column.view(storage_type) if is_reinterpreted else column.cast(storage_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, column)
    return column
