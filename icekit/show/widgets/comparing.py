"""Compare the table in view with itself at another snapshot, or with another table."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from icekit.catalog.embedded_tables import EmbeddedTables
from icekit.compact.execute import Stop
from icekit.diagnose.compare import Comparison, compare, comparison_html
from icekit.errors import IcekitError
from icekit.facts.collect import LOCAL_FILES_BESIDE_SPARK
from icekit.facts.model import TableFacts
from icekit.show.explorer import Explorer
from icekit.show.widgets.chooser import CURRENT, observed, refs_of
from icekit.show.widgets.controls import WIDER, Progress, button, chosen, column, labelled, note, picture, row
from icekit.show.widgets.view import View
from icekit.show.widgets.work import Say
from icekit.sql import display_name

OLDEST = "oldest"


class Comparer(Explorer):
    """What is in view beside another snapshot or table: figures, differences, findings that came and went."""

    def __init__(self, view: View, before: str = "") -> None:
        super().__init__()
        self.view = view
        self.compared: Comparison | None = None
        self._why_not = "Nothing was compared: no snapshot, branch or tag to compare with was given."
        if before:
            self._compare_at_once(before)

    def static(self) -> str:
        """The comparison, or why there is none."""
        return comparison_html(self.compared) if self.compared is not None else note(self._why_not)

    def build(self) -> Any:
        """Another table, another snapshot, and the button that reads it."""
        self.other = labelled(
            ipw.Combobox,
            "Compare with",
            "namespace.table of the same catalog; the table in view for another snapshot of it",
            value=self.view.facts.name,
            ensure_option=False,
            continuous_update=False,
        )
        self.ref = labelled(ipw.Dropdown, "at", "which snapshot, branch or tag of it", options=[(CURRENT, "")], layout={"width": WIDER})
        self.compare = button(
            "Compare", "read the other side's metadata and set it before the table in view; writes nothing", self._compare, style="primary"
        )
        self.progress = Progress("nothing was changed.", [self.compare])
        self.shown = picture(self.static())
        self._follow()
        chosen(self.other, self._offer_refs)
        self.view.on_change(self._follow)
        return column(self.other, self.ref, row(self.compare, self.progress.cancel), self.progress.told, self.shown)

    def _follow(self) -> None:
        if isinstance(self.view.lake.tables, EmbeddedTables):
            self.other.options = [display_name(name) for name in self.view.lake.tables.names()]
        self.other.value = self.view.facts.name
        self._offer_refs()

    def _offer_refs(self) -> None:
        """Snapshots of the table in view, the oldest chosen; of another table only what it is now."""
        same = self.other.value == self.view.facts.name
        options = refs_of(self.view.facts) if same else [(CURRENT, "")]
        options = [o for o in options if o[1] != str(self.view.facts.snapshot_id)] or [(CURRENT, "")]
        self.ref.options = options
        self.ref.value = options[-1][1]

    def _compare(self) -> None:
        other, ref, view = self.other.value.strip(), self.ref.value, self.view

        def job(say: Say, stop: Stop) -> TableFacts:
            return observed(view.lake, other or view.facts.name, ref, view, say, stop)

        def done(found: TableFacts) -> str:
            self._set(found)
            self.shown.value = self.static()
            return f"{found.name} was read in {found.seconds:.1f} s."

        self.progress.run(f"Reading {other}", job, done)

    def _set(self, before: TableFacts) -> None:
        self.compared = compare(before, self.view.facts, self.view.judged(before), self.view.findings)

    def _compare_at_once(self, before: str) -> None:
        """What a notebook's parameter asks for, where reading it takes no time."""
        facts = self.view.facts
        if before == OLDEST:
            commits = facts.history.commits
            if not commits or commits[0].snapshot_id == facts.snapshot_id:
                self._why_not = f"{facts.name} has one snapshot: there is no older one to compare with."
                return
            before = str(commits[0].snapshot_id)
        if too_much := too_much_at_once(self.view):
            self._why_not = f"Nothing was compared: {too_much}"
            return
        self._set(self.view.lake.observe(facts.table, ref=before, size_ratios=self.view.thresholds.size_ratios))


def too_much_at_once(view: View) -> str:
    """Why an explorer reads no other snapshot when its cell runs; empty where it may."""
    if not view.reads:
        return "this run reads nothing beyond the facts it was given."
    files = view.facts.data.file_count
    if files > LOCAL_FILES_BESIDE_SPARK:
        return f"{files:,} data files take a while; press the button."
    try:
        view.lake.tables.source(view.facts.table)
    except IcekitError as problem:
        return f"the catalog does not answer for it ({problem})"
    return ""


def compare_with(view: View, before: str = "") -> Comparer:
    """The table in view beside another side; ``before`` is a snapshot id, branch or tag, ``oldest``, or empty for nothing yet."""
    return Comparer(view, before)
