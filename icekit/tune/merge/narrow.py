"""Write the predicates that ON implies for the target, from the values of the source.

For every pair of rows that ON lets match, the target's column equals the source's expression, which
has one of the source's values: a predicate that all those values pass takes no pair away. So
MATCHED and NOT MATCHED see the same rows. It holds for this source only: a row that comes to it
later and does not pass would match nothing and be inserted, hence the guard.

Only what cannot be wrong is used: a bare column of the target, or a widening of it, on one side
of ``=`` or ``<=>``; on the other an expression of the source's columns alone that returns the
same each time it is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import StatementRefused
from icekit.common.sql import identifier
from icekit.engine.bridge import elements
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import kind, nodes
from icekit.health.facts.model import TableFacts
from icekit.health.facts.spark_entries import scalar_sql
from icekit.iceberg.values import to_scalar
from icekit.iceberg.where import among, between, in_units
from icekit.tune.merge.engine import MergePlan, merge_plan
from icekit.tune.statement import Statement, narrowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


VALUES = "values"
RANGES = "ranges"
BOUNDS = "bounds"
#: Iceberg's limit for the values of one IN; also of units of time.
_MOST_VALUES = 200
# Spark's types in which Spark's order, Iceberg's order and equality agree, with Iceberg's names.
_TYPES = {
    "int": "int",
    "bigint": "long",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "string",
}
_UNITS = {"hour", "day", "month", "year"}
_OF_TIME = re.compile(r"\b(current_timestamp|current_date|now|localtimestamp|current_time)\(")


@frozen
class Equality:
    """One equality of ON: ``column`` of the target, and an expression of the source as Spark writes
    it; ``unit`` is the time by which the target is partitioned by the column, or empty.
    """

    column: str
    type: str
    unit: str
    expression: str
    is_null_safe: bool


@frozen
class MergeKeys:
    """The equalities of ON that can be used, and those that cannot; ``unstable`` is what makes the
    source return different rows each time it is read.
    """

    equalities: tuple[Equality, ...] = ()
    unusable: tuple[str, ...] = ()
    unstable: str | None = None


@frozen
class Added:
    """The predicate that the source's values of one equality imply for the target.

    ``values`` are listed, or are units of time that become ``ranges``, or the two ``bounds``; empty
    if the source has only nulls. ``has_nulls`` says that nulls match nulls.
    """

    equality: Equality
    form: str
    values: tuple[Any, ...]
    has_nulls: bool

    def predicate(self, term: str) -> str:
        """The predicate of a term; raises ValueError or OverflowError for a time without a
        literal.
        """
        data_type = self.equality.type
        parts = [f"{term} IS NULL"] if self.has_nulls else []
        if self.form == RANGES:
            parts += in_units(term, data_type, self.equality.unit, self.values)
        elif self.form == BOUNDS:
            parts.append(between(term, data_type, *self.values))
        elif self.values:
            parts.append(among(term, data_type, self.values))
        return " OR ".join(parts)

    def passes(self, term: str) -> str:
        """The same predicate of the source's expression, never null, because null matches nothing
        with ``=``.
        """
        return f"coalesce({self.predicate(term)}, {str(not self.equality.is_null_safe).lower()})"


def keys_of(plan: MergePlan, facts: TableFacts) -> MergeKeys:
    """The equalities of a MERGE's ON, as Spark has resolved them; the facts are the target's."""
    join = next((n for n in nodes(plan.analyzed) if kind(n) == "Join"), None)
    if join is None or join.condition().isEmpty():
        return MergeKeys()
    sides = join.left(), join.right()
    target, source = sides if plan.is_target_left else sides[::-1]
    equalities: dict[str, Equality | None] = {}
    for part in _conjuncts(join.condition().get()):
        if kind(part) in {"EqualTo", "EqualNullSafe"}:
            for mine, other in ((part.left(), part.right()), (part.right(), part.left())):
                if _is_of(mine, target) and _is_of(other, source):
                    equality = _equality(facts, mine, other, kind(part) == "EqualNullSafe")
                    equalities[str(part.sql())] = equality
    return MergeKeys(
        tuple(filter(None, equalities.values())),
        tuple(text for text, equality in equalities.items() if equality is None),
        unstable_of(source),
    )


def _conjuncts(expression: Any) -> list[Any]:
    if kind(expression) != "And":
        return [expression]
    return [*_conjuncts(expression.left()), *_conjuncts(expression.right())]


def _is_of(expression: Any, plan: Any) -> bool:
    references = expression.references()
    return bool(references.nonEmpty() and references.subsetOf(plan.outputSet()))


def _equality(facts: TableFacts, mine: Any, other: Any, is_null_safe: bool) -> Equality | None:
    """One equality; None if its values could rule out a file that has a match."""
    column = mine.child() if kind(mine) == "Cast" else mine
    own = str(column.dataType().simpleString())
    compared = str(mine.dataType().simpleString())
    if kind(column) != "AttributeReference" or (
        own != compared and (own, compared) != ("int", "bigint")
    ):
        return None
    # The name is written as in the statement, which may be in another case.
    written = str(column.name())
    same = [c for c in facts.columns if c.names[0].casefold() == written.casefold()]
    stored = min(same, key=lambda c: (len(c.names), c.name != written), default=None)
    is_stable = other.deterministic() and "subquery" not in str(other.toString())
    if stored is None or stored.type.replace(" ", "") != _iceberg_type(own) or not is_stable:
        return None
    fields = facts.default_spec.active_fields
    units = (f.transform for f in fields if f.source == stored.name and f.transform in _UNITS)
    expression = str(other.sql())
    return Equality(stored.name, _iceberg_type(compared), next(units, ""), expression, is_null_safe)


def _iceberg_type(name: str) -> str:
    return name if name.startswith("decimal") else _TYPES.get(name, "")


def unstable_of(plan: Any) -> str | None:
    """What makes a plan return different rows each time it is read; None if nothing does."""
    for node in nodes(plan):
        if kind(node) in {"GlobalLimit", "LocalLimit", "Offset", "Sample"}:
            return kind(node)
        for expression in elements(node.expressions()):
            if not expression.deterministic() or _OF_TIME.search(str(expression.toString())):
                return str(expression.sql())[:80]
    return None


def values_of(spark: SparkSession, statement: Statement, keys: MergeKeys) -> list[Added]:
    """The predicates that the source's values of the equalities imply: by one aggregation of the
    source, and another for each equality with few values.
    """
    frame = spark.sql(keys_sql(statement, keys.equalities))
    queried: list[str] = []
    listed: list[DataFrame] = []
    for equality, field in zip(keys.equalities, frame.schema, strict=True):
        name = field.name
        type_name = field.dataType.typeName()
        low = scalar_sql(f"min({name})", type_name)
        high = scalar_sql(f"max({name})", type_name)
        value = scalar_sql(name, type_name)
        if equality.unit:
            unit = f"{identifier(statement.target[0])}.system.{equality.unit}s({name})"
            value = scalar_sql(unit, "date" if equality.unit == "day" else "int")
        distinct = f"approx_count_distinct({value})"
        queried.append(f"struct(count({name}) < count(*), {distinct}, {low}, {high})")
        listed.append(frame.where(f"{name} IS NOT NULL").selectExpr(value).distinct())
    row = frame.selectExpr(*queried).collect()[0]
    return [*filter(None, map(_added, keys.equalities, listed, row))]


def keys_sql(statement: Statement, equalities: Iterable[Equality]) -> str:
    """A query of the source's side of each equality, as ``k0, k1, …``."""
    sides = ", ".join(f"{e.expression} AS k{number}" for number, e in enumerate(equalities))
    return f"{statement.with_clause} SELECT {sides} FROM {statement.source}".lstrip()


def _added(equality: Equality, listed: DataFrame, figures: Sequence[Any]) -> Added | None:
    """Ranges if the target is partitioned by a time, otherwise the values if they are few,
    otherwise their bounds; None if no row can match, or for a time without a literal.
    """
    has_nulls, distinct, low, high = figures
    has_nulls = has_nulls and equality.is_null_safe
    if low is None and not has_nulls:
        return None
    # The estimate is within a few per cent.
    rows = listed.limit(_MOST_VALUES + 1).collect() if distinct <= 2 * _MOST_VALUES else []
    values: tuple[Any, ...] = tuple(sorted(to_scalar(value) for (value,) in rows))
    added = Added(equality, RANGES if equality.unit else VALUES, values, has_nulls)
    if low is not None and not 0 < len(values) <= _MOST_VALUES:
        added = Added(equality, BOUNDS, (to_scalar(low), to_scalar(high)), has_nulls)
    try:
        added.predicate("")
    except (OverflowError, ValueError):
        return None
    return added


@frozen
class Rewrite:
    """The statement with predicates that ON implies for every row of this source.

    ``guard`` counts the source's rows that the predicates leave out: it must give 0 just before
    the statement is run, because such rows would be inserted although they exist.
    """

    statement: Statement
    added: tuple[Added, ...]
    guard: str
    plan: MergePlan


def rewrite(
    spark: SparkSession, statement: Statement, keys: MergeKeys, before: MergePlan
) -> tuple[Rewrite | None, str]:
    """The narrower statement if it opens fewer bytes of the target, otherwise why there is none.

    The source is read: once for all bounds, once more for each column with few values, and
    once by the guard.
    """
    if "not matched by source" in statement.clauses:
        return None, (
            "WHEN NOT MATCHED BY SOURCE needs every row of the target without a match, so no "
            "predicate in ON can rule out a file; replace that clause with a separate DELETE or "
            "UPDATE that filters by partition"
        )
    if keys.unstable:
        return (
            None,
            f"the source may return different rows each time it is read ({keys.unstable})",
        )
    try:
        added = values_of(spark, statement, keys) if keys.equalities else []
        needed, plan = _needed(spark, statement, added, before)
        guard = _guard(statement, needed)
        left_out = int(spark.sql(guard).collect()[0][0]) if needed else 0
    except engine_errors() as error:
        raise StatementRefused(
            f"The source of the MERGE cannot be read ({reason(error)}); fix it and try again."
        ) from None
    if left_out:
        return None, f"the source changed while it was read: {left_out:,} of its rows are new"
    if not needed:
        unusable = (f"{text} cannot be used" for text in keys.unusable)
        return None, "; ".join(["no value of the source rules out a file of the target", *unusable])
    new = narrowed(spark, statement, _predicate(statement, needed))
    return Rewrite(new, needed, guard, plan), ""


def _needed(
    spark: SparkSession, statement: Statement, added: Sequence[Added], before: MergePlan
) -> tuple[tuple[Added, ...], MergePlan]:
    """The predicates that rule something out, and the plan with them; found by leaving out each
    once, the longest first.
    """

    def planned_with(predicates: Sequence[Added]) -> MergePlan:
        sql = statement.with_condition(_predicate(statement, predicates))
        return merge_plan(spark, sql, statement.target)

    chosen = tuple(added)
    plan = planned_with(added) if added else before
    if plan.size_in_bytes >= before.size_in_bytes:
        return (), before
    for each in sorted(added, key=lambda a: len(a.predicate("")), reverse=True):
        fewer = tuple(a for a in chosen if a is not each)
        without = planned_with(fewer) if fewer else before
        if without.size_in_bytes <= plan.size_in_bytes:
            chosen = fewer
            plan = without
    return chosen, plan


def _predicate(statement: Statement, added: Sequence[Added]) -> str:
    parts = [a.predicate(identifier(*statement.qualifier, a.equality.column)) for a in added]
    return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)


def _guard(statement: Statement, added: Sequence[Added]) -> str:
    """A query that counts the source's rows that the predicates would keep from matching."""
    tests = " AND ".join(a.passes(f"k{number}") for number, a in enumerate(added))
    rows = keys_sql(statement, (a.equality for a in added))
    return f"SELECT count(*) AS left_out FROM ({rows}) WHERE NOT ({tests})"
