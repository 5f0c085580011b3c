"""Name a table: write it, or choose it from a list that narrows as one types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as ipw

from icekit.show.widgets.controls import chosen, column, labelled, note, picture
from icekit.units import count

#: Names in the list at once: the browser stays quick, whatever the catalog has.
SHOWN = 200
_ROWS = 8


def matching(names: Sequence[str], text: str) -> list[str]:
    """The names that hold every word of a text, in their order; letters are taken as capital or small."""
    words = text.lower().split()
    return [name for name in names if all(word in name.lower() for word in words)]


class TableName:
    """A text for a table's name, and under it the tables there are, once they are known; ``changed`` is called upon each new name."""

    def __init__(self, value: str, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._names: tuple[str, ...] = ()
        self._sought = ""
        self._is_showing = False
        self.text = labelled(ipw.Text, "Table", "namespace.table; a part of it narrows the list below", value=value, continuous_update=True)
        self.list = labelled(
            ipw.Select,
            "Tables there are",
            "choose one, or type above until one is left; nothing is read before Observe is pressed",
            rows=_ROWS,
        )
        self.said = picture()
        self.box = column(self.text, self.list, self.said)
        chosen(self.text, self._typed)
        chosen(self.list, self._picked)
        self.offer(())

    @property
    def value(self) -> str:
        """The name written or chosen; of a part that only one table has, that table's.

        With a dot it is a whole name, which may be that of a table made since the others were listed.
        """
        is_part = self._written and "." not in self._written
        found = matching(self._names, self._written) if is_part else []
        return found[0] if len(found) == 1 else self._written

    @property
    def _written(self) -> str:
        return str(self.text.value).strip()

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are known."""
        return self._names

    def offer(self, names: Sequence[str]) -> None:
        """List these tables, all of them until a part of a name is typed; none hides the list."""
        self._names, self._sought = tuple(names), ""
        self._show()

    def write(self, name: str) -> None:
        """Put a name there, as if it were typed."""
        self.text.value = name

    def rest(self, is_resting: bool) -> None:
        """Take no name for a while, or take names again."""
        self.text.disabled = self.list.disabled = is_resting

    def _typed(self) -> None:
        # A whole name was chosen, or written to its end: the list stays as it is, around it.
        if self._written not in self._names:
            self._sought = self._written
        self._show()
        self._changed()

    def _picked(self) -> None:
        if not self._is_showing and self.list.value is not None:
            self.text.value = self.list.value

    def _show(self) -> None:
        found = matching(self._names, self._sought)
        shown = tuple(found[:SHOWN])
        if self.value in self._names and self.value not in shown:
            shown = (self.value, *shown[: SHOWN - 1])
        self._is_showing = True
        try:
            if self.list.options != shown:
                self.list.options = shown
            self.list.value = self.value if self.value in shown else None
        finally:
            self._is_showing = False
        self.list.layout.display = "" if self._names else "none"
        self.said.value = note(self._told(len(found), len(shown))) if self._names else ""

    def _told(self, found: int, shown: int) -> str:
        if not found:
            return f"None of {count(len(self._names), 'table')} has {self._sought!r} in its name."
        of = "" if found == len(self._names) else f" of {len(self._names):,}"
        more = f"; the first {shown:,} are listed, a part of a name narrows them" if found > shown else ""
        return f"{count(found, 'table')}{of}{more}."
