"""Read a condition from a person: one boolean expression over a table's columns, as Spark's own
parser reads it.

Every predicate from outside (``--where``, ``--filter``, a policy, a notebook, a call) comes through
:func:`read_predicate` before it is used. An accepted predicate means the same wherever it is
inserted: it is complete by itself, so it cannot close a surrounding parenthesis or continue as
another clause, and its value depends only on the row and, if it says so, the date and time. Columns
that Iceberg adds to each row, such as ``_file``, are accepted too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, load_table, scala_seq
from icekit.engine.errors import complaint, condition_of, engine_errors, explaining
from icekit.engine.planner import kind, query_of_frame
from icekit.errors import ParameterError, StatementRefused
from icekit.sql import Identifier, display_name, unquoted, without_texts
from icekit.terminal import quiet_errors
from icekit.units import shorten

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Characters of a predicate. Spark plans a longer one for minutes: its rules walk all of it again
# and again.
LONGEST = 50_000
#: Parentheses, brackets and CASE inside each other, and operators: its parser and rules recurse
# into each of them.
DEEPEST, MOST_OPERATORS = 100, 1_000
_SHOWN = 200
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NAME = r"(?:`(?:``|[^`])*`|[^\W\d]\w*)"
_PATH = re.compile(rf"(?<![\w.`])({_NAME})(?:\s*\.\s*{_NAME})+")
_LAMBDA = re.compile(r"(\w+)\s*->|\(([\w\s,]+)\)\s*->")
_OPERATOR = re.compile(
    r"\b(?:and|or|not|between|i?like|rlike|is|case|when|div)\b|\|\||::|[-+*/%&|^~!<>=]+", re.I
)
_OPENING_OR_CLOSING = re.compile(r"[(\[]|[)\]]|\bcase\b|\bend\b", re.I)
# Functions of the session, of which some are words without parentheses unless a column has the
# name.
_OF_SESSION = re.compile(
    r"(?<![\w.])(?:(?:current_(?:user|catalog|schema|database|timezone)|session_user|user)\s*\(|(?:current_user|session_user|user)\b)",
    re.I,
)
_OF_SEVERAL_ROWS = (
    "it has an aggregate, a window function or a generator, which has no value for a single row"
)
_SUBQUERY = "it has a subquery, but a filter may use only the row; write the values instead"
# Why Spark refuses a filter, by what its error's name begins with.
_REASONS = {
    "INVALID_WHERE_CONDITION": _OF_SEVERAL_ROWS,
    "UNSUPPORTED_EXPR_FOR_OPERATOR": _OF_SEVERAL_ROWS,
    "_LEGACY_ERROR_TEMP_1034": _OF_SEVERAL_ROWS,
    "UNSUPPORTED_GENERATOR": _OF_SEVERAL_ROWS,
    # Only a subquery names a table.
    "TABLE_OR_VIEW_NOT_FOUND": _SUBQUERY,
    "UNBOUND_SQL_PARAMETER": "it has a parameter marker, whose value is unknown here; write the "
    "value instead",
}


def read_predicate(spark: SparkSession, rows: DataFrame, text: str) -> str:
    """Check that a text is one boolean expression over the columns of a frame; reads no row, and
    returns the text in parentheses.

    Rejected: anything that Spark's parser does not accept as one complete expression, an alias
    (``AS``), comments and ``${…}`` (they could change the text around them, or be changed by a
    setting), non-boolean expressions, subqueries (a filter may use only this table's rows),
    aggregates, window functions and generators (they have no value for a single row), functions
    such as ``rand()`` (a filter must give the same answer each time), column names with a table
    qualifier (a clone has another name), and anything only the session knows: its variables and
    functions, ``current_user()`` and so on. ``now()`` and ``current_date()`` are accepted.

    Raises :class:`~icekit.errors.ParameterError`, which names the text and what is wrong with it.
    """
    from py4j.protocol import Py4JNetworkError

    check_text(text)
    state: Any = spark._jsparkSession.sessionState()
    # In parentheses no name may follow it.
    condition = f"({text})"
    try:
        with quiet_errors():
            # The parser takes the text as an expression, which must be all of it.
            state.sqlParser().parseExpression(text)
            filtered = rows.where(condition)
            why = _depends_on_more(spark, filtered) or _of_elsewhere(text, rows.columns)
    except Py4JNetworkError:
        raise
    except engine_errors() as error:
        raise _refused(text, _why(error, rows.columns)) from None
    if why:
        raise _refused(text, why)
    return condition


def check_text(text: str) -> None:
    """The part of :func:`read_predicate` that needs neither Spark nor a table; raises as that
    does.
    """
    if why := _wrong_with_text(text):
        raise _refused(text, why)


def _refused(text: object, why: str) -> ParameterError:
    return ParameterError(
        f"The filter {shorten(str(text), _SHOWN)!r} cannot be used: {why.rstrip('.')}. "
        "Give one condition on columns of the table, such as: id = 7 AND day >= DATE '2026-01-31'."
    )


def _wrong_with_text(text: object) -> str | None:
    if not isinstance(text, str):
        return "it is not a string"
    if not text.strip():
        return "it is empty"
    if len(text) > LONGEST:
        return (
            f"it has {len(text):,} characters, and Spark is too slow above {LONGEST:,}; use "
            "ranges, or several filters"
        )
    if (depth := _depth(bare := unquoted(text))) > DEEPEST:
        return (
            f"it is nested {depth:,} times, and Spark is too slow above {DEEPEST:,}; remove "
            "parentheses"
        )
    # The sign of a number is not an operator.
    if (
        operators := len(_OPERATOR.findall(re.sub(r"(?<=[(,])\s*-\s*(?=\d)", "", bare)))
    ) > MOST_OPERATORS:
        return (
            f"it has {operators:,} operators, and Spark is too slow above {MOST_OPERATORS:,}; use "
            "IN, ranges, or several filters"
        )
    if match := _CONTROL.search(text):
        return f"it has a control character ({match[0]!r})"
    if re.search(r"--|/\*", unquoted(text)):
        return "it has a comment (-- or /*); leave it out"
    if "${" in text:
        return (
            "Spark replaces ${…} with the value of a setting; write the value itself, and a "
            "dollar sign in a string as \\u0024"
        )
    return None


def _depth(text: str) -> int:
    """How many parentheses, brackets and CASE are open at once."""
    depth = deepest = 0
    for token in _OPENING_OR_CLOSING.findall(text):
        depth = depth + 1 if token in "([" or token.lower() == "case" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _of_elsewhere(text: str, columns: Sequence[str]) -> str | None:
    """What in a text is not of the row, by its name; None if nothing is."""
    bare = without_texts(text)
    known = {column.lower() for column in columns} | {"_partition"}
    for lambdas in _LAMBDA.findall(bare):
        known.update(name.strip().lower() for part in lambdas for name in part.split(","))
    for path in _PATH.finditer(bare):
        first = path[1].strip("`").replace("``", "`")
        # A function of a catalog has its name before it.
        if first.lower() not in known and not bare[path.end() :].lstrip().startswith("("):
            return (
                f"{path[0]} names a table or something of the session, and there is no column "
                f"{first}; write only the column name"
            )
    for word in _OF_SESSION.finditer(unquoted(text)):
        if word[0].endswith("(") or word[0].lower() not in known:
            return (
                f"it has {word[0].rstrip('( ')}, which belongs to the session and not to the row; "
                "write the value instead"
            )
    return None


def _depends_on_more(spark: SparkSession, found: DataFrame) -> str | None:
    """What the value depends on besides the row; None if on nothing."""
    from py4j.protocol import Py4JError

    session: Any = spark
    condition = _condition(found)
    patterns = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if condition.containsPattern(patterns.PLAN_EXPRESSION()):
        return _SUBQUERY
    if not condition.deterministic():
        return "its value changes each time it is evaluated, as with rand() and uuid()"
    for pattern in ("VARIABLE_REFERENCE", "PYTHON_UDF", "SCALA_UDF"):
        # Not every Spark has all of them.
        with contextlib.suppress(Py4JError):
            if condition.containsPattern(getattr(patterns, pattern)()):
                return (
                    "it has a variable or a function that only this session has; write the value "
                    "instead"
                )
    # Works out what is constant in it, such as a text compared with a number that is not a number.
    query_of_frame(found).optimizedPlan()
    return None


def _condition(found: DataFrame) -> Any:
    plan = query_of_frame(found).analyzed()
    # Columns that only Iceberg has, such as _file, are projected away above it.
    while kind(plan) != "Filter":
        plan = plan.children().apply(0)
    return plan.condition()


def _why(error: Any, columns: Sequence[str]) -> str:
    """What Spark objects to, and the nearest column where it knows no such column."""
    from pyspark.errors import ParseException

    message, code = complaint(error, columns), condition_of(error)
    if isinstance(error, ParseException):
        return f"Spark's parser does not accept it as one expression ({message})"
    if "NOT_BOOLEAN" in code:
        return f"it is not true or false for a row ({message})"
    return next((why for start, why in _REASONS.items() if code.startswith(start)), message)


Parts = tuple[str, ...]
#: What Iceberg's catalog puts before the name of a branch, as the last part of a table's name.
BRANCH = "branch_"
_TOKEN = "TerminalNodeImpl"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a text; ``end`` is the place after its last character."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The stretch itself."""
        return text[self.start : self.end]


class Tree:
    """The parse tree of one statement, asked for places and names."""

    def __init__(self, spark: SparkSession, sql: str) -> None:
        jvm: Any = spark._jvm
        self._parser: Any = spark._jsparkSession.sessionState().sqlParser()
        generated = jvm.org.apache.spark.sql.catalyst.parser
        antlr = jvm.org.antlr.v4.runtime
        lexer = generated.SqlBaseLexer(
            generated.UpperCaseCharStream(antlr.CharStreams.fromString(sql))
        )
        lexer.removeErrorListeners()
        reader = generated.SqlBaseParser(antlr.CommonTokenStream(lexer))
        reader.removeErrorListeners()
        self.sql = sql
        self._trees = antlr.tree.Trees
        self._grammar = generated.SqlBaseParser
        self._root: Any = reader.singleStatement()
        self.has_errors = int(reader.getNumberOfSyntaxErrors()) > 0

    @cached_property
    def dml(self) -> Any:
        """The MERGE, UPDATE or DELETE without a WITH before it; None for another statement."""
        first = self._root.getChild(0)
        if kind(first) != "DmlStatement":
            return None
        return children(first)[-1]

    @property
    def with_clause(self) -> str:
        """The WITH before a MERGE, UPDATE or DELETE as it is written; empty where there is none."""
        common = self.child(self._root.getChild(0), "Ctes")
        return self.text(common) if common is not None else ""

    def child(self, node: Any, of_kind: str) -> Any:
        """The first child of a kind, or None."""
        return next((c for c in children(node) if kind(c) == of_kind), None)

    def between(self, node: Any, first: str, last: str | None = None) -> list[Any]:
        """The children that follow a keyword, up to another one or to the end; empty ones left
        out.
        """
        full = [c for c in children(node) if self.span(c).end > self.span(c).start]
        words = [str(c.getText()).upper() if kind(c) == _TOKEN else None for c in full]
        if first not in words:
            return []
        start = words.index(first) + 1
        return full[start : words.index(last, start) if last and last in words[start:] else None]

    def span(self, node: Any) -> Span:
        """Where a node stands in the text; an empty node has an empty stretch."""
        first, last = (
            (node.getSymbol(), node.getSymbol())
            if kind(node) == _TOKEN
            else (node.getStart(), node.getStop())
        )
        start = int(first.getStartIndex())
        return Span(start, max(start, int(last.getStopIndex()) + 1) if last is not None else start)

    def text(self, node: Any) -> str:
        """A node as it is written."""
        return self.span(node).of(self.sql)

    def parts(self, node: Any) -> Parts | None:
        """The parts of a name, without backticks; None for what is not a plain name."""
        try:
            names = self._parser.parseMultipartIdentifier(self.text(node))
        except Exception:
            return None
        return tuple(str(part) for part in elements(names))

    def alias(self, nodes: Sequence[Any]) -> str | None:
        """The name that the first table alias among some nodes gives, None where there is none."""
        aliased = next((n for n in nodes if kind(n) == "TableAlias"), None)
        named = [c for c in children(aliased) if kind(c) != _TOKEN] if aliased is not None else []
        parts = self.parts(named[0]) if named else None
        return parts[0] if parts else None

    def count(self, rule: str) -> int:
        """How many nodes of a grammar's rule there are; one call, however many."""
        return int(
            self._trees.findAllRuleNodes(self._root, getattr(self._grammar, f"RULE_{rule}")).size()
        )


def spliced(text: str, edits: Sequence[tuple[Span, str]]) -> str:
    """A text with stretches replaced; they must not overlap."""
    for span, new in sorted(edits, key=lambda edit: (edit[0].start, edit[0].end), reverse=True):
        text = text[: span.start] + new + text[span.end :]
    return text


def children(node: Any) -> list[Any]:
    """What a node of a parse tree is made of."""
    return [node.getChild(i) for i in range(int(node.getChildCount()))]


def parsed(spark: SparkSession, text: str, how: str = "parsePlan") -> Any:
    """What Spark's parser makes of a text, before names are resolved; raises StatementRefused for
    what it does not take.
    """
    from pyspark.errors import PySparkException

    session: Any = spark._jsparkSession
    try:
        with quiet_errors():
            return getattr(session.sessionState().sqlParser(), how)(text)
    except PySparkException as error:
        raise StatementRefused(
            f"Spark cannot parse the statement: {complaint(error)}. Fix it and try again."
        ) from None


def with_variables(spark: SparkSession, sql: str) -> str:
    """The text that Spark parses, without what ends it."""
    jvm: Any = spark._jvm
    return (
        str(jvm.org.apache.spark.sql.internal.VariableSubstitution().substitute(sql))
        .strip()
        .rstrip("; \t\r\n")
    )


def resolved(spark: SparkSession, parts: Parts) -> tuple[Identifier, str | None]:
    """The table that a name stands for, with its catalog, and the branch it names."""
    from py4j.java_gateway import is_instance_of

    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if session.sessionState().catalog().isTempView(scala_seq(spark, parts)):
        raise StatementRefused(
            f"{display_name(parts)} is a temporary view, which cannot be written to. Give the "
            "Iceberg table that the view reads."
        )
    with explaining(("", *parts)):
        resolved = jvm.org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(
            session, list(parts)
        )
        name: Identifier = (
            str(resolved.catalog().name()),
            *map(str, resolved.identifier().namespace()),
            str(resolved.identifier().name()),
        )
    table: Identifier = name
    branch: str | None = None
    if name[-1].startswith(BRANCH) and len(name) > 2:
        with contextlib.suppress(Exception):
            load_table(spark, name[:-1])
            table, branch = name[:-1], name[-1].removeprefix(BRANCH)
    with explaining(table):
        loaded = load_table(spark, table)
    if is_instance_of(spark._sc._gateway, loaded, "org.apache.iceberg.BaseMetadataTable"):
        raise StatementRefused(
            f"{display_name(parts)} is a metadata table, which cannot be written to. Give the "
            "table itself."
        )
    return table, branch
