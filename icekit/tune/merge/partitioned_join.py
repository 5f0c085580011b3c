"""Ask whether a storage-partitioned join would spare a MERGE its shuffles, and what is missing for one.

The engine answers: the statement is planned again under the settings that such a join needs. If
the shuffle of the target goes, settings are left out one after the other; if it stays, the
layouts of both tables are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from icekit.engine.bridge import load_table
from icekit.engine.plan_nodes import kind, nodes
from icekit.engine.session import lent
from icekit.sql import Identifier, display_name, identifier, transform_of
from icekit.tune.merge.engine import engine_plan
from icekit.tune.merge.keys import Keys
from icekit.tune.merge.model import EnginePlan, PartitionedJoin
from icekit.tune.merge.rewrite import partitioning
from icekit.tune.statement import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the order in which they are tried to be left out: the last ones change the most.
SETTINGS: Mapping[str, str] = {
    "spark.sql.sources.v2.bucketing.allowCompatibleTransforms.enabled": "true",
    "spark.sql.sources.v2.bucketing.allowJoinKeysSubsetOfPartitionKeys.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
}


def partitioned_join(spark: SparkSession, statement: Statement, before: EnginePlan, keys: Keys) -> PartitionedJoin:
    """Whether the target's shuffle can go, and by which settings or which layout of the source."""
    if before.join is None or (not before.is_target_shuffled and "SortMerge" not in before.join):
        return PartitionedJoin(is_used=False, is_possible=False)
    if not before.is_target_shuffled:
        return PartitionedJoin(is_used=bool(before.scan.grouped_by), is_possible=True)
    missing = {key: value for key, value in SETTINGS.items() if _now(spark, key) != value}

    def under(settings: Mapping[str, str]) -> EnginePlan:
        with lent(spark, settings):
            return engine_plan(spark, statement.sql, statement.target)

    after = under(missing)
    if after.is_target_shuffled or not after.scan.grouped_by:
        lacks, layout = _layout(spark, statement, keys)
        return PartitionedJoin(is_used=False, is_possible=False, lacks=lacks, layout=layout)
    for key in list(missing):
        fewer = {k: v for k, v in missing.items() if k != key}
        without = under(fewer)
        if not without.is_target_shuffled and without.scan.grouped_by:
            missing, after = fewer, without
    return PartitionedJoin(is_used=False, is_possible=True, settings=tuple(missing.items()), plan=after)


def _now(spark: SparkSession, key: str) -> str | None:
    """A setting in force, its default included; None where Spark knows none."""
    try:
        value = str(spark.conf.get(key))
    except Exception:
        return None
    return "-1" if key.endswith("Threshold") and value.rstrip("b") == "-1" else value


def _layout(spark: SparkSession, statement: Statement, keys: Keys) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the layout lacks, and SQL for a source that would do."""
    table = load_table(spark, statement.target)
    fields = partitioning(table)
    name = display_name(statement.target[1:])
    by_column = {e.column: e for e in keys.equalities}
    if not fields or all(transform == "void" for _, transform in fields):
        return (f"{name} is not partitioned, so that its rows cannot be joined partition by partition",), ()
    usable = [(column, transform) for column, transform in fields if column in by_column]
    if not usable:
        columns = ", ".join(dict.fromkeys(c for c, _ in fields))
        return (f"{name} is partitioned by {_said(fields)}, and ON sets no {columns} equal to a column of the source",), ()
    lacks: list[str] = []
    if int(table.specs().size()) > 1:
        lacks.append(f"{name} has files of {int(table.specs().size())} partition specs, and only fields common to all of them count")
    wanted = [(by_column[column].expression, transform) for column, transform in usable]
    sources = list(_source_tables(keys))
    if len(sources) != 1:
        lacks.append("the source is no plain Iceberg table" + (f" but reads {len(sources)} of them" if sources else ""))
        return tuple(lacks), _create(statement, usable, keys)
    source = sources[0]
    there = partitioning(load_table(spark, source))
    mine = {(by_column[c].resolved.name() if kind(by_column[c].resolved) == "AttributeReference" else "", t) for c, t in usable}
    if not there:
        lacks.append(f"the source {display_name(source[1:])} is not partitioned; it would have to be by {_said(wanted)}")
    elif not mine <= set(there):
        lacks.append(f"the source {display_name(source[1:])} is partitioned by {_said(there)}, and would have to be by {_said(wanted)}")
    if not lacks:
        lacks.append("partition specs of both sides agree, yet Spark shuffles: a join key may be cast, or the statement computes it")
    return tuple(lacks), _create(statement, usable, keys)


def _create(statement: Statement, usable: list[tuple[str, str]], keys: Keys) -> tuple[str, ...]:
    """A table with the source's rows in the target's partitioning, for the columns that ON has."""
    by_column = {e.column: e for e in keys.equalities}
    named: dict[str, str] = {}
    for column, _ in usable:
        resolved = by_column[column].resolved
        if kind(resolved) != "AttributeReference":
            return ()
        named[column] = str(resolved.name())
    by = ", ".join(transform_of(identifier(named[column]), transform) for column, transform in usable)
    made = identifier(*statement.target[:-1], f"{statement.target[-1]}_source")
    lead = f"{statement.with_clause} " if statement.with_clause else ""
    return (f"CREATE TABLE {made} USING iceberg PARTITIONED BY ({by}) AS {lead}SELECT * FROM {statement.source}",)


def _said(fields: list[tuple[str, str]]) -> str:
    return ", ".join(column if transform == "identity" else f"{transform}({column})" for column, transform in fields)


def _source_tables(keys: Keys) -> Iterator[Identifier]:
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
            yield (str(catalog.get().name()), *map(str, found.get().namespace()), str(found.get().name()))
