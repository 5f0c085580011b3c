"""Sort rows in a Python worker of a Spark task, by DuckDB, which spills what exceeds its memory.

Executors get the source of this module and of :mod:`icekit.rows.kernel.duckdb_io` from the driver, so it
imports nothing else of icekit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icekit.rows.kernel.duckdb_io import Source, from_duckdb, to_duckdb

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
                    from_duckdb(column, each.type)
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
    columns = {f"c{index}": to_duckdb(column) for index, column in enumerate(storage)}
    for each in order:
        column = storage[each.index]
        # The bits of floating-point numbers have another order.
        is_float = pa.types.is_floating(column.type)
        columns[f"s{each.index}"] = column if is_float else columns[f"c{each.index}"]
    return pa.record_batch(columns)
