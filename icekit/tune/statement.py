"""Parse a MERGE, UPDATE or DELETE with Spark, and edit its text.

The text is never generated from a plan: a statement with another target table or
one more condition keeps its comments, line breaks and spelling.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ParameterError, StatementRefused
from icekit.common.sql import Identifier, identifier
from icekit.engine.bridge import require_classic
from icekit.engine.planner import kind
from icekit.engine.predicate import (
    BRANCH,
    Tree,
    children,
    parsed,
    resolved,
    spliced,
    with_variables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_KINDS = {"MergeIntoTable": "MERGE", "UpdateTable": "UPDATE", "DeleteFromTable": "DELETE"}
_CLAUSES = {
    "MatchedClause": "matched",
    "NotMatchedClause": "not matched",
    "NotMatchedBySourceClause": "not matched by source",
}


@frozen
class Statement:
    """A statement that changes rows of an Iceberg table.

    ``sql`` is the text as Spark parses it: variables are put in, the semicolon at its end is gone.
    ``target`` is the table with its catalog, ``branch`` the branch of it that is written to,
    ``alias`` the name that the statement gives it. ``condition`` is the text of the ON clause of a
    MERGE or the WHERE clause of the others, ``source`` what a MERGE reads from, alias included.
    ``with_clause`` is the WITH before the statement, and ``when_clauses`` are the kinds of a
    MERGE's WHEN clauses in their order (matched, not matched, not matched by source).
    """

    kind: str
    sql: str
    target: Identifier
    branch: str | None
    alias: str | None
    condition: str | None
    source: str | None
    with_clause: str
    when_clauses: tuple[str, ...]
    _target_span: slice
    _condition_span: slice | None

    def on(self, table: Identifier) -> str:
        """The same statement aimed at another table, named with its catalog, such as a clone.

        Sub-queries that read the target by its name go on reading the table itself. Without an
        alias the other table gets the last name of the target as its alias, so Spark refuses
        columns that are qualified by more of its name.
        """
        name = identifier(*self.with_branch(table))
        if self.alias is None:
            name += f" AS {identifier(*self.qualifier)}"
        return spliced(self.sql, self._target_span, name)

    def with_branch(self, table: Identifier) -> Identifier:
        """A table's name with the branch that this statement writes to."""
        return (*table, f"{BRANCH}{self.branch}") if self.branch else table

    def with_condition(self, predicate: str) -> str:
        """The statement with one more condition beside its own: ``(its own) AND (predicate)``.

        A statement without a WHERE gets one. :func:`narrow_statement` also checks what came out.
        """
        if self._condition_span is None:
            return f"{self.sql}\nWHERE {predicate}"
        return spliced(self.sql, self._condition_span, f"({self.condition}) AND ({predicate})")

    @property
    def qualifier(self) -> Identifier:
        """What columns of the target are qualified by in this statement, as parts of a name."""
        return (self.alias or self.with_branch(self.target)[-1],)


_NO_STATEMENT = "The text has no statement; give one MERGE, UPDATE or DELETE."


def read_statement_file(path: str) -> str:
    """The text of a file, or of standard input for ``-``.

    Raises :class:`~icekit.common.errors.ParameterError`, and
    :class:`~icekit.common.errors.StatementRefused` for an empty text: no text means a statement
    like the history's.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(
            f"{path} cannot be read as text ({type(error).__name__}); give a file with one "
            "statement."
        ) from None
    if not text.strip():
        raise StatementRefused(_NO_STATEMENT)
    return text


def parse(spark: SparkSession, sql: str) -> Statement:
    """Read one MERGE, UPDATE or DELETE of an Iceberg table; nothing is run.

    Names are resolved as Spark does: by the session's current catalog and namespace, and a
    temporary view before a table. Raises :class:`~icekit.common.errors.StatementRefused` for any
    other statement and for what cannot be read, :class:`~icekit.common.errors.NotATable` and
    :class:`~icekit.common.errors.TableNotFound` for a target that is no Iceberg table, and
    :class:`~icekit.common.errors.ClassicSessionRequired` over Spark Connect.
    """
    require_classic(spark)
    text = with_variables(spark, sql)
    if not text:
        raise StatementRefused(_NO_STATEMENT)
    tree = Tree(spark, text)
    plan = parsed(spark, text)
    plan_kind = kind(plan.child() if kind(plan) == "UnresolvedWith" else plan)
    statement_kind = _KINDS.get(plan_kind)
    node = tree.dml
    if statement_kind is None:
        raise StatementRefused(
            f"This is not a MERGE, UPDATE or DELETE (Spark parses it as {plan_kind}); give one of "
            "these."
        )
    if tree.has_errors or node is None or kind(node) not in _KINDS:
        raise StatementRefused(
            f"Only this session's parser settings allow the syntax of this {statement_kind}; write "
            "it as plain Spark SQL, with names in backticks, or reset "
            "spark.sql.ansi.enforceReservedKeywords and doubleQuotedIdentifiers."
        )
    return _statement_of(spark, tree, node, statement_kind)


def literal_count(spark: SparkSession, statement: Statement) -> int:
    """How many literals a statement has."""
    return Tree(spark, statement.sql).count("constant")


def narrow_statement(spark: SparkSession, statement: Statement, predicate: str) -> Statement:
    """The statement with one more condition, read again and found to differ by that alone.

    Raises :class:`~icekit.common.errors.StatementRefused` where Spark reads the result as something
    else.
    """
    # By itself too: "a) OR (b" would pass for a condition between the parentheses put around it.
    parsed(spark, predicate, "parseExpression")
    new_statement = parse(spark, statement.with_condition(predicate))
    expected_condition = (
        predicate if statement.condition is None else f"({statement.condition}) AND ({predicate})"
    )
    unchanged_parts = attrgetter("kind", "target", "branch", "alias", "source")
    if (
        unchanged_parts(new_statement) != unchanged_parts(statement)
        or new_statement.condition != expected_condition
    ):
        raise StatementRefused(
            f"Adding {predicate} changed more than the condition of the statement; add it by hand."
        )
    return new_statement


def _statement_of(spark: SparkSession, tree: Tree, node: Any, statement_kind: str) -> Statement:
    target_node = tree.child(node, "IdentifierReference")
    target_parts = tree.parts(target_node)
    if target_parts is None:
        raise StatementRefused(
            f"The target of this {statement_kind} is not a plain name but "
            f"{tree.text(target_node)}; write the table's name."
        )
    target, branch = resolved(spark, target_parts)
    where_node = tree.child(node, "WhereClause")
    source = None
    condition = where_node.getChild(1) if where_node is not None else None
    if statement_kind == "MERGE":
        using_nodes = tree.between(node, "USING", "ON")
        source = tree.sql[tree.span(using_nodes[0]).start : tree.span(using_nodes[-1]).stop]
        condition = tree.between(node, "ON")[0]
    condition_span = tree.span(condition) if condition is not None else None
    return Statement(
        kind=statement_kind,
        sql=tree.sql,
        target=target,
        branch=branch,
        alias=tree.alias(children(node)),
        condition=tree.sql[condition_span] if condition_span else None,
        source=source,
        with_clause=tree.with_clause,
        when_clauses=tuple(
            _CLAUSES[kind(child)] for child in children(node) if kind(child) in _CLAUSES
        ),
        _target_span=tree.span(target_node),
        _condition_span=condition_span,
    )
