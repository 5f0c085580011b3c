"""Measure statistics: in the footers of data files, in the bytes of manifests, and by the files that filters would read.

Source: ``ParquetUtil.fileMetrics``, by which Iceberg itself takes the metrics of a file that it has written or that is added
(but for the NaN counts of floating-point columns, which only the writer sees).
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np

from icekit.engine.bridge import load_now
from icekit.engine.metadata_tables import metadata_table, spread
from icekit.facts.manifests import SAMPLED_FILES, SAMPLED_MANIFESTS, Record, entries, is_delete_manifest, may_have_live
from icekit.facts.model import Column, TableFacts, from_bytes
from icekit.tune.filters.model import Filter, leaves
from icekit.tune.filters.read import names_ever
from icekit.tune.filters.skipping import Bounds, bounds_of, may_match, truncated
from icekit.tune.metrics_columns.model import DEFAULT_LENGTH, FULL, LENGTHS, NONE, ColumnBytes, EntryBytes, Skipping, truncate

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


# --- Measure what the statistics of each column take in manifests; on the bytes of a few, as both collectors do


_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def measure(manifests: Sequence[Record], columns: Sequence[Column], read: Callable[[str], bytes]) -> EntryBytes:
    """The bytes of each column in up to 300 entries of up to three data manifests: the newest, the oldest and a middle one.

    ``manifests`` are those of the manifest list, ``read`` gives the bytes at a location. The driver holds the sampled entries alone.
    """
    data = [m for m in manifests if not is_delete_manifest(m) and may_have_live(m)]
    places = sorted({0, len(data) // 2, len(data) - 1}) if len(data) > SAMPLED_MANIFESTS else list(range(len(data)))
    counted: Counter[int] = Counter()
    bounded: Counter[int] = Counter()
    count_bytes: Counter[int] = Counter()
    bound_bytes: Counter[int] = Counter()
    files = records = headers = stored = decoded = 0
    for place in places:
        location = data[place]["manifest_path"]
        raw = read(location)
        room = SAMPLED_FILES // len(places)
        header, blocks = layout(raw, room)
        headers += header
        records, stored, decoded = (a + b for a, b in zip((records, stored, decoded), blocks, strict=True))
        for entry in entries(raw, location, frozenset((*_COUNTS, *_BOUNDS))):
            file = entry["data_file"]
            files += 1
            counted.update(pair["key"] for pair in file.get("value_counts") or ())
            bounded.update(pair["key"] for pair in file.get("lower_bounds") or ())
            for name in _COUNTS:
                for pair in file.get(name) or ():
                    count_bytes[pair["key"]] += _number(pair["key"]) + _number(pair["value"])
            for name in _BOUNDS:
                for pair in file.get(name) or ():
                    size = len(pair["value"])
                    bound_bytes[pair["key"]] += _number(pair["key"]) + _number(size) + size
            room -= 1
            if not room:
                break
    each = max(files, 1)
    ids = {c.field_id for c in columns}
    found = [
        ColumnBytes(
            c.name, c.field_id, count_bytes[c.field_id] / each, bound_bytes[c.field_id] / each, counted[c.field_id], bounded[c.field_id]
        )
        for c in columns
    ]
    gone = sum(size for sizes in (count_bytes, bound_bytes) for key, size in sizes.items() if key not in ids)
    return EntryBytes(
        files,
        len(places),
        headers / max(len(places), 1),
        decoded / max(records, 1),
        stored / decoded if decoded else 1.0,
        tuple(sorted(found, key=lambda c: -c.size_in_bytes)),
        gone / each,
    )


def layout(raw: bytes, records: int = SAMPLED_FILES) -> tuple[int, tuple[int, int, int]]:
    """The length of a manifest's header, and of its first blocks that hold so many records: records, bytes as stored, and decoded."""
    header = held = stored = decoded = 0
    # An empty manifest is all header.
    for number, block in enumerate(fastavro.block_reader(io.BytesIO(raw))):
        if not number:
            header = int(block.offset)
        held += int(block.num_records)
        stored += int(block.size)
        decoded += len(block.bytes_.getvalue())  # type: ignore[attr-defined]
        if held >= records:
            break
    return header or len(raw), (held, stored, decoded)


def _number(value: int) -> int:
    """Bytes of a number in Avro: zigzag, seven bits a byte (Avro specification, "Binary encoding")."""
    return max(1, -(-((value << 1) ^ (value >> 63)).bit_length() // 7))


# --- Files that filters would read with other bounds, or with rows in another order. Pure


#: Rows that a simulated file has at least.
_ROWS = 4


def skipping(
    column: str,
    filters: Sequence[Filter],
    *,
    is_text: bool,
    files: int,
    now: float | None,
    bounds: Bounds | None,
    values: Sequence[Any],
) -> Skipping:
    """What filters read by one column: ``filters`` are those that ask for it, with values where they are known.

    ``now`` are the files they read by the planner, ``bounds`` the real ones of some files (None: not known), ``values`` sampled
    rows. A mode never reads more than is read now, as it adds to what can be skipped by.
    """
    alone = [f.only(column) for f in filters]
    alone = [f for f in alone if f.is_bound]
    weight = sum(f.weight for f in filters)
    kinds = frozenset(leaf.kind for f in alone for leaf in leaves(f.tree) if leaf.op != "not null")
    by_mode: list[tuple[str, float]] = []
    if bounds is not None and len(bounds.lower) and alone:
        tried = [(truncate(n), truncated(bounds, n)) for n in LENGTHS] if is_text else [(truncate(DEFAULT_LENGTH), bounds)]
        for mode, kept in [*tried, (FULL, bounds)]:
            read = files * _share(alone, column, kept)
            by_mode.append((mode, read if now is None else min(read, now)))
    return Skipping(
        column,
        weight,
        kinds,
        files,
        now,
        tuple(by_mode),
        _sorted(alone, column, values, files) if alone else None,
        0 if bounds is None else len(bounds.lower),
    )


def _share(filters: Sequence[Filter], column: str, bounds: Bounds) -> float:
    """The share of files that filters read, by their weight."""
    total = sum(f.weight for f in filters)
    number = len(bounds.lower)
    return float(sum(f.weight * may_match(f.tree, {column: bounds}, number).mean() for f in filters) / total)


def _sorted(filters: Sequence[Filter], column: str, values: Sequence[Any], files: int) -> float | None:
    present = sorted(v for v in values if v is not None)
    groups = min(files, len(values) // _ROWS)
    if not present or groups < 1:
        return None
    rows = [*present, *([None] * (len(values) - len(present)))]
    cuts = [len(rows) * i // groups for i in range(groups + 1)]
    made = bounds_of([rows[low:high] for low, high in pairwise(cuts)])
    return files * _share(filters, column, made)
