"""Choose a catalog, a table and a snapshot, which the other explorers follow."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from icekit.api import Lake, connect
from icekit.catalog.lake import known_catalogs
from icekit.catalog.tables import EmbeddedTables
from icekit.engine.interrupting import Stop, Stopped
from icekit.errors import IcekitError
from icekit.facts.collect import LOCAL_FILES_BESIDE_SPARK
from icekit.facts.model import TableFacts
from icekit.show.card import card_html, lines
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import (
    WIDER,
    Progress,
    Say,
    TableName,
    View,
    attempt,
    button,
    chosen,
    column,
    interruptible,
    labelled,
    picture,
    row,
)
from icekit.sql import display_name
from icekit.units import count, moment

__all__ = ["CURRENT", "Chooser", "choose", "observed", "refs_of"]


CURRENT = "the current snapshot"
#: Snapshots that are offered, the newest.
SNAPSHOTS = 200
_BELOW = "The panels below show it now. Cells that plan, print or write still show the table before: to update them, use Run ▸ Run Selected Cell and All Below."


def refs_of(facts: TableFacts) -> list[tuple[str, str]]:
    """What can be observed of a table besides its current snapshot, as (label, ref): branches, tags, then the newest snapshots."""
    history = facts.history
    named = [(f"{ref.type} {ref.name}", ref.name) for ref in history.refs if ref.name != "main"]
    newest = [
        (f"{moment(c.committed_at_ms)}  {c.operation or 'unknown'}  {c.snapshot_id}", str(c.snapshot_id))
        for c in history.commits[: -SNAPSHOTS - 1 : -1]
    ]
    return [*named, *newest]


class Chooser(Explorer):
    """The card of the table in view, and a choice of any other."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def static(self) -> str:
        """The card of the table in view."""
        return card_html(self.view.facts, self.view.findings, self.view.thresholds, counted=True)

    def __repr__(self) -> str:
        return f"Data files: {dict(lines(self.view.facts))['data files']}"

    def build(self) -> Any:
        """Three choices and a button; nothing is read before it is pressed, but the embedded lake's own list of tables."""
        lake, facts = self.view.lake, self.view.facts
        catalogs = list(dict.fromkeys([lake.name, *known_catalogs()]))
        self.catalog = labelled(
            ipw.Dropdown,
            "Catalog",
            "the embedded lake, profiles of pyiceberg's configuration, catalogs of the running session",
            options=catalogs,
            value=lake.name,
        )
        self.table = TableName(facts.name, self._other_table)
        self.ref = labelled(
            ipw.Dropdown,
            "Snapshot",
            "a branch, a tag or a snapshot of the table; known once you have observed the table",
            options=[CURRENT],
            layout={"width": WIDER},
        )
        self.list_tables = button("List tables", "ask the catalog for the names of its tables; reads only", self._list)
        self.observe = button("Observe", "", self._observe, style="primary")
        self.progress = Progress("nothing was changed, and the same table stays in view.", [self.observe, self.list_tables])
        self.card = picture(self.static())
        self._show_refs()
        if isinstance(lake.tables, EmbeddedTables):
            self.table.offer([display_name(name) for name in lake.tables.names()])
        chosen(self.catalog, self._other_catalog)
        chosen(self.ref, self._say_what)
        self.view.on_change(self._follow)
        self.view.on_hold(self._say_what)
        self._say_what()
        return column(
            row(self.catalog, self.list_tables),
            self.table.box,
            self.ref,
            row(self.observe, self.progress.cancel),
            self.progress.log,
            self.card,
        )

    def _list(self) -> None:
        name = self.catalog.value
        lake = self._lake()
        if lake is None:
            return

        def job(_: Say, stop: Stop) -> list[str]:
            names = [display_name(found) for found in lake.tables.names()]
            stop.check()
            return names

        def done(names: list[str]) -> str:
            self.table.offer(names)
            return f"{count(len(names), 'table')} in catalog {name}: choose one, or type a part of its name."

        self.progress.run(f"Listing the tables of {name}", job, done, self._say_what)

    def _observe(self) -> None:
        table, ref, view = self.table.value, self._ref(), self.view
        lake = self._lake()
        if lake is None:
            return

        def job(say: Say, stop: Stop) -> TableFacts:
            return observed(lake, table, ref, view, say, stop)

        def done(facts: TableFacts) -> str:
            view.look_at(lake, facts)
            return f"{facts.name}: read in {facts.seconds:.1f} s by {facts.collector}. {_BELOW}"

        self.progress.run(f"Observing {table}; until then the panels show {view.facts.name}", job, done, self._say_what)

    def _lake(self) -> Lake | None:
        """The catalog chosen; None, and a sentence, where there is no such.

        Connecting contacts nothing, and is done here and not in the work's thread: Spark tells each thread of its own active session only.
        """
        if self.catalog.value == self.view.lake.name:
            return self.view.lake
        found: list[Lake] = []
        attempt(lambda: found.append(connect(self.catalog.value)), self.progress.log)
        return found[0] if found else None

    def _follow(self) -> None:
        self.card.value = self.static()
        self._show_refs()

    def _other_catalog(self) -> None:
        self.table.offer(())
        self.table.write("")

        def list_own() -> None:
            lake = connect(self.catalog.value)
            if isinstance(lake.tables, EmbeddedTables):
                self.table.offer([display_name(name) for name in lake.tables.names()])

        attempt(list_own, self.progress.log)
        self._say_what()

    def _other_table(self) -> None:
        self._show_refs()
        self._say_what()

    def _is_in_view(self) -> bool:
        return bool(self.catalog.value == self.view.lake.name and self.table.value == self.view.facts.name)

    def _show_refs(self) -> None:
        """Offer what the table in view has; another table's snapshots are not known yet."""
        if not self._is_in_view():
            self.ref.options = [(f"{CURRENT} (others are known once you have observed the table)", "")]
            return
        options = [(CURRENT, ""), *refs_of(self.view.facts)]
        wanted = self.view.facts.ref or ""
        if [*self.ref.options] != options:
            self.ref.options = options
        self.ref.value = wanted if wanted in {value for _, value in options} else ""

    def _ref(self) -> str:
        return self.ref.value if self.ref.value != CURRENT else ""

    def _say_what(self) -> None:
        held = self.view.held
        for control in (self.catalog, self.ref):
            control.disabled = bool(held)
        self.table.rest(bool(held))
        table = self.table.value
        self.observe.description = f"Observe {table}" if table else "Observe"
        self.observe.disabled = not table or bool(held)
        self.observe.tooltip = (
            f"{held} is in progress; you can choose another table when it has ended"
            if held
            else "read this table's metadata at this snapshot; this writes nothing and opens no data file"
        )


def observed(lake: Lake, table: str, ref: str, view: View, say: Say, stop: Stop) -> TableFacts:
    """Observe a table for an explorer: with progress, stoppable, and at the limits in force."""
    step = [0]

    def progress(read: int, of: int) -> None:
        stop.check()
        if read * 4 // max(of, 1) != step[0]:
            step[0] = read * 4 // max(of, 1)
            say(f"{read:,} of {count(of, 'manifest')} read")

    options: dict[str, Any] = {"size_ratios": view.thresholds.size_ratios, "progress": progress, "ref": ref or None}
    name = lake.identifier(table)
    try:
        if lake.spark_is_running:
            with interruptible(lake.spark, stop):
                return lake.observe(name, **options)
        return lake.observe(name, **options)
    except Exception:
        if stop.is_set:
            raise Stopped from None
        raise


def choose(view: View) -> Chooser:
    """The table in view, and a choice of any other; see :class:`Chooser`."""
    return Chooser(view)


def too_much_at_once(view: View) -> str:
    """Why an explorer reads no other snapshot when its cell runs; empty if it may."""
    if not view.reads:
        return "this run reads nothing beyond the facts it was given."
    files = view.facts.data.file_count
    if files > LOCAL_FILES_BESIDE_SPARK:
        return f"reading {files:,} data files' metadata takes a while; press the button to start."
    try:
        view.lake.tables.source(view.facts.table)
    except IcekitError as problem:
        return f"the catalog does not have it ({problem})"
    return ""
