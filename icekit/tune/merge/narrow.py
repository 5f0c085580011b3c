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
from icekit.engine.planner import node_class, walk_plan
from icekit.health.facts.model import TableFacts
from icekit.health.facts.spark_entries import scalar_sql
from icekit.iceberg.values import to_scalar
from icekit.iceberg.where import in_range, in_values, unit_range_predicates
from icekit.tune.merge.engine import MergePlan, merge_plan
from icekit.tune.statement import Statement, narrow_statement

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
    """One equality of ON: ``target_column`` equals ``source_sql``, an expression of the source as
    Spark writes it; both are compared as ``compared_type``. ``time_unit`` is the time by which
    the target is partitioned by the column, or empty.
    """

    target_column: str
    compared_type: str
    time_unit: str
    source_sql: str
    is_null_safe: bool


@frozen
class MergeKeys:
    """The equalities of ON that can be used, and those that cannot; ``unstable_source_part`` is
    what makes the source return different rows each time it is read.
    """

    equalities: tuple[Equality, ...] = ()
    unusable_equalities: tuple[str, ...] = ()
    unstable_source_part: str | None = None


@frozen
class ImpliedPredicate:
    """The predicate that the source's values of one equality imply for the target.

    ``values`` are listed, or are units of time that become ``ranges``, or the two ``bounds``; empty
    if the source has only nulls. ``has_nulls`` says that nulls match nulls.
    """

    equality: Equality
    form: str
    values: tuple[Any, ...]
    has_nulls: bool

    def predicate_sql(self, column_sql: str) -> str:
        """The predicate of a term; raises ValueError or OverflowError for a time without a
        literal.
        """
        data_type = self.equality.compared_type
        condition_sqls = [f"{column_sql} IS NULL"] if self.has_nulls else []
        if self.form == RANGES:
            condition_sqls += unit_range_predicates(
                column_sql, data_type, self.equality.time_unit, self.values
            )
        elif self.form == BOUNDS:
            condition_sqls.append(in_range(column_sql, data_type, *self.values))
        elif self.values:
            condition_sqls.append(in_values(column_sql, data_type, self.values))
        return " OR ".join(condition_sqls)

    def non_null_sql(self, expression_sql: str) -> str:
        """The same predicate of the source's expression, never null, because null matches nothing
        with ``=``.
        """
        return (
            f"coalesce({self.predicate_sql(expression_sql)}, "
            f"{str(not self.equality.is_null_safe).lower()})"
        )


def merge_keys(plan: MergePlan, facts: TableFacts) -> MergeKeys:
    """The equalities of a MERGE's ON, as Spark has resolved them; the facts are the target's."""
    join_node = next((n for n in walk_plan(plan.analyzed_plan) if node_class(n) == "Join"), None)
    if join_node is None or join_node.condition().isEmpty():
        return MergeKeys()
    join_sides = join_node.left(), join_node.right()
    target_side, source_side = join_sides if plan.is_target_left else join_sides[::-1]
    equalities_by_sql: dict[str, Equality | None] = {}
    for conjunct in _conjuncts(join_node.condition().get()):
        if node_class(conjunct) in {"EqualTo", "EqualNullSafe"}:
            for target_expression, source_expression in (
                (conjunct.left(), conjunct.right()),
                (conjunct.right(), conjunct.left()),
            ):
                if _uses_only(target_expression, target_side) and _uses_only(
                    source_expression, source_side
                ):
                    equality = _equality(
                        facts,
                        target_expression,
                        source_expression,
                        node_class(conjunct) == "EqualNullSafe",
                    )
                    equalities_by_sql[str(conjunct.sql())] = equality
    return MergeKeys(
        tuple(filter(None, equalities_by_sql.values())),
        tuple(
            equality_sql for equality_sql, equality in equalities_by_sql.items() if equality is None
        ),
        unstable_part_of(source_side),
    )


def _conjuncts(expression: Any) -> list[Any]:
    if node_class(expression) != "And":
        return [expression]
    return [*_conjuncts(expression.left()), *_conjuncts(expression.right())]


def _uses_only(expression: Any, plan: Any) -> bool:
    references = expression.references()
    return bool(references.nonEmpty() and references.subsetOf(plan.outputSet()))


def _equality(
    facts: TableFacts, target_expression: Any, source_expression: Any, is_null_safe: bool
) -> Equality | None:
    """One equality; None if its values could rule out a file that has a match."""
    attribute = (
        target_expression.child() if node_class(target_expression) == "Cast" else target_expression
    )
    column_type = str(attribute.dataType().simpleString())
    compared_type = str(target_expression.dataType().simpleString())
    if node_class(attribute) != "AttributeReference" or (
        column_type != compared_type and (column_type, compared_type) != ("int", "bigint")
    ):
        return None
    # The name is written as in the statement, which may be in another case.
    column_name = str(attribute.name())
    same_name_columns = [
        c for c in facts.columns if c.names[0].casefold() == column_name.casefold()
    ]
    table_column = min(
        same_name_columns, key=lambda c: (len(c.names), c.name != column_name), default=None
    )
    is_source_stable = source_expression.deterministic() and "subquery" not in str(
        source_expression.toString()
    )
    if (
        table_column is None
        or table_column.type.replace(" ", "") != _iceberg_type(column_type)
        or not is_source_stable
    ):
        return None
    spec_fields = facts.default_spec.active_fields
    time_units = (
        f.transform for f in spec_fields if f.source == table_column.name and f.transform in _UNITS
    )
    source_expression_sql = str(source_expression.sql())
    return Equality(
        table_column.name,
        _iceberg_type(compared_type),
        next(time_units, ""),
        source_expression_sql,
        is_null_safe,
    )


def _iceberg_type(spark_type: str) -> str:
    return spark_type if spark_type.startswith("decimal") else _TYPES.get(spark_type, "")


def unstable_part_of(plan: Any) -> str | None:
    """What makes a plan return different rows each time it is read; None if nothing does."""
    for plan_node in walk_plan(plan):
        if node_class(plan_node) in {"GlobalLimit", "LocalLimit", "Offset", "Sample"}:
            return node_class(plan_node)
        for expression in elements(plan_node.expressions()):
            if not expression.deterministic() or _OF_TIME.search(str(expression.toString())):
                return str(expression.sql())[:80]
    return None


def implied_predicates(
    spark: SparkSession, statement: Statement, keys: MergeKeys
) -> list[ImpliedPredicate]:
    """The predicates that the source's values of the equalities imply: by one aggregation of the
    source, and another for each equality with few values.
    """
    keys_frame = spark.sql(keys_sql(statement, keys.equalities))
    aggregate_sqls: list[str] = []
    value_frames: list[DataFrame] = []
    for equality, key_field in zip(keys.equalities, keys_frame.schema, strict=True):
        key_name = key_field.name
        type_name = key_field.dataType.typeName()
        low_sql = scalar_sql(f"min({key_name})", type_name)
        high_sql = scalar_sql(f"max({key_name})", type_name)
        distinct_value_sql = scalar_sql(key_name, type_name)
        if equality.time_unit:
            time_unit_sql = (
                f"{identifier(statement.target[0])}.system.{equality.time_unit}s({key_name})"
            )
            distinct_value_sql = scalar_sql(
                time_unit_sql, "date" if equality.time_unit == "day" else "int"
            )
        distinct_count_sql = f"approx_count_distinct({distinct_value_sql})"
        aggregate_sqls.append(
            f"struct(count({key_name}) < count(*), {distinct_count_sql}, {low_sql}, {high_sql})"
        )
        value_frames.append(
            keys_frame.where(f"{key_name} IS NOT NULL").selectExpr(distinct_value_sql).distinct()
        )
    aggregate_row = keys_frame.selectExpr(*aggregate_sqls).collect()[0]
    return [*filter(None, map(_implied_predicate, keys.equalities, value_frames, aggregate_row))]


def keys_sql(statement: Statement, equalities: Iterable[Equality]) -> str:
    """A query of the source's side of each equality, as ``k0, k1, …``."""
    expressions_sql = ", ".join(
        f"{e.source_sql} AS k{key_number}" for key_number, e in enumerate(equalities)
    )
    return f"{statement.with_clause} SELECT {expressions_sql} FROM {statement.source_sql}".lstrip()


def _implied_predicate(
    equality: Equality, value_frame: DataFrame, aggregated_figures: Sequence[Any]
) -> ImpliedPredicate | None:
    """Ranges if the target is partitioned by a time, otherwise the values if they are few,
    otherwise their bounds; None if no row can match, or for a time without a literal.
    """
    has_nulls, distinct_count, low_value, high_value = aggregated_figures
    has_nulls = has_nulls and equality.is_null_safe
    if low_value is None and not has_nulls:
        return None
    # The estimate is within a few per cent.
    value_rows = (
        value_frame.limit(_MOST_VALUES + 1).collect() if distinct_count <= 2 * _MOST_VALUES else []
    )
    distinct_values: tuple[Any, ...] = tuple(sorted(to_scalar(value) for (value,) in value_rows))
    predicate = ImpliedPredicate(
        equality, RANGES if equality.time_unit else VALUES, distinct_values, has_nulls
    )
    if low_value is not None and not 0 < len(distinct_values) <= _MOST_VALUES:
        predicate = ImpliedPredicate(
            equality, BOUNDS, (to_scalar(low_value), to_scalar(high_value)), has_nulls
        )
    try:
        predicate.predicate_sql("")
    except (OverflowError, ValueError):
        return None
    return predicate


@frozen
class NarrowedMerge:
    """The statement with predicates that ON implies for every row of this source.

    ``guard_sql`` counts the source's rows that the predicates leave out: it must give 0 just before
    the statement is run, because such rows would be inserted although they exist.
    """

    statement: Statement
    predicates: tuple[ImpliedPredicate, ...]
    guard_sql: str
    plan: MergePlan


def narrower_rewrite(
    spark: SparkSession, statement: Statement, keys: MergeKeys, current_plan: MergePlan
) -> tuple[NarrowedMerge | None, str]:
    """The narrower statement if it opens fewer bytes of the target, otherwise why there is none.

    The source is read: once for all bounds, once more for each column with few values, and
    once by the guard.
    """
    if statement.has_not_matched_by_source:
        return None, (
            "WHEN NOT MATCHED BY SOURCE needs every row of the target without a match, so no "
            "predicate in ON can rule out a file; replace that clause with a separate DELETE or "
            "UPDATE that filters by partition"
        )
    if keys.unstable_source_part:
        return (
            None,
            "the source may return different rows each time it is read "
            f"({keys.unstable_source_part})",
        )
    try:
        implied_predicates_of_source = (
            implied_predicates(spark, statement, keys) if keys.equalities else []
        )
        needed_predicates, plan = _needed_predicates(
            spark, statement, implied_predicates_of_source, current_plan
        )
        guard_sql = _guard_sql(statement, needed_predicates)
        left_out_count = int(spark.sql(guard_sql).collect()[0][0]) if needed_predicates else 0
    except engine_errors() as error:
        raise StatementRefused(
            f"The source of the MERGE cannot be read ({reason(error)}); fix it and try again."
        ) from None
    if left_out_count:
        return None, f"the source changed while it was read: {left_out_count:,} of its rows are new"
    if not needed_predicates:
        unusable_sentences = (
            f"{equality_sql} cannot be used" for equality_sql in keys.unusable_equalities
        )
        return None, "; ".join(
            ["no value of the source rules out a file of the target", *unusable_sentences]
        )
    narrowed_statement = narrow_statement(
        spark, statement, _conjunction_sql(statement, needed_predicates)
    )
    return NarrowedMerge(narrowed_statement, needed_predicates, guard_sql, plan), ""


def _needed_predicates(
    spark: SparkSession,
    statement: Statement,
    implied_predicates: Sequence[ImpliedPredicate],
    current_plan: MergePlan,
) -> tuple[tuple[ImpliedPredicate, ...], MergePlan]:
    """The predicates that rule something out, and the plan with them; found by leaving out each
    once, the longest first.
    """

    def plan_with(predicates: Sequence[ImpliedPredicate]) -> MergePlan:
        sql = statement.sql_with_condition(_conjunction_sql(statement, predicates))
        return merge_plan(spark, sql, statement.target)

    needed_predicates = tuple(implied_predicates)
    plan = plan_with(implied_predicates) if implied_predicates else current_plan
    if plan.size_in_bytes >= current_plan.size_in_bytes:
        return (), current_plan
    for removed_predicate in sorted(
        implied_predicates, key=lambda a: len(a.predicate_sql("")), reverse=True
    ):
        fewer_predicates = tuple(a for a in needed_predicates if a is not removed_predicate)
        plan_without = plan_with(fewer_predicates) if fewer_predicates else current_plan
        if plan_without.size_in_bytes <= plan.size_in_bytes:
            needed_predicates = fewer_predicates
            plan = plan_without
    return needed_predicates, plan


def _conjunction_sql(statement: Statement, predicates: Sequence[ImpliedPredicate]) -> str:
    condition_sqls = [
        a.predicate_sql(identifier(*statement.qualifier, a.equality.target_column))
        for a in predicates
    ]
    return (
        condition_sqls[0]
        if len(condition_sqls) == 1
        else " AND ".join(f"({condition_sql})" for condition_sql in condition_sqls)
    )


def _guard_sql(statement: Statement, predicates: Sequence[ImpliedPredicate]) -> str:
    """A query that counts the source's rows that the predicates would keep from matching."""
    conditions_sql = " AND ".join(
        a.non_null_sql(f"k{key_number}") for key_number, a in enumerate(predicates)
    )
    keys_query_sql = keys_sql(statement, (a.equality for a in predicates))
    return f"SELECT count(*) AS left_out FROM ({keys_query_sql}) WHERE NOT ({conditions_sql})"
