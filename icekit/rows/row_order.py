"""Sort rows in a Python worker of a Spark task, by DuckDB, which spills what exceeds its memory.

Executors get the source of this module from the driver, so it imports nothing of icekit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# Rows that DuckDB gives at a time.
_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class SortColumn:
    """A column of a row order: its index in the schema, and how its values are ordered."""

    index: int
    descending: bool
    nulls_first: bool

    @property
    def sql(self) -> str:
        """The term in DuckDB's ORDER BY."""
        direction = "DESC" if self.descending else "ASC"
        return f"s{self.index} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


class Source:
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


def can_store(kind: pa.DataType) -> bool:
    """Whether values of a type come out of DuckDB as they went in."""
    try:
        _to_duckdb(pa.nulls(0, _storage_type(kind)))
    except NotImplementedError:
        return False
    return True


def in_order(
    rows: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    order: Sequence[SortColumn],
    settings: Mapping[str, Any],
) -> Iterator[pa.RecordBatch]:
    """Rows of a schema in an order; ``settings`` are those of DuckDB.

    Nothing of a value depends on DuckDB: floating-point numbers pass as their bits, and strings as
    their bytes. Raises :class:`duckdb.OutOfMemoryException`, and what ``rows`` raise.
    """
    import duckdb

    empty = pa.record_batch([pa.nulls(0, each.type) for each in schema], schema=schema)
    stored_schema = _with_keys(empty, order).schema
    source = Source(stored_schema, (_with_keys(batch, order) for batch in rows))
    names = ", ".join(f"c{index}" for index in range(len(schema)))
    terms = ", ".join(column.sql for column in order)
    with duckdb.connect(config=dict(settings)) as connection:
        connection.register("rows", source.reader)
        ordered = connection.sql(f"SELECT {names} FROM rows ORDER BY {terms}")
        try:
            for batch in ordered.to_arrow_reader(_BATCH_ROWS):
                columns = [
                    _from_duckdb(column, each.type)
                    for column, each in zip(batch.columns, schema, strict=True)
                ]
                yield pa.record_batch(columns, schema=schema)
        except Exception:
            source.raise_error()
            raise


def _with_keys(batch: pa.RecordBatch, order: Sequence[SortColumn]) -> pa.RecordBatch:
    """The columns as DuckDB stores them, and those that it sorts by."""
    storage = [
        column.storage if isinstance(column, pa.ExtensionArray) else column
        for column in batch.columns
    ]
    columns = {f"c{index}": _to_duckdb(column) for index, column in enumerate(storage)}
    for each in order:
        column = storage[each.index]
        # The bits of floating-point numbers have another order.
        is_float = pa.types.is_floating(column.type)
        columns[f"s{each.index}"] = column if is_float else columns[f"c{each.index}"]
    return pa.record_batch(columns)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _to_duckdb(column: pa.Array) -> pa.Array:
    """A column in a type whose values DuckDB leaves as they are, and orders as Iceberg does, but for
    floating-point numbers.
    """
    kind = column.type
    if pa.types.is_float32(kind) or pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_float64(kind) or pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_binary(kind)
    ):
        return column
    raise NotImplementedError(f"a column of the type {kind}")


def _from_duckdb(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of :func:`_to_duckdb` in the type that it had."""
    storage_type = _storage_type(kind)
    if column.type != storage_type:
        has_bits = pa.types.is_integer(column.type) or pa.types.is_string(storage_type)
        column = column.view(storage_type) if has_bits else column.cast(storage_type)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, column)
    return column
