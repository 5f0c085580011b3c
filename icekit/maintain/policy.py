"""Define the policy of a compaction: which partitions, how much, how; checked when it is made."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from icekit.common.commands import PolicyOptions
from icekit.common.errors import ParameterError, require_known, require_number
from icekit.common.options import flag, names, number, read_as, whole
from icekit.common.parsing import parse_time, seconds, size_in_bytes
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.head import RECENT_MINUTES

Strategy = Literal["binpack", "sort", "zorder", "hilbert"]
Scope = Literal["minor", "major"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a plan may do. Every default is safe on a live table.

    ``scope``: ``minor`` takes small files, oversized files and files with deletes, and leaves
    well-sized files untouched; ``major`` rewrites every file of the partitions it selects.
    A ``strategy`` other than binpack sorts, and so implies ``major``; ``columns`` to sort by
    default to the table's sort order, then to its declared filter columns. ``since``,
    ``until`` (a date or time, UTC) and ``skip_last_hours`` select partitions by their time, if the
    table is partitioned by time. ``leave_alone_minutes``: partitions written within this many
    minutes are skipped; by default those of the last 60 minutes, where another commit is likely to
    conflict with the rewrite. ``min_files``: undersized files that make a partition worth a
    rewrite. ``delete_ratio``: position deletes or deletion
    vectors per data record from which a partition is worth a rewrite; equality deletes
    always make it worth one. Both default to the thresholds of the findings. ``old_specs``: also
    move files of older partition specs into the current one. ``budget_bytes``, ``budget_files``,
    ``budget_rows`` and
    ``budget_minutes`` limit what the complete plan reads, according to its prediction.
    ``max_action_bytes`` and ``max_action_partitions`` limit one action, and so what one failed
    attempt costs.
    """

    scope: Scope = "minor"
    strategy: Strategy = "binpack"
    columns: tuple[str, ...] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    skip_last_hours: float = 0.0
    leave_alone_minutes: float | None = None
    min_files: int | None = None
    delete_ratio: float | None = None
    old_specs: bool = False
    budget_bytes: int | None = None
    budget_files: int | None = None
    budget_rows: int | None = None
    budget_minutes: float | None = None
    max_action_bytes: int = 50 * 10**9
    max_action_partitions: int = 100

    def within(self, limits: Thresholds) -> Thresholds:
        """The limits of the findings, with those that the policy sets."""
        own_limits = {"min_input_files": self.min_files, "delete_ratio": self.delete_ratio}
        set_limits = {name: value for name, value in own_limits.items() if value is not None}
        return replace(limits, **set_limits)  # type: ignore[arg-type]

    @property
    def recent_minutes(self) -> float:
        """How long ago a partition was written, at most, to count as recent."""
        return RECENT_MINUTES if self.leave_alone_minutes is None else self.leave_alone_minutes

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Policy:
        """Make a policy from the plain values of
        :class:`~icekit.common.commands.PolicyOptions`, as papermill and the command line give
        them.

        Sizes may be strings (``200 GB``), times ``2026-01-31`` or ``2026-01-31T06:00``, and
        ``budget`` is bytes (``200 GB``), files (``500 files``) or time (``30 minutes``);
        ``skip_last`` is ``6 hours`` and ``leave_alone`` is ``2 hours``. Raises
        :class:`~icekit.common.errors.ParameterError` for an unknown name or a wrong value.
        """
        values: dict[str, Any] = {}
        for name, value in given.items():
            require_known(name, sorted(PolicyOptions.declared), "policy setting")
            if value is not None and value != "":
                values |= _parsed(name, value)
        return cls(**values)

    def __post_init__(self) -> None:
        require_known(self.scope, get_args(Scope), "scope")
        require_known(self.strategy, get_args(Strategy), "strategy")
        if self.strategy != "binpack" and self.scope != "major":
            object.__setattr__(self, "scope", "major")
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, parse_time(getattr(self, name)))
        if self.since and self.until and self.since >= self.until:
            raise ParameterError(
                f"since ({self.since:%Y-%m-%d %H:%M}) is not before until "
                f"({self.until:%Y-%m-%d %H:%M})."
            )
        for name in ("skip_last_hours", "leave_alone_minutes", "delete_ratio"):
            require_number(name, getattr(self, name))
        for name in (
            "min_files",
            "max_action_bytes",
            "max_action_partitions",
            "budget_bytes",
            "budget_files",
            "budget_rows",
            "budget_minutes",
        ):
            require_number(name, getattr(self, name), is_positive=True)


_READERS: Mapping[str, Any] = {
    **dict.fromkeys(("since", "until"), parse_time),
    **dict.fromkeys(("scope", "strategy"), lambda value: value),
    "max_action_bytes": lambda value: size_in_bytes(str(value)),
    "delete_ratio": number,
    "columns": names,
    "old_specs": flag,
}


def _parsed(name: str, value: Any) -> dict[str, Any]:
    """One setting, converted to its type, by its field name."""
    if name == "budget":
        return _budget(str(value))
    if name == "leave_alone":
        return {"leave_alone_minutes": seconds(str(value)) / 60}
    if name == "skip_last":
        return {"skip_last_hours": seconds(str(value)) / 3600}
    return {name: read_as(name, _READERS.get(name, whole), value)}


def _budget(text: str) -> dict[str, Any]:
    if match := re.fullmatch(r"\s*(\d[\d_,]*)\s*(million|billion)?\s*(file|row)s?\s*", text):
        times = {"million": 10**6, "billion": 10**9}.get(match[2], 1)
        number = int(match[1].replace(",", "").replace("_", ""))
        return {f"budget_{match[3]}s": number * times}
    # With an M at its end, it may mean mebibytes or minutes.
    if not text.rstrip().endswith("M"):
        with contextlib.suppress(ParameterError):
            return {"budget_bytes": size_in_bytes(text)}
        with contextlib.suppress(ParameterError):
            return {"budget_minutes": seconds(text) / 60}
    raise ParameterError(
        f"The budget {text!r} is not bytes (200 GB), rows (500 million rows), files (500 files) "
        "or time (30 minutes)."
    )
