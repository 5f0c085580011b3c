"""Ask whether a storage-partitioned join would avoid the shuffle of a MERGE's target, and what is
missing for one.

The engine answers: the statement is planned again under the settings that such a join needs. If
that removes the shuffle of the target, settings are left out one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING

from icekit.engine.bridge import lent
from icekit.facts.model import TableFacts
from icekit.sql import reset_session, set_session, transform_of
from icekit.tune.answer import Change
from icekit.tune.ddl import fields_of
from icekit.tune.merge.engine import MergePlan, merge_plan
from icekit.tune.merge.keys import MergeKeys
from icekit.tune.statement import Statement
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PARTITIONED = "storage-partitioned join"
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
    spark: SparkSession,
    statement: Statement,
    before: MergePlan,
    keys: MergeKeys,
    facts: TableFacts,
) -> Change:
    """Settings by which the target's shuffle can be avoided, or what the tables lack; the facts
    are the target's.

    The settings are the smallest set found by leaving out one after the other.
    """
    if not before.is_target_shuffled:
        return Change(PARTITIONED, None, None, "It is not needed: the target is not shuffled.")

    def avoid_shuffle(settings: Mapping[str, str]) -> bool:
        with lent(spark, settings):
            after = merge_plan(spark, statement.sql, statement.target)
        return after.scan.is_grouped and not after.is_target_shuffled

    settings = {key: value for key, value in SETTINGS.items() if spark.conf.get(key, None) != value}
    if not avoid_shuffle(settings):
        fields = (transform_of(*astuple(f)) for f in fields_of(facts.default_spec))
        target = ", ".join(fields) or "nothing"
        equal = ", ".join(f"{e.column} = {e.expression}" for e in keys.equalities) or "no column"
        why = (
            "It needs both tables partitioned alike, by columns that ON sets equal. The target is "
            f"partitioned by {target}, the source {before.source}, and ON sets {equal}."
        )
        return Change(PARTITIONED, None, None, why)
    for key in list(settings):
        fewer = {k: v for k, v in settings.items() if k != key}
        if avoid_shuffle(fewer):
            settings = fewer
    before_values = [(key, spark.conf.get(key, None)) for key in settings]
    return Change(
        PARTITIONED,
        "not used",
        "used",
        f"With {count(len(settings), 'session setting')}, Spark joins the target's partitions as "
        "they are stored, without a shuffle.",
        tuple(set_session(key, value) for key, value in settings.items()),
        tuple(set_session(k, v) if v else reset_session(k) for k, v in before_values),
        side_effect="each task holds an entire partition, so partitions must fit into a task, and "
        "there are at most as many tasks as partitions",
    )
