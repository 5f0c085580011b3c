"""Choose a table and a snapshot, which the other explorers follow."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import ipywidgets as ipw

from icekit.catalog.tables import EmbeddedTables
from icekit.engine.interrupting import Stop
from icekit.facts import observe
from icekit.facts.model import TableFacts
from icekit.show.card import card_html
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import (
    Progress,
    Say,
    View,
    button,
    column,
    interruptible,
    labelled,
    picture,
    row,
)
from icekit.sql import display_name

_BELOW = (
    "The panels below show it now. Other cells still show the previous table; to re-run them, use "
    "Run ▸ Run Selected Cell and All Below."
)


class Chooser(Explorer):
    """The card of the table in view, and a choice of any other of the catalog."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

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
            ipw.Combobox,
            "Table",
            "namespace.table",
            value=self.view.facts.name,
            options=names,
            continuous_update=False,
        )
        self.ref = labelled(
            ipw.Text,
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
        table, ref, view = self.table.value.strip(), self.ref.value.strip(), self.view
        lake = view.lake

        def job(_: Say, stop: Stop) -> TableFacts:
            def progress(_read: int, _of: int) -> None:
                stop.check()

            cancels = interruptible(lake.spark, stop) if lake.spark_is_running else nullcontext()
            ratios = view.thresholds.size_ratios
            with cancels:
                return observe(lake, table, ref=ref or None, size_ratios=ratios, progress=progress)

        def done(facts: TableFacts) -> tuple[str, str]:
            view.look_at(facts)
            message = f"{facts.name}: read in {facts.seconds:.1f} s by {facts.collector}. {_BELOW}"
            return message, "fine"

        self.progress.run(f"Reading {table} (panels below still show {view.facts.name})", job, done)

    def _follow(self) -> None:
        if self.table.value != self.view.facts.name:
            self.table.value, self.ref.value = self.view.facts.name, self.view.facts.ref or ""
        self.card.value = self.static()

    def _rest(self) -> None:
        """No other table can be chosen while work is in progress on the one in view."""
        for control in (self.table, self.ref, self.observe):
            control.disabled = bool(self.view.held)
