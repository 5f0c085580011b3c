"""Write the index of a report: every table of a run, ranked by what maintenance would save."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from icekit.common.commands import command_line
from icekit.common.errors import Status
from icekit.common.html import render
from icekit.common.saving import write_text
from icekit.common.terminal import harmless
from icekit.common.units import about, count, first_names, percent, size
from icekit.health.diagnose.findings import Thresholds
from icekit.maintain.savings import Savings, total
from icekit.report.history.store import Health
from icekit.report.history.trend import Comparison, compare
from icekit.report.result import JUDGED, STATUSES, ReportRun, Row, changes_results

_SIGNS = dict.fromkeys(STATUSES[:5], "✖") | {
    "warning": "▲",
    "info": "●",
    "healthy": "✔",
}


@dataclass(frozen=True, kw_only=True)
class Index:
    """The content of a run's index: its rows so far of ``tables``, and information about the run.

    ``remembered`` holds earlier runs; ``thresholds`` decide which tables got worse since then;
    ``problems`` belong to no table, and are shown above the tables.
    """

    rows: Sequence[Row]
    made_at: str
    catalog: str
    tables: int = 0
    remembered: Mapping[str, Sequence[Health]] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    problems: Sequence[str] = ()


class _Cell(NamedTuple):
    """A cell sorts by its value; an unknown value sorts below 0."""

    text: str = "–"
    value: float = -1
    share: float | None = None
    note: Any = ""


def write_index(index: Index, path: Path) -> Path:
    """Rank the tables (:func:`rank`), and write the page."""
    ranked = sorted(index.rows, key=rank)
    earlier = index.remembered
    compared = {
        row.table: compare([*earlier[row.table], row.health], index.thresholds)
        for row in ranked
        if row.health and row.table in earlier
    }
    savings = [row.savings for row in ranked if row.savings]
    saved = total(savings)
    numbers = Counter(row.status for row in ranked)
    first = _first(ranked)
    page = render(
        "index.html",
        title=f"Table health: {index.catalog}",
        index=index,
        verdict=_verdict(numbers, len(ranked)),
        first=first,
        command=_plan(first, index.catalog) if first else "",
        saved=saved if savings else None,
        share="not estimated" if saved.share is None else percent(saved.share),
        orphans=_orphans(saved).text,
        compared=compared,
        worse=[row for row in ranked if row.table in compared and compared[row.table].worse],
        better=sum(bool(each.better) for each in compared.values()),
        numbers=numbers,
        ranks=STATUSES,
        signs=_SIGNS,
        rows=[(row, _cells(row, compared.get(row.table))) for row in ranked],
        titles=_titles,
    )
    return write_text(path, page)


def rank(row: Row) -> tuple[int, int, int, int, str]:
    """The order of the index: unreadable tables, those whose queries go wrong, then scan savings,
    orphan files, severity, name.
    """
    grave = STATUSES.index(row.status)
    savings = row.savings or Savings()
    return (
        grave if row.status not in JUDGED else len(STATUSES) + (not changes_results(row.findings)),
        -savings.saved,
        -(savings.orphan_bytes or 0),
        grave,
        row.table,
    )


#: Tables and findings that the closing words of a run name.
_WORST = 3
_FINDINGS = 4


def closing(run: ReportRun, catalog: str) -> str:
    """The closing words of a run for a terminal: the verdict, the worst tables with their findings,
    and what to run next.
    """
    lines = [_verdict(Counter(row.status for row in run.rows), len(run.rows))]
    worst = [row for row in sorted(run.rows, key=rank) if row.status != "healthy"]
    for row in worst[:_WORST]:
        parts = [row.table, row.status, first_names(_titles(row), _FINDINGS)]
        lines.append(f"  {_SIGNS[row.status]} {': '.join(filter(None, parts))}")
    if other_tables := worst[_WORST:]:
        lines.append(f"  and {count(len(other_tables), 'more table')} with findings")
    if first := _first(worst):
        lines.append(f"Next: {_plan(first, catalog)}")
    return "\n".join(line for line in lines if line)


def _first(ranked: Sequence[Row]) -> Row | None:
    """The table to begin with: the first that could be read and is not healthy."""
    return next((row for row in ranked if row.status in JUDGED - {"healthy"}), None)


def _plan(row: Row, catalog: str) -> str:
    return command_line("plan", catalog, row.table)


def _verdict(numbers: Mapping[str, int], tables: int) -> str:
    each = ", ".join(f"{numbers[status]:,} {status}" for status in STATUSES if numbers[status])
    return f"{count(tables, 'table')}: {each}." if tables else ""


def _cells(row: Row, compared: Comparison | None) -> Mapping[str, _Cell]:
    """A table's cells by the names of their columns; without those that are not known."""
    cells = defaultdict(_Cell, {"Seconds": _Cell(f"{row.seconds:.1f}", row.seconds)})
    if compared:
        worse = len(compared.worse) + bool(compared.trend) / 2
        cells["Over time"] = _Cell("", worse, note=compared)
    if row.health:
        files = row.health.data_files
        cells["Data files"] = _Cell(f"{files:,}", files)
        cells["Data"] = _bytes(row.health.data_bytes)
    if savings := row.savings:
        share = savings.share
        cells["Orphan files hold"] = _orphans(savings)
        if row.findings and not share:
            # No finding of such a table has a saving that can be worked out: that is not to save
            # nothing.
            cells["Of the scan's cost"] = _Cell("not estimated")
            return cells
        cells |= {
            "Of the scan's cost": _Cell("–") if not share else _Cell(percent(share), share, share),
            "File opens": _of(savings.opens_saved, savings.opens),
            "Delete records": _of(savings.delete_rows_gone, savings.delete_rows),
            "Manifests": _of(savings.manifests_gone, savings.manifests),
            "To rewrite": _bytes(savings.rewrite_bytes),
            "Cost saved": _bytes(savings.saved),
        }
    return cells


def _of(saved: int, total: int) -> _Cell:
    return _Cell(f"{saved:,} of {total:,}" if total else "0", saved)


def _bytes(value: int | None) -> _Cell:
    return _Cell() if value is None else _Cell(size(value), value)


def _orphans(savings: Savings) -> _Cell:
    if savings.orphan_files is None:
        return _Cell()
    files = count(savings.orphan_files, "file")
    if savings.orphan_bytes is None:
        # Files that nobody could weigh sort above none at all.
        return _Cell(files, min(savings.orphan_files, 1))
    orphan_size = about(savings.orphan_bytes, is_estimate=savings.are_orphans_estimated)
    return _Cell(f"{orphan_size}, {files}" if savings.orphan_files else "0", savings.orphan_bytes)


def _titles(row: Row) -> list[str]:
    return [name.replace("_", " ") for name, _ in row.findings]


def write_junit(run: ReportRun, fail_on: str, path: Path) -> Path:
    """Write a report as JUnit XML, a case for each table: unhealthy tables are failures; tables
    that cannot be read, and problems of no table, are errors.
    """
    problems = [Row("report", Status.MISCONFIGURED, error=problem) for problem in run.problems]
    kinds = {Status.UNHEALTHY: "failure", Status.NOTHING: ""}
    cases = [(row, kinds.get(row.verdict(fail_on), "error")) for row in (*run.rows, *problems)]
    numbers = Counter(kind for _, kind in cases)
    return write_text(path, harmless(render("junit.xml", cases=cases, numbers=numbers)))
