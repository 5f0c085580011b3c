"""The options of a compaction, for its command, its notebook, a policy and Python."""

import datetime as dt
from typing import Any, Literal, get_args

from icekit.common.commands.shared import NUMBER, SIZE, TIME, LeaveAloneOptions
from icekit.common.errors import ParameterError, require_number
from icekit.common.options import one_of, read_number, read_whole_number, setting
from icekit.common.parsing import budget_limits, parse_time, seconds, size_in_bytes

Scope = Literal["minor", "major"]
Strategy = Literal["binpack", "sort", "zorder", "hilbert"]


class CompactionPolicy(LeaveAloneOptions):
    """What a compaction may do: the one class of its options, for the command, its notebook, a
    policy and Python. Every default is safe on a live table.

    ``scope``: ``minor`` takes small files, oversized files and files with deletes, and leaves
    well-sized files untouched; ``major`` rewrites every file of the partitions it selects.
    A ``strategy`` other than binpack sorts, and so implies ``major``; ``columns`` to sort by
    default to the table's sort order, then to its declared filter columns. ``since``, ``until`` (a
    date or time, UTC) and ``skip_last`` select partitions by their time, if the table is
    partitioned by time. ``leave_alone``: partitions written within this time are skipped; by
    default those of the last 60 minutes, where another commit is likely to conflict with the
    rewrite. ``min_files``: undersized files that make a partition worth a rewrite.
    ``delete_ratio``: position deletes or deletion vectors per data record from which a partition is
    worth a rewrite; equality deletes always make it worth one. Both default to the thresholds of
    the findings. ``old_specs``: also move files of older partition specs into the current one.
    ``budget`` limits what the complete plan reads, according to its prediction;
    ``max_action_bytes`` and ``max_action_partitions`` limit one action, and so what one failed
    attempt costs.

    The attributes ``leave_alone_minutes``, ``skip_last_hours``, ``budget_bytes``, ``budget_files``,
    ``budget_rows`` and ``budget_minutes`` are what the texts say. An empty text is not given.
    """

    scope: Scope = setting(
        "minor",
        "minor: files of the wrong size or with deletes; major: all files",
        read=one_of("scope", *get_args(Scope)),
    )
    strategy: Strategy = setting(
        "binpack",
        "binpack, sort, zorder or hilbert",
        read=one_of("strategy", *get_args(Strategy)),
    )
    columns: tuple[str, ...] = setting(
        (), "columns to order rows by, separated by commas", rare=True
    )
    budget: str = setting(
        "", 'how much the plan may read: "200 GB", "500 million rows", "500 files", "30 minutes"'
    )
    since: dt.datetime | None = setting(
        None, "only partitions from this date or time on (UTC)", read=parse_time, rare=True
    )
    until: dt.datetime | None = setting(
        None, "only partitions that end by this date or time (UTC)", read=parse_time, rare=True
    )
    skip_last: str = setting(
        "", 'skip partitions whose time is in the last: "6 hours"', TIME, rare=True
    )
    min_files: int | None = setting(
        None,
        "undersized files that make a partition worth a rewrite (default: 5)",
        NUMBER,
        read=read_whole_number,
        rare=True,
    )
    delete_ratio: float | None = setting(
        None,
        "share of rows deleted by position that makes a partition worth a rewrite (default: 0.05)",
        NUMBER,
        read=read_number,
        rare=True,
    )
    old_specs: bool = setting(
        False,
        "move files of older partition specs into the current one, partition by partition, even "
        "if more files come out",
        rare=True,
    )
    max_action_bytes: int = setting(
        50 * 10**9,
        "most that one action may read (default: 50 GB)",
        SIZE,
        read=lambda value: size_in_bytes(str(value)),
        rare=True,
    )
    max_action_partitions: int = setting(100, "most partitions in one action", NUMBER, rare=True)

    def __init__(self, **values: Any) -> None:
        empty_names = [name for name in CompactionPolicy.declarations if values.get(name) == ""]
        super().__init__(
            **{name: value for name, value in values.items() if name not in empty_names}
        )
        if self.strategy != "binpack":
            vars(self)["scope"] = "major"
        limits_by_name = budget_limits(self.budget) if self.budget else {}
        self.budget_bytes: int | None = limits_by_name.get("budget_bytes")
        self.budget_files: int | None = limits_by_name.get("budget_files")
        self.budget_rows: int | None = limits_by_name.get("budget_rows")
        self.budget_minutes: float | None = limits_by_name.get("budget_minutes")
        self.skip_last_hours = seconds(self.skip_last) / 3600 if self.skip_last else 0.0
        self.leave_alone_minutes = seconds(self.leave_alone) / 60 if self.leave_alone else None
        if self.since and self.until and self.since >= self.until:
            raise ParameterError(
                f"since ({self.since:%Y-%m-%d %H:%M}) is not before until "
                f"({self.until:%Y-%m-%d %H:%M})."
            )
        require_number("delete_ratio", self.delete_ratio)
        for name in ("min_files", "max_action_bytes", "max_action_partitions", *limits_by_name):
            require_number(name, getattr(self, name), is_positive=True)
