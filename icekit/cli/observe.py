"""Look at tables, plan what is worth doing, write reports, and build or reset the lab."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.errors import EXIT_HEALTHY, ParameterError
from icekit.terminal import say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.diagnose.findings import Findings, Thresholds
    from icekit.facts import TableFacts


# --- ``icekit look``, ``plan`` and ``report``: observe and diagnose tables with the given options


_PLAN = """\
icekit considers four kinds of work: compaction, conversion of equality deletes (where compaction leaves their
partitions alone and a stock read may not fit the heap), maintenance (position deletes, manifests, expiry), and
settings (each as the `icekit tune` question that measures it). For problems that no command fixes, it lists the
statement to paste. Each command plans its work again, in more detail, before it runs anything.

Exit status: 0 planned (also when nothing is worth doing); 2 misconfigured; 3 crashed.
"""


def add_parsers(
    commands: Any, common: argparse.ArgumentParser, observing: argparse.ArgumentParser, judging: argparse.ArgumentParser
) -> None:
    """Add the three commands and their options."""
    look = commands.add_parser(
        "look", parents=[common, observing, judging], help="a health card of one table in the terminal; starts no JVM for small tables"
    )
    look.add_argument("table", help="such as db.events")
    _add_storage(look)
    look.add_argument("--json", action="store_true", help="print facts and findings as JSON, as in reports")
    look.set_defaults(verb=look_at)
    plan = commands.add_parser(
        "plan",
        parents=[common, judging],
        help="everything worth doing on a table: what each step saves and costs, and its command",
        description="List what is worth doing on a table, in the order to do it. Reads only metadata, and runs nothing.",
        epilog=_PLAN,
    )
    plan.add_argument("table", help="such as db.events")
    plan.add_argument(
        "--executor",
        default="",
        metavar="SIZE",
        help='the executor that reads the equality deletes: "4 cores 8g" (default: this session\'s)',
    )
    plan.add_argument(
        "--leave-alone",
        default="",
        metavar="TIME",
        help='skip partitions written in the last: "2 hours" (default: 60 minutes, where a conflict is likely)',
    )
    plan.add_argument("--json", action="store_true", help="print the answer as a JSON document")
    plan.set_defaults(verb=plan_all)
    report = commands.add_parser(
        "report",
        parents=[common, observing, judging],
        help="write HTML and JSON reports of tables with the diagnosis notebook",
        epilog="Exit status: 0 no finding as serious as --fail-on, 1 a table has one, 2 misconfigured (also a glob that matches no table, damaged metadata, a full disk, or a history that could not be written), 3 a bug in icekit or a timeout. icekit writes every report before it fails.",
    )
    report.add_argument(
        "tables", nargs="+", metavar="TABLE", help="a table, or a pattern: 'db.*', or 'db.**' with the namespaces inside db"
    )
    report.add_argument(
        "--fail-on",
        default="never",
        help="exit with 1 if a table has a finding of this severity or worse: warning or critical (default: never)",
    )
    _add_storage(report)
    report.add_argument("--output", default="reports", type=Path, help="folder to write to (default: reports)")
    report.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML, a case per table")
    report.add_argument(
        "--history",
        default="",
        metavar="WHERE",
        help="record health over time in: table (icekit.health in the catalog), or a SQLite file (default: nowhere)",
    )
    report.add_argument("--timeout", type=float, metavar="SECONDS", help="time limit for each table (default: none)")
    report.add_argument("--jobs", type=int, default=4, metavar="N", help="tables observed at the same time (default: 4)")
    report.add_argument(
        "--continue",
        dest="resume",
        action="store_true",
        help="resume the interrupted run in the output folder; a finished run starts again",
    )
    report.set_defaults(verb=write_report)


def _add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage",
        action="store_true",
        help="also look for missing files and orphan files: looks up every file that the table references, and lists the table's location (with Spark, unless the table is small and on a local disk)",
    )


def look_at(arguments: argparse.Namespace) -> int:
    """Print the health card of a table; returns the exit status."""
    from icekit.api import connect
    from icekit.show.card import card

    limits = limits_of(arguments)
    lake = connect(arguments.catalog or None)
    try:
        facts, findings = diagnosed(
            lake, arguments, limits, ref=arguments.ref or None, collector=arguments.collector, storage=arguments.storage
        )
        if arguments.json:
            from icekit.diagnose.document import document
            from icekit.saving import as_json

            say(as_json(document(facts, findings, limits)))
            return EXIT_HEALTHY
        is_painted = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        later = ""
        if facts.recent or facts.contradictions:
            from icekit.maintain.savings import waiting

            later = waiting(facts, findings, limits)
        say(card(facts, findings, limits, later=later, color=is_painted, width=_width()), is_painted=is_painted)
    finally:
        lake.close()
    return EXIT_HEALTHY


def plan_all(arguments: argparse.Namespace) -> int:
    """Print what is worth doing on a table; returns the exit status."""
    from icekit.api import connect
    from icekit.maintain import propose

    limits = limits_of(arguments)
    given = [word for pair in arguments.threshold for word in ("--threshold", pair)]
    given += ["--filter-columns", arguments.filter_columns] if arguments.filter_columns else []
    lake = connect(arguments.catalog or None)
    try:
        facts, findings = diagnosed(lake, arguments, limits)
        answer = propose(
            lake,
            facts,
            findings,
            thresholds=limits,
            executor=arguments.executor,
            leave_alone=arguments.leave_alone,
            options=shlex.join(given),
        )
        if arguments.json:
            from icekit.saving import as_json

            say(as_json(answer.to_dict()))
        else:
            say(answer.text(_width()))
    finally:
        lake.close()
    return EXIT_HEALTHY


def _width() -> int | None:
    """The width from COLUMNS, or of the terminal; a pipe has no limit."""
    return shutil.get_terminal_size((0, 0)).columns or None


def write_report(arguments: argparse.Namespace) -> int:
    """Report on tables; returns the exit status."""
    from icekit.report import Options, closing, report
    from icekit.report.junit import write_junit

    options = Options(
        catalog=arguments.catalog,
        ref=arguments.ref,
        thresholds=changes(arguments),
        filter_columns=filter_columns(arguments),
        collector=arguments.collector,
        storage=arguments.storage,
        fail_on=arguments.fail_on,
        output=arguments.output,
        history=arguments.history,
        timeout_seconds=arguments.timeout,
        jobs=arguments.jobs,
        resume=arguments.resume,
    )
    run = report(arguments.tables, options, progress=say)
    if arguments.junit:
        write_junit(run, arguments.fail_on, arguments.junit)
    say("".join(f"\n{problem}" for problem in run.problems), end="")
    say(f"\n{closing(run, arguments.catalog)}")
    say(f"\nHTML  {run.index}\nJSON  {run.index.parent}{os.sep}*.json")
    return run.exit_status


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Add the options that define what is healthy."""
    parser.add_argument("--filter-columns", default="", help="columns that queries filter by, separated by commas")
    parser.add_argument(
        "--threshold", action="append", default=[], metavar="NAME=VALUE", help="change a threshold of the findings; may be repeated"
    )


def filter_columns(arguments: argparse.Namespace) -> list[str]:
    """The columns that queries filter by; empty if the option is not given."""
    return [column.strip() for column in arguments.filter_columns.split(",") if column.strip()]


def changes(arguments: argparse.Namespace) -> dict[str, float]:
    """The changed thresholds; raises :class:`~icekit.errors.ParameterError` for anything but NAME=VALUE."""
    found: dict[str, float] = {}
    for pair in arguments.threshold:
        name, _, value = pair.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ParameterError(f"--threshold {pair!r} is not NAME=VALUE with a number; for example min_file_size_ratio=0.5.") from None
    return found


def limits_of(arguments: argparse.Namespace) -> Thresholds:
    """The default thresholds, with the given changes."""
    from icekit.diagnose.findings import Thresholds

    return Thresholds().with_changes(**changes(arguments))


def diagnosed(lake: Lake, arguments: argparse.Namespace, limits: Thresholds, **options: Any) -> tuple[TableFacts, Findings]:
    """The facts and findings of the command's table; further options go to :meth:`icekit.api.Lake.observe`."""
    from icekit.diagnose import diagnose

    facts = lake.observe(arguments.table, size_ratios=limits.size_ratios, filter_columns=filter_columns(arguments) or None, **options)
    return facts, diagnose(facts, limits, session_conf=lake.session_conf())


# --- ``icekit lab``: the unhealthy example tables of the embedded lake


def add_lab(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    lab = commands.add_parser("lab", parents=[common], help="build the lab's unhealthy example tables in the embedded lake")
    lab.add_argument("names", nargs="*", metavar="NAME", help="tables to build (default: all)")
    lab.add_argument("--scale", type=int, default=1, help="multiply the number of rows (default: 1, which is 336,776 flights)")
    instead = lab.add_mutually_exclusive_group()
    instead.add_argument("--rebuild", action="store_true", help="rebuild tables that already exist")
    instead.add_argument("--reset", action="store_true", help="restore tables to the state they were built in; starts no JVM")
    instead.add_argument("--list", action="store_true", help="only list the tables and what is wrong with each")
    lab.set_defaults(verb=build_lab)


def build_lab(arguments: argparse.Namespace) -> int:
    """Build, reset or list the lab's tables; returns the exit status."""
    from icekit.lab import TABLES, build, reset

    if arguments.list:
        for table in TABLES.values():
            say(f"lab.{table.name:<28} {table.illness}")
        return EXIT_HEALTHY
    from icekit.api import connect

    lake = connect(arguments.catalog or None)
    try:
        if arguments.reset:
            reset(lake, arguments.names or None, progress=say)
            return EXIT_HEALTHY
        build(lake, arguments.names or None, scale=arguments.scale, rebuild=arguments.rebuild, progress=say)
    finally:
        lake.close()
    return EXIT_HEALTHY
