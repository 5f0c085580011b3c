"""The tables of a catalog as a list for a terminal: one line each, the worst first."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from icekit.common import frozen
from icekit.common.command_line import command_line
from icekit.common.units import count, printable_text, shorten, size
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
class _RowTexts:
    """The cells of a table's line."""

    status_text: str
    name: str
    finding: str
    files_text: str
    size_text: str


_HEAD = _RowTexts("", "table", "what matters most", "files", "data")


def text(
    overview: Overview, width: int | None = None, *, color: bool = False, verbose: bool = False
) -> str:
    """The list in lines of at most ``width`` columns, and below it what to run next.

    ``verbose`` adds why tables cannot be read. ``color`` adds ANSI colours, for a terminal.
    """
    max_width = max(width or WIDTH, _NARROWEST)
    paragraphs = [
        [_counts_sentence(overview)],
        list(_table_lines(overview.tables, max_width, color)),
        list(_error_lines(overview.tables, max_width)) if verbose else [],
        list(_closing_lines(overview, is_explained=verbose)),
    ]
    return "\n\n".join(
        "\n".join(paragraph_lines) for paragraph_lines in paragraphs if paragraph_lines
    )


def _counts_sentence(overview: Overview) -> str:
    """The numbers of tables: ``22 tables of catalog lake: 6 critical, 16 healthy.``."""
    if not overview.tables:
        return f"Catalog {printable_text(overview.catalog)} has no tables."
    status_counts = Counter(table.status for table in overview.tables)
    count_texts = [
        f"{status_counts[status]:,} {status}" for status in _MARKS if status_counts[status]
    ]
    table_count_text = count(len(overview.tables), "table")
    return f"{table_count_text} of catalog {printable_text(overview.catalog)}: {', '.join(count_texts)}."


def _table_lines(tables: Sequence[TableSummary], total_width: int, color: bool) -> Iterator[str]:
    """The heading, and a line for each table; nothing without tables."""
    if not tables:
        return
    row_texts = [
        _HEAD,
        *(_row_texts(summary, has_status_word=total_width >= _WITH_WORDS) for summary in tables),
    ]
    status_width = max(len(texts.status_text) for texts in row_texts)
    files_width = max(len(texts.files_text) for texts in row_texts)
    size_width = max(len(texts.size_text) for texts in row_texts)
    gaps_width = 4 * len(_GAP)
    name_width, finding_width = _column_widths(
        row_texts, total_width - status_width - files_width - size_width - gaps_width
    )
    color_codes = [None, *(_COLORS[summary.status] if color else None for summary in tables)]
    for texts, color_code in zip(row_texts, color_codes, strict=True):
        padded_status = texts.status_text.ljust(status_width)
        other_cells = [
            shorten(texts.name, name_width).ljust(name_width),
            _shorten_finding(texts.finding, finding_width).ljust(finding_width),
            texts.files_text.rjust(files_width),
            texts.size_text.rjust(size_width),
        ]
        colored_status = (
            padded_status if color_code is None else f"\x1b[{color_code}m{padded_status}\x1b[0m"
        )
        yield _GAP.join([colored_status, *other_cells]).rstrip()


def _row_texts(table: TableSummary, *, has_status_word: bool) -> _RowTexts:
    file_count_text = "" if table.file_count is None else f"{table.file_count:,}"
    size_text = "" if table.size_in_bytes is None else size(table.size_in_bytes)
    status_mark = _MARKS[table.status]
    status_text = f"{status_mark} {table.status}" if has_status_word else status_mark
    return _RowTexts(
        status_text,
        printable_text(table.table),
        printable_text(_finding_text(table)),
        file_count_text,
        size_text,
    )


def _finding_text(table: TableSummary) -> str:
    """``small files: 96 of 100 would go; 2 more``; empty for a healthy table."""
    if table.finding is None:
        return table.problem
    finding_title = table.finding.replace("_", " ")
    other_findings_text = (
        f"{_OTHERS}{table.finding_count - 1} more" if table.finding_count > 1 else ""
    )
    return f"{finding_title}: {table.figure}{other_findings_text}"


#: What begins the number of a table's other findings.
_OTHERS = "; "


def _column_widths(row_texts: Sequence[_RowTexts], available_width: int) -> tuple[int, int]:
    """The widths of names and of findings within some columns: names are cut once they take more
    than half.
    """
    longest_name_width = max(len(texts.name) for texts in row_texts)
    longest_finding_width = max(len(texts.finding) for texts in row_texts)
    if longest_name_width + longest_finding_width <= available_width:
        return longest_name_width, longest_finding_width
    name_width = min(
        longest_name_width, max(available_width // 2, available_width - longest_finding_width)
    )
    return name_width, available_width - name_width


def _shorten_finding(finding_text: str, max_width: int) -> str:
    """A finding within its column, without the number of others or cut after a word: a number that
    is cut would be another one.
    """
    if len(finding_text) <= max_width:
        return finding_text
    first_finding_text = finding_text.rpartition(_OTHERS)[0] or finding_text
    return textwrap.shorten(first_finding_text, max_width, placeholder=" …")


def _error_lines(summaries: Sequence[TableSummary], max_width: int) -> Iterator[str]:
    """Why tables cannot be read; paths are never broken."""
    for summary in summaries:
        if summary.error is None:
            continue
        yield from textwrap.wrap(
            f"{printable_text(summary.table)}: {summary.error}",
            max_width,
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
    if (next_command := _next_command(overview)) is not None:
        yield f"Next:  {printable_text(next_command)}"


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
