"""Ask the engine's own planner what a rewrite of position deletes would take, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.compact.model import Action
from icekit.compact.predict import Planned, asked_of, load, planned_by, rolled_up
from icekit.engine.bridge import has_bridge
from icekit.engine.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask_delete_planner(spark: SparkSession, action: Action) -> Planned:
    """What ``rewrite_position_delete_files`` would rewrite now, by BinPackRewritePositionDeletePlanner.

    Needs the JVM bridge; raises the errors of :mod:`icekit.errors`.
    """
    name = (action.catalog, *action.table)
    try:
        table = load(spark, name)
        jvm: Any = spark._jvm
        planner = jvm.org.apache.iceberg.actions.BinPackRewritePositionDeletePlanner(table, *asked_of(spark, action))
        return rolled_up(planned_by(planner, action))
    except Exception as error:
        raise explain(error, name) from error


def predict_deletes(spark: SparkSession | None, action: Action) -> Action:
    """The action with the engine's prediction in place of the estimate; as it is without a bridge, or for others."""
    if action.procedure != "rewrite_position_delete_files" or spark is None or not has_bridge(spark):
        return action
    planned = ask_delete_planner(spark, action)
    estimate = action.prediction
    # The planner counts by size. Spark's writer leaves a file for each data file (see plan.py).
    share = planned.files_in / estimate.files_in if estimate.files_in else 1.0
    out = min(planned.files_in, max(planned.files_out, round(estimate.files_out * share)))
    return replace(
        action,
        prediction=replace(
            estimate,
            files_in=planned.files_in,
            bytes_in=planned.bytes_in,
            files_out=out,
            bytes_out=round(planned.bytes_in * estimate.bytes_out / estimate.bytes_in) if estimate.bytes_in else planned.bytes_in,
            groups=planned.groups,
            file_opens_saved=max(planned.files_in - out, 0),
            source="planner",
        ),
    )
