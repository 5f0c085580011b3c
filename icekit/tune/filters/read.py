"""Find out what queries filter a table by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.catalog.lake import session_of
from icekit.engine.plan_nodes import changes_something, is_scan_of, nodes, query_of
from icekit.engine.predicate import read_predicate
from icekit.errors import ParameterError, StatementRefused
from icekit.facts.head import head
from icekit.facts.metadata import leaves as leaves_of
from icekit.facts.model import TableFacts
from icekit.facts.parts import Column
from icekit.sql import display_name, identifier
from icekit.tune.event_log import queries
from icekit.tune.filters.describe import Unreadable, filters_of, parse
from icekit.tune.filters.model import Anything, Filter, Leaf, Node, with_leaves
from icekit.tune.filters.scan_reports import filters_in
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake

STATED, DECLARED, EVENT_LOG, SCAN_REPORT = "stated", "declared", "event log", "scan report"
#: Filters that are looked at, and those of one kind, which differ in their values alone.
MOST_FILTERS, MOST_VALUES = 200, 16
_NO_BOUNDS = ("list", "map", "struct", "variant", "geometry", "geography", "unknown")


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters, the most frequent first; ``notes`` say in sentences what was left out and why."""

    filters: tuple[Filter, ...]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that queries ask for, by how often."""
        weights: dict[str, float] = {}
        for one in self.filters:
            for column in one.columns:
                weights[column] = weights.get(column, 0.0) + one.weight
        return tuple(sorted(weights, key=lambda c: -weights[c]))


def read_filters(lake: Lake, facts: TableFacts, *, sql: Sequence[str] = (), event_log: str = "", scan_reports: str = "") -> Filters:
    """The filters of queries on a table: ``sql`` predicates or whole queries, those of a Spark event log, of Iceberg scan reports.

    Without any of them, a point lookup on each column that the table declares (``icekit.filter-columns``). Filters
    of scan reports and declared columns have no values, see :func:`icekit.tune.filters.bind`. Raises
    :class:`~icekit.errors.ParameterError` for what is no predicate on this table, and for a log that cannot be read.
    """
    known, gone = names_ever(lake, facts)
    unknown: set[str] = set()
    found = _Merged()
    notes: list[str] = []
    for text in sql:
        found.add(_stated(lake, facts, text, known, unknown))
    if event_log:
        found.add(_logged(event_log, facts, known, unknown))
    if scan_reports:
        found.add(Filter(text, tree, 1.0, SCAN_REPORT) for text, tree in filters_in(scan_reports, facts.table, known, unknown))
    if not (sql or event_log or scan_reports):
        declared, notes = _declared(facts)
        found.add(declared)
    for name in sorted(unknown):
        what = "was dropped" if name in gone else "is not a column of the table whose bounds Iceberg could skip by"
        notes.append(f"Filters on {name} are left out: it {what}.")
    if found.blind:
        notes.append(
            f"{count(round(found.blind), 'query', 'queries')} asked for nothing that Iceberg can skip files by (no filter, or functions of columns)."
        )
    kept, shapes = found.kept()
    if shapes < len(found.shapes):
        notes.append(f"Of {len(found.shapes):,} kinds of filters the {shapes:,} most frequent are looked at.")
    return Filters(kept, tuple(notes))


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
    known.update({c.name: c for c in facts.columns})
    return known, frozenset(gone - known.keys())


def _stated(lake: Lake, facts: TableFacts, text: str, known: Mapping[str, Column], unknown: set[str]) -> list[Filter]:
    """A predicate or a query, as Spark pushes it to Iceberg; one filter for each time that it reads the table."""
    name = lake.sql_name(facts.table)
    is_query = re.match(r"\s*(SELECT|WITH)\b", text, re.I) is not None
    with session_of(lake) as spark:
        if is_query:
            query = _query(spark, text)
        else:
            condition = read_predicate(spark, spark.table(identifier(*name)), text)
            query = query_of(spark, f"SELECT * FROM {identifier(*name)} WHERE {condition.sql}")
        scans = [str(n.scan().description()) for n in nodes(query.executedPlan()) if is_scan_of(n, name)]
    if is_query and not scans:
        raise ParameterError(f"{text!r} does not read {display_name(facts.table)}; give a query of this table, or a predicate.")
    return [Filter(text, tree, 1.0, STATED) for tree in ([_tree(scan, known, unknown) for scan in scans] or [Anything()])]


def _query(spark: SparkSession, text: str) -> Any:
    """The plan of a whole query, which is not run; what would change something (a WITH may stand before a DELETE) is refused."""
    try:
        query = query_of(spark, text)
    except StatementRefused as error:
        raise ParameterError(f"{text!r} is not a query: {error}", detail=error.detail) from None
    if changes_something(spark, query):
        raise ParameterError(f"{text!r} is not a query but a statement that changes something; give a SELECT, or a predicate.")
    return query


def _logged(path: str, facts: TableFacts, known: Mapping[str, Column], unknown: set[str]) -> Iterator[Filter]:
    for query in queries(path, facts.table):
        for description in query.scans:
            yield Filter(filters_of(description) or "", _tree(description, known, unknown), 1.0, EVENT_LOG)


def _tree(description: str, known: Mapping[str, Column], unknown: set[str]) -> Node:
    text = filters_of(description)
    if not text:
        return Anything()
    try:
        return parse(text, known, unknown)
    except (Unreadable, ValueError):
        # Another version of Iceberg may describe a filter otherwise; nothing is known of it then.
        return Anything()


def _declared(facts: TableFacts) -> tuple[list[Filter], list[str]]:
    found: list[Filter] = []
    notes: list[str] = []
    for column in (c for c in facts.columns if c.name in facts.filter_columns):
        if column.type.startswith(_NO_BOUNDS):
            notes.append(f"The declared filter column {column.name} is left out: its type has no bounds.")
        else:
            found.append(Filter(f"{column.name} = ?", Leaf(column.name, "="), 1.0, DECLARED))
    return found, notes


class _Merged:
    """Filters as they come, merged: equal ones into one, and of those that differ in their values alone a few."""

    def __init__(self) -> None:
        self.blind = 0.0
        #: By the tree without values: the weight of all, and the filters that are kept.
        self.shapes: dict[Node, tuple[float, dict[Node, Filter]]] = {}

    def add(self, filters: Iterable[Filter]) -> None:
        for one in filters:
            if isinstance(one.tree, Anything):
                self.blind += one.weight
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
        """The most frequent kinds, with the weight of all their queries, and how many kinds they are."""
        found: list[Filter] = []
        shapes = 0
        for weight, same in sorted(self.shapes.values(), key=lambda s: -s[0]):
            if len(found) + len(same) > MOST_FILTERS:
                break
            shapes += 1
            share = weight / sum(f.weight for f in same.values())
            found += (replace(f, weight=f.weight * share) for f in same.values())
        return tuple(sorted(found, key=lambda f: -f.weight)), shapes
