"""Show a result that is a list of blocks, a table (:class:`Grid`) among them: as text for a
terminal, or as HTML for a page or a notebook.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from icekit.common import frozen, html
from icekit.common.errors import require_library
from icekit.common.saving import write_text
from icekit.common.secrets import mask
from icekit.common.units import elapsed, percent, plain_number, printable_text, shorten, size

if TYPE_CHECKING:
    import pandas as pd


SHOWN = 50
ABSENT = "–"
_EMPTY = "No rows."


@frozen
class Unit:
    """The format of a column's values; text is aligned left, figures right.

    ``heading`` is the heading; the default is the column's name. ``SHARE("of the bytes")`` is the
    same unit with another heading.
    """

    write: Callable[[Any], str]
    is_text: bool = False
    is_whole: bool = False
    heading: str | None = None

    def __call__(self, heading: str) -> Unit:
        """The same unit with another heading."""
        return replace(self, heading=heading)


TEXT = Unit(str, is_text=True)
#: A string that may be long and whose both ends matter: a path, a column, a filter.
NAME = Unit(lambda value: shorten(printable_text(value), 60), is_text=True)
#: A figure that is already a string, because it contains a word or two units.
FIGURE = Unit(str)
NUMBER = Unit(plain_number)
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

    A terminal and a page show the first ``row_limit`` rows and say so; pandas and JSON have all
    rows. Without rows they say so. ``grid["file_count"]`` is a list of a column's values,
    ``grid.frame()`` a pandas DataFrame of all values.
    """

    caption: str
    columns: Mapping[str, Unit]
    rows: Sequence[Sequence[Any]]
    row_limit: int = SHOWN

    def __getitem__(self, name: str) -> list[Any]:
        column_index = list(self.columns).index(name)
        return [row[column_index] for row in self.rows]

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
        text_rows = self._cell_texts()
        column_widths = [max(map(len, column)) for column in zip(*text_rows, strict=True)]
        alignments = ["<" if unit.is_text else ">" for unit in self.columns.values()]
        lines = [
            indent + "  ".join(map("{:{}{}}".format, row, alignments, column_widths)).rstrip()
            for row in text_rows
        ]
        return [*lines, indent + self._row_limit_note()] if self._row_limit_note() else lines

    def html(self) -> str:
        """The same as HTML, with the caption above if there is one; empty without rows."""
        if not self.rows:
            return ""
        numeric_flags = [not unit.is_text for unit in self.columns.values()]
        headings, *text_rows = self._cell_texts()
        return html.block(
            "grid", self.caption, headings, text_rows, numeric_flags, self._row_limit_note()
        )

    def frame(self) -> pd.DataFrame:
        """All values as a pandas DataFrame, unrounded; whole numbers stay integers even with
        missing values. Raises :class:`~icekit.common.errors.ExtraMissing` without pandas.
        """
        require_library("pandas", "A DataFrame")
        import pandas as pd

        whole_number_columns = [name for name, unit in self.columns.items() if unit.is_whole]
        return pd.DataFrame(list(self.rows), columns=list(self.columns)).astype(
            dict.fromkeys(whole_number_columns, "Int64")
        )

    def records(self) -> list[dict[str, Any]]:
        """All values for JSON, unrounded, one dict per row; times in ISO 8601."""
        plain_rows = (
            [value.isoformat() if isinstance(value, dt.datetime) else value for value in row]
            for row in self.rows
        )
        return [dict(zip(self.columns, row, strict=True)) for row in plain_rows]

    def _cell_texts(self) -> list[list[str]]:
        """The headings of the columns, and the cells of each row."""
        headings = [
            name.replace("_", " ") if unit.heading is None else unit.heading
            for name, unit in self.columns.items()
        ]
        text_rows = (
            [
                ABSENT if value is None or value != value else unit.write(value)
                for unit, value in zip(self.columns.values(), row, strict=True)
            ]
            for row in self.rows[: self.row_limit]
        )
        return [headings, *text_rows]

    def _row_limit_note(self) -> str:
        return (
            f"The first {self.row_limit} of {len(self.rows):,} rows."
            if len(self.rows) > self.row_limit
            else ""
        )

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or _EMPTY

    def _repr_html_(self) -> str:
        return html.framed(self.html() or f"<p>{_EMPTY}</p>")


@frozen
class Badge:
    """The first line: ``kind`` is critical, warning, info or fine, ``label`` the verdict in two
    words, and ``note`` small print.
    """

    kind: str
    label: str
    title: str
    note: str = ""


@frozen
class Sentence:
    """A sentence, after a label such as ``Confidence``."""

    text: str
    label: str = ""
    is_strong: bool = False


@frozen
class Sql:
    """Statements to paste, under a label."""

    label: str
    statements: Sequence[str]


@frozen
class Item:
    """An entry of a list: its title, what is said of it by name, and statements or commands to
    copy.
    """

    title: str = ""
    pairs: Sequence[tuple[str, str]] = ()
    statements: Sequence[str] = ()


@frozen
class Listing:
    """Text whose lines stay as they are, such as a plan of the engine."""

    text: str


@frozen
class Folded:
    """Blocks that a page shows only when one opens them; a terminal shows those that only explain
    if it is asked to.
    """

    summary: str
    blocks: Sequence[Block]
    only_explains: bool = False


Block = Badge | Sentence | Sql | Item | Grid | Listing | Folded


class Shown:
    """A result that is a list of blocks: text in a terminal, HTML in Jupyter."""

    def blocks(self) -> Sequence[Block]:
        """What every renderer shows, the verdict first."""
        raise NotImplementedError

    def text(self, width: int | None = None, *, explain: bool = False) -> str:
        """The blocks as :func:`as_text` has them."""
        return as_text(self.blocks(), width, explain=explain)

    def to_html(self, path: str | Path) -> Path:
        """Write the blocks as a page that opens offline."""
        badge_titles = (block.title for block in self.blocks() if isinstance(block, Badge))
        title = next(badge_titles, "icekit")
        return write_text(Path(path), html.page(title, self._repr_html_()))

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return as_html(self.blocks())


def as_text(blocks: Iterable[Block], width: int | None = None, *, explain: bool = False) -> str:
    """The blocks as lines for a terminal of ``width`` columns (None: not wrapped), with an empty
    line between them, also those that only ``explain``; secrets are masked.
    """
    block_texts = ["\n".join(_block_lines(block, width, explain)) for block in blocks]
    return mask("\n\n".join(block_text for block_text in block_texts if block_text))


def as_html(blocks: Iterable[Block]) -> str:
    """The blocks as one card with its style; secrets are masked."""
    return mask(html.framed(card_html(blocks)))


def card_html(blocks: Iterable[Block]) -> str:
    """The blocks as one card of a page; its colour is that of their badge."""
    block_list = list(blocks)
    badge_kind = next((block.kind for block in block_list if isinstance(block, Badge)), "info")
    return f'<div class="finding {badge_kind}">{"".join(map(_block_html, block_list))}</div>'


def _block_lines(block: Block, width: int | None, explain: bool) -> list[str]:
    match block:
        case Badge():
            note_text = f"  ({block.note})" if block.note else ""
            return [f"{block.title}  {block.label}{note_text}"]
        case Sentence():
            return _wrapped(
                "", f"{block.label}: {block.text}" if block.label else block.text, width
            )
        case Sql():
            return (
                [f"{block.label}:", *(f"  {statement};" for statement in block.statements)]
                if block.statements
                else []
            )
        case Item():
            name_width = max((len(name) for name, _ in block.pairs), default=0)
            pair_lines = [
                line
                for name, pair_text in block.pairs
                for line in _wrapped(f"  {name:{name_width}}  ", pair_text, width)
            ]
            title_lines = _wrapped("", block.title, width) if block.title else []
            return [
                *title_lines,
                *pair_lines,
                *(f"  {item_statement}" for item_statement in block.statements),
            ]
        case Grid():
            return [
                *([f"{block.caption}:"] if block.caption and block.rows else []),
                *block.lines("  "),
            ]
        case Listing():
            return [f"  {line}" for line in block.text.splitlines()]
        case Folded():
            shown_blocks = () if block.only_explains and not explain else block.blocks
            inner_lines = [
                line
                for inner_block in shown_blocks
                for line in _block_lines(inner_block, width and width - 2, explain)
            ]
            return (
                [f"{block.summary}:", *(f"  {line}" for line in inner_lines)] if inner_lines else []
            )


def _wrapped(head: str, text: str, width: int | None) -> list[str]:
    """A sentence, wrapped below itself; what may be pasted is never broken."""
    if width is None:
        return [head + text]
    indent = " " * len(head)
    return wrap(
        text,
        max(width, 40),
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _block_html(block: Block) -> str:
    if isinstance(block, Grid):
        return block.html()
    if isinstance(block, Folded):
        return html.block("folded", block.summary, "".join(map(_block_html, block.blocks)))
    return html.block(type(block).__name__.lower(), block)
