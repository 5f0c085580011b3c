"""Sort rows in a Python worker of a Spark task, by DuckDB, which spills what exceeds its memory.

Executors get the source of this module and of :mod:`icekit.rows.kernel.duckdb_io` from the driver,
so it imports nothing else of icekit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icekit.rows.kernel.duckdb_io import RowSource, connect, from_duckdb, to_duckdb

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


def in_order(
    rows: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    order: Sequence[SortColumn],
    duckdb_settings: Mapping[str, Any],
) -> Iterator[pa.RecordBatch]:
    """Rows of a schema in an order; ``duckdb_settings`` are those of DuckDB.

    Nothing of a value depends on DuckDB: floating-point numbers pass as their bits, and strings as
    their bytes. Raises :class:`duckdb.OutOfMemoryException`, and what ``rows`` raise.
    """
    empty_batch = pa.record_batch(
        [pa.nulls(0, schema_field.type) for schema_field in schema], schema=schema
    )
    stored_schema = _with_sort_columns(empty_batch, order).schema
    row_source = RowSource(stored_schema, (_with_sort_columns(batch, order) for batch in rows))
    columns_sql = ", ".join(f"c{index}" for index in range(len(schema)))
    order_sql = ", ".join(column.sql for column in order)
    with connect(duckdb_settings) as connection:
        connection.register("rows", row_source.reader)
        ordered_rows = connection.sql(f"SELECT {columns_sql} FROM rows ORDER BY {order_sql}")
        try:
            for batch in ordered_rows.to_arrow_reader(_BATCH_ROWS):
                columns = [
                    from_duckdb(column, schema_field.type)
                    for column, schema_field in zip(batch.columns, schema, strict=True)
                ]
                yield pa.record_batch(columns, schema=schema)
        except Exception:
            row_source.raise_error()
            raise


def _with_sort_columns(batch: pa.RecordBatch, order: Sequence[SortColumn]) -> pa.RecordBatch:
    """The columns as DuckDB stores them, and those that it sorts by."""
    stored_columns = [
        column.storage if isinstance(column, pa.ExtensionArray) else column
        for column in batch.columns
    ]
    columns_by_name = {
        f"c{index}": to_duckdb(column) for index, column in enumerate(stored_columns)
    }
    for sort_column in order:
        column = stored_columns[sort_column.index]
        # The bits of floating-point numbers have another order.
        is_float = pa.types.is_floating(column.type)
        columns_by_name[f"s{sort_column.index}"] = (
            column if is_float else columns_by_name[f"c{sort_column.index}"]
        )
    return pa.record_batch(columns_by_name)
