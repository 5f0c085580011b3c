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
    ``target_alias`` the name that the statement gives it. ``condition_sql`` is the text of the ON
    clause of a MERGE or the WHERE clause of the others, ``source_sql`` what a MERGE reads from,
    alias included.
    ``with_clause`` is the WITH before the statement, and ``has_not_matched_by_source`` whether a
    MERGE has such a WHEN clause.
    """

    kind: str
    sql: str
    target: Identifier
    branch: str | None
    target_alias: str | None
    condition_sql: str | None
    source_sql: str | None
    with_clause: str
    has_not_matched_by_source: bool
    _target_span: slice
    _condition_span: slice | None

    def sql_for(self, table: Identifier) -> str:
        """The same statement aimed at another table, named with its catalog, such as a clone.

        Sub-queries that read the target by its name go on reading the table itself. Without an
        alias the other table gets the last name of the target as its alias, so Spark refuses
        columns that are qualified by more of its name.
        """
        target_sql = identifier(*self.name_with_branch(table))
        if self.target_alias is None:
            target_sql += f" AS {identifier(*self.qualifier)}"
        return _with_span_replaced(self.sql, self._target_span, target_sql)

    def name_with_branch(self, table: Identifier) -> Identifier:
        """A table's name with the branch that this statement writes to."""
        return (*table, f"{_BRANCH}{self.branch}") if self.branch else table

    def sql_with_condition(self, predicate: str) -> str:
        """The statement with one more condition beside its own: ``(its own) AND (predicate)``.

        A statement without a WHERE gets one. :func:`narrow_statement` also checks what came out.
        """
        if self._condition_span is None:
            return f"{self.sql}\nWHERE {predicate}"
        return _with_span_replaced(
            self.sql, self._condition_span, f"({self.condition_sql}) AND ({predicate})"
        )

    @property
    def qualifier(self) -> Identifier:
        """What columns of the target are qualified by in this statement, as parts of a name."""
        return (self.target_alias or self.name_with_branch(self.target)[-1],)


_NO_STATEMENT = "The text has no statement; give one MERGE, UPDATE or DELETE."


def read_statement_file(file_path: str) -> str:
    """The text of a file, or of standard input for ``-``.

    Raises :class:`~icekit.common.errors.ParameterError`, and
    :class:`~icekit.common.errors.StatementRefused` for an empty text: no text means a statement
    like the history's.
    """
    try:
        statement_text = (
            sys.stdin.read() if file_path == "-" else Path(file_path).read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(
            f"{file_path} cannot be read as text ({type(error).__name__}); give a file with one "
            "statement."
        ) from None
    if not statement_text.strip():
        raise StatementRefused(_NO_STATEMENT)
    return statement_text


def parse_statement(spark: SparkSession, sql: str) -> Statement:
    """Read one MERGE, UPDATE or DELETE of an Iceberg table; nothing is run.

    Names are resolved as Spark does: by the session's current catalog and namespace, and a
    temporary view before a table. Raises :class:`~icekit.common.errors.StatementRefused` for any
    other statement and for what cannot be read, :class:`~icekit.common.errors.NotATable` and
    :class:`~icekit.common.errors.TableNotFound` for a target that is no Iceberg table, and
    :class:`~icekit.common.errors.ClassicSessionRequired` over Spark Connect.
    """
    require_classic(spark)
    jvm: Any = spark._jvm
    variable_substitution = jvm.org.apache.spark.sql.internal.VariableSubstitution()
    statement_sql = str(variable_substitution.substitute(sql)).strip().rstrip("; \t\r\n")
    if not statement_sql:
        raise StatementRefused(_NO_STATEMENT)
    parsed_plan = _parse_with(spark, statement_sql, "parsePlan")
    if node_class(parsed_plan) == "UnresolvedWith":
        parsed_plan = parsed_plan.child()
    plan_class = node_class(parsed_plan)
    if plan_class not in _KINDS:
        raise StatementRefused(
            f"This is not a MERGE, UPDATE or DELETE (Spark parses it as {plan_class}); give one of "
            "these."
        )
    syntax_tree = _SyntaxTree(spark, statement_sql)
    if syntax_tree.has_errors or node_class(syntax_tree.change_node) != plan_class:
        raise StatementRefused(
            f"Only this session's parser settings allow the syntax of this {_KINDS[plan_class]}; "
            "write it as plain Spark SQL, with names in backticks, or reset "
            "spark.sql.ansi.enforceReservedKeywords and doubleQuotedIdentifiers."
        )
    return _statement(spark, parsed_plan, syntax_tree)


def literal_count(spark: SparkSession, statement: Statement) -> int:
    """How many literals a statement has."""
    return _SyntaxTree(spark, statement.sql).literal_count()


def narrow_statement(spark: SparkSession, statement: Statement, predicate: str) -> Statement:
    """The statement with one more condition, read again and found to differ by that alone.

    Raises :class:`~icekit.common.errors.StatementRefused` where Spark reads the result as something
    else.
    """
    # By itself too: "a) OR (b" would pass for a condition between the parentheses put around it.
    _parse_with(spark, predicate, "parseExpression")
    new_statement = parse_statement(spark, statement.sql_with_condition(predicate))
    expected_condition = (
        predicate
        if statement.condition_sql is None
        else f"({statement.condition_sql}) AND ({predicate})"
    )
    unchanged_parts_of = attrgetter("kind", "target", "branch", "target_alias", "source_sql")
    if (
        unchanged_parts_of(new_statement) != unchanged_parts_of(statement)
        or new_statement.condition_sql != expected_condition
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
        parser_package = jvm.org.apache.spark.sql.catalyst.parser
        antlr_package = jvm.org.antlr.v4.runtime
        character_stream = parser_package.UpperCaseCharStream(
            antlr_package.CharStreams.fromString(sql)
        )
        spark_lexer = parser_package.SqlBaseLexer(character_stream)
        spark_lexer.removeErrorListeners()
        spark_parser = parser_package.SqlBaseParser(antlr_package.CommonTokenStream(spark_lexer))
        spark_parser.removeErrorListeners()
        root_node = spark_parser.singleStatement()
        self.sql = sql
        self.has_errors = int(spark_parser.getNumberOfSyntaxErrors()) > 0
        self._statement: Any = root_node.getChild(0)
        self._literals: Any = antlr_package.tree.Trees.findAllRuleNodes(
            root_node, parser_package.SqlBaseParser.RULE_constant
        )

    @property
    def change_node(self) -> Any:
        """The MERGE, UPDATE or DELETE without a WITH before it; another node for what is none."""
        has_statement_wrapper = node_class(self._statement) == "DmlStatement"
        return self._statement.dmlStatementNoWith() if has_statement_wrapper else self._statement

    @property
    def with_clause(self) -> str:
        """The WITH before the statement as it is written; empty where there is none."""
        with_node = self._statement.ctes()
        return self.sql[self.span(with_node)] if with_node is not None else ""

    def literal_count(self) -> int:
        return int(self._literals.size())

    def span(self, node: Any) -> slice:
        """The characters of a node."""
        return _span(node.getStart(), node.getStop())


def _span(first_token: Any, last_token: Any) -> slice:
    return slice(int(first_token.getStartIndex()), int(last_token.getStopIndex()) + 1)


def _with_span_replaced(original_text: str, replaced_span: slice, replacement: str) -> str:
    return original_text[: replaced_span.start] + replacement + original_text[replaced_span.stop :]


def _parse_with(spark: SparkSession, sql_text: str, parser_method: str) -> Any:
    """What a method of Spark's parser makes of a text, before names are resolved; raises
    StatementRefused for what it does not take.
    """
    java_session: Any = spark._jsparkSession
    with refuse_on_error("parse", "Fix it and try again."):
        return getattr(java_session.sessionState().sqlParser(), parser_method)(sql_text)


def _statement(spark: SparkSession, parsed_plan: Any, syntax_tree: _SyntaxTree) -> Statement:
    """The statement of a plan that Spark has parsed, with what its text says."""
    statement_kind = _KINDS[node_class(parsed_plan)]
    change_node = syntax_tree.change_node
    source_sql = None
    has_not_matched_by_source = False
    if statement_kind == "MERGE":
        target_node = change_node.identifierReference(0)
        condition_node = change_node.booleanExpression()
        source_name_node = change_node.identifierReference(1)
        first_token = (
            change_node.LEFT_PAREN().getSymbol()
            if source_name_node is None
            else source_name_node.getStart()
        )
        # An alias that is not there ends with the token before it.
        source_sql = syntax_tree.sql[_span(first_token, change_node.tableAlias(1).getStop())]
        has_not_matched_by_source = not parsed_plan.notMatchedBySourceActions().isEmpty()
    else:
        target_node = change_node.identifierReference()
        where_node = change_node.whereClause()
        condition_node = where_node.booleanExpression() if where_node is not None else None
    target_plan = parsed_plan.children().apply(0)
    target_alias = None
    if node_class(target_plan) == "SubqueryAlias":
        target_alias = str(target_plan.alias())
        target_plan = target_plan.child()
    target_span = syntax_tree.span(target_node)
    if node_class(target_plan) != "UnresolvedRelation":
        raise StatementRefused(
            f"The target of this {statement_kind} is not a plain name but "
            f"{syntax_tree.sql[target_span]}; write the table's name."
        )
    name_parts = tuple(map(str, elements(target_plan.multipartIdentifier())))
    target, branch = _table_and_branch(spark, name_parts)
    condition_span = syntax_tree.span(condition_node) if condition_node is not None else None
    return Statement(
        kind=statement_kind,
        sql=syntax_tree.sql,
        target=target,
        branch=branch,
        target_alias=target_alias,
        condition_sql=syntax_tree.sql[condition_span] if condition_span else None,
        source_sql=source_sql,
        with_clause=syntax_tree.with_clause,
        has_not_matched_by_source=has_not_matched_by_source,
        _target_span=target_span,
        _condition_span=condition_span,
    )


def _table_and_branch(spark: SparkSession, name_parts: Identifier) -> tuple[Identifier, str | None]:
    """The table that a name stands for, with its catalog, and the branch it names."""
    jvm: Any = spark._jvm
    java_session: Any = spark._jsparkSession
    if java_session.sessionState().catalog().isTempView(scala_seq(spark, name_parts)):
        raise StatementRefused(
            f"{display_name(name_parts)} is a temporary view, which cannot be written to. Give the "
            "Iceberg table that the view reads."
        )
    with explain_errors(("", *name_parts)):
        resolved_identifier = jvm.org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(
            java_session, list(name_parts)
        )
        full_name: Identifier = (
            str(resolved_identifier.catalog().name()),
            *map(str, resolved_identifier.identifier().namespace()),
            str(resolved_identifier.identifier().name()),
        )
    table: Identifier = full_name
    branch: str | None = None
    if full_name[-1].startswith(_BRANCH) and len(full_name) > 2:
        with contextlib.suppress(Exception):
            load_table(spark, full_name[:-1])
            table = full_name[:-1]
            branch = full_name[-1].removeprefix(_BRANCH)
    with explain_errors(table):
        load_table(spark, table)
    return table, branch
