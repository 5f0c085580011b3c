"""Choose a table and a snapshot, and move the limits: findings, charts and the trend follow."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from icekit.common import frozen
from icekit.common.errors import IcekitError
from icekit.common.sql import display_name
from icekit.common.units import count, size
from icekit.common.view import COUNT, SHARE, Sentence, Unit, as_html
from icekit.engine.interrupting import Stop
from icekit.engine.tables import EmbeddedTables
from icekit.health import observe
from icekit.health.diagnose.findings import Thresholds, findings_html
from icekit.health.facts.model import TableFacts
from icekit.maintain.savings import savings_of, savings_sentence
from icekit.report.history.store import Health, HistoryFile, health
from icekit.report.history.trend import runs_since_creation
from icekit.show import charts
from icekit.show.card import card_html, fact_texts, size_bars
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import (
    Progress,
    Say,
    View,
    button,
    column,
    interruptible,
    labelled,
    note,
    picture,
    row,
    toolkit,
)

_BELOW = (
    "The panels below show it now. Other cells still show the previous table; to re-run them, use "
    "Run ▸ Run Selected Cell and All Below."
)


class Chooser(Explorer):
    """The card of the table in view, and a choice of any other of the catalog."""

    def static(self) -> str:
        """The card of the table in view."""
        return card_html(self.view.facts, self.view.findings, self.view.thresholds)

    def build(self) -> Any:
        """A table, a snapshot and a button; nothing is read before it is pressed, but the embedded
        lake's own list of tables.
        """
        tables = self.view.lake.tables
        names = (
            [display_name(name) for name in tables.names()]
            if isinstance(tables, EmbeddedTables)
            else []
        )
        # Both are sent as a whole when a person leaves them: while somebody types, the front end
        # sends some letters late, after the button's press.
        self.table = labelled(
            toolkit().Combobox,
            "Table",
            "namespace.table",
            value=self.view.facts.name,
            options=names,
            continuous_update=False,
        )
        self.ref = labelled(
            toolkit().Text,
            "Snapshot",
            "a branch, a tag or a snapshot id of the table; empty: what it is now",
            value=self.view.facts.ref or "",
            continuous_update=False,
        )
        self.observe = button(
            "Observe",
            "read this table's metadata at this snapshot; writes nothing and opens no data file",
            self._observe,
            style="primary",
        )
        self.progress = Progress(
            self.view, "nothing was changed, and the same table stays in view."
        )
        self.card = picture(self.static())
        self.view.on_change(self._follow)
        self.view.on_hold(self._rest)
        self._follow()
        return column(
            self.table,
            self.ref,
            row(self.observe, self.progress.cancel),
            self.progress.log,
            self.card,
        )

    def _observe(self) -> None:
        table = self.table.value.strip()
        ref = self.ref.value.strip()
        view = self.view
        lake = view.lake

        def job(_: Say, stop: Stop) -> TableFacts:
            def progress(_read: int, _of: int) -> None:
                stop.check()

            cancels = interruptible(lake.spark, stop) if lake.spark_is_running else nullcontext()
            ratios = view.thresholds.size_ratios
            given: Any = {"size_ratios": ratios, "progress": progress}
            if table == view.facts.name:
                given["filter_columns"] = view.facts.filter_columns
            with cancels:
                return observe(lake, table, ref=ref, **given)

        def done(facts: TableFacts) -> tuple[str, str]:
            view.look_at(facts)
            message = f"{facts.name}: read in {facts.seconds:.1f} s by {facts.collector}. {_BELOW}"
            return message, "fine"

        self.progress.run(f"Reading {table} (panels below still show {view.facts.name})", job, done)

    def _follow(self) -> None:
        if self.table.value != self.view.facts.name:
            self.table.value = self.view.facts.name
            self.ref.value = self.view.facts.ref or ""
        self.card.value = self.static()

    def _rest(self) -> None:
        """No other table can be chosen while work is in progress on the one in view."""
        for control in (self.table, self.ref, self.observe):
            control.disabled = bool(self.view.held)


@frozen
class Limit:
    """One threshold as a control: ``name`` is that in
    :class:`~icekit.health.diagnose.findings.Thresholds`; ``of`` is what it is a share or a number
    of.
    """

    name: str
    label: str
    of: str
    unit: Unit = SHARE
    source: str = "icekit default"


#: The limits that people move most, each of another finding; the others are a notebook's
#: parameters.
LIMITS = (
    Limit("thin_partition_share", "Small partitions: under", "of one target file"),
    Limit("delete_ratio", "Deletes: from", "of the data records"),
    Limit(
        "fragmented_manifests",
        "Manifests: from",
        "manifests under half their target size",
        COUNT,
        "commit.manifest.min-count-to-merge",
    ),
    Limit("snapshots", "Snapshots: from", "snapshots kept", COUNT),
)


def moved(thresholds: Thresholds) -> dict[str, float]:
    """The limits that differ from the defaults, as a notebook's ``thresholds`` parameter has
    them.
    """
    default = asdict(Thresholds())
    return {name: value for name, value in asdict(thresholds).items() if value != default[name]}


class ThresholdsExplorer(Explorer):
    """Findings, and the limits they depend on."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.given = view.thresholds
        self._moving = False

    def static(self) -> str:
        """The findings, each with its threshold, then the sizes of the files."""
        facts = self.view.facts
        findings = self.view.findings
        limits = self.view.thresholds
        line = (
            f"Snapshot {dict(fact_texts(facts))['snapshot']}; "
            f"{count(facts.data.file_count, 'data file')}, {size(facts.data.size_in_bytes)}."
        )
        about = as_html([Sentence(line), size_bars(facts, limits)])
        return findings_html(findings, savings_sentence(facts, findings, limits)) + about

    def build(self) -> Any:
        """A slider for each limit above the findings."""
        self.sliders = {limit.name: self._slider(limit) for limit in LIMITS}
        self.reset = button(
            "Reset thresholds",
            "set every threshold to the value in the notebook's parameters",
            self._reset,
        )
        self.message = picture()
        self.cards = picture()
        self.view.on_change(self._follow)
        self._show()
        rows = [
            row(self.sliders[limit.name], toolkit().Label(f"{limit.of}; {limit.source}"))
            for limit in LIMITS
        ]
        return column(*rows, self.reset, self.message, self.cards)

    def _slider(self, limit: Limit) -> Any:
        value = getattr(self.view.thresholds, limit.name)
        low, high, step, written = (
            (1, 1000, 1, ".0f") if limit.unit is COUNT else (0, 1, 0.01, ".0%")
        )
        slider = labelled(
            toolkit().FloatSlider,
            limit.label,
            f"{limit.of}; where it comes from: {limit.source}",
            value=value,
            continuous_update=False,
            width="32em",
            min=min(low, value),
            max=max(high, value),
            step=step,
            readout_format=written,
        )
        slider.observe(partial(self._move, limit), names="value")
        return slider

    def _move(self, limit: Limit, change: Any) -> None:
        if not self._moving:
            self.view.limit(self.view.thresholds.with_changes(**{limit.name: change.new}))

    def _reset(self) -> None:
        self.view.limit(self.given)

    def _follow(self) -> None:
        """Move every slider to its limit, without judging again for each."""
        self._moving = True
        for name, slider in self.sliders.items():
            slider.value = getattr(self.view.thresholds, name)
        self._moving = False
        self._show()

    def _show(self) -> None:
        changed = moved(self.view.thresholds)
        self.message.value = (
            note(f"To keep these thresholds: thresholds = {changed!r}") if changed else ""
        )
        self.cards.value = self.static()


class Following(Explorer):
    """What ``draw`` makes of the facts in view (a chart, or a frame), always of those in view.

    ``draw`` takes facts, and the limits where it has a parameter ``thresholds``. Without controls
    it is shown as ``draw`` made it, and there is nothing to move. Of two with the same ``name``
    (``draw`` unless given) the newer one follows: a cell that is run again draws in its new output
    alone.
    """

    def __init__(self, view: View, draw: Callable[..., Any], name: object = None) -> None:
        super().__init__(view)
        self._draw = draw
        self._name = name or draw
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

    def _inputs(self) -> tuple[TableFacts, dict[str, Any]]:
        limits = {"thresholds": self.view.thresholds} if self._is_by_limits else {}
        return self.view.facts, limits

    def _make(self) -> None:
        self._drawn: object = None
        facts, limits = self._inputs()
        self.made = self._draw(facts, **limits)
        self._drawn = facts, limits

    def _follow(self) -> None:
        if self._inputs() == self._drawn:
            return
        try:
            self._make()
        except IcekitError as problem:
            # What was drawn is of another table, or by other limits: it goes.
            self.shown.value = note(
                f"Nothing is shown of {self.view.facts.name}: {problem}", "critical"
            )
        else:
            self.shown.value = self.static()

    def __repr__(self) -> str:
        return repr(self.made)


def trend(view: View, history: str = "") -> Following:
    """The figure that reaches its threshold first, and what got worse or better, over the runs in
    the SQLite file ``history`` (empty: none).

    Earlier runs are read when another table comes into view, and not for every threshold that
    moves.
    """

    @lru_cache(maxsize=1)
    def kept(table: str) -> Sequence[Health]:
        if not history:
            return ()
        return HistoryFile(Path(history).expanduser()).newest_runs([table]).get(table, ())

    def draw(facts: TableFacts, thresholds: Thresholds) -> Any:
        now = health(facts, view.findings, savings_of(facts, view.findings, thresholds), "now")
        earlier = (run for run in kept(facts.name) if run.observed_at_ms < now.observed_at_ms)
        return charts.trend(facts.name, runs_since_creation([*earlier, now]), thresholds)

    return Following(view, draw, "trend")
