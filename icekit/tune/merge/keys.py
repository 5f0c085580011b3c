"""Find the columns of the target that ON compares with the source, and their values in the source.

Only what cannot be wrong is used: a bare column of the target, or a widening of it, on one side
of ``=`` or ``<=>``; on the other an expression of the source's columns alone that returns the
same each time it is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, scala_seq
from icekit.engine.compat import classic
from icekit.engine.planner import kind, nodes
from icekit.facts.spark_entries import scalar_sql
from icekit.facts.values import to_scalar
from icekit.facts.where import among, between, in_units
from icekit.sql import identifier
from icekit.tune.merge.engine import MergePlan, partitioning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


VALUES, RANGES, BOUNDS = "values", "ranges", "bounds"
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


@dataclass(frozen=True, slots=True)
class Equality:
    """One equality of ON: ``column`` of the target, and an expression of the source as Spark has
    resolved it; ``unit`` is the time by which the target is partitioned by the column, or empty.
    """

    column: str
    type: str
    unit: str
    expression: str
    is_null_safe: bool
    resolved: Any


@dataclass(frozen=True, slots=True)
class MergeKeys:
    """The equalities of ON that can be used, those that cannot, and the source as a Java plan.

    ``unstable`` is what makes the source return different rows each time it is read.
    """

    equalities: tuple[Equality, ...] = ()
    unusable: tuple[str, ...] = ()
    source: Any = None
    unstable: str | None = None


@dataclass(frozen=True, slots=True)
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
        data_type, parts = self.equality.type, [f"{term} IS NULL"] if self.has_nulls else []
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


def keys_of(plan: MergePlan, table: Any) -> MergeKeys:
    """The equalities of a MERGE's ON, as Spark has resolved them; ``table`` is the target as
    Iceberg knows it.
    """
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
                    equality = _equality(table, mine, other, kind(part) == "EqualNullSafe")
                    equalities[str(part.sql())] = equality
    return MergeKeys(
        tuple(filter(None, equalities.values())),
        tuple(text for text, equality in equalities.items() if equality is None),
        source,
        unstable_of(source),
    )


def _conjuncts(expression: Any) -> list[Any]:
    if kind(expression) != "And":
        return [expression]
    return [*_conjuncts(expression.left()), *_conjuncts(expression.right())]


def _is_of(expression: Any, plan: Any) -> bool:
    references = expression.references()
    return bool(references.nonEmpty() and references.subsetOf(plan.outputSet()))


def _equality(table: Any, mine: Any, other: Any, is_null_safe: bool) -> Equality | None:
    """One equality; None if its values could rule out a file that has a match."""
    column = mine.child() if kind(mine) == "Cast" else mine
    own, compared = (str(side.dataType().simpleString()) for side in (column, mine))
    if kind(column) != "AttributeReference" or (
        own != compared and (own, compared) != ("int", "bigint")
    ):
        return None
    schema, name = table.schema(), str(column.name())
    # The name is written as in the statement, which may be in another case.
    field = schema.findField(name) or schema.caseInsensitiveFindField(name)
    stored = str(field.type().toString()).replace(" ", "") if field is not None else None
    is_stable = other.deterministic() and "subquery" not in str(other.toString())
    if stored != _iceberg_type(own) or not is_stable:
        return None
    name = str(field.name())
    unit = next((t for c, t in partitioning(table) if c == name and t in _UNITS), "")
    return Equality(name, _iceberg_type(compared), unit, str(other.sql()), is_null_safe, other)


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


def values_of(spark: SparkSession, catalog: str, keys: MergeKeys) -> list[Added]:
    """The predicates that the source's values of the equalities imply: by one aggregation of the
    source, and another for each equality with few values.
    """
    frame = _projected(spark, keys)
    queried: list[str] = []
    listed: list[DataFrame] = []
    for equality, field in zip(keys.equalities, frame.schema, strict=True):
        name, type_name = field.name, field.dataType.typeName()
        low, high = (scalar_sql(f"{end}({name})", type_name) for end in ("min", "max"))
        value = scalar_sql(name, type_name)
        if equality.unit:
            unit = f"{identifier(catalog)}.system.{equality.unit}s({name})"
            value = scalar_sql(unit, "date" if equality.unit == "day" else "int")
        distinct = f"approx_count_distinct({value})"
        queried.append(f"struct(count({name}) < count(*), {distinct}, {low}, {high})")
        listed.append(frame.where(f"{name} IS NOT NULL").selectExpr(value).distinct())
    row = frame.selectExpr(*queried).collect()[0]
    return [*filter(None, map(_added, keys.equalities, listed, row))]


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


def _projected(spark: SparkSession, keys: MergeKeys) -> DataFrame:
    """The source's side of each equality as ``k0, k1, …``."""
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    nothing, none = scala_seq(spark, ()), jvm.scala.Option.apply(None)
    columns = [
        catalyst.expressions.Alias(
            equality.resolved,
            f"k{number}",
            catalyst.expressions.NamedExpression.newExprId(),
            nothing,
            none,
            nothing,
        )
        for number, equality in enumerate(keys.equalities)
    ]
    project = catalyst.plans.logical.Project(scala_seq(spark, columns), keys.source)
    return DataFrame(classic(spark).Dataset.ofRows(spark._jsparkSession, project), spark)
