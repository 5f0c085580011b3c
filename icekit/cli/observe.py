"""``icekit look``, ``plan``, ``compare`` and ``report``: observe and diagnose tables."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.cli.parser import command, connected_lake
from icekit.common.commands.observe import CompareOptions, LookOptions, PlanOptions, ReportOptions
from icekit.common.commands.shared import HealthOptions, JsonOptions
from icekit.common.errors import EXIT_HEALTHY, EXIT_UNHEALTHY, ParameterError, require_extra
from icekit.common.sql import EVERY_TABLE, is_pattern, matches
from icekit.common.terminal import counter, report_waiting, say
from icekit.health.diagnose.findings import Severity, Thresholds

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.health import TableFacts
    from icekit.health.collect import Collector
    from icekit.maintain.planning.proposals import Proposals
    from icekit.show.card import Look
    from icekit.show.compare import ComparedStates


_LOOK = """\
Exit status: 0 looked at; 1 a table has a finding as serious as --fail-on; 2
misconfigured, or a table cannot be read (the others are listed); 3 a bug in
icekit.
"""
_PLAN = """\
Reads only metadata, and runs nothing.

icekit considers four kinds of work: compaction, conversion of equality
deletes (where compaction leaves their partitions alone and Spark's own read
may not fit the heap), maintenance (position deletes, manifests, expiry), and
settings (each as the `icekit tune` question that measures it). For problems
that no command fixes, it lists the statement to paste. Each command plans its
work again, in more detail, before it runs anything.

Exit status: 0 planned (also when nothing is worth doing); 2 misconfigured; 3
a bug in icekit.
"""
_COMPARE = """\
A state is a table as it is now (db.events), or as it was (db.events@REF, with
a branch, a tag, a snapshot id or a date), or the JSON that `icekit report`
wrote. Reads only metadata.

Exit status: 0 compared; 2 misconfigured, or a snapshot that does not exist; 3
a bug in icekit.
"""
_REPORT = """\
Exit status: 0 no finding as serious as --fail-on, 1 a table has one, 2
misconfigured (also a glob that matches no table, damaged metadata, a full
disk, or a history that could not be written), 3 a bug in icekit or a timeout.
icekit writes every report before it fails.
"""


@command(
    "look",
    LookOptions,
    "print a health card of one table, or a line for each table of a pattern ('db.*') or of the "
    "whole catalog; starts no JVM for small tables",
    _LOOK,
)
def look_at(options: LookOptions) -> int:
    """Print the health card of a table, or a line for each of several tables; returns the exit
    status.
    """
    Thresholds().with_changes(**options.thresholds)
    with connected_lake(options) as lake:
        if not options.table or is_pattern(options.table):
            return _look_at_many(lake, options)
        worst_severity = _look_at_one(lake, options)
    return (
        EXIT_UNHEALTHY if worst_severity and worst_severity.fails(options.fail_on) else EXIT_HEALTHY
    )


def _look_at_one(lake: Lake, options: LookOptions) -> Severity | None:
    from icekit.show.card import card

    look = look_of_table(
        lake, options.table, options, **options.only("ref", "collector", "storage")
    )
    card_arguments = look.facts, look.findings, look.thresholds
    if options.json:
        from icekit.common.saving import as_json
        from icekit.health.diagnose.document import document

        say(as_json(document(*card_arguments)))
        return look.findings.worst
    has_color = is_color_terminal()
    postponed_sentence = ""
    facts = look.facts
    if facts.recent or facts.contradictions or facts.unsupported_columns:
        from icekit.maintain.planning.savings import waiting_sentence

        postponed_sentence = waiting_sentence(*card_arguments)
    say(
        card(
            *card_arguments,
            postponed_sentence=postponed_sentence,
            color=has_color,
            width=terminal_width(),
        ),
        is_painted=has_color,
    )
    return look.findings.worst


def _look_at_many(lake: Lake, options: LookOptions) -> int:
    """A line for each table, the worst first; returns the exit status."""
    from icekit.report.overview import overview
    from icekit.show.overview import text

    if options.ref:
        raise ParameterError("--ref takes one table; without it, each is read as it is now.")
    with report_waiting("listing tables"):
        if options.table:
            table_names = lake.match([options.table])
        else:
            all_names = lake.tables.names()
            table_names = [name for name in all_names if matches(EVERY_TABLE, name, lake.name)]
    with counter("reading tables", len(table_names)) as show_count:
        table_overview = overview(lake, table_names, options, show_count)
    if options.json:
        from icekit.common.saving import as_json

        say(as_json(table_overview))
        return table_overview.exit_status
    has_color = is_color_terminal()
    overview_text = text(table_overview, terminal_width(), color=has_color, verbose=options.verbose)
    say(overview_text, is_painted=has_color)
    return table_overview.exit_status


def is_color_terminal() -> bool:
    """Whether standard output is a terminal that shows colours."""
    return sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ


@command(
    "plan",
    PlanOptions,
    "everything worth doing on a table: what each step saves and costs, and its command",
    _PLAN,
)
def plan_all(options: PlanOptions) -> int:
    """Print what is worth doing on a table; returns the exit status."""
    from icekit.maintain.planning.proposals import propose

    with connected_lake(options) as lake:
        look = look_of_table(lake, options.table, options)
        proposals = propose(
            lake,
            look.facts,
            look.findings,
            thresholds=look.thresholds,
            executor=options.executor,
            policy=options,
            command_options=shlex.join(options.option_words(HealthOptions)),
        )
        return _print_answer(proposals, options)


@command(
    "compare",
    CompareOptions,
    "what got better and worse between two states of a table, or two reports",
    _COMPARE,
)
def compare_states(options: CompareOptions) -> int:
    """Print what changed between two states; returns the exit status."""
    from icekit.show.compare import compare

    thresholds = Thresholds().with_changes(**options.thresholds)
    with connected_lake(options) as lake:
        comparison = compare(options.before, options.after, lake=lake, thresholds=thresholds)
    exit_status = _print_answer(comparison, options)
    if options.html:
        say(f"Page: {comparison.to_html(options.html)}", is_error=True)
    return exit_status


def _print_answer(answer: Proposals | ComparedStates, options: JsonOptions) -> int:
    """Print an answer as text or as a JSON document; returns the exit status."""
    if options.json:
        from icekit.common.saving import as_json

        say(as_json(answer.document()))
    else:
        say(answer.text(terminal_width()))
    return EXIT_HEALTHY


def terminal_width() -> int | None:
    """The width from COLUMNS, or of the terminal; a pipe has no limit."""
    return shutil.get_terminal_size((0, 0)).columns or None


@command(
    "report",
    ReportOptions,
    "write an HTML and a JSON report on each table, its notebook, and an index",
    _REPORT,
)
def write_report(options: ReportOptions) -> int:
    """Report on tables; returns the exit status."""
    require_extra("report", "icekit report")
    from icekit.report.index import closing_text, write_junit
    from icekit.report.service import report

    run = report(options, progress=say)
    if options.junit:
        write_junit(run, options.fail_on, Path(options.junit))
    say("".join(f"\n{problem}" for problem in run.problems), end="")
    say(f"\n{closing_text(run, options.catalog)}")
    say(f"\nHTML  {run.index_path}\nJSON  {run.index_path.parent}{os.sep}*.json")
    return run.exit_status


def fit_session_to(lake: Lake, facts: TableFacts) -> None:
    """Have Spark, if it is started, suit the size of the table that the command is about."""
    from icekit.engine.lake import SMALL_BYTES
    from icekit.iceberg.file_kind import Kind

    lake.is_small_work = sum(facts.total(kind).size_in_bytes for kind in Kind) <= SMALL_BYTES


def look_of_table(
    lake: Lake,
    table: str,
    options: HealthOptions,
    *,
    ref: str = "",
    collector: Collector = "auto",
    storage: bool = False,
    say: Callable[[str], None] | None = None,
) -> Look:
    """The facts and findings of the command's table."""
    look = lake.look(
        table,
        ref=ref,
        collector=collector,
        storage=storage,
        say=say,
        **options.only("thresholds", "filter_columns"),
    )
    fit_session_to(lake, look.facts)
    return look
