"""Write the index of a report: every table of a run, ranked by what maintenance would save."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from icekit.answer.html import render
from icekit.catalog.lake import EMBEDDED
from icekit.diagnose.findings import Thresholds, titles
from icekit.history.store import Health
from icekit.history.trend import Comparison, compare
from icekit.maintain.savings import Savings, total
from icekit.report.result import JUDGED, STATUSES, ReportRun, Row
from icekit.saving import write_text
from icekit.units import about, count, percent, size

_SIGNS = dict.fromkeys(STATUSES[:3], "✖") | {
    "critical": "✖",
    "warning": "▲",
    "info": "●",
    "healthy": "✔",
}
_SAID = {"warning": "with warnings", "info": "with notes"}
#: Most tables named in the list of tables that got worse; the rows show all.
_MOST_WORSE = 20
#: Letters of a name that may be broken.
_LONG = 24
_DASH = "–"


@dataclass(frozen=True, kw_only=True)
class Index:
    """The content of a run's index: its rows, and information about the run.

    ``pending`` tables have no row yet; ``remembered`` holds earlier runs; ``thresholds`` decide
    which tables got worse since then; ``problems`` belong to no table, and are shown above the
    tables.
    """

    rows: Sequence[Row]
    made_at: str
    catalog: str
    pending: int = 0
    remembered: Mapping[str, Sequence[Health]] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    problems: Sequence[str] = ()


class _Column(NamedTuple):
    """``group`` is a heading over adjacent columns; an ``is_more`` column is shown only on
    request.
    """

    name: str
    css: str = "n"
    group: str = ""
    is_more: bool = False


class _Cell(NamedTuple):
    """A cell sorts by its value; an unknown value sorts below 0."""

    text: str = _DASH
    value: float = -1
    share: float | None = None
    note: Any = ""


class _Box(NamedTuple):
    value: str
    name: str
    more: str = ""


_SAVED = "What maintenance would save"
_ORPHANS = _Column("Orphan files hold", "n more", is_more=True)
_COLUMNS = (_Column("Status", ""), _Column("Table and findings", ""))
#: The columns after the first two; :func:`_cells` has a cell for each.
_FIGURES = (
    _Column("Of the scan's cost", group=_SAVED),
    _Column("File opens", group=_SAVED),
    _Column("Delete rows", group=_SAVED),
    _Column("Manifests", group=_SAVED),
    _Column("To rewrite"),
    _Column("Over time", "t"),
    _Column("Cost saved", "n more", is_more=True),
    _Column("Data files", "n more", is_more=True),
    _Column("Data", "n more", is_more=True),
    _Column("Expiry frees", "n more", is_more=True),
    _ORPHANS,
    _Column("Seconds", "n more", is_more=True),
)


def write_index(index: Index, path: Path) -> Path:
    """Rank the tables: what could not be read first, then by what maintenance would save a full
    scan.
    """
    ranked = sorted(index.rows, key=rank)
    earlier = index.remembered
    compared = {
        row.table: compare([*earlier[row.table], row.health], index.thresholds)
        for row in ranked
        if row.health and row.table in earlier
    }
    savings = [row.savings for row in ranked if row.savings]
    is_listed = any(each.orphan_files is not None for each in savings)
    figures = [column for column in _FIGURES if is_listed or column is not _ORPHANS]
    columns = [*_COLUMNS, *figures]
    numbers, first = Counter(row.status for row in ranked), _first(ranked)
    page = render(
        "index.html",
        title=f"Table health: {index.catalog}",
        catalog=index.catalog,
        made_at=index.made_at,
        pending=index.pending,
        problems=index.problems,
        verdict=_verdict(numbers, len(ranked)),
        first=first,
        command=_plan(first, index.catalog) if first else "",
        totals=_totals(savings),
        compared=len(compared),
        worse=[
            (row, "; ".join(comparison.worse))
            for row in ranked
            if (comparison := compared.get(row.table)) and comparison.worse
        ],
        most_worse=_MOST_WORSE,
        better=sum(bool(each.better) for each in compared.values()),
        statuses=[
            {"name": s, "css": s.replace(" ", "-"), "sign": _SIGNS[s], "tables": numbers[s]}
            for s in STATUSES
            if numbers[s]
        ],
        groups=[
            (name, len(list(each)))
            for name, each in groupby(c.group for c in columns if not c.is_more)
        ],
        columns=columns,
        ranks={status: number for number, status in enumerate(STATUSES)},
        signs=_SIGNS,
        rows=[(row, _shown(row, compared.get(row.table), figures)) for row in ranked],
        link=_link,
        finds=_finds,
    )
    return write_text(path, page)


def _shown(
    row: Row, compared: Comparison | None, figures: Sequence[_Column]
) -> list[tuple[_Column, _Cell]]:
    """A table's cells with their columns, as far as they are shown."""
    pairs = zip(_FIGURES, _cells(row, compared), strict=True)
    return [(column, cell) for column, cell in pairs if column in figures]


def rank(row: Row) -> tuple[int, int, int, int, str]:
    """The order of the index: unreadable tables, then scan savings, freed storage, severity,
    name.
    """
    grave, savings = STATUSES.index(row.status), row.savings or Savings()
    return (
        grave if row.status not in JUDGED else len(STATUSES),
        -savings.saved,
        -savings.storage_bytes,
        grave,
        row.table,
    )


#: Tables and findings that the closing words of a run name.
_WORST, _FINDINGS = 3, 4


def closing(run: ReportRun, catalog: str) -> str:
    """The closing words of a run for a terminal: the verdict, the worst tables with their findings,
    and what to run next.
    """
    lines = [_verdict(Counter(row.status for row in run.rows), len(run.rows))]
    worst = [row for row in sorted(run.rows, key=rank) if row.status != "healthy"]
    width = max((len(row.table) for row in worst[:_WORST]), default=0)
    for row in worst[:_WORST]:
        names = titles(
            [str(finding["name"]) for finding in (row.outcome.findings if row.outcome else ())]
        )
        more = f" and {len(names) - _FINDINGS} more" if len(names) > _FINDINGS else ""
        why = f": {', '.join(names[:_FINDINGS])}{more}" if names else ""
        lines.append(f"  {_SIGNS[row.status]} {row.table:<{width}}  {row.status}{why}")
    if first := _first(worst):
        lines.append(f"Next: {_plan(first, catalog)}")
    return "\n".join(line for line in lines if line)


def _first(ranked: Sequence[Row]) -> Row | None:
    """The table to begin with: the first that could be read and is not healthy."""
    return next((row for row in ranked if row.status in JUDGED - {"healthy"}), None)


def _plan(row: Row, catalog: str) -> str:
    given = f" --catalog {shlex.quote(catalog)}" if catalog not in {"", EMBEDDED} else ""
    return f"icekit plan {shlex.quote(row.table)}{given}"


def _verdict(numbers: Mapping[str, int], tables: int) -> str:
    each = ", ".join(
        f"{numbers[status]:,} {_SAID.get(status, status)}" for status in STATUSES if numbers[status]
    )
    return f"{count(tables, 'table')}: {each}." if tables else ""


def _totals(each: Sequence[Savings]) -> list[_Box]:
    if not each:
        return []
    summed = total(each)
    boxes = [
        _Box(
            "not estimated" if summed.share is None else percent(summed.share),
            "of the cost of scanning every table once",
        ),
        _Box(f"{summed.opens_saved:,}", "file opens", f"of {summed.opens:,} in those scans"),
    ]
    if summed.delete_rows_gone:
        boxes.append(
            _Box(
                f"{summed.delete_rows_gone:,}",
                "delete rows no longer applied",
                f"of {summed.delete_rows:,}",
            )
        )
    if summed.manifests_gone:
        boxes.append(_Box(f"{summed.manifests_gone:,}", "manifests", f"of {summed.manifests:,}"))
    if summed.expirable_bytes:
        boxes.append(_Box(size(summed.expirable_bytes), "storage, by expiry", "at least"))
    if summed.orphan_files:
        held = _DASH if summed.orphan_bytes is None else _held(summed)
        boxes.append(
            _Box(
                held,
                "storage, of orphan files",
                f"{count(summed.orphan_files, 'file')}, where storage was listed",
            )
        )
    return [*boxes, _Box(size(summed.rewrite_bytes), "to rewrite", "of data files, to save this")]


def _cells(row: Row, compared: Comparison | None) -> list[_Cell]:
    """A table's cells, in the order of :data:`_FIGURES`."""
    savings, data = row.savings, row.outcome.totals["data"] if row.outcome else None
    share = savings.share if savings else None
    has_findings = row.outcome is not None and bool(row.outcome.findings)
    # No finding of such a table has a saving that can be worked out: that is not to save nothing.
    unknown = savings is not None and (share is None or (not share and has_findings))
    of_cost = (
        _Cell(percent(share), share, share)
        if share
        else _Cell("not estimated")
        if unknown
        else _Cell()
    )
    return [
        of_cost,
        _of(savings.opens_saved, savings.opens) if savings else _Cell(),
        _of(savings.delete_rows_gone, savings.delete_rows) if savings else _Cell(),
        _of(savings.manifests_gone, savings.manifests) if savings else _Cell(),
        _bytes(savings.rewrite_bytes if savings else None),
        _Cell("", len(compared.worse) + bool(compared.trend) / 2, note=compared)
        if compared
        else _Cell(value=0),
        _bytes(savings.saved if savings else None),
        _Cell(f"{data['file_count']:,}", data["file_count"]) if data else _Cell(),
        _bytes(data["size_in_bytes"] if data else None),
        _bytes(savings.expirable_bytes if savings else None),
        _orphans(savings),
        _Cell(f"{row.seconds:.1f}", row.seconds),
    ]


def _of(saved: int, total: int) -> _Cell:
    return _Cell(f"{saved:,} of {total:,}" if total else "0", saved)


def _bytes(value: int | None) -> _Cell:
    return _Cell() if value is None else _Cell(size(value), value)


def _orphans(savings: Savings | None) -> _Cell:
    if savings is None or savings.orphan_files is None:
        return _Cell()
    files = count(savings.orphan_files, "file")
    if savings.orphan_bytes is None:
        # Files that nobody could weigh sort above none at all.
        return _Cell(files, min(savings.orphan_files, 1))
    return _Cell(
        f"{_held(savings)}, {files}" if savings.orphan_files else "0", savings.orphan_bytes
    )


def _held(savings: Savings) -> str:
    return about(savings.orphan_bytes or 0, is_estimate=savings.are_orphans_estimated)


def _finds(row: Row) -> str:
    names = titles([f["name"] for f in row.outcome.findings]) if row.outcome else []
    return row.error or ", ".join(names) or "nothing to do"


def _link(row: Row) -> Any:
    """The table's name, which leads to its page; a long one may be broken where a person would
    break it.
    """
    from markupsafe import Markup, escape

    name = escape(row.table)
    if len(row.table) > _LONG:
        name = Markup(re.sub(r"([._])", r"\1<wbr>", str(name)))
    return Markup("<a href='{}'>{}</a>").format(quote(row.page), name) if row.page else name
