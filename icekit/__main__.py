"""``icekit``: look at a table, report on many, compact and maintain one, review a MERGE, build the lab."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import icekit
from icekit.commands import clones, compact, convert, maintain, merge, schedule, tune, write_mode
from icekit.commands.observing import add_judging, changes, diagnosed, filter_columns, limits_of
from icekit.errors import EXIT_CRASHED, EXIT_HEALTHY, EXIT_MISCONFIGURED, nearest, shortened
from icekit.secrets import scrubbed_output
from icekit.terminal import harmless, open_closed_streams, say, write

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class _Parser(argparse.ArgumentParser):
    """argparse, with the nearest known option for a misspelt one, and nothing that a terminal would obey."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        write(harmless(message), file or sys.stderr)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        hint = nearest(unknown[0].partition("=")[0], self.known(), count=1) if unknown else ""
        self.exit(EXIT_MISCONFIGURED, f"icekit: {shortened(message)}{hint}\nTry `{self.prog} --help`.\n")

    def known(self) -> list[str]:
        """Every option of this parser and of its commands."""
        options = [o for a in self._actions for o in a.option_strings]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                options += [o for sub in action.choices.values() for a in sub._actions for o in a.option_strings]
        return options


def _parser(prog: str = "icekit") -> _Parser:
    parser = _Parser(prog=prog, description="Diagnose Apache Iceberg tables.")
    parser.add_argument("--version", action="version", version=f"icekit {icekit.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the stack trace of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = _Parser(add_help=False)
    common.add_argument("--catalog", default="", help="a profile of pyiceberg's configuration (default: the embedded lake)")
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the stack trace of an error")
    observing = _Parser(add_help=False)
    observing.add_argument("--ref", default="", help="branch, tag or snapshot id (default: the current snapshot)")
    observing.add_argument("--collector", default="auto", help="auto, spark or local (default: auto)")
    judging = _Parser(add_help=False)
    add_judging(judging)

    look = commands.add_parser(
        "look", parents=[common, observing, judging], help="a health card of one table in the terminal; starts no JVM for small ones"
    )
    look.add_argument("table")
    report = commands.add_parser(
        "report",
        parents=[common, observing, judging],
        help="HTML and JSON reports of tables, by the diagnosis notebook",
        epilog="Exit status: 0 healthy or below the gate, 1 unhealthy by --fail-on, 2 misconfigured (also a glob that matches no table, damaged metadata, a full disk, a history that was not written), 3 a bug in icekit, or timed out. Every report is written before a gate fails.",
    )
    report.add_argument("tables", nargs="+", metavar="TABLE", help="a table, or a glob such as 'db.*'")
    report.add_argument("--fail-on", default="never", help="never, warning or critical (default: never)")
    report.add_argument("--storage", action="store_true", help="also look for orphan files; lists the storage, through Spark")
    report.add_argument("--output", default="reports", type=Path, help="folder to write to (default: reports)")
    schedule.add_monitoring(report)
    report.add_argument(
        "--history",
        default="",
        metavar="WHERE",
        help="keep health over time: table (icekit.health of the catalog), or a SQLite file (default: nowhere)",
    )
    report.add_argument("--timeout", type=float, metavar="SECONDS", help="the longest that one table may take (default: no limit)")
    report.add_argument("--jobs", type=int, default=4, metavar="N", help="tables observed at once (default: 4)")
    report.add_argument(
        "--continue",
        dest="resume",
        action="store_true",
        help="go on with the run that was interrupted in the folder; one that ended starts again",
    )
    compact.add_parser(commands, common, observing, judging)
    convert.add_parser(commands, common)
    maintain.add_parser(commands, common, judging)
    write_mode.add_parser(commands, common)
    merge.add_parser(commands, common)
    tune.add_parser(commands, common)
    clones.add_parser(commands, common)
    schedule.add_parsers(commands)
    commands.add_parser("tables", parents=[common], help="list the tables of a catalog")
    lab = commands.add_parser("lab", parents=[common], help="build the lab's sick tables in the embedded lake")
    lab.add_argument("names", nargs="*", metavar="NAME", help="tables to build (default: all)")
    lab.add_argument("--scale", type=int, default=1, help="multiply the rows (default: 1, 336,776 flights)")
    instead = lab.add_mutually_exclusive_group()
    instead.add_argument("--rebuild", action="store_true", help="build again what is there already")
    instead.add_argument(
        "--reset", action="store_true", help="put tables back as they were built, whatever was done to them; starts no JVM"
    )
    instead.add_argument("--list", action="store_true", help="only say what each table suffers from")
    return parser


def _look(arguments: argparse.Namespace) -> int:
    from icekit.api import connect
    from icekit.show.card import card

    limits = limits_of(arguments)
    lake = connect(arguments.catalog or None)
    try:
        facts, findings = diagnosed(lake, arguments, limits, ref=arguments.ref or None, collector=arguments.collector)
        is_painted = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        say(card(facts, findings, limits, color=is_painted), is_painted=is_painted)
    finally:
        lake.close()
    return EXIT_HEALTHY


def _report(arguments: argparse.Namespace) -> int:
    from icekit.report import Options, report

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
    monitors = schedule.monitors(arguments)
    run = report(arguments.tables, options, progress=say)
    schedule.write_monitoring(run, arguments, monitors)
    say("".join(f"\n{problem}" for problem in run.problems), end="")
    say(f"\nHTML  {run.index}\nJSON  {run.index.parent}{os.sep}*.json")
    return run.exit_status


def _tables(arguments: argparse.Namespace) -> int:
    from icekit.api import connect
    from icekit.sql import display_name

    for name in connect(arguments.catalog or None).tables.names():
        say(display_name(name))
    return EXIT_HEALTHY


def _lab(arguments: argparse.Namespace) -> int:
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


@scrubbed_output()
def main(argv: Sequence[str] | None = None, *, prog: str = "icekit") -> int:
    """Run one command; returns the exit status."""
    open_closed_streams()
    is_debug = "--debug" in (sys.argv if argv is None else argv)
    commands = {
        "look": _look,
        "report": _report,
        "compact": compact.compact,
        "convert": convert.convert,
        "maintain": maintain.maintain,
        "write-mode": write_mode.write_mode,
        "tune": tune.tune,
        "review-merge": merge.review_merge,
        "clones": clones.clones,
        "policy": schedule.policy,
        "run": schedule.run,
        "recipe": schedule.recipe,
        "tables": _tables,
        "lab": _lab,
    }
    try:
        arguments = _parser(prog).parse_args(argv)
        is_debug = arguments.debug
        status = commands[arguments.command](arguments)
        # Report a full disk here; otherwise Python reports it at exit.
        write("", sys.stdout)
    except KeyboardInterrupt:
        say("icekit: stopped; reports finished so far are complete.", error=True)
        return 130
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()
        return EXIT_HEALTHY
    except Exception as problem:
        return _failed(problem, is_debug=is_debug)
    return status


def _failed(problem: Exception, *, is_debug: bool) -> int:
    """Say what went wrong; returns the exit status."""
    from icekit.engine.boundary import outside
    from icekit.errors import first_line, trace

    known = outside(problem)
    if known is None:
        say(
            f"icekit: this is a bug in icekit or a case it does not know: {type(problem).__name__}: {first_line(problem)}. Run again with --debug, and report it.",
            error=True,
        )
    else:
        say(f"icekit: {known}", error=True)
    if is_debug and (detail := trace(problem) if known is None else known.detail):
        say(detail, error=True)
    return EXIT_CRASHED if known is None else known.exit_status


if __name__ == "__main__":
    sys.exit(main(prog="python -m icekit"))
