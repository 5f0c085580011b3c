"""Read a condition that a person states: one boolean expression over a table's columns, as Spark's own parser reads it.

Every predicate from outside (``--where``, ``--filter``, a policy, a notebook, a call) comes through
:func:`read_predicate` before it goes anywhere. What passes means the same wherever it is put: it is complete
by itself, so it cannot close the parenthesis it stands in or go on as another clause, and its value depends
on nothing but the row and, where it says so, the date and time. Columns that Iceberg adds to each row, such as ``_file``, are taken too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge
from icekit.engine.errors import engine_errors, first_sentence
from icekit.engine.plan_nodes import query_of_frame
from icekit.errors import ParameterError, nearest
from icekit.quiet import quiet_errors
from icekit.secrets import scrub
from icekit.sql import unquoted, without_texts
from icekit.units import shorten

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Characters of a predicate. Spark plans a longer one for minutes: its rules walk all of it again and again.
LONGEST = 50_000
#: Parentheses, brackets and CASE inside each other, and operators: its parser and rules recurse into each of them.
DEEPEST, MOST_OPERATORS = 100, 1_000
_SHOWN = 200
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NAME = r"(?:`(?:``|[^`])*`|[^\W\d]\w*)"
_PATH = re.compile(rf"(?<![\w.`])({_NAME})(?:\s*\.\s*{_NAME})+")
_LAMBDA = re.compile(r"(\w+)\s*->|\(([\w\s,]+)\)\s*->")
_OPERATOR = re.compile(r"\b(?:and|or|not|between|i?like|rlike|is|case|when|div)\b|\|\||::|[-+*/%&|^~!<>=]+", re.I)
_OPENING_OR_CLOSING = re.compile(r"[(\[]|[)\]]|\bcase\b|\bend\b", re.I)
# Functions of the session, of which some are words without parentheses unless a column has the name.
_OF_SESSION = re.compile(
    r"(?<![\w.])(?:(?:current_(?:user|catalog|schema|database|timezone)|session_user|user)\s*\(|(?:current_user|session_user|user)\b)", re.I
)
_OF_SEVERAL_ROWS = "it has an aggregate, a window function or a generator, which has no value for a single row"
# Why Spark refuses a filter, by what its error's name begins with.
_REASONS = {
    "INVALID_WHERE_CONDITION": _OF_SEVERAL_ROWS,
    "UNSUPPORTED_EXPR_FOR_OPERATOR": _OF_SEVERAL_ROWS,
    "_LEGACY_ERROR_TEMP_1034": _OF_SEVERAL_ROWS,
    "UNSUPPORTED_GENERATOR": _OF_SEVERAL_ROWS,
    "UNBOUND_SQL_PARAMETER": "it has a parameter marker, whose value is not known here; write the value in its place",
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition over a table's columns that stands by itself; ``text`` is as it was stated.

    ``columns`` are the top-level columns it reads, None where Spark does not say (Connect).
    """

    text: str
    columns: frozenset[str] | None

    @property
    def sql(self) -> str:
        """The condition in parentheses, next to other conditions."""
        return f"({self.text})"


def read_predicate(spark: SparkSession, rows: DataFrame, text: str, *, what: str = "filter") -> Predicate:
    """Check that a text is one boolean expression over the columns of a frame, of which no row is read.

    Refused: what Spark's parser does not take as one complete expression, a name for it (``AS``), comments and
    ``${…}`` (either would change what stands next to it, or be changed by a setting), what is not boolean,
    subqueries (a filter is of this table's rows alone), aggregates, window functions and generators (they have no
    value for a single row), functions such as ``rand()`` (a filter must give the same answer each time), names that a table
    is put before (it has another name on a clone), and what only the session knows: its variables and functions (which Spark
    Connect does not tell), ``current_user()`` and the like. ``now()`` and ``current_date()`` are taken. ``what`` names the text in the error.

    Raises :class:`~icekit.errors.ParameterError`, which names the text and what is wrong with it.
    """
    from py4j.protocol import Py4JNetworkError

    check_text(text, what=what)
    try:
        with quiet_errors():
            _parse(spark, rows, text)
            # In parentheses no name may follow it.
            found = rows.where(f"({text})")
            found.schema  # noqa: B018  under Connect nothing is analysed before
            why = _depends_on_more(spark, rows, found, text) or _of_elsewhere(text, rows.columns)
    except Py4JNetworkError:
        raise
    except engine_errors() as error:
        raise _refused(what, text, _why(error, rows.columns), error) from None
    if why:
        raise _refused(what, text, why)
    return Predicate(text, _columns(found) if has_bridge(spark) else None)


def check_text(text: str, *, what: str = "filter") -> None:
    """The part of :func:`read_predicate` that needs neither Spark nor a table; raises as that does."""
    if why := _wrong_with_text(text):
        raise _refused(what, text, why)


def _refused(what: str, text: object, why: str, error: Exception | None = None) -> ParameterError:
    return ParameterError(
        f"The {what} {shorten(str(text), _SHOWN)!r} cannot be used: {why.rstrip('.')}. "
        "Give one condition on columns of the table, such as: id = 7 AND day >= DATE '2026-01-31'.",
        detail=scrub(str(error)) if error else None,
    )


def _wrong_with_text(text: object) -> str | None:
    if not isinstance(text, str):
        return "it is not a text"
    if not text.strip():
        return "it is empty"
    if len(text) > LONGEST:
        return f"it has {len(text):,} characters, and Spark plans more than {LONGEST:,} too slowly; use ranges, or several filters"
    if (depth := _depth(bare := unquoted(text))) > DEEPEST:
        return f"it is nested {depth:,} times, and Spark reads more than {DEEPEST:,} too slowly; take parentheses out"
    # The sign of a number is not an operator.
    if (operators := len(_OPERATOR.findall(re.sub(r"(?<=[(,])\s*-\s*(?=\d)", "", bare)))) > MOST_OPERATORS:
        return (
            f"it has {operators:,} operators, and Spark plans more than {MOST_OPERATORS:,} too slowly; use IN, ranges, or several filters"
        )
    if found := _CONTROL.search(text):
        return f"it has a control character ({found[0]!r})"
    if re.search(r"--|/\*", unquoted(text)):
        return "it has a comment (-- or /*); leave it out"
    if "${" in text:
        return "Spark puts a setting's value in the place of ${…}; write the value itself, and a dollar sign in a text as \\u0024"
    return None


def _depth(text: str) -> int:
    """How many parentheses, brackets and CASE are open at once."""
    depth = deepest = 0
    for found in _OPENING_OR_CLOSING.findall(text):
        depth = depth + 1 if found in "([" or found.lower() == "case" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _of_elsewhere(text: str, columns: Sequence[str]) -> str | None:
    """What in a text is not of the row, by its name; None if nothing is."""
    bare = without_texts(text)
    known = {column.lower() for column in columns} | {"_partition"}
    for found in _LAMBDA.findall(bare):
        known.update(name.strip().lower() for part in found for name in part.split(","))
    for path in _PATH.finditer(bare):
        first = path[1].strip("`").replace("``", "`")
        # A function of a catalog has its name before it.
        if first.lower() not in known and not bare[path.end() :].lstrip().startswith("("):
            return f"{path[0]} names a table or what only the session knows, and there is no column {first}; write the column alone"
    for word in _OF_SESSION.finditer(unquoted(text)):
        if word[0].endswith("(") or word[0].lower() not in known:
            return f"it has {word[0].rstrip('( ')}, which is of the session and not of the row; write the value in its place"
    return None


def _parse(spark: SparkSession, rows: DataFrame, text: str) -> None:
    """Let Spark's parser take the text as an expression, which must be all of it."""
    if has_bridge(spark):
        state: Any = spark._jsparkSession.sessionState()
        state.sqlParser().parseExpression(text)
    else:
        rows.where(text).schema  # noqa: B018


def _depends_on_more(spark: SparkSession, rows: DataFrame, found: DataFrame, text: str) -> str | None:
    """What the value depends on besides the row; None if on nothing."""
    subquery = "it has a subquery, and a filter is asked of each row of this table alone; write the values in its place"
    random = "it has another value each time it is asked, as rand() and uuid() have"
    if has_bridge(spark):
        from py4j.protocol import Py4JError

        session: Any = spark
        condition = _condition(found)
        patterns = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        if condition.containsPattern(patterns.PLAN_EXPRESSION()):
            return subquery
        if not condition.deterministic():
            return random
        for pattern in ("VARIABLE_REFERENCE", "PYTHON_UDF", "SCALA_UDF"):
            # Not every Spark has all of them.
            with contextlib.suppress(Py4JError):
                if condition.containsPattern(getattr(patterns, pattern)()):
                    return "it has a variable or a function of the session, which is not there elsewhere; write the value in its place"
        # Works out what is constant in it, such as a text compared with a number that is not a number.
        query_of_frame(found).optimizedPlan()
        return None
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    # Without the plan: Spark takes neither kind of expression in these places.
    try:
        rows.select(F.exists(F.array(F.lit(1)), lambda _: F.expr(text))).schema  # noqa: B018
    except AnalysisException:
        return subquery
    try:
        rows.join(spark.range(1).toDF("icekit_other"), F.expr(text)).schema  # noqa: B018
    except AnalysisException:
        return random
    return None


def _condition(found: DataFrame) -> Any:
    plan = query_of_frame(found).analyzed()
    # Columns that only Iceberg has, such as _file, are projected away above it.
    while str(plan.getClass().getSimpleName()) != "Filter":
        plan = plan.children().apply(0)
    return plan.condition()


def _columns(found: DataFrame) -> frozenset[str]:
    references = _condition(found).references().toSeq()
    return frozenset(str(references.apply(i).name()) for i in range(references.size()))


def _why(error: Any, columns: Sequence[str]) -> str:
    """What Spark objects to, and the nearest columns where it knows no such column."""
    from pyspark.errors import ParseException, PySparkException

    said = first_sentence(error)
    if not isinstance(error, PySparkException):
        return said
    code = str((error.getCondition if hasattr(error, "getCondition") else error.getErrorClass)() or "")
    if isinstance(error, ParseException):
        return f"Spark's parser does not take it as one expression ({said})"
    if "NOT_BOOLEAN" in code:
        return f"it is not true or false for a row ({said})"
    if why := next((why for start, why in _REASONS.items() if code.startswith(start)), None):
        return why
    if not code.startswith("UNRESOLVED_COLUMN"):
        return said
    name = str((error.getMessageParameters() or {}).get("objectName", ""))
    there = ", ".join(columns[:10]) + (", …" if len(columns) > 10 else "")
    return said + (nearest(name.replace("`", ""), columns).rstrip("?") or f"; the columns are {there}")
