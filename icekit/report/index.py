"""Write the index of a report: every table of a run, ranked by what maintenance would save."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from icekit.common.command_line import command_line
from icekit.common.errors import Status
from icekit.common.html import render
from icekit.common.saving import write_text
from icekit.common.terminal import harmless_text
from icekit.common.units import about, count, first_names, percent, size
from icekit.health.diagnose.findings import Thresholds
from icekit.maintain.planning.savings import Savings, savings_total
from icekit.report.history.store import HealthRecord
from icekit.report.history.trend import RunComparison, compare
from icekit.report.result import JUDGED, STATUSES, ReportRow, ReportRun, changes_results

_SIGNS = dict.fromkeys(STATUSES[:5], "✖") | {
    "warning": "▲",
    "info": "●",
    "healthy": "✔",
}


# The columns after the first two, by name: their style in ``index.html``, whose row of groups
# counts them, and whether they are shown only on request.
_COLUMNS = {
    "Of the scan's cost": ("n", False),
    "File opens": ("n", False),
    "Delete records": ("n", False),
    "Manifests": ("n", False),
    "To rewrite": ("n", False),
    "Over time": ("t", False),
    "Cost saved": ("n", True),
    "Data files": ("n", True),
    "Data": ("n", True),
    "Orphan files hold": ("n", True),
    "Seconds": ("n", True),
}


@dataclass(frozen=True, kw_only=True)
class Index:
    """The content of a run's index: its rows so far of ``expected_table_count`` tables, and
    information about the run.

    ``earlier_runs`` holds earlier runs; ``thresholds`` decide which tables got worse since then;
    ``problems`` belong to no table, and are shown above the tables.
    """

    rows: Sequence[ReportRow]
    made_at: str
    catalog: str
    expected_table_count: int = 0
    earlier_runs: Mapping[str, Sequence[HealthRecord]] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    problems: Sequence[str] = ()


class _Cell(NamedTuple):
    """A cell sorts by its value; an unknown value sorts below 0."""

    text: str = "–"
    sort_value: float = -1
    share: float | None = None
    comparison: RunComparison | None = None


def write_index(index: Index, page_path: Path) -> Path:
    """Rank the tables (:func:`rank`), and write the page."""
    ranked_rows = sorted(index.rows, key=rank)
    earlier_runs = index.earlier_runs
    comparisons = {
        row.table: compare([*earlier_runs[row.table], row.health], index.thresholds)
        for row in ranked_rows
        if row.health and row.table in earlier_runs
    }
    table_savings = [row.savings for row in ranked_rows if row.savings]
    total_savings = savings_total(table_savings)
    status_counts = Counter(row.status for row in ranked_rows)
    row_to_fix = _first_to_fix(ranked_rows)
    page_html = render(
        "index.html",
        title=f"Table health: {index.catalog}",
        index=index,
        columns=[(name, css, is_more) for name, (css, is_more) in _COLUMNS.items()],
        verdict=_counts_sentence(status_counts, len(ranked_rows)),
        first=row_to_fix,
        command=_plan_command(row_to_fix, index.catalog) if row_to_fix else "",
        saved=total_savings if table_savings else None,
        share="not estimated" if total_savings.share is None else percent(total_savings.share),
        orphans=_orphans_cell(total_savings).text,
        compared=comparisons,
        worse=[
            row for row in ranked_rows if row.table in comparisons and comparisons[row.table].worse
        ],
        better=sum(bool(comparison.better) for comparison in comparisons.values()),
        numbers=status_counts,
        ranks=STATUSES,
        signs=_SIGNS,
        rows=[(row, _row_cells(row, comparisons.get(row.table))) for row in ranked_rows],
        titles=_finding_titles,
    )
    return write_text(page_path, page_html)


def rank(row: ReportRow) -> tuple[int, int, int, int, str]:
    """The order of the index: unreadable tables, those whose queries go wrong, then scan savings,
    orphan files, severity, name.
    """
    status_rank = STATUSES.index(row.status)
    savings = row.savings or Savings()
    return (
        status_rank
        if row.status not in JUDGED
        else len(STATUSES) + (not changes_results(row.findings)),
        -savings.saved_bytes,
        -(savings.orphan_bytes or 0),
        status_rank,
        row.table,
    )


#: Tables and findings that the closing words of a run name.
_WORST = 3
_FINDINGS = 4


def closing_text(run: ReportRun, catalog: str) -> str:
    """The closing words of a run for a terminal: the verdict, the worst tables with their findings,
    and what to run next.
    """
    text_lines = [_counts_sentence(Counter(row.status for row in run.rows), len(run.rows))]
    unhealthy_rows = [row for row in sorted(run.rows, key=rank) if row.status != "healthy"]
    for row in unhealthy_rows[:_WORST]:
        row_parts = [row.table, row.status, first_names(_finding_titles(row), _FINDINGS)]
        text_lines.append(f"  {_SIGNS[row.status]} {': '.join(filter(None, row_parts))}")
    if other_rows := unhealthy_rows[_WORST:]:
        text_lines.append(f"  and {count(len(other_rows), 'more table')} with findings")
    if row_to_fix := _first_to_fix(unhealthy_rows):
        text_lines.append(f"Next: {_plan_command(row_to_fix, catalog)}")
    return "\n".join(text_line for text_line in text_lines if text_line)


def _first_to_fix(ranked_rows: Sequence[ReportRow]) -> ReportRow | None:
    """The table to begin with: the first that could be read and is not healthy."""
    return next((row for row in ranked_rows if row.status in JUDGED - {"healthy"}), None)


def _plan_command(row: ReportRow, catalog: str) -> str:
    return command_line("plan", catalog, row.table)


def _counts_sentence(status_counts: Mapping[str, int], table_count: int) -> str:
    counts_text = ", ".join(
        f"{status_counts[status]:,} {status}" for status in STATUSES if status_counts[status]
    )
    return f"{count(table_count, 'table')}: {counts_text}." if table_count else ""


def _row_cells(row: ReportRow, comparison: RunComparison | None) -> Mapping[str, _Cell]:
    """A table's cells by the names of their columns, with a dash where nothing is known; raises
    KeyError for a name that is no column's.
    """
    cells = _known_cells(row, comparison)
    if unknown_names := cells.keys() - _COLUMNS.keys():
        raise KeyError(*unknown_names)
    return dict.fromkeys(_COLUMNS, _Cell()) | cells


def _known_cells(row: ReportRow, comparison: RunComparison | None) -> dict[str, _Cell]:
    cells = {"Seconds": _Cell(f"{row.seconds:.1f}", row.seconds)}
    if comparison:
        worse_count = len(comparison.worse) + bool(comparison.trend) / 2
        cells["Over time"] = _Cell("", worse_count, comparison=comparison)
    if row.health:
        data_file_count = row.health.data_files
        cells["Data files"] = _Cell(f"{data_file_count:,}", data_file_count)
        cells["Data"] = _size_cell(row.health.data_bytes)
    if savings := row.savings:
        saved_share = savings.share
        cells["Orphan files hold"] = _orphans_cell(savings)
        if row.findings and not saved_share:
            # No finding of such a table has a saving that can be worked out: that is not to save
            # nothing.
            cells["Of the scan's cost"] = _Cell("not estimated")
            return cells
        cells |= {
            "Of the scan's cost": _Cell("–")
            if not saved_share
            else _Cell(percent(saved_share), saved_share, saved_share),
            "File opens": _saved_cell(savings.opens_saved, savings.scan_opens),
            "Delete records": _saved_cell(savings.delete_rows_gone, savings.scan_delete_rows),
            "Manifests": _saved_cell(savings.manifests_gone, savings.scan_manifests),
            "To rewrite": _size_cell(savings.rewrite_bytes),
            "Cost saved": _size_cell(savings.saved_bytes),
        }
    return cells


def _saved_cell(saved_count: int, total_count: int) -> _Cell:
    return _Cell(f"{saved_count:,} of {total_count:,}" if total_count else "0", saved_count)


def _size_cell(size_in_bytes: int | None) -> _Cell:
    return _Cell() if size_in_bytes is None else _Cell(size(size_in_bytes), size_in_bytes)


def _orphans_cell(savings: Savings) -> _Cell:
    if savings.orphan_files is None:
        return _Cell()
    files_text = count(savings.orphan_files, "file")
    if savings.orphan_bytes is None:
        # Files that nobody could weigh sort above none at all.
        return _Cell(files_text, min(savings.orphan_files, 1))
    size_text = about(savings.orphan_bytes, is_estimate=savings.are_orphans_estimated)
    return _Cell(
        f"{size_text}, {files_text}" if savings.orphan_files else "0", savings.orphan_bytes
    )


def _finding_titles(row: ReportRow) -> list[str]:
    return [name.replace("_", " ") for name, _ in row.findings]


def write_junit(run: ReportRun, fail_on: str, path: Path) -> Path:
    """Write a report as JUnit XML, a case for each table: unhealthy tables are failures; tables
    that cannot be read, and problems of no table, are errors.
    """
    problem_rows = [
        ReportRow("report", Status.MISCONFIGURED, error=problem) for problem in run.problems
    ]
    elements_by_verdict = {Status.UNHEALTHY: "failure", Status.NOTHING: ""}
    rows_with_elements = [
        (row, elements_by_verdict.get(row.verdict(fail_on), "error"))
        for row in (*run.rows, *problem_rows)
    ]
    element_counts = Counter(element for _, element in rows_with_elements)
    return write_text(
        path, harmless_text(render("junit.xml", cases=rows_with_elements, numbers=element_counts))
    )
