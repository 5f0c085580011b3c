"""Findings as HTML: a card each, with the SQL ready to copy; no pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from icekit.findings import Finding, Severity
from icekit.show import html
from icekit.units import count

NOTHING = "Nothing to do: no finding at these thresholds."

#: Shapes that differ without colour, in every font that has text symbols at all.
SYMBOLS = {Severity.CRITICAL: "✖", Severity.WARNING: "▲", Severity.INFO: "●"}


def findings_html(findings: Sequence[Finding]) -> str:
    """A card for each finding, gravest first as they come, or a sentence that there is none."""
    if not findings:
        return html.framed(f'<div class="finding fine"><span class="badge">✔ fine</span> {html.text(NOTHING)}</div>')
    return html.framed(f"<p>{html.text(summary(findings))}</p>", *(_card(finding) for finding in findings))


def summary(findings: Sequence[Finding]) -> str:
    """``3 findings: 1 critical, 2 warnings``."""
    if not findings:
        return NOTHING
    counted = Counter(f.severity for f in findings)
    told = {Severity.CRITICAL: f"{counted[Severity.CRITICAL]} critical", Severity.INFO: f"{counted[Severity.INFO]} info"}
    told[Severity.WARNING] = count(counted[Severity.WARNING], "warning")
    return f"{count(len(findings), 'finding')}: " + ", ".join(told[s] for s in sorted(counted, reverse=True))


def badge(severity: Severity) -> str:
    """The severity as symbol, word and colour."""
    return f'<span class="badge">{SYMBOLS[severity]} {severity.name.lower()}</span>'


def _card(finding: Finding) -> str:
    said = [("Evidence", html.prose(finding.evidence))]
    if finding.where:
        more = finding.where_count - len(finding.where)
        where = " ".join(f"<code>{html.text(name)}</code>" for name in finding.where)
        said.append(("Where", where + (f" and {more:,} more" if more > 0 else "")))
    said += [
        ("Effect", html.prose(finding.effect)),
        ("Threshold", f"{html.prose(finding.threshold)} <br>({html.text(finding.source)})"),
        ("Remedy", html.prose(finding.remedy)),
    ]
    heading = f'<p class="title">{badge(finding.severity)} {html.text(finding.title)} <code>{html.text(finding.table)}</code></p>'
    return f'<div class="finding {finding.severity.name.lower()}">{heading}{html.definitions(said)}{html.statements(finding.sql)}</div>'
