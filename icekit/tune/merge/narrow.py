"""Write the predicates that ON implies for the target, from the values of the source.

For every pair of rows that ON lets match, the target's column equals the source's expression, which
has one of the source's values: a predicate that all those values pass takes no pair away. So
MATCHED and NOT MATCHED see the same rows. It holds for this source only: a row that comes to it
later and does not pass would match nothing and be inserted, hence the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.errors import engine_errors, reason
from icekit.errors import StatementRefused
from icekit.sql import identifier
from icekit.tune.merge.engine import MergePlan, merge_plan
from icekit.tune.merge.keys import Added, MergeKeys, keys_sql, values_of
from icekit.tune.statement import Statement, narrowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
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

    chosen, plan = tuple(added), planned_with(added) if added else before
    if plan.size_in_bytes >= before.size_in_bytes:
        return (), before
    for each in sorted(added, key=lambda a: len(a.predicate("")), reverse=True):
        fewer = tuple(a for a in chosen if a is not each)
        without = planned_with(fewer) if fewer else before
        if without.size_in_bytes <= plan.size_in_bytes:
            chosen, plan = fewer, without
    return chosen, plan


def _predicate(statement: Statement, added: Sequence[Added]) -> str:
    parts = [a.predicate(identifier(*statement.qualifier, a.equality.column)) for a in added]
    return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)


def _guard(statement: Statement, added: Sequence[Added]) -> str:
    """A query that counts the source's rows that the predicates would keep from matching."""
    tests = " AND ".join(a.passes(f"k{number}") for number, a in enumerate(added))
    rows = keys_sql(statement, (a.equality for a in added))
    return f"SELECT count(*) AS left_out FROM ({rows}) WHERE NOT ({tests})"
