"""Move a table's limits: findings, charts and the trend follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as ipw

from icekit.answer import html
from icekit.answer.grid import FIGURE, TEXT, Grid
from icekit.diagnose.findings import Thresholds, findings_html
from icekit.errors import IcekitError
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size
from icekit.history.iceberg import store
from icekit.history.store import Health, health
from icekit.history.trend import same_table
from icekit.maintain.savings import savings_told, wins
from icekit.show import history_charts
from icekit.show.card import lines, sizes_html
from icekit.show.explorer import Explorer, widgets_on
from icekit.show.widgets.controls import (
    View,
    attempt,
    button,
    chosen,
    column,
    labelled,
    note,
    picture,
    row,
)
from icekit.units import count, percent, plain, size

# --- Describe the limits that can be moved: what each counts, where it comes from, and its range;
# no ipywidgets here


_CHOICE = "icekit default"
_SIZE = "min_file_size_ratio"


@dataclass(frozen=True, slots=True)
class Limit:
    """One threshold as a control: ``name`` is that in
    :class:`~icekit.diagnose.findings.Thresholds`.

    ``low``, ``high`` and ``step`` are in the threshold's own unit; a share is shown in percent.
    """

    name: str
    label: str
    unit: str
    source: str
    low: float
    high: float
    step: float

    @property
    def is_share(self) -> bool:
        """Tell whether it is a share of something."""
        return self.unit.startswith("%")

    @property
    def is_whole(self) -> bool:
        """Tell whether it is a whole number."""
        return isinstance(getattr(Thresholds(), self.name), int)


#: The limits that people move most, each of another finding; the others are a notebook's
# parameters.
LIMITS = (
    Limit(
        name="min_file_size_ratio",
        label="Small files: under",
        unit="% of the target size",
        source="rewrite_data_files: min-file-size-bytes",
        low=0,
        high=1,
        step=0.01,
    ),
    Limit(
        name="thin_partition_share",
        label="Small partitions: under",
        unit="% of one target file",
        source=_CHOICE,
        low=0,
        high=1,
        step=0.05,
    ),
    Limit(
        name="delete_ratio",
        label="Deletes: from",
        unit="% of the data records",
        source=_CHOICE,
        low=0,
        high=1,
        step=0.01,
    ),
    Limit(
        name="fragmented_manifests",
        label="Manifests: from",
        unit="manifests under half their target size",
        source="commit.manifest.min-count-to-merge",
        low=1,
        high=1000,
        step=1,
    ),
    Limit(
        name="snapshots",
        label="Snapshots: from",
        unit="snapshots kept",
        source=_CHOICE,
        low=1,
        high=1000,
        step=1,
    ),
)


def moved(thresholds: Thresholds) -> dict[str, float]:
    """The limits that differ from the defaults, as a notebook's ``thresholds`` parameter has
    them.
    """
    default = Thresholds()
    names = Thresholds.__dataclass_fields__
    return {
        name: getattr(thresholds, name)
        for name in names
        if getattr(thresholds, name) != getattr(default, name)
    }


def size_ratios(facts: TableFacts, also: float) -> tuple[float, ...]:
    """Limits of file size that the facts can answer exactly, as shares of the target: no bucket of
    sizes spans one. ``also`` is in force.
    """
    buckets = [b for g in facts.of_kind(Kind.DATA) for b in g.buckets]

    def is_exact(ratio: float) -> bool:
        # The same question as icekit.diagnose.findings.under: a file of exactly the limit is left
        # alone on either side.
        limit = min_file_size(facts.target_bytes, ratio)
        return not any(b.min_bytes < limit <= b.max_bytes for b in buckets)

    return tuple(sorted({also, *filter(is_exact, (round(0.05 * i, 2) for i in range(1, 21)))}))


# --- Move a limit and see the findings change at once: the facts stay the same, and judging them is
# arithmetic


class ThresholdsExplorer(Explorer):
    """Findings, and the limits they depend on."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.given = view.thresholds
        self._moving = False

    def static(self) -> str:
        """The findings, and the thresholds in force as a table."""
        rows = [
            (
                limit.label,
                limit_text(limit, getattr(self.view.thresholds, limit.name)),
                limit.unit.removeprefix("% ").removeprefix("× "),
                limit.source,
            )
            for limit in LIMITS
        ]
        columns = {
            "threshold": TEXT,
            "value": FIGURE,
            "unit": TEXT("unit"),
            "origin": TEXT("where it comes from"),
        }
        table = Grid("", columns, rows).html()
        return self._cards() + html.framed(
            f"<details><summary>Thresholds in force</summary>{table}</details>"
        )

    def build(self) -> Any:
        """A slider for each limit above the findings."""
        self.sliders = {limit.name: self._slider(limit) for limit in LIMITS}
        self.reset = button(
            "Reset thresholds",
            "set every threshold to the value in the notebook's parameters",
            self._reset,
        )
        self.said = picture()
        self.found = picture()
        for limit in LIMITS:
            chosen(self.sliders[limit.name], partial(self._move, limit))
        self.view.on_change(self._follow)
        self._show()
        rows = [
            row(self.sliders[limit.name], ipw.Label(f"{limit.unit}; {limit.source}"))
            for limit in LIMITS
        ]
        return column(*rows, row(self.reset), self.said, self.found)

    def _slider(self, limit: Limit) -> Any:
        value = getattr(self.view.thresholds, limit.name)
        tooltip = f"{limit.unit}; where it comes from: {limit.source}"
        layout = {"width": "32em"}
        if limit.name == _SIZE:
            return labelled(
                ipw.SelectionSlider,
                limit.label,
                tooltip,
                options=self._sizes(limit),
                value=value,
                continuous_update=False,
                layout=layout,
            )
        kind = ipw.IntSlider if limit.is_whole else ipw.FloatSlider
        options: dict[str, Any] = (
            {} if limit.is_whole else {"readout_format": ".0%" if limit.is_share else ".1f"}
        )
        return labelled(
            kind,
            limit.label,
            tooltip,
            min=min(limit.low, value),
            max=max(limit.high, value),
            step=limit.step,
            value=value,
            continuous_update=False,
            layout=layout,
            **options,
        )

    def _sizes(self, limit: Limit) -> list[tuple[str, float]]:
        """Limits of file size for which the facts have exact counts."""
        ratios = size_ratios(self.view.facts, getattr(self.view.thresholds, limit.name))
        return [
            (f"{limit_text(limit, r)} ({size(self.view.facts.target_bytes * r)})", r)
            for r in ratios
        ]

    def _move(self, limit: Limit) -> None:
        if self._moving:
            return
        value = self.sliders[limit.name].value
        before = self.view.thresholds

        def move() -> None:
            self.view.limit(before.with_changes(**{limit.name: value}))

        if not attempt(move, self.said):
            self._set(before)

    def _reset(self) -> None:
        if attempt(lambda: self.view.limit(self.given), self.said):
            self._set(self.given)

    def _set(self, limits: Thresholds) -> None:
        """Move every slider to its limit, without judging again for each."""
        self._moving = True
        try:
            for limit in LIMITS:
                slider = self.sliders[limit.name]
                if limit.name == _SIZE:
                    # Another table has another target size, and other exact limits.
                    slider.options = self._sizes(limit)
                slider.value = getattr(limits, limit.name)
        finally:
            self._moving = False

    def _follow(self) -> None:
        self._set(self.view.thresholds)
        self._show()

    def _show(self) -> None:
        changed = moved(self.view.thresholds)
        self.said.value = (
            note(f"To keep these thresholds: thresholds = {changed!r}") if changed else ""
        )
        self.found.value = self._cards()

    def _cards(self) -> str:
        found = self.view.findings
        facts = self.view.facts
        snapshot = dict(lines(facts))["snapshot"]
        context = [
            f"Snapshot {snapshot}; {count(facts.data.file_count, 'data file')}, "
            f"{size(facts.data.size_in_bytes)}."
        ]
        return findings_html(
            found,
            savings_told(facts, found, self.view.thresholds),
            context=context,
            picture=sizes_html(facts, self.view.thresholds),
        )


def limit_text(limit: Limit, value: float) -> str:
    """A limit's value, as text."""
    return percent(value) if limit.is_share else plain(value, 6)


# --- Draw a chart or a table of what is in view, and draw it again when another table comes into
# view or a limit is moved


class Following(Explorer):
    """What ``draw`` makes of the facts in view (a chart, or a frame), always of those in view.

    ``draw`` takes facts, and the limits where it has a parameter ``thresholds``. Without controls
    it is shown as ``draw`` made it, and there is nothing to move. Of two with the same ``name``
    (``draw`` unless given) the newer one follows: a cell that is run again draws in its new output
    alone.
    """

    def __init__(self, view: View, draw: Callable[..., Any], name: object = None) -> None:
        super().__init__()
        self.view, self._draw, self._name = view, draw, name or draw
        self._is_by_limits = "thresholds" in inspect.signature(draw).parameters
        self._make()

    def static(self) -> str:
        """The same as it is shown by itself."""
        return str(self.made._repr_html_())

    def build(self) -> Any:
        """A place for the picture, and no control."""
        self.shown = picture(self.static())
        self.view.on_change(self._follow, instead_of=self._name)
        return self.shown

    _of: tuple[object, object]

    def _make(self) -> None:
        limits = {"thresholds": self.view.thresholds} if self._is_by_limits else {}
        self.made = self._draw(self.view.facts, **limits)
        self._of = self._key()

    def _key(self) -> tuple[object, object]:
        return (self.view.facts, self.view.thresholds if self._is_by_limits else None)

    def _follow(self) -> None:
        facts, limits = self._of
        if facts is self.view.facts and limits == self._key()[1]:
            return
        try:
            self._make()
        except IcekitError as problem:
            # What was drawn is of another table, or by other limits: it goes.
            self._of = (None, None)
            self.shown.value = note(
                f"Nothing is shown of {self.view.facts.name}: {problem}", "critical"
            )
        else:
            self.shown.value = self.static()

    def __repr__(self) -> str:
        return repr(self.made)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        if widgets_on():
            return super()._repr_mimebundle_(include, exclude)
        return {"text/plain": repr(self.made), "text/html": self.made._repr_html_()}


# --- Follow the table in view through the runs that a history keeps of it


def trend(view: View, history: str = "") -> Following:
    """The figure that reaches its threshold first, and what got worse or better, over the runs in
    ``history`` (``table``, a SQLite file; empty: none).

    Earlier runs are read when another table comes into view, and not for every threshold that
    moves.
    """
    read: dict[tuple[str, str], Sequence[Health]] = {}

    def draw(facts: TableFacts, thresholds: Thresholds) -> Any:
        table = (view.lake.name, facts.name)
        if table not in read:
            kept = store(history, view.lake)
            read.clear()
            read[table] = kept.last([facts.name]).get(facts.name, ()) if kept else ()
        now = health(facts, view.findings, wins(facts, view.findings, thresholds), "now")
        earlier = (run for run in read[table] if run.observed_at_ms < now.observed_at_ms)
        return history_charts.trend(facts.name, same_table([*earlier, now]), thresholds)

    return Following(view, draw, "trend")
