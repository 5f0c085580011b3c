"""Hold the filters of queries as conditions on columns by whose bounds Iceberg can skip files, and
read them from how Iceberg describes a scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from icekit.common import frozen
from icekit.common.sql import identifier
from icekit.iceberg.definition import Column
from icekit.iceberg.partition import Scalar
from icekit.iceberg.where import (
    in_values,
    literal_of,
    moment_literal,
    time_unit_start,
    unit_range_predicates,
)

#: The leaf columns of a table by name.
Columns = Mapping[str, Column]
#: The operators of lookups, and that of a condition on nulls.
EQUALITY = frozenset({"=", "in"})
NULLS = "is null"


@frozen
class ColumnCondition:
    """A condition on one column: ``op`` is =, in, <, <=, >, >=, prefix or is null; one on a unit of
    time begins with the unit (``year >=``), and its values count from 1970.

    ``values`` have the types that facts use (dates in days, timestamps in microseconds); empty for
    nulls, and for a lookup of which only the column is known.
    """

    column: str
    op: str
    values: tuple[Scalar, ...] = ()


@frozen
class ConditionGroup:
    """Conditions that all hold (``AND``), or of which one holds (``OR``)."""

    connective: str
    parts: tuple[FilterTree, ...]


FilterTree = ColumnCondition | ConditionGroup
#: What no bounds can rule out, such as a condition on a function: there is none to hold.
ANYTHING = ConditionGroup("AND", ())


@frozen
class Filter:
    """One filter of queries, as far as bounds of columns can skip files by it; ``weight`` is how
    often it was seen.
    """

    tree: FilterTree
    weight: float = 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it uses, in their order."""
        return tuple(dict.fromkeys(leaf.column for leaf in column_conditions(self.tree)))

    @property
    def is_unbound(self) -> bool:
        """Tell whether it is a lookup of which only the column is known."""
        return (
            isinstance(self.tree, ColumnCondition)
            and not self.tree.values
            and self.tree.op != NULLS
        )


#: Filters with their SQL.
SqlFilters = list[tuple[Filter, str]]


def column_conditions(node: FilterTree) -> list[ColumnCondition]:
    """The conditions on columns in a tree."""
    if isinstance(node, ColumnCondition):
        return [node]
    return [leaf for part in node.parts for leaf in column_conditions(part)]


def operators(filters: Iterable[Filter], column: str) -> set[str]:
    """The operators that filters use on a column."""
    return {leaf.op for f in filters for leaf in column_conditions(f.tree) if leaf.column == column}


def simplified_group(connective: str, conditions: Iterable[FilterTree]) -> FilterTree:
    """Conditions that all hold, or of which one holds, simplified: nothing is known of an ``OR``
    with a part that cannot be ruled out.
    """
    unique_conditions: dict[FilterTree, None] = {}
    for condition in conditions:
        if condition == ANYTHING and connective == "OR":
            return ANYTHING
        flat_conditions = (
            condition.parts
            if isinstance(condition, ConditionGroup) and condition.connective == connective
            else (condition,)
        )
        unique_conditions |= dict.fromkeys(flat_conditions)
    return (
        ConditionGroup(connective, tuple(unique_conditions))
        if len(unique_conditions) != 1
        else next(iter(unique_conditions))
    )


def sql(node: FilterTree, columns: Columns) -> str:
    """A tree as a predicate of Spark SQL that Iceberg receives completely; ``columns`` are the
    table's leaves by name.

    Raises KeyError for a column that does not exist, ValueError for a value that has no literal or
    is not known.
    """
    if isinstance(node, ConditionGroup):
        return f" {node.connective} ".join(f"({sql(part, columns)})" for part in node.parts)
    column = columns[node.column]
    column_sql = identifier(*column.names)
    if node.op == NULLS:
        return f"{column_sql} IS NULL"
    if not node.values:
        raise ValueError(f"the values of {node.column} are not known")
    unit, _, op = node.op.rpartition(" ")
    if unit:
        values = sorted(int(str(value_literal)) for value_literal in node.values)
        if op in EQUALITY:
            return " OR ".join(unit_range_predicates(column_sql, column.type, unit, values))
        # The unit is complete on one side of the bound.
        unit_start = time_unit_start(unit, values[0] + (op in {"<=", ">"}))
        op = "<" if op.startswith("<") else ">="
        return f"{column_sql} {op} {moment_literal(column.type, unit_start)}"
    if op == "in":
        return in_values(column_sql, column.type, node.values)
    value_literal = literal_of(column.type, node.values[0])
    return (
        f"startswith({column_sql}, {value_literal})"
        if op == "prefix"
        else f"{column_sql} {op} {value_literal}"
    )


# The one language in which both a person's SQL (planned by Spark) and a Spark event log state what
# reached Iceberg: ``time_hour >= 1357344000000000, (carrier = 'UA' OR carrier IN ('AA', 'DL'))``.
# Source: ``Spark3Util.DescribeExpressionVisitor``. Quotes inside a text are not escaped there: a
# text ends at the first quote after which the language goes on.


_VALUE = re.compile(r"'(.*?)'(?=\)|, | AND | OR |$)|([^\s,()'][^\s,()]*)", re.S)
_CLOSE = re.compile(r"\)")
_ANYTHING = re.compile(r"(?:true|is_nan\(.*?\))(?=\)|, | AND | OR |$)")
_SCAN = re.compile(r"filters=(.*?), (?:runtimeFilters|groupedBy|caseSensitive)=", re.S)


def filters_of(scan_description: str) -> str:
    """The filters in a scan's description; empty if it has none."""
    match = _SCAN.search(scan_description)
    return match[1] if match else ""


def parse(text: str, columns: Columns, unknown_columns: set[str]) -> FilterTree:
    """The filters of a scan, which all hold, as a tree; ``columns`` decide how values are read.

    A condition on a column that does not exist rules out nothing; the name is added to
    ``unknown_columns``. Raises ValueError for a text that is not in this language.
    """
    reader = _FilterReader(text, columns, unknown_columns)
    conditions = []
    while reader.position < len(text):
        conditions.append(reader.read_expression())
        if not reader.skip(", ") and reader.position < len(text):
            raise ValueError(text)
    return simplified_group("AND", conditions)


class _FilterReader:
    def __init__(self, text: str, columns: Columns, unknown_columns: set[str]) -> None:
        self.text = text
        self.columns = columns
        self.unknown = unknown_columns
        self.position = 0
        # A name may contain anything, so known columns are tried, the longest name first.
        names_pattern = "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))
        self.condition = re.compile(
            r"(?:(year|month|day|hour|bucket|truncate)(?:\[\d+\])?\()?"
            rf"({names_pattern}|.+?)\)? "
            r"(IS NOT NULL|IS NULL|NOT IN|IN|NOT LIKE|LIKE|<=|>=|!=|<>|=|<|>)(?=[ ),]|$)",
            re.S,
        )

    def skip(self, token: str) -> bool:
        is_next = self.text.startswith(token, self.position)
        self.position += len(token) * is_next
        return is_next

    def take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise ValueError(self.text)
        self.position = match.end()
        return match

    def read_expression(self) -> FilterTree:
        # Spark negates comparisons itself: what is left of NOT rules out no file.
        is_negated = self.skip("NOT (")
        if is_negated or self.skip("("):
            node = self.read_expression()
            for word in ("AND", "OR"):
                if self.skip(f" {word} "):
                    node = simplified_group(word, (node, self.read_expression()))
            self.take(_CLOSE)
            return ANYTHING if is_negated else node
        if _ANYTHING.match(self.text, self.position):
            self.take(_ANYTHING)
            return ANYTHING
        return self.predicate()

    def predicate(self) -> FilterTree:
        start_position = self.position
        match = self.take(self.condition)
        unit, name, op = match.groups()
        column = self.columns.get(name)
        if column is None:
            self.unknown.add(self.text[start_position : match.start(3) - 1])
        if op.endswith("NULL"):
            return ColumnCondition(column.name, NULLS) if column and op == "IS NULL" else ANYTHING
        self.skip(" ")
        values = self.values(column.type if column else "")
        if (
            column is None
            or unit in {"bucket", "truncate"}
            or op in {"NOT IN", "NOT LIKE", "!=", "<>"}
        ):
            return ANYTHING
        if op == "LIKE":
            return ColumnCondition(column.name, "prefix", (str(values[0]).removesuffix("%"),))
        operator_name = f"{unit} {op}" if unit else op
        return ColumnCondition(column.name, operator_name.lower(), tuple(dict.fromkeys(values)))

    def values(self, type_name: str) -> tuple[Scalar, ...]:
        if not self.skip("("):
            return (self.value(type_name),)
        values = [self.value(type_name)]
        while self.skip(", "):
            values.append(self.value(type_name))
        self.take(_CLOSE)
        return tuple(values)

    def value(self, type_name: str) -> Scalar:
        text, word = self.take(_VALUE).groups()
        return _parse_scalar(word, type_name) if text is None else text


def _parse_scalar(text: str, type_name: str) -> Scalar:
    if type_name.startswith(("int", "long", "date", "time")):
        return int(text)
    if type_name in {"float", "double"}:
        return float(text)
    if type_name.startswith(("binary", "fixed")):
        return text.removeprefix("X'").removesuffix("'").lower()
    return text == "true" if type_name == "boolean" else text
