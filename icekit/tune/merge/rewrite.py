"""Write the predicates that ON implies for the target, given what the source holds now.

For every pair of rows that ON lets match, the target's column equals the source's expression,
which has one of the source's values: a predicate that all those values pass takes no pair away.
So MATCHED, NOT MATCHED and NOT MATCHED BY SOURCE see the same rows. It holds for this source
only: a row that comes to it later and does not pass would match nothing and be inserted, hence
the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, load_table
from icekit.engine.errors import reason
from icekit.errors import StatementRefused
from icekit.facts.files import Scalar
from icekit.facts.where import among, between, in_units
from icekit.secrets import scrub
from icekit.sql import Identifier, identifier
from icekit.tune.merge.engine import engine_plan
from icekit.tune.merge.keys import Keys, Values, units_of, values_of
from icekit.tune.merge.model import Added, EnginePlan, Rewrite
from icekit.tune.statement import Statement, narrowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# More ranges than a person reads at a glance become one range from first to last.
_MOST_RANGES = 20
_MOST_UNITS = 1_000
_TIMES = ("hour", "day", "month", "year")


def rewrite(spark: SparkSession, statement: Statement, keys: Keys, before: EnginePlan) -> tuple[Rewrite | None, str]:
    """The narrowed statement if it opens fewer bytes of the target, else why there is none.

    The source is read: once for all bounds, once more for each column with few values, and
    once by the guard.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if "not matched by source" in statement.clauses:
        return None, (
            "WHEN NOT MATCHED BY SOURCE looks at every row of the target that matches nothing, so no predicate in ON can spare a file; "
            "give that clause its work in a statement of its own, a DELETE or UPDATE that filters by partition"
        )
    if not before.size_in_bytes:
        return None, "the target scan opens no file as it is"
    if keys.unstable:
        return None, f"the source may give other rows each time it is read ({keys.unstable})"
    if not keys.equalities:
        return None, "; ".join(keys.refused)
    held: list[_Held] = []
    reasons = list(keys.refused)
    try:
        answers = [_held(spark, statement, keys, place, values) for place, values in enumerate(values_of(spark, keys))]
    except (PySparkException, Py4JJavaError) as error:
        raise StatementRefused(
            f"The source of the MERGE cannot be read ({reason(error)}); fix it and try again.", detail=scrub(str(error))
        ) from None
    for answer in answers:
        if isinstance(answer, str):
            reasons.append(answer)
        else:
            held.append(answer)
    if not held:
        return None, "; ".join(reasons)
    chosen, plan = _needed(spark, statement, held, before)
    if plan is None:
        return None, "; ".join([*reasons, "predicates of the source's values skip no file of the target: each of its files spans them"])
    predicate = _predicate(statement, chosen)
    new = narrowed(spark, statement, predicate)
    guard = _guard(statement, chosen)
    left_out = _count(spark, guard)
    if left_out:
        return None, f"the source changed while it was read: {left_out:,} of its rows are outside of what it held a moment before"
    added = tuple(
        Added(
            h.values.equality.column,
            h.values.equality.expression,
            h.form,
            h.predicate(_term(statement, h)),
            h.values.distinct,
            h.values.has_nulls,
        )
        for h in chosen
    )
    return Rewrite(new.sql, predicate, added, guard, plan), ""


def _needed(spark: SparkSession, statement: Statement, held: Sequence[_Held], before: EnginePlan) -> tuple[list[_Held], EnginePlan | None]:
    """The predicates that spare something, and the plan with them: each is left out once, the longest first."""

    def planned_with(some: Sequence[_Held]) -> EnginePlan:
        return engine_plan(spark, statement.with_condition(_predicate(statement, some)), statement.target)

    chosen = list(held)
    plan = planned_with(chosen)
    if plan.size_in_bytes >= before.size_in_bytes:
        return [], None
    for one in sorted(held, key=lambda h: len(h.predicate("")), reverse=True):
        fewer = [h for h in chosen if h is not one]
        if fewer:
            without = planned_with(fewer)
            if without.size_in_bytes <= plan.size_in_bytes:
                chosen, plan = fewer, without
    return chosen, plan


def _term(statement: Statement, held: _Held) -> str:
    return identifier(*statement.qualifier, held.values.equality.column)


def _predicate(statement: Statement, held: Sequence[_Held]) -> str:
    parts = list(dict.fromkeys(h.predicate(_term(statement, h)) for h in held))
    return " AND ".join(f"({p})" if " OR " in p else p for p in parts) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class _Held:
    """What the source holds for one equality, ready to be asked of the target and of the source."""

    values: Values
    form: str
    write: Callable[[str], list[str]]

    def predicate(self, term: str) -> str:
        """The predicate of a term; two alternatives or more are joined by OR."""
        parts = self.write(term)
        if self.values.equality.is_null_safe and self.values.has_nulls:
            parts.append(f"{term} IS NULL")
        return parts[0] if len(parts) == 1 else " OR ".join(p if p.startswith("(") else f"({p})" for p in parts)

    def passes(self, term: str) -> str:
        """The same of the source's expression, never null: what is null matches nothing by ``=``."""
        return f"coalesce({self.predicate(term)}, {'false' if self.values.equality.is_null_safe else 'true'})"


def _held(spark: SparkSession, statement: Statement, keys: Keys, place: int, values: Values) -> _Held | str:
    """Ranges of a time that the target is partitioned by, else the values if they are few, else their bounds."""
    equality = values.equality
    kind = equality.type
    low, high, few = values.low, values.high, values.few
    if low is None and not (equality.is_null_safe and values.has_nulls):
        return f"the source has no value for {equality.column}, so nothing can match"
    if low is None:
        return _Held(values, "values", lambda _: [])
    transform = time_transform(spark, statement.target, equality.column)
    units = units_of(spark, keys, place, transform, _MOST_UNITS) if transform else None
    try:
        if transform and units and len(in_units("", kind, transform, units)) <= _MOST_RANGES:
            return _Held(values, "ranges", lambda term: in_units(term, kind, transform, units))
        if few is not None and not transform and not _is_run(few, low, high):
            among("", kind, few)
            return _Held(values, "values", lambda term: [among(term, kind, few)])
        between("", kind, low, high)
    except (OverflowError, ValueError):
        return f"{equality.column}: the source has times that no literal can be written for"
    return _Held(values, "bounds", lambda term: [between(term, kind, low, high)])


def _is_run(few: Sequence[Scalar], low: Scalar, high: Scalar) -> bool:
    """Tell whether whole numbers follow one another, so that their bounds say the same in fewer words."""
    return len(few) > 2 and isinstance(low, int) and isinstance(high, int) and high - low + 1 == len(few)


def time_transform(spark: SparkSession, target: Identifier, column: str) -> str | None:
    """The finest of hour, day, month and year that the target's current spec partitions a column by."""
    found = {transform for source, transform in partitioning(load_table(spark, target)) if source == column}
    return next((t for t in _TIMES if t in found), None)


def partitioning(table: Any) -> list[tuple[str, str]]:
    """The source column and transform of each field of a table's current spec."""
    schema = table.schema()
    return [(str(schema.findColumnName(f.sourceId())), str(f.transform().toString())) for f in elements(table.spec().fields())]


def _guard(statement: Statement, held: Sequence[_Held]) -> str:
    """A query that counts the source's rows that the predicates would keep from matching."""
    selected = ", ".join(f"{h.values.equality.expression} AS {identifier(f'k{i}')}" for i, h in enumerate(held))
    tests = " AND ".join(h.passes(identifier(f"k{i}")) for i, h in enumerate(held))
    lead = f"{statement.with_clause} " if statement.with_clause else ""
    return f"{lead}SELECT count(*) AS left_out FROM (SELECT {selected} FROM {statement.source}) WHERE NOT ({tests})"


def _count(spark: SparkSession, guard: str) -> int:
    from pyspark.errors import AnalysisException, ParseException

    try:
        return int(spark.sql(guard).collect()[0][0])
    except (AnalysisException, ParseException) as error:
        raise StatementRefused(f"The source's side of ON cannot be asked by itself ({reason(error)}); add the predicate by hand.") from None
