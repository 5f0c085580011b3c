"""Parse the command line and run the command it names; turn every error into a sentence and an exit
status.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

# isort: off
# Each adds its commands to those of the help, in this order.
from icekit.cli import observe, running, tune, schedule, packing, admin  # noqa: F401

# isort: on
from icekit.cli.declared import COMMANDS, fill
from icekit.common.errors import (
    EXIT_CRASHED,
    EXIT_HEALTHY,
    EXIT_MISCONFIGURED,
    EXIT_STOPPED,
    nearest,
    require_known,
    shortened,
    trace,
    why,
)
from icekit.common.secrets import scrubbed_output
from icekit.common.terminal import harmless, open_closed_streams, say, write
from icekit.common.units import capitalized

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class _Help(argparse.HelpFormatter):
    """argparse's help, in which a text of several lines stays as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text.strip() if "\n" in text else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """argparse, with a suggestion for a misspelt option, and with control characters removed from
    messages.
    """

    #: Adds the options of a command once they are needed: those of all commands take 10 ms.
    fill: Callable[[], object] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Help, **options})

    def filled(self) -> Self:
        """This parser with its options."""
        fill = self.fill
        self.fill = None
        if fill is not None:
            fill()
        return self

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        write(harmless(message), file or sys.stderr)  # type: ignore[arg-type]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject an unknown argument here, where the options of its command are known."""
        self.filled()
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        hint = nearest(unknown[0].partition("=")[0], self.known(), count=1) if unknown else ""
        self.exit(
            EXIT_MISCONFIGURED, f"icekit: {shortened(message)}{hint}\nTry `{self.prog} --help`.\n"
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None:
            option_name = action.metavar if isinstance(action.metavar, str) else action.dest
            require_known(value, map(str, action.choices), option_name.lower())

    def known(self) -> list[str]:
        """Every option of this parser and its commands."""
        options = [option for action in self._actions for option in action.option_strings]
        for command in self.commands().values():
            options += command.known()
        return options

    def commands(self) -> dict[str, _Parser]:
        """The parsers of this parser's commands, by name."""
        return {
            name: sub.filled()
            for a in self._actions
            if isinstance(a, argparse._SubParsersAction)
            for name, sub in a.choices.items()
        }


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        say(f"icekit {version('icekit')}")
        parser.exit()


#: What the help says of commands that have commands of their own.
_GROUPS = {
    "tune": "measure how a table should be written and laid out; gives the ALTER TABLE and its "
    "undo",
    "schedule": "maintain many tables under one policy: check it, run one pass, print a recipe "
    "for cron",
    "admin": "list a catalog's tables, or clones left behind",
}


def _parser(prog: str = "icekit") -> _Parser:
    parser = _Parser(prog=prog, description="Diagnose, tune and compact Apache Iceberg tables.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version, and exit")
    parser.add_argument("--debug", action="store_true", help="show the stack trace of an error")
    add = partial(_Parser.add_subparsers, required=True, metavar="COMMAND")
    groups = {"": add(parser, dest="command")}
    for name, command in COMMANDS.items():
        group, _, own_name = name.rpartition(" ")
        if group not in groups:
            about = _GROUPS[group]
            grouped = groups[""].add_parser(group, help=about, description=f"{capitalized(about)}.")
            groups[group] = add(grouped, dest=group)
        about = f"{capitalized(command.help)}."
        leaf = groups[group].add_parser(
            own_name, help=command.help, description=about, epilog=command.epilog
        )
        leaf.fill = partial(fill, leaf, command)
    return parser


@scrubbed_output()
def main(argv: Sequence[str] | None = None, *, prog: str = "icekit") -> int:
    """Run one command; returns the exit status."""
    open_closed_streams()
    is_debug = "--debug" in (sys.argv if argv is None else argv)
    try:
        parser = _parser(prog)
        if not (sys.argv[1:] if argv is None else argv):
            parser.print_help()
            return EXIT_HEALTHY
        arguments = parser.parse_args(argv)
        is_debug = arguments.debug
        options = arguments.options
        stated_options = {name: getattr(arguments, name, None) for name in options.declared}
        status: int = arguments.verb(options.of(stated_options))
        # Report a full disk here; otherwise Python reports it only at exit.
        write("", sys.stdout)
    except KeyboardInterrupt:
        say("icekit: stopped. Commits and reports made so far stay.", error=True)
        return EXIT_STOPPED
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()
        return EXIT_HEALTHY
    except Exception as problem:
        return _failed(problem, is_debug=is_debug)
    return status


def _failed(problem: Exception, *, is_debug: bool) -> int:
    """Print the error; returns the exit status."""
    from icekit.engine.errors import environment_error

    outside_error = environment_error(problem)
    if outside_error is None:
        say(
            "icekit: this is a bug in icekit, or a case icekit does not handle: "
            f"{why(problem)}. Run again with --debug, and report it.",
            error=True,
        )
    else:
        say(f"icekit: {outside_error}", error=True)
    if is_debug:
        say(trace(problem), error=True)
    return EXIT_CRASHED if outside_error is None else outside_error.exit_status
