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
    """A column of a row order: its place in the schema, and how its values are ordered."""

    place: int
    descending: bool
    nulls_first: bool

    @property
    def sql(self) -> str:
        """The term in DuckDB's ORDER BY."""
        direction = "DESC" if self.descending else "ASC"
        return f"s{self.place} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


def can_store(kind: pa.DataType) -> bool:
    """Whether values of a type come out of DuckDB as they went in."""
    try:
        _stored(pa.nulls(0, _plain(kind)))
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

    Nothing of a value depends on DuckDB: floating-point numbers pass as their bits, strings as their
    bytes. Only what is sorted by is there as it is. Raises :class:`duckdb.OutOfMemoryException`.
    """
    import duckdb

    empty = pa.record_batch([pa.nulls(0, each.type) for each in schema], schema=schema)
    stored_schema = _with_keys(empty, order).schema
    stored = (_with_keys(batch, order) for batch in rows)
    names = ", ".join(f"c{place}" for place in range(len(schema)))
    terms = ", ".join(column.sql for column in order)
    with duckdb.connect(config=dict(settings)) as connection:
        connection.register("rows", pa.RecordBatchReader.from_batches(stored_schema, stored))
        ordered = connection.sql(f"SELECT {names} FROM rows ORDER BY {terms}")
        for batch in ordered.to_arrow_reader(_BATCH_ROWS):
            columns = [
                _restored(column, each.type)
                for column, each in zip(batch.columns, schema, strict=True)
            ]
            yield pa.record_batch(columns, schema=schema)


def _with_keys(batch: pa.RecordBatch, order: Sequence[SortColumn]) -> pa.RecordBatch:
    """The columns as DuckDB stores them, and those that it sorts by."""
    plain = [_storage(column) for column in batch.columns]
    columns = {f"c{place}": _stored(column) for place, column in enumerate(plain)}
    for each in order:
        column = plain[each.place]
        is_float = pa.types.is_floating(column.type)
        columns[f"s{each.place}"] = column if is_float else columns[f"c{each.place}"]
    return pa.record_batch(columns)


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _stored(column: pa.Array) -> pa.Array:
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


def _restored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of :func:`_stored` in the type that it had."""
    plain = _plain(kind)
    if column.type != plain:
        is_number = pa.types.is_integer(column.type)
        column = column.view(plain) if is_number else column.cast(plain)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, column)
    return column
