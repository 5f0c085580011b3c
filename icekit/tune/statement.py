"""Parse a MERGE, UPDATE or DELETE with Spark, and edit its text.

The text is never generated from a plan: a statement with another target table or
one more condition keeps its comments, line breaks and spelling.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import is_case_sensitive, require_classic
from icekit.engine.predicate import (
    BRANCH,
    Parts,
    Span,
    Tree,
    kind,
    parsed,
    resolved,
    spliced,
    with_variables,
)
from icekit.errors import ParameterError, StatementRefused
from icekit.sql import Identifier, identifier, unquoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_KINDS = {"MergeIntoTable": "MERGE", "UpdateTable": "UPDATE", "DeleteFromTable": "DELETE"}
_CLAUSES = {
    "MatchedClause": "matched",
    "NotMatchedClause": "not matched",
    "NotMatchedBySourceClause": "not matched by source",
}
_MARKERS = {"NamedParameterLiteral", "PosParameterLiteral"}
_MARKER_SIGN = re.compile(r"[:?]")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that changes rows of an Iceberg table.

    ``sql`` is the text as Spark parses it: variables are put in, the semicolon at its end is gone.
    ``target`` is the table with its catalog, ``branch`` the branch of it that is written to,
    ``alias`` the name that the statement gives it. ``condition`` is the text of the ON clause of a
    MERGE or the WHERE clause of the others, ``source`` what a MERGE reads from, alias included.
    ``with_clause`` is the WITH before the statement, and ``clauses`` are the kinds of a MERGE's
    WHEN clauses in their order (matched, not matched, not matched by source).
    """

    kind: str
    sql: str
    target: Identifier
    branch: str | None
    alias: str | None
    condition: str | None
    source: str | None
    with_clause: str
    clauses: tuple[str, ...]
    _target_span: Span
    _condition_span: Span | None
    _given_alias: str
    _qualified: tuple[tuple[Span, Parts], ...]

    def on(self, table: Identifier) -> str:
        """The same statement aimed at another table, named with its catalog, such as a clone.

        Sub-queries that read the target by its name go on reading the table itself.
        """
        name = identifier(*self.written(table))
        if self.alias is not None:
            return spliced(self.sql, [(self._target_span, name)])
        edits = [(span, identifier(self._given_alias, *rest)) for span, rest in self._qualified]
        return spliced(
            self.sql, [(self._target_span, f"{name} AS {identifier(self._given_alias)}"), *edits]
        )

    def written(self, table: Identifier) -> Identifier:
        """A table's name with the branch that this statement writes to."""
        return (*table, f"{BRANCH}{self.branch}") if self.branch else table

    def with_condition(self, predicate: str) -> str:
        """The statement with one more condition beside its own: ``(its own) AND (predicate)``.

        A statement without a WHERE gets one. :func:`narrowed` also checks what came out.
        """
        if self._condition_span is None:
            return f"{self.sql}\nWHERE {predicate}"
        return spliced(self.sql, [(self._condition_span, f"({self.condition}) AND ({predicate})")])

    @property
    def qualifier(self) -> Identifier:
        """What columns of the target are qualified by in this statement, as parts of a name."""
        return (self.alias,) if self.alias is not None else self.written(self.target)

    def __str__(self) -> str:
        return self.sql


_NO_STATEMENT = "The text has no statement; give one MERGE, UPDATE or DELETE."


def read_file(path: str) -> str:
    """The text of a file, or of standard input for ``-``.

    Raises :class:`~icekit.errors.ParameterError`, and :class:`~icekit.errors.StatementRefused` for
    an empty text: no text means a statement like the history's.
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
    temporary view before a table. Raises :class:`~icekit.errors.StatementRefused` for any other
    statement and for what cannot be read, :class:`~icekit.errors.NotATable` and
    :class:`~icekit.errors.TableNotFound` for a target that is no Iceberg table, and
    :class:`~icekit.errors.ClassicSessionRequired` over Spark Connect.
    """
    require_classic(spark)
    text = with_variables(spark, sql)
    if not text:
        raise StatementRefused(_NO_STATEMENT)
    tree = Tree(spark, text)
    if tree.is_several:
        raise StatementRefused(
            "There are several statements; give one MERGE, UPDATE or DELETE at a time."
        )
    wanted = _check(parsed(spark, text))
    node = tree.dml
    if tree.has_errors or node is None or kind(node) not in _KINDS:
        raise StatementRefused(
            f"Only this session's parser settings allow the syntax of this {wanted}; write it as "
            "plain Spark SQL, with names in backticks, or reset "
            "spark.sql.ansi.enforceReservedKeywords and doubleQuotedIdentifiers."
        )
    if _MARKER_SIGN.search(unquoted(text)) and any(
        kind(c) in _MARKERS for c in tree.all("constant")
    ):
        raise StatementRefused(
            "The statement has parameter markers, whose values are not known here; replace the "
            "markers with values."
        )
    return _read(spark, tree, node, wanted)


def literal_count(spark: SparkSession, statement: Statement) -> int:
    """How many literals a statement has."""
    return Tree(spark, statement.sql).count("constant")


def narrowed(spark: SparkSession, statement: Statement, predicate: str) -> Statement:
    """The statement with one more condition, read again and found to differ by that alone.

    Raises :class:`~icekit.errors.StatementRefused` where Spark reads the result as something else.
    """
    # By itself too: "a) OR (b" would pass for a condition between the parentheses put around it.
    parsed(spark, predicate, "parseExpression")
    new = parse(spark, statement.with_condition(predicate))
    wanted = (
        predicate if statement.condition is None else f"({statement.condition}) AND ({predicate})"
    )
    parts = attrgetter("kind", "target", "branch", "alias", "source")
    if parts(new) != parts(statement) or new.condition != wanted:
        raise StatementRefused(
            f"Adding {predicate} changed more than the condition of the statement; add it by hand."
        )
    return new


def _check(plan: Any) -> str:
    """The kind of a plan; refuses those that are not ours."""
    name = str(plan.getClass().getSimpleName())
    if name == "UnresolvedWith":
        name = str(plan.child().getClass().getSimpleName())
    if name not in _KINDS:
        raise StatementRefused(
            f"This is not a MERGE, UPDATE or DELETE (Spark parses it as {name}); give one of these."
        )
    return _KINDS[name]


def _read(spark: SparkSession, tree: Tree, node: Any, wanted: str) -> Statement:
    named = tree.child(node, "IdentifierReference")
    parts = tree.parts(named)
    if parts is None:
        raise StatementRefused(
            f"The target of this {wanted} is not a plain name but {tree.text(named)}; write the "
            "table's name."
        )
    common = [
        str(p) for query in tree.all("namedQuery") for p in (tree.parts(query.getChild(0)) or ())
    ]
    if len(parts) == 1 and parts[0].casefold() in {name.casefold() for name in common}:
        raise StatementRefused(
            f"The target {parts[0]} is also the name of a query in WITH; write its namespace, or "
            "rename the query."
        )
    target, branch = resolved(spark, parts)
    aliased = tree.child(node, "TableAlias")
    alias = tree.alias(aliased) if aliased is not None else None
    condition, source, source_alias = _clauses(tree, node, wanted)
    given, qualified = (
        ("", ()) if alias is not None else _qualified(spark, tree, node, target, source_alias)
    )
    span = tree.span(condition) if condition is not None else None
    return Statement(
        kind=wanted,
        sql=tree.sql,
        target=target,
        branch=branch,
        alias=alias,
        condition=span.of(tree.sql) if span else None,
        source=source.of(tree.sql) if source else None,
        with_clause=tree.with_clause,
        clauses=tuple(
            _CLAUSES[kind(child)] for child in tree.children(node) if kind(child) in _CLAUSES
        ),
        _target_span=tree.span(named),
        _condition_span=span,
        _given_alias=given,
        _qualified=qualified,
    )


def _clauses(tree: Tree, node: Any, wanted: str) -> tuple[Any, Span | None, str | None]:
    """The condition's node, where the source stands and what it is called."""
    if wanted != "MERGE":
        where = tree.child(node, "WhereClause")
        return (where.getChild(1) if where is not None else None), None, None
    using = tree.between(node, "USING", "ON")
    alias = tree.alias(using[-1]) if kind(using[-1]) == "TableAlias" else None
    source = Span(tree.span(using[0]).start, tree.span(using[-1]).end)
    return tree.between(node, "ON")[0], source, alias or (tree.parts(using[0]) or (None,))[-1]


def _qualified(
    spark: SparkSession, tree: Tree, node: Any, target: Identifier, source_alias: str | None
) -> tuple[str, tuple[tuple[Span, Parts], ...]]:
    """A name for the target, and the columns that are qualified by its own name, with what follows
    the qualifier.

    A table of the same last name that is read elsewhere in the statement would be mistaken for a
    target of that name; then the name is another, and all qualified columns are changed.
    """
    fold = (
        (lambda p: p)
        if is_case_sensitive(spark)
        else (lambda p: tuple(part.casefold() for part in p))
    )
    mine = fold(target)
    others = [(n, fold(p)) for n, p in tree.relations()]
    if source_alias is not None:
        others.append((node, fold((source_alias,))))
    taken = {p[-1] for _, p in others}
    given = target[-1] if mine[-1] not in taken else _free(f"{target[-1]}_target", taken)
    least = 2 if given == target[-1] else 1
    qualified = []
    for column, parts in tree.columns():
        folded = fold(parts)
        for length in range(min(len(mine), len(parts) - 1), least - 1, -1):
            qualifier = folded[:length]
            if qualifier == mine[-length:] and not _is_shadowed(tree, column, qualifier, fold):
                qualified.append((tree.span(column), parts[length:]))
                break
    return given, tuple(qualified)


def _is_shadowed(tree: Tree, column: Any, qualifier: Parts, fold: Any) -> bool:
    """Tell whether a sub-query around a column reads a table that the qualifier may mean."""
    for query in tree.queries_around(column):
        for _, parts in tree.relations(query):
            shorter = min(len(parts), len(qualifier))
            if fold(parts)[-shorter:] == qualifier[-shorter:]:
                return True
    return False


def _free(name: str, taken: set[str]) -> str:
    while name.casefold() in taken or name in taken:
        name += "_"
    return name
