"""Merge-on-read or copy-on-write: the cost of each for this table, their break-even point, and what to set."""

from icekit.tune.write_mode.history import WriteHistory, write_history
from icekit.tune.write_mode.model import CostComparison, Costs, Variant, best_cycle, commits_until, sensitivity
from icekit.tune.write_mode.service import WriteModeChoice, choose_write_mode

__all__ = [
    "CostComparison",
    "Costs",
    "Variant",
    "WriteHistory",
    "WriteModeChoice",
    "best_cycle",
    "choose_write_mode",
    "commits_until",
    "sensitivity",
    "write_history",
]
