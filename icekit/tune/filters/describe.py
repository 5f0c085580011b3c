"""Parse filters as Iceberg writes them into the description of a scan; pure.

The one language in which a person's SQL (planned by Spark) and a Spark event log say what reached
Iceberg: ``time_hour >= 1357344000000000, (carrier = 'UA' OR carrier IN ('AA', 'DL'))``. Source:
``Spark3Util.DescribeExpressionVisitor``. Quotes inside a text are not escaped there: a text ends at the
first quote after which the language goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from icekit.facts.files import Scalar
from icekit.facts.parts import Column
from icekit.tune.filters.model import Anything, Leaf, Node, conjunction, disjunction, negated

_OPERATOR = re.compile(
    r" (IS NOT NULL|IS NULL|NOT IN|IN|NOT LIKE|LIKE|<=|>=|!=|<>|=|<|>)(?=[ ),]|$)",
)
_TEXT_END = re.compile(r"'(?=\)|, | AND | OR |$)")
_NUMBER = re.compile(r"[^\s,()]+")
_SCAN = re.compile(r"filters=(.*?), (?:runtimeFilters|groupedBy|caseSensitive)=", re.S)


class Unreadable(ValueError):
    """The text is not in this language."""


def filters_of(description: str) -> str | None:
    """The filters in a scan's description, empty if it has none; None where it is no description of a scan."""
    found = _SCAN.search(description)
    return found[1] if found else None


def parse(text: str, columns: Mapping[str, Column], unknown: set[str] | None = None) -> Node:
    """The filters of a scan, which all hold, as a tree; ``columns`` decide how values are read, by any name they ever had.

    A condition on a column that is not there may be anything, and its name is added to ``unknown``.
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

    def predicate(self) -> Node:
        # A name may hold anything, so a known column's is tried first: the longest that fits.
        names = (n for n in self.columns if self.text.startswith(f"{n} ", self.place))
        name = max((n for n in names if _OPERATOR.match(self.text, self.place + len(n))), key=len, default=None)
        found = _OPERATOR.match(self.text, self.place + len(name)) if name else _OPERATOR.search(self.text, self.place)
        if found is None:
            raise Unreadable(self.text)
        if name is None:
            self.unknown.add(self.text[self.place : found.start()])
        self.place = found.end()
        column = self.columns.get(name) if name else None
        op = found[1]
        if op.endswith("NULL"):
            return Anything() if column is None else Leaf(column.name, "is null" if op == "IS NULL" else "not null")
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


def _scalar(text: str, kind: str) -> Scalar:
    if kind in {"int", "long", "date", "time"} or kind.startswith("timestamp"):
        return int(text)
    if kind in {"float", "double"}:
        return float(text)
    if kind == "binary" or kind.startswith("fixed"):
        return text.removeprefix("X'").removesuffix("'").lower()
    return text == "true" if kind == "boolean" else text
