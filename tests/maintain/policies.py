"""A compaction's options, with limits as numbers."""

from collections.abc import Mapping
from typing import Any

from icekit.common.commands.compaction_policy import CompactionPolicy


def policy_of(values: Mapping[str, Any]) -> CompactionPolicy:
    """Options by their names, or what their texts mean, such as ``budget_minutes``."""
    options = {
        name: value for name, value in values.items() if name in CompactionPolicy.declarations
    }
    others = {name: value for name, value in values.items() if name not in options}
    return CompactionPolicy(**options).with_values(**others)
