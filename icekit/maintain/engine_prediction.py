"""Predict an action: from the engine's own planner, which files it takes, and from earlier actions of
about its size, how many seconds.
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
    spark: SparkSession, action: Action, bounds_of: Sequence[str] = ()
) -> RewriteGroups | None:
    """The groups of data files that Iceberg's planner makes for an action, with the bounds of some
    columns; None for a table without a snapshot.

    Needs a classic session; raises the errors of :mod:`icekit.common.errors`.
    """
    name = action.sql_name
    with explain_errors(name):
        table = load_latest_table(spark, name)
        snapshot = head_snapshot(table, action.branch)
        if snapshot is None:
            return None
        return planned_groups(spark, action, table, snapshot, bounds_of)


def planned_groups(
    spark: SparkSession, action: Action, table: Any, snapshot: Any, bounds_of: Sequence[str] = ()
) -> RewriteGroups:
    """The groups of an action's data files; ``table`` and ``snapshot`` are objects of Iceberg's API.

    An action for partitions of the current spec takes no file of another: where its rows go, and
    how many files they become, the plan does not say.
    """
    spec_id = int(table.spec().specId())
    return plan_rewrite(
        spark,
        action.sql_name,
        table,
        snapshot,
        action.options,
        where=action.where,
        stays_in_spec=bool(action.partitions)
        and all(partition.spec_id == spec_id for partition in action.partitions),
        file_order_column=action.order.files_by,
        bounds_columns=bounds_of,
    )


def ask_planner(
    spark: SparkSession, action: Action, bounds_of: Sequence[str] = ()
) -> PlannedRewrite:
    """What an action would rewrite with its filter and options, by the procedure's own planner.

    ``bounds_of`` are columns whose ranges before and after are given, unless rows are sorted.
    Raises as :func:`engine_groups` does.
    """
    if action.rewrites_deletes:
        name = action.sql_name
        with explain_errors(name):
            table = load_latest_table(spark, name)
            if head_snapshot(table, action.branch) is None:
                return NOTHING_PLANNED
            return plan_rewrite_of_deletes(spark, name, table, action.options, where=action.where)
    keeps_order = not action.order.is_sorting
    groups = engine_groups(spark, action, bounds_of if keeps_order else ())
    if groups is None:
        return NOTHING_PLANNED
    planned_rewrite = groups.rollup(keeps_order=keeps_order)
    if not (bounds_of and keeps_order):
        return planned_rewrite
    return replace(planned_rewrite, ranges=groups.ranges(SAMPLED_RANGES))


def by_planner(
    estimate: Prediction, planned_rewrite: PlannedRewrite, files_out: int, **figures: Any
) -> Prediction:
    """An estimate with what the engine's planner takes instead; as large a share of the bytes stays
    as was estimated.
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
_ALIKE = 4


@frozen
class Speed:
    """The bytes that each of some earlier actions read, and its seconds."""

    measured: tuple[tuple[float, float], ...]

    @property
    def most_bytes(self) -> float:
        """The largest size that the earlier actions say something about."""
        return _ALIKE * max(size for size, _ in self.measured)

    def seconds(self, size_in_bytes: float) -> float | None:
        """The seconds of an action that reads this many bytes, at the median speed of those of
        about its size (one that waited for a full cluster says nothing about the next); None
        without any.
        """
        rates = [
            seconds / size
            for size, seconds in self.measured
            if size <= size_in_bytes * _ALIKE and size_in_bytes <= size * _ALIKE
        ]
        return size_in_bytes * statistics.median(rates) if rates else None

    def bytes_within(self, seconds: float) -> int:
        """The bytes that actions read in this time, at the speed of the largest ones."""
        largest = self.most_bytes / _ALIKE
        return int(seconds * largest / (self.seconds(largest) or seconds))


def speed_of(measured: Iterable[tuple[float | None, float | None]]) -> Speed | None:
    """The speed of actions from the bytes that each read, and its seconds; None if none was
    measured.
    """
    measured_runs = tuple((size, seconds) for size, seconds in measured if size and seconds)
    return Speed(measured_runs) if measured_runs else None
