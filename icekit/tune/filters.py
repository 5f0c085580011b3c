"""Hold the filters of queries as conditions on columns by whose bounds Iceberg can skip files, and
read them from how Iceberg describes a scan.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icekit.facts.definition import Column
from icekit.facts.files import Scalar
from icekit.facts.where import among, literal_of, start_of
from icekit.sql import identifier

#: The leaf columns of a table by name.
Columns = Mapping[str, Column]
EQUALITY, NULLS = "equality", "nulls"
_KINDS = {"=": EQUALITY, "in": EQUALITY, "is null": NULLS}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition on one column: ``op`` is =, in, <, <=, >, >=, prefix or is null.

    ``values`` have the types that facts use (dates in days, timestamps in microseconds); empty if
    the source of the filter does not state them, and for nulls.
    """

    column: str
    op: str
    values: tuple[Scalar, ...] = ()

    @property
    def kind(self) -> str:
        """One of equality, range (also of a prefix) and nulls."""
        return _KINDS.get(self.op, "range")

    @property
    def is_bound(self) -> bool:
        """Tell whether its values are known."""
        return bool(self.values) or self.kind == NULLS


@dataclass(frozen=True, slots=True)
class Anything:
    """A condition that no bounds can rule out, such as one on a function."""


@dataclass(frozen=True, slots=True)
class All:
    """Conditions that all hold."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions of which one holds."""

    parts: tuple[Node, ...]


Node = Leaf | Anything | All | Either


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of queries, as far as bounds of columns can skip files by it; ``weight`` is how
    often it was seen.
    """

    tree: Node
    weight: float = 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it uses, in their order."""
        return tuple(dict.fromkeys(leaf.column for leaf in leaves(self.tree)))


#: Filters with their SQL.
Asked = list[tuple[Filter, str]]


def columns_of(filters: Iterable[Filter]) -> tuple[str, ...]:
    """The columns in filters, those of the first one first."""
    return tuple(dict.fromkeys(column for f in filters for column in f.columns))


def leaves(node: Node) -> Iterator[Leaf]:
    """The conditions on columns in a tree."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, (All, Either)):
        for part in node.parts:
            yield from leaves(part)


def conjunction(parts: Iterable[Node]) -> Node:
    """Conditions that all hold, simplified."""
    return _joined(All, [part for part in parts if not isinstance(part, Anything)])


def disjunction(parts: Iterable[Node]) -> Node:
    """Conditions of which one holds; nothing is known if one of them cannot be ruled out."""
    alternatives = list(parts)
    return Anything() if Anything() in alternatives else _joined(Either, alternatives)


def _joined(kind: type[All | Either], parts: Sequence[Node]) -> Node:
    nested = (part.parts if isinstance(part, kind) else (part,) for part in parts)
    unique = tuple(dict.fromkeys(part for group in nested for part in group))
    return kind(unique) if len(unique) > 1 else next(iter(unique), Anything())


def with_leaves(node: Node, change: Callable[[Leaf], Node]) -> Node:
    """The tree with each condition changed."""
    if isinstance(node, Leaf):
        return change(node)
    if isinstance(node, Anything):
        return node
    return _joined(type(node), [with_leaves(part, change) for part in node.parts])


def sql(node: Node, columns: Columns) -> str:
    """A tree as a predicate of Spark SQL that Iceberg receives completely; ``columns`` are the
    table's leaves by name.

    Raises KeyError for a column that does not exist, ValueError for a value that has no literal or
    is not known.
    """
    if isinstance(node, Anything):
        return "true"
    if isinstance(node, (All, Either)):
        word = " AND " if isinstance(node, All) else " OR "
        return word.join(f"({sql(part, columns)})" for part in node.parts)
    column = columns[node.column]
    term = identifier(*column.names)
    if node.kind == NULLS:
        return f"{term} IS NULL"
    if not node.values:
        raise ValueError(f"the values of {node.column} are not known")
    if node.op == "in":
        return among(term, column.type, node.values)
    if node.op == "prefix":
        return f"startswith({term}, {literal_of(column.type, node.values[0])})"
    return f"{term} {node.op} {literal_of(column.type, node.values[0])}"


# The one language in which both a person's SQL (planned by Spark) and a Spark event log state what
# reached Iceberg: ``time_hour >= 1357344000000000, (carrier = 'UA' OR carrier IN ('AA', 'DL'))``.
# Source: ``Spark3Util.DescribeExpressionVisitor``. Quotes inside a text are not escaped there: a
# text ends at the first quote after which the language goes on.


_VALUE = re.compile(r"'(.*?)'(?=\)|, | AND | OR |$)|([^\s,()'][^\s,()]*)", re.S)
_ANYTHING = re.compile(r"(?:true|is_nan\(.*?\))(?=\)|, | AND | OR |$)")
_SCAN = re.compile(r"filters=(.*?), (?:runtimeFilters|groupedBy|caseSensitive)=", re.S)


class Unreadable(ValueError):
    """The text is not in this language."""


def filters_of(description: str) -> str:
    """The filters in a scan's description; empty if it has none."""
    match = _SCAN.search(description)
    return match[1] if match else ""


def parse(text: str, columns: Columns, unknown: set[str]) -> Node:
    """The filters of a scan, which all hold, as a tree; ``columns`` decide how values are read.

    A condition on a column that does not exist rules out nothing; the name is added to ``unknown``.
    Raises :class:`Unreadable` for a text that is not in this language.
    """
    reader = _Reader(text, columns, unknown)
    parts = []
    while reader.position < len(text):
        parts.append(reader.expression())
        if not reader.skip(", ") and reader.position < len(text):
            raise Unreadable(text)
    return conjunction(parts)


class _Reader:
    def __init__(self, text: str, columns: Columns, unknown: set[str]) -> None:
        self.text, self.columns, self.unknown, self.position = text, columns, unknown, 0
        # A name may contain anything, so known columns are tried, the longest name first.
        names = "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))
        self.condition = re.compile(
            r"(?:(year|month|day|hour|bucket|truncate)(?:\[\d+\])?\()?"
            rf"({names}|.+?)\)? "
            r"(IS NOT NULL|IS NULL|NOT IN|IN|NOT LIKE|LIKE|<=|>=|!=|<>|=|<|>)(?=[ ),]|$)",
            re.S,
        )

    def skip(self, token: str) -> bool:
        is_next = self.text.startswith(token, self.position)
        self.position += len(token) * is_next
        return is_next

    def take(self, match: re.Match[str] | None) -> re.Match[str]:
        if match is None:
            raise Unreadable(self.text)
        self.position = match.end()
        return match

    def expect(self, token: str) -> None:
        if not self.skip(token):
            raise Unreadable(self.text)

    def expression(self) -> Node:
        # Spark negates comparisons itself: what is left of NOT rules out no file.
        is_negated = self.skip("NOT (")
        if is_negated or self.skip("("):
            node = self.expression()
            if self.skip(" AND "):
                node = conjunction((node, self.expression()))
            elif self.skip(" OR "):
                node = disjunction((node, self.expression()))
            self.expect(")")
            return Anything() if is_negated else node
        if match := _ANYTHING.match(self.text, self.position):
            self.take(match)
            return Anything()
        return self.predicate()

    def predicate(self) -> Node:
        start = self.position
        match = self.take(self.condition.match(self.text, start))
        unit, name, op = match.groups()
        column = self.columns.get(name)
        if column is None:
            self.unknown.add(self.text[start : match.start(3) - 1])
        if op.endswith("NULL"):
            return Leaf(column.name, "is null") if column and op == "IS NULL" else Anything()
        self.skip(" ")
        values = self.values(column.type if column else "")
        if (
            column is None
            or unit in {"bucket", "truncate"}
            or op in {"NOT IN", "NOT LIKE", "!=", "<>"}
        ):
            return Anything()
        if unit:
            return _in_units(column, unit, op, values)
        if op == "LIKE":
            return Leaf(column.name, "prefix", (str(values[0]).removesuffix("%"),))
        return Leaf(column.name, op.lower(), tuple(dict.fromkeys(values)))

    def values(self, kind: str) -> tuple[Scalar, ...]:
        if not self.skip("("):
            return (self.value(kind),)
        values = [self.value(kind)]
        while self.skip(", "):
            values.append(self.value(kind))
        self.expect(")")
        return tuple(values)

    def value(self, kind: str) -> Scalar:
        text, word = self.take(_VALUE.match(self.text, self.position)).groups()
        return _scalar(word, kind) if text is None else text


def _in_units(column: Column, unit: str, op: str, values: Sequence[Any]) -> Node:
    """A condition on a column's year, month, day or hour as one on the column; anything if bounds
    of the column cannot decide it.
    """
    try:
        spans = [[_instant(column, unit, value + more) for more in (0, 1)] for value in values]
    except (OverflowError, ValueError):
        return Anything()
    if op in {"=", "IN"}:
        return disjunction(
            conjunction((Leaf(column.name, ">=", (low,)), Leaf(column.name, "<", (high,))))
            for low, high in spans
        )
    bound = spans[0][op in {"<=", ">"}]
    return Leaf(column.name, "<" if op.startswith("<") else ">=", (bound,))


def _instant(column: Column, unit: str, value: int) -> int:
    """When a unit of time begins, as facts keep values of the column."""
    since = start_of(unit, value) - start_of("day", 0)
    if column.type == "date":
        return since.days
    micros = since // dt.timedelta(microseconds=1)
    return micros * 1000 if "_ns" in column.type else micros


def _scalar(text: str, kind: str) -> Scalar:
    if kind.startswith(("int", "long", "date", "time")):
        return int(text)
    if kind in {"float", "double"}:
        return float(text)
    if kind.startswith(("binary", "fixed")):
        return text.removeprefix("X'").removesuffix("'").lower()
    return text == "true" if kind == "boolean" else text
