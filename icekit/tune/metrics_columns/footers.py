"""Ask data files for their own statistics: the footer of a Parquet file has them whole, whatever the table kept of them.

Source: ``ParquetUtil.fileMetrics``, by which Iceberg itself takes the metrics of a file that it has written or that is added
(but for the NaN counts of floating-point columns, which only the writer sees).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from icekit.engine.bridge import load_now
from icekit.engine.metadata_tables import metadata_table, spread
from icekit.facts.model import TableFacts
from icekit.facts.parts import Column
from icekit.facts.values import from_bytes
from icekit.tune.filters.read import names_ever
from icekit.tune.filters.skipping import Bounds
from icekit.tune.metrics_columns.model import FULL, NONE

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Data files whose footers are read to simulate with.
SAMPLED_FOOTERS = 200


def real_bounds(lake: Lake, facts: TableFacts, columns: Sequence[Column], check: Callable[[], None]) -> dict[str, Bounds]:
    """The whole bounds of columns in up to 200 Parquet files from all over the table, by name; empty where there are none.

    Reads footers alone. ``check`` is called before each file, and may raise. Needs the JVM bridge.
    """
    if not columns or facts.snapshot_id is None:
        return {}
    files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files", facts.snapshot_id)
    listed = spread(files.where("upper(file_format) = 'PARQUET'"), SAMPLED_FOOTERS)
    footers = Footers(lake, load_now(lake.spark, lake.sql_name(facts.table)))
    config = footers.config(names_ever(lake, facts)[0], {c.field_id: FULL for c in columns})
    rows: list[list[tuple[Any, Any, bool, bool]]] = []
    for path in listed:
        check()
        metrics = footers.metrics(path, config)
        rows.append([footers.of(metrics, column) for column in columns])
    return {c.name: _bounds([row[place] for row in rows]) for place, c in enumerate(columns)} if rows else {}


class Footers:
    """A table's files, asked one by one."""

    def __init__(self, lake: Lake, table: Any) -> None:
        jvm: Any = lake.spark._jvm
        self._iceberg, self._java = jvm.org.apache.iceberg, jvm.java.util
        self._table, self._io = table, table.io()
        mapping = table.properties().get("schema.name-mapping.default")
        self._mapping = self._iceberg.mapping.NameMappingParser.fromJson(mapping) if mapping else None

    def config(self, known: Mapping[str, Column], modes: Mapping[int, str]) -> Any:
        """A ``MetricsConfig`` of modes by field id, and none for the rest; ``known`` are the columns by every name they ever had.

        Of a footer Iceberg resolves modes by the names in the file: those of its day, with characters that Avro does not take spelt out.
        """
        given = self._java.HashMap()
        given.put("write.metadata.metrics.default", NONE)
        for name, column in known.items():
            parts = column.names if name == column.name else name.split(".")
            spelt = ".".join(str(self._iceberg.avro.AvroSchemaUtil.makeCompatibleName(part)) for part in parts)
            for one in (name, spelt):
                given.put(f"write.metadata.metrics.column.{one}", modes.get(column.field_id, NONE))
        return self._iceberg.MetricsConfig.fromProperties(given)

    def metrics(self, path: str, config: Any) -> Any:
        """Iceberg's ``Metrics`` of a Parquet file under a ``MetricsConfig``."""
        file = self._io.newInputFile(path)
        if self._mapping is not None:
            return self._iceberg.parquet.ParquetUtil.fileMetrics(file, config, self._mapping)
        return self._iceberg.parquet.ParquetUtil.fileMetrics(file, config)

    def of(self, metrics: Any, column: Column) -> tuple[Any, Any, bool, bool]:
        """One column's bounds (None: not there), whether it has values, whether it has nulls."""
        key = column.field_id
        values = metrics.valueCounts().get(key) if metrics.valueCounts() is not None else None
        if values is None:
            # A file written before the column was added: all its values are null.
            return None, None, False, True
        nulls = metrics.nullValueCounts().get(key)
        low, high = metrics.lowerBounds().get(key), metrics.upperBounds().get(key)
        has_values, has_nulls = nulls is None or values > nulls, nulls is None or nulls > 0
        if low is None or high is None:
            return None, None, has_values, has_nulls
        return self._value(column, low), self._value(column, high), has_values, has_nulls

    def _value(self, column: Column, raw: Any) -> Any:
        value = from_bytes(column.type, bytes(self._iceberg.util.ByteBuffers.toByteArray(raw)))
        # Samples keep decimals as numbers.
        return float(value) if isinstance(value, Decimal) else value


def _bounds(rows: Sequence[tuple[Any, Any, bool, bool]]) -> Bounds:
    def column(place: int, kind: type) -> Any:
        found: Any = np.empty(len(rows), dtype=kind)
        found[:] = [row[place] for row in rows]
        return found

    lower = column(0, object)
    known = np.array([value is not None for value in lower], dtype=bool)
    return Bounds(lower, column(1, object), column(2, bool), column(3, bool), known)
