"""Make the parser of a command from its declared options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from icekit.common import frozen
from icekit.common.options import Declared, Settings
from icekit.common.terminal import say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.common.commands.shared import CatalogOptions


Verb = TypeVar("Verb", bound=Callable[..., int])


@frozen
class Command:
    """What runs with a command's options, and what its help says."""

    verb: Callable[..., int]
    options: type[Settings]
    help: str
    epilog: str


#: Every command by its words, such as ``schedule run``, in the order of the help.
COMMANDS: dict[str, Command] = {}


def command(
    name: str, options: type[Settings], help: str, epilog: str = ""
) -> Callable[[Verb], Verb]:
    """Make a function a command; it is called with its ``options``, and returns the exit status."""

    def register(verb: Verb) -> Verb:
        COMMANDS[name] = Command(verb, options, help, epilog)
        return verb

    return register


def parameters(options: type[Settings]) -> list[click.Parameter]:
    """The parameters of a command: its declared options."""
    declared_settings = [
        each for each in options.declared.values() if each.metadata.get("only") != "notebook"
    ]
    params = [*BASIC, *map(_parameter, declared_settings)]
    if any(each.metadata.get("rare") for each in declared_settings):
        params.append(HELP_ALL)
    return params


def argument_rows(options: type[Settings]) -> list[tuple[str, str]]:
    """The arguments without dashes, each with what it does."""
    arguments = [each for each in options.declared.values() if "nargs" in each.metadata]
    return [(_metavar(each), _help(each)) for each in arguments]


def _metavar(declared: Declared) -> str:
    return declared.metadata["metavar"] or declared.name.upper()


def _parameter(declared: Declared) -> click.Parameter:
    declaration = declared.metadata
    default = declared.default
    name = declared.name
    is_flag = isinstance(default, bool)
    if "nargs" in declaration:
        nargs = declaration["nargs"]
        is_required = nargs in {"+", None}
        is_many = nargs in {"+", "*"}
        metavar = _metavar(declared) + ("..." if is_many else "")
        return click.Argument(
            [name],
            metavar=metavar if is_required else f"[{metavar}]",
            nargs=-1 if is_many else 1,
            required=is_required,
        )
    repeats = declaration.get("repeats", False)
    long = f"--{name.removesuffix('s') if repeats else name}".replace("_", "-")
    short = [f"-{declaration['short']}"] if "short" in declaration else []
    return click.Option(
        [name, *short, long],
        # With False and no default, click takes an option without its value.
        is_flag=is_flag or None,
        default=default if is_flag else None,
        multiple=repeats,
        metavar=None if is_flag else _metavar(declared),
        help=_help(declared),
        hidden=declaration.get("rare", False),
    )


def _help(declared: Declared) -> str:
    """What a setting does, with its default."""
    default = declared.default
    help: str = declared.metadata["help"]
    if isinstance(default, bool) or not default or "(default: " in help:
        return help
    default_text = f"{default:,g}" if isinstance(default, float) else default
    return f"{help} (default: {default_text})"


def show_all(context: click.Context) -> None:
    """Let a command's help show also what is rarely used."""
    for each in context.command.get_params(context):
        if isinstance(each, click.Option):
            each.hidden = False


def _print_help(context: click.Context, option: click.Parameter, is_given: bool) -> None:
    if is_given:
        if option is HELP_ALL:
            show_all(context)
        say(context.get_help())
        context.exit()


_flag = partial(click.Option, is_flag=True, expose_value=False)
_help_flag = partial(_flag, is_eager=True, callback=_print_help)
#: Of every command, and of icekit itself.
BASIC = (
    _help_flag(["-h", "--help"], help="show this help, and exit"),
    _flag(["--debug"], help="show the stack trace of an error"),
)
HELP_ALL = _help_flag(["--help-all"], help="show all options, and exit")


def connected(options: CatalogOptions) -> closing[Lake]:
    """The catalog of a command, for a ``with`` block that closes it."""
    from icekit.api import connect

    return closing(connect(options.catalog))
