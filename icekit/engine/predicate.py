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
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.common.errors import ParameterError, StatementRefused
from icekit.common.sql import Identifier, display_name, unquoted
from icekit.common.terminal import quiet_errors
from icekit.common.units import shorten
from icekit.engine.bridge import elements, load_table, scala_seq
from icekit.engine.errors import complaint, engine_errors, explaining
from icekit.engine.planner import kind, query_of_frame, refusing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Characters of a predicate. Spark plans a longer one for minutes: its rules walk all of it again
# and again.
LONGEST = 50_000
# Under this name a condition is checked, so that none qualifies a column by a table's name: a clone
# has another one.
_ALIAS = "icekit_rows"


def read_predicate(spark: SparkSession, rows: DataFrame, text: str) -> str:
    """Check that a text is one boolean expression over the columns of a frame; reads no row, and
    returns the text in parentheses.

    Rejected: anything that Spark's parser does not accept as one complete expression, an alias
    (``AS``), comments and ``${…}`` (they could change the text around them, or be changed by a
    setting), non-boolean expressions, subqueries (a filter may use only this table's rows),
    aggregates, window functions and generators (they have no value for a single row), functions
    such as ``rand()`` (a filter must give the same answer each time), column names with a table
    qualifier (a clone has another name), and the session's own variables and functions. ``now()``
    and ``current_user()`` are accepted.

    Raises :class:`~icekit.common.errors.ParameterError`, which names the text and what is wrong
    with it.
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
            why = _depends_on_more(spark, rows.alias(_ALIAS).where(condition))
    except Py4JNetworkError:
        raise
    except engine_errors() as error:
        raise _refused(text, complaint(error).replace(f"`{_ALIAS}`.", "")) from None
    if why:
        raise _refused(text, why)
    return condition


def check_text(text: str) -> None:
    """The part of :func:`read_predicate` that needs neither Spark nor a table; raises as that
    does.
    """
    if not isinstance(text, str):
        raise _refused(text, "it is not a string")
    if not text.strip():
        raise _refused(text, "it is empty")
    if len(text) > LONGEST:
        why = f"it has {len(text):,} characters, and Spark is too slow above {LONGEST:,}"
        raise _refused(text, f"{why}; use ranges, or several filters")
    if re.search(r"--|/\*", unquoted(text)):
        raise _refused(text, "it has a comment (-- or /*); leave it out")
    if "${" in text:
        why = "Spark replaces ${…} with the value of a setting; write the value itself"
        raise _refused(text, f"{why}, and a dollar sign in a string as \\u0024")


def _refused(text: object, why: str) -> ParameterError:
    return ParameterError(
        f"The filter {shorten(str(text), 200)!r} cannot be used: {why.rstrip('.')}. "
        "Give one condition on columns of the table, such as: id = 7 AND day >= DATE '2026-01-31'."
    )


def _depends_on_more(spark: SparkSession, filtered: DataFrame) -> str | None:
    """What the value depends on besides the row; None if on nothing."""
    from py4j.protocol import Py4JError

    session: Any = spark
    plan = query_of_frame(filtered).analyzed()
    # Columns that only Iceberg has, such as _file, are projected away above it.
    while kind(plan) != "Filter":
        plan = plan.children().apply(0)
    condition = plan.condition()
    patterns = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if condition.containsPattern(patterns.PLAN_EXPRESSION()):
        return "it has a subquery, but a filter may use only the row; write the values instead"
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
    query_of_frame(filtered).optimizedPlan()
    return None


#: What Iceberg's catalog puts before the name of a branch, as the last part of a table's name.
BRANCH = "branch_"
_TOKEN = "TerminalNodeImpl"


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
        full = [c for c in children(node) if self.text(c)]
        words = [str(c.getText()).upper() if kind(c) == _TOKEN else None for c in full]
        if first not in words:
            return []
        start = words.index(first) + 1
        return full[start : words.index(last, start) if last and last in words[start:] else None]

    def span(self, node: Any) -> slice:
        """Where a node stands in the text; an empty node has an empty stretch."""
        first, last = (
            (node.getSymbol(), node.getSymbol())
            if kind(node) == _TOKEN
            else (node.getStart(), node.getStop())
        )
        start = int(first.getStartIndex())
        end = start if last is None else max(start, int(last.getStopIndex()) + 1)
        return slice(start, end)

    def text(self, node: Any) -> str:
        """A node as it is written."""
        return self.sql[self.span(node)]

    def parts(self, node: Any) -> Identifier | None:
        """The parts of a name, without backticks; None for what is not a plain name."""
        try:
            names = self._parser.parseMultipartIdentifier(self.text(node))
        except Exception:
            return None
        return tuple(str(part) for part in elements(names))

    def alias(self, nodes: Sequence[Any]) -> str | None:
        """The name that the first table alias among some nodes gives, None where there is none."""
        aliased = next((n for n in nodes if kind(n) == "TableAlias"), None)
        name_parts = (
            [c for c in children(aliased) if kind(c) != _TOKEN] if aliased is not None else []
        )
        parts = self.parts(name_parts[0]) if name_parts else None
        return parts[0] if parts else None

    def count(self, rule: str) -> int:
        """How many nodes of a grammar's rule there are; one call, however many."""
        return int(
            self._trees.findAllRuleNodes(self._root, getattr(self._grammar, f"RULE_{rule}")).size()
        )


def spliced(text: str, span: slice, new: str) -> str:
    """A text with a stretch replaced."""
    return text[: span.start] + new + text[span.stop :]


def children(node: Any) -> list[Any]:
    """What a node of a parse tree is made of."""
    return [node.getChild(i) for i in range(int(node.getChildCount()))]


def parsed(spark: SparkSession, text: str, method: str = "parsePlan") -> Any:
    """What Spark's parser makes of a text, before names are resolved; raises StatementRefused for
    what it does not take.
    """
    session: Any = spark._jsparkSession
    with refusing("parse", "Fix it and try again."):
        return getattr(session.sessionState().sqlParser(), method)(text)


def with_variables(spark: SparkSession, sql: str) -> str:
    """The text that Spark parses, without what ends it."""
    jvm: Any = spark._jvm
    return (
        str(jvm.org.apache.spark.sql.internal.VariableSubstitution().substitute(sql))
        .strip()
        .rstrip("; \t\r\n")
    )


def resolved(spark: SparkSession, parts: Identifier) -> tuple[Identifier, str | None]:
    """The table that a name stands for, with its catalog, and the branch it names."""
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
            table = name[:-1]
            branch = name[-1].removeprefix(BRANCH)
    with explaining(table):
        load_table(spark, table)
    return table, branch
