"""Choose a table and a snapshot, and move the thresholds: findings, charts and the trend follow."""

import inspect
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from icekit.common import frozen
from icekit.common.errors import IcekitError, why
from icekit.common.sql import display_name
from icekit.common.units import count, size
from icekit.common.view import COUNT, SHARE, Sentence, Unit, as_html
from icekit.engine.tables import EmbeddedTables
from icekit.health import observe
from icekit.health.diagnose.findings import Thresholds, findings_html
from icekit.health.facts.model import TableFacts
from icekit.maintain.planning.savings import savings_of, savings_sentences
from icekit.report.history.store import HistoryFile, health_record
from icekit.report.history.trend import runs_since_creation
from icekit.show import charts
from icekit.show.card import card_html, named_fact_sentences, size_bars
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import (
    View,
    button,
    column,
    html_area,
    labelled_control,
    note,
    row,
    text_field,
    toolkit,
)

_BELOW = (
    "The panels show it now. Other cells still show the previous table; to re-run them, use Run ▸ "
    "Run Selected Cell and All Below."
)


class Chooser(Explorer):
    """The card of the table in view, and a choice of any other of the catalog."""

    def static_html(self) -> str:
        """The card of the table in view."""
        return card_html(self.view.facts, self.view.findings, self.view.thresholds)

    def build_controls(self) -> Any:
        """A table, a snapshot and a button; nothing is read before it is pressed, but the embedded
        lake's own list of tables.
        """
        lake_tables = self.view.lake.tables
        table_names = (
            [display_name(table_identifier) for table_identifier in lake_tables.names()]
            if isinstance(lake_tables, EmbeddedTables)
            else []
        )
        self.table = labelled_control(
            toolkit().Combobox,
            "Table",
            "namespace.table",
            value=self.view.facts.name,
            options=table_names,
            continuous_update=False,
        )
        self.ref = text_field(
            "Snapshot",
            "a branch, a tag or a snapshot id of the table; empty: what it is now",
            self.view.facts.ref or "",
        )
        self.button = button(
            "Observe",
            "read this table's metadata at this snapshot; writes nothing and opens no data file. "
            "To stop it, interrupt the kernel",
            self._observe,
            button_style="primary",
        )
        self.message = html_area()
        self.card = html_area(self.static_html())
        self.view.on_change(self._on_view_change)
        return column(self.table, self.ref, self.button, self.message, self.card)

    def _observe(self) -> None:
        """Read the chosen table, and put it in view; a problem leaves the view as it was."""
        view = self.view
        table_name = self.table.value.strip()
        ref = self.ref.value.strip()
        self.message.value = note(f"Reading {table_name} …")
        filter_columns = view.facts.filter_columns if table_name == view.facts.name else None
        try:
            facts = observe(
                view.lake,
                table_name,
                ref=ref,
                size_ratios=view.thresholds.size_ratios,
                filter_columns=filter_columns,
            )
            view.look_at(facts)
        except KeyboardInterrupt:
            self.message.value = note(f"Stopped. {view.facts.name} stays in view.", "warning")
        except Exception as problem:
            self.message.value = note(why(problem), "critical")
        else:
            sentence = f"{facts.name}: read in {facts.seconds:.1f} s by {facts.collector}. {_BELOW}"
            self.message.value = note(sentence, "fine")

    def _on_view_change(self) -> None:
        if self.table.value != self.view.facts.name:
            self.table.value = self.view.facts.name
            self.ref.value = self.view.facts.ref or ""
        self.card.value = self.static_html()


@frozen
class SliderSetting:
    """One threshold as a slider: ``threshold_name`` is that in
    :class:`~icekit.health.diagnose.findings.Thresholds`; ``threshold_meaning`` is what it is a
    share or a number of, and ``threshold_source`` where its default comes from.
    """

    threshold_name: str
    label: str
    threshold_meaning: str
    unit: Unit = SHARE
    threshold_source: str = "icekit default"


#: The thresholds that people move most, each of another finding; the others are a notebook's
#: parameters.
SLIDERS = (
    SliderSetting("thin_partition_share", "Small partitions: under", "of one target file"),
    SliderSetting("delete_ratio", "Deletes: from", "of the data records"),
    SliderSetting(
        "fragmented_manifests",
        "Manifests: from",
        "manifests under half their target size",
        COUNT,
        "commit.manifest.min-count-to-merge",
    ),
    SliderSetting("snapshots", "Snapshots: from", "snapshots kept", COUNT),
)


def changed_values(thresholds: Thresholds) -> dict[str, float]:
    """The thresholds that differ from the defaults, as a notebook's ``thresholds`` parameter has
    them.
    """
    default_values = asdict(Thresholds())
    return {
        threshold_name: threshold_value
        for threshold_name, threshold_value in asdict(thresholds).items()
        if threshold_value != default_values[threshold_name]
    }


class ThresholdsExplorer(Explorer):
    """Findings, and the thresholds they depend on."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.first_thresholds = view.thresholds
        self._is_following = False

    def static_html(self) -> str:
        """The findings, each with its threshold, then the sizes of the files."""
        facts = self.view.facts
        findings = self.view.findings
        thresholds = self.view.thresholds
        snapshot_sentence = (
            f"Snapshot {dict(named_fact_sentences(facts))['snapshot']}; "
            f"{count(facts.data.file_count, 'data file')}, {size(facts.data.size_in_bytes)}."
        )
        file_sizes_html = as_html([Sentence(snapshot_sentence), size_bars(facts, thresholds)])
        savings_text = savings_sentences(facts, findings, thresholds)
        return findings_html(findings, savings_text) + file_sizes_html

    def build_controls(self) -> Any:
        """A slider for each threshold above the findings."""
        self.sliders = {
            slider_setting.threshold_name: self._slider(slider_setting)
            for slider_setting in SLIDERS
        }
        self.reset = button(
            "Reset thresholds",
            "set every threshold to the value in the notebook's parameters",
            lambda: self.view.judge_by(self.first_thresholds),
        )
        self.message = html_area()
        self.findings = html_area()
        self.view.on_change(self._on_view_change)
        self._show_findings()
        slider_rows = [
            row(
                self.sliders[slider_setting.threshold_name],
                toolkit().Label(
                    f"{slider_setting.threshold_meaning}; {slider_setting.threshold_source}"
                ),
            )
            for slider_setting in SLIDERS
        ]
        return column(*slider_rows, self.reset, self.message, self.findings)

    def _slider(self, slider_setting: SliderSetting) -> Any:
        threshold_value = getattr(self.view.thresholds, slider_setting.threshold_name)
        scale_options = {
            "min": 0,
            "max": max(1, threshold_value),
            "step": 0.01,
            "readout_format": ".0%",
        }
        if slider_setting.unit is COUNT:
            scale_options = {
                "min": min(1, threshold_value),
                "max": max(1000, threshold_value),
                "step": 1,
                "readout_format": ".0f",
            }
        slider = labelled_control(
            toolkit().FloatSlider,
            slider_setting.label,
            f"{slider_setting.threshold_meaning}; where it comes from: "
            f"{slider_setting.threshold_source}",
            value=threshold_value,
            continuous_update=False,
            width="32em",
            **scale_options,
        )
        slider.observe(partial(self._move, slider_setting.threshold_name), names="value")
        return slider

    def _move(self, threshold_name: str, value_change: Any) -> None:
        if not self._is_following:
            self.view.judge_by(
                self.view.thresholds.with_changes(**{threshold_name: value_change.new})
            )

    def _on_view_change(self) -> None:
        """Move every slider to its threshold, without judging again for each."""
        self._is_following = True
        for threshold_name, slider in self.sliders.items():
            slider.value = getattr(self.view.thresholds, threshold_name)
        self._is_following = False
        self._show_findings()

    def _show_findings(self) -> None:
        changed_thresholds = changed_values(self.view.thresholds)
        sentence = f"To keep these thresholds: thresholds = {changed_thresholds!r}"
        self.message.value = note(sentence) if changed_thresholds else ""
        self.findings.value = self.static_html()


class Following(Explorer):
    """What ``draw`` makes of the facts in view (a chart, or a grid), always of those in view.

    ``draw`` takes facts, and the thresholds where it has a parameter ``thresholds``. Without
    controls it is shown as ``draw`` made it, and there is nothing to move. Of two with the same
    ``name`` (``draw`` unless given) the newer one follows: a cell that is run again draws in its
    new output alone.
    """

    def __init__(self, view: View, draw: Callable[..., Any], name: object = None) -> None:
        super().__init__(view)
        self._draw = draw
        self._name = name or draw
        self._has_thresholds = "thresholds" in inspect.signature(draw).parameters
        self._redraw()

    def static_html(self) -> str:
        """The same as it is shown by itself."""
        return str(self.drawing._repr_html_())

    def build_controls(self) -> Any:
        """An area for the drawing, and no control."""
        self.area = html_area(self.static_html())
        self.view.on_change(self._on_view_change, key=self._name)
        return self.area

    def _draw_arguments(self) -> tuple[TableFacts, dict[str, Any]]:
        threshold_arguments = {"thresholds": self.view.thresholds} if self._has_thresholds else {}
        return self.view.facts, threshold_arguments

    def _redraw(self) -> None:
        self._inputs_drawn: object = None
        facts, threshold_arguments = self._draw_arguments()
        self.drawing = self._draw(facts, **threshold_arguments)
        self._inputs_drawn = facts, threshold_arguments

    def _on_view_change(self) -> None:
        if self._draw_arguments() == self._inputs_drawn:
            return
        try:
            self._redraw()
        except IcekitError as problem:
            # What was drawn is of another table, or by other thresholds: it goes.
            self.area.value = note(
                f"Nothing is shown of {self.view.facts.name}: {problem}", "critical"
            )
        else:
            self.area.value = self.static_html()

    def __repr__(self) -> str:
        return repr(self.drawing)


def trend(view: View, history: str = "") -> Following:
    """The figure that reaches its threshold first, and what got worse or better, over the runs in
    the SQLite file ``history`` (empty: none).
    """

    def draw(facts: TableFacts, thresholds: Thresholds) -> Any:
        latest_run = health_record(
            facts, view.findings, savings_of(facts, view.findings, thresholds), "now"
        )
        earlier_runs = []
        if history:
            stored_runs = (
                HistoryFile(Path(history).expanduser())
                .newest_runs([facts.name])
                .get(facts.name, ())
            )
            earlier_runs = [
                run for run in stored_runs if run.observed_at_ms < latest_run.observed_at_ms
            ]
        return charts.trend(
            facts.name, runs_since_creation([*earlier_runs, latest_run]), thresholds
        )

    return Following(view, draw, "trend")
