"""Turn an executed notebook into one HTML file that opens offline, and tables into an index."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icekit.report.document import Outcome, write_text

# Nothing may be fetched when the page is opened.
_NO_DOWNLOADS = {"require_js_url": "", "jquery_url": "", "mathjax_url": "", "mermaid_js_url": "", "widget_renderer_url": "", "jupyter_widgets_base_url": ""}


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
    """Export a notebook without its code: narrative, charts and findings."""
    from nbconvert import HTMLExporter

    exporter: Any = HTMLExporter(  # type: ignore[no-untyped-call]
        exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True, sanitize_html=False, embed_images=True, theme="light"
    )
    for name, value in _NO_DOWNLOADS.items():
        if exporter.has_trait(name):
            setattr(exporter, name, value)
    notebook.metadata["title"] = title
    body, _ = exporter.from_notebook_node(notebook)
    return write_text(path, offline(body))


def offline(page: str) -> str:
    """Take out script and style tags that would be fetched, and MathJax's set-up."""
    page = re.sub(r"<script[^>]+src=[\"'](?:https?:)?//[^>]*>\s*</script>", "", page)
    page = re.sub(r"<script[^>]*src=[\"']{2}[^>]*>\s*</script>", "", page)
    page = re.sub(r"<link[^>]+href=[\"'](?:https?:)?//[^>]*>", "", page)
    return re.sub(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", "", page, flags=re.S)


_ORDER = {"crashed": 0, "misconfigured": 1, "critical": 2, "warning": 3, "info": 4, "healthy": 5}
_SIGNS = {"crashed": "✖", "misconfigured": "✖", "critical": "▲", "warning": "◆", "info": "●", "healthy": "✔"}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.5rem .75rem;border-bottom:1px solid #ddd;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}a{color:#0050a0}.s{white-space:nowrap;font-weight:600}
.critical,.crashed,.misconfigured{color:#a3200d}.warning{color:#8a5300}.info{color:#0050a0}.healthy{color:#00664a}
.muted{color:#555}@media(max-width:40rem){thead{display:none}td{display:block;border:0;padding:.1rem .5rem}td.n{text-align:left}
td[data-label]::before{content:attr(data-label) ": ";color:#555}tr{display:block;border-bottom:1px solid #ddd;padding:.5rem 0}}
"""


def write_index(rows: Sequence[Row], path: Path, *, made_at: str, catalog: str) -> Path:
    """Rank the tables: what could not be read first, then by severity and findings."""
    ranked = sorted(rows, key=lambda row: (_ORDER[row.status], -_at_stake(row), row.table))
    counted = ", ".join(f"{sum(r.status == s for r in rows)} {s}" for s in _ORDER if any(r.status == s for r in rows))
    body = "".join(map(_index_row, ranked))
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>Table health: {html.escape(catalog)}</title><style>{_STYLE}</style>"
        f"<h1>Table health</h1><p class=muted>Catalog {html.escape(catalog)}, {html.escape(made_at)}. {html.escape(counted)}.</p>"
        "<table><thead><tr><th>Status<th>Table<th>Findings<th class=n>Data files<th class=n>Data<th class=n>Seconds</tr></thead>"
        f"<tbody>{body}</tbody></table></html>"
    )
    return write_text(path, page)


def _at_stake(row: Row) -> int:
    return sum(f["bytes_at_stake"] for f in row.outcome.findings) if row.outcome else 0


def _index_row(row: Row) -> str:
    from icekit.diagnose.context import size

    name = html.escape(row.table)
    link = f"<a href='{html.escape(row.page)}'>{name}</a>" if row.page else name
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
