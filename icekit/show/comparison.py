"""Two sides of a comparison as lines and as HTML; no pandas."""

from __future__ import annotations

from collections.abc import Sequence

from icekit.diagnose.compare import Comparison, Figure
from icekit.findings import Finding
from icekit.show import html
from icekit.show.findings import badge
from icekit.show.lines import aligned
from icekit.units import size

_HEAD = ("", "before", "after", "difference", "after / before")


def comparison_text(compared: Comparison) -> str:
    """Both sides as lines for a terminal."""
    lines = [f"before  {compared.before}", f"after   {compared.after}", ""]
    lines += aligned((_HEAD, *comparison_rows(compared)))
    for what, found in _findings(compared):
        lines += [f"findings, {what.lower()}: {', '.join(f.title for f in found) or 'none'}"]
    return "\n".join(lines)


def comparison_html(compared: Comparison) -> str:
    """Both sides as a table, with the findings that came, went and stayed."""
    said = [(what, "".join(map(_line, found)) or "none") for what, found in _findings(compared)]
    return html.framed(
        html.definitions([("Before", html.text(compared.before)), ("After", html.text(compared.after))]),
        html.table(_HEAD, comparison_rows(compared), [False, True, True, True, True]),
        "<p>Findings, at the same limits:</p>",
        html.definitions(said),
    )


def comparison_rows(compared: Comparison) -> list[tuple[str, str, str, str, str]]:
    """Each figure on both sides, its difference and its ratio, as text; absent ones are a dash."""
    return [
        (f.name, _told(f, f.before), _told(f, f.after), _difference(f), f"× {f.ratio:,.3g}" if f.ratio is not None else "–")
        for f in compared.figures
    ]


def _line(finding: Finding) -> str:
    return f'<p class="{finding.severity.name.lower()}">{badge(finding.severity)} <b>{html.text(finding.title)}</b>: {html.prose(finding.evidence)}</p>'


def _findings(compared: Comparison) -> Sequence[tuple[str, Sequence[Finding]]]:
    return (("Came", compared.came), ("Went", compared.went), ("Both sides", compared.stayed))


def _told(figure: Figure, value: float | None) -> str:
    if value is None:
        return "–"
    return size(value) if figure.unit == "bytes" else f"{value:,.0f}"


def _difference(figure: Figure) -> str:
    by = figure.difference
    if by is None:
        return "–"
    return "0" if not by else f"{'+' if by > 0 else '−'}{_told(figure, abs(by))}"
