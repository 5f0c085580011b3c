"""Check the options of a report; hold the result of each table, and the result of the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from icekit.diagnose.document import ReportedHealth
from icekit.diagnose.findings import Thresholds
from icekit.diagnose.gate import gated, limits
from icekit.errors import (
    EXIT_HEALTHY,
    EXIT_MISCONFIGURED,
    EXIT_UNHEALTHY,
    LONGEST_WAIT,
    require_number,
)
from icekit.history.store import Health
from icekit.maintain.savings import Savings
from icekit.options.commands import ReportSection
from icekit.status import Status
from icekit.units import count

#: Notebooks at once: each is a Python process that uses one core.
KERNELS = min(4, os.cpu_count() or 1)

#: The result of a table, most serious first; the last four are what its findings say.
STATUSES = (
    Status.CRASHED,
    Status.TIMED_OUT,
    Status.MISCONFIGURED,
    "critical",
    "warning",
    "info",
    "healthy",
)
#: Statuses of tables that could be diagnosed.
JUDGED = frozenset(STATUSES[3:])


def check(options: ReportSection) -> Thresholds:
    """The thresholds of a report, if its options are possible; raises
    :class:`~icekit.errors.ParameterError`.
    """
    require_number("The timeout of a table", options.timeout, above=True, most=LONGEST_WAIT)
    return limits(options.thresholds)


@dataclass(frozen=True, slots=True)
class Row:
    """One table of a run: its result, and its page.

    ``savings`` and ``health`` are None if the table could not be read. ``seconds`` are work on the
    table, without waiting for a free thread, a kernel or Spark.
    """

    table: str
    status: str
    seconds: float
    outcome: ReportedHealth | None = None
    page: str | None = None
    error: str | None = None
    savings: Savings | None = None
    health: Health | None = None

    @property
    def summary(self) -> str:
        """``db.events: critical, 2 findings``."""
        findings = self.outcome.findings if self.outcome else ()
        return f"{self.table}: {self.status}" + (
            f", {count(len(findings), 'finding')}" if findings else ""
        )


@dataclass(frozen=True, slots=True)
class ReportRun:
    """The result of a report run: a row per table, the index, the exit status, and the run's id.

    ``problems`` belong to no table: globs that match nothing, a history that could not be written.
    """

    rows: tuple[Row, ...]
    index: Path
    exit_status: int
    run_id: str = ""
    problems: tuple[str, ...] = ()


def exit_status(rows: Sequence[Row], fail_on: str, problems: Sequence[str] = ()) -> int:
    """The most serious of: crashed or timed out 3, misconfigured (also a glob that matches nothing,
    or a history that was not written) 2, unhealthy by the gate 1, healthy 0.
    """
    statuses = {EXIT_MISCONFIGURED if problems else EXIT_HEALTHY}
    for row in rows:
        if row.status not in JUDGED:
            statuses.add(Status(row.status).exit_status)
        elif row.outcome and gated(row.outcome.worst, fail_on):
            statuses.add(EXIT_UNHEALTHY)
    return max(statuses)
