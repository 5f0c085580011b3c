"""Filter and sort a table's partitions; however many there are, few are shown."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from icekit.answer import html
from icekit.facts.partitions import ORDERS, PartitionFigures, Selection, partition_figures, select
from icekit.show.explorer import Explorer
from icekit.show.tables import UNPARTITIONED, needed
from icekit.show.widgets.controls import chosen, column, labelled, picture, row
from icekit.show.widgets.view import View
from icekit.units import count, size

ROWS = (10, 20, 50, 200)
_HEAD = ("partition", "data files", "needed", "bytes", "mean file", "data records", "delete files", "delete records")


class PartitionsExplorer(Explorer):
    """The worst partitions of the table in view, by what a person asks for."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self._figures: tuple[PartitionFigures, ...] = ()
        self._of: object = None

    def static(self) -> str:
        """The partitions with most files."""
        return selection_html(select(self.figures, limit=ROWS[0]), self.view.facts.target_bytes, next(iter(ORDERS)))

    @property
    def figures(self) -> tuple[PartitionFigures, ...]:
        """Every partition of the table in view, worked out once."""
        if self._of is not self.view.facts:
            self._of, self._figures = self.view.facts, partition_figures(self.view.facts)
        return self._figures

    def build(self) -> Any:
        """A filter, an order and a number of rows above the table."""
        self.text = labelled(
            ipw.Text,
            "Partition holds",
            "words that the partition's path must hold; empty: all",
            placeholder="month=2013-01 or a part of it",
            continuous_update=True,
        )
        self.by = labelled(ipw.Dropdown, "Sorted by", "what is worst first", options=list(ORDERS), layout={"width": "26em"})
        self.limit = labelled(
            ipw.Dropdown, "Rows", "partitions that are shown at most", options=ROWS, value=ROWS[0], layout={"width": "18em"}
        )
        self.shown = picture()
        for control in (self.text, self.by, self.limit):
            chosen(control, self._show)
        self._table = self.view.facts.table
        self.view.on_change(self._follow)
        self._show()
        return column(self.text, row(self.by, self.limit), self.shown)

    def _follow(self) -> None:
        # A filter for one table's partitions would hide all of another's.
        if self._table != self.view.facts.table:
            self._table = self.view.facts.table
            self.text.value = ""
        self._show()

    def _show(self) -> None:
        found = select(self.figures, self.text.value, self.by.value, self.limit.value)
        self.shown.value = selection_html(found, self.view.facts.target_bytes, self.by.value)


def selection_html(found: Selection, target_bytes: int, by: str) -> str:
    """Partitions as a table, with a sentence that says how many there are."""
    rows = [
        (
            p.path or UNPARTITIONED,
            f"{p.data_file_count:,}",
            f"{needed(p.size_in_bytes, target_bytes):,}" if p.data_file_count else "–",
            size(p.size_in_bytes),
            size(p.mean_bytes) if p.mean_bytes is not None else "–",
            f"{p.record_count:,}",
            f"{p.delete_file_count:,}",
            f"{p.delete_record_count:,}",
        )
        for p in found.rows
    ]
    of = "" if found.matched == found.total else f" of {found.total:,}"
    said = f"{count(found.matched, 'partition')}{of}; the first {len(rows):,} by {by}. Needed: files of {size(target_bytes)} that would hold the same bytes."
    if not rows:
        said = f"No partition{of} matches." if found.total else "No partition has a file."
    table = html.table(_HEAD, rows, [False, *[True] * (len(_HEAD) - 1)]) if rows else ""
    return html.framed(f"<p>{html.prose(said)}</p>{table}")


def partitions(view: View) -> PartitionsExplorer:
    """Partitions to filter and sort; see :class:`PartitionsExplorer`."""
    return PartitionsExplorer(view)
