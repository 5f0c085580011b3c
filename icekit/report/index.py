"""Write the index of a run."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from icekit.history.records import Health
from icekit.report.document import write_text
from icekit.report.page import page
from icekit.report.rows import Row

_ORDER = {"crashed": 0, "timed out": 0, "misconfigured": 1, "critical": 2, "warning": 3, "info": 4, "healthy": 5}
_SIGNS = {"crashed": "✖", "timed out": "✖", "misconfigured": "✖", "critical": "▲", "warning": "◆", "info": "●", "healthy": "✔"}


def write_index(
    rows: Sequence[Row],
    path: Path,
    *,
    made_at: str,
    catalog: str,
    pending: int = 0,
    remembered: Mapping[str, Sequence[Health]] | None = None,
) -> Path:
    """Rank the tables: what could not be read first, then by severity and findings."""
    ranked = sorted(rows, key=lambda row: (_ORDER[row.status], -_at_stake(row), row.table))
    counted = ", ".join(f"{sum(r.status == s for r in rows)} {s}" for s in _ORDER if any(r.status == s for r in rows))
    body = "".join(map(_index_row, ranked))
    listed = (
        f"<h1>Table health</h1><p class=muted>Catalog {html.escape(catalog)}, {html.escape(made_at)}. {html.escape(counted)}.</p>"
        "<table class=index><thead><tr><th>Status<th>Table<th>Findings<th class=n>Data files<th class=n>Data<th class=n>Seconds</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )
    return write_text(path, page(f"Table health: {catalog}", listed))


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
