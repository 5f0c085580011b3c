"""A table's health on one screen: as plain text for a terminal, as HTML for a notebook; no pandas,
no matplotlib.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from icekit.common import frozen, html
from icekit.common.saving import slug, write_text
from icekit.common.units import count, moment, percent, printable, shorten, size, span, unbroken
from icekit.common.view import TEXT, Badge, Block, Grid, Item, as_html
from icekit.health.diagnose.findings import (
    COMPACTED,
    SYMBOLS,
    Finding,
    Findings,
    Severity,
    Thresholds,
    covered_by,
    findings_html,
    summary,
)
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import delete_ratio
from icekit.iceberg import WITHOUT_DATA
from icekit.iceberg.file_kind import Kind
from icekit.show.tables import file_sizes, manifests

WIDTH = 80
FINDINGS = 5
_LABEL = 12
_BAR = 18
_LEAST = 40
_UNLIMITED = 100_000

_PAINT = {Severity.CRITICAL: "1;31", Severity.WARNING: "33", Severity.INFO: "36"}
_BOLD = "1"
_DIM = "2"
_GREEN = "32"
_PLAIN = ""


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
    remedies are never cut, and a statement is one line, so that it can be pasted unchanged.

    ``thresholds`` are the limits of the findings and of the file size ranges. ``later`` is the
    sentence about what compaction would leave alone now (:func:`icekit.maintain.savings.waiting`).
    ``color`` adds ANSI colours, for a terminal.
    """
    screen = _Screen(max(width, _LEAST) if width is not None else _UNLIMITED, color)
    parts = [
        _title(screen, facts, findings.worst),
        _facts(screen, facts, thresholds),
        screen.rows("findings", _verdict(facts, findings)),
        # With few findings there is room for each in full.
        _findings(screen, findings, None if len(findings) <= 2 else 2),
        screen.rows("not now", later, None) if later else [],
        _step(screen, next_step(findings, is_postponed=bool(later))),
    ]
    return "\n".join(line for part in parts for line in part)


def brief(
    facts: TableFacts,
    findings: Findings,
    *,
    is_postponed: bool = False,
    color: bool = False,
    width: int | None = WIDTH,
) -> str:
    """A table's verdict in a few lines: its most serious finding, and the next step."""
    screen = _Screen(max(width, _LEAST) if width is not None else _UNLIMITED, color)
    title, _ = _title(screen, facts, findings.worst)
    step = _step(screen, next_step(findings, is_postponed=is_postponed))
    return "\n".join([title, *_findings(screen, findings[:1], at_most=2), *step])


@frozen
class _Screen:
    """A terminal's width, and whether it has colours."""

    columns: int
    is_colored: bool

    def painted(self, text: str, code: str) -> str:
        is_painted = self.is_colored and code and text.strip()
        return f"\x1b[{code}m{text}\x1b[0m" if is_painted else text

    def rows(self, label: str, sentence: str, at_most: int | None = 2) -> list[str]:
        """A sentence with its label in front of the first of its lines."""
        first, *other_lines = _wrapped(sentence, self.columns - _LABEL, at_most)
        return [
            self.painted(label.ljust(_LABEL), _DIM) + first,
            *(" " * _LABEL + part for part in other_lines),
        ]


def _title(screen: _Screen, facts: TableFacts, worst: Severity | None) -> list[str]:
    name = shorten(printable(facts.name), screen.columns - 32)
    title = f"{name}  (format version {facts.format_version})"
    code = _GREEN if worst is None else _PAINT[worst]
    return [
        f"{screen.painted(title, _BOLD)}  {screen.painted(_mood(worst), code)}",
        screen.painted("─" * min(screen.columns, WIDTH), _DIM),
    ]


def _mood(worst: Severity | None) -> str:
    return "✔ healthy" if worst is None else f"{SYMBOLS[worst]} {worst}"


def _facts(screen: _Screen, facts: TableFacts, thresholds: Thresholds | None) -> Iterator[str]:
    for name, sentence in lines(facts, thresholds):
        yield from screen.rows(name, sentence)
        if name == "data files":
            for label, bar, left_alone in size_bars(facts, thresholds).rows:
                line = f"{left_alone:<{_LABEL}}{label:<17} {bar}"
                yield screen.painted(line, _GREEN if left_alone else _PLAIN)


def _findings(screen: _Screen, findings: Sequence[Finding], at_most: int | None) -> Iterator[str]:
    covered = covered_by(f.name for f in findings)
    for finding in findings[:FINDINGS]:
        other = covered.get(finding.name, "").replace("_", " ")
        same = f" (same fix as {other})" if other else ""
        sentence = f"{finding.title}{same}: {finding.evidence}"
        first, *other_lines = _wrapped(sentence, screen.columns - 4, at_most)
        mark = f"  {SYMBOLS[finding.severity]} "
        yield screen.painted(mark, _PAINT[finding.severity]) + first
        yield from (f"    {part}" for part in other_lines)
    if len(findings) > FINDINGS:
        yield f"    and {len(findings) - FINDINGS} more"


def next_step(findings: Sequence[Finding], *, is_postponed: bool) -> tuple[str, str] | None:
    """The next step in words, and its command or statement, if there is one; a compaction that is
    postponed runs now.

    It is that of the most serious finding that has a command or a statement to run, or of the
    finding whose action also fixes it.
    """
    covered = covered_by(f.name for f in findings)
    first = next((f for f in findings if f.command or f.sql), None)
    if first is None:
        return None
    name = covered.get(first.name)
    step = next((f for f in findings if f.name == name), first)
    words = f"{step.title}: {step.remedy}"
    if is_postponed and step.command and step.name in COMPACTED:
        words += " If nobody else writes to the table, run it now:"
        return words, f"{step.command} --leave-alone '0 minutes'"
    return words, step.command or step.sql[0]


def _step(screen: _Screen, step: tuple[str, str] | None) -> Iterator[str]:
    if step is not None:
        yield from screen.rows("next", step[0], None)
        yield f"  {printable(step[1])}"


def _wrapped(text: str, width: int, at_most: int | None) -> list[str]:
    """A text in lines of ``width`` columns, cut after ``at_most`` lines (None: never)."""
    lines = textwrap.wrap(unbroken(printable(text)), width, max_lines=at_most, placeholder=" …")
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines or [""]]


def card_html(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> str:
    """The same facts for a notebook, with the number of findings, whose own cards say the rest."""
    worst = findings.worst
    pairs = [*lines(facts, thresholds), ("findings", _verdict(facts, findings))]
    blocks: list[Block] = [
        Badge(
            "fine" if worst is None else str(worst),
            _mood(worst),
            facts.name,
            f"format version {facts.format_version}",
        ),
        Item(pairs=[(name.capitalize(), sentence) for name, sentence in pairs]),
        size_bars(facts, thresholds),
    ]
    return as_html(blocks)


@dataclass(frozen=True, repr=False)
class Look:
    """A table's health: facts and findings, shown as their card. It fails with a finding as serious
    as ``fail_on``.
    """

    facts: TableFacts
    findings: Findings
    thresholds: Thresholds
    fail_on: str = "never"

    def __repr__(self) -> str:
        return card(self.facts, self.findings, self.thresholds)

    def _repr_html_(self) -> str:
        facts = card_html(self.facts, self.findings, self.thresholds)
        return facts + findings_html(self.findings)

    def to_html(self, path: str | Path) -> Path:
        """Write the card and the findings as a page that opens offline."""
        return write_text(Path(path), html.page(self.facts.name, self._repr_html_()))

    def to_json(self, path: str | Path) -> Path:
        """Write the document that ``icekit report`` writes."""
        from icekit.health.diagnose import document

        return document.write(self.facts, self.findings, self.thresholds, Path(path))

    def write_into(self, folder: Path) -> Path:
        """Write the JSON document into a folder, named after the table."""
        return self.to_json(folder / f"{slug(self.facts.name)}.json")

    @property
    def failure(self) -> str | None:
        """What makes it fail, or None."""
        names = ", ".join(f.name for f in self.findings if f.severity.fails(self.fail_on))
        why = f"according to fail_on={self.fail_on}: {names}."
        return f"{self.facts.name} is unhealthy {why}" if names else None


def _verdict(facts: TableFacts, findings: Sequence[Finding]) -> str:
    """The number of findings, and what was not looked for."""
    gap = "" if _is_searched(facts) else "; storage not searched (--storage)"
    return f"{summary(findings).rstrip('.')}{gap}"


def size_bars(facts: TableFacts, thresholds: Thresholds | None = None) -> Grid:
    """Data files in a few ranges of size, each with a bar; a single file is still visible."""
    rows = [row for _, *row in sized(facts, thresholds)]
    return Grid("", {"size": TEXT, "data files": TEXT, "left alone": TEXT("")}, rows)


def sized(
    facts: TableFacts, thresholds: Thresholds | None = None
) -> Iterator[tuple[int, str, str, str]]:
    """The same, each range with its lower limit in bytes."""
    sizes = file_sizes(facts, thresholds, coarse=True)
    for row in range(len(sizes)):
        files = sizes["file_count"][row]
        share = sizes["share_of_bytes"][row] or 0
        bar = "█" * math.ceil(_BAR * sizes["share_of_files"][row])
        figures = f"{count(files, 'file')}, {percent(share)} of bytes {bar}" if files else "0"
        left_alone = "no rewrite" * sizes["left_alone"][row]
        yield sizes["lower_bytes"][row], sizes["size"][row], figures, left_alone


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
        *([("not here", _WITHOUT_DATA)] if WITHOUT_DATA in facts.properties else []),
    ]


_WITHOUT_DATA = (
    "the table's data files: it was unpacked from its metadata alone, so a scan or a rewrite fails"
)


def _snapshot(facts: TableFacts) -> str:
    if facts.snapshot_id is None or facts.snapshot_ms is None:
        snapshots_text = count(facts.history.snapshot_count, "snapshot")
        return f"none: the table is empty; its metadata lists {snapshots_text}"
    sentence = f"{facts.snapshot_id} of {moment(facts.snapshot_ms)}"
    if facts.collected_at_ms > facts.snapshot_ms:
        sentence += f", {span(facts.collected_at_ms - facts.snapshot_ms)} old"
    return sentence + (f" ({facts.ref})" if facts.ref else "")


def _partitions(facts: TableFacts) -> str:
    partition_fields = ", ".join(
        f.source or f.name if f.transform == "identity" else f"{f.transform}({f.source or f.name})"
        for f in facts.default_spec.active_fields
    )
    used = dict.fromkeys(facts.partitions())
    sentence = f"{len(used):,} by {partition_fields}" if partition_fields else "unpartitioned"
    old = {p.spec_id for p in used} - {facts.default_spec_id}
    return sentence + (f"; {count(len(old), 'older spec')} in use" if old else "")


def _data(facts: TableFacts, thresholds: Thresholds | None) -> str:
    data = facts.data
    if data.mean_bytes is None:
        return f"none; target {size(facts.target_bytes)}"
    return (
        f"{data.file_count:,}, {size(data.size_in_bytes)}, {count(data.record_count, 'record')}; "
        f"mean {size(data.mean_bytes)}, target {size(facts.target_bytes)}"
        f"{_undersized(facts, thresholds)}"
    )


def _undersized(facts: TableFacts, thresholds: Thresholds | None) -> str:
    """How many of all data files are smaller than those that a rewrite leaves alone."""
    sizes = file_sizes(facts, thresholds, coarse=True)
    first = sizes["left_alone"].index(True)
    files = sum(sizes["file_count"][:first])
    limit = sizes["lower_bytes"][first]
    return f"; {files:,} undersized (under {size(limit)})" if files else ""


def _deletes(facts: TableFacts) -> str:
    ratio = delete_ratio(facts)
    kinds = (
        (Kind.POSITION_DELETES, "position delete file"),
        (Kind.EQUALITY_DELETES, "equality delete file"),
        (Kind.DELETION_VECTORS, "deletion vector"),
    )
    files = [(facts.total(kind).file_count, noun) for kind, noun in kinds] + [
        (sum(each.file_count for each in facts.unapplied_in(state)), f"{state} delete file")
        for state in DeleteState
    ]
    parts = [count(number, noun) for number, noun in files if number]
    if not parts:
        return "none"
    share = "no data to compare with"
    if ratio.by_records is not None:
        share = f"{percent(ratio.by_records)} of the data records"
    return f"{', '.join(parts)}; {count(ratio.delete_record_count, 'record')}, {share}"


def _manifests(facts: TableFacts) -> str:
    parts = []
    for content, number, _, size_in_bytes, _, _, entries in manifests(facts).rows:
        noun = f"{content.removesuffix('s')} manifest"
        parts.append(f"{count(number, noun)}, {size(size_in_bytes)}, {entries:,.1f} files each")
    return "; ".join(parts) or "none"


def _history(facts: TableFacts) -> str:
    h = facts.history
    sentence = count(h.snapshot_count, "snapshot")
    if (
        h.oldest_snapshot_ms is not None
        and h.newest_snapshot_ms is not None
        and h.snapshot_count > 1
    ):
        lasted = h.newest_snapshot_ms - h.oldest_snapshot_ms
        sentence += f" over {span(lasted)}" if lasted >= 1000 else " within a second"
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
    reasons = [f"{kind} files are not decided: {why}" for kind, why in gaps.items() if why]
    searched = " and ".join(kind for kind, why in gaps.items() if not why)
    return "; ".join([*([f"searched for {searched} files"] if searched else []), *reasons])
