"""Compare a table with an earlier state of it, or two reports: what got better or worse, and the
figures next to each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from icekit.common import frozen
from icekit.common.units import time_text
from icekit.common.view import (
    BYTES,
    COUNT,
    FIGURE,
    TEXT,
    Badge,
    Block,
    Grid,
    Item,
    Sentence,
    Shown,
    Unit,
)
from icekit.engine.lake import Lake
from icekit.health import TableFacts, observe
from icekit.health.diagnose import diagnose, document
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.maintain.planning.savings import savings_of, waiting_sentence
from icekit.report.history import trend
from icekit.report.history.store import HealthRecord, health_record
from icekit.show.card import next_step, size_range_rows

#: Incremented when a field changes its meaning or is removed.
SCHEMA_VERSION = 2


@frozen
class ComparedState:
    """A state of a table, as JSON."""

    table: str
    snapshot_id: int | None
    status: str


@frozen
class ComparedFigure:
    """A figure before and after, as JSON."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument:
    """A comparison as JSON."""

    schema_version: int = SCHEMA_VERSION
    before: ComparedState
    after: ComparedState
    verdict: str
    worse: Sequence[str]
    better: Sequence[str]
    figures: Sequence[ComparedFigure]


#: The figures of a record of health, each with its unit and its direction: 1 if more is worse, -1
#: if less is, 0 if neither.
_FIGURES: dict[str, tuple[Callable[[HealthRecord], float | None], Unit, int]] = {
    "data files": (lambda h: h.data_files, COUNT, 0),
    "data bytes": (lambda h: h.data_bytes, BYTES, 0),
    "data records": (lambda h: h.data_records, COUNT, 0),
    "delete files": (lambda h: h.delete_files, COUNT, 1),
    "delete records": (lambda h: h.delete_records, COUNT, 1),
    "avoidable file opens": (lambda h: h.opens_saved, COUNT, 1),
} | {m.title: (m.value_of, m.unit, m.direction) for m in trend.MEASURES}


_SAME = "no change"
_WORDS = {1: "worse", -1: "better"}
#: A choice: a smaller share of change is neither better nor worse.
_MUCH = 0.05


@dataclass(frozen=True, repr=False)
class ComparedStates(Shown):
    """Two states of a table (or two tables), and the thresholds that judge both."""

    before: TableFacts
    after: TableFacts
    thresholds: Thresholds

    @cached_property
    def findings(self) -> tuple[Findings, Findings]:
        """Those of both states."""
        return diagnose(self.before, self.thresholds), diagnose(self.after, self.thresholds)

    @cached_property
    def health_records(self) -> tuple[HealthRecord, HealthRecord]:
        """Both as a history has them."""
        findings_before, findings_after = self.findings
        savings_before = savings_of(self.before, findings_before, self.thresholds)
        savings_after = savings_of(self.after, findings_after, self.thresholds)
        return (
            health_record(self.before, findings_before, savings_before, ""),
            health_record(self.after, findings_after, savings_after, ""),
        )

    @cached_property
    def changes(self) -> trend.RunComparison:
        """What got worse, and what got better: findings that are new, gone or of another severity,
        and figures that crossed a threshold.
        """
        evidence_by_finding = {finding.name: finding.evidence for finding in self.findings[1]}
        return trend.changes(*self.health_records, self.thresholds, evidence_by_finding)

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``better and worse`` or ``no change``."""
        changes_by_verdict = {"better": self.changes.better, "worse": self.changes.worse}
        return (
            " and ".join(
                verdict_word
                for verdict_word, change_sentences in changes_by_verdict.items()
                if change_sentences
            )
            or _SAME
        )

    def figures(self) -> list[ComparedFigure]:
        """Each figure before and after."""
        return [
            ComparedFigure(figure_name, *map(figure_of, self.health_records))
            for figure_name, (figure_of, _, _) in _FIGURES.items()
        ]

    def blocks(self) -> list[Block]:
        """The verdict, what got worse and better, the next step, the files by size, and the
        figures that differ.
        """
        worse_sentences = self.changes.worse
        better_sentences = self.changes.better
        badge_kind = "warning" if worse_sentences else "fine" if better_sentences else "info"
        table_name = self.after.name
        if self.before.name != table_name:
            table_name = f"{self.before.name} and {table_name}"
        state_texts = [
            f"{time_text(facts.snapshot_ms or facts.collected_at_ms)}, snapshot "
            f"{facts.snapshot_id} ({health_record.status})"
            for facts, health_record in zip(
                (self.before, self.after), self.health_records, strict=True
            )
        ]
        postponed_sentence = waiting_sentence(self.after, self.findings[1], self.thresholds)
        step_and_command = next_step(self.findings[1], is_postponed=bool(postponed_sentence))
        badge_label = "no finding changed" if self.verdict == _SAME else self.verdict
        return [
            Badge(badge_kind, badge_label, table_name, " → ".join(state_texts)),
            *(
                Item(item_title, [("", change_sentence) for change_sentence in change_sentences])
                for item_title, change_sentences in (
                    ("Worse", worse_sentences),
                    ("Better", better_sentences),
                )
                if change_sentences
            ),
            Sentence("" if worse_sentences or better_sentences else "No finding came or went."),
            *([Item("Next", statements=[step_and_command[1]])] if step_and_command else []),
            self._sizes_grid(),
            self._changed_figures(),
        ]

    def _sizes_grid(self) -> Grid:
        """Data files by size, before and after; with different targets, a state lacks the ranges of
        the other.
        """
        missing_bar = "0" if self.before.target_bytes == self.after.target_bytes else None
        bars_by_range: dict[tuple[int, str], list[str | None]] = {}
        for state_index, facts in enumerate((self.before, self.after)):
            for lower_bytes, range_text, bar, _ in size_range_rows(facts, self.thresholds):
                range_key = (lower_bytes, range_text)
                bars_by_range.setdefault(range_key, [missing_bar] * 2)[state_index] = bar
        range_rows = [
            (range_text, *bars_by_range[lower_bytes, range_text])
            for lower_bytes, range_text in sorted(bars_by_range)
        ]
        return Grid(
            "Data files by size", dict.fromkeys(("size", "before", "after"), TEXT), range_rows
        )

    def _changed_figures(self) -> Grid:
        """The figures that differ, and which way."""
        figure_rows = []
        for figure_name, value_before, value_after in (
            (f.name, f.before, f.after) for f in self.figures()
        ):
            _, figure_unit, worse_direction = _FIGURES[figure_name]
            if value_before == value_after:
                continue
            value_texts = (
                None if figure_value is None else figure_unit.write(figure_value)
                for figure_value in (value_before, value_after)
            )
            change_text = verdict_word = None
            if value_before is not None and value_after is not None:
                is_significant = abs(value_after - value_before) >= _MUCH * value_before
                change_text = (
                    f"{100 * (value_after - value_before) / value_before:+,.0f} %"
                    if value_before
                    else None
                )
                verdict_word = _WORDS.get(
                    is_significant * worse_direction * (1 if value_after > value_before else -1)
                )
            figure_rows.append((figure_name, *value_texts, change_text, verdict_word or ""))
        grid_columns = {"figure": TEXT(""), "before": FIGURE, "after": FIGURE, "change": FIGURE}
        return Grid("Figures that changed", grid_columns | {"verdict": TEXT("")}, figure_rows)

    def document(self) -> ComparisonDocument:
        """The comparison as ``icekit compare --json`` prints it."""
        health_before, health_after = self.health_records
        return ComparisonDocument(
            before=_compared_state(health_before),
            after=_compared_state(health_after),
            verdict=self.verdict,
            worse=self.changes.worse,
            better=self.changes.better,
            figures=self.figures(),
        )


def _compared_state(record: HealthRecord) -> ComparedState:
    return ComparedState(record.table_name, record.snapshot_id, record.status)


def compare(
    before: TableFacts | str | Path,
    after: TableFacts | str | Path,
    *,
    lake: Lake | None = None,
    thresholds: Thresholds | None = None,
) -> ComparedStates:
    """Compare two states: facts, JSON reports by their path, or tables of a ``lake``
    (default: the embedded lake) as ``TABLE@REF``, with a branch, tag, snapshot id or date (without
    ``@REF``: as it is now).

    Raises the errors of :func:`icekit.health.observe`, and
    :class:`~icekit.common.errors.ParameterError` for a report that cannot be read.
    """
    thresholds_in_force = thresholds or Thresholds()
    facts_before = _facts_of(before, lake, thresholds_in_force)
    facts_after = _facts_of(after, lake, thresholds_in_force)
    return ComparedStates(facts_before, facts_after, thresholds_in_force)


def _facts_of(
    facts_source: TableFacts | str | Path, lake: Lake | None, thresholds: Thresholds
) -> TableFacts:
    if isinstance(facts_source, TableFacts):
        return facts_source
    if isinstance(facts_source, Path) or facts_source.endswith(".json"):
        return document.load_facts(Path(facts_source))
    table_name, separator, ref = facts_source.rpartition("@")
    if not separator or "`" in ref:
        table_name = facts_source
        ref = ""
    return observe(lake or Lake.connect(), table_name, ref=ref, size_ratios=thresholds.size_ratios)
