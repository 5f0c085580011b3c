"""A table's health on one screen: as plain text for a terminal, as HTML for a notebook; no pandas,
no matplotlib.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path

from icekit.answer import html
from icekit.diagnose.findings import (
    SYMBOLS,
    Finding,
    Findings,
    Severity,
    Thresholds,
    badge,
    covered_by,
    findings_html,
    summary,
)
from icekit.facts.files import Kind, median_bytes
from icekit.facts.integrity import DeleteState
from icekit.facts.model import TableFacts
from icekit.facts.rollup import delete_ratio
from icekit.saving import write_text
from icekit.show.tables import SizeClass, left_alone_sizes, size_classes
from icekit.units import count, moment, percent, printable, shorten, size, span, unbroken

WIDTH = 80
FINDINGS = 5
_LABEL = 12
_BAR = 18
_LEAST, _UNLIMITED = 40, 100_000

_PAINT = {Severity.CRITICAL: "1;31", Severity.WARNING: "33", Severity.INFO: "36"}
_BOLD, _DIM, _GREEN = "1", "2", "32"
_PLAIN = ""

# Statements break only at spaces outside quotes, so that they can be pasted unchanged.
_SQL_WORD = re.compile(r"(?:'(?:[^'\\]|\\.)*'|`[^`]*`|[^\s'`]|['`])+")


def card(
    facts: TableFacts,
    findings: Findings,
    thresholds: Thresholds | None = None,
    *,
    later: str = "",
    color: bool = False,
    width: int | None = WIDTH,
) -> str:
    """A table's health in about 24 lines of ``width`` columns (None: one line per sentence);
    remedies and statements are never cut.

    ``thresholds`` are the limits of the findings and of the file size ranges. ``later`` is the
    sentence about what compaction would leave alone now (:func:`icekit.maintain.savings.waiting`).
    ``color`` adds ANSI colours, for a terminal.
    """
    screen = _Screen(max(width, _LEAST) if width is not None else _UNLIMITED, color)
    parts = [
        _title(screen, facts, findings.worst),
        _facts(screen, facts, thresholds),
        screen.rows("findings", _verdict(facts, findings)),
        _findings(screen, findings),
        screen.rows("not now", later, None) if later else [],
        _step(screen, findings),
    ]
    return "\n".join(line for part in parts for line in part)


@dataclass(frozen=True, slots=True)
class _Screen:
    """A terminal's width, and whether it has colours."""

    columns: int
    is_colored: bool

    def painted(self, text: str, code: str) -> str:
        is_painted = self.is_colored and code and text.strip()
        return f"\x1b[{code}m{text}\x1b[0m" if is_painted else text

    def rows(self, label: str, sentence: str, at_most: int | None = 2) -> list[str]:
        """A sentence with its label in front of the first of its lines."""
        first, *rest = _wrapped(sentence, self.columns - _LABEL, at_most)
        return [
            self.painted(label.ljust(_LABEL), _DIM) + first,
            *(" " * _LABEL + part for part in rest),
        ]


def _title(screen: _Screen, facts: TableFacts, worst: Severity | None) -> list[str]:
    mood, code = "✔ healthy", _GREEN
    if worst is not None:
        mood, code = f"{SYMBOLS[worst]} {worst.name.lower()}", _PAINT[worst]
    name = f"{shorten(printable(facts.name), 50)}  (format version {facts.format_version})"
    title = _cut(name, screen.columns - len(mood) - 2)
    return [
        f"{screen.painted(title, _BOLD)}  {screen.painted(mood, code)}",
        screen.painted("─" * min(screen.columns, WIDTH), _DIM),
    ]


def _facts(screen: _Screen, facts: TableFacts, thresholds: Thresholds | None) -> Iterator[str]:
    for name, sentence in lines(facts, thresholds):
        yield from screen.rows(name, sentence)
        if name == "data files" and facts.data.file_count:
            for each in size_classes(facts, thresholds):
                yield screen.painted(_bar(each), _GREEN if each.is_left_alone else _PLAIN)


def _findings(screen: _Screen, findings: Sequence[Finding]) -> Iterator[str]:
    covered = _covered(findings)
    # With few findings there is room for each in full.
    at_most = None if len(findings) <= 2 else 2
    for finding in findings[:FINDINGS]:
        sentence = f"{finding.title}{covered[finding.name]}: {finding.evidence}"
        first, *rest = _wrapped(sentence, screen.columns - 4, at_most)
        mark = f"  {SYMBOLS[finding.severity]} "
        yield screen.painted(mark, _PAINT[finding.severity]) + first
        yield from (f"    {part}" for part in rest)
    if len(findings) > FINDINGS:
        yield f"    and {len(findings) - FINDINGS} more"


def _step(screen: _Screen, findings: Sequence[Finding]) -> Iterator[str]:
    step = _next_step(findings)
    if step is not None:
        yield from screen.rows("next", f"{step.title}: {step.remedy}", None)
        sql = [step.command] if step.command else _sql_lines(step.sql[0], screen.columns)
        yield from (f"  {line}" for line in sql)


def _bar(each: SizeClass) -> str:
    """A size range as a line; a single file is still visible."""
    bar = "█" * math.ceil(_BAR * each.share_of_files)
    label = "no rewrite" if each.is_left_alone else ""
    figures = f"{bar} {each}".lstrip()
    return f"{label:<{_LABEL}}{each.label:<17} {figures}"


def _covered(findings: Sequence[Finding]) -> dict[str, str]:
    """By the name of each finding, which other finding's action also fixes it, in brackets; empty
    where none does.
    """
    covered = covered_by(f.name for f in findings)
    return {
        f.name: f" (same fix as {covered[f.name].replace('_', ' ')})" if f.name in covered else ""
        for f in findings
    }


def _next_step(findings: Sequence[Finding]) -> Finding | None:
    """The most serious finding that has a command or a statement to run, or the finding whose
    action also fixes it.
    """
    covered = covered_by(f.name for f in findings)
    first = next((f for f in findings if f.command or f.sql), None)
    instead = next(
        (f for f in findings if first is not None and f.name == covered.get(first.name)), None
    )
    return instead or first


def _sql_lines(statement: str, width: int) -> list[str]:
    """A complete statement in lines."""
    lines = [""]
    for word in _SQL_WORD.findall(printable(statement)):
        if lines[-1] and len(lines[-1]) + len(word) >= width - 2:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def _wrapped(text: str, width: int, at_most: int | None) -> list[str]:
    """A text in lines of ``width`` columns, cut after ``at_most`` lines (None: never)."""
    parts = textwrap.wrap(unbroken(printable(text)), width, max_lines=at_most, placeholder=" …")
    whole = [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts or [""]]
    if at_most is not None:
        return [_cut(part, width) for part in whole]
    # A wide character takes two columns, so that half as many always fit.
    return [
        line
        for part in whole
        for line in ([part] if _columns(part) <= width else textwrap.wrap(part, width // 2))
    ]


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int) -> str:
    """Cut a line to ``width`` columns; East Asian characters take two."""
    if _columns(text) <= width:
        return text
    reached = accumulate(map(_columns, text))
    return text[: next(i for i, columns in enumerate(reached) if columns >= width)] + "…"


def card_html(
    facts: TableFacts,
    findings: Findings,
    thresholds: Thresholds | None = None,
    *,
    counted: bool = False,
) -> str:
    """The same card for a notebook: facts, sizes, short findings (or only their count if
    ``counted``), and the next statement to copy.
    """
    worst = findings.worst
    mood = badge(worst) if worst is not None else '<span class="badge">✔ healthy</span>'
    heading = (
        f'<p class="title">{mood} {html.text(facts.name)} <small>format version '
        f"{facts.format_version}</small></p>"
    )
    pairs = [(name, html.prose(sentence)) for name, sentence in lines(facts, thresholds)]
    if sizes := sizes_html(facts, thresholds):
        pairs.insert(3, ("sizes", sizes))
    if counted:
        pairs.append(("findings", html.text(_verdict(facts, findings))))
    else:
        pairs += _findings_html(facts, findings)
    listed = html.definitions((name.capitalize(), value) for name, value in pairs)
    css = worst.name.lower() if worst is not None else "fine"
    return html.framed(f'<div class="card {css}">{heading}{listed}</div>')


@dataclass(frozen=True, repr=False)
class Look:
    """A table's health: facts and findings, shown as their card."""

    facts: TableFacts
    findings: Findings
    thresholds: Thresholds

    def __repr__(self) -> str:
        return card(self.facts, self.findings, self.thresholds)

    def _repr_html_(self) -> str:
        return card_html(self.facts, self.findings, self.thresholds)

    def to_html(self, path: str | Path) -> Path:
        """Write the card and the findings as a page that opens offline."""
        from markupsafe import Markup

        body = Markup(self._repr_html_() + findings_html(self.findings))
        section = {"body": body, "heading": "Findings", "anchor": "findings", "sentence": ""}
        values = {"title": self.facts.name, "sections": [section], "is_open": True}
        return write_text(Path(path), html.render("table.html", document="", **values))

    def to_json(self, path: str | Path) -> Path:
        """Write the document that ``icekit report`` writes."""
        from icekit.diagnose import document

        return document.write(self.facts, self.findings, self.thresholds, Path(path))


def _verdict(facts: TableFacts, findings: Sequence[Finding]) -> str:
    """The number of findings, and what was not looked for."""
    return (
        summary(findings)
        if _is_searched(facts)
        else f"{summary(findings).rstrip('.')}; storage not searched (--storage)"
    )


def _findings_html(facts: TableFacts, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    covered = _covered(findings)
    rows = [
        f'<p class="{f.severity.name.lower()}">{badge(f.severity)} '
        f"<b>{html.text(f.title)}</b>{html.text(covered[f.name])}: {html.prose(f.evidence)}</p>"
        for f in findings
    ]
    if not rows or not _is_searched(facts):
        rows.append(f"<p>{html.text(_verdict(facts, findings))}</p>")
    pairs = [("findings", "".join(rows))]
    step = _next_step(findings)
    if step is not None:
        lines_to_run = html.statements([step.command] if step.command else step.sql[:1])
        remedy = f"for {html.text(step.title)}: {html.prose(step.remedy)}"
        pairs.append(("next", f"{remedy}{lines_to_run}"))
    return pairs


def sizes_html(facts: TableFacts, thresholds: Thresholds | None = None) -> str:
    """Data files by size as rows with bars; empty without data files."""
    if not facts.data.file_count:
        return ""
    cells = []
    for each in size_classes(facts, thresholds):
        css, note = (" class=band", " (no rewrite needed)") if each.is_left_alone else ("", "")
        bar = f'<span class="bar" style="width:{each.share_of_files:.1%}"></span>'
        cells.append(
            f'<tr{css}><th scope="row">{html.text(each.label)}</th>'
            f'<td><span class="track">{bar}</span></td><td>{html.prose(str(each))}{note}</td></tr>'
        )
    return f'<div class="scroll"><table><tbody>{"".join(cells)}</tbody></table></div>'


#: A mean that differs from the median by this factor misleads: a few unusual files dominate it.
MISLEADING = 2


def lines(facts: TableFacts, thresholds: Thresholds | None = None) -> list[tuple[str, str]]:
    """Facts of a table as (name, sentence); sizes and findings are shown separately. ``thresholds``
    set which files are undersized.
    """
    return [
        ("snapshot", _snapshot(facts)),
        ("partitions", _partitions(facts)),
        ("data files", _data(facts, thresholds)),
        ("deletes", _deletes(facts)),
        ("manifests", _manifests(facts)),
        ("history", _history(facts)),
        ("writes", _writes(facts)),
        *([("storage", _storage(facts))] if _is_searched(facts) else []),
    ]


def _snapshot(facts: TableFacts) -> str:
    if facts.snapshot_id is None or facts.snapshot_ms is None:
        lost = count(facts.history.snapshot_count, "snapshot")
        return (
            f"no current snapshot, although the metadata lists {lost}: staged, on other branches, "
            "or older than a CREATE OR REPLACE"
            if facts.history.snapshot_count
            else "none: the table is empty; its metadata lists no snapshots"
        )
    sentence = f"{facts.snapshot_id} of {moment(facts.snapshot_ms)}"
    if facts.collected_at_ms > facts.snapshot_ms:
        sentence += f", {span(facts.collected_at_ms - facts.snapshot_ms)} old"
    return sentence + (f" ({facts.ref})" if facts.ref else "")


def _partitions(facts: TableFacts) -> str:
    fields = [f for f in facts.default_spec.fields if f.transform != "void"]
    by = ", ".join(
        f.source or f.name if f.transform == "identity" else f"{f.transform}({f.source or f.name})"
        for f in fields
    )
    used = dict.fromkeys(facts.partitions())
    sentence = f"{len(used):,} by {by}" if by else "unpartitioned"
    old = {p.spec_id for p in used} - {facts.default_spec_id}
    return sentence + (f"; {count(len(old), 'older spec')} in use" if old else "")


def _data(facts: TableFacts, thresholds: Thresholds | None) -> str:
    data = facts.data
    if data.mean_bytes is None:
        return f"none; target {size(facts.target_bytes)}"
    mean = f"mean {size(data.mean_bytes)}"
    median = median_bytes(facts.of_kind(Kind.DATA))
    if (
        median is not None
        and not data.mean_bytes <= MISLEADING * median <= MISLEADING**2 * data.mean_bytes
    ):
        mean += f", median about {size(median)}"
    return (
        f"{data.file_count:,}, {size(data.size_in_bytes)}, {count(data.record_count, 'record')}; "
        f"{mean}, target {size(facts.target_bytes)}{_undersized(facts, thresholds)}"
    )


def _undersized(facts: TableFacts, thresholds: Thresholds | None) -> str:
    """How many of all data files are smaller than those that a rewrite leaves alone."""
    below = list(takewhile(lambda each: not each.is_left_alone, size_classes(facts, thresholds)))
    files = sum(each.file_count for each in below)
    limit = left_alone_sizes(facts, Kind.DATA, thresholds)
    return f"; {files:,} undersized (under {size(limit[0])})" if files and limit else ""


def _deletes(facts: TableFacts) -> str:
    ratio = delete_ratio(facts)
    kinds = (
        (Kind.POSITION_DELETES, "position delete file"),
        (Kind.EQUALITY_DELETES, "equality delete file"),
        (Kind.DELETION_VECTORS, "deletion vector"),
    )
    parts = [
        count(total.file_count, noun)
        for kind, noun in kinds
        if (total := facts.total(kind)).file_count
    ]
    misfiled = sum(each.file_count for each in facts.unapplied_in(DeleteState.MISFILED))
    if unapplied := sum(each.file_count for each in facts.unapplied) - misfiled:
        verb = "applies" if unapplied == 1 else "apply"
        parts.append(f"{count(unapplied, 'delete file')} that {verb} to no data file")
    if misfiled:
        # Whether they apply depends on the version of Iceberg.
        parts.append(count(misfiled, "misfiled delete file"))
    if not parts:
        return "none"
    share = (
        "no data to compare with"
        if ratio.by_records is None
        else f"{percent(ratio.by_records)} of the data records"
    )
    return f"{', '.join(parts)}; {count(ratio.delete_record_count, 'record')}, {share}"


def _manifests(facts: TableFacts) -> str:
    m = facts.manifests
    if not m.data_count and not m.delete_count:
        return "none"
    parts = [
        f"{count(n, noun)}, {size(size_in_bytes)}"
        for noun, n, size_in_bytes in (
            ("data manifest", m.data_count, m.data_bytes),
            ("delete manifest", m.delete_count, m.delete_bytes),
        )
        if n
    ]
    if m.data_count:
        parts[0] += f", {m.data_entry_count / m.data_count:,.1f} files each"
    return "; ".join(parts)


def _history(facts: TableFacts) -> str:
    h = facts.history
    sentence = count(h.snapshot_count, "snapshot")
    if (
        h.oldest_snapshot_ms is not None
        and h.newest_snapshot_ms is not None
        and h.snapshot_count > 1
    ):
        lasted = h.newest_snapshot_ms - h.oldest_snapshot_ms
        sentence += f" in {span(lasted)}" if lasted < 1000 else f" over {span(lasted)}"
    if h.median_seconds_between_commits is not None:
        sentence += f", median gap {span(h.median_seconds_between_commits * 1000)}"
    return sentence + f"; {count(h.metadata_log_count, 'metadata file')} in the log"


def _writes(facts: TableFacts) -> str:
    """Distribution modes, each with the operations that use it."""
    modes: dict[str, list[str]] = {}
    for d in facts.distribution:
        modes.setdefault(d.mode, []).append(d.operation)
    return "distribution " + "; ".join(
        f"{mode} for {', '.join(operations)}" for mode, operations in modes.items()
    )


def _is_searched(facts: TableFacts) -> bool:
    """Tell whether missing and orphan files were to be looked for."""
    return any(each is not None for each in (facts.storage, facts.missing, facts.unlisted))


def _storage(facts: TableFacts) -> str:
    """What was looked for in storage, and what was not."""
    gaps = {"missing": facts.missing and facts.missing.unchecked, "orphan": facts.unlisted}
    reasons = [f"not searched for {kind} files: {why}" for kind, why in gaps.items() if why]
    searched = " and ".join(kind for kind, why in gaps.items() if not why)
    return "; ".join([*([f"searched for {searched} files"] if searched else []), *reasons])
