"""Convert an executed notebook into one HTML file that opens offline."""

import copy
import re
import threading
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from icekit.common.html import render
from icekit.common.saving import write_text

_TURN = threading.Lock()
#: Cells with this tag teach, or are for a person who runs the notebook; a page leaves them out.
TEACH = "teach"
#: The section that a page begins with, unfolded.
_FIRST = "Findings"


class _Section(NamedTuple):
    heading: str
    sentence: str
    body: Any

    @property
    def anchor(self) -> str:
        """The section's name in an address."""
        return re.sub(r"\W+", "-", self.heading.lower())


def write_page(notebook: Any, title: str, page_path: Path, *, has_failed: bool = False) -> Path:
    """Export a notebook without its code into a page: its findings, and the other sections folded
    under one sentence each.

    A section is everything after a heading cell (``## …``). A section without a table or a picture
    is left out. If a notebook ``has_failed``, or has no findings, everything is shown and unfolded,
    because an error may be in any section.

    nbconvert's ``basic`` template renders the cells and nothing around them: its full
    templates fetch scripts when a page is opened, and are not made for a phone.
    """
    sections = []
    for heading, cells in _cells_by_heading(notebook):
        section_notebook = copy.copy(notebook)
        section_notebook.cells = cells
        sections.append(_section_of_cells(heading, section_notebook))
    shows_everything = has_failed or all(section.heading != _FIRST for section in sections)
    shown_sections = [
        section
        for section in sections
        if shows_everything or re.search('<(img|table|div class="(finding|card))', section.body)
    ]
    shown_sections.sort(key=lambda section: section.heading != _FIRST)
    return write_text(
        page_path,
        render(
            "table.html",
            title=title,
            sections=shown_sections,
            is_open=shows_everything,
            document=page_path.with_suffix(".json").name,
        ),
    )


def link_neighbours(pages: Sequence[tuple[str, Path]]) -> None:
    """Link each page, given with the name of its table, to the one before it and the one after."""
    pages_with_neighbours = zip([None, *pages], pages, [*pages[1:], None], strict=False)
    for previous_page, (_, page), next_page in pages_with_neighbours:
        links_html = "".join(
            f" · {label} <a href='{quote(neighbour[1].name)}'>{escape(neighbour[0])}</a>"
            for label, neighbour in (("previous:", previous_page), ("next:", next_page))
            if neighbour
        )
        page_html = page.read_text(encoding="utf-8")
        html_before, mark_html, html_from_mark = page_html.partition("<span id=neighbours>")
        write_text(
            page,
            html_before
            + mark_html
            + links_html
            + html_from_mark[html_from_mark.index("</span>") :],
            is_clean=True,
        )


def _cells_by_heading(notebook: Any) -> list[tuple[str, list[Any]]]:
    """Headings, each with the cells under it that a page shows."""
    cells_by_heading: list[tuple[str, list[Any]]] = [("", [])]
    for cell in notebook.cells:
        has_error = any(o.output_type == "error" for o in cell.get("outputs", ()))
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            cells_by_heading.append((cell.source.splitlines()[0].removeprefix("## "), []))
        elif has_error or TEACH not in cell.metadata.get("tags", ()):
            cells_by_heading[-1][1].append(cell)
    return [(heading, cells) for heading, cells in cells_by_heading if cells]


def _section_of_cells(heading: str, section_notebook: Any) -> _Section:
    from markupsafe import Markup

    with _TURN:
        body_html, _ = _exporter().from_notebook_node(section_notebook)
    output_texts = [
        output.data.get("text/plain", "")
        for cell in section_notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    # A chart's text is a sentence; that of a table has lines, and that of what only controls show
    # has brackets.
    summary_sentence = next(
        (
            output_text
            for output_text in output_texts
            if output_text and "\n" not in output_text and not output_text.startswith("<")
        ),
        "",
    )
    return _Section(heading, summary_sentence, Markup(body_html))


@cache
def _exporter() -> Any:
    """An exporter, whose templates are compiled once; threads take turns.

    It shows what explorers say without controls: a page has no kernel to draw widgets from.
    """
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    display_priority = {"display_data_priority": ["text/html", "text/plain"]}
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        # Preprocessors prepare what a page does not show: highlighted code, pictures as files.
        config=Config(NbConvertBase=display_priority, HTMLExporter={"default_preprocessors": []}),
        template_name="basic",
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    # The templates of a package do not change while a report runs.
    exporter.environment.auto_reload = False
    return exporter
