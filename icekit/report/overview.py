"""Look at many tables at once: what is wrong with each in a few words, the worst first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from icekit.common import frozen
from icekit.common.commands.observe import LookOptions
from icekit.common.errors import LONGEST_WAIT, IcekitError, require_number, why
from icekit.common.sql import Identifier, display_name
from icekit.common.waiting import run_each_within
from icekit.engine.lake import Lake
from icekit.health import observe
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Severity, Thresholds
from icekit.maintain.planning.savings import savings_of
from icekit.report.result import changes_results, status_and_error, worst_exit_status

SCHEMA_VERSION = 1
UNREADABLE = "unreadable"


@frozen
class TableSummary:
    """One table: its most serious finding, or why it could not be read.

    ``status`` is ``healthy``, the most serious severity, or ``unreadable``; ``finding`` the name of
    the finding that matters most, with its ``figure``. ``file_count`` and ``size_in_bytes`` are
    those of the data files. ``saved`` is what maintenance would save one full scan
    (:class:`~icekit.maintain.planning.savings.Savings`). Of an unreadable table, ``problem`` is the
    kind of error in a few words and ``error`` all of it.
    """

    table: str
    status: str
    finding: str | None = None
    figure: str = ""
    finding_count: int = 0
    changes_results: bool = False
    file_count: int | None = None
    size_in_bytes: int | None = None
    saved: int | None = None
    problem: str = ""
    error: str | None = None
    exit_status: int = 0

    @property
    def is_unreadable(self) -> bool:
        """Whether nothing is known of the table."""
        return self.status == UNREADABLE

    @property
    def rank(self) -> tuple[bool, int, bool, int, str]:
        """The order of the list: unreadable tables, severity, wrong results, savings, name."""
        return (
            not self.is_unreadable,
            -_SEVERITIES.get(self.status, 0),
            not self.changes_results,
            -(self.saved or 0),
            self.table,
        )


_SEVERITIES = {str(severity): int(severity) for severity in Severity}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The tables of a catalog, the worst first. ``storage`` tells whether missing and orphan files
    were looked for.
    """

    schema_version: int = SCHEMA_VERSION
    catalog: str
    storage: bool
    tables: Sequence[TableSummary]

    @property
    def exit_status(self) -> int:
        """The most serious exit status of a table."""
        return max((table.exit_status for table in self.tables), default=0)


def overview(
    lake: Lake,
    names: Sequence[Identifier],
    options: LookOptions,
    progress: Callable[[int], None] = lambda _: None,
) -> Overview:
    """Look at tables, several at the same time; ``progress`` gets the number of those read. A table
    that cannot be read does not stop the others.
    """
    require_number("The number of jobs", options.jobs, is_positive=True)
    summaries: list[TableSummary] = []

    def look(name: Identifier) -> None:
        summaries.append(_table_summary(lake, name, options))
        progress(len(summaries))

    run_each_within(LONGEST_WAIT, names, look, thread_count=min(options.jobs, len(names)))
    ranked_summaries = tuple(sorted(summaries, key=lambda summary: summary.rank))
    return Overview(catalog=lake.name, storage=options.storage, tables=ranked_summaries)


def _table_summary(lake: Lake, name: Identifier, options: LookOptions) -> TableSummary:
    """What is wrong with one table; no error leaves it."""
    table_name = display_name(name)
    try:
        return _judge_table(lake, name, options)
    # A thread that ended without a summary would leave its table out of the list.
    except BaseException as problem:
        error_status, known_error = status_and_error(problem)
        return TableSummary(
            table=table_name,
            status=UNREADABLE,
            problem=_error_kind(known_error) if known_error else "a bug in icekit",
            error=why(known_error or problem),
            exit_status=worst_exit_status([error_status], ()),
        )


def _error_kind(error: IcekitError) -> str:
    """An error in two or three words, without a path: ``metadata unreadable``."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(error).__name__).lower()


def _judge_table(lake: Lake, name: Identifier, options: LookOptions) -> TableSummary:
    thresholds = Thresholds().with_changes(**options.thresholds)
    facts = observe(
        lake,
        name,
        size_ratios=thresholds.size_ratios,
        **options.only("filter_columns", "collector", "storage"),
    )
    findings = diagnose(facts, thresholds, session_conf=lake.session_conf())
    first_finding = findings[0] if findings else None
    fails_gate = findings.worst is not None and findings.worst.fails(options.fail_on)
    return TableSummary(
        table=facts.name,
        status=findings.status,
        finding=first_finding.name if first_finding else None,
        figure=first_finding.figure if first_finding else "",
        finding_count=len(findings),
        changes_results=changes_results((f.name, str(f.severity)) for f in findings),
        file_count=facts.data.file_count,
        size_in_bytes=facts.data.size_in_bytes,
        saved=savings_of(facts, findings, thresholds).saved_bytes,
        exit_status=1 if fails_gate else 0,
    )
