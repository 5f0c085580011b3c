"""Check the options of a report; hold the result of each table, and the result of the run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from icekit.common import frozen
from icekit.common.commands.observe import ReportSection
from icekit.common.errors import (
    EXIT_CRASHED,
    EXIT_HEALTHY,
    EXIT_MISCONFIGURED,
    EXIT_UNHEALTHY,
    LONGEST_WAIT,
    IcekitError,
    Status,
    require_number,
)
from icekit.engine.errors import environment_error
from icekit.health.diagnose.findings import Severity, Thresholds
from icekit.health.facts.integrity import Contradiction
from icekit.maintain.planning.savings import Savings
from icekit.report.history.store import HealthRecord

#: The result of a table, most serious first; the last four are what its findings say.
STATUSES = (
    Status.CRASHED,
    Status.TIMED_OUT,
    Status.MISCONFIGURED,
    Status.FAILED,
    "critical",
    "warning",
    "info",
    "healthy",
)
#: Statuses of tables that could be diagnosed.
JUDGED = frozenset(STATUSES[4:])
_FAILURES = {
    EXIT_UNHEALTHY: Status.FAILED,
    EXIT_MISCONFIGURED: Status.MISCONFIGURED,
    EXIT_CRASHED: Status.TIMED_OUT,
}

#: Findings that say, where they are critical, that queries fail or give wrong rows.
_OF_RESULTS = {"missing_files", "unmatched_deletes", "unreadable_metadata", *Contradiction}


def changes_results(findings: Iterable[tuple[str, str]]) -> bool:
    """Whether queries fail or give wrong rows, by the names and severities of findings."""
    return any(name in _OF_RESULTS and severity == "critical" for name, severity in findings)


def checked_thresholds(options: ReportSection) -> Thresholds:
    """The thresholds of a report, if its options are possible; raises
    :class:`~icekit.common.errors.ParameterError`.
    """
    require_number(
        "The timeout of a table", options.timeout, is_positive=True, maximum=LONGEST_WAIT
    )
    return Thresholds().with_changes(**options.thresholds)


@frozen
class ReportRow:
    """One table of a run: its result, and its page.

    ``savings`` and ``health`` are None if the table could not be read. ``seconds`` are work on the
    table, without waiting for a free thread, a kernel or Spark.
    """

    table: str
    status: str
    seconds: float = 0.0
    page_name: str | None = None
    error: str | None = None
    savings: Savings | None = None
    health: HealthRecord | None = None

    @property
    def findings(self) -> Sequence[tuple[str, str]]:
        """The name and the severity of each finding."""
        return self.health.findings if self.health else ()

    def verdict(self, fail_on: str) -> Status:
        """Whether its findings fail a gate, or why there are none."""
        if self.status not in JUDGED:
            return Status(self.status)
        if self.status == "healthy" or not Severity[self.status.upper()].fails(fail_on):
            return Status.NOTHING
        return Status.UNHEALTHY


@frozen
class ReportRun:
    """The result of a report run: a row per table, the index, the exit status, and the run's id.

    ``problems`` belong to no table: globs that match nothing, a history that could not be written.
    """

    rows: tuple[ReportRow, ...]
    index_path: Path
    exit_status: int
    run_id: str = ""
    problems: tuple[str, ...] = ()


def status_and_error(problem: BaseException) -> tuple[Status, IcekitError | None]:
    """The status of a table whose work a problem has ended, and the problem in a sentence; None
    for a bug.
    """
    known_error = environment_error(problem)
    return (_FAILURES[known_error.exit_status] if known_error else Status.CRASHED), known_error


def worst_exit_status(statuses: Iterable[Status], problems: Sequence[str]) -> int:
    """The most serious of: crashed or timed out 3, misconfigured (also a glob that matches nothing,
    or a history that was not written) 2, failed or unhealthy by the gate 1, healthy 0.
    """
    lowest_exit_status = EXIT_MISCONFIGURED if problems else EXIT_HEALTHY
    return max([lowest_exit_status, *(status.exit_status for status in statuses)])
