"""Ask the engine's own planner which files an action takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icekit.compact.model import Action
from icekit.engine.planner import PlannedRewrite, plan_rewrite, rolled_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_plan(spark: SparkSession, action: Action) -> Any:
    """Iceberg's plan of a rewrite of data files or of position delete files; None for a table
    without a snapshot.

    Needs a classic session; raises the errors of :mod:`icekit.errors`.
    """
    return plan_rewrite(
        spark,
        action.sql_name,
        action.options,
        where=action.where,
        branch=action.branch,
        of_deletes=action.rewrites_deletes,
    )


def ask_planner(spark: SparkSession, action: Action, *, deletes: bool = False) -> PlannedRewrite:
    """What an action would rewrite with its filter and options, by the procedure's own planner.

    ``deletes`` also counts the delete files that apply. Raises as :func:`engine_plan` does.
    """
    keeps_order = not (action.order.is_sorting or action.rewrites_deletes)
    return rolled_up(
        engine_plan(spark, action), spark=spark if keeps_order else None, deletes=deletes
    )
