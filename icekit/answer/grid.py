"""A table of a result, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icekit.answer import html


@dataclass(frozen=True, slots=True)
class Grid:
    """A caption, a head, and rows as text; columns of ``text_columns`` stand to the left, figures to the right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: frozenset[int] = frozenset({0})

    def lines(self, indent: str = "") -> list[str]:
        """The head and the rows, in columns of one width; no line without rows."""
        if not self.rows:
            return []
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        return [indent + "  ".join(map(self._aligned, range(len(row)), row, widths)).rstrip() for row in (self.head, *self.rows)]

    def _aligned(self, place: int, cell: str, width: int) -> str:
        return cell.ljust(width) if place in self.text_columns else cell.rjust(width)

    def html(self) -> str:
        """The same as HTML, under its caption if it has one; nothing without rows."""
        if not self.rows:
            return ""
        said = f"<p>{html.prose(self.caption)}:</p>" if self.caption else ""
        return said + html.table(self.head, self.rows, [place not in self.text_columns for place in range(len(self.head))])
