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
    conditions: tuple[FilterTree, ...]


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
        return tuple(dict.fromkeys(condition.column for condition in column_conditions(self.tree)))

    @property
    def is_without_value(self) -> bool:
        """Tell whether it is a lookup of which only the column is known."""
        return (
            isinstance(self.tree, ColumnCondition)
            and not self.tree.values
            and self.tree.op != NULLS
        )


#: Filters with their SQL.
SqlFilters = list[tuple[Filter, str]]


def column_conditions(tree: FilterTree) -> list[ColumnCondition]:
    """The conditions on columns in a tree."""
    if isinstance(tree, ColumnCondition):
        return [tree]
    return [condition for child in tree.conditions for condition in column_conditions(child)]


def operators(filters: Iterable[Filter], column: str) -> set[str]:
    """The operators that filters use on a column."""
    return {
        condition.op
        for f in filters
        for condition in column_conditions(f.tree)
        if condition.column == column
    }


def simplified_group(connective: str, conditions: Iterable[FilterTree]) -> FilterTree:
    """Conditions that all hold, or of which one holds, simplified: nothing is known of an ``OR``
    with a part that cannot be ruled out.
    """
    unique_conditions: dict[FilterTree, None] = {}
    for condition in conditions:
        if condition == ANYTHING and connective == "OR":
            return ANYTHING
        flat_conditions = (
            condition.conditions
            if isinstance(condition, ConditionGroup) and condition.connective == connective
            else (condition,)
        )
        unique_conditions |= dict.fromkeys(flat_conditions)
    return (
        ConditionGroup(connective, tuple(unique_conditions))
        if len(unique_conditions) != 1
        else next(iter(unique_conditions))
    )


def filter_sql(tree: FilterTree, columns: Columns) -> str:
    """A tree as a predicate of Spark SQL that Iceberg receives completely; ``columns`` are the
    table's leaves by name.

    Raises KeyError for a column that does not exist, ValueError for a value that has no literal or
    is not known.
    """
    if isinstance(tree, ConditionGroup):
        return f" {tree.connective} ".join(
            f"({filter_sql(child, columns)})" for child in tree.conditions
        )
    column = columns[tree.column]
    column_sql = identifier(*column.names)
    if tree.op == NULLS:
        return f"{column_sql} IS NULL"
    if not tree.values:
        raise ValueError(f"the values of {tree.column} are not known")
    time_unit, _, op = tree.op.rpartition(" ")
    if time_unit:
        unit_numbers = sorted(int(str(unit_number)) for unit_number in tree.values)
        if op in EQUALITY:
            return " OR ".join(
                unit_range_predicates(column_sql, column.type, time_unit, unit_numbers)
            )
        # The unit is complete on one side of the bound.
        unit_start = time_unit_start(time_unit, unit_numbers[0] + (op in {"<=", ">"}))
        op = "<" if op.startswith("<") else ">="
        return f"{column_sql} {op} {moment_literal(column.type, unit_start)}"
    if op == "in":
        return in_values(column_sql, column.type, tree.values)
    value_literal = literal_of(column.type, tree.values[0])
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
    filters_match = _SCAN.search(scan_description)
    return filters_match[1] if filters_match else ""


def parse_filters(filters_text: str, columns: Columns, unknown_columns: set[str]) -> FilterTree:
    """The filters of a scan, which all hold, as a tree; ``columns`` decide how values are read.

    A condition on a column that does not exist rules out nothing; the name is added to
    ``unknown_columns``. Raises ValueError for a text that is not in this language.
    """
    filter_reader = _FilterReader(filters_text, columns, unknown_columns)
    conditions = []
    while filter_reader.position < len(filters_text):
        conditions.append(filter_reader.read_expression())
        if not filter_reader.skip_if_next(", ") and filter_reader.position < len(filters_text):
            raise ValueError(filters_text)
    return simplified_group("AND", conditions)


class _FilterReader:
    def __init__(self, filters_text: str, columns: Columns, unknown_columns: set[str]) -> None:
        self.text = filters_text
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

    def skip_if_next(self, token: str) -> bool:
        is_next = self.text.startswith(token, self.position)
        self.position += len(token) * is_next
        return is_next

    def take_match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        token_match = pattern.match(self.text, self.position)
        if token_match is None:
            raise ValueError(self.text)
        self.position = token_match.end()
        return token_match

    def read_expression(self) -> FilterTree:
        # Spark negates comparisons itself: what is left of NOT rules out no file.
        is_negated = self.skip_if_next("NOT (")
        if is_negated or self.skip_if_next("("):
            tree = self.read_expression()
            for connective in ("AND", "OR"):
                if self.skip_if_next(f" {connective} "):
                    tree = simplified_group(connective, (tree, self.read_expression()))
            self.take_match(_CLOSE)
            return ANYTHING if is_negated else tree
        if _ANYTHING.match(self.text, self.position):
            self.take_match(_ANYTHING)
            return ANYTHING
        return self.read_condition()

    def read_condition(self) -> FilterTree:
        start_position = self.position
        condition_match = self.take_match(self.condition)
        transform, column_name, op = condition_match.groups()
        column = self.columns.get(column_name)
        if column is None:
            self.unknown.add(self.text[start_position : condition_match.start(3) - 1])
        if op.endswith("NULL"):
            return ColumnCondition(column.name, NULLS) if column and op == "IS NULL" else ANYTHING
        self.skip_if_next(" ")
        values = self.read_literals(column.type if column else "")
        if (
            column is None
            or transform in {"bucket", "truncate"}
            or op in {"NOT IN", "NOT LIKE", "!=", "<>"}
        ):
            return ANYTHING
        if op == "LIKE":
            return ColumnCondition(column.name, "prefix", (str(values[0]).removesuffix("%"),))
        qualified_operator = f"{transform} {op}" if transform else op
        return ColumnCondition(
            column.name, qualified_operator.lower(), tuple(dict.fromkeys(values))
        )

    def read_literals(self, type_name: str) -> tuple[Scalar, ...]:
        if not self.skip_if_next("("):
            return (self.read_literal(type_name),)
        literal_values = [self.read_literal(type_name)]
        while self.skip_if_next(", "):
            literal_values.append(self.read_literal(type_name))
        self.take_match(_CLOSE)
        return tuple(literal_values)

    def read_literal(self, type_name: str) -> Scalar:
        quoted_text, bare_text = self.take_match(_VALUE).groups()
        return _parse_scalar(bare_text, type_name) if quoted_text is None else quoted_text


def _parse_scalar(literal_text: str, type_name: str) -> Scalar:
    if type_name.startswith(("int", "long", "date", "time")):
        return int(literal_text)
    if type_name in {"float", "double"}:
        return float(literal_text)
    if type_name.startswith(("binary", "fixed")):
        return literal_text.removeprefix("X'").removesuffix("'").lower()
    return literal_text == "true" if type_name == "boolean" else literal_text
