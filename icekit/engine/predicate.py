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
from typing import TYPE_CHECKING, Any

from icekit.common.errors import ParameterError
from icekit.common.sql import without_quoted_parts
from icekit.common.terminal import quiet_errors
from icekit.common.units import shorten
from icekit.engine.errors import complaint, engine_errors
from icekit.engine.planner import frame_execution, node_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Characters of a predicate. Spark plans a longer one for minutes: its rules walk all of it again
# and again.
LONGEST_PREDICATE = 50_000
# Under this name a condition is checked, so that none qualifies a column by a table's name: a clone
# has another one.
_ALIAS = "icekit_rows"


def read_predicate(spark: SparkSession, rows: DataFrame, predicate: str) -> str:
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

    check_text(predicate)
    session_state: Any = spark._jsparkSession.sessionState()
    # In parentheses no name may follow it.
    condition_sql = f"({predicate})"
    try:
        with quiet_errors():
            # The parser takes the text as an expression, which must be all of it.
            session_state.sqlParser().parseExpression(predicate)
            objection = _dependency_objection(spark, rows.alias(_ALIAS).where(condition_sql))
    except Py4JNetworkError:
        raise
    except engine_errors() as error:
        raise _refusal(predicate, complaint(error).replace(f"`{_ALIAS}`.", "")) from None
    if objection:
        raise _refusal(predicate, objection)
    return condition_sql


def check_text(predicate: str) -> None:
    """The part of :func:`read_predicate` that needs neither Spark nor a table; raises as that
    does.
    """
    if not isinstance(predicate, str):
        raise _refusal(predicate, "it is not a string")
    if not predicate.strip():
        raise _refusal(predicate, "it is empty")
    if len(predicate) > LONGEST_PREDICATE:
        raise _refusal(
            predicate,
            f"it has {len(predicate):,} characters, and Spark is too slow above "
            f"{LONGEST_PREDICATE:,}; use ranges, or several filters",
        )
    if re.search(r"--|/\*", without_quoted_parts(predicate)):
        raise _refusal(predicate, "it has a comment (-- or /*); leave it out")
    if "${" in predicate:
        why = "Spark replaces ${…} with the value of a setting; write the value itself"
        raise _refusal(predicate, f"{why}, and a dollar sign in a string as \\u0024")


def _refusal(predicate: object, why: str) -> ParameterError:
    return ParameterError(
        f"The filter {shorten(str(predicate), 200)!r} cannot be used: {why.rstrip('.')}. "
        "Give one condition on columns of the table, such as: id = 7 AND day >= DATE '2026-01-31'."
    )


def _dependency_objection(spark: SparkSession, filtered_rows: DataFrame) -> str | None:
    """What the value depends on besides the row; None if on nothing."""
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm
    analyzed_plan = frame_execution(filtered_rows).analyzed()
    # Columns that only Iceberg has, such as _file, are projected away above it.
    while node_class(analyzed_plan) != "Filter":
        analyzed_plan = analyzed_plan.children().apply(0)
    condition_expression = analyzed_plan.condition()
    tree_patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if condition_expression.containsPattern(tree_patterns.PLAN_EXPRESSION()):
        return "it has a subquery, but a filter may use only the row; write the values instead"
    if not condition_expression.deterministic():
        return "its value changes each time it is evaluated, as with rand() and uuid()"
    for pattern_name in ("VARIABLE_REFERENCE", "PYTHON_UDF", "SCALA_UDF"):
        # Not every Spark has all of them.
        with contextlib.suppress(Py4JError):
            if condition_expression.containsPattern(getattr(tree_patterns, pattern_name)()):
                return (
                    "it has a variable or a function that only this session has; write the value "
                    "instead"
                )
    # Works out what is constant in it, such as a text compared with a number that is not a number.
    frame_execution(filtered_rows).optimizedPlan()
    return None
