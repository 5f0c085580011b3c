"""Make the parser of a command from its declared options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from icekit.common import frozen
from icekit.common.options import SettingDeclaration, Settings
from icekit.common.terminal import say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.common.commands.shared import CatalogOptions


CommandFunction = TypeVar("CommandFunction", bound=Callable[..., int])


@frozen
class Command:
    """What runs with a command's options, and what its help says."""

    function: Callable[..., int]
    options_class: type[Settings]
    help: str
    epilog: str


#: Every command by its words, such as ``schedule run``, in the order of the help.
COMMANDS: dict[str, Command] = {}


def command(
    name: str, options_class: type[Settings], help: str, epilog: str = ""
) -> Callable[[CommandFunction], CommandFunction]:
    """Make a function a command; it is called with its options, and returns the exit status."""

    def register(function: CommandFunction) -> CommandFunction:
        COMMANDS[name] = Command(function, options_class, help, epilog)
        return function

    return register


def command_parameters(options_class: type[Settings]) -> list[click.Parameter]:
    """The parameters of a command: its declared options."""
    declarations = [
        declaration
        for declaration in options_class.declarations.values()
        if declaration.only_for != "notebook"
    ]
    click_parameters = [*BASIC, *map(_click_parameter, declarations)]
    if any(declaration.is_rare for declaration in declarations):
        click_parameters.append(HELP_ALL)
    return click_parameters


def argument_rows(options_class: type[Settings]) -> list[tuple[str, str]]:
    """The arguments without dashes, each with what it does."""
    argument_declarations = [
        declaration for declaration in options_class.declarations.values() if declaration.nargs
    ]
    return [
        (_metavar(declaration), _help_text(declaration)) for declaration in argument_declarations
    ]


def _metavar(declaration: SettingDeclaration) -> str:
    return declaration.metavar or declaration.name.upper()


def _click_parameter(declaration: SettingDeclaration) -> click.Parameter:
    name = declaration.name
    if declaration.nargs:
        is_required = declaration.nargs in {"1", "+"}
        takes_many = declaration.nargs in {"*", "+"}
        metavar = _metavar(declaration) + ("..." if takes_many else "")
        return click.Argument(
            [name],
            metavar=metavar if is_required else f"[{metavar}]",
            nargs=-1 if takes_many else 1,
            required=is_required,
        )
    is_flag = isinstance(declaration.default, bool)
    option_name = name.removesuffix("s") if declaration.is_repeatable else name
    short_options = [f"-{declaration.short_letter}"] if declaration.short_letter else []
    return click.Option(
        [name, *short_options, f"--{option_name}".replace("_", "-")],
        # With False and no default, click takes an option without its value.
        is_flag=is_flag or None,
        default=declaration.default if is_flag else None,
        multiple=declaration.is_repeatable,
        metavar=None if is_flag else _metavar(declaration),
        help=_help_text(declaration),
        hidden=declaration.is_rare,
    )


def _help_text(declaration: SettingDeclaration) -> str:
    """What a setting does, with its default."""
    default = declaration.default
    if isinstance(default, bool) or not default or "(default: " in declaration.help_text:
        return declaration.help_text
    default_text = f"{default:,g}" if isinstance(default, float) else default
    return f"{declaration.help_text} (default: {default_text})"


def unhide_options(context: click.Context) -> None:
    """Let a command's help show also what is rarely used."""
    for parameter in context.command.get_params(context):
        if isinstance(parameter, click.Option):
            parameter.hidden = False


def _print_help(context: click.Context, option: click.Parameter, is_given: bool) -> None:
    if is_given:
        if option is HELP_ALL:
            unhide_options(context)
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


def connected_lake(options: CatalogOptions) -> closing[Lake]:
    """The catalog of a command, for a ``with`` block that closes it."""
    from icekit.api import connect

    return closing(connect(options.catalog))
