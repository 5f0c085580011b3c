"""Parse a MERGE, UPDATE or DELETE with Spark, and edit its text.

The text is never generated from a plan: a statement with another target table or
one more condition keeps its comments, line breaks and spelling.
"""

from __future__ import annotations

import contextlib
import sys
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ParameterError, StatementRefused
from icekit.common.sql import Identifier, display_name, identifier
from icekit.engine.bridge import elements, load_table, require_classic, scala_seq
from icekit.engine.errors import explain_errors
from icekit.engine.planner import node_class, refuse_on_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_KINDS = {"MergeIntoTable": "MERGE", "UpdateTable": "UPDATE", "DeleteFromTable": "DELETE"}
# What Iceberg's catalog puts before the name of a branch, as the last part of a table's name.
_BRANCH = "branch_"


@frozen
class Statement:
    """A statement that changes rows of an Iceberg table.

    ``sql`` is the text as Spark parses it: variables are put in, the semicolon at its end is gone.
    ``target`` is the table with its catalog, ``branch`` the branch of it that is written to,
    ``alias`` the name that the statement gives it. ``condition`` is the text of the ON clause of a
    MERGE or the WHERE clause of the others, ``source`` what a MERGE reads from, alias included.
    ``with_clause`` is the WITH before the statement, and ``has_not_matched_by_source`` whether a
    MERGE has such a WHEN clause.
    """

    kind: str
    sql: str
    target: Identifier
    branch: str | None
    alias: str | None
    condition: str | None
    source: str | None
    with_clause: str
    has_not_matched_by_source: bool
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
        return _replaced(self.sql, self._target_span, name)

    def with_branch(self, table: Identifier) -> Identifier:
        """A table's name with the branch that this statement writes to."""
        return (*table, f"{_BRANCH}{self.branch}") if self.branch else table

    def with_condition(self, predicate: str) -> str:
        """The statement with one more condition beside its own: ``(its own) AND (predicate)``.

        A statement without a WHERE gets one. :func:`narrow_statement` also checks what came out.
        """
        if self._condition_span is None:
            return f"{self.sql}\nWHERE {predicate}"
        return _replaced(self.sql, self._condition_span, f"({self.condition}) AND ({predicate})")

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
    jvm: Any = spark._jvm
    variables = jvm.org.apache.spark.sql.internal.VariableSubstitution()
    text = str(variables.substitute(sql)).strip().rstrip("; \t\r\n")
    if not text:
        raise StatementRefused(_NO_STATEMENT)
    plan = _parsed(spark, text, "parsePlan")
    if node_class(plan) == "UnresolvedWith":
        plan = plan.child()
    plan_kind = node_class(plan)
    if plan_kind not in _KINDS:
        raise StatementRefused(
            f"This is not a MERGE, UPDATE or DELETE (Spark parses it as {plan_kind}); give one of "
            "these."
        )
    tree = _SyntaxTree(spark, text)
    if tree.has_errors or node_class(tree.change) != plan_kind:
        raise StatementRefused(
            f"Only this session's parser settings allow the syntax of this {_KINDS[plan_kind]}; "
            "write it as plain Spark SQL, with names in backticks, or reset "
            "spark.sql.ansi.enforceReservedKeywords and doubleQuotedIdentifiers."
        )
    return _statement(spark, plan, tree)


def literal_count(spark: SparkSession, statement: Statement) -> int:
    """How many literals a statement has."""
    return _SyntaxTree(spark, statement.sql).literal_count()


def narrow_statement(spark: SparkSession, statement: Statement, predicate: str) -> Statement:
    """The statement with one more condition, read again and found to differ by that alone.

    Raises :class:`~icekit.common.errors.StatementRefused` where Spark reads the result as something
    else.
    """
    # By itself too: "a) OR (b" would pass for a condition between the parentheses put around it.
    _parsed(spark, predicate, "parseExpression")
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


class _SyntaxTree:
    """Where the parts of a MERGE, UPDATE or DELETE are in its text: the tree of Spark's grammar,
    which keeps positions where a plan does not.
    """

    def __init__(self, spark: SparkSession, sql: str) -> None:
        jvm: Any = spark._jvm
        generated = jvm.org.apache.spark.sql.catalyst.parser
        antlr = jvm.org.antlr.v4.runtime
        characters = generated.UpperCaseCharStream(antlr.CharStreams.fromString(sql))
        lexer = generated.SqlBaseLexer(characters)
        lexer.removeErrorListeners()
        parser = generated.SqlBaseParser(antlr.CommonTokenStream(lexer))
        parser.removeErrorListeners()
        root = parser.singleStatement()
        self.sql = sql
        self.has_errors = int(parser.getNumberOfSyntaxErrors()) > 0
        self._statement: Any = root.getChild(0)
        self._literals: Any = antlr.tree.Trees.findAllRuleNodes(
            root, generated.SqlBaseParser.RULE_constant
        )

    @property
    def change(self) -> Any:
        """The MERGE, UPDATE or DELETE without a WITH before it; another node for what is none."""
        is_change = node_class(self._statement) == "DmlStatement"
        return self._statement.dmlStatementNoWith() if is_change else self._statement

    @property
    def with_clause(self) -> str:
        """The WITH before the statement as it is written; empty where there is none."""
        clause = self._statement.ctes()
        return self.sql[self.span(clause)] if clause is not None else ""

    def literal_count(self) -> int:
        return int(self._literals.size())

    def span(self, node: Any) -> slice:
        """The characters of a node."""
        return _span(node.getStart(), node.getStop())


def _span(first_token: Any, last_token: Any) -> slice:
    return slice(int(first_token.getStartIndex()), int(last_token.getStopIndex()) + 1)


def _replaced(text: str, span: slice, replacement: str) -> str:
    return text[: span.start] + replacement + text[span.stop :]


def _parsed(spark: SparkSession, text: str, method: str) -> Any:
    """What a method of Spark's parser makes of a text, before names are resolved; raises
    StatementRefused for what it does not take.
    """
    session: Any = spark._jsparkSession
    with refuse_on_error("parse", "Fix it and try again."):
        return getattr(session.sessionState().sqlParser(), method)(text)


def _statement(spark: SparkSession, plan: Any, tree: _SyntaxTree) -> Statement:
    """The statement of a plan that Spark has parsed, with what its text says."""
    statement_kind = _KINDS[node_class(plan)]
    node = tree.change
    source = None
    has_not_matched_by_source = False
    if statement_kind == "MERGE":
        target_node = node.identifierReference(0)
        condition_node = node.booleanExpression()
        source_name = node.identifierReference(1)
        first_token = (
            node.LEFT_PAREN().getSymbol() if source_name is None else source_name.getStart()
        )
        # An alias that is not there ends with the token before it.
        source = tree.sql[_span(first_token, node.tableAlias(1).getStop())]
        has_not_matched_by_source = not plan.notMatchedBySourceActions().isEmpty()
    else:
        target_node = node.identifierReference()
        where_node = node.whereClause()
        condition_node = where_node.booleanExpression() if where_node is not None else None
    target_plan = plan.children().apply(0)
    alias = None
    if node_class(target_plan) == "SubqueryAlias":
        alias = str(target_plan.alias())
        target_plan = target_plan.child()
    target_span = tree.span(target_node)
    if node_class(target_plan) != "UnresolvedRelation":
        raise StatementRefused(
            f"The target of this {statement_kind} is not a plain name but {tree.sql[target_span]}; "
            "write the table's name."
        )
    parts = tuple(map(str, elements(target_plan.multipartIdentifier())))
    target, branch = _table_and_branch(spark, parts)
    condition_span = tree.span(condition_node) if condition_node is not None else None
    return Statement(
        kind=statement_kind,
        sql=tree.sql,
        target=target,
        branch=branch,
        alias=alias,
        condition=tree.sql[condition_span] if condition_span else None,
        source=source,
        with_clause=tree.with_clause,
        has_not_matched_by_source=has_not_matched_by_source,
        _target_span=target_span,
        _condition_span=condition_span,
    )


def _table_and_branch(spark: SparkSession, parts: Identifier) -> tuple[Identifier, str | None]:
    """The table that a name stands for, with its catalog, and the branch it names."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if session.sessionState().catalog().isTempView(scala_seq(spark, parts)):
        raise StatementRefused(
            f"{display_name(parts)} is a temporary view, which cannot be written to. Give the "
            "Iceberg table that the view reads."
        )
    with explain_errors(("", *parts)):
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
    if name[-1].startswith(_BRANCH) and len(name) > 2:
        with contextlib.suppress(Exception):
            load_table(spark, name[:-1])
            table = name[:-1]
            branch = name[-1].removeprefix(_BRANCH)
    with explain_errors(table):
        load_table(spark, table)
    return table, branch
