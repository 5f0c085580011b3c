"""A CI server reads a report as JUnit XML."""

from pathlib import Path
from xml.etree import ElementTree

from icekit.diagnose.document import ReportedHealth
from icekit.diagnose.findings import Severity
from icekit.report.junit import write_junit
from icekit.report.result import ReportRun, Row

FOUND = ({"name": "small_files", "severity": "critical"},)
ILL = Row(
    "db.ill",
    "critical",
    1.5,
    ReportedHealth("prod", "db.ill", "critical", Severity.CRITICAL, FOUND, {}, 0.1),
    "db.ill.html",
)
ROWS = (ILL, Row("db.gone", "misconfigured", 0.1, error="There is no table \x00 <db.gone>."))


def test_each_table_is_a_case_and_what_belongs_to_none_is_an_error(tmp_path: Path) -> None:
    run = ReportRun(ROWS, tmp_path / "index.html", 2, problems=("No table matches 'x.*'.",))
    [suite] = ElementTree.parse(write_junit(run, "critical", tmp_path / "new" / "j.xml")).getroot()
    assert {name: suite.attrib[name] for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "2",
    }
    verdicts = [
        (case.attrib["name"], case.attrib["time"], [child.tag for child in case]) for case in suite
    ]
    assert verdicts == [
        ("db.ill", "1.500", ["failure", "system-out"]),
        ("db.gone", "0.100", ["error", "system-out"]),
        ("report", "0.000", ["error", "system-out"]),
    ]
    assert suite[0][1].text == "critical: small_files"
    assert suite[1][0].attrib == {
        "type": "misconfigured",
        "message": "There is no table \N{REPLACEMENT CHARACTER} <db.gone>.",
    }


def test_a_table_is_a_failure_only_by_the_gate(tmp_path: Path) -> None:
    [case] = ElementTree.parse(
        write_junit(ReportRun(ROWS[:1], tmp_path, 0), "never", tmp_path / "j.xml")
    ).iter("testcase")
    assert [child.tag for child in case] == ["system-out"]
