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
from icekit.cli import observe, run, tune, schedule, packing, admin  # noqa: F401

# isort: on
from icekit.cli.parser import BASIC, COMMANDS, Command, argument_rows, command_parameters
from icekit.common.errors import (
    EXIT_CRASHED,
    EXIT_HEALTHY,
    EXIT_MISCONFIGURED,
    EXIT_STOPPED,
    name_suggestion,
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


class _LeafCommand(click.Command):
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
        self.params = self.params or command_parameters(self.command.options_class)
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if help_rows := argument_rows(self.command.options_class):
            with formatter.section("Arguments"):
                formatter.write_dl(help_rows)
        super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> int:
        for parameter in self.params:
            parameter_value = ctx.params.get(str(parameter.name))
            for value_text in (
                parameter_value if isinstance(parameter_value, tuple) else (parameter_value,)
            ):
                if isinstance(parameter, click.Option) and str(value_text).startswith("--"):
                    ctx.fail(f"{parameter.opts[-1]} needs a value, and {value_text} is an option.")
        values_by_name = {
            name: list(parameter_value) if isinstance(parameter_value, tuple) else parameter_value
            for name, parameter_value in ctx.params.items()
        }
        return self.command.function(self.command.options_class.of(values_by_name))


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


def root_command() -> click.Group:
    """The command ``icekit``, with all its commands."""
    make_group = partial(_Group, no_args_is_help=False, add_help_option=False)
    root_group = make_group(
        "icekit", params=[*BASIC], help="Diagnose, tune and compact Apache Iceberg tables."
    )
    add_version_option = click.version_option(
        package_name="icekit", message="icekit %(version)s", help="print the version, and exit"
    )
    add_version_option(root_group)
    groups_by_name = {"": root_group}
    for full_name, command in COMMANDS.items():
        group_name, _, command_name = full_name.rpartition(" ")
        if group_name not in groups_by_name:
            group_help = _GROUPS[group_name]
            groups_by_name[group_name] = make_group(
                group_name,
                params=[*BASIC],
                help=f"{capitalized(group_help)}.",
                short_help=group_help,
            )
            root_group.add_command(groups_by_name[group_name])
        groups_by_name[group_name].add_command(_LeafCommand(command_name, command))
    return root_group


def _usage_text(error: click.UsageError) -> str:
    """What is wrong with a command line, and what helps."""
    context = error.ctx
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and context is not None:
        option_names = [
            option_name
            for parameter in context.command.get_params(context)
            for option_name in parameter.opts
        ]
        hint = name_suggestion(error.option_name, option_names, most_names=1)
        message = f"There is no option {error.option_name}{hint or '.'}"
    command_path = context.command_path if context is not None else "icekit"
    return f"icekit: {shortened(message)}\nTry `{command_path} --help`."


@scrubbed_output()
def main(argv: Sequence[str] | None = None, *, program_name: str = "icekit") -> int:
    """Run one command; returns the exit status."""
    open_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in arguments
    try:
        if completion_request := os.environ.get(_COMPLETION):
            from click.shell_completion import shell_complete

            return shell_complete(root_command(), {}, program_name, _COMPLETION, completion_request)
        command = root_command()
        with command.make_context(program_name, arguments or ["--help"]) as context:
            exit_status: int = command.invoke(context)
        # Report a full disk here; otherwise Python reports it only at exit.
        write("", sys.stdout)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        say(_usage_text(error), is_error=True)
        return EXIT_MISCONFIGURED
    except KeyboardInterrupt:
        say("icekit: stopped. Commits and reports made so far stay.", is_error=True)
        return EXIT_STOPPED
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()
        return EXIT_HEALTHY
    except Exception as problem:
        return _report_failure(problem, is_debug=is_debug)
    return exit_status


def _report_failure(problem: Exception, *, is_debug: bool) -> int:
    """Print the error; returns the exit status."""
    from icekit.engine.errors import environment_error

    known_error = environment_error(problem)
    if known_error is None:
        say(
            "icekit: this is a bug in icekit, or a case icekit does not handle: "
            f"{why(problem)}. Run again with --debug, and report it.",
            is_error=True,
        )
    else:
        say(f"icekit: {known_error}", is_error=True)
    if is_debug:
        say(trace(problem), is_error=True)
    return EXIT_CRASHED if known_error is None else known_error.exit_status
