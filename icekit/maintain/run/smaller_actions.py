"""Ask the engine's planner what is left of an action, and cut the action down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.common.errors import ParameterError
from icekit.common.units import count
from icekit.engine.lake import Lake
from icekit.engine.planner import partitions_with_files_up_to
from icekit.health.facts.head import head
from icekit.iceberg.metadata import columns, schema_of, specs
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import where
from icekit.maintain.action import CONVERT, DANGLING, REWRITE_NOTHING, Action
from icekit.maintain.engine_prediction import ask_planner, engine_groups
from icekit.maintain.planning.rewrite_actions import filter_without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partitions_left(
    spark: SparkSession, action: Action, sequence_number: int
) -> tuple[Partition, ...] | None:
    """The partitions in which the planner selects a file that was there at a sequence number.

    Files that the run wrote itself may be selected again (deletes with the sequence number that
    the run starts from still apply to its files), but they are done. None where groups cannot be
    assigned to a partition: groups of older specs.
    """
    planned_groups = engine_groups(spark, action)
    if planned_groups is None:
        return ()
    # Texts that differ from Java's are not found; then nothing is left out.
    partitions_by_text = {tuple(str(value) for value in p.values): p for p in action.partitions}
    remaining_partitions: list[Partition] = []
    for values in partitions_with_files_up_to(spark, planned_groups.groups, sequence_number):
        if values not in partitions_by_text:
            return None
        remaining_partitions.append(partitions_by_text[values])
    return tuple(dict.fromkeys(remaining_partitions))


def narrowed(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions."""
    metadata = head(lake, action.table).metadata
    specs_by_id = {spec.spec_id: spec for spec in specs(metadata)}
    partition_filter = where(
        action.catalog, specs_by_id, columns(metadata, schema_of(metadata)), partitions
    )
    if partition_filter is None and action.where is not None:
        raise ParameterError(
            f"No filter selects only {count(len(partitions), 'partition')} of {action.title} any "
            "more. Plan again."
        )
    return replace(
        action,
        partitions=tuple(partitions),
        where=filter_without(partition_filter, action.unless),
        partition_names=(),
    )


def smaller_parts(lake: Lake, action: Action, *, floor_bytes: int) -> tuple[Action, ...]:
    """The action in smaller parts: fewer partitions, then smaller groups; a partition of a
    conversion in more commits.

    Groups become no smaller than ``floor_bytes``. Empty when nothing smaller is possible.
    """
    parts = action.partitions
    if len(parts) > 1:
        middle = len(parts) // 2
        halves = enumerate((parts[:middle], parts[middle:]), 1)
        return tuple(
            replace(_part(lake, action, half), action_id=f"{action.action_id}.{number}")
            for number, half in halves
        )
    if action.procedure == CONVERT:
        slices = action.integer_argument("slices", 1)
        arguments = {**action.arguments, "slices": slices * 4}
        smaller = replace(action, action_id=f"{action.action_id}.s", arguments=arguments)
        return (smaller,) if slices < _MOST_SLICES else ()
    if action.options.get("rewrite-all") != "true":
        group_bytes = ask_planner(lake.spark, action).largest_group_bytes // 2
        if group_bytes >= floor_bytes:
            options = {**_gentler(action.options), "max-file-group-size-bytes": str(group_bytes)}
            return (replace(action, action_id=f"{action.action_id}.s", options=options),)
    return ()


def only_dangling(action: Action) -> Action | None:
    """An action that only drops an action's dangling deletes, for a kill between its two commits;
    None if it drops none.
    """
    if action.options.get(DANGLING) != "true":
        return None
    options = {
        key: value
        for key, value in action.options.items()
        if key not in {"rewrite-all", "delete-file-threshold"}
    }
    return replace(action, options={**options, **REWRITE_NOTHING})


def _part(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions, with half as many groups at the same time."""
    if action.procedure == CONVERT:
        return replace(action, partitions=tuple(partitions), partition_names=())
    return replace(narrowed(lake, action, partitions), options=_gentler(action.options))


def _gentler(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with half as many groups at the same time."""
    at_once = int(options.get("max-concurrent-file-group-rewrites", "5"))
    return {**options, "max-concurrent-file-group-rewrites": str(max(1, at_once // 2))}


# Most parts of one batch: each reads the deletes again.
_MOST_SLICES = 64
