"""What an action that converts equality deletes does, leaves, and is cut into when it is too large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.compact.lineage import BYTES_READ_TAG, FILES_READ_TAG
from icekit.compact.model import Action
from icekit.resolve.convert import convert
from icekit.resolve.find import remaining
from icekit.resolve.listing import Scope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of one batch: each reads the deletes anew.
_MOST_SLICES = 64
# A sequence number that no delete reaches.
_ALL = 2**62


def convert_action(spark: SparkSession, action: Action, tags: Mapping[str, str]) -> None:
    """Run a conversion's action, each commit tagged with what was read for it; see :func:`icekit.resolve.convert.convert`."""
    up_to, slices = _number(action, "up_to", _ALL), _number(action, "slices", 1)
    name = (action.catalog, *action.table)
    at = remaining(spark, name, branch=action.branch, partitions=action.partitions, up_to=up_to)
    files, size = read_of(at.scopes if at else (), slices)
    read = {FILES_READ_TAG: str(files), BYTES_READ_TAG: str(size)}
    convert(spark, name, branch=action.branch, partitions=action.partitions, up_to=up_to, slices=slices, tags={**tags, **read})


def read_of(scopes: Sequence[Scope], slices: int = 1) -> tuple[int, int]:
    """The files that one commit of a conversion reads, and their bytes: all the deletes, and its slice of the data files under them."""
    # Global deletes of two specs look at the same data files, and are converted apart from those of partitions.
    everywhere = [(s.data_files, s.data_bytes) for s in scopes if s.is_global]
    over = [max(everywhere)] if everywhere else [(s.data_files, s.data_bytes) for s in scopes]
    files, size = (sum(column) // slices for column in zip(*over, strict=True)) if over else (0, 0)
    return files + sum(s.delete_files for s in scopes), size + sum(s.delete_bytes for s in scopes)


def deletes_left(spark: SparkSession, action: Action) -> bool:
    """Tell whether the table still has equality deletes that the action was planned for."""
    at = remaining(
        spark, (action.catalog, *action.table), branch=action.branch, partitions=action.partitions, up_to=_number(action, "up_to", _ALL)
    )
    return at is not None and bool(at.scopes)


def smaller_conversions(action: Action) -> tuple[Action, ...]:
    """Fewer partitions each, or a partition in more commits."""
    parts, slices = action.partitions, _number(action, "slices", 1)
    if len(parts) > 1:
        middle = len(parts) // 2
        some = zip(("1", "2"), (parts[:middle], parts[middle:]), strict=True)
        return tuple(replace(action, action_id=f"{action.action_id}.{n}", partitions=chosen, partition_names=()) for n, chosen in some)
    if slices >= _MOST_SLICES:
        return ()
    return (replace(action, action_id=f"{action.action_id}.s", arguments={**action.arguments, "slices": slices * 4}),)


def _number(action: Action, argument: str, default: int) -> int:
    return int(str(action.arguments.get(argument, default)))
