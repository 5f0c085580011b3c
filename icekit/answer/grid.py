"""A table of a result: named columns of values with units, for a terminal, a page, pandas and
JSON.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.answer import html
from icekit.units import elapsed, percent, plain, printable, shorten, size

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 50
ABSENT, _EMPTY = "–", "No rows."


@dataclass(frozen=True, slots=True)
class Unit:
    """The format of a column's values; text is aligned left, figures right.

    ``head`` is the heading; the default is the column's name. ``SHARE("of the bytes")`` is the same
    unit with another heading.
    """

    write: Callable[[Any], str]
    is_text: bool = False
    is_whole: bool = False
    head: str | None = None

    def __call__(self, head: str) -> Unit:
        """The same unit with another heading."""
        return replace(self, head=head)


TEXT = Unit(str, is_text=True)
#: A string that may be long and whose both ends matter: a path, a column, a filter.
NAME = Unit(lambda value: shorten(printable(value), 60), is_text=True)
#: A figure that is already a string, because it contains a word or two units.
FIGURE = Unit(str)
NUMBER = Unit(plain)
COUNT = Unit("{:,}".format, is_whole=True)
IDENTIFIER = Unit(str, is_whole=True)
BYTES = Unit(size)
SHARE = Unit(percent)
SECONDS = Unit(elapsed)
FLAG = Unit(lambda value: "yes" if value else "no", is_text=True)
TIME = Unit(lambda value: value.strftime("%Y-%m-%d %H:%M:%S"), is_text=True)


@dataclass(frozen=True, slots=True, repr=False)
class Grid:
    """A caption, named columns, and rows of values: bytes, shares from 0 to 1, seconds, whole
    numbers; None is missing.

    A terminal and a page show the first ``shown`` rows and say so; pandas and JSON have all rows.
    Without rows they say so. ``grid["file_count"]`` is a list of a column's
    values, ``grid.frame()`` a pandas DataFrame of all values.
    """

    caption: str
    columns: Mapping[str, Unit]
    rows: Sequence[Sequence[Any]]
    shown: int = SHOWN

    def __getitem__(self, name: str) -> list[Any]:
        index = list(self.columns).index(name)
        return [row[index] for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, *names: str, first: int | None = None) -> Grid:
        """The named columns, in the given order; ``first`` limits the number of rows."""
        columns = {name: self.columns[name] for name in names}
        rows = [list(row) for row in zip(*map(self.__getitem__, names), strict=True)]
        return replace(self, columns=columns, rows=rows[:first])

    def lines(self, indent: str = "") -> list[str]:
        """The headings and rows for a terminal, in aligned columns; empty without rows."""
        if not self.rows:
            return []
        rows = [self._heads(), *self._written()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        sides = ["<" if unit.is_text else ">" for unit in self.columns.values()]
        lines = [
            indent + "  ".join(map("{:{}{}}".format, row, sides, widths)).rstrip() for row in rows
        ]
        return [*lines, indent + self._more()] if self._more() else lines

    def html(self) -> str:
        """The same as HTML, with the caption above if there is one; empty without rows."""
        if not self.rows:
            return ""
        numeric = [not unit.is_text for unit in self.columns.values()]
        heads, rows = self._heads(), self._written()
        return html.block("grid", self.caption, heads, rows, numeric, self._more())

    def frame(self) -> pd.DataFrame:
        """All values as a pandas DataFrame, unrounded; whole numbers stay integers even with
        missing values.
        """
        import pandas as pd

        whole = [name for name, unit in self.columns.items() if unit.is_whole]
        return pd.DataFrame(list(self.rows), columns=list(self.columns)).astype(
            dict.fromkeys(whole, "Int64")
        )

    def records(self) -> list[dict[str, Any]]:
        """All values for JSON, unrounded, one dict per row; times in ISO 8601."""
        plain = (
            [value.isoformat() if isinstance(value, dt.datetime) else value for value in row]
            for row in self.rows
        )
        return [dict(zip(self.columns, row, strict=True)) for row in plain]

    def _heads(self) -> list[str]:
        return [
            name.replace("_", " ") if unit.head is None else unit.head
            for name, unit in self.columns.items()
        ]

    def _written(self) -> list[list[str]]:
        units = list(self.columns.values())
        return [
            [_cell(unit, value) for unit, value in zip(units, row, strict=True)]
            for row in self.rows[: self.shown]
        ]

    def _more(self) -> str:
        return (
            f"The first {self.shown} of {len(self.rows):,} rows."
            if len(self.rows) > self.shown
            else ""
        )

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or _EMPTY

    def _repr_html_(self) -> str:
        return html.framed(self.html() or f"<p>{_EMPTY}</p>")


def _cell(unit: Unit, value: Any) -> str:
    return ABSENT if value is None or value != value else unit.write(value)
