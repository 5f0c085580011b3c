"""Write a pass as JSON with a schema version, as a page that links every report, and as text."""

from __future__ import annotations

import html
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from icekit.saving import versions, write_json, write_text
from icekit.schedule.kept import as_data
from icekit.schedule.result import Pass, TableResult
from icekit.units import count, moment, shorten, size, span

#: Raised by one when a field changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 1
JSON_FILE, PAGE_FILE = "pass.json", "pass.html"
_WIDTH = 100


def document(made: Pass) -> dict[str, Any]:
    """A pass as plain data; secrets are taken out when it is written."""
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": made.policy,
        "catalog": made.catalog,
        "dry_run": made.is_dry_run,
        "interrupted": made.interrupted,
        "failure": made.failure,
        "started_at": made.started.isoformat(timespec="seconds"),
        "seconds": round(made.seconds, 3),
        "exit_status": made.exit_status,
        "versions": versions(),
        "counted": {status: sum(t.status == status for t in made.tables) for status in sorted({t.status for t in made.tables})},
        "problems": list(made.problems),
        "alert_problems": list(made.alert_problems),
        "told": list(made.told),
        "tables": [as_data(one) for one in made.tables],
        "lately": [asdict(one) for one in made.lately],
    }


def write(made: Pass, folder: Path) -> tuple[Path, Path]:
    """Write ``pass.json`` and ``pass.html``; a reader never sees half of one."""
    written = write_json(folder / JSON_FILE, document(made))
    return written, write_text(folder / PAGE_FILE, page(made))


def text(made: Pass) -> str:
    """The pass as a table of lines, the gravest first; what is not due is only counted."""
    lines = [f"{'status':<13} {'health':<9} table", "─" * _WIDTH]
    for one in made.tables:
        if one.status == "not due" and not one.is_unhealthy:
            continue
        health = one.health.status if one.health else ""
        changed = f"{one.before.status} → {health}" if one.before and one.before.status != health else health
        lines.append(f"{one.status:<13} {changed:<9} {one.table}")
        lines += [f"{'':<14}{shorten(said, _WIDTH * 3)}" for said in _said(one)]
    lines.append("─" * _WIDTH)
    lines.append(f"{made.counted()}; {span(made.seconds * 1000)}")
    unhealthy = [f"{one.table} ({one.health.status} by fail_on={one.fail_on})" for one in made.tables if one.is_unhealthy and one.health]
    lines += [f"unhealthy: {', '.join(unhealthy)}"] if unhealthy else []
    lines += [f"the pass itself failed: {made.failure}"] if made.failure else []
    lines += [f"policy: {problem}" for problem in made.problems]
    lines += [f"told: {name}" for name in made.told]
    lines += [f"not told: {problem}" for problem in made.alert_problems]
    return "\n".join(lines)


def page(made: Pass) -> str:
    """One HTML file that opens offline and links each table's newest report."""
    rows = "".join(_row(one) for one in made.tables)
    problems = "".join(f"<p class=bad>{html.escape(p)}</p>" for p in (*filter(None, [made.failure]), *made.problems, *made.alert_problems))
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>icekit: {html.escape(made.policy)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Policy {html.escape(made.policy)}</h1><p class=muted>Catalog {html.escape(made.catalog)}, {made.started:%Y-%m-%d %H:%M} UTC, "
        f"{span(made.seconds * 1000)}. {html.escape(made.counted())}.</p>{problems}"
        "<table><thead><tr><th>Status<th>Table<th>Health<th>What was done, or why not<th class=n>Data files<th class=n>Data</tr></thead>"
        f"<tbody>{rows}</tbody></table>{_lately(made)}</body></html>"
    )


def _lately(made: Pass) -> str:
    """What earlier passes ran, newest first."""
    if not made.lately:
        return ""
    rows = "".join(
        f"<tr><td class=t>{moment(one.at_ms)}<td>{html.escape(one.table)}<td>{html.escape(one.action)}"
        f"<td class='s {html.escape(one.status)}'>{html.escape(one.status)}<td>{html.escape(one.said)}<td class=n>{span(one.seconds * 1000)}</tr>"
        for one in made.lately
    )
    return (
        f"<h2>What earlier passes did</h2><p class=muted>The last {count(len(made.lately), 'action')} before this pass, newest first.</p>"
        "<table><thead><tr><th>Ended<th>Table<th>Action<th>Status<th>What was done<th class=n>Took</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1a1a1a;background:#fff}
a{color:#0050a0}table{border-collapse:collapse;width:100%;font-size:.95rem}th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid #ddd;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}td.t{white-space:nowrap}.s{white-space:nowrap;font-weight:600}.muted{color:#555}.bad,.crashed,.timed,.misconfigured,.failed,.critical{color:#a3200d}
.warning,.stopped,.waits,.busy{color:#8a5300}.done,.healthy{color:#00664a}.planned,.info{color:#0050a0}
"""


def _row(one: TableResult) -> str:
    health = one.health
    name = html.escape(one.table)
    linked = f"<a href='{html.escape(quote(health.page))}'>{name}</a>" if health and health.page else name
    before = one.before
    said = "<br>".join(html.escape(line) for line in _said(one))
    status = one.status.split(" ")[0]
    health_said = "–" if health is None else health.status
    if before and health and before.page:
        linked += f" <a class=muted href='{html.escape(quote(before.page))}'>(before)</a>"
        health_said = f"{before.status} → {health.status}" if before.status != health.status else health.status
    files = (
        "–"
        if health is None
        else f"{health.data_files:,}"
        if before is None or before.data_files == health.data_files
        else f"{before.data_files:,} → {health.data_files:,}"
    )
    data = "–" if health is None else size(health.data_bytes)
    return (
        f"<tr><td class='s {status}'>{one.status}<td>{linked}<td class='{health.status if health else ''}'>{health_said}"
        f"<td>{said}<td class=n>{files}<td class=n>{data}</tr>"
    )


def _said(one: TableResult) -> list[str]:
    return [*([one.why] if one.why else []), *(f"{step.action} {step.status}: {step.said}" for step in one.steps)]
