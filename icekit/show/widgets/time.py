"""Slide through a table's past and see its file sizes at each snapshot; read when asked for, and then kept."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from icekit.compact.execute import Stop
from icekit.facts.through_time import MOST, SizesAt, spread, through_time
from icekit.show.explorer import Explorer
from icekit.show.time_charts import sizes_at_one, sizes_through_time
from icekit.show.widgets.comparing import too_much_at_once
from icekit.show.widgets.controls import Progress, button, chosen, column, labelled, note, picture, row
from icekit.show.widgets.view import View
from icekit.show.widgets.work import Say
from icekit.units import count


class TimeExplorer(Explorer):
    """File sizes at snapshots spread over the table's history."""

    def __init__(self, view: View, at_once: int = 0) -> None:
        super().__init__()
        self.view = view
        self.sizes: tuple[SizesAt, ...] = ()
        # By table, target and snapshot: a table that comes back into view is not read again.
        self._known: dict[tuple[object, ...], dict[int, SizesAt]] = {}
        self._drawn: dict[tuple[int, int], str] = {}
        self._why_not = "No snapshot of the past was read: none was asked for."
        self._shown_of: object = (self._key(), view.thresholds.size_ratios)
        if at_once > 0:
            if too_much := too_much_at_once(view):
                self._why_not = f"No snapshot of the past was read: {too_much}"
            else:
                self.sizes = through_time(view.lake, view.facts, at_once, known=self._cache())

    def static(self) -> str:
        """All the snapshots read in one chart, or why there is none."""
        return sizes_through_time(self.view.facts, self.sizes, self.view.thresholds)._repr_html_() if self.sizes else note(self._why_not)

    def build(self) -> Any:
        """A button that reads, a slider through what was read, and the picture."""
        self.read = button("Read", "", self._read, style="primary")
        self.slider = labelled(
            ipw.SelectionSlider, "Snapshot", "which snapshot's file sizes are shown", options=["none read yet"], continuous_update=False
        )
        self.progress = Progress("what was read is kept, and the rest is read when you press the button again.", [self.read])
        self.at = picture()
        self.all = picture()
        chosen(self.slider, self._show_one)
        self.view.on_change(self._follow)
        self._say_what()
        self._show()
        return column(row(self.read, self.progress.cancel), self.progress.told, self.slider, self.at, self.all)

    def _key(self) -> tuple[object, ...]:
        facts = self.view.facts
        return facts.catalog, facts.table, facts.table_uuid, facts.snapshot_id, facts.target_bytes

    def _cache(self) -> dict[int, SizesAt]:
        catalog, table, uuid, _, target = self._key()
        return self._known.setdefault((catalog, table, uuid, target), {})

    def _say_what(self) -> None:
        chosen_now = spread(self.view.facts.history.commits)
        todo = sum(c.snapshot_id not in self._cache() for c in chosen_now)
        self.read.description = f"Read {count(todo, 'more snapshot') if len(chosen_now) > todo else count(todo, 'snapshot')}"
        self.read.tooltip = f"read the metadata of up to {MOST} snapshots spread over the history of {self.view.facts.name}; writes nothing"
        self.read.disabled = not todo

    def _read(self) -> None:
        view = self.view

        def job(say: Say, stop: Stop) -> tuple[SizesAt, ...]:
            def progress(place: int, of: int) -> None:
                stop.sleep(0)
                say(f"snapshot {place + 1} of {of}")

            return through_time(view.lake, view.facts, known=self._cache(), progress=progress)

        def done(found: tuple[SizesAt, ...]) -> str:
            self.sizes = found
            self._say_what()
            self._show()
            return f"{count(len(found), 'snapshot')} of {view.facts.name}: move the slider."

        self.progress.run(f"Reading snapshots of {view.facts.name}", job, done)

    def _follow(self) -> None:
        if (self._key(), self.view.thresholds.size_ratios) == self._shown_of:
            return
        self._shown_of = self._key(), self.view.thresholds.size_ratios
        known = self._cache()
        self.sizes = tuple(known[c.snapshot_id] for c in spread(self.view.facts.history.commits) if c.snapshot_id in known)
        self._say_what()
        self._show()

    def _show(self) -> None:
        self._drawn.clear()
        if not self.sizes:
            self.slider.disabled = True
            self.slider.options = ["none read yet"]
            self.at.value, self.all.value = "", note("Press the button to read them.")
            return
        self.slider.disabled = False
        self.slider.options = [(f"{i + 1} of {len(self.sizes)}", i) for i in range(len(self.sizes))]
        self.slider.value = len(self.sizes) - 1
        self._show_one()
        self.all.value = sizes_through_time(self.view.facts, self.sizes, self.view.thresholds)._repr_html_()

    def _show_one(self) -> None:
        place = self.slider.value
        if not isinstance(place, int) or place >= len(self.sizes):
            return
        key = place, len(self.sizes)
        if key not in self._drawn:
            self._drawn[key] = sizes_at_one(self.view.facts, self.sizes, place, self.view.thresholds)._repr_html_()
        self.at.value = self._drawn[key]


def sizes_over_time(view: View, at_once: int = 0) -> TimeExplorer:
    """File sizes through time; ``at_once`` snapshots are read when the cell runs, the others when asked for."""
    return TimeExplorer(view, at_once)
