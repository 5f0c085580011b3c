"""Show a result that is a list of blocks: as text for a terminal, or as HTML for a page or a
notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from icekit.answer import html
from icekit.answer.grid import Grid
from icekit.secrets import mask


@dataclass(frozen=True, slots=True)
class Badge:
    """The first line: ``kind`` is critical, warning, info or fine, ``label`` the verdict in two
    words, and ``note`` small print.
    """

    kind: str
    label: str
    title: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, after a label such as ``Confidence``."""

    text: str
    label: str = ""
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class Sql:
    """Statements to paste, under a label."""

    label: str
    statements: Sequence[str]


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list: its title, what is said of it by name, and statements or commands to
    copy.
    """

    title: str = ""
    pairs: Sequence[tuple[str, str]] = ()
    statements: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """Text whose lines stay as they are, such as a plan of the engine."""

    text: str


@dataclass(frozen=True, slots=True)
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

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return as_html(self.blocks())


def as_text(blocks: Iterable[Block], width: int | None = None, *, explain: bool = False) -> str:
    """The blocks as lines for a terminal of ``width`` columns (None: not wrapped), with an empty
    line between them, also those that only ``explain``; secrets are masked.
    """
    parts = ["\n".join(_lines(block, width, explain)) for block in blocks]
    return mask("\n\n".join(part for part in parts if part))


def as_html(blocks: Iterable[Block]) -> str:
    """The blocks as one card with its style; secrets are masked."""
    return mask(html.framed(card(blocks)))


def card(blocks: Iterable[Block]) -> str:
    """The blocks as one card of a page; its colour is that of their badge."""
    listed = list(blocks)
    kind = next((block.kind for block in listed if isinstance(block, Badge)), "info")
    return f'<div class="finding {kind}">{"".join(map(_html, listed))}</div>'


def _lines(block: Block, width: int | None, explain: bool) -> list[str]:
    match block:
        case Badge():
            note = f"  ({block.note})" if block.note else ""
            return [f"{block.title}  {block.label}{note}"]
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
            names = max((len(name) for name, _ in block.pairs), default=0)
            pairs = [
                line
                for name, text in block.pairs
                for line in _wrapped(f"  {name:{names}}  ", text, width)
            ]
            title = _wrapped("", block.title, width) if block.title else []
            return [*title, *pairs, *(f"  {each}" for each in block.statements)]
        case Grid():
            return [
                *([f"{block.caption}:"] if block.caption and block.rows else []),
                *block.lines("  "),
            ]
        case Listing():
            return [f"  {line}" for line in block.text.splitlines()]
        case Folded():
            shown = () if block.only_explains and not explain else block.blocks
            inside = [line for part in shown for line in _lines(part, width and width - 2, explain)]
            return [f"{block.summary}:", *(f"  {line}" for line in inside)] if inside else []


def _wrapped(head: str, text: str, width: int | None) -> list[str]:
    """A sentence, wrapped below itself; what may be pasted is never broken."""
    if width is None:
        return [head + text]
    below = " " * len(head)
    return wrap(
        text,
        max(width, 40),
        initial_indent=head,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _html(block: Block) -> str:
    if isinstance(block, Grid):
        return block.html()
    if isinstance(block, Folded):
        return html.block("folded", block.summary, "".join(map(_html, block.blocks)))
    return html.block(type(block).__name__.lower(), block)
