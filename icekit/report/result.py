"""Hold the options of a report, the result of each table, and the result of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from icekit.diagnose.document import ReportedHealth
from icekit.diagnose.gate import gated
from icekit.errors import (
    EXIT_HEALTHY,
    EXIT_MISCONFIGURED,
    EXIT_UNHEALTHY,
    ParameterError,
    require_seconds,
)
from icekit.facts.collect import Collector
from icekit.history.store import Health
from icekit.maintain.savings import Savings
from icekit.status import Status
from icekit.units import count

#: Tables observed at once: each mostly waits for its catalog and storage, or for Spark.
JOBS = 4
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


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a report; the defaults are the notebook's.

    ``history`` is where health is recorded over time: empty for nowhere, ``table`` for the Iceberg
    table ``icekit.health`` of the catalog, else a SQLite file. ``timeout_seconds`` is the limit for
    one table, from its first byte to its page (None: no limit). ``jobs`` tables are observed at
    once. ``fresh_kernels`` starts a kernel for each notebook, as papermill does by default.
    """

    catalog: str = ""
    ref: str = ""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    filter_columns: Sequence[str] = ()
    collector: Collector = "auto"
    storage: bool = False
    fail_on: str = "never"
    output: Path = Path("reports")
    history: str = ""
    timeout_seconds: float | None = None
    jobs: int = JOBS
    fresh_kernels: bool = False

    def __post_init__(self) -> None:
        if self.timeout_seconds is not None:
            require_seconds("The timeout of a table", self.timeout_seconds)
        if self.jobs < 1:
            raise ParameterError(f"The number of jobs must be 1 or more, not {self.jobs}.")


@dataclass(frozen=True, slots=True)
class Row:
    """One table of a run: its result, and its page.

    ``savings`` and ``health`` are None if the table could not be read. ``seconds`` are work on the
    table, and ``stages`` the seconds of ``observe``, ``notebook`` and ``page``: neither includes
    waiting for a free thread, a kernel or Spark.
    """

    table: str
    status: str
    seconds: float
    outcome: ReportedHealth | None = None
    page: str | None = None
    error: str | None = None
    savings: Savings | None = None
    health: Health | None = None
    stages: Mapping[str, float] = field(default_factory=dict)

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
