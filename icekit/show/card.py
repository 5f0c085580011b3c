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
from icekit.common.units import (
    count,
    percent,
    printable_text,
    shorten,
    size,
    span,
    time_text,
    with_no_break_units,
)
from icekit.common.view import TEXT, Badge, Block, Grid, Item, as_html
from icekit.health.diagnose.findings import (
    COMPACTED,
    SYMBOLS,
    Finding,
    Findings,
    Severity,
    Thresholds,
    covering_findings,
    findings_html,
    summary,
)
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import delete_ratio
from icekit.iceberg import WITHOUT_DATA
from icekit.iceberg.file_kind import Kind
from icekit.show.storage_use import use_rows, use_sentence
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
    postponed_sentence: str = "",
    color: bool = False,
    width: int | None = WIDTH,
) -> str:
    """A table's health in about 24 lines of ``width`` columns (None: one line per sentence);
    remedies are never cut, and a statement is one line, so that it can be pasted unchanged.

    ``thresholds`` are the limits of the findings and of the file size ranges.
    ``postponed_sentence`` is the sentence about what compaction would leave alone now
    (:func:`icekit.maintain.planning.savings.waiting_sentence`). ``color`` adds ANSI colours, for a terminal.
    """
    screen = _Screen(max(width, _LEAST) if width is not None else _UNLIMITED, color)
    line_groups = [
        _title_lines(screen, facts, findings.worst),
        _fact_lines(screen, facts, thresholds),
        screen.labelled_lines("findings", _findings_summary(facts, findings)),
        # With few findings there is room for each in full.
        _finding_lines(screen, findings, None if len(findings) <= 2 else 2),
        screen.labelled_lines("not now", postponed_sentence, None) if postponed_sentence else [],
        _step_lines(screen, next_step(findings, is_postponed=bool(postponed_sentence))),
    ]
    return "\n".join(line for group_lines in line_groups for line in group_lines)


def short_card(
    facts: TableFacts,
    findings: Findings,
    *,
    is_postponed: bool = False,
    color: bool = False,
    width: int | None = WIDTH,
) -> str:
    """A table's verdict in a few lines: its most serious finding, and the next step."""
    screen = _Screen(max(width, _LEAST) if width is not None else _UNLIMITED, color)
    title_line, _ = _title_lines(screen, facts, findings.worst)
    step_lines = _step_lines(screen, next_step(findings, is_postponed=is_postponed))
    return "\n".join([title_line, *_finding_lines(screen, findings[:1], max_lines=2), *step_lines])


@frozen
class _Screen:
    """A terminal's width, and whether it has colours."""

    columns: int
    is_colored: bool

    def paint(self, text: str, color_code: str) -> str:
        is_painted = self.is_colored and color_code and text.strip()
        return f"\x1b[{color_code}m{text}\x1b[0m" if is_painted else text

    def labelled_lines(self, label: str, sentence: str, max_lines: int | None = 2) -> list[str]:
        """A sentence with its label in front of the first of its lines."""
        first_line, *other_lines = _wrapped_lines(sentence, self.columns - _LABEL, max_lines)
        return [
            self.paint(label.ljust(_LABEL), _DIM) + first_line,
            *(" " * _LABEL + other_line for other_line in other_lines),
        ]


def _title_lines(screen: _Screen, facts: TableFacts, worst_severity: Severity | None) -> list[str]:
    table_name = shorten(printable_text(facts.name), screen.columns - 32)
    title = f"{table_name}  (format version {facts.format_version})"
    color_code = _GREEN if worst_severity is None else _PAINT[worst_severity]
    return [
        f"{screen.paint(title, _BOLD)}  {screen.paint(_status_text(worst_severity), color_code)}",
        screen.paint("─" * min(screen.columns, WIDTH), _DIM),
    ]


def _status_text(worst_severity: Severity | None) -> str:
    return "✔ healthy" if worst_severity is None else f"{SYMBOLS[worst_severity]} {worst_severity}"


def _fact_lines(screen: _Screen, facts: TableFacts, thresholds: Thresholds | None) -> Iterator[str]:
    for fact_name, sentence in named_fact_sentences(facts, thresholds):
        yield from screen.labelled_lines(fact_name, sentence)
        if fact_name == "data files":
            for range_label, bar, left_alone_text in size_bars(facts, thresholds).rows:
                bar_line = f"{left_alone_text:<{_LABEL}}{range_label:<17} {bar}"
                yield screen.paint(bar_line, _GREEN if left_alone_text else _PLAIN)
        if fact_name == "storage" and facts.storage_use is not None:
            for row in use_rows(facts.storage_use):
                figures_text = f"{row.label:<14} {row.size:>9} {row.share:>6} {row.bar} {row.note}"
                yield shorten(f"{'':<{_LABEL}}{figures_text}".rstrip(), screen.columns)


def _finding_lines(
    screen: _Screen, findings: Sequence[Finding], max_lines: int | None
) -> Iterator[str]:
    fixing_name_by_finding = covering_findings(f.name for f in findings)
    for finding in findings[:FINDINGS]:
        fixing_name = fixing_name_by_finding.get(finding.name, "").replace("_", " ")
        same_fix_note = f" (same fix as {fixing_name})" if fixing_name else ""
        finding_sentence = f"{finding.title}{same_fix_note}: {finding.evidence}"
        first_line, *other_lines = _wrapped_lines(finding_sentence, screen.columns - 4, max_lines)
        severity_marker = f"  {SYMBOLS[finding.severity]} "
        yield screen.paint(severity_marker, _PAINT[finding.severity]) + first_line
        yield from (f"    {other_line}" for other_line in other_lines)
    if len(findings) > FINDINGS:
        yield f"    and {len(findings) - FINDINGS} more"


def next_step(findings: Sequence[Finding], *, is_postponed: bool) -> tuple[str, str] | None:
    """The next step in words, and its command or statement, if there is one; a compaction that is
    postponed runs now.

    It is that of the most serious finding that has a command or a statement to run, or of the
    finding whose action also fixes it.
    """
    fixing_name_by_finding = covering_findings(f.name for f in findings)
    actionable_finding = next((f for f in findings if f.command or f.sql), None)
    if actionable_finding is None:
        return None
    fixing_name = fixing_name_by_finding.get(actionable_finding.name)
    step_finding = next((f for f in findings if f.name == fixing_name), actionable_finding)
    step_text = f"{step_finding.title}: {step_finding.remedy}"
    if is_postponed and step_finding.command and step_finding.name in COMPACTED:
        step_text += " If nobody else writes to the table, run it now:"
        return step_text, f"{step_finding.command} --leave-alone '0 minutes'"
    return step_text, step_finding.command or step_finding.sql[0]


def _step_lines(screen: _Screen, step_and_command: tuple[str, str] | None) -> Iterator[str]:
    if step_and_command is not None:
        yield from screen.labelled_lines("next", step_and_command[0], None)
        yield f"  {printable_text(step_and_command[1])}"


def _wrapped_lines(text: str, width: int, max_lines: int | None) -> list[str]:
    """A text in lines of ``width`` columns, cut after ``max_lines`` lines (None: never)."""
    lines = textwrap.wrap(
        with_no_break_units(printable_text(text)), width, max_lines=max_lines, placeholder=" …"
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines or [""]]


def card_html(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> str:
    """The same facts for a notebook, with the number of findings, whose own cards say the rest."""
    worst_severity = findings.worst
    named_sentences = [
        *named_fact_sentences(facts, thresholds),
        ("findings", _findings_summary(facts, findings)),
    ]
    blocks: list[Block] = [
        Badge(
            "fine" if worst_severity is None else str(worst_severity),
            _status_text(worst_severity),
            facts.name,
            f"format version {facts.format_version}",
        ),
        Item(pairs=[(fact_name.capitalize(), sentence) for fact_name, sentence in named_sentences]),
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
        facts_html = card_html(self.facts, self.findings, self.thresholds)
        return facts_html + findings_html(self.findings)

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
        failing_names_text = ", ".join(
            f.name for f in self.findings if f.severity.fails(self.fail_on)
        )
        fail_on_clause = f"according to fail_on={self.fail_on}: {failing_names_text}."
        return f"{self.facts.name} is unhealthy {fail_on_clause}" if failing_names_text else None


def _findings_summary(facts: TableFacts, findings: Sequence[Finding]) -> str:
    """The number of findings, and what was not looked for."""
    storage_note = "" if _is_storage_searched(facts) else "; storage not searched (--storage)"
    return f"{summary(findings).rstrip('.')}{storage_note}"


def size_bars(facts: TableFacts, thresholds: Thresholds | None = None) -> Grid:
    """Data files in a few ranges of size, each with a bar; a single file is still visible."""
    bar_rows = [row for _, *row in size_range_rows(facts, thresholds)]
    return Grid("", {"size": TEXT, "data files": TEXT, "left alone": TEXT("")}, bar_rows)


def size_range_rows(
    facts: TableFacts, thresholds: Thresholds | None = None
) -> Iterator[tuple[int, str, str, str]]:
    """The same, each range with its lower limit in bytes."""
    size_grid = file_sizes(facts, thresholds, coarse=True)
    for range_index in range(len(size_grid)):
        file_count = size_grid["file_count"][range_index]
        byte_share = size_grid["share_of_bytes"][range_index] or 0
        bar = "█" * math.ceil(_BAR * size_grid["share_of_files"][range_index])
        figures_text = (
            f"{count(file_count, 'file')}, {percent(byte_share)} of bytes {bar}"
            if file_count
            else "0"
        )
        left_alone_text = "no rewrite" * size_grid["left_alone"][range_index]
        yield (
            size_grid["lower_bytes"][range_index],
            size_grid["size"][range_index],
            figures_text,
            left_alone_text,
        )


def named_fact_sentences(
    facts: TableFacts, thresholds: Thresholds | None = None
) -> list[tuple[str, str]]:
    """Facts of a table as (name, sentence); sizes and findings are shown separately. ``thresholds``
    set which files are undersized.
    """
    return [
        ("snapshot", _snapshot_text(facts)),
        ("partitions", _partitions_text(facts)),
        ("data files", _data_files_text(facts, thresholds)),
        ("deletes", _deletes_text(facts)),
        ("manifests", _manifests_text(facts)),
        ("history", _history_text(facts)),
        ("writes", _distribution_text(facts)),
        *([("storage", storage_text)] if (storage_text := _storage_text(facts)) else []),
        *([("not here", _WITHOUT_DATA)] if WITHOUT_DATA in facts.properties else []),
    ]


_WITHOUT_DATA = (
    "the table's data files: it was unpacked from its metadata alone, so a scan or a rewrite fails"
)


def _snapshot_text(facts: TableFacts) -> str:
    if facts.snapshot_id is None or facts.snapshot_ms is None:
        snapshot_count_text = count(facts.history.snapshot_count, "snapshot")
        return f"none: the table is empty; its metadata lists {snapshot_count_text}"
    sentence = f"{facts.snapshot_id} of {time_text(facts.snapshot_ms)}"
    if facts.collected_at_ms > facts.snapshot_ms:
        sentence += f", {span(facts.collected_at_ms - facts.snapshot_ms)} old"
    return sentence + (f" ({facts.ref})" if facts.ref else "")


def _partitions_text(facts: TableFacts) -> str:
    partition_fields_text = ", ".join(
        f.source or f.name if f.transform == "identity" else f"{f.transform}({f.source or f.name})"
        for f in facts.default_spec.active_fields
    )
    used_partitions = dict.fromkeys(facts.partitions())
    partitions_sentence = (
        f"{len(used_partitions):,} by {partition_fields_text}"
        if partition_fields_text
        else "unpartitioned"
    )
    old_spec_ids = {p.spec_id for p in used_partitions} - {facts.default_spec_id}
    return partitions_sentence + (
        f"; {count(len(old_spec_ids), 'older spec')} in use" if old_spec_ids else ""
    )


def _data_files_text(facts: TableFacts, thresholds: Thresholds | None) -> str:
    data_totals = facts.data
    if data_totals.mean_bytes is None:
        return f"none; target {size(facts.target_bytes)}"
    return (
        f"{data_totals.file_count:,}, {size(data_totals.size_in_bytes)}, "
        f"{count(data_totals.record_count, 'record')}; mean {size(data_totals.mean_bytes)}, "
        f"target {size(facts.target_bytes)}{_undersized_text(facts, thresholds)}"
    )


def _undersized_text(facts: TableFacts, thresholds: Thresholds | None) -> str:
    """How many of all data files are smaller than those that a rewrite leaves alone."""
    size_grid = file_sizes(facts, thresholds, coarse=True)
    first_left_alone_index = size_grid["left_alone"].index(True)
    undersized_count = sum(size_grid["file_count"][:first_left_alone_index])
    limit_bytes = size_grid["lower_bytes"][first_left_alone_index]
    return (
        f"; {undersized_count:,} undersized (under {size(limit_bytes)})" if undersized_count else ""
    )


def _deletes_text(facts: TableFacts) -> str:
    table_ratio = delete_ratio(facts)
    kinds_with_nouns = (
        (Kind.POSITION_DELETES, "position delete file"),
        (Kind.EQUALITY_DELETES, "equality delete file"),
        (Kind.DELETION_VECTORS, "deletion vector"),
    )
    counts_with_nouns = [
        (facts.total(delete_kind).file_count, kind_noun)
        for delete_kind, kind_noun in kinds_with_nouns
    ] + [
        (
            sum(unapplied_group.file_count for unapplied_group in facts.unapplied_in(delete_state)),
            f"{delete_state} delete file",
        )
        for delete_state in DeleteState
    ]
    count_texts = [
        count(file_count, kind_noun) for file_count, kind_noun in counts_with_nouns if file_count
    ]
    if not count_texts:
        return "none"
    record_share_text = "no data to compare with"
    if table_ratio.by_records is not None:
        record_share_text = f"{percent(table_ratio.by_records)} of the data records"
    return (
        f"{', '.join(count_texts)}; {count(table_ratio.delete_record_count, 'record')}, "
        f"{record_share_text}"
    )


def _manifests_text(facts: TableFacts) -> str:
    content_texts = []
    for content, manifest_count, _, size_in_bytes, _, _, mean_entries in manifests(facts).rows:
        manifest_noun = f"{content.removesuffix('s')} manifest"
        size_clause = f"{size(size_in_bytes)}, {mean_entries:,.1f} files each"
        content_texts.append(f"{count(manifest_count, manifest_noun)}, {size_clause}")
    return "; ".join(content_texts) or "none"


def _history_text(facts: TableFacts) -> str:
    h = facts.history
    sentence = count(h.snapshot_count, "snapshot")
    if (
        h.oldest_snapshot_ms is not None
        and h.newest_snapshot_ms is not None
        and h.snapshot_count > 1
    ):
        history_ms = h.newest_snapshot_ms - h.oldest_snapshot_ms
        sentence += f" over {span(history_ms)}" if history_ms >= 1000 else " within a second"
    if h.median_seconds_between_commits is not None:
        sentence += f", median gap {span(h.median_seconds_between_commits * 1000)}"
    return sentence + f"; {count(h.metadata_log_count, 'metadata file')} in the log"


def _distribution_text(facts: TableFacts) -> str:
    """Distribution modes, each with the operations that use it."""
    operations_by_mode: dict[str, list[str]] = {}
    for d in facts.distribution:
        operations_by_mode.setdefault(d.mode, []).append(d.operation)
    return "distribution " + "; ".join(
        f"{distribution_mode} for {', '.join(operations)}"
        for distribution_mode, operations in operations_by_mode.items()
    )


def _is_storage_searched(facts: TableFacts) -> bool:
    """Tell whether missing and orphan files were to be looked for."""
    return any(
        storage_fact is not None for storage_fact in (facts.storage, facts.missing, facts.unlisted)
    )


def _storage_text(facts: TableFacts) -> str:
    """What fills the storage, and what was looked for there; empty if neither is known."""
    use = facts.storage_use
    parts = [use_sentence(use)] if use is not None else []
    if _is_storage_searched(facts):
        parts.append(_search_text(facts))
    return "; ".join(parts)


def _search_text(facts: TableFacts) -> str:
    """What was looked for in storage, and what was not."""
    undecided_reason_by_kind = {
        "missing": facts.missing and facts.missing.unchecked,
        "orphan": facts.unlisted,
    }
    undecided_texts = [
        f"{file_kind} files are not decided: {why}"
        for file_kind, why in undecided_reason_by_kind.items()
        if why
    ]
    searched_kinds_text = " and ".join(
        file_kind for file_kind, why in undecided_reason_by_kind.items() if not why
    )
    return "; ".join(
        [
            *([f"searched for {searched_kinds_text} files"] if searched_kinds_text else []),
            *undecided_texts,
        ]
    )
