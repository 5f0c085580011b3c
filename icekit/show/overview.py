"""The tables of a catalog as a list for a terminal: one line each, the worst first."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from icekit.common import frozen
from icekit.common.command_line import command_line
from icekit.common.units import count, printable, shorten, size
from icekit.report.overview import UNREADABLE, Overview, TableSummary

#: The width where there is no terminal.
WIDTH = 100
_NARROWEST = 40
#: Narrower than this, the status is its mark alone.
_WITH_WORDS = 80
_GAP = "  "
#: By status, the worst first.
_MARKS = {UNREADABLE: "✖", "critical": "✖", "warning": "▲", "info": "●", "healthy": "✔"}
_COLORS = {UNREADABLE: "1;31", "critical": "1;31", "warning": "33", "info": "36", "healthy": "32"}


@frozen
class _Row:
    """The cells of a table's line."""

    status: str
    name: str
    finding: str
    files: str
    bytes: str


_HEAD = _Row("", "table", "what matters most", "files", "data")


def text(
    overview: Overview, width: int | None = None, *, color: bool = False, verbose: bool = False
) -> str:
    """The list in lines of at most ``width`` columns, and below it what to run next.

    ``verbose`` adds why tables cannot be read. ``color`` adds ANSI colours, for a terminal.
    """
    columns = max(width or WIDTH, _NARROWEST)
    line_groups = [
        [_counts_sentence(overview)],
        list(_table_lines(overview.tables, columns, color)),
        list(_error_lines(overview.tables, columns)) if verbose else [],
        list(_closing_lines(overview, is_explained=verbose)),
    ]
    return "\n\n".join("\n".join(lines) for lines in line_groups if lines)


def _counts_sentence(overview: Overview) -> str:
    """The numbers of tables: ``22 tables of catalog lake: 6 critical, 16 healthy.``."""
    if not overview.tables:
        return f"Catalog {printable(overview.catalog)} has no tables."
    status_counts = Counter(table.status for table in overview.tables)
    count_texts = [
        f"{status_counts[status]:,} {status}" for status in _MARKS if status_counts[status]
    ]
    table_count_text = count(len(overview.tables), "table")
    return f"{table_count_text} of catalog {printable(overview.catalog)}: {', '.join(count_texts)}."


def _table_lines(tables: Sequence[TableSummary], total_width: int, color: bool) -> Iterator[str]:
    """The heading, and a line for each table; nothing without tables."""
    if not tables:
        return
    rows = [_HEAD, *(_row(table, with_word=total_width >= _WITH_WORDS) for table in tables)]
    status_width = max(len(row.status) for row in rows)
    files_width = max(len(row.files) for row in rows)
    size_width = max(len(row.bytes) for row in rows)
    gaps_width = 4 * len(_GAP)
    name_width, finding_width = _column_widths(
        rows, total_width - status_width - files_width - size_width - gaps_width
    )
    colors = [None, *(_COLORS[table.status] if color else None for table in tables)]
    for row, color_code in zip(rows, colors, strict=True):
        status = row.status.ljust(status_width)
        cells = [
            shorten(row.name, name_width).ljust(name_width),
            _shorten_finding(row.finding, finding_width).ljust(finding_width),
            row.files.rjust(files_width),
            row.bytes.rjust(size_width),
        ]
        status_cell = status if color_code is None else f"\x1b[{color_code}m{status}\x1b[0m"
        yield _GAP.join([status_cell, *cells]).rstrip()


def _row(table: TableSummary, *, with_word: bool) -> _Row:
    file_count_text = "" if table.file_count is None else f"{table.file_count:,}"
    size_text = "" if table.size_in_bytes is None else size(table.size_in_bytes)
    marker = _MARKS[table.status]
    status = f"{marker} {table.status}" if with_word else marker
    return _Row(
        status, printable(table.table), printable(_finding_text(table)), file_count_text, size_text
    )


def _finding_text(table: TableSummary) -> str:
    """``small files: 96 of 100 would go; 2 more``; empty for a healthy table."""
    if table.finding is None:
        return table.problem
    title = table.finding.replace("_", " ")
    others_text = f"{_OTHERS}{table.finding_count - 1} more" if table.finding_count > 1 else ""
    return f"{title}: {table.figure}{others_text}"


#: What begins the number of a table's other findings.
_OTHERS = "; "


def _column_widths(rows: Sequence[_Row], columns: int) -> tuple[int, int]:
    """The widths of names and of findings within some columns: names are cut once they take more
    than half.
    """
    longest_name = max(len(row.name) for row in rows)
    longest_finding = max(len(row.finding) for row in rows)
    if longest_name + longest_finding <= columns:
        return longest_name, longest_finding
    name_width = min(longest_name, max(columns // 2, columns - longest_finding))
    return name_width, columns - name_width


def _shorten_finding(finding: str, columns: int) -> str:
    """A finding within its column, without the number of others or cut after a word: a number that
    is cut would be another one.
    """
    if len(finding) <= columns:
        return finding
    finding_alone = finding.rpartition(_OTHERS)[0] or finding
    return textwrap.shorten(finding_alone, columns, placeholder=" …")


def _error_lines(tables: Sequence[TableSummary], columns: int) -> Iterator[str]:
    """Why tables cannot be read; paths are never broken."""
    for table in tables:
        if table.error is None:
            continue
        yield from textwrap.wrap(
            f"{printable(table.table)}: {table.error}",
            columns,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _closing_lines(overview: Overview, *, is_explained: bool) -> Iterator[str]:
    """What the list leaves out, and the next command."""
    if overview.tables and not overview.storage:
        yield "Not looked for: missing and orphan files (--storage)."
    unreadable_tables = [table for table in overview.tables if table.is_unreadable]
    if unreadable_tables and not is_explained:
        yield "Why tables are unreadable: add -v."
    if (command := _next_command(overview)) is not None:
        yield f"Next:  {printable(command)}"


def _next_command(overview: Overview) -> str | None:
    """The plan of the first table that can be read and has a finding, or else a look at one that
    cannot be read; None if all are healthy.
    """
    for table in overview.tables:
        if table.finding is not None:
            return command_line("plan", overview.catalog, table.table)
    for table in overview.tables:
        if table.is_unreadable:
            return command_line("look", overview.catalog, table.table)
    return None
