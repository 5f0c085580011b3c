"""Turn executed notebooks into pages that open offline, and write the index of a run, ranked by what maintenance would save."""

from __future__ import annotations

import copy
import html
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from icekit.compact.candidates import Savings, total
from icekit.diagnose.findings import Thresholds
from icekit.history.store import RecentRuns
from icekit.history.trend import better, worse
from icekit.report.journal import JUDGED, STATUSES, Row
from icekit.saving import write_text
from icekit.show.health import WIDGET_VIEW
from icekit.show.sparkline import sparkline
from icekit.units import about, count, percent, size, unbroken

# --- Turn an executed notebook into one HTML file that opens offline, and tables into an index


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


_SIGNS = {"crashed": "✖", "timed out": "✖", "misconfigured": "✖", "critical": "✖", "warning": "▲", "info": "●", "healthy": "✔"}
#: Tables that the list of what got worse names; the rows have them all.
_WORSE = 20
#: Letters of a name that may be broken.
_LONG = 24
_DASH = "–"


def write_index(
    rows: Sequence[Row],
    path: Path,
    *,
    made_at: str,
    catalog: str,
    pending: int = 0,
    remembered: Mapping[str, RecentRuns] | None = None,
    thresholds: Thresholds | None = None,
    problems: Sequence[str] = (),
) -> Path:
    """Rank the tables: what could not be read first, then by what maintenance would spare a full scan.

    ``pending`` tables have no row yet; ``remembered`` is what is known of earlier runs; what got worse
    since is told by ``thresholds``, which are the run's; ``problems`` are of no table, and stand above them.
    """
    ranked = sorted(rows, key=rank)
    before, limits = remembered or {}, thresholds or Thresholds()
    is_listed = any(row.wins is not None and row.wins.orphan_files is not None for row in rows)
    parts = [
        f"<h1>Table health</h1><p class=muted>Catalog {html.escape(catalog)}, {html.escape(made_at)}.{_pending(len(rows), pending)}</p>",
        *(f"<p class='s misconfigured'>{html.escape(problem)}</p>" for problem in problems),
        _totals([row.wins for row in rows if row.wins]),
        _worse(ranked, before, limits),
        _filters(rows),
        f"<div class=wide><table class=index><thead><tr>{_head(is_listed)}</tr></thead><tbody>{''.join(_row(row, before.get(row.table), limits, is_listed) for row in ranked)}</tbody></table></div>",
        _FORMULA if rows else "",
        f"<script>{_SCRIPT}</script>",
    ]
    return write_text(path, page(f"Table health: {catalog}", f"<main class=lake>{''.join(parts)}</main>", style=_INDEX_STYLE))


def rank(row: Row) -> tuple[int, int, int, int, str]:
    """The order of the index: what could not be judged, then what a scan is spared, what storage is freed, the most serious, by name."""
    grave, won = STATUSES.index(row.status), row.wins or Savings()
    return (grave if row.status not in JUDGED else len(STATUSES), -won.spared, -won.storage_bytes, grave, row.table)


def _pending(done: int, pending: int) -> str:
    if not pending:
        return ""
    return f" <strong>{done:,} of {done + pending:,} tables so far</strong>: the run is at work, or was interrupted (--continue goes on with it)."


def _totals(each: Sequence[Savings]) -> str:
    if not each:
        return ""
    summed = total(each)
    figures = [
        ("of the cost of scanning every table once", percent(summed.share or 0.0), f"{size(summed.spared)} of {size(summed.scan_cost)}"),
        ("file opens", f"{summed.opens_spared:,}", f"{summed.files_gone:,} data files fewer"),
        ("delete rows that reads apply", f"{summed.delete_rows_gone:,}", ""),
        ("manifests", f"{summed.manifests_gone:,}", f"{size(summed.manifest_bytes_spared)} of entries"),
        ("storage, by expiry", _DASH if summed.expirable_bytes is None else size(summed.expirable_bytes), "at least"),
    ]
    if summed.orphan_files is not None:
        held = _DASH if summed.orphan_bytes is None else _held(summed)
        figures.append(("storage, of orphan files", held, f"{count(summed.orphan_files, 'file')}, where storage was listed"))
    boxes = "".join(
        f"<div><b>{html.escape(unbroken(value))}</b><span>{name}</span><small>{html.escape(unbroken(more))}</small></div>"
        for name, value, more in figures
    )
    return (
        f"<h2>What maintenance would win</h2><div class=totals>{boxes}</div>"
        f"<p class=muted>For it, {size(summed.rewrite_bytes)} of data files would be rewritten.</p>"
    )


def _worse(rows: Sequence[Row], before: Mapping[str, RecentRuns], limits: Thresholds) -> str:
    compared = [(row, before[row.table].last, row.health) for row in rows if row.health and row.table in before]
    if not compared:
        return ""
    told = [(row, said) for row, was, now in compared if (said := worse(was, now, limits))]
    fixed = sum(bool(better(was, now)) for _, was, now in compared)
    items = "".join(f"<li>{_link(row)}: {html.escape('; '.join(said))}" for row, said in told[:_WORSE])
    more = f"<li>and {count(len(told) - _WORSE, 'table')} more, below" if len(told) > _WORSE else ""
    listed = f"<ul>{items}{more}</ul>" if told else "<p>Nothing got worse.</p>"
    return f"<h2>Since the last run</h2>{listed}<p class=muted>{count(fixed, 'table')} lost a finding; {count(len(compared), 'table')} compared.</p>"


def _filters(rows: Sequence[Row]) -> str:
    boxes = "".join(
        f"<label class='s {_class(status)}'><input type=checkbox checked value='{_class(status)}'> {_SIGNS[status]} {n:,} {status}</label>"
        for status in STATUSES
        if (n := sum(row.status == status for row in rows))
    )
    return f"<h2>Tables</h2><div class=filters role=group aria-label='Show tables that are'>{boxes}</div>" if boxes else ""


#: A column only where storage was listed.
_ORPHANS = "Orphans hold"
_COLUMNS = (
    ("Status", ""),
    ("Table and findings", ""),
    ("A scan is spared", "n"),
    ("File opens", "n"),
    ("Data files", "n"),
    ("Delete rows", "n"),
    ("Manifests", "n"),
    ("Expiry frees", "n"),
    (_ORPHANS, "n"),
    ("To rewrite", "n"),
    ("Over time", ""),
    ("Data", "n"),
    ("Seconds", "n"),
)


def _head(is_listed: bool) -> str:
    columns = (column for column in _COLUMNS if is_listed or column[0] != _ORPHANS)
    return "".join(f"<th scope=col class='{side}'><button type=button>{name}</button>" for name, side in columns)


def _row(row: Row, before: RecentRuns | None, limits: Thresholds, is_listed: bool) -> str:
    won = row.wins
    found = [f["name"].replace("_", " ") for f in row.outcome.findings] if row.outcome else []
    said = html.escape(row.error or (", ".join(found) or "nothing to do"))
    data = row.outcome.totals["data"] if row.outcome else None
    cells = [
        f"<td class='s {_class(row.status)}' data-v='{STATUSES.index(row.status)}'>{_SIGNS[row.status]} {row.status}",
        f"<td>{_link(row)}<br><small>{said}</small>",
        _number("A scan is spared", won.spared if won else None, _spared(won) if won else _DASH, bar=won.share if won else None),
        _number("File opens", won.opens_spared if won else None),
        _number("Data files", won.files_gone if won else None, f"{won.files_gone:,} of {data['file_count']:,}" if won and data else None),
        _number("Delete rows", won.delete_rows_gone if won else None),
        _number("Manifests", won.manifests_gone if won else None),
        _number("Expiry frees", won.expirable_bytes if won else None, in_bytes=True),
        *([_orphans(won)] if is_listed else []),
        _number("To rewrite", won.rewrite_bytes if won else None, in_bytes=True),
        _over_time(row, before, limits),
        _number("Data", data["size_in_bytes"] if data else None, in_bytes=True),
        _number("Seconds", row.seconds, f"{row.seconds:.1f}"),
    ]
    return f"<tr data-status='{_class(row.status)}'>{''.join(cells)}</tr>"


def _orphans(won: Savings | None) -> str:
    if won is None or won.orphan_files is None:
        return _number(_ORPHANS, None)
    files = count(won.orphan_files, "file")
    if won.orphan_bytes is None:
        # Files that nobody could weigh sort above none at all.
        return _number(_ORPHANS, min(won.orphan_files, 1), files)
    return _number(_ORPHANS, won.orphan_bytes, f"{_held(won)}, {files}" if won.orphan_files else "0")


def _held(won: Savings) -> str:
    return about(won.orphan_bytes or 0, is_estimate=won.are_orphans_estimated)


def _spared(won: Savings) -> str:
    return size(won.spared) if won.share is None else f"{size(won.spared)}, {percent(won.share)}"


def _number(name: str, value: float | None, written: str | None = None, *, in_bytes: bool = False, bar: float | None = None) -> str:
    """A cell that sorts by its number; a zero is quiet."""
    if value is None:
        return f"<td class=n data-v='-1' data-label='{name}'>{_DASH}"
    shown = written or (size(value) if in_bytes else f"{value:,.0f}")
    track = f"<i class=bar style='--share:{bar:.3f}'></i>" if bar else ""
    return f"<td class='n{'' if value else ' zero'}' data-v='{value:.3f}' data-label='{name}'>{html.escape(unbroken(shown))}{track}"


def _over_time(row: Row, before: RecentRuns | None, limits: Thresholds) -> str:
    now = row.health.scan_bytes_spared if row.health else None
    points = [*(before.points if before else ()), *([now] if now is not None else [])]
    if len(points) < 2:
        return f"<td class=t data-v='0'>{_DASH}"
    said = worse(before.last, row.health, limits) if row.health and before else ()
    drawn = sparkline(points, f"What a scan would be spared, {len(points)} runs: {size(points[0])} at first, {size(points[-1])} now")
    note = f"<small>{html.escape('; '.join(said))}</small>" if said else ""
    return f"<td class=t data-v='{len(said)}' data-label='Over time'>{drawn}{note}"


def _link(row: Row) -> str:
    name = html.escape(row.table)
    if len(row.table) > _LONG:
        # Where a person would break it.
        name = re.sub(r"([._])", r"\1<wbr>", name)
    return f"<a href='{html.escape(quote(row.page))}'>{name}</a>" if row.page else name


def _class(status: str) -> str:
    return status.replace(" ", "-")


_FORMULA = """<details><summary>How tables are ranked</summary><p>By what one full scan of the table would be spared, in bytes:
<code>(file opens + manifests) × cost of an open + bytes no longer read</code>. The cost of an open is the table's
<code>read.split.open-file-cost</code>, by which Iceberg itself weighs a file against its bytes (4 MiB by default). <em>File opens</em> are
counted as <code>icekit compact</code> does: data files that go, and delete files no longer opened beside each data file. <em>Bytes no longer
read</em> are deleted rows, delete files and manifest entries. The percentage is of the same scan's whole cost. <em>Delete rows</em> are shown
and not priced. <em>Expiry frees</em> is what the snapshot summaries say that snapshots past the table's own limits alone hold: at least so
much, manifests not counted. <em>Orphans hold</em> is what the files hold
that <code>--storage</code> finds by the dry run of <code>remove_orphan_files</code>: the sizes of all of them, or <em>about</em> so much by those of
2,000. Both together decide between tables that spare a scan the same. A dash is not known. Tables that could
not be read come first. Click a heading to sort.</p></details>"""

_INDEX_STYLE = """
body{max-width:none}.lake{max-width:92rem;margin:auto}.wide{overflow-x:auto}small{font-size:.85em;color:#555}
.totals{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.8rem}.totals div{border:1px solid #ccc;border-left:6px solid #0072b2;padding:.5rem .8rem}
.totals b,.totals span,.totals small{display:block}.totals b{font-size:1.4rem;line-height:1.3}
.filters label{margin-right:1.2rem;cursor:pointer;white-space:nowrap}
.index th{vertical-align:bottom}.index th button{font:inherit;font-weight:600;background:none;border:0;padding:0;color:#0050a0;cursor:pointer;text-align:inherit}
.index th[aria-sort=ascending] button::after{content:" ▲"}.index th[aria-sort=descending] button::after{content:" ▼"}
.index td{font-size:.92rem}.index td,.index th{padding:.35rem .5rem}.zero{color:#767676}.index td:nth-child(2){min-width:13rem;overflow-wrap:anywhere}.t small{display:block;max-width:14rem}
.bar{display:block;height:.3rem;background:linear-gradient(to right,#0072b2 calc(100%*var(--share)),#e4e4e4 0);margin-top:.2rem}
"""

_SCRIPT = """
const body=document.querySelector('.index tbody'),heads=[...document.querySelectorAll('.index th')];
heads.forEach((th,i)=>th.querySelector('button').addEventListener('click',()=>{
 const up=th.getAttribute('aria-sort')==='descending'||(i<2&&th.getAttribute('aria-sort')!=='ascending');
 heads.forEach(h=>h.removeAttribute('aria-sort'));th.setAttribute('aria-sort',up?'ascending':'descending');
 const key=r=>{const c=r.cells[i];return c.dataset.v===undefined?c.textContent:Number(c.dataset.v)};
 [...body.rows].sort((a,b)=>{const x=key(a),y=key(b),d=x<y?-1:x>y?1:0;return up?d:-d}).forEach(r=>body.append(r));
}));
const boxes=[...document.querySelectorAll('.filters input')];
boxes.forEach(b=>b.addEventListener('change',()=>{const on=new Set(boxes.filter(x=>x.checked).map(x=>x.value));
 [...body.rows].forEach(r=>{r.hidden=!on.has(r.dataset.status)})}));
"""
