"""Compare a table with an earlier state of it, or two reports: what got better or worse, and the
figures next to each other.
"""

from collections.abc import Sequence
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
from icekit.health.findings import Thresholds
from icekit.maintain.savings import wins
from icekit.report.history import trend
from icekit.report.history.store import Health, health

#: Incremented when a field changes its meaning or is removed.
SCHEMA_VERSION = 1


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


#: The figures of a record of health that are shown besides those with a threshold.
FIGURES: dict[str, Unit] = {
    "data files": COUNT,
    "data bytes": BYTES,
    "data records": COUNT,
    "delete files": COUNT,
    "delete records": COUNT,
    "opens saved": COUNT,
}
_UNITS = FIGURES | {measure.title: measure.unit for measure in trend.MEASURES}


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

    @cached_property
    def changes(self) -> trend.Comparison:
        """What got worse, and what got better: findings that are new, gone or of another severity,
        and figures that crossed a threshold.
        """
        return trend.changes(*self.states, self.thresholds)

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``better and worse`` or ``no change``."""
        words = {"better": self.changes.better, "worse": self.changes.worse}
        return " and ".join(word for word, changes in words.items() if changes) or "no change"

    def figures(self) -> list[ComparedFigure]:
        """Each figure before and after."""
        named = (
            [getattr(state, name.replace(" ", "_")) for name in FIGURES]
            + [measure.value(state) for measure in trend.MEASURES]
            for state in self.states
        )
        return list(map(ComparedFigure, _UNITS, *named))

    def blocks(self) -> list[Block]:
        """The verdict, what got worse and better, and the figures that differ."""
        worse, better = self.changes.worse, self.changes.better
        kind = "warning" if worse else "fine" if better else "info"
        name = self.after.name
        if self.before.name != name:
            name = f"{self.before.name} and {name}"
        columns = {"figure": TEXT(""), "before": FIGURE, "after": FIGURE, "change": FIGURE}
        states = [
            f"{moment(facts.snapshot_ms or facts.collected_at_ms)}, snapshot {facts.snapshot_id} "
            f"({state.status})"
            for facts, state in zip((self.before, self.after), self.states, strict=True)
        ]
        rows = [
            (
                f.name.replace("opens saved", "avoidable file opens"),
                *(None if v is None else _UNITS[f.name].write(v) for v in (f.before, f.after)),
                f"{100 * (f.after - f.before) / f.before:+,.0f} %"
                if f.before and f.after is not None
                else None,
            )
            for f in self.figures()
            if f.before != f.after
        ]
        return [
            Badge(kind, self.verdict, name, " → ".join(states)),
            *(
                Item(title, [("", each) for each in changes])
                for title, changes in (("Worse", worse), ("Better", better))
                if changes
            ),
            Sentence("" if worse or better else "No finding came or went."),
            Grid("Figures that changed", columns, rows),
        ]

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
    first, second = (_read(each, lake, limits) for each in (before, after))
    return ComparedStates(first, second, limits)


def _read(what: TableFacts | str | Path, lake: Lake | None, limits: Thresholds) -> TableFacts:
    if isinstance(what, TableFacts):
        return what
    if isinstance(what, Path) or what.endswith(".json"):
        return document.load_facts(Path(what))
    name, at, ref = what.rpartition("@")
    if not at or "`" in ref:
        name, ref = what, ""
    return observe(lake or Lake.connect(), name, ref=ref, size_ratios=limits.size_ratios)
