"""Define why a plan leaves partitions alone: the reason, its figures, and their words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from icekit.units import count, plain, size


class SkipReason(StrEnum):
    """Why a plan leaves partitions alone."""

    OUTSIDE_WINDOW = "outside window"
    RECENT = "recent"
    LIKELY_CONFLICT = "likely conflict"
    NAN = "nan"
    NO_FILTER = "no filter"
    LONG_FILTER = "long filter"
    TOO_MANY_FILES = "smallest partition has more files than the budget"
    TOO_MANY_BYTES = "smallest partition has more bytes than the budget"
    BUDGET_SPENT = "budget spent"
    PLANNER_OVER_BUDGET = "planner over budget"
    PLANNER_FINDS_NOTHING = "planner finds nothing"
    SAVES_NOTHING = "saves nothing"
    TRIAL_SAVES_NOTHING = "trial saves nothing"


_RECENT = "written within the last {minutes} minutes"
_TOO_SMALL = (
    "the budget of {limit} is less than the {needed} of the smallest partition, which is "
    "rewritten as a whole"
)
_WORDS = {
    SkipReason.OUTSIDE_WINDOW: "outside the time window",
    SkipReason.RECENT: _RECENT,
    SkipReason.LIKELY_CONFLICT: f"{_RECENT}, where another commit may conflict with the rewrite",
    SkipReason.NAN: "with the value NaN, which no filter of a procedure selects",
    SkipReason.NO_FILTER: "which no filter selects alone: the partition columns were dropped, or the table "
    "was not partitioned then",
    SkipReason.LONG_FILTER: "no filter that is short selects only the files of older specs",
    SkipReason.TOO_MANY_FILES: _TOO_SMALL,
    SkipReason.TOO_MANY_BYTES: _TOO_SMALL,
    SkipReason.BUDGET_SPENT: "the budget goes to partitions that save more file opens per byte",
    SkipReason.PLANNER_OVER_BUDGET: "the engine's planner takes more than the rest of the budget",
    SkipReason.PLANNER_FINDS_NOTHING: "the engine's planner finds nothing to rewrite",
    SkipReason.SAVES_NOTHING: "a rewrite would save no file open",
    SkipReason.TRIAL_SAVES_NOTHING: "a trial on a clone showed that a rewrite saves no file open",
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """Partitions that a plan leaves alone although a finding asks for them.

    ``limit`` is the policy's figure behind the reason: minutes, files or bytes. ``needed`` is what
    the smallest candidate needs of a budget.
    """

    reason: SkipReason
    partition_count: int
    examples: tuple[str, ...] = ()
    limit: float = 0
    needed: int = 0

    @property
    def is_recent(self) -> bool:
        """Whether the partitions were written a short time ago."""
        return self.reason in {SkipReason.RECENT, SkipReason.LIKELY_CONFLICT}

    @property
    def text(self) -> str:
        """``2 partitions, outside the time window``."""
        in_unit = (
            size
            if self.reason is SkipReason.TOO_MANY_BYTES
            else (lambda files: count(files, "file"))
        )
        words = _WORDS[self.reason].format(
            minutes=plain(self.limit, 6),
            limit=in_unit(int(self.limit)),
            needed=in_unit(self.needed),
        )
        return f"{count(self.partition_count, 'partition')}, {words}"
