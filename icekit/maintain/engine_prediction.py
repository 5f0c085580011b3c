"""Predict an action: which files it takes, from the engine's own planner, and how many seconds it
takes, from earlier actions of about its size.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.engine.bridge import head_snapshot, load_latest_table
from icekit.engine.errors import explain_errors
from icekit.engine.planner import (
    NOTHING_PLANNED,
    PlannedRewrite,
    RewriteGroups,
    plan_rewrite,
    plan_rewrite_of_deletes,
)
from icekit.maintain.action import Action
from icekit.maintain.prediction import Prediction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: A choice: the files before a rewrite, and those after it, whose ranges are looked at.
SAMPLED_RANGES = 300


def engine_groups(
    spark: SparkSession, action: Action, bounds_columns: Sequence[str] = ()
) -> RewriteGroups | None:
    """The groups of data files that Iceberg's planner makes for an action, with the bounds of some
    columns; None for a table without a snapshot.

    Needs a classic session; raises the errors of :mod:`icekit.common.errors`.
    """
    sql_name = action.sql_name
    with explain_errors(sql_name):
        table = load_latest_table(spark, sql_name)
        snapshot = head_snapshot(table, action.branch)
        if snapshot is None:
            return None
        return planned_groups(spark, action, table, snapshot, bounds_columns)


def planned_groups(
    spark: SparkSession,
    action: Action,
    table: Any,
    snapshot: Any,
    bounds_columns: Sequence[str] = (),
) -> RewriteGroups:
    """The groups of an action's data files; ``table`` and ``snapshot`` are objects of Iceberg's
    API.

    An action for partitions of the current spec takes no file of another: where its rows go, and
    how many files they become, the plan does not say.
    """
    current_spec_id = int(table.spec().specId())
    return plan_rewrite(
        spark,
        action.sql_name,
        table,
        snapshot,
        action.options,
        where=action.where,
        stays_in_spec=bool(action.partitions)
        and all(partition.spec_id == current_spec_id for partition in action.partitions),
        file_order_column=action.order.files_by,
        bounds_columns=bounds_columns,
    )


def ask_planner(
    spark: SparkSession, action: Action, bounds_columns: Sequence[str] = ()
) -> PlannedRewrite:
    """What an action would rewrite with its filter and options, by the procedure's own planner.

    ``bounds_columns`` are columns whose ranges before and after are given, unless rows are sorted.
    Raises as :func:`engine_groups` does.
    """
    if action.rewrites_position_deletes:
        sql_name = action.sql_name
        with explain_errors(sql_name):
            table = load_latest_table(spark, sql_name)
            if head_snapshot(table, action.branch) is None:
                return NOTHING_PLANNED
            return plan_rewrite_of_deletes(
                spark, sql_name, table, action.options, where=action.where
            )
    keeps_order = not action.order.is_sorting
    groups = engine_groups(spark, action, bounds_columns if keeps_order else ())
    if groups is None:
        return NOTHING_PLANNED
    planned_rewrite = groups.rollup(keeps_order=keeps_order)
    if not (bounds_columns and keeps_order):
        return planned_rewrite
    return replace(planned_rewrite, ranges=groups.ranges(SAMPLED_RANGES))


def planner_prediction(
    estimate: Prediction, planned_rewrite: PlannedRewrite, files_out: int, **figures: Any
) -> Prediction:
    """The estimate with the figures of the engine's planner in place of its own; as large a share
    of the bytes stays as was estimated.
    """
    live_share = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
    return replace(
        estimate,
        files_in=planned_rewrite.files_in,
        bytes_in=planned_rewrite.bytes_in,
        files_out=files_out,
        bytes_out=round(planned_rewrite.bytes_in * live_share),
        groups=planned_rewrite.groups,
        source="planner",
        **figures,
    )


#: A choice: actions within this factor count as of about one size.
_SIZE_FACTOR = 4


@frozen
class Speed:
    """The bytes that each of some earlier actions read, and its seconds; in the speed of rows they
    are rows.
    """

    bytes_and_seconds: tuple[tuple[float, float], ...]

    @property
    def max_known_bytes(self) -> float:
        """The largest size that the earlier actions say something about."""
        return _SIZE_FACTOR * max(action_bytes for action_bytes, _ in self.bytes_and_seconds)

    def seconds(self, size_in_bytes: float) -> float | None:
        """The seconds of an action that reads this many bytes, at the median speed of those of
        about its size (one that waited for a full cluster says nothing about the next); None
        without any.
        """
        seconds_per_byte = [
            action_seconds / action_bytes
            for action_bytes, action_seconds in self.bytes_and_seconds
            if action_bytes <= size_in_bytes * _SIZE_FACTOR
            and size_in_bytes <= action_bytes * _SIZE_FACTOR
        ]
        return size_in_bytes * statistics.median(seconds_per_byte) if seconds_per_byte else None

    def bytes_within(self, seconds: float) -> int:
        """The bytes that actions read in this time, at the speed of the largest ones."""
        largest_bytes = self.max_known_bytes / _SIZE_FACTOR
        return int(seconds * largest_bytes / (self.seconds(largest_bytes) or seconds))


def speed_of(bytes_and_seconds: Iterable[tuple[float | None, float | None]]) -> Speed | None:
    """The speed of actions from the bytes that each read, and its seconds; None if none was
    measured.
    """
    complete_pairs = tuple(
        (action_bytes, action_seconds)
        for action_bytes, action_seconds in bytes_and_seconds
        if action_bytes and action_seconds
    )
    return Speed(complete_pairs) if complete_pairs else None
