"""Cut an action down: to some of its partitions, to parts for one that was too large, to its dangling deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from icekit.catalog import Lake
from icekit.compact.conversion import smaller_conversions
from icekit.compact.model import CONVERT, REWRITE_NOTHING, Action
from icekit.compact.predict import ask_planner
from icekit.engine.bridge import has_bridge
from icekit.errors import ParameterError
from icekit.facts.files import Partition
from icekit.facts.head import head
from icekit.facts.metadata import columns, schema_of, specs
from icekit.facts.where import where
from icekit.units import count


def narrowed(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions."""
    metadata = head(lake, action.table).metadata
    known = {spec.spec_id: spec for spec in specs(metadata)}
    asked = where(action.catalog, known, columns(metadata, schema_of(metadata)), partitions)
    if asked is None and action.where is not None:
        raise ParameterError(f"No filter asks for {count(len(partitions), 'partition')} of {action.title} alone any more; plan anew.")
    return replace(action, partitions=tuple(partitions), where=asked, partition_names=())


def smaller_parts(lake: Lake, action: Action, *, floor_bytes: int) -> tuple[Action, ...]:
    """The action in smaller parts: fewer partitions, then smaller groups, then one group at a time.

    Groups become no smaller than ``floor_bytes``. The last part runs without partial progress,
    under which an engine only logs why a group failed. Empty when there is nothing smaller than that.
    """
    parts = action.partitions
    if action.procedure == CONVERT:
        return smaller_conversions(action)
    if len(parts) > 1:
        middle = len(parts) // 2
        names = ("1", "2")
        return tuple(
            replace(narrowed(lake, action, chosen), action_id=f"{action.action_id}.{name}", options=_gentler(action.options))
            for name, chosen in zip(names, (parts[:middle], parts[middle:]), strict=True)
        )
    if has_bridge(lake.spark) and action.options.get("rewrite-all") != "true":
        smaller = ask_planner(lake.spark, action).largest_group_bytes // 2
        if smaller >= floor_bytes:
            options = {**_gentler(action.options), "max-file-group-size-bytes": str(smaller)}
            return (replace(action, action_id=f"{action.action_id}.s", options=options),)
    if action.options.get("partial-progress.enabled") != "true":
        return ()
    alone = {k: v for k, v in action.options.items() if not k.startswith("partial-progress")}
    return (replace(action, action_id=f"{action.action_id}.c", options={**alone, "max-concurrent-file-group-rewrites": "1"}),)


def only_dangling(action: Action) -> Action | None:
    """What drops an action's dangling deletes and rewrites nothing, for a kill between its two commits; None where it drops none."""
    if action.options.get("remove-dangling-deletes") != "true":
        return None
    options = {key: value for key, value in action.options.items() if key not in {"rewrite-all", "delete-file-threshold"}}
    return replace(action, options={**options, **REWRITE_NOTHING})


def _gentler(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with half the groups at once."""
    at_once = int(options.get("max-concurrent-file-group-rewrites", "5"))
    return {**options, "max-concurrent-file-group-rewrites": str(max(1, at_once // 2))}
