"""Parse the command line and run the command that it names; every error becomes a sentence and an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import icekit
from icekit.cli import observe, running, schedule, tune
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

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = list(map(str, action.choices))
            what = (action.metavar if isinstance(action.metavar, str) else action.dest).lower()
            hint = nearest(str(value), choices, count=1) or f"; there are {', '.join(choices)}."
            raise argparse.ArgumentError(None, f"There is no {what} {value!r}{hint}")

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
    observe.add_judging(judging)

    observe.add_parsers(commands, common, observing, judging)
    running.add_parsers(commands, common, observing, judging)
    tune.add_parsers(commands, common)
    schedule.add_parsers(commands)
    observe.add_lake_parsers(commands, common)
    return parser


@scrubbed_output()
def main(argv: Sequence[str] | None = None, *, prog: str = "icekit") -> int:
    """Run one command; returns the exit status."""
    open_closed_streams()
    is_debug = "--debug" in (sys.argv if argv is None else argv)
    try:
        arguments = _parser(prog).parse_args(argv)
        is_debug = arguments.debug
        status: int = arguments.verb(arguments)
        # Report a full disk here; otherwise Python reports it at exit.
        write("", sys.stdout)
    except KeyboardInterrupt:
        say("icekit: stopped; what is committed or reported so far stays.", error=True)
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
    from icekit.engine.errors import outside
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
