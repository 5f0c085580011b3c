"""Compare a table with an earlier state of it, or two reports: what got better or worse, and the
figures next to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from icekit.answer.grid import BYTES, COUNT, FIGURE, SHARE, TEXT, Grid, Unit
from icekit.answer.view import Badge, Block, Item, Sentence, Shown
from icekit.catalog import Lake
from icekit.diagnose import diagnose, document
from icekit.diagnose.findings import Findings, Thresholds
from icekit.facts import TableFacts, observe
from icekit.facts.rollup import delete_ratio
from icekit.history import trend
from icekit.history.store import Health, health
from icekit.maintain.savings import wins
from icekit.units import moment, percent

#: Incremented when a field changes its meaning or is removed.
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ComparedState:
    """A state of a table, as JSON."""

    table: str
    snapshot_id: int | None
    status: str


@dataclass(frozen=True, slots=True)
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


#: The figures of a state, each with its unit.
FIGURES: dict[str, tuple[Unit, Callable[[TableFacts], float | None]]] = {
    "data files": (COUNT, lambda f: f.data.file_count),
    "bytes": (BYTES, lambda f: f.data.size_in_bytes),
    "mean file size": (BYTES, lambda f: f.data.mean_bytes),
    "records": (COUNT, lambda f: f.data.record_count),
    "partitions": (COUNT, lambda f: len(set(f.partitions()))),
    "delete records": (COUNT, lambda f: delete_ratio(f).delete_record_count),
    "delete records per data record": (SHARE, lambda f: delete_ratio(f).by_records),
    "file opens of a full scan": (COUNT, lambda f: wins(f, Findings()).opens),
    "manifests": (COUNT, lambda f: f.manifests.data_count + f.manifests.delete_count),
    "snapshots": (COUNT, lambda f: f.history.snapshot_count),
}


@dataclass(frozen=True, repr=False)
class ComparedStates(Shown):
    """Two states of a table (or two tables), and the thresholds that judge both."""

    before: TableFacts
    after: TableFacts
    thresholds: Thresholds

    @cached_property
    def states(self) -> tuple[Health, Health]:
        """Both as a history has them."""
        return self._health(self.before), self._health(self.after)

    def _health(self, facts: TableFacts) -> Health:
        findings = diagnose(facts, self.thresholds)
        return health(facts, findings, wins(facts, findings, self.thresholds), "")

    @property
    def changes(self) -> tuple[Sequence[str], Sequence[str]]:
        """What got worse, and what got better: findings that are new, gone or of another severity,
        and figures that crossed a threshold.
        """
        return trend.changes(*self.states, self.thresholds)

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``better and worse`` or ``no change``."""
        worse, better = self.changes
        return " and ".join(["better"] * bool(better) + ["worse"] * bool(worse)) or "no change"

    def figures(self) -> list[tuple[str, Unit, float | None, float | None]]:
        """Each figure with its unit, before and after."""
        return [
            (name, unit, read(self.before), read(self.after))
            for name, (unit, read) in FIGURES.items()
        ]

    def blocks(self) -> list[Block]:
        """The verdict, what got worse and better, and the figures that differ."""
        worse, better = self.changes
        kind = "warning" if worse else "fine" if better else "info"
        name = self.after.name
        if self.before.name != name:
            name = f"{self.before.name} and {name}"
        columns = {"figure": TEXT(""), "before": FIGURE, "after": FIGURE, "change": FIGURE}
        states = [
            f"{moment(facts.snapshot_ms or facts.collected_at_ms)} ({state.status})"
            for facts, state in zip((self.before, self.after), self.states, strict=True)
        ]
        rows = [
            (
                figure,
                *(unit.write(v) if v is not None else None for v in (old, new)),
                _change(old, new),
            )
            for figure, unit, old, new in self.figures()
            if old != new
        ]
        return [
            Badge(kind, self.verdict, name, " → ".join(states)),
            *([Item("Worse", [("", each) for each in worse])] if worse else []),
            *([Item("Better", [("", each) for each in better])] if better else []),
            *([] if worse or better else [Sentence("No finding came or went.", is_strong=True)]),
            Grid("Figures that changed", columns, rows),
        ]

    def document(self) -> ComparisonDocument:
        """The comparison as ``icekit compare --json`` prints it."""
        worse, better = self.changes
        before, after = (
            ComparedState(state.table_name, state.snapshot_id, str(state.status))
            for state in self.states
        )
        return ComparisonDocument(
            before=before,
            after=after,
            verdict=self.verdict,
            worse=worse,
            better=better,
            figures=[ComparedFigure(name, old, new) for name, _, old, new in self.figures()],
        )


def compare(
    before: TableFacts | str | Path,
    after: TableFacts | str | Path,
    *,
    lake: Lake | None = None,
    thresholds: Thresholds | None = None,
) -> ComparedStates:
    """Compare two states: facts, JSON reports by their path, or tables of a ``lake`` as
    ``TABLE@REF``, with a branch, tag, snapshot id or date (without ``@REF``: as it is now).

    Raises the errors of :func:`icekit.facts.observe`, and
    :class:`~icekit.errors.ParameterError` for a report that cannot be read.
    """
    limits = thresholds or Thresholds()
    first, second = (_read(each, lake, limits) for each in (before, after))
    return ComparedStates(first, second, limits)


def _read(what: TableFacts | str | Path, lake: Lake | None, limits: Thresholds) -> TableFacts:
    if isinstance(what, TableFacts):
        return what
    if lake is None or isinstance(what, Path) or what.endswith(".json"):
        return document.load_facts(Path(what))
    name, at, ref = what.rpartition("@")
    if not at or "`" in ref:
        name, ref = what, ""
    return observe(lake, name, ref=ref or None, size_ratios=limits.size_ratios)


def _change(old: float | None, new: float | None) -> str | None:
    """``× 12``, ``+14 %`` or ``−92 %``; None if one of them is nothing."""
    if not old or new is None:
        return None
    if new >= 2 * old:
        return f"× {new / old:,.0f}"
    sign = "+" if new > old else "−"
    return f"{sign}{percent(abs(new - old) / old)}"
