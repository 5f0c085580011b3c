"""Write a report as JUnit XML, which CI servers read: a case for each table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from icekit.diagnose.gate import gated
from icekit.report.result import ReportRun, Row
from icekit.saving import write_text
from icekit.secrets import mask
from icekit.status import Status
from icekit.terminal import harmless


def write_junit(run: ReportRun, fail_on: str, path: Path) -> Path:
    """Unhealthy tables are failures; tables that cannot be read, and problems of no table, are
    errors.
    """
    suite = ElementTree.Element("testsuite", name="icekit report")
    verdicts: Counter[str] = Counter()
    problems = [Row("report", Status.MISCONFIGURED, 0.0, error=each) for each in run.problems]
    for row in (*run.rows, *problems):
        case = ElementTree.SubElement(
            suite, "testcase", name=_clean(row.table), classname="icekit", time=f"{row.seconds:.3f}"
        )
        findings = row.outcome.findings if row.outcome else ()
        listed = [f"{finding['severity']}: {finding['name']}" for finding in findings]
        message = _clean("\n".join([*filter(None, [row.error]), *listed]))
        verdict = "error" if row.outcome is None else ""
        if row.outcome and gated(row.outcome.worst, fail_on):
            verdict = "failure"
        if verdict:
            first = message.split("\n", 1)[0][:300]
            ElementTree.SubElement(case, verdict, type=row.status, message=first)
        verdicts[verdict] += 1
        ElementTree.SubElement(case, "system-out").text = message
    suite.attrib |= {
        "tests": str(len(suite)),
        "failures": str(verdicts["failure"]),
        "errors": str(verdicts["error"]),
    }
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return write_text(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True))


def _clean(text: str) -> str:
    return harmless(mask(text))
