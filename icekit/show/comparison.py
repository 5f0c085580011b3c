"""Two sides of a comparison as lines and as HTML; no pandas."""

from __future__ import annotations

from collections.abc import Sequence

from icekit.diagnose.compare import Comparison, Figure
from icekit.findings import Finding
from icekit.show import html
from icekit.show.findings import badge
from icekit.show.lines import aligned
from icekit.units import percent, size

_HEAD = ("", "before", "after", "difference", "after / before")


def comparison_text(compared: Comparison) -> str:
    """Both sides as lines for a terminal."""
    lines = [f"before  {compared.before}", f"after   {compared.after}", ""]
    lines += aligned((_HEAD, *comparison_rows(compared)))
    for what, found in _findings(compared):
        lines += [f"{what}: {', '.join(f.title for f in found) or 'none'}"]
    return "\n".join(lines)


def comparison_html(compared: Comparison) -> str:
    """Both sides as a table, with the findings that came, went and stayed."""
    said = [
        (what, "<br>".join(f"{badge(f.severity)} {html.text(f.title)}: {html.prose(f.evidence)}" for f in found) or "none")
        for what, found in _findings(compared)
    ]
    return html.framed(
        html.definitions([("Before", html.text(compared.before)), ("After", html.text(compared.after))]),
        html.table(_HEAD, comparison_rows(compared), [False, True, True, True, True]),
        html.definitions(said),
    )


def comparison_rows(compared: Comparison) -> list[tuple[str, str, str, str, str]]:
    """Each figure on both sides, its difference and its ratio, as text; absent ones are a dash."""
    return [
        (f.name, _told(f, f.before), _told(f, f.after), _difference(f), percent(f.ratio) if f.ratio is not None else "–")
        for f in compared.figures
    ]


def _findings(compared: Comparison) -> Sequence[tuple[str, Sequence[Finding]]]:
    return (("Findings that came", compared.came), ("Findings that went", compared.went), ("Findings on both sides", compared.stayed))


def _told(figure: Figure, value: float | None) -> str:
    if value is None:
        return "–"
    return size(value) if figure.unit == "bytes" else f"{value:,.0f}"


def _difference(figure: Figure) -> str:
    by = figure.difference
    if by is None:
        return "–"
    return "0" if not by else f"{'+' if by > 0 else '−'}{_told(figure, abs(by))}"
