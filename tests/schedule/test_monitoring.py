"""Monitoring reads a pass and a report from files."""

from __future__ import annotations

import json
from pathlib import Path

from junitparser import JUnitXml

from icekit.diagnose.document import ReportedHealth
from icekit.diagnose.findings import Severity
from icekit.report import ReportRun, Row
from icekit.schedule.alerts import of_pass, of_report, write_junit
from icekit.schedule.result import Pass, PastAction, document, page, text, write
from tests.schedule.making import NOW_MS, health, made, result, step

SEVERAL = made(
    result("db.crashed", status="crashed", why="ValueError: \x00 <&", health=None),
    result("db.failed", status="failed", steps=(step(status="failed", said="not proved"),)),
    result("db.ill", health=health("critical", "small_files"), fail_on="critical"),
    result("db.done", status="done", before=health("critical"), steps=(step(run_id="r", bytes_in=123),)),
    result("db.waits", status="not due", why="since its last pass: 1 of 5 commits"),
    problems=("rule a: no table matches 'x'.",),
    alert_problems=("team could not be notified: refused",),
)


def test_junit_has_a_case_per_table_with_its_verdict(tmp_path: Path) -> None:
    xml = JUnitXml.fromfile(str(write_junit(of_pass(SEVERAL), tmp_path / "new" / "j.xml")))
    [suite] = xml
    verdicts = {case.name: type(case.result[0]).__name__ if case.result else "passed" for case in suite}
    assert verdicts == {
        "db.crashed": "Error",
        "db.failed": "Failure",
        "db.ill": "Failure",
        "db.done": "passed",
        "db.waits": "Skipped",
        "policy": "Error",
        "alerts": "Failure",
    }
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (7, 3, 2, 1)


def test_a_report_is_watched_as_a_pass_is(tmp_path: Path) -> None:
    totals = {"data": {"file_count": 3, "size_in_bytes": 30, "record_count": 300}}
    found = ({"name": "small_files", "severity": "critical"},)
    rows = (
        Row("db.ill", "critical", 1.5, ReportedHealth("prod", "db.ill", "critical", Severity.CRITICAL, found, totals, 0.1), "db.ill.html"),
        Row("db.gone", "misconfigured", 0.1, error="There is no table db.gone."),
    )
    watched = of_report(ReportRun(rows, tmp_path / "index.html", 2), "prod", "critical")
    xml = JUnitXml.fromfile(str(write_junit(watched, tmp_path / "j.xml")))
    assert [type(case.result[0]).__name__ for suite in xml for case in suite] == ["Failure", "Error"]
    assert of_report(ReportRun(rows[:1], tmp_path, 0), "prod", "never").cases[0].verdict == "passed"
    lost = of_report(ReportRun(rows[:1], tmp_path, 2, problems=("No table matches 'x.*'.",)), "prod", "never")
    assert [(case.table, case.verdict) for case in lost.cases] == [("db.ill", "passed"), ("report", "error")]


def test_the_most_serious_of_all_decides_the_exit_status() -> None:
    ill, failed = result(health=health(), fail_on="critical"), result(status="failed")
    misconfigured, crashed = result(status="misconfigured"), result(status="crashed")
    statuses = [made(*several).exit_status for several in ((result(),), (ill,), (failed,), (ill, misconfigured), (misconfigured, crashed))]
    assert statuses == [0, 1, 1, 2, 3]
    assert made(result(), problems=("x",)).exit_status == 2
    assert made(crashed, interrupted=True).exit_status == 130
    for harmless in ("stopped", "busy", "waits", "quiet", "not due", "planned"):
        assert made(result(status=harmless)).exit_status == 0


def test_a_pass_is_written_as_json_and_as_a_page_that_links_the_reports(tmp_path: Path) -> None:
    written, html = write(SEVERAL, tmp_path)
    read = json.loads(written.read_text())
    assert (read["schema_version"], read["exit_status"], read["counted"]["done"]) == (1, 3, 1)
    assert read["tables"][2]["is_unhealthy"] is True
    shown = html.read_text()
    assert "href='all/db.t.html'" in shown
    assert "critical → healthy" in shown
    assert "ValueError: \ufffd" in shown or "&lt;&amp;" in shown
    assert document(SEVERAL)["problems"] == ["rule a: no table matches 'x'."]


def test_a_pass_tells_what_earlier_ones_did_beside(tmp_path: Path) -> None:
    did = [
        PastAction(NOW_MS - n * 60_000, f"db.<{n}>", "compact", "done", "9 files → 1 file", f"r{n}", 9, 900, 1, 800, 12.0) for n in (1, 2)
    ]
    written, html = write(made(result("db.done"), lately=tuple(did)), tmp_path)
    assert [(one["table"], one["files_in"]) for one in json.loads(written.read_text())["lately"]] == [("db.<1>", 9), ("db.<2>", 9)]
    shown = html.read_text().partition("What earlier passes did")[2]
    assert "The last 2 actions before this pass" in shown
    assert 0 < shown.index("2026-01-14 11:59 UTC<td>db.&lt;1&gt;<td>compact") < shown.index("2026-01-14 11:58 UTC<td>db.&lt;2&gt;")
    assert "What earlier passes did" not in page(made())


def test_the_text_counts_what_is_not_due_and_shows_the_rest() -> None:
    said = text(SEVERAL)
    assert "db.failed" in said
    assert "db.waits" not in said
    assert "1 crashed, 1 failed, 1 done, 1 reported, 1 not due; 12 seconds" in said
    assert "not notified: team could not be notified: refused" in said
    assert "no table" in text(Pass("p", "c", False, SEVERAL.started, 0.0, ()))
    assert "<table>" in page(SEVERAL)
