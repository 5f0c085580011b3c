"""Write a report as JUnit XML, which CI servers read: a case for each table."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from icekit.diagnose.gate import gated
from icekit.report.result import ReportRun
from icekit.saving import write_text
from icekit.secrets import mask
from icekit.terminal import harmless


def write_junit(run: ReportRun, fail_on: str, path: Path) -> Path:
    """Unhealthy tables are failures; tables that cannot be read, and problems of no table, are
    errors.
    """
    suite = ElementTree.Element("testsuite", name="icekit report")
    numbers = {"failure": 0, "error": 0}
    cases = [(row.table, row.status, row.seconds, row.error or "", row.outcome) for row in run.rows]
    for name, status, seconds, error, outcome in [
        *cases,
        *(("report", "misconfigured", 0.0, problem, None) for problem in run.problems),
    ]:
        case = ElementTree.SubElement(
            suite, "testcase", name=_clean(name), classname="icekit", time=f"{seconds:.3f}"
        )
        findings = [
            f"{finding['severity']}: {finding['name']}"
            for finding in (outcome.findings if outcome else ())
        ]
        message = _clean("\n".join([error, *findings] if error else findings))
        verdict = "error" if outcome is None else "failure" if gated(outcome.worst, fail_on) else ""
        if verdict:
            numbers[verdict] += 1
            ElementTree.SubElement(
                case, verdict, type=status, message=message.split("\n", 1)[0][:300]
            )
        ElementTree.SubElement(case, "system-out").text = message
    suite.attrib |= {
        "tests": str(len(suite)),
        "failures": str(numbers["failure"]),
        "errors": str(numbers["error"]),
    }
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return write_text(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True))


def _clean(text: str) -> str:
    return harmless(mask(text))
