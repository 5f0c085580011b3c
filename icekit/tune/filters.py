"""Hold the filters of queries, describe them, and find the files that bounds rule out."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from icekit.facts.definition import Column
from icekit.facts.files import Scalar
from icekit.facts.where import among, literal_of, start_of
from icekit.sql import identifier

# --- Conditions of queries on columns, as far as Iceberg can skip files by them


EQUALITY, RANGE, PREFIX, NULLS = "equality", "range", "prefix", "nulls"
_KINDS = {
    "=": EQUALITY,
    "in": EQUALITY,
    "<": RANGE,
    "<=": RANGE,
    ">": RANGE,
    ">=": RANGE,
    "prefix": PREFIX,
    "is null": NULLS,
    "not null": NULLS,
}
_NEGATED = {
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "is null": "not null",
    "not null": "is null",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition on one column: ``op`` is =, in, <, <=, >, >=, prefix, is null or not null.

    ``values`` have the types that facts use (dates in days, timestamps in microseconds); empty if
    the source of the filter does not state them, and for nulls.
    """

    column: str
    op: str
    values: tuple[Scalar, ...] = ()

    @property
    def kind(self) -> str:
        """One of equality, range, prefix, nulls."""
        return _KINDS[self.op]

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
    """One filter of queries; ``weight`` is how often it was seen, ``origin`` where.

    ``text`` is the filter as found. ``tree`` is the part by which bounds of columns can skip files.
    ``is_pushed`` tells whether Iceberg receives any of it: it may skip files by partitions, even if
    bounds of columns decide nothing.
    """

    text: str
    tree: Node
    weight: float = 1.0
    origin: str = "stated"
    is_pushed: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it uses, in their order, except those with only ``is not null``, which Spark
        adds for every column.
        """
        return tuple(
            dict.fromkeys(leaf.column for leaf in leaves(self.tree) if leaf.op != "not null")
        )

    @property
    def is_bound(self) -> bool:
        """Tell whether all its values are known."""
        return all(leaf.is_bound for leaf in leaves(self.tree))


def leaves(node: Node) -> Iterator[Leaf]:
    """The conditions on columns in a tree."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, (All, Either)):
        for part in node.parts:
            yield from leaves(part)


def conjunction(parts: Iterator[Node] | tuple[Node, ...]) -> Node:
    """Conditions that all hold, simplified."""
    flat: list[Node] = []
    for part in parts:
        flat += (
            part.parts if isinstance(part, All) else [] if isinstance(part, Anything) else [part]
        )
    # Spark adds ``is not null`` for every column; a comparison with a value implies it.
    compared = {part.column for part in flat if isinstance(part, Leaf) and part.kind != NULLS}
    unique = tuple(
        dict.fromkeys(
            p
            for p in flat
            if not (isinstance(p, Leaf) and p.op == "not null" and p.column in compared)
        )
    )
    return Anything() if not unique else unique[0] if len(unique) == 1 else All(unique)


def disjunction(parts: Iterator[Node] | tuple[Node, ...]) -> Node:
    """Conditions of which one holds; nothing is known if one of them cannot be ruled out."""
    flat: list[Node] = []
    for part in parts:
        if isinstance(part, Anything):
            return part
        flat += part.parts if isinstance(part, Either) else [part]
    unique = tuple(dict.fromkeys(flat))
    return unique[0] if len(unique) == 1 else Either(unique)


def negated(node: Node) -> Node:
    """The negation, as far as bounds can decide it; ``<>`` rules out no file."""
    if isinstance(node, Leaf):
        return replace(node, op=_NEGATED[node.op]) if node.op in _NEGATED else Anything()
    if isinstance(node, All):
        return disjunction(tuple(map(negated, node.parts)))
    if isinstance(node, Either):
        return conjunction(tuple(map(negated, node.parts)))
    return node


def with_leaves(node: Node, change: Callable[[Leaf], Node]) -> Node:
    """The tree with each condition changed."""
    if isinstance(node, Leaf):
        return change(node)
    if isinstance(node, All):
        return conjunction(tuple(with_leaves(part, change) for part in node.parts))
    if isinstance(node, Either):
        return disjunction(tuple(with_leaves(part, change) for part in node.parts))
    return node


def sql(node: Node, columns: Mapping[str, Column]) -> str:
    """A tree as a predicate of Spark SQL that Iceberg receives completely; ``columns`` are the
    table's leaves by name.

    Raises KeyError for a column that does not exist, ValueError for a value that has no literal or
    is not known.
    """
    if isinstance(node, Anything):
        return "true"
    if isinstance(node, (All, Either)):
        return f" {'AND' if isinstance(node, All) else 'OR'} ".join(
            f"({sql(part, columns)})" for part in node.parts
        )
    column = columns[node.column]
    term = identifier(*column.names)
    if node.kind == NULLS:
        return f"{term} IS {'NOT ' * (node.op == 'not null')}NULL"
    if not node.values:
        raise ValueError(f"the values of {node.column} are not known")
    if node.op == "in":
        return among(term, column.type, node.values)
    if node.op == "prefix":
        return f"startswith({term}, {literal_of(column.type, node.values[0])})"
    return f"{term} {node.op} {literal_of(column.type, node.values[0])}"


def predicates(
    filters: Iterable[Filter], columns: Mapping[str, Column]
) -> list[tuple[Filter, str]]:
    """The filters with their SQL, except filters without values, on dropped columns, or with values
    that have no literal.
    """
    found = []
    for one in filters:
        try:
            found.append((one, sql(one.tree, columns)))
        except (KeyError, ValueError, OverflowError):
            continue
    return found


# --- Parse filters as Iceberg writes them into the description of a scan; pure
#
# The one language in which both a person's SQL (planned by Spark) and a Spark event log state what
# reached Iceberg: ``time_hour >= 1357344000000000, (carrier = 'UA' OR carrier IN ('AA', 'DL'))``.
# Source: ``Spark3Util.DescribeExpressionVisitor``. Quotes inside a text are not escaped there: a
# text ends at the first quote after which the language goes on.


_OPERATOR = re.compile(
    r" (IS NOT NULL|IS NULL|NOT IN|IN|NOT LIKE|LIKE|<=|>=|!=|<>|=|<|>)(?=[ ),]|$)",
)
_TEXT_END = re.compile(r"'(?=\)|, | AND | OR |$)")
_NUMBER = re.compile(r"[^\s,()]+")
_UNITS = ("year", "month", "day", "hour")
_TRANSFORM = re.compile(r"(year|month|day|hour|bucket|truncate)(?:\[(\d+)\])?\(")
_SCAN = re.compile(r"filters=(.*?), (?:runtimeFilters|groupedBy|caseSensitive)=", re.S)


class Unreadable(ValueError):
    """The text is not in this language."""


def filters_of(description: str) -> str | None:
    """The filters in a scan's description, empty if it has none; None if the text does not describe
    a scan.
    """
    found = _SCAN.search(description)
    return found[1] if found else None


def parse(text: str, columns: Mapping[str, Column], unknown: set[str] | None = None) -> Node:
    """The filters of a scan, which all hold, as a tree; ``columns`` decide how values are read,
    under any name they ever had.

    A condition on a column that does not exist rules out nothing; the name is added to ``unknown``.
    Raises :class:`Unreadable` for a text that is not in this language.
    """
    reader = _Reader(text, columns, set() if unknown is None else unknown)
    parts = []
    while reader.place < len(text):
        parts.append(reader.expression())
        if not reader.skip(", ") and reader.place < len(text):
            raise Unreadable(text)
    return conjunction(tuple(parts))


class _Reader:
    def __init__(self, text: str, columns: Mapping[str, Column], unknown: set[str]) -> None:
        self.text, self.columns, self.unknown, self.place = text, columns, unknown, 0

    def skip(self, token: str) -> bool:
        if self.text.startswith(token, self.place):
            self.place += len(token)
            return True
        return False

    def expression(self) -> Node:
        if self.skip("NOT ("):
            inner = self.expression()
            self.close()
            return negated(inner)
        if self.skip("("):
            parts = [self.expression()]
            if self.skip(" AND "):
                parts.append(self.expression())
                self.close()
                return conjunction(tuple(parts))
            if self.skip(" OR "):
                parts.append(self.expression())
                self.close()
                return disjunction(tuple(parts))
            self.close()
            return parts[0]
        if self.skip("true"):
            return Anything()
        if self.skip("is_nan("):
            self.place = self.text.index(")", self.place) + 1
            return Anything()
        return self.predicate()

    def close(self) -> None:
        if not self.skip(")"):
            raise Unreadable(self.text)

    def transformed(self) -> Node | None:
        """A condition on a transform of a known column, such as ``year(t) = 20``; None, at the same
        place, if there is none.
        """
        start = self.place
        found = _TRANSFORM.match(self.text, start)
        names = [n for n in self.columns if found and self.text.startswith(f"{n}) ", found.end())]
        if found is None or not names:
            return None
        column = self.columns[names[0]]
        self.place = found.end() + len(names[0]) + 1
        operator = _OPERATOR.match(self.text, self.place)
        if operator is None:
            self.place = start
            return None
        self.place = operator.end()
        op, name = operator[1], found[1]
        if op.endswith("NULL"):
            return Leaf(column.name, "is null" if op == "IS NULL" else "not null")
        self.skip(" ")
        # The value of a unit of time is a number, and that of a truncation has the column's type.
        of_value = column if name == "truncate" else replace(column, type="int")
        values = self.values(of_value) if op in {"IN", "NOT IN"} else (self.value(of_value),)
        return in_values_of(column, name, int(found[2] or 0), op, values)

    def predicate(self) -> Node:
        if (transformed := self.transformed()) is not None:
            return transformed
        # A name may contain anything, so names of known columns are tried first, the longest one
        # first.
        names = (n for n in self.columns if self.text.startswith(f"{n} ", self.place))
        name = max(
            (n for n in names if _OPERATOR.match(self.text, self.place + len(n))),
            key=len,
            default=None,
        )
        found = (
            _OPERATOR.match(self.text, self.place + len(name))
            if name
            else _OPERATOR.search(self.text, self.place)
        )
        if found is None:
            raise Unreadable(self.text)
        if name is None:
            self.unknown.add(self.text[self.place : found.start()])
        self.place = found.end()
        column = self.columns.get(name) if name else None
        op = found[1]
        if op.endswith("NULL"):
            return (
                Anything()
                if column is None
                else Leaf(column.name, "is null" if op == "IS NULL" else "not null")
            )
        self.skip(" ")
        values = self.values(column) if op in {"IN", "NOT IN"} else (self.value(column),)
        if column is None or op in {"NOT IN", "NOT LIKE", "!=", "<>"}:
            return Anything()
        if op == "IN":
            return Leaf(column.name, "in", tuple(dict.fromkeys(values)))
        if op == "LIKE":
            return Leaf(column.name, "prefix", (str(values[0]).removesuffix("%"),))
        return Leaf(column.name, op, values)

    def values(self, column: Column | None) -> tuple[Scalar, ...]:
        if not self.skip("("):
            raise Unreadable(self.text)
        found = [self.value(column)]
        while self.skip(", "):
            found.append(self.value(column))
        self.close()
        return tuple(found)

    def value(self, column: Column | None) -> Scalar:
        if self.skip("'"):
            end = _TEXT_END.search(self.text, self.place)
            if end is None:
                raise Unreadable(self.text)
            value = self.text[self.place : end.start()]
            self.place = end.end()
            return value
        found = _NUMBER.match(self.text, self.place)
        if found is None:
            raise Unreadable(self.text)
        self.place = found.end()
        return _scalar(found[0], column.type if column else "")


def in_values_of(
    column: Column, transform: str, width: int, op: str, values: Sequence[Scalar]
) -> Node:
    """A condition on a partition transform of a column as one on the column; anything if bounds of
    the column cannot decide it.
    """
    if op in {"=", "IN"}:
        return disjunction(tuple(_in_value_of(column, transform, width, value) for value in values))
    value = values[0]
    if op not in {"<", "<=", ">", ">="} or transform not in _UNITS or not isinstance(value, int):
        return Anything()
    try:
        bound = _instant(column, transform, value + (op in {"<=", ">"}))
    except (OverflowError, ValueError):
        return Anything()
    return Leaf(column.name, "<" if op in {"<", "<="} else ">=", (bound,))


def _in_value_of(column: Column, transform: str, width: int, value: Scalar) -> Node:
    if transform == "truncate" and isinstance(value, str) and column.type == "string":
        return Leaf(column.name, "prefix" if len(value) == width else "=", (value,))
    if not isinstance(value, int):
        return Anything()
    try:
        if transform in _UNITS:
            low, high = (_instant(column, transform, value + more) for more in (0, 1))
        elif transform == "truncate":
            low, high = value, value + width
        else:
            return Anything()  # a bucket
    except (OverflowError, ValueError):
        return Anything()
    return conjunction((Leaf(column.name, ">=", (low,)), Leaf(column.name, "<", (high,))))


def _instant(column: Column, transform: str, value: int) -> int:
    """When a unit of time begins, as facts keep values of the column."""
    since = start_of(transform, value) - start_of("day", 0)
    if column.type == "date":
        return since.days
    micros = since // dt.timedelta(microseconds=1)
    return micros * 1000 if "_ns" in column.type else micros


def _scalar(text: str, kind: str) -> Scalar:
    if kind in {"int", "long", "date", "time"} or kind.startswith("timestamp"):
        return int(text)
    if kind in {"float", "double"}:
        return float(text)
    if kind == "binary" or kind.startswith("fixed"):
        return text.removeprefix("X'").removesuffix("'").lower()
    return text == "true" if kind == "boolean" else text
