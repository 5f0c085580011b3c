"""Find the filters of queries on a table, and how often queries read it: from statements, Spark
event logs, sampled rows.

An event log (``spark.eventLog.enabled``) has one JSON document per line; the plan of each query is
a tree in ``SparkListenerSQLExecutionStart``, and a scan of an Iceberg table is a node named
``BatchScan catalog.db.table``.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icekit.catalog.lake import session_of
from icekit.engine.compat import arrow_of
from icekit.engine.planner import changes_something, is_scan_of, nodes, query_of
from icekit.engine.predicate import read_predicate
from icekit.errors import ParameterError, StatementRefused
from icekit.facts.definition import Column
from icekit.facts.head import head
from icekit.facts.metadata import leaves as leaves_of
from icekit.facts.model import TableFacts
from icekit.facts.where import NO_BOUNDS, lookup_of
from icekit.sandbox.trial import some_files
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.filters import (
    Anything,
    Filter,
    Leaf,
    Node,
    Unreadable,
    filters_of,
    parse,
    with_leaves,
)
from icekit.units import count, shorten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake

_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
#: Spark compresses with zstd by default; its lz4 and snappy have framing of their own that only
# Spark reads.
_CODECS = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}
_UNREADABLE = {".lz4", ".snappy", ".lzf"}
#: A query that changes the table also scans it, but does not count as a read.
_WRITES = (
    "ReplaceData",
    "WriteDelta",
    "AppendData",
    "OverwriteByExpression",
    "OverwritePartitionsDynamic",
)
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a log: its start in milliseconds, and its scans of the table as Iceberg
    describes them.

    A query that does not read the table, or that changes it, has no scans.
    """

    at_ms: int
    scans: tuple[str, ...]


def queries(path: str, table: Identifier) -> Iterator[Query]:
    """The queries of a log, a rolling log's folder or a folder of logs; the table is named without
    its catalog.

    Raises :class:`~icekit.errors.ParameterError` for a file that cannot be read, or if there is no
    query at all.
    """
    name, found = ".".join(table), False
    for event in _events(Path(path)):
        found = True
        yield Query(
            int(event.get("time") or 0), tuple(_scans(event.get("sparkPlanInfo") or {}, name))
        )
    if not found:
        raise ParameterError(
            f"{path} has no query; give an event log of Spark SQL (spark.eventLog.enabled=true)."
        )


def reads_per_day(path: str, table: Identifier) -> float:
    """Queries per day that read a table.

    The days are from the first to the last query of the log, at least one. Raises as
    :func:`queries` does.
    """
    first, last, reads = None, 0, 0
    for query in queries(path, table):
        first = query.at_ms if first is None else min(first, query.at_ms)
        last = max(last, query.at_ms)
        reads += bool(query.scans)
    return reads / max(1.0, (last - (first or 0)) / _DAY_MS)


def _scans(plan: Mapping[str, Any], name: str) -> Iterator[str]:
    nodes = list(_nodes(plan))
    for node in nodes:
        if str(node.get("nodeName", "")).startswith(_WRITES):
            # "ReplaceData IcebergWrite(table=lake.db.events, format=PARQUET)"
            written = (
                str(node.get("simpleString", ""))
                .partition("table=")[2]
                .partition(",")[0]
                .rstrip(")")
            )
            if _is(written, name):
                return
    for node in nodes:
        scanned = str(node.get("nodeName", ""))
        if scanned.startswith("BatchScan ") and _is(scanned.removeprefix("BatchScan "), name):
            yield str(node.get("simpleString", ""))


def _is(full: str, name: str) -> bool:
    return full == name or full.endswith(f".{name}")


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.get("children") or ()


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.exists():
        raise ParameterError(f"There is no event log {path}; give a file, or a folder of them.")
    files = (
        sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        if path.is_dir()
        else [path]
    )
    for file in files:
        suffix = Path(file.name.removesuffix(".inprogress")).suffix
        if suffix in _UNREADABLE:
            raise ParameterError(
                f"{file.name} is compressed in a format that only Spark reads; write event logs "
                "with spark.eventLog.compression.codec=zstd, or without compression."
            )
        try:
            with pa.input_stream(str(file), compression=_CODECS.get(suffix)) as stream:
                yield from _started(io.TextIOWrapper(stream, encoding="utf-8"))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ParameterError(
                f"{file} cannot be read as an event log of Spark ({type(error).__name__})."
            ) from None


def _started(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The events of queries; the last line of a killed application may be cut off, and is left out
    if there are others.
    """
    found, broken = False, None
    for line in lines:
        if broken is not None:
            raise broken
        # Most events are of tasks, and parsing JSON takes most of the time.
        if _START in line:
            try:
                event = json.loads(line)
            except ValueError as error:
                broken = error
                continue
            if event.get("Event") == _START:
                found = True
                yield event
    if broken is not None and not found:
        raise broken


STATED, DECLARED, EVENT_LOG = "stated", "declared", "event log"
#: The most filters considered, and the most of one kind, which differ only in their values.
MOST_FILTERS, MOST_VALUES = 200, 16


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters, most frequent first; ``notes`` are sentences on what was left out and why."""

    filters: tuple[Filter, ...]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in filters, by how often they are used."""
        weights: dict[str, float] = {}
        for one in self.filters:
            for column in one.columns:
                weights[column] = weights.get(column, 0.0) + one.weight
        return tuple(sorted(weights, key=lambda c: -weights[c]))


def read_filters(
    lake: Lake, facts: TableFacts, *, sql: Sequence[str] = (), event_log: str = ""
) -> Filters:
    """The filters of queries on a table, from ``sql`` (predicates or complete queries) and a Spark
    event log.

    ``column = ?`` is a point lookup on a column without a value. Without any of these, a point
    lookup on each column that the table declares (``icekit.filter-columns``). Filters of declared
    columns have no values, see :func:`bind`. Raises
    :class:`~icekit.errors.ParameterError` for an invalid predicate on this table, and for a log
    that cannot be read.
    """
    if isinstance(sql, str) or not all(isinstance(text, str) for text in sql):
        raise ParameterError(
            f"filters is {sql!r}; give a list of SQL predicates or queries (with papermill: -y "
            "'filters: [\"id = 7\"]')."
        )
    lookups = [_lookup(facts, text) for text in sql]
    known, gone = names_ever(lake, facts)
    unknown: set[str] = set()
    found = _Merged()
    notes: list[str] = []
    for text, lookup in zip(sql, lookups, strict=True):
        stated = (
            _stated(lake, facts, text, known, unknown)
            if lookup is None
            else [Filter(text, lookup, 1.0, STATED)]
        )
        found.add(stated)
        notes += (
            _rewritable(facts, text)
            if any(isinstance(one.tree, (Anything, Leaf)) for one in stated)
            else ()
        )
    if event_log:
        found.add(_logged(event_log, facts, known, unknown))
    if not (sql or event_log):
        declared, notes = _declared(facts)
        found.add(declared)
    for name in sorted(unknown):
        what = (
            "was dropped"
            if name in gone
            else "is not a column with bounds that Iceberg can use to skip files"
        )
        notes.append(f"Filters on {name} are left out: it {what}.")
    if found.blind:
        notes.append(
            f"{count(round(found.blind), 'query', 'queries')} had no filter that reaches Iceberg "
            "(no filter, or functions of columns)."
        )
    if found.undecided:
        notes.append(
            f"{count(round(found.undecided), 'query', 'queries')} had filters that reach Iceberg "
            "and may skip files, but not by the bounds of columns (such as those on buckets, or "
            "with <> or NOT IN), so layouts were not compared for them."
        )
    kept, shapes = found.kept()
    if shapes < len(found.shapes):
        notes.append(
            f"Of {len(found.shapes):,} kinds of filters, only the {shapes:,} most frequent are "
            "used."
        )
    return Filters(kept, tuple(notes))


def _lookup(facts: TableFacts, text: str) -> Leaf | None:
    """The condition of a text such as ``id = ?``; None for other texts."""
    name, mark, rest = text.rpartition("=")
    if not mark or rest.strip() != "?":
        return None
    is_named = (
        c for c in facts.columns if name.strip() in {c.name, identifier(*c.names)} and lookup_of(c)
    )
    return next((Leaf(column.name, "=") for column in is_named), None)


def names_ever(lake: Lake, facts: TableFacts) -> tuple[Mapping[str, Column], frozenset[str]]:
    """The table's columns by every name they have had, and the names of those that were dropped."""
    by_id = {c.field_id: c for c in facts.columns}
    known: dict[str, Column] = {}
    gone: set[str] = set()
    metadata: Any = head(lake, facts.table).metadata
    for schema in metadata.get("schemas") or [metadata["schema"]]:
        for field_id, name, *_ in leaves_of(schema["fields"]):
            if field_id in by_id:
                known[name] = by_id[field_id]
            else:
                gone.add(name)
    known.update(facts.by_name)
    return known, frozenset(gone - known.keys())


def _stated(
    lake: Lake, facts: TableFacts, text: str, known: Mapping[str, Column], unknown: set[str]
) -> list[Filter]:
    """A predicate or a query as Spark pushes it to Iceberg; one filter for each scan of the
    table.
    """
    name = lake.sql_name(facts.table)
    is_query = re.match(r"\s*(SELECT|WITH)\b", text, re.I) is not None
    with session_of(lake) as spark:
        if is_query:
            query = _query(spark, text)
        else:
            condition = read_predicate(spark, spark.table(identifier(*name)), text)
            query = query_of(spark, f"SELECT * FROM {identifier(*name)} WHERE {condition.sql}")
        scans = [
            str(n.scan().description()) for n in nodes(query.executedPlan()) if is_scan_of(n, name)
        ]
    if is_query and not scans:
        raise ParameterError(
            f"{text!r} does not read {display_name(facts.table)}; give a query of this table, or "
            "a predicate."
        )
    pushed = [filters_of(scan) for scan in scans] or [None]
    return [
        Filter(text, _tree(filters, known, unknown), 1.0, STATED, is_pushed=bool(filters))
        for filters in pushed
    ]


# Functions of times for which Iceberg has a transform. (Spark's month, day and hour are those
# within a year, a month and a day.)
_TIME_FUNCTION = re.compile(r"(?<![.\w`])(year|date|to_date)\s*\(\s*([\w.`]+)\s*\)", re.I)


def _rewritable(facts: TableFacts, text: str) -> Iterator[str]:
    """What to write in place of a function of a time column, which Iceberg does not receive."""
    for function, term in dict.fromkeys(
        (found[1].lower(), found[2]) for found in _TIME_FUNCTION.finditer(text)
    ):
        column = facts.by_name.get(term.replace("`", ""))
        if column is None or not column.type.startswith(("date", "timestamp")):
            continue
        unit = f"years({term}), which counts from 1970" if function == "year" else f"days({term})"
        yield (
            f"{function}({term}) does not reach Iceberg, so it skips nothing. A range of {term} "
            f"does, and so does {identifier(facts.catalog)}.system.{unit}."
        )


def _query(spark: SparkSession, text: str) -> Any:
    """The plan of a complete query, which is not run; a statement that changes something is refused
    (a WITH may precede a DELETE).
    """
    try:
        query = query_of(spark, text)
    except StatementRefused as error:
        raise ParameterError(
            f"The query {shorten(text, 200)!r} cannot be used: {error}", detail=error.detail
        ) from None
    if changes_something(spark, query):
        raise ParameterError(
            f"{text!r} is not a query but a statement that changes data; give a SELECT, or a "
            "predicate."
        )
    return query


def _logged(
    path: str, facts: TableFacts, known: Mapping[str, Column], unknown: set[str]
) -> Iterator[Filter]:
    for query in queries(path, facts.table):
        for description in query.scans:
            text = filters_of(description) or ""
            yield Filter(text, _tree(text, known, unknown), 1.0, EVENT_LOG, is_pushed=bool(text))


def _tree(text: str | None, known: Mapping[str, Column], unknown: set[str]) -> Node:
    """The filters of a scan as a tree; ``text`` is Iceberg's description of them."""
    if not text:
        return Anything()
    try:
        return parse(text, known, unknown)
    except (Unreadable, ValueError):
        # Another version of Iceberg may describe a filter differently; then nothing is known about
        # it.
        return Anything()


def _declared(facts: TableFacts) -> tuple[list[Filter], list[str]]:
    found: list[Filter] = []
    notes: list[str] = []
    for column in (c for c in facts.columns if c.name in facts.filter_columns):
        if column.type.startswith(NO_BOUNDS):
            notes.append(
                f"The declared filter column {column.name} is left out: its type has no bounds."
            )
        else:
            found.append(Filter(f"{column.name} = ?", Leaf(column.name, "="), 1.0, DECLARED))
    return found, notes


class _Merged:
    """Merges filters as they arrive: equal ones become one, and of those that differ only in their
    values a few are kept.
    """

    def __init__(self) -> None:
        self.blind = self.undecided = 0.0
        #: For each tree without values: the weight of all its filters, and those that are kept.
        self.shapes: dict[Node, tuple[float, dict[Node, Filter]]] = {}

    def add(self, filters: Iterable[Filter]) -> None:
        for one in filters:
            if isinstance(one.tree, Anything):
                self.undecided += one.weight * one.is_pushed
                self.blind += one.weight * (not one.is_pushed)
                continue
            shape = with_leaves(one.tree, lambda leaf: replace(leaf, values=()))
            weight, same = self.shapes.get(shape, (0.0, {}))
            there = same.get(one.tree)
            if there is not None:
                same[one.tree] = replace(there, weight=there.weight + one.weight)
            elif len(same) < MOST_VALUES:
                same[one.tree] = one
            self.shapes[shape] = (weight + one.weight, same)

    def kept(self) -> tuple[tuple[Filter, ...], int]:
        """The most frequent kinds, with the weight of all their queries, and the number of
        kinds.
        """
        found: list[Filter] = []
        shapes = 0
        for weight, same in sorted(self.shapes.values(), key=lambda s: -s[0]):
            if len(found) + len(same) > MOST_FILTERS:
                break
            shapes += 1
            share = weight / sum(f.weight for f in same.values())
            found += (replace(f, weight=f.weight * share) for f in same.values())
        return tuple(sorted(found, key=lambda f: -f.weight)), shapes


# --- Sample rows of a table, to try layouts on and to give values to filters without values


#: The number of lookups that replace a filter without values.
DRAWS = 8


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of a table: for each column a list of values with the types that facts use
    (decimals as numbers), all of the same length.
    """

    columns: dict[str, list[Any]]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))


#: How finely rows are drawn.
_HASHES = 1 << 30


def sample(
    lake: Lake,
    facts: TableFacts,
    columns: Sequence[str],
    *,
    rows: int = 100_000,
    sample_bytes: int = 1 << 30,
    seed: int = 7,
) -> Sample:
    """About ``rows`` rows, drawn evenly from all files, or from files across the table if all have
    more than ``sample_bytes``.

    ``columns`` are names of leaves outside lists and maps. Spark reads only these columns; the
    driver holds the rows, file by file. Rows are drawn by a hash of their file and position, so
    that each run on a snapshot draws the same ones, however Spark reads them.
    """
    if facts.snapshot_id is None or not columns:
        return Sample({name: [] for name in columns})
    read = facts.data.record_count * min(1.0, sample_bytes / max(facts.data.size_in_bytes, 1))
    share = min(1.0, 1.1 * rows / max(read, 1))
    terms = ", ".join(
        f"{_as_fact(facts.by_name[name])} AS c{place}" for place, name in enumerate(columns)
    )
    drawn = (
        f" AND pmod(xxhash64(_file, _pos, {seed}), {_HASHES}) < {round(share * _HASHES)}"
        if share < 1
        else ""
    )
    # With an id, the columns would be those of the snapshot, and not those that the table has now.
    version = f"VERSION AS OF {facts.snapshot_id}" if facts.ref else ""
    table = arrow_of(
        lake.spark.sql(
            f"SELECT {terms}, _file AS f, _pos AS p FROM "
            f"{identifier(*lake.sql_name(facts.table))} {version} WHERE "
            f"{some_files(lake, facts, sample_bytes)}{drawn} ORDER BY xxhash64(_file, _pos, "
            f"{seed}), _file, _pos LIMIT {rows}"
        )
    )
    table = table.sort_by([("f", "ascending"), ("p", "ascending")])
    found = {name: table.column(place).to_pylist() for place, name in enumerate(columns)}
    return Sample(found)


def _as_fact(column: Column) -> str:
    term, kind = identifier(*column.names), column.type
    if kind == "date":
        return f"unix_date({term})"
    if kind.startswith("timestamptz"):
        return f"unix_micros({term})"
    if kind.startswith("timestamp"):
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01', {term})"
    if kind.startswith("decimal"):
        return f"CAST({term} AS DOUBLE)"
    if kind.startswith(("binary", "fixed")):
        return f"lower(hex({term}))"
    return term


def bind(filters: Sequence[Filter], drawn: Sample, *, seed: int = 7) -> tuple[Filter, ...]:
    """The filters with values: one without values becomes :data:`DRAWS` filters with values drawn
    from a sample, which share its weight.

    A filter on a column without values in the sample is left out.
    """
    draw = random.Random(seed)
    present = {name: [v for v in values if v is not None] for name, values in drawn.columns.items()}

    def bound(leaf: Leaf) -> Node:
        values = present.get(leaf.column)
        if leaf.is_bound or not values:
            return leaf
        return replace(leaf, values=(draw.choice(values),))

    found: list[Filter] = []
    for one in filters:
        if one.is_bound:
            found.append(one)
        else:
            found += [
                replace(one, tree=with_leaves(one.tree, bound), weight=one.weight / DRAWS)
                for _ in range(DRAWS)
            ]
    return tuple(found)
