"""Find the parts of a statement in its text with the grammar of Spark's own parser, and its table by the session's own rules for names.

Spark's plans keep where an expression begins and ends, but without its parentheses and not for
every part. Its parse tree has each token's place, counted in characters as Python counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, java_list, load_table, scala_seq
from icekit.engine.errors import explain, reason
from icekit.errors import IcekitError, StatementRefused
from icekit.sql import Identifier, display_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        lexer = generated.SqlBaseLexer(generated.UpperCaseCharStream(antlr.CharStreams.fromString(sql)))
        lexer.removeErrorListeners()
        reader = generated.SqlBaseParser(antlr.CommonTokenStream(lexer))
        reader.removeErrorListeners()
        self.sql = sql
        self._reader: Any = reader
        self._trees = antlr.tree.Trees
        self._paths = antlr.tree.xpath.XPath
        self._grammar = generated.SqlBaseParser
        self._root: Any = reader.singleStatement()
        self.has_errors = int(reader.getNumberOfSyntaxErrors()) > 0

    @property
    def is_several(self) -> bool:
        """Tell whether something follows the first semicolon."""
        texts = [str(child.getText()) for child in _children(self._root)]
        return ";" in texts and any(t not in {";", "<EOF>"} for t in texts[texts.index(";") :])

    @cached_property
    def dml(self) -> Any:
        """The MERGE, UPDATE or DELETE without a WITH before it; None for another statement."""
        first = self._root.getChild(0)
        if kind(first) != "DmlStatement":
            return None
        return list(_children(first))[-1]

    @property
    def with_clause(self) -> str:
        """The WITH before a MERGE, UPDATE or DELETE as it is written; empty where there is none."""
        common = self.child(self._root.getChild(0), "Ctes")
        return self.text(common) if common is not None else ""

    def children(self, node: Any) -> list[Any]:
        """What a node is made of."""
        return list(_children(node))

    def child(self, node: Any, *kinds: str) -> Any:
        """The first child of one of these kinds, or None."""
        return next((c for c in _children(node) if kind(c) in kinds), None)

    def between(self, node: Any, first: str, last: str | None = None) -> list[Any]:
        """The children that follow a keyword, up to another one or to the end; empty ones left out."""
        children = [c for c in _children(node) if self.span(c).end > self.span(c).start]
        words = [str(c.getText()).upper() if kind(c) == _TOKEN else None for c in children]
        if first not in words:
            return []
        start = words.index(first) + 1
        return children[start : words.index(last, start) if last and last in words[start:] else None]

    def all(self, rule: str, under: Any = None) -> list[Any]:
        """Every node of a grammar's rule, in order."""
        number = getattr(self._grammar, f"RULE_{rule}")
        return list(elements(self._trees.findAllRuleNodes(self._root if under is None else under, number)))

    def span(self, node: Any) -> Span:
        """Where a node stands in the text; an empty node has an empty stretch."""
        first, last = (node.getSymbol(), node.getSymbol()) if kind(node) == _TOKEN else (node.getStart(), node.getStop())
        start = int(first.getStartIndex())
        return Span(start, max(start, int(last.getStopIndex()) + 1) if last is not None else start)

    def text(self, node: Any) -> str:
        """A node as it is written."""
        return self.span(node).of(self.sql)

    def parts(self, node: Any) -> Parts | None:
        """The parts of a name, without backticks; None for what is not a plain name."""
        try:
            found = self._parser.parseMultipartIdentifier(self.text(node))
        except Exception:
            return None
        return tuple(str(part) for part in elements(found))

    def alias(self, node: Any) -> str | None:
        """The name that a table alias gives, None where there is none."""
        named = [c for c in _children(node) if kind(c) != _TOKEN]
        parts = self.parts(named[0]) if named else None
        return parts[0] if parts else None

    def relations(self, under: Any = None) -> Iterator[tuple[Any, Parts]]:
        """Tables that the statement reads, with the name that columns are qualified by: the alias, else the table's."""
        for node in self.all("relationPrimary", under):
            if kind(node) == "TableName":
                alias = self.child(node, "TableAlias")
                given = self.alias(alias) if alias is not None else None
                name = self.parts(node.getChild(0))
                if given or name:
                    yield node, (given,) if given else name or ()

    def count(self, rule: str) -> int:
        """How many nodes of a grammar's rule there are; one call, however many."""
        return int(self._trees.findAllRuleNodes(self._root, getattr(self._grammar, f"RULE_{rule}")).size())

    def columns(self) -> Iterator[tuple[Any, Parts]]:
        """Qualified columns, wherever they are written, and what is assigned to; whole chains only."""
        # By their dots: there may be thousands of literals, and each question to the JVM takes its time.
        for dot in elements(self._paths.findAll(self._root, "//primaryExpression/'.'", self._reader)):
            node = dot.getParent()
            if kind(node) == "Dereference" and kind(node.getParent()) != "Dereference":
                parts = self.parts(node)
                if parts:
                    yield node, parts
        for node in self.all("multipartIdentifier"):
            if kind(node.getParent()) in {"Assignment", "MultipartIdentifierList"}:
                parts = self.parts(node)
                if parts and len(parts) > 1:
                    yield node, parts

    def queries_around(self, node: Any) -> Iterator[Any]:
        """The sub-queries that a node stands in, innermost first."""
        while (node := node.getParent()) is not None:
            if kind(node) == "Query":
                yield node


def kind(node: Any) -> str:
    """The name of a grammar's rule or alternative."""
    return str(node.getClass().getSimpleName()).removesuffix("Context")


def spliced(text: str, edits: Sequence[tuple[Span, str]]) -> str:
    """A text with stretches replaced; they must not overlap."""
    for span, new in sorted(edits, key=lambda edit: (edit[0].start, edit[0].end), reverse=True):
        text = text[: span.start] + new + text[span.end :]
    return text


def _children(node: Any) -> Iterator[Any]:
    return (node.getChild(place) for place in range(int(node.getChildCount())))


def parsed(spark: SparkSession, text: str, how: str = "parsePlan") -> Any:
    """What Spark's parser makes of a text, before names are resolved; raises StatementRefused for what it does not take."""
    from pyspark.errors import PySparkException

    session: Any = spark._jsparkSession
    try:
        return getattr(session.sessionState().sqlParser(), how)(text)
    except PySparkException as error:
        raise StatementRefused(f"Spark cannot parse the statement: {reason(error)}; fix it and try again.", detail=str(error)) from None


def with_variables(spark: SparkSession, sql: str) -> str:
    """The text that Spark parses, without what ends it."""
    jvm: Any = spark._jvm
    return str(jvm.org.apache.spark.sql.internal.VariableSubstitution().substitute(sql)).strip().rstrip("; \t\r\n")


def resolved(spark: SparkSession, parts: Parts) -> tuple[Identifier, str | None]:
    """The table that a name stands for, with its catalog, and the branch it names."""
    from py4j.java_gateway import is_instance_of

    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if session.sessionState().catalog().isTempView(scala_seq(spark, parts)):
        raise StatementRefused(f"{display_name(parts)} is a temporary view, which cannot be written to; give the Iceberg table behind it.")
    try:
        found = jvm.org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(session, java_list(spark, parts))
        name: Identifier = (str(found.catalog().name()), *map(str, found.identifier().namespace()), str(found.identifier().name()))
    except Exception as error:
        raise explain(error, ("", *parts)) from None
    for table, branch in _candidates(name):
        try:
            loaded = load_table(spark, table)
        except Exception as error:
            problem = explain(error, table)
            if branch is None and not name[-1].startswith(BRANCH):
                raise (problem if isinstance(problem, IcekitError) else _unknown(table, problem)) from None
            continue
        if is_instance_of(spark._sc._gateway, loaded, "org.apache.iceberg.BaseMetadataTable"):
            raise StatementRefused(f"{display_name(parts)} is a metadata table, which cannot be written to; give the table itself.")
        return table, branch
    raise StatementRefused(f"{display_name(parts)} names no table and no branch of one; check its name.")


def _candidates(name: Identifier) -> Iterator[tuple[Identifier, str | None]]:
    """A name as a branch of a table where it looks like one, and as a table."""
    if name[-1].startswith(BRANCH) and len(name) > 2:
        yield name[:-1], name[-1].removeprefix(BRANCH)
    yield name, None


def _unknown(table: Identifier, problem: Exception) -> StatementRefused:
    return StatementRefused(
        f"{display_name(table)} cannot be loaded as an Iceberg table ({reason(problem)}); check its name and catalog.", detail=str(problem)
    )
