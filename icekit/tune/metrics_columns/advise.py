"""Measure the cost and the benefit of statistics, and turn both into table properties; drop advice that a trial does not confirm."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np

from icekit.diagnose.findings import Thresholds
from icekit.engine.bridge import load_now
from icekit.engine.metadata_tables import metadata_table, spread
from icekit.facts.manifests import SAMPLED_FILES, SAMPLED_MANIFESTS, Record, entries, is_delete_manifest, may_have_live
from icekit.facts.model import Column, TableFacts, from_bytes
from icekit.facts.where import NO_BOUNDS
from icekit.sql import Identifier, rewrite_data_files, set_properties
from icekit.tune import ddl
from icekit.tune.card import Advice, to_set
from icekit.tune.filters import Bounds, Filter, bounds_of, leaves, may_match, truncated
from icekit.tune.metrics_columns.model import (
    COLUMN,
    COUNTS,
    DEFAULT,
    DEFAULT_LENGTH,
    DELETE_KEY,
    FILTER,
    FULL,
    KEPT,
    LENGTHS,
    NONE,
    OLD_FILES,
    PARTITION,
    SORT,
    ColumnBytes,
    EntryBytes,
    MetricsTrial,
    Prefix,
    Skipping,
    rank,
    truncate,
)
from icekit.tune.queries import names_ever
from icekit.units import count, elapsed, percent, plain, raised, size

if TYPE_CHECKING:
    from icekit.catalog import Lake


#: A choice: a longer bound is advised if its filters read this share fewer files, and at least one.
GAIN = 0.1
#: Choices: unused statistics are worth a change from this share of an entry, and this many columns or bytes of manifests.
UNUSED_SHARE, UNUSED_COLUMNS, UNUSED_BYTES = 0.3, Thresholds().metrics_columns, 64 << 20
_BREAKS = (
    "filters on columns without statistics (including a MERGE's keys and runtime filters) skip no new files, "
    "and their MIN, MAX and COUNT no longer come from metadata"
)


@dataclass(frozen=True, slots=True)
class Measures:
    """The inputs of the advice; ``unknown`` says why the filters or their skipping are not known, None if they are."""

    entry: EntryBytes
    skipping: tuple[Skipping, ...]
    prefixes: tuple[Prefix, ...]
    unknown: str | None = None


def undeclared(table: Identifier) -> str:
    """Why there is no advice without known filters, and how to declare them."""
    declare = set_properties(table, {"icekit.filter-columns": "a,b"})
    return (
        "the filters of your queries are not known, so no statistics can be called unused. "
        f"Declare filter columns ({declare}), or give filters, a Spark event log or scan reports"
    )


def roles(facts: TableFacts, filtered: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The uses of each column, by name: filters, sort order, partitioning, keys of equality deletes.

    A data file without bounds of a key loads every equality delete file of its partition (``DeleteFileIndex``).
    """
    by_id = {c.field_id: c.name for c in facts.columns}
    keys = [by_id[i] for key in facts.equality_keys for i in key.field_ids if i in by_id]
    sources = [f.source for f in facts.default_spec.fields if f.source and f.transform != "void"]
    found: dict[str, tuple[str, ...]] = {}
    for role, names in ((FILTER, filtered), (SORT, [f.source for f in facts.sort_order]), (PARTITION, sources), (DELETE_KEY, keys)):
        for name in dict.fromkeys(names):
            found[name] = (*found.get(name, ()), role)
    return found


def needed(facts: TableFacts, measures: Measures) -> dict[str, str]:
    """The mode that each used column needs: the default, only counts for filters by null, or the shortest mode that skips as much as full bounds."""
    by_column = {s.column: s for s in measures.skipping}
    found = {}
    for name, uses in roles(facts, list(by_column)).items():
        column = facts.by_name.get(name)
        if column is None or column.type.startswith(NO_BOUNDS):
            continue
        skip = by_column.get(name)
        mode = truncate(DEFAULT_LENGTH)
        if skip is not None and skip.kinds == {"nulls"} and uses == (FILTER,):
            mode = COUNTS
        elif skip is not None and skip.best is not None and gains(skip):
            mode = skip.best[0]
        found[name] = mode
    return found


def gains(skip: Skipping) -> bool:
    """Tell whether full bounds would skip clearly more files than now."""
    return skip.now is not None and skip.full is not None and skip.now - skip.full >= max(1.0, GAIN * skip.now)


def unused(facts: TableFacts, measures: Measures, modes: Mapping[str, str]) -> tuple[list[str], float, float]:
    """Columns with statistics without a known use or an explicit setting; their share of an entry; their bytes in all manifests."""
    idle = [
        c
        for c in measures.entry.columns
        if c.counted_files and c.column not in modes and f"{COLUMN}{c.column}" not in facts.properties and not _is_none(facts, c.column)
    ]
    share = sum(c.size_in_bytes for c in idle) / measures.entry.entry_bytes if measures.entry.entry_bytes else 0.0
    stored = share * measures.entry.entry_bytes * measures.entry.stored_share * facts.data.file_count
    return [c.column for c in idle], share, min(stored, float(facts.manifests.data_bytes))


def _is_none(facts: TableFacts, name: str) -> bool:
    return next((c.metrics_mode for c in facts.columns if c.name == name), NONE) == NONE


def advise_metrics(facts: TableFacts, measures: Measures) -> tuple[Advice, ...]:
    """What to set, in order of importance."""
    now = facts.properties.get(DEFAULT) or _inferred(facts)
    if measures.unknown is not None:
        return (Advice(DEFAULT, now, now, f"{raised(measures.unknown)}."),)
    columns = facts.by_name
    modes = needed(facts, measures)
    by_column = {s.column: s for s in measures.skipping}
    wanted = {n: m for n, m in modes.items() if rank(columns[n].metrics_mode) < rank(m) and _is_worth(by_column.get(n), columns[n])}
    idle, share, stored = unused(facts, measures, modes)
    is_wide = share >= UNUSED_SHARE and (len(idle) >= UNUSED_COLUMNS or stored >= UNUSED_BYTES)
    said = f"Statistics of {count(len(idle), 'column')} are not used by any known filter, sort order, partitioning or delete key: {percent(share)} of each manifest entry, about {size(stored)} of {size(facts.manifests.data_bytes)}"
    found: list[Advice] = []
    if is_wide:
        kept = {f"{COLUMN}{n}": _longer(columns[n].metrics_mode, m) for n, m in modes.items() if f"{COLUMN}{n}" not in facts.properties}
        kept |= {f"{COLUMN}{n}": m for n, m in wanted.items()}
        found.append(to_set(facts, {**kept, DEFAULT: NONE}, current=now, evidence=f"{said}.", breaks=_BREAKS))
        # Bounds of the few used columns cost little compared with the savings.
        wanted = {n: m for n, m in modes.items() if rank(columns[n].metrics_mode) < rank(m)}
    elif idle:
        rule = f"a change is advised from {percent(UNUSED_SHARE)}, and from {UNUSED_COLUMNS} such columns or {size(UNUSED_BYTES)}"
        found.append(Advice(DEFAULT, now, now, f"{said}; {rule}."))
    prefixes = {p.column: p for p in measures.prefixes}
    for name, skip in by_column.items():
        if name in columns:
            found.append(_of_column(facts, skip, wanted.get(name), modes.get(name), prefixes.get(name)))
    behind = [s for s in by_column.values() if s.column in modes and _is_worth(s, columns[s.column])]
    if is_wide or behind:
        found.append(_rewrite(facts, behind))
    return tuple(found)


def _is_worth(skip: Skipping | None, column: Column) -> bool:
    if skip is None:
        return False
    # Without a simulation, a column without bounds is known to skip nothing.
    return gains(skip) or (skip.full is None and column.metrics_mode in {NONE, COUNTS})


def _longer(one: str, other: str) -> str:
    return one if rank(one) >= rank(other) else other


def _inferred(facts: TableFacts) -> str:
    limit = facts.setting("write.metadata.metrics.max-inferred-column-defaults")
    return f"truncate(16) for the first {limit} columns"


def _of_column(facts: TableFacts, skip: Skipping, wanted: str | None, mode: str | None, prefix: Prefix | None) -> Advice:
    column = next(c for c in facts.columns if c.name == skip.column)
    setting, now = f"{COLUMN}{column.name}", column.metrics_mode
    said = _figures(skip)
    if prefix is not None and prefix.common >= DEFAULT_LENGTH:
        said += f"; all values share a prefix of {count(prefix.common, 'character')}"
    if wanted is not None:
        if not gains(skip):
            said += "; bounds of a filter column cost little, and filters skip files as soon as the rows are sorted by it"
        return to_set(facts, {setting: wanted}, current=now, evidence=f"{said[0].upper()}{said[1:]}.")
    if mode is None:
        return Advice(setting, now, now, f"Type {column.type} has no bounds.")
    if gains(skip):
        why = f"{said}; the mode in force is enough, but older files were written without it"
    elif skip.if_sorted is not None and skip.now is not None and skip.now - skip.if_sorted >= max(1.0, GAIN * skip.now):
        why = f"{said}; the order of the rows is why filters skip no more files"
    else:
        why = said
    return Advice(setting, now, now, f"{raised(why)}.")


def _figures(skip: Skipping) -> str:
    parts = [
        f"filters read {plain(skip.now)} of {count(skip.files, 'data file')}"
        if skip.now is not None
        else "the data files that filters read are not known"
    ]
    if skip.full is not None and skip.best is not None:
        best, files = skip.best
        parts.append(f"{plain(skip.full)} with full bounds" + (f", {plain(files)} with {best}" if best != FULL else ""))
    if skip.if_sorted is not None:
        parts.append(f"about {plain(skip.if_sorted)} if sorted by the column")
    return "; ".join(parts)


def _rewrite(facts: TableFacts, behind: Sequence[Skipping]) -> Advice:
    """The rewrite that applies settings to existing files: advised if filters then skip files, otherwise left to compaction."""
    options = {"rewrite-all": "true", "partial-progress.enabled": "true"}
    data, portion, given = facts.data, "rewritten", {}
    is_large = data.size_in_bytes > ddl.PORTION_BYTES
    taken, files = ddl.portion(facts, ddl.PORTION_BYTES) if is_large else (None, data.file_count)
    if taken is not None:
        given, portion = {"where": taken}, f"{count(files, 'data file')} at a time: continue with other partitions"
    sql = rewrite_data_files(facts.catalog, table=facts.name, options=options, **given)
    old = (
        f"New settings apply only to new files. The {count(data.file_count, 'existing data file')} ({size(data.size_in_bytes)}) keep their metrics "
        "until they are rewritten (rewrite_manifests copies metrics unchanged)"
    )
    names = ", ".join(s.column for s in behind)
    if behind and (taken is not None or not is_large):
        return Advice(OLD_FILES, KEPT, portion, f"{old}, and until then filters on {names} skip no more files than now.", sql)
    if behind:
        return Advice(
            OLD_FILES,
            KEPT,
            "rewritten in parts",
            f"{old}, and until then filters on {names} skip no more files than now: run {sql} with a where that keeps each run small.",
        )
    return Advice(OLD_FILES, KEPT, KEPT, f"{old}. Leave this to compaction, which rewrites them anyway. To do it at once: {sql}.")


def without(advice: Sequence[Advice], why: str) -> tuple[Advice, ...]:
    """The advice without changes, after a trial that did not confirm it."""
    return tuple(
        replace(a, proposed=a.current, evidence=f"{raised(why)}. {a.evidence}", sql=None, undo=None, breaks=None, properties=())
        if a.is_change
        else a
        for a in advice
    )


# --- Shared prefixes of strings: whether truncated bounds can distinguish values. Pure


_COLLIDING = 0.01


def prefix_of(column: str, values: Iterable[Any]) -> Prefix | None:
    """The shared prefixes of a column's sampled values; None without two different values."""
    distinct = {v for v in values if isinstance(v, str)}
    if len(distinct) < 2:
        return None
    needed = next((n for n in LENGTHS if colliding(distinct, n) <= _COLLIDING), None)
    # The first and the last in order share the prefix of all.
    first, last = min(distinct), max(distinct)
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return Prefix(column, len(distinct), common, colliding(distinct, DEFAULT_LENGTH), needed)


def colliding(distinct: Iterable[str], length: int) -> float:
    """The share of distinct values whose first ``length`` characters equal those of another value."""
    starts = Counter(value[:length] for value in distinct)
    total = sum(starts.values())
    return sum(n for n in starts.values() if n > 1) / total if total else 0.0


# --- Confirm advice with a trial, or withdraw it if a filter would read more. Pure


def confirmed(advice: Sequence[Advice], trial: MetricsTrial) -> tuple[Advice, ...]:
    """The advice, each change with the result of the trial; no changes if any filter read more files than before."""
    if trial.losses:
        worst = max(trial.losses, key=lambda f: f.after - f.before)
        return without(advice, f"on a clone {worst.text} read {worst.after:,} data files instead of {worst.before:,}")
    shown = showed(trial)
    if shown is None:
        return tuple(advice)
    found: list[Advice] = []
    first = True
    for one in advice:
        if not one.is_change:
            found.append(one)
        elif not one.properties:
            found.append(replace(one, verified="the files on the clone had the metrics that this rewrite creates."))
        else:
            found.append(replace(one, verified=f"{shown}." if first else "set on the clone together with the above."))
            first = False
    return tuple(found)


def showed(trial: MetricsTrial) -> str | None:
    """The result of a trial, as a clause; None without a result."""
    if trial.before is None or trial.after is None or trial.shrinks is None:
        return None
    change = f"{percent(abs(trial.shrinks))} {'less' if trial.shrinks >= 0 else 'more'}"
    parts = [
        f"on a {'copied sample' if trial.is_sample else 'clone'}, with the entries of {trial.files:,} of {count(trial.total_files, 'data file')}: "
        f"manifests {size(trial.before.size_in_bytes)} → {size(trial.after.size_in_bytes)} ({change})"
    ]
    if trial.before.planning_seconds is not None and trial.after.planning_seconds is not None:
        parts.append(f"time to plan a full scan {elapsed(trial.before.planning_seconds)} → {elapsed(trial.after.planning_seconds)}")
    if trial.reads is not None:
        before, after = trial.reads
        parts.append(f"data files that a filter reads {plain(before)} → {plain(after)} on average, and no filter reads more than before")
    return "; ".join(parts)


# --- Measure statistics: in the footers of data files, in the bytes of manifests, and in the files that filters would read
#
# Source: ``ParquetUtil.fileMetrics``, with which Iceberg itself reads the metrics of a file that it writes or adds
# (except the NaN counts of floating-point columns, which only the writer has).


#: The most data files whose footers are read for the simulation.
SAMPLED_FOOTERS = 200


def real_bounds(lake: Lake, facts: TableFacts, columns: Sequence[Column], check: Callable[[], None]) -> dict[str, Bounds]:
    """The full bounds of columns in up to 200 Parquet files from across the table, by name; empty without Parquet files.

    Reads only footers. ``check`` is called before each file, and may raise.
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
    """Reads the footers of a table's files, one by one."""

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
            # The file is older than the column: all its values are null.
            return None, None, False, True
        nulls = metrics.nullValueCounts().get(key)
        low, high = metrics.lowerBounds().get(key), metrics.upperBounds().get(key)
        has_values, has_nulls = nulls is None or values > nulls, nulls is None or nulls > 0
        if low is None or high is None:
            return None, None, has_values, has_nulls
        return self._value(column, low), self._value(column, high), has_values, has_nulls

    def _value(self, column: Column, raw: Any) -> Any:
        value = from_bytes(column.type, bytes(self._iceberg.util.ByteBuffers.toByteArray(raw)))
        # Samples store decimals as numbers.
        return float(value) if isinstance(value, Decimal) else value


def _bounds(rows: Sequence[tuple[Any, Any, bool, bool]]) -> Bounds:
    def column(place: int, kind: type) -> Any:
        found: Any = np.empty(len(rows), dtype=kind)
        found[:] = [row[place] for row in rows]
        return found

    lower = column(0, object)
    known = np.array([value is not None for value in lower], dtype=bool)
    return Bounds(lower, column(1, object), column(2, bool), column(3, bool), known)


# --- Measure the bytes of each column's statistics in manifests, from a few manifests, as both collectors do


_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def measure(manifests: Sequence[Record], columns: Sequence[Column], read: Callable[[str], bytes]) -> EntryBytes:
    """The bytes of each column in up to 300 entries of up to three data manifests: the newest, the oldest and a middle one.

    ``manifests`` are those of the manifest list, ``read`` gives the bytes at a location. The driver holds only the sampled entries.
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
        files=files,
        manifests=len(places),
        header_bytes=headers / max(len(places), 1),
        entry_bytes=decoded / max(records, 1),
        stored_share=stored / decoded if decoded else 1.0,
        columns=tuple(sorted(found, key=lambda c: -c.size_in_bytes)),
        gone_bytes=gone / each,
    )


def layout(raw: bytes, records: int = SAMPLED_FILES) -> tuple[int, tuple[int, int, int]]:
    """The length of a manifest's header, and of its first blocks that hold so many records: records, bytes as stored, and decoded."""
    header = held = stored = decoded = 0
    # An empty manifest is only a header.
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


#: The fewest rows in a simulated file.
_ROWS = 4


@dataclass(frozen=True, slots=True)
class DrawnColumn:
    """Sampled values of a column, and the real bounds of some files (None: not known)."""

    name: str
    values: Sequence[Any]
    bounds: Bounds | None
    is_text: bool


def skipping(column: DrawnColumn, filters: Sequence[Filter], *, files: int, now: float | None) -> Skipping:
    """The data files that filters on one column read: ``filters`` are those on the column, with values if known.

    ``now`` is the number of files that they read according to the planner. A longer mode never reads more than now, because it only adds bounds.
    """
    name, bounds = column.name, column.bounds
    alone = [f.only(name) for f in filters]
    alone = [f for f in alone if f.is_bound]
    weight = sum(f.weight for f in filters)
    kinds = frozenset(leaf.kind for f in alone for leaf in leaves(f.tree) if leaf.op != "not null")
    by_mode: list[tuple[str, float]] = []
    if bounds is not None and len(bounds.lower) and alone:
        tried = [(truncate(n), truncated(bounds, n)) for n in LENGTHS] if column.is_text else [(truncate(DEFAULT_LENGTH), bounds)]
        for mode, kept in [*tried, (FULL, bounds)]:
            read = files * _share(alone, name, kept)
            by_mode.append((mode, read if now is None else min(read, now)))
    return Skipping(
        column=name,
        weight=weight,
        kinds=kinds,
        files=files,
        now=now,
        by_mode=tuple(by_mode),
        if_sorted=_sorted(alone, name, column.values, files) if alone else None,
        sampled=0 if bounds is None else len(bounds.lower),
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
