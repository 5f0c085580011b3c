"""Turn an executed notebook into one HTML file that opens offline, and tables into an index."""

from __future__ import annotations

import copy
import html
import threading
from pathlib import Path
from typing import Any

from icekit.saving import write_text
from icekit.show.explorer import WIDGET_VIEW

_OWN = threading.local()


def write_page(notebook: Any, title: str, path: Path) -> Path:
    """Export a notebook without its code (narrative, charts, findings) into a page of our own.

    nbconvert's ``basic`` template renders the cells and nothing around them: its full
    templates fetch scripts when a page is opened, and are not made for a phone.
    """
    body, _ = _exporter().from_notebook_node(without_widgets(notebook))
    return write_text(
        path, page(title, f"<p class=muted><a href='index.html'>All tables of this run</a></p><h1>{html.escape(title)}</h1>{body}")
    )


def _exporter() -> Any:
    """The exporter of this thread, whose templates are compiled once."""
    made = getattr(_OWN, "exporter", None)
    if made is None:
        from nbconvert import HTMLExporter

        made = _OWN.exporter = HTMLExporter(  # type: ignore[no-untyped-call]
            template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True, exclude_anchor_links=True
        )
    return made


def without_widgets(notebook: Any) -> Any:
    """A copy whose outputs show what explorers say without controls: a page has no kernel to draw widgets from."""
    plain = copy.deepcopy(notebook)
    plain.metadata.pop("widgets", None)
    for cell in plain.cells:
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", ()):
                output.data.pop(WIDGET_VIEW, None)
    return plain


def page(title: str, body: str, *, style: str = "") -> str:
    """A page of our own that opens offline, on a phone too."""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}{style}</style></head><body>{body}</body></html>"
    )


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1a1a1a;background:#fff}
h1,h2{line-height:1.25}h2{margin-top:2.5rem}a{color:#0050a0}code,pre{font-family:ui-monospace,monospace;font-size:.9em}
table{border-collapse:collapse;font-size:.95rem}th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid #ddd;vertical-align:top}
.index{width:100%}td.n,th.n{text-align:right;white-space:nowrap}.s{white-space:nowrap;font-weight:600}
.output_subarea{overflow:auto;max-width:100%}.output_subarea>div>table.dataframe{font-size:.85rem}
.output_subarea:has(>div>table.dataframe){max-height:32rem}
.output_subarea pre,.output_area pre{white-space:pre-wrap;overflow-wrap:anywhere}
.s.critical,.s.crashed,.s.timed-out,.s.misconfigured{color:#a3200d}.s.warning{color:#8a5300}.s.info{color:#0050a0}.s.healthy{color:#00664a}.muted{color:#555}.controls-off{display:none}
@media(max-width:40rem){.index thead{display:none}.index td{display:block;border:0;padding:.1rem 0}.index td.n{text-align:left}
.index td[data-label]::before{content:attr(data-label) ": ";color:#555}.index tr{display:block;border-bottom:1px solid #ddd;padding:.5rem 0}}
"""
