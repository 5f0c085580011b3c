"""Write the predicates that ON implies for the target, from the values of the source; and find what
a storage-partitioned join lacks.

For every pair of rows that ON lets match, the target's column equals the source's expression, which
has one of the source's values: a predicate that all those values pass takes no pair away. So
MATCHED, NOT MATCHED and NOT MATCHED BY SOURCE see the same rows. It holds for this source only: a
row that comes to it later and does not pass would match nothing and be inserted, hence the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, lent, load_table
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import kind, nodes
from icekit.errors import StatementRefused
from icekit.facts.files import Scalar
from icekit.facts.where import among, between, in_units
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.merge.engine import (
    EnginePlan,
    MergeKeys,
    SourceValues,
    engine_plan,
    units_of,
    values_of,
)
from icekit.tune.statement import Statement, narrowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Added:
    """One predicate that narrows the target scan, and its origin.

    ``column`` is the target's column, ``expression`` what ON sets equal to it, ``form`` how
    the source's values are written: values, ranges or bounds.
    """

    column: str
    expression: str
    form: str
    predicate: str
    distinct: int
    has_nulls: bool


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The statement with predicates that ON implies for every row of this source.

    ``guard`` counts the source's rows that the predicates leave out: it must give 0 just before
    the statement is run, because such rows would be inserted although they are there.
    """

    sql: str
    predicate: str
    added: tuple[Added, ...]
    guard: str
    plan: EnginePlan


@dataclass(frozen=True, slots=True)
class PartitionedJoin:
    """Whether a storage-partitioned join would avoid the shuffle.

    ``is_used`` is true if the session uses one already. ``settings`` are those that are missing
    (the smallest set found, by leaving out one after the other), ``before`` their values in the
    session (None: not set). If the layout prevents the join, ``lacks`` says how.
    """

    is_used: bool
    settings: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    plan: EnginePlan | None = None
    before: tuple[tuple[str, str | None], ...] = ()


# More ranges than a person reads at a glance become one range from first to last.
_MOST_RANGES = 20
_MOST_UNITS = 1_000
_TIMES = ("hour", "day", "month", "year")


def rewrite(
    spark: SparkSession, statement: Statement, keys: MergeKeys, before: EnginePlan
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
    if not before.size_in_bytes:
        return None, "the target scan already opens no file"
    if keys.unstable:
        return None, f"the source may return different rows each time it is read ({keys.unstable})"
    if not keys.equalities:
        return None, "; ".join(keys.refused)
    held: list[_Held] = []
    reasons = list(keys.refused)
    try:
        answers = [
            _held(spark, statement, keys, place, values)
            for place, values in enumerate(values_of(spark, keys))
        ]
    except engine_errors() as error:
        raise StatementRefused(
            f"The source of the MERGE cannot be read ({reason(error)}); fix it and try again.",
            detail=scrub(str(error)),
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
        return None, "; ".join(
            [
                *reasons,
                "predicates with the source's values skip no file of the target, because each "
                "file's range includes them",
            ]
        )
    predicate = _predicate(statement, chosen)
    new = narrowed(spark, statement, predicate)
    guard = _guard(statement, chosen)
    left_out = _count(spark, guard)
    if left_out:
        return (
            None,
            f"the source changed while it was read: {left_out:,} of its rows are outside its "
            "values of a moment before",
        )
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


def _needed(
    spark: SparkSession, statement: Statement, held: Sequence[_Held], before: EnginePlan
) -> tuple[list[_Held], EnginePlan | None]:
    """The predicates that rule something out, and the plan with them; found by leaving out each
    once, the longest first.
    """

    def planned_with(some: Sequence[_Held]) -> EnginePlan:
        return engine_plan(
            spark, statement.with_condition(_predicate(statement, some)), statement.target
        )

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
    return (
        " AND ".join(f"({p})" if " OR " in p else p for p in parts) if len(parts) > 1 else parts[0]
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """The source's values of one equality, as a predicate of the target and of the source."""

    values: SourceValues
    form: str
    write: Callable[[str], list[str]]

    def predicate(self, term: str) -> str:
        """The predicate of a term; two alternatives or more are joined by OR."""
        parts = self.write(term)
        if self.values.equality.is_null_safe and self.values.has_nulls:
            parts.append(f"{term} IS NULL")
        return (
            parts[0]
            if len(parts) == 1
            else " OR ".join(p if p.startswith("(") else f"({p})" for p in parts)
        )

    def passes(self, term: str) -> str:
        """The same predicate of the source's expression, never null, because null matches nothing
        with ``=``.
        """
        return (
            f"coalesce({self.predicate(term)}, "
            f"{'false' if self.values.equality.is_null_safe else 'true'})"
        )


def _held(
    spark: SparkSession, statement: Statement, keys: MergeKeys, place: int, values: SourceValues
) -> _Held | str:
    """Ranges if the target is partitioned by a time, otherwise the values if they are few,
    otherwise their bounds.
    """
    equality = values.equality
    kind = equality.type
    low, high, few = values.low, values.high, values.few
    if low is None and not (equality.is_null_safe and values.has_nulls):
        return f"the source has no value for {equality.column}, so no row can match"
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
        return f"{equality.column}: the source has times without a literal"
    return _Held(values, "bounds", lambda term: [between(term, kind, low, high)])


def _is_run(few: Sequence[Scalar], low: Scalar, high: Scalar) -> bool:
    """Tell whether whole numbers are consecutive, so that their bounds are an equal, shorter
    predicate.
    """
    return (
        len(few) > 2
        and isinstance(low, int)
        and isinstance(high, int)
        and high - low + 1 == len(few)
    )


def time_transform(spark: SparkSession, target: Identifier, column: str) -> str | None:
    """The finest of hour, day, month and year that the target's current spec partitions a column
    by.
    """
    found = {
        transform
        for source, transform in partitioning(load_table(spark, target))
        if source == column
    }
    return next((t for t in _TIMES if t in found), None)


def partitioning(table: Any) -> list[tuple[str, str]]:
    """The source column and transform of each field of a table's current spec."""
    schema = table.schema()
    return [
        (str(schema.findColumnName(f.sourceId())), str(f.transform().toString()))
        for f in elements(table.spec().fields())
    ]


def _guard(statement: Statement, held: Sequence[_Held]) -> str:
    """A query that counts the source's rows that the predicates would keep from matching."""
    selected = ", ".join(
        f"{h.values.equality.expression} AS {identifier(f'k{i}')}" for i, h in enumerate(held)
    )
    tests = " AND ".join(h.passes(identifier(f"k{i}")) for i, h in enumerate(held))
    lead = f"{statement.with_clause} " if statement.with_clause else ""
    return (
        f"{lead}SELECT count(*) AS left_out FROM (SELECT {selected} FROM {statement.source}) "
        f"WHERE NOT ({tests})"
    )


def _count(spark: SparkSession, guard: str) -> int:
    try:
        return int(spark.sql(guard).collect()[0][0])
    except engine_errors() as error:
        raise StatementRefused(
            f"The source's side of ON cannot be queried by itself ({reason(error)}); add the "
            "predicate by hand."
        ) from None


# --- Ask whether a storage-partitioned join would avoid the shuffles of a MERGE, and what is
# missing for one
#
# The engine answers: the statement is planned again under the settings that such a join needs. If
# that removes the shuffle of the target, settings are left out one after the other; if it stays,
# the layouts of both tables are compared.


# In the order in which they are left out: the last ones change the most.
SETTINGS: Mapping[str, str] = {
    "spark.sql.sources.v2.bucketing.allowCompatibleTransforms.enabled": "true",
    "spark.sql.sources.v2.bucketing.allowJoinKeysSubsetOfPartitionKeys.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
}


def partitioned_join(
    spark: SparkSession, statement: Statement, before: EnginePlan, keys: MergeKeys
) -> PartitionedJoin:
    """Whether the target's shuffle can be avoided, and by which settings or which layout of the
    source.
    """
    if before.join is None or (not before.is_target_shuffled and "SortMerge" not in before.join):
        return PartitionedJoin(is_used=False)
    if not before.is_target_shuffled:
        return PartitionedJoin(is_used=bool(before.scan.grouped_by))
    missing = {key: value for key, value in SETTINGS.items() if _now(spark, key) != value}

    def under(settings: Mapping[str, str]) -> EnginePlan:
        with lent(spark, settings):
            return engine_plan(spark, statement.sql, statement.target)

    after = under(missing)
    if after.is_target_shuffled or not after.scan.grouped_by:
        return PartitionedJoin(is_used=False, lacks=_lacks(spark, statement, keys))
    for key in list(missing):
        fewer = {k: v for k, v in missing.items() if k != key}
        without = under(fewer)
        if not without.is_target_shuffled and without.scan.grouped_by:
            missing, after = fewer, without
    here = tuple((key, _now(spark, key)) for key in missing)
    return PartitionedJoin(is_used=False, settings=tuple(missing.items()), plan=after, before=here)


def _now(spark: SparkSession, key: str) -> str | None:
    """The value in force of a setting, or its default; None if Spark has none."""
    try:
        value = str(spark.conf.get(key))
    except Exception:
        return None
    return "-1" if key.endswith("Threshold") and value.rstrip("b") == "-1" else value


def _lacks(spark: SparkSession, statement: Statement, keys: MergeKeys) -> tuple[str, ...]:
    """What the layouts of target and source lack."""
    table = load_table(spark, statement.target)
    fields = partitioning(table)
    name = display_name(statement.target[1:])
    by_column = {e.column: e for e in keys.equalities}
    if not fields or all(transform == "void" for _, transform in fields):
        return (f"{name} is not partitioned, so its rows cannot be joined partition by partition",)
    usable = [(column, transform) for column, transform in fields if column in by_column]
    if not usable:
        columns = ", ".join(dict.fromkeys(c for c, _ in fields))
        return (
            f"{name} is partitioned by {_said(fields)}, but ON does not set {columns} equal to a "
            "column of the source",
        )
    lacks: list[str] = []
    if int(table.specs().size()) > 1:
        lacks.append(
            f"{name} has files of {int(table.specs().size())} partition specs, and only fields "
            "common to all specs count"
        )
    wanted = [(by_column[column].expression, transform) for column, transform in usable]
    sources = list(_source_tables(keys))
    if len(sources) != 1:
        lacks.append(
            "the source is not a plain Iceberg table"
            + (f" but reads {len(sources)} tables" if sources else "")
        )
        return tuple(lacks)
    source = sources[0]
    there = partitioning(load_table(spark, source))
    mine = {
        (
            by_column[c].resolved.name()
            if kind(by_column[c].resolved) == "AttributeReference"
            else "",
            t,
        )
        for c, t in usable
    }
    if not there:
        lacks.append(
            f"the source {display_name(source[1:])} is not partitioned; it would have to be "
            f"partitioned by {_said(wanted)}"
        )
    elif not mine <= set(there):
        lacks.append(
            f"the source {display_name(source[1:])} is partitioned by {_said(there)}, but would "
            f"have to be partitioned by {_said(wanted)}"
        )
    if not lacks:
        lacks.append(
            "the partition specs of both sides agree, but Spark still shuffles: a join key may be "
            "cast or computed"
        )
    return tuple(lacks)


def _said(fields: list[tuple[str, str]]) -> str:
    return ", ".join(
        column if transform == "identity" else f"{transform}({column})"
        for column, transform in fields
    )


def _source_tables(keys: MergeKeys) -> Iterator[Identifier]:
    """The Iceberg tables that the source reads, if it reads nothing else."""
    if keys.source is None:
        return
    for node in nodes(keys.source):
        if int(node.children().size()) == 0:
            if kind(node) != "DataSourceV2Relation" or "Spark" not in kind(node.table()):
                return
            found = node.identifier()
            catalog = node.catalog()
            if found.isEmpty() or catalog.isEmpty():
                return
            yield (
                str(catalog.get().name()),
                *map(str, found.get().namespace()),
                str(found.get().name()),
            )
