"""A compaction's options, with limits as numbers."""

from collections.abc import Mapping
from typing import Any

from icekit.common.commands import Policy


def policy_of(values: Mapping[str, Any]) -> Policy:
    """Options by their names, or what their texts mean, such as ``budget_minutes``."""
    options = {name: value for name, value in values.items() if name in Policy.declared}
    others = {name: value for name, value in values.items() if name not in options}
    return Policy(**options).replaced(**others)
