"""Ask Spark how it would run a MERGE, which files Iceberg's scans would open, and which columns ON
compares; runs nothing.

Iceberg plans a scan in the driver's JVM, like Spark, and its report counts the files.
No file list crosses the bridge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, scala_seq
from icekit.engine.compat import classic
from icekit.engine.planner import children, is_scan_of, kind, nodes, query_of, searches
from icekit.errors import StatementRefused
from icekit.facts.files import Scalar
from icekit.facts.spark_entries import scalar, scalar_sql
from icekit.sql import Identifier, display_name, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_JOINS = {
    "SortMergeJoinExec",
    "ShuffledHashJoinExec",
    "BroadcastHashJoinExec",
    "BroadcastNestedLoopJoinExec",
    "CartesianProductExec",
}
_MODES = {"ReplaceDataExec": "copy-on-write", "WriteDeltaExec": "merge-on-read"}


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan of the target would open, from the engine's own planner.

    ``filters`` are those that reached Iceberg, ``grouped_by`` the partition fields whose
    partitions it keeps apart. ``size_in_bytes`` is the size of the data files, of which a columnar
    scan reads only a part.
    """

    files: int
    size_in_bytes: int
    delete_files: int
    filters: tuple[str, ...] = ()
    runtime_filters: tuple[str, ...] = ()
    grouped_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """How Spark would run a MERGE, found without running it.

    ``mode`` is copy-on-write, merge-on-read or append (no clause touches an existing row).
    ``group_filter`` is the scan by which a copy-on-write MERGE finds the files that hold matches,
    at run time. ``broadcast`` is the side that is sent to every task, source or target.
    ``exchange`` is the shuffle of the target before the join (None: there is none),
    ``write_exchange`` the shuffle of the rows before they are written.
    """

    mode: str
    join: str | None
    join_type: str | None
    keys: tuple[str, ...]
    scan: Scan
    group_filter: Scan | None
    broadcast: str | None
    exchange: str | None
    write_exchange: str | None
    source_bytes: int | None
    tree: str

    @property
    def is_target_shuffled(self) -> bool:
        """Tell whether the target's rows go through a shuffle before the join."""
        return self.exchange is not None

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the target's files that are opened: by the scan itself, and by the search for
        matches before it.
        """
        return self.scan.size_in_bytes + (
            self.group_filter.size_in_bytes if self.group_filter else 0
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """Spark's plans of a MERGE, as Java objects, which are queried in few calls."""

    query: Any
    physical: Any
    joining: Any
    target_is_left: bool


def planned(spark: SparkSession, sql: str) -> Planned:
    """Spark's plan of a MERGE, with its join."""
    query = query_of(spark, sql)
    physical = query.executedPlan()
    joining = next((n for n in nodes(physical) if kind(n) in _JOINS), None)
    # Only a MERGE that inserts and nothing else has the source on the left.
    return Planned(
        query,
        physical,
        joining,
        joining is None or str(joining.joinType().toString()) != "LeftAnti",
    )


def engine_plan(spark: SparkSession, sql: str, target: Identifier) -> EnginePlan:
    """How Spark would run a MERGE of ``target``, which is named with its catalog."""
    return read_plan(planned(spark, sql), target)


def read_plan(plan: Planned, target: Identifier) -> EnginePlan:
    """A plan as a value."""
    joining, left = plan.joining, plan.target_is_left
    inside = plan.physical if joining is None else joining.children().apply(0 if left else 1)
    scanned = next((n for n in nodes(inside) if is_scan_of(n, target)), None)
    if scanned is None:
        raise StatementRefused(
            f"Spark's plan of this MERGE does not scan {display_name(target)} at all (no row can "
            "match, as when the source is empty), so there is nothing to review."
        )
    above = list(_until(plan.physical, joining)) if joining is not None else []
    before = [n for n in _until(inside, scanned) if kind(n) == "ShuffleExchangeExec"]
    after = [n for n in above if kind(n) == "ShuffleExchangeExec"]
    keys = (
        (joining.leftKeys() if left else joining.rightKeys())
        if joining is not None and hasattr(joining, "leftKeys")
        else None
    )
    search = next(_searches(scanned), None)
    return EnginePlan(
        mode=next((_MODES[kind(n)] for n in nodes(plan.physical) if kind(n) in _MODES), "append"),
        join=str(joining.nodeName()) if joining is not None else None,
        join_type=str(joining.joinType().toString()) if joining is not None else None,
        keys=tuple(str(key.sql()) for key in elements(keys)) if keys is not None else (),
        scan=scan(scanned),
        group_filter=scan(search) if search is not None else None,
        broadcast=_broadcast(joining, left),
        exchange=str(before[0].outputPartitioning().toString()) if before else None,
        write_exchange=str(after[0].outputPartitioning().toString()) if after else None,
        source_bytes=_source_bytes(plan),
        tree=str(plan.physical.toString()),
    )


def whole(spark: SparkSession, target: Identifier, branch: str | None = None) -> Scan:
    """A scan of all of the target."""
    name = identifier(*target, *((f"branch_{branch}",) if branch else ()))
    physical = query_of(spark, f"SELECT * FROM {name}").executedPlan()
    return next((scan(n) for n in nodes(physical) if kind(n) == "BatchScanExec"), Scan(0, 0, 0))


def scan(node: Any) -> Scan:
    """What one scan would open, from Iceberg's own scan report."""
    planning = node.scan()
    planning.toBatch().planInputPartitions()
    counts = {str(m.name()): int(m.value()) for m in planning.reportDriverMetrics()}
    text = str(planning.description())
    return Scan(
        files=counts.get("resultDataFiles", 0),
        size_in_bytes=counts.get("totalDataFileSize", 0),
        delete_files=counts.get("resultDeleteFiles", 0),
        filters=_filters(text),
        runtime_filters=tuple(str(f.toString()) for f in elements(node.runtimeFilters())),
        grouped_by=tuple(
            part for part in text.rpartition("groupedBy=")[2].rstrip(")").split(", ") if part
        ),
    )


def _filters(text: str) -> tuple[str, ...]:
    """The filters in a scan's description, as one string, because their values may contain
    commas.
    """
    rest = text.partition("filters=")[2].rpartition(", groupedBy=")[0]
    said = rest.rpartition(", runtimeFilters=")[0] if ", runtimeFilters=" in rest else rest
    return (said,) if said else ()


def _searches(scanned: Any) -> Iterator[Any]:
    """The scans of the target by which a copy-on-write MERGE looks for matches first."""
    name = str(scanned.table().name())
    for plan in searches(scanned):
        yield from (
            n for n in nodes(plan) if kind(n) == "BatchScanExec" and str(n.table().name()) == name
        )


def _broadcast(joining: Any, target_is_left: bool) -> str | None:
    """The side that is sent to every task."""
    if joining is None or not kind(joining).startswith("Broadcast"):
        return None
    return (
        "target" if ("Left" in str(joining.buildSide().toString())) == target_is_left else "source"
    )


def _source_bytes(plan: Planned) -> int | None:
    """Spark's estimate of the source's size, which decides whether it is broadcast."""
    with contextlib.suppress(Exception):
        for n in nodes(plan.query.optimizedPlan()):
            if kind(n) == "Join":
                return int((n.right() if plan.target_is_left else n.left()).stats().sizeInBytes())
    return None


def _until(node: Any, last: Any) -> Iterator[Any]:
    """The nodes on the way down to one of them."""
    if node.equals(last):
        return
    yield node
    for child in children(node):
        if any(n.equals(last) for n in nodes(child)):
            yield from _until(child, last)
            return


# --- Find the columns of the target that ON compares with the source, and their values in the
# source
#
# Only what cannot be wrong is used: a bare column of the target, or a widening of it, on one side
# of ``=`` or ``<=>``; on the other an expression of the source's columns alone that returns the
# same each time it is evaluated.


#: Iceberg's limit for the values of one IN.
MOST_VALUES = 200
# Spark's names of types in which Spark's order, Iceberg's order and equality agree; with Iceberg's
# names.
_TYPES = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "string",
}
_WHOLE = ("byte", "short", "integer", "long")


@dataclass(frozen=True, slots=True)
class Equality:
    """One equality of ON: ``column`` of the target, and an expression of the source as Spark has
    resolved it.
    """

    column: str
    type: str
    expression: str
    is_null_safe: bool
    resolved: Any


@dataclass(frozen=True, slots=True)
class SourceValues:
    """The source's values of one equality: the values themselves if they are few, otherwise their
    number and bounds.
    """

    equality: Equality
    distinct: int
    has_nulls: bool
    low: Scalar
    high: Scalar
    few: tuple[Scalar, ...] | None


@dataclass(frozen=True, slots=True)
class MergeKeys:
    """The equalities that can be used, why others cannot be used, and the source as a Java plan.

    ``unstable`` is what makes the source return different rows each time it is read.
    """

    equalities: tuple[Equality, ...]
    refused: tuple[str, ...]
    source: Any
    unstable: str | None = None


def keys_of(plan: Planned, table: Any, *, case_sensitive: bool = False) -> MergeKeys:
    """The equalities of a MERGE's ON, as Spark has resolved them; ``table`` is the target as
    Iceberg knows it.
    """
    join = next((n for n in nodes(plan.query.analyzed()) if kind(n) == "Join"), None)
    if join is None or join.condition().isEmpty():
        return MergeKeys((), ("the condition of ON is not an equality of columns",), None)
    target, source = (
        (join.left(), join.right()) if plan.target_is_left else (join.right(), join.left())
    )
    found: list[Equality] = []
    refused: list[str] = []
    for part in _conjuncts(join.condition().get()):
        if kind(part) not in {"EqualTo", "EqualNullSafe"}:
            continue
        for mine, other in ((part.left(), part.right()), (part.right(), part.left())):
            if _is_of(mine, target) and _is_of(other, source):
                answer = _equality(
                    table, case_sensitive, mine, other, kind(part) == "EqualNullSafe"
                )
                if isinstance(answer, str):
                    refused.append(answer)
                else:
                    found.append(answer)
                break
    if not found and not refused:
        refused.append("ON sets no column of the target equal to an expression of the source")
    return MergeKeys(tuple(found), tuple(refused), source, unstable_of(source))


def _conjuncts(expression: Any) -> Iterator[Any]:
    if kind(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _is_of(expression: Any, plan: Any) -> bool:
    references = expression.references()
    return bool(references.nonEmpty()) and bool(references.subsetOf(plan.outputSet()))


def _equality(
    table: Any, case_sensitive: bool, mine: Any, other: Any, is_null_safe: bool
) -> Equality | str:
    """One equality, or why it cannot be used."""
    said = f"{mine.sql()} = {other.sql()}"
    column = mine.child() if kind(mine) == "Cast" else mine
    if kind(column) != "AttributeReference":
        return f"{said}: {mine.sql()} is not a plain column, so it cannot skip files"
    own, compared = _type_name(column), _type_name(mine)
    if kind(mine) == "Cast" and not (
        own in _WHOLE and compared in _WHOLE and _WHOLE.index(own) < _WHOLE.index(compared)
    ):
        return (
            f"{said}: the column is compared as {compared} but stored as {own}; give the source's "
            "side the column's type"
        )
    if own in {"float", "double"}:
        return (
            f"{said}: floating-point columns have NaN and two zeros, which file bounds order "
            "differently"
        )
    name = _iceberg_type(column)
    if name is None:
        return f"{said}: there is no rule for columns of type {column.dataType().simpleString()}"
    schema, written = table.schema(), str(column.name())
    field = (
        schema.findField(written) if case_sensitive else schema.caseInsensitiveFindField(written)
    )
    if field is None or str(field.type().toString()) in {"uuid", "fixed", "binary"}:
        return f"{said}: Iceberg stores the column with another type than Spark shows"
    if not other.deterministic() or _has_subquery(other):
        return f"{said}: {other.sql()} may return a different value each time"
    return Equality(
        str(field.name()), _iceberg_type(mine) or name, str(other.sql()), is_null_safe, other
    )


def _iceberg_type(expression: Any) -> str | None:
    data_type = expression.dataType()
    name = str(data_type.typeName())
    if name.startswith("decimal"):
        return f"decimal({data_type.precision()}, {data_type.scale()})"
    if name.startswith("string") and str(data_type.simpleString()) != "string":
        return None  # another collation than by bytes
    return _TYPES.get(name)


def _type_name(expression: Any) -> str:
    name = str(expression.dataType().typeName())
    return "decimal" if name.startswith("decimal") else name


def _has_subquery(expression: Any) -> bool:
    return "subquery" in str(expression.toString())


def unstable_of(plan: Any) -> str | None:
    """What makes a plan return different rows each time it is read; None if nothing does."""
    for node in nodes(plan):
        if kind(node) in {"GlobalLimit", "LocalLimit", "Offset", "Sample"}:
            return {"Sample": "TABLESAMPLE"}.get(kind(node), "LIMIT")
        found = next((u for u in map(_unstable, _expressions(node)) if u), None)
        if found:
            return found
    return None


def unstable_writes(plan: Planned) -> str | None:
    """What makes a MERGE write different values each time it is run; None if nothing is found."""
    rows = next((n for n in nodes(plan.query.analyzed()) if kind(n) == "MergeRows"), None)
    return (
        next((u for u in map(_unstable, _expressions(rows)) if u), None)
        if rows is not None
        else None
    )


def _unstable(expression: Any) -> str | None:
    if not expression.deterministic():
        return str(expression.sql())[:80]
    text = str(expression.toString())
    return next(
        (
            f"{word}()"
            for word in (
                "current_timestamp",
                "current_date",
                "now",
                "localtimestamp",
                "current_time",
            )
            if f"{word}(" in text
        ),
        None,
    )


def _expressions(node: Any) -> Iterator[Any]:
    listed = node.expressions()
    return (listed.apply(place) for place in range(int(listed.size())))


def values_of(spark: SparkSession, keys: MergeKeys) -> tuple[SourceValues, ...]:
    """The source's values of each equality: one aggregation of the source, and another for each
    equality with few values.
    """
    if not keys.equalities:
        return ()
    frame = _projected(spark, keys)
    names = [f"k{i}" for i in range(len(keys.equalities))]
    kinds = [field.dataType.typeName() for field in frame.schema.fields]
    asked = ["count(*) AS n"]
    for name, type_name in zip(names, kinds, strict=True):
        asked += [f"approx_count_distinct({name})", f"count({name})"]
        asked += [scalar_sql(f"{end}({name})", type_name) for end in ("min", "max")]
    row = frame.selectExpr(*asked).collect()[0]
    found = []
    for place, (name, type_name, equality) in enumerate(
        zip(names, kinds, keys.equalities, strict=True)
    ):
        about, there, low, high = row[1 + 4 * place : 5 + 4 * place]
        few: tuple[Scalar, ...] | None = None
        # The estimate is within a few per cent; the exact number is counted afterwards.
        if about <= 2 * MOST_VALUES:
            listed = (
                frame.where(f"{name} IS NOT NULL")
                .selectExpr(f"{scalar_sql(name, type_name)} AS v")
                .distinct()
            )
            rows = listed.limit(MOST_VALUES + 1).collect()
            few = tuple(scalar(r[0]) for r in rows) if len(rows) <= MOST_VALUES else None
        count = len(few) if few is not None else int(about)
        found.append(SourceValues(equality, count, there < row[0], scalar(low), scalar(high), few))
    return tuple(found)


def units_of(
    spark: SparkSession, keys: MergeKeys, place: int, transform: str, most: int
) -> tuple[int, ...] | None:
    """The years, months, days or hours, counted from 1970, that the source has for one equality;
    None if there are too many.
    """
    frame = _projected(spark, keys)
    type_name = frame.schema.fields[place].dataType.typeName()
    name = f"k{place}"
    if type_name == "date":
        days = f"unix_date({name})"
        unit = {
            "day": days,
            "month": f"(year({name}) - 1970) * 12 + month({name}) - 1",
            "year": f"year({name}) - 1970",
        }.get(transform)
    else:
        micros = scalar_sql(name, type_name)
        local = f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ '1970-01-01 00:00:00')"
        unit = {
            "hour": f"floor({micros} / 3600000000D)",
            "day": f"unix_date(CAST({local} AS DATE))",
            "month": f"(year({local}) - 1970) * 12 + month({local}) - 1",
            "year": f"year({local}) - 1970",
        }.get(transform)
    if unit is None:
        return None
    rows = (
        frame.where(f"{name} IS NOT NULL")
        .selectExpr(f"CAST({unit} AS BIGINT) AS u")
        .distinct()
        .limit(most + 1)
        .collect()
    )
    return tuple(sorted(int(r[0]) for r in rows)) if len(rows) <= most else None


def _projected(spark: SparkSession, keys: MergeKeys) -> DataFrame:
    """The source's side of each equality as ``k0, k1, …``."""
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    nothing = scala_seq(spark, ())
    columns = []
    for place, equality in enumerate(keys.equalities):
        expr_id = catalyst.expressions.NamedExpression.newExprId()
        none = jvm.scala.Option.apply(None)
        columns.append(
            catalyst.expressions.Alias(
                equality.resolved, f"k{place}", expr_id, nothing, none, nothing
            )
        )
    project = catalyst.plans.logical.Project(scala_seq(spark, columns), keys.source)
    return DataFrame(classic(spark).Dataset.ofRows(spark._jsparkSession, project), spark)
