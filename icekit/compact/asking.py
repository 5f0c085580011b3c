"""Ask the engine's own planner which files an action takes, and predict from its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.compact.model import Action, Prediction
from icekit.engine.bridge import load_now
from icekit.engine.errors import explaining
from icekit.engine.planner import PlannedRewrite, plan_rewrite, rolled_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_plan(spark: SparkSession, action: Action) -> Any:
    """Iceberg's plan of a rewrite of data files or of position delete files; None for a table
    without a snapshot.

    Needs a classic session; raises the errors of :mod:`icekit.errors`.
    """
    name = action.sql_name
    with explaining(name):
        table = load_now(spark, name)
        snapshot = table.snapshot(action.branch) if action.branch else table.currentSnapshot()
        if snapshot is None:
            return None
        return plan_rewrite(
            spark,
            name,
            table,
            snapshot,
            action.options,
            where=action.where,
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


def by_planner(
    estimate: Prediction, planned: PlannedRewrite, files_out: int, **figures: Any
) -> Prediction:
    """An estimate with what the engine's planner takes instead; as large a share of the bytes stays
    as was estimated.
    """
    live = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
    return replace(
        estimate,
        files_in=planned.files_in,
        bytes_in=planned.bytes_in,
        files_out=files_out,
        bytes_out=round(planned.bytes_in * live),
        groups=planned.groups,
        source="planner",
        **figures,
    )
