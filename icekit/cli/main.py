"""Parse the command line and run the command it names; turn every error into a sentence and an exit
status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

import click

# isort: off
# Each adds its commands to those of the help, in this order.
from icekit.cli import observe, running, tune, schedule, packing, admin  # noqa: F401

# isort: on
from icekit.cli.declared import BASIC, COMMANDS, Command, argument_rows, parameters
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
from icekit.common.terminal import open_closed_streams, say, write
from icekit.common.units import capitalized

#: Holds what a shell asks for, such as bash_source.
_COMPLETION = "_ICEKIT_COMPLETE"


class _Leaf(click.Command):
    """A command whose parameters are made when they are needed: those of all take 10 ms."""

    def __init__(self, name: str, command: Command) -> None:
        paragraphs = command.epilog.strip().split("\n\n")
        super().__init__(
            name,
            help=f"{capitalized(command.help)}.",
            short_help=command.help,
            # Its lines stay as they are.
            epilog="\n\n".join(f"\b\n{paragraph}" for paragraph in paragraphs),
            add_help_option=False,
        )
        self.command = command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        self.params = self.params or parameters(self.command.options)
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if rows := argument_rows(self.command.options):
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> int:
        for option in self.params:
            value = ctx.params.get(str(option.name))
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(option, click.Option) and str(text).startswith("--"):
                    ctx.fail(f"{option.opts[-1]} needs a value, and {text} is an option.")
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in ctx.params.items()
        }
        return self.command.verb(self.command.options.of(values))


class _Group(click.Group):
    """Commands in the order of the help, with a suggestion for a misspelt one."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not ctx.resilient_parsing:
            require_known(cmd_name, self.commands, "command")
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


#: What the help says of commands that have commands of their own.
_GROUPS = {
    "tune": "measure how a table should be written and laid out; gives the ALTER TABLE and its "
    "undo",
    "schedule": "maintain many tables under one policy: check it, run one pass, print a recipe "
    "for cron",
    "admin": "list a catalog's tables, or clones left behind",
}


def root() -> click.Group:
    """The command ``icekit``, with all its commands."""
    group_of = partial(_Group, no_args_is_help=False, add_help_option=False)
    top = group_of(
        "icekit", params=[*BASIC], help="Diagnose, tune and compact Apache Iceberg tables."
    )
    version = click.version_option(
        package_name="icekit", message="icekit %(version)s", help="print the version, and exit"
    )
    version(top)
    groups = {"": top}
    for name, command in COMMANDS.items():
        group, _, own_name = name.rpartition(" ")
        if group not in groups:
            about = _GROUPS[group]
            groups[group] = group_of(
                group, params=[*BASIC], help=f"{capitalized(about)}.", short_help=about
            )
            top.add_command(groups[group])
        groups[group].add_command(_Leaf(own_name, command))
    return top


def _usage(error: click.UsageError) -> str:
    """What is wrong with a command line, and what helps."""
    context = error.ctx
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and context is not None:
        options = [name for each in context.command.get_params(context) for name in each.opts]
        hint = nearest(error.option_name, options, count=1)
        message = f"There is no option {error.option_name}{hint or '.'}"
    path = context.command_path if context is not None else "icekit"
    return f"icekit: {shortened(message)}\nTry `{path} --help`."


@scrubbed_output()
def main(argv: Sequence[str] | None = None, *, prog: str = "icekit") -> int:
    """Run one command; returns the exit status."""
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in words
    try:
        if instruction := os.environ.get(_COMPLETION):
            from click.shell_completion import shell_complete

            return shell_complete(root(), {}, prog, _COMPLETION, instruction)
        command = root()
        with command.make_context(prog, words or ["--help"]) as context:
            status: int = command.invoke(context)
        # Report a full disk here; otherwise Python reports it only at exit.
        write("", sys.stdout)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        say(_usage(error), error=True)
        return EXIT_MISCONFIGURED
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
