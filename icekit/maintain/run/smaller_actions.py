"""Cut an action down: to what is left of it in the table, or to smaller parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.common.errors import ParameterError
from icekit.common.units import count
from icekit.engine.errors import reason
from icekit.engine.lake import Lake
from icekit.engine.planner import partitions_with_files_up_to
from icekit.health.facts.head import head
from icekit.iceberg.metadata import (
    TARGET,
    columns,
    number_property,
    properties_of,
    schema_of,
    snapshots_by_id,
    specs,
)
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import where
from icekit.maintain.action import CONVERT, DANGLING, REWRITE_NOTHING, Action
from icekit.maintain.engine_prediction import ask_planner, engine_groups
from icekit.maintain.planning.rewrite_actions import filter_without
from icekit.maintain.run.action_progress import ActionProgress
from icekit.maintain.run.options import Retry
from icekit.rows.deletes.conversion_inputs import remaining_deletes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# More than the sequence number of any delete.
_ANY_SEQUENCE_NUMBER = 2**62


def remaining_action(lake: Lake, action: Action, action_progress: ActionProgress) -> Action | None:
    """The action cut down to what is left of it in the table; None if nothing is left.

    The engine's planner selects what is left when the action runs; but it may also select files
    that the run itself has written: a rewrite of every file does, and deletes as new as the
    snapshot it started from still apply to its output. So a partition is done if the planner
    selects no file in it from before the run.
    """
    if action.procedure == CONVERT:
        # A batch of several commits may have been killed between them: the table shows what is
        # left.
        return action if not action_progress.attempts or _has_deletes_left(lake, action) else None
    if action.procedure == "expire_snapshots":
        return remaining_expiry(lake, action)
    if not action_progress.actual.has_changes:
        return action
    if action.procedure != "rewrite_data_files":
        return None
    sequence_number = action_progress.starting_sequence_number
    # Format version 1 has no sequence numbers, which tell files from before the run.
    unfinished_partitions = (
        remaining_partitions(lake.spark, action, sequence_number) if sequence_number else None
    )
    if unfinished_partitions is None or len(unfinished_partitions) == len(action.partitions) > 0:
        return action
    # Dangling deletes are dropped in a separate commit, which a kill may have prevented.
    return (
        narrowed_action(lake, action, unfinished_partitions)
        if unfinished_partitions
        else dangling_deletes_action(action)
    )


def remaining_expiry(lake: Lake, action: Action) -> Action | None:
    """An expiry cut down to those of its snapshots that are still in the table: Iceberg may
    fail if most are not.
    """
    snapshot_ids = action.arguments.get("snapshot_ids")
    if not isinstance(snapshot_ids, tuple):
        return action
    snapshots = snapshots_by_id(head(lake, action.table).metadata)
    remaining_ids = tuple(snapshot_id for snapshot_id in snapshot_ids if snapshot_id in snapshots)
    if not remaining_ids:
        return None
    return replace(action, arguments={**action.arguments, "snapshot_ids": remaining_ids})


def _has_deletes_left(lake: Lake, action: Action) -> bool:
    """Whether the table still has equality deletes that a conversion was planned for."""
    snapshot_deletes = remaining_deletes(
        lake.spark,
        action.sql_name,
        branch=action.branch,
        partitions=action.partitions,
        max_sequence=action.integer_argument("up_to", _ANY_SEQUENCE_NUMBER),
    )
    return snapshot_deletes is not None and bool(snapshot_deletes.scopes)


def remaining_partitions(
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
    for partition_values in partitions_with_files_up_to(
        spark, planned_groups.groups, sequence_number
    ):
        if partition_values not in partitions_by_text:
            return None
        remaining_partitions.append(partitions_by_text[partition_values])
    return tuple(dict.fromkeys(remaining_partitions))


def narrowed_action(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
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


def split_action(lake: Lake, action: Action, retry: Retry) -> tuple[tuple[Action, ...], str]:
    """The smaller parts to run instead of an action that was too large, and a sentence part that
    says so; no parts if there are none.
    """
    try:
        table_properties = properties_of(head(lake, action.table).metadata)
        floor_bytes = retry.floor_files * number_property(table_properties, TARGET)
        smaller_actions = smaller_parts(lake, action, floor_bytes=floor_bytes)
    except Exception as error:
        return (), f"it could not be split ({reason(error)})"
    if not smaller_actions:
        return (), "it cannot be made smaller"
    return smaller_actions, f"split into {count(len(smaller_actions), 'part')}"


def smaller_parts(lake: Lake, action: Action, *, floor_bytes: int) -> tuple[Action, ...]:
    """The action in smaller parts: fewer partitions, then smaller groups; a partition of a
    conversion in more commits.

    Groups become no smaller than ``floor_bytes``. Empty when nothing smaller is possible.
    """
    partitions = action.partitions
    if len(partitions) > 1:
        middle_index = len(partitions) // 2
        halves = enumerate((partitions[:middle_index], partitions[middle_index:]), 1)
        return tuple(
            replace(
                _partitions_part(lake, action, half_of_partitions),
                action_id=f"{action.action_id}.{number}",
            )
            for number, half_of_partitions in halves
        )
    if action.procedure == CONVERT:
        slice_count = action.integer_argument("slices", 1)
        sliced_arguments = {**action.arguments, "slices": slice_count * 4}
        sliced_action = replace(
            action, action_id=f"{action.action_id}.s", arguments=sliced_arguments
        )
        return (sliced_action,) if slice_count < _MOST_SLICES else ()
    if action.options.get("rewrite-all") != "true":
        most_group_bytes = ask_planner(lake.spark, action).largest_group_bytes // 2
        if most_group_bytes >= floor_bytes:
            gentle_options = {
                **_with_half_concurrency(action.options),
                "max-file-group-size-bytes": str(most_group_bytes),
            }
            return (replace(action, action_id=f"{action.action_id}.s", options=gentle_options),)
    return ()


def dangling_deletes_action(action: Action) -> Action | None:
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


def _partitions_part(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions, with half as many groups at the same time."""
    if action.procedure == CONVERT:
        return replace(action, partitions=tuple(partitions), partition_names=())
    return replace(
        narrowed_action(lake, action, partitions), options=_with_half_concurrency(action.options)
    )


def _with_half_concurrency(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with half as many groups at the same time."""
    concurrent_groups = int(options.get("max-concurrent-file-group-rewrites", "5"))
    return {**options, "max-concurrent-file-group-rewrites": str(max(1, concurrent_groups // 2))}


# Most parts of one batch: each reads the deletes again.
_MOST_SLICES = 64
