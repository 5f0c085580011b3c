"""Compare a table with an earlier state of it, or two reports: what got better or worse, and the
figures next to each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from icekit.common import frozen
from icekit.common.units import moment
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
from icekit.maintain.savings import savings_of, waiting
from icekit.report.history import trend
from icekit.report.history.store import Health, health
from icekit.show.card import next_step, sized

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
_FIGURES: dict[str, tuple[Callable[[Health], float | None], Unit, int]] = {
    "data files": (lambda h: h.data_files, COUNT, 0),
    "data bytes": (lambda h: h.data_bytes, BYTES, 0),
    "data records": (lambda h: h.data_records, COUNT, 0),
    "delete files": (lambda h: h.delete_files, COUNT, 1),
    "delete records": (lambda h: h.delete_records, COUNT, 1),
    "avoidable file opens": (lambda h: h.opens_saved, COUNT, 1),
} | {m.title: (m.value, m.unit, m.direction) for m in trend.MEASURES}


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
    def states(self) -> tuple[Health, Health]:
        """Both as a history has them."""
        before, after = (
            health(facts, findings, savings_of(facts, findings, self.thresholds), "")
            for facts, findings in zip((self.before, self.after), self.findings, strict=True)
        )
        return before, after

    @cached_property
    def changes(self) -> trend.Comparison:
        """What got worse, and what got better: findings that are new, gone or of another severity,
        and figures that crossed a threshold.
        """
        evidence = {finding.name: finding.evidence for finding in self.findings[1]}
        return trend.changes(*self.states, self.thresholds, evidence)

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``better and worse`` or ``no change``."""
        words = {"better": self.changes.better, "worse": self.changes.worse}
        return " and ".join(word for word, changes in words.items() if changes) or _SAME

    def figures(self) -> list[ComparedFigure]:
        """Each figure before and after."""
        return [
            ComparedFigure(name, *map(value, self.states))
            for name, (value, _, _) in _FIGURES.items()
        ]

    def blocks(self) -> list[Block]:
        """The verdict, what got worse and better, the next step, the files by size, and the
        figures that differ.
        """
        worse = self.changes.worse
        better = self.changes.better
        kind = "warning" if worse else "fine" if better else "info"
        name = self.after.name
        if self.before.name != name:
            name = f"{self.before.name} and {name}"
        states = [
            f"{moment(facts.snapshot_ms or facts.collected_at_ms)}, snapshot {facts.snapshot_id} "
            f"({state.status})"
            for facts, state in zip((self.before, self.after), self.states, strict=True)
        ]
        later = waiting(self.after, self.findings[1], self.thresholds)
        step = next_step(self.findings[1], is_postponed=bool(later))
        label = "no finding changed" if self.verdict == _SAME else self.verdict
        return [
            Badge(kind, label, name, " → ".join(states)),
            *(
                Item(title, [("", each) for each in changes])
                for title, changes in (("Worse", worse), ("Better", better))
                if changes
            ),
            Sentence("" if worse or better else "No finding came or went."),
            *([Item("Next", statements=[step[1]])] if step else []),
            self._sizes(),
            self._changed(),
        ]

    def _sizes(self) -> Grid:
        """Data files by size, before and after; with different targets, a state lacks the ranges of
        the other.
        """
        lacking = "0" if self.before.target_bytes == self.after.target_bytes else None
        cells: dict[tuple[int, str], list[str | None]] = {}
        for state, facts in enumerate((self.before, self.after)):
            for start, label, bar, _ in sized(facts, self.thresholds):
                cells.setdefault((start, label), [lacking] * 2)[state] = bar
        rows = [(label, *cells[start, label]) for start, label in sorted(cells)]
        return Grid("Data files by size", dict.fromkeys(("size", "before", "after"), TEXT), rows)

    def _changed(self) -> Grid:
        """The figures that differ, and which way."""
        rows = []
        for name, before, after in ((f.name, f.before, f.after) for f in self.figures()):
            _, unit, direction = _FIGURES[name]
            if before == after:
                continue
            value_texts = (
                None if value is None else unit.write(value) for value in (before, after)
            )
            change = word = None
            if before is not None and after is not None:
                is_much = abs(after - before) >= _MUCH * before
                change = f"{100 * (after - before) / before:+,.0f} %" if before else None
                word = _WORDS.get(is_much * direction * (1 if after > before else -1))
            rows.append((name, *value_texts, change, word or ""))
        columns = {"figure": TEXT(""), "before": FIGURE, "after": FIGURE, "change": FIGURE}
        return Grid("Figures that changed", columns | {"verdict": TEXT("")}, rows)

    def document(self) -> ComparisonDocument:
        """The comparison as ``icekit compare --json`` prints it."""
        before, after = (
            ComparedState(state.table_name, state.snapshot_id, state.status)
            for state in self.states
        )
        return ComparisonDocument(
            before=before,
            after=after,
            verdict=self.verdict,
            worse=self.changes.worse,
            better=self.changes.better,
            figures=self.figures(),
        )


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
    limits = thresholds or Thresholds()
    first = _read(before, lake, limits)
    second = _read(after, lake, limits)
    return ComparedStates(first, second, limits)


def _read(source: TableFacts | str | Path, lake: Lake | None, limits: Thresholds) -> TableFacts:
    if isinstance(source, TableFacts):
        return source
    if isinstance(source, Path) or source.endswith(".json"):
        return document.load_facts(Path(source))
    name, separator, ref = source.rpartition("@")
    if not separator or "`" in ref:
        name = source
        ref = ""
    return observe(lake or Lake.connect(), name, ref=ref, size_ratios=limits.size_ratios)
