"""Ask the engine's own planner what a rewrite would take, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.compact.deletes import dropped_by
from icekit.compact.model import Action
from icekit.engine.bridge import has_bridge
from icekit.engine.planner import PlannedRewrite, partitions_with_files_up_to, plan_rewrite, rolled_up
from icekit.facts.files import Partition
from icekit.facts.model import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask_planner(spark: SparkSession, action: Action, *, deletes: bool = False) -> PlannedRewrite:
    """What ``rewrite_data_files`` would rewrite with this action's filter and options, by its own planner.

    ``deletes`` also counts the delete files over them. Needs the JVM bridge; raises the errors
    of :mod:`icekit.errors`.
    """
    return rolled_up(_plan(spark, action), deletes=deletes)


def partitions_left(spark: SparkSession, action: Action, sequence_number: int) -> tuple[Partition, ...] | None:
    """The partitions in which the planner selects a file that was there at a sequence number.

    What a run has written itself may be selected again (deletes of the sequence number that
    it starts from still apply to its files), and is not left to do. None where groups cannot be
    told by partition: those of older specs.
    """
    plan = _plan(spark, action)
    if plan is None:
        return ()
    # Texts that differ from Java's are not found, and nothing is left out then.
    known = {tuple(str(value) for value in p.values): p for p in action.partitions}
    left: list[Partition] = []
    for values in partitions_with_files_up_to(spark, plan, sequence_number):
        if values not in known:
            return None
        left.append(known[values])
    return tuple(dict.fromkeys(left))


def _plan(spark: SparkSession, action: Action) -> Any:
    return plan_rewrite(spark, (action.catalog, *action.table), action.options, where=action.where, branch=action.branch)


def predict(
    spark: SparkSession | None,
    facts: TableFacts,
    action: Action,
    *,
    sequence_number: int,
    bytes_ratio: float = 1.0,
    bytes_per_second: float | None = None,
) -> Action:
    """The action with the engine's prediction in place of the estimate it was chosen by.

    ``bytes_ratio`` is bytes written per live byte read, from a trial or past runs.
    ``bytes_per_second`` is the throughput of past runs. Without a bridge the estimate stays,
    and says so by its source.
    """
    estimate = action.prediction
    if estimate.source == "metadata":
        return action
    if spark is not None and has_bridge(spark):
        # Only where deletes decide which files are taken must each file be looked at.
        by_ratio = "delete-ratio-threshold" in action.options
        planned = ask_planner(spark, action, deletes=by_ratio)
        removed = planned.delete_files or 0
        if not by_ratio and action.options.get("remove-dangling-deletes") == "true":
            renewed = action.options.get("use-starting-sequence-number") == "false"
            removed = dropped_by(facts, action.partitions, sequence_number + renewed)
        live = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
        estimate = replace(
            estimate,
            files_in=planned.files_in,
            bytes_in=planned.bytes_in,
            files_out=planned.files_out,
            bytes_out=round(planned.bytes_in * live * bytes_ratio),
            bytes_untaught=round(planned.bytes_in * live),
            delete_files_removed=removed,
            groups=planned.groups,
            file_opens_saved=max(estimate.file_opens_saved - (estimate.files_in - estimate.files_out), 0)
            + max(planned.files_in - planned.files_out, 0),
            source="planner",
        )
    else:
        estimate = replace(estimate, bytes_out=round(estimate.bytes_out * bytes_ratio))
    return replace(
        action,
        prediction=replace(
            estimate,
            shuffle_bytes=estimate.bytes_in if action.order.is_sorting else 0,
            seconds=estimate.bytes_in / bytes_per_second if bytes_per_second else None,
        ),
    )
