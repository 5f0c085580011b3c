"""Ask the engine's own planner what a rewrite of position deletes would take, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.compact.model import Action
from icekit.engine.bridge import has_bridge
from icekit.engine.planner import PlannedRewrite, plan_rewrite, rolled_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask_delete_planner(spark: SparkSession, action: Action) -> PlannedRewrite:
    """What ``rewrite_position_delete_files`` would rewrite now, by Iceberg's own planner.

    Needs the JVM bridge; raises the errors of :mod:`icekit.errors`.
    """
    return rolled_up(plan_rewrite(spark, (action.catalog, *action.table), action.options, where=action.where, of_deletes=True))


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
