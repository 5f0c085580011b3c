"""Define a policy: rules for tables in the commands' own options, and a budget and a window for each
pass.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from icekit.common import frozen
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.commands.observe import ReportOptions, ReportSection
from icekit.common.commands.shared import FailOptions, ProofOptions
from icekit.common.errors import ParameterError, require_known
from icekit.common.options import Settings, read_texts, setting
from icekit.common.parsing import budget_limits
from icekit.common.sql import pattern_levels
from icekit.health.diagnose.findings import Thresholds
from icekit.maintain.run.options import CommandOptions, read_options
from icekit.report.result import checked_thresholds


@frozen
class Hours:
    """The window of a policy: from ``start`` to ``end``, which is on the next day unless it is
    after ``start``.
    """

    text: str
    start: dt.time
    end: dt.time
    zone: ZoneInfo

    @classmethod
    def of(cls, text: str) -> Hours:
        """Read ``22:00-06:00 Europe/Berlin`` (without a time zone: UTC); raises
        :class:`~icekit.common.errors.ParameterError`.
        """
        window = re.fullmatch(r"(\d\d:\d\d)-(\d\d:\d\d)(?: +(\S+))?", text)
        first, last, zone = window.groups("UTC") if window else ("", "", "UTC")
        require_known(zone, sorted(available_timezones()), "time zone")
        try:
            start = dt.time.fromisoformat(first)
            end = dt.time.fromisoformat(last)
        except ValueError:
            start = end = dt.time.min
        if start == end:
            raise ParameterError(
                f"{text!r} is not a window. Write it as 22:00-06:00, or 22:00-06:00 "
                "Europe/Berlin; midnight is 00:00."
            )
        return cls(text, start, end, ZoneInfo(zone))

    def ends(self, now: dt.datetime) -> dt.datetime | None:
        """When the window that contains ``now`` ends, in UTC; None outside it."""
        day = dt.timedelta(days=1)
        for first in (now.astimezone(self.zone).date() - day, now.astimezone(self.zone).date()):
            last = first if self.end > self.start else first + day
            # In UTC, because two times of one zone are compared by the clock on the wall.
            start = dt.datetime.combine(first, self.start, self.zone).astimezone(dt.UTC)
            end = dt.datetime.combine(last, self.end, self.zone).astimezone(dt.UTC)
            if start <= now < end:
                return end
        return None


def _name(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", value):
        raise ParameterError(f"{value!r} must be letters, digits, dots, dashes and underscores.")
    return str(value)


def _profile(value: Any) -> str:
    if not isinstance(value, str) or "://" in value:
        # An address may hold a password, and is not repeated.
        raise ParameterError(
            "It is not the name of a catalog. Give the name of a profile, which has the address."
        )
    return value


def _budget(value: Any) -> dict[str, float]:
    """``200 GB``, ``500 files`` or ``3 hours``, by the name of the same limit of a compaction."""
    return budget_limits(str(value))


def _patterns(value: Any) -> tuple[str, ...]:
    if not value:
        raise ParameterError("It is missing or empty; give tables, such as db.*.")
    patterns = (value,) if isinstance(value, str) else read_texts(value)
    for pattern in patterns:
        pattern_levels(pattern)
    return patterns


def _rules(value: Any) -> tuple[Rule, ...]:
    if not value or not isinstance(value, tuple):
        raise ParameterError("A policy needs a rule, such as `- match: db.*`.")
    rule_names = [rule.name for rule in value if rule]
    if len(set(rule_names)) < len(rule_names):
        raise ParameterError(
            "Two rules have the same name, and a rule without one is rule-N; give each its own "
            "`name`."
        )
    return value


def command_options(settings: Settings) -> Any:
    """The options of a command that may change a table, if the settings are its section, else the
    settings; raises :class:`~icekit.common.errors.ParameterError`.
    """
    if isinstance(settings, ReportSection):
        checked_thresholds(settings)
    return read_options(settings) if isinstance(settings, ProofOptions) else settings


def _section(value: Any) -> Any:
    """A section of a rule, which was read before the rule."""
    return value


class Rule(FailOptions):
    """Tables, and what a pass does with them: it changes them only with ``execute``."""

    name: str = setting("", "the folder of its pages", read=_name)
    match: tuple[str, ...] = setting((), "names or patterns of tables", read=_patterns)
    report: ReportSection = setting(
        ReportSection.of({}), "options of `icekit report`", read=_section
    )
    convert: CommandOptions | None = setting(None, "of `icekit convert`", read=_section)
    compact: CommandOptions | None = setting(None, "of `icekit compact`", read=_section)
    maintain: CommandOptions | None = setting(None, "of `icekit maintain`", read=_section)
    execute: bool = setting(False, "whether a pass may change the tables")

    @property
    def options_by_command(self) -> dict[str, CommandOptions]:
        """The options of its commands that may change a table, in the order in which they run."""
        sections = {"convert": self.convert, "compact": self.compact, "maintain": self.maintain}
        return {command: options for command, options in sections.items() if options}

    @property
    def report_options(self) -> ReportOptions:
        """The options of a report on its tables; the storage is also listed if its maintenance
        needs that.
        """
        storage = self.report.storage or (
            self.maintain is not None and self.maintain.settings["storage"]
        )
        options = self.report.only("thresholds", "filter_columns", "timeout")
        return ReportOptions.of({"fail_on": self.fail_on, "storage": storage, **options})

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds in force."""
        return Thresholds().with_changes(**self.report.thresholds)


class SchedulePolicy(Settings):
    """A complete policy; paths are absolute. ``budget`` has at most one limit, by the names of
    :class:`icekit.common.commands.compaction_policy.CompactionPolicy`.
    """

    name: str = setting("", "the name of its results", read=_name)
    catalog: str = setting("", "a profile (default: the embedded lake)", read=_profile)
    output: Path = setting(Path("reports"), "the folder of pass.json and of pages", read=Path)
    ledger: str = setting("", "a file for the runs")
    history: str = setting("", "a SQLite file for health over time")
    budget: Mapping[str, float] = setting({}, "of a pass", read=_budget)
    hours: Hours | None = setting(None, "the window of passes", read=Hours.of)
    rules: tuple[Rule, ...] = setting((), "the first one that matches applies", read=_rules)

    def with_paths_from(self, folder: Path) -> SchedulePolicy:
        """With its paths from a folder, wherever the scheduler starts."""
        paths = {
            name: str(folder / Path(path).expanduser())
            for name, path in self.only("ledger", "history").items()
            if path
        }
        return self.with_values(output=folder / self.output.expanduser(), **paths)


def limited_to(policy: CompactionPolicy, budget: Mapping[str, float]) -> CompactionPolicy:
    """The policy of a compaction that also keeps to the rest of the pass's budget."""
    limits: dict[str, int] = {}
    for name, rest in budget.items():
        limit = getattr(policy, name)
        limits[name] = int(rest if limit is None else min(limit, rest))
    return policy.with_values(**limits)
