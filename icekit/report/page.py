"""Turn an executed notebook into one HTML file that opens offline, and tables into an index."""

from __future__ import annotations

import copy
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from icekit.report.document import Outcome, write_text
from icekit.show.explorer import WIDGET_VIEW


@dataclass(frozen=True, slots=True)
class Row:
    """One table of a run: what became of it, and where its page is."""

    table: str
    status: str
    seconds: float
    outcome: Outcome | None = None
    page: str | None = None
    error: str | None = None


def write_page(notebook: Any, title: str, path: Path) -> Path:
    """Export a notebook without its code (narrative, charts, findings) into a page of our own.

    nbconvert's ``basic`` template renders the cells and nothing around them: its full
    templates fetch scripts when a page is opened, and are not made for a phone.
    """
    from nbconvert import HTMLExporter

    exporter: Any = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True, exclude_anchor_links=True
    )
    body, _ = exporter.from_notebook_node(without_widgets(notebook))
    return write_text(
        path, _page(title, f"<p class=muted><a href='index.html'>All tables of this run</a> / {html.escape(title)}</p>{body}")
    )


def without_widgets(notebook: Any) -> Any:
    """A copy whose outputs show what explorers say without controls: a page has no kernel to draw widgets from."""
    plain = copy.deepcopy(notebook)
    plain.metadata.pop("widgets", None)
    for cell in plain.cells:
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", ()):
                output.data.pop(WIDGET_VIEW, None)
    return plain


def _page(title: str, body: str) -> str:
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )


_ORDER = {"crashed": 0, "misconfigured": 1, "critical": 2, "warning": 3, "info": 4, "healthy": 5}
_SIGNS = {"crashed": "✖", "misconfigured": "✖", "critical": "▲", "warning": "◆", "info": "●", "healthy": "✔"}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1a1a1a;background:#fff}
h1,h2{line-height:1.25}h2{margin-top:2.5rem}a{color:#0050a0}code,pre{font-family:ui-monospace,monospace;font-size:.9em}
table{border-collapse:collapse;font-size:.95rem}th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid #ddd;vertical-align:top}
.index{width:100%}td.n,th.n{text-align:right;white-space:nowrap}.s{white-space:nowrap;font-weight:600}
.jp-OutputArea-output{overflow:auto;max-width:100%}.jp-OutputArea-output>div>table.dataframe{font-size:.85rem}
.jp-OutputArea-output:has(>div>table.dataframe){max-height:32rem}.jp-RenderedText pre{white-space:pre-wrap}
.output_subarea{overflow:auto;max-width:100%}.output_subarea:has(>div>table.dataframe){max-height:32rem}
.output_subarea pre,.output_area pre{white-space:pre-wrap;overflow-wrap:anywhere}
.s.critical,.s.crashed,.s.misconfigured{color:#a3200d}.s.warning{color:#8a5300}.s.info{color:#0050a0}.s.healthy{color:#00664a}.muted{color:#555}
@media(max-width:40rem){.index thead{display:none}.index td{display:block;border:0;padding:.1rem 0}.index td.n{text-align:left}
.index td[data-label]::before{content:attr(data-label) ": ";color:#555}.index tr{display:block;border-bottom:1px solid #ddd;padding:.5rem 0}}
"""


def write_index(rows: Sequence[Row], path: Path, *, made_at: str, catalog: str) -> Path:
    """Rank the tables: what could not be read first, then by severity and findings."""
    ranked = sorted(rows, key=lambda row: (_ORDER[row.status], -_at_stake(row), row.table))
    counted = ", ".join(f"{sum(r.status == s for r in rows)} {s}" for s in _ORDER if any(r.status == s for r in rows))
    body = "".join(map(_index_row, ranked))
    listed = (
        f"<h1>Table health</h1><p class=muted>Catalog {html.escape(catalog)}, {html.escape(made_at)}. {html.escape(counted)}.</p>"
        "<table class=index><thead><tr><th>Status<th>Table<th>Findings<th class=n>Data files<th class=n>Data<th class=n>Seconds</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )
    return write_text(path, _page(f"Table health: {catalog}", listed))


def _at_stake(row: Row) -> int:
    return sum(f["bytes_at_stake"] for f in row.outcome.findings) if row.outcome else 0


def _index_row(row: Row) -> str:
    from icekit.units import size

    name = html.escape(row.table)
    link = f"<a href='{html.escape(quote(row.page))}'>{name}</a>" if row.page else name
    if row.outcome:
        found = ", ".join(html.escape(f["name"].replace("_", " ")) for f in row.outcome.findings) or "nothing to do"
        data = row.outcome.totals["data"]
        files, total = f"{data['file_count']:,}", size(data["size_in_bytes"])
    else:
        found, files, total = html.escape(row.error or ""), "–", "–"
    return (
        f"<tr><td class='s {row.status}'>{_SIGNS[row.status]} {row.status}<td>{link}<td>{found}"
        f"<td class=n data-label='data files'>{files}<td class=n data-label='data'>{total}<td class=n data-label='seconds'>{row.seconds:.1f}</tr>"
    )
