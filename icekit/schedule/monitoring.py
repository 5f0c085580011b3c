"""Write what monitoring reads: JUnit XML with a case per table, and a file for Prometheus' node_exporter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from icekit.errors import EXIT_CRASHED, require
from icekit.saving import naming, write_text
from icekit.schedule.result import FAILED, Pass, Status, TableHealth, TableResult, health_of, unread
from icekit.secrets import mask
from icekit.terminal import harmless

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from icekit.report import ReportRun

SEVERITIES = ("info", "warning", "critical")
# Cases that are about the run itself; a table's name has a dot.
_NO_TABLES = frozenset({"policy", "alerts", "report"})
_OF_HEALTH = {
    "table_data_files": ("Live data files in the newest report.", "data_files"),
    "table_data_bytes": ("Bytes of live data files in the newest report.", "data_bytes"),
    "table_data_records": ("Records in live data files in the newest report, before deletes.", "records"),
    "table_delete_files": ("Live delete files and deletion vectors in the newest report.", "delete_files"),
    "table_delete_records": ("Records in live delete files and deletion vectors in the newest report.", "delete_records"),
}
# Functions that write, each with its file.
Writers = Sequence[tuple[Callable[["Watched", Path], Path], Path]]
Verdict = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Case:
    """One table as monitoring sees it; ``verdict`` as JUnit knows them."""

    table: str
    status: str
    verdict: Verdict
    said: str
    seconds: float
    health: TableHealth | None = None
    is_unhealthy: bool = False
    rewritten_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Watched:
    """A report or a pass as monitoring sees it; ``what`` is ``report``, or the policy's name."""

    what: str
    catalog: str
    exit_status: int
    seconds: float
    ended: dt.datetime
    cases: tuple[Case, ...]


def of_pass(made: Pass) -> Watched:
    """A pass: its tables, and what is of none of them as cases of their own."""
    cases = [_case(one) for one in made.tables]
    cases += [Case("policy", "misconfigured", "error", problem, 0.0) for problem in made.problems]
    if made.failure:
        cases.append(
            Case("policy", "crashed" if made.failure_status == EXIT_CRASHED else "misconfigured", "error", made.failure, made.seconds)
        )
    cases += [Case("alerts", "failed", "failure", problem, 0.0) for problem in made.alert_problems]
    return Watched(
        made.policy, made.catalog, made.exit_status, made.seconds, made.started + dt.timedelta(seconds=made.seconds), tuple(cases)
    )


def of_report(run: ReportRun, catalog: str, fail_on: str, ended: dt.datetime | None = None) -> Watched:
    """A report run: a case per row; its seconds are those of its tables together."""
    ended = ended or dt.datetime.now(dt.UTC)
    now = int(ended.timestamp() * 1000)
    cases = []
    for row in run.rows:
        health = health_of(row, now, row.page or "")
        status: Status = "reported" if health else unread(row.status)
        one = TableResult(row.table, "", status, row.error or "", fail_on, health)
        cases.append(_case(one, row.seconds))
    cases += [Case("report", "misconfigured", "error", problem, 0.0) for problem in run.problems]
    return Watched("report", catalog, run.exit_status, sum(row.seconds for row in run.rows), ended, tuple(cases))


def write_junit(watched: Watched, path: Path) -> Path:
    """Write JUnit XML: failures are unhealthy tables and failed work, errors what could not be read, skipped what was not due."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite(_clean(f"icekit {watched.what}"))
    suite.timestamp = watched.ended.isoformat(timespec="seconds")
    kinds: dict[str, Any] = {"failure": Failure, "error": Error, "skipped": Skipped}
    for one in watched.cases:
        case = TestCase(_clean(one.table), _clean(f"icekit.{watched.catalog}"), round(one.seconds, 3))
        said = _clean(one.said)
        if one.verdict != "passed":
            case.result = [kinds[one.verdict](said.split("\n", 1)[0][:300], one.status)]
        findings = "\n".join(f"{severity}: {name}" for name, severity in one.health.findings) if one.health else ""
        case.system_out = "\n".join(filter(None, [said, _clean(findings)]))
        suite.add_testcase(case)
    suite.update_statistics()  # type: ignore[no-untyped-call]
    xml = JUnitXml()
    xml.add_testsuite(suite)
    written = BytesIO()
    xml.write(written, pretty=True)
    return write_text(path, written.getvalue().decode("utf-8"))


def write_prometheus(watched: Watched, path: Path) -> Path:
    """Write the text format for node_exporter's textfile collector, all of it or nothing.

    Labels are the catalog, the table (as many series as tables) and the severity; what a table is called by
    ``what`` is the label ``policy``, so that several policies may share a folder of files.
    """
    from prometheus_client import write_to_textfile

    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path):
        write_to_textfile(str(path), registry(watched))
    # For the exporter, which is another user.
    path.chmod(0o644)
    return path


def registry(watched: Watched) -> CollectorRegistry:
    """The metrics of a report or a pass; gauges, as a file is of one moment."""
    from prometheus_client import CollectorRegistry, Gauge

    made = CollectorRegistry()
    of_all = {"policy": watched.what, "catalog": watched.catalog}

    def gauge(name: str, said: str, *labels: str) -> Gauge:
        return Gauge(f"icekit_{name}", said, [*of_all, *labels], registry=made)

    gauge(
        "last_run_exit_status",
        "Exit status of the last run: 0 healthy, 1 unhealthy or failed, 2 misconfigured, 3 crashed, 130 stopped by hand.",
    ).labels(**of_all).set(watched.exit_status)
    gauge("last_run_timestamp_seconds", "When the last run ended, in seconds since 1970.").labels(**of_all).set(watched.ended.timestamp())
    gauge("last_run_duration_seconds", "How long the last run took.").labels(**of_all).set(watched.seconds)
    states = gauge("last_run_tables", "Tables of the last run by what became of them.", "status")
    for status in sorted({one.status for one in watched.cases}):
        states.labels(**of_all, status=status.replace(" ", "_")).set(sum(one.status == status for one in watched.cases))
    tables = [one for one in watched.cases if one.table not in _NO_TABLES]
    for name, (said, attribute) in _OF_HEALTH.items():
        metric = gauge(name, said, "table")
        for one in tables:
            if one.health:
                metric.labels(**of_all, table=one.table).set(getattr(one.health, attribute))
    reported = gauge("table_report_timestamp_seconds", "When the newest report was made, in seconds since 1970.", "table")
    unhealthy = gauge("table_unhealthy", "1 where the newest report is as grave as the gate or graver, else 0.", "table")
    failed = gauge("table_failed", "1 where the last run could not read or fix the table, else 0.", "table")
    rewritten = gauge("table_rewritten_bytes", "Bytes of data files that the last run rewrote.", "table")
    for one in tables:
        of_one = {**of_all, "table": one.table}
        if one.health:
            reported.labels(**of_one).set(one.health.reported_ms / 1000)
        unhealthy.labels(**of_one).set(one.is_unhealthy)
        failed.labels(**of_one).set(one.status in FAILED)
        rewritten.labels(**of_one).set(one.rewritten_bytes)
    findings = gauge("table_findings", "Findings of the newest report by severity.", "table", "severity")
    for one in tables:
        if one.health:
            for severity in SEVERITIES:
                findings.labels(**of_all, table=one.table, severity=severity).set(sum(s == severity for _, s in one.health.findings))
    return made


def _case(one: TableResult, seconds: float | None = None) -> Case:
    verdict: Verdict = "passed"
    if one.status in {"crashed", "timed out", "misconfigured"}:
        verdict = "error"
    elif one.status == "failed" or one.is_unhealthy:
        verdict = "failure"
    elif one.status in {"not due", "quiet", "busy"}:
        verdict = "skipped"
    said = _sentences([one.why, *(f"{step.action} {step.status}: {step.said}" for step in one.steps)])
    if one.is_unhealthy and one.health:
        said = f"{one.health.status} by fail_on={one.fail_on}: {', '.join(name for name, _ in one.health.findings)}" + (
            f"\n{said}" if said else ""
        )
    rewritten = sum(step.bytes_in for step in one.steps if step.run_id and step.action == "compact")
    return Case(
        table=one.table,
        status=one.status,
        verdict=verdict,
        said=said or one.status,
        seconds=one.seconds if seconds is None else seconds,
        health=one.health,
        is_unhealthy=one.is_unhealthy,
        rewritten_bytes=rewritten,
    )


def _sentences(parts: Iterable[str]) -> str:
    return "\n".join(filter(None, parts))


def _clean(text: str) -> str:
    return harmless(mask(text))


def writers(junit: Path | None, prometheus: Path | None) -> Writers:
    """Which of the two files are asked for, and what writes each.

    Raises :class:`~icekit.errors.ExtraMissing` where a library for one is not installed: ask before the work is done.
    """
    if junit is not None:
        require("junitparser", "A file of JUnit XML")
    if prometheus is not None:
        require("prometheus_client", "A file for Prometheus")
    return [(write, path) for write, path in ((write_junit, junit), (write_prometheus, prometheus)) if path is not None]
