"""A table's health on one screen: as plain text for a terminal, as HTML for a notebook; no pandas, no matplotlib."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence

from icekit.answer import html
from icekit.diagnose.findings import NOTHING, SYMBOLS, Finding, Findings, Severity, Thresholds, badge, summary
from icekit.facts.model import TableFacts
from icekit.show.health import SizeClass, lines, size_classes
from icekit.units import percent, printable, shorten, unbroken

WIDTH = 80
FINDINGS = 5
_LABEL = 12
_BAR = 18
_SQL_LINES = 4

_PAINT = {Severity.CRITICAL: "1;31", Severity.WARNING: "33", Severity.INFO: "36"}
_BOLD, _DIM, _GREEN = "1", "2", "32"
_PLAIN = ""

# Statements break at blanks outside quotes, so that they can be pasted as they stand.
_SQL_WORD = re.compile(r"(?:'(?:[^'\\]|\\.)*'|`[^`]*`|[^\s'`]|['`])+")


def card(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None, *, color: bool = False) -> str:
    """A table's health in about 24 lines of at most 80 columns; only a statement may be wider.

    ``thresholds`` are the limits of the findings, by which sizes are distinguished too. ``color`` adds ANSI colours, for a terminal.
    """

    def painted(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color and code and text.strip() else text

    def rows(label: str, said: str, at_most: int = 2) -> list[str]:
        parts = _wrapped(said, WIDTH - _LABEL, at_most)
        return [painted((label if i == 0 else "").ljust(_LABEL), _DIM) + part for i, part in enumerate(parts)]

    worst = findings.worst
    mood = f"{SYMBOLS[worst]} {worst.name.lower()}" if worst is not None else "✔ healthy"
    title = _cut(f"{shorten(printable(facts.name), 50)}  (format version {facts.format_version})", WIDTH - len(mood) - 2)
    told = [
        painted(title, _BOLD) + "  " + painted(mood, _PAINT[worst] if worst is not None else _GREEN),
        painted("─" * WIDTH, _DIM),
    ]
    for name, sentence in lines(facts):
        told += rows(name, sentence)
        if name == "data files" and facts.data.file_count:
            told += [painted(_bar(size, facts), _GREEN if size.left_alone else _PLAIN) for size in size_classes(facts, thresholds)]
    told += rows("findings", summary(findings))
    for finding in findings[:FINDINGS]:
        mark = painted(f"  {SYMBOLS[finding.severity]} ", _PAINT[finding.severity])
        # Few findings leave room to say more of each.
        parts = _wrapped(f"{finding.title}: {finding.evidence}", WIDTH - 4, 2 if len(findings) <= 2 else 1)
        told += [(mark if i == 0 else "    ") + part for i, part in enumerate(parts)]
    if len(findings) > FINDINGS:
        told.append(f"    and {len(findings) - FINDINGS} more")
    step = _next_step(findings)
    if step is not None:
        told += rows("next", f"{step.title}: {step.remedy}")
        told += [f"  {line}" for line in _sql_lines(step.sql[0])]
    return "\n".join(told)


def _bar(size: SizeClass, facts: TableFacts) -> str:
    """A size class as a line; any file at all shows."""
    width = -(-_BAR * size.file_count // facts.data.file_count)
    share = percent(size.size_in_bytes / max(1, facts.data.size_in_bytes))
    told = f"{size.file_count:,} with {share} of the bytes" if size.file_count else "0"
    label = "left alone" if size.left_alone else ""
    return f"{label:<{_LABEL}}{size.label:<17} {'█' * width}{' ' if width else ''}{told}"


def _next_step(findings: Sequence[Finding]) -> Finding | None:
    """The most serious finding that has a statement to run."""
    return next((f for f in findings if f.sql), None)


def _sql_lines(statement: str) -> list[str]:
    """A statement in lines; one that would fill the screen is cut, and says so."""
    told = [""]
    for word in _SQL_WORD.findall(printable(statement)):
        if told[-1] and len(told[-1]) + len(word) >= WIDTH - 2:
            told.append("")
        told[-1] += f"{' ' if told[-1] else ''}{word}"
    return told if len(told) <= _SQL_LINES else [*told[: _SQL_LINES - 1], "… (cut; the finding has the whole statement)"]


def _wrapped(text: str, width: int, at_most: int) -> list[str]:
    """A text in lines of so many columns, cut where it has more than ``at_most``."""
    parts = textwrap.wrap(unbroken(printable(text)), width, max_lines=at_most, placeholder=" …")
    return [_cut(part.replace("\N{NO-BREAK SPACE}", " "), width) for part in parts or [""]]


def _cut(text: str, width: int) -> str:
    """Cut a line to so many columns; East Asian characters take two."""
    sizes = [2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text]
    if sum(sizes) <= width:
        return text
    taken = 0
    for place, columns in enumerate(sizes):
        taken += columns
        if taken >= width:
            return text[:place] + "…"
    return text


def card_html(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None, *, counted: bool = False) -> str:
    """The same card for a notebook: facts, sizes, findings in short (or only ``counted``), and the next statement to copy."""
    worst = findings.worst
    mood = badge(worst) if worst is not None else '<span class="badge">✔ healthy</span>'
    heading = f'<p class="title">{mood} {html.text(facts.name)} <small>format version {facts.format_version}</small></p>'
    said = [(name, html.prose(sentence)) for name, sentence in lines(facts)]
    if facts.data.file_count:
        said.insert(3, ("sizes", _sizes_html(facts, thresholds)))
    if counted:
        said.append(("findings", html.text(summary(findings))))
    else:
        said += _findings_html(findings)
    return html.framed(
        f'<div class="card {worst.name.lower() if worst is not None else "fine"}">{heading}{html.definitions((name.capitalize(), value) for name, value in said)}</div>'
    )


def _findings_html(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    rows = [
        f'<p class="{f.severity.name.lower()}">{badge(f.severity)} <b>{html.text(f.title)}</b>: {html.prose(f.evidence)}</p>'
        for f in findings
    ]
    told = [("findings", "".join(rows) or html.text(NOTHING))]
    step = _next_step(findings)
    if step is not None:
        told.append(("next", f"for {html.text(step.title)}: {html.prose(step.remedy)}{html.statements(step.sql[:1])}"))
    return told


def _sizes_html(facts: TableFacts, thresholds: Thresholds | None) -> str:
    cells = []
    for size in size_classes(facts, thresholds):
        width = 100 * size.file_count / facts.data.file_count
        share = percent(size.size_in_bytes / max(1, facts.data.size_in_bytes)) + " of the bytes" if size.file_count else ""
        cells.append(
            f'<tr{" class=band" if size.left_alone else ""}><th scope="row">{html.text(size.label)}</th><td class="n">{size.file_count:,}</td>'
            f'<td><span class="track"><span class="bar" style="width:{width:.1f}%"></span></span></td>'
            f"<td>{html.prose(share)}{' (left alone by rewrite_data_files)' if size.left_alone else ''}</td></tr>"
        )
    return f'<div class="scroll"><table><tbody>{"".join(cells)}</tbody></table></div>'
