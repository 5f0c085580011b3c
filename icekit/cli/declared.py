"""Make the parser of a command from its declared options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from icekit.common import frozen
from icekit.common.options import Declared, Settings

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.common.commands import OfCatalog


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


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        show_all(parser)
        parser.print_help()
        parser.exit()


def show_all(parser: argparse.ArgumentParser) -> None:
    """Let a parser's help show also what is rarely used."""
    for action in parser._actions:
        action.help = getattr(action, "rare", action.help)


def fill(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the options of a command to its parser."""
    parser.set_defaults(verb=command.verb, options=command.options)
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the stack trace of an error",
    )
    rare = [
        _add(parser, name)
        for name in command.options.declared.values()
        if name.metadata.get("only") != "notebook"
    ]
    if any(rare):
        parser.add_argument(
            "--help-all",
            action=_HelpAll,
            nargs=0,
            help="show all options, and exit",
        )


def _add(parser: argparse.ArgumentParser, declared: Declared) -> bool:
    """Add a setting; returns whether it is rarely used."""
    declaration = declared.metadata
    default = declared.default
    name = declared.name
    arguments: dict[str, Any] = {"metavar": declaration["metavar"]}
    if isinstance(default, bool):
        arguments = {
            "action": argparse.BooleanOptionalAction if default else "store_true",
            "default": None,
        }
    elif declaration.get("repeats"):
        arguments["action"] = "append"
        name = name.removesuffix("s")
    default_text = f"{default:,g}" if isinstance(default, float) else default
    default_sentence = (
        ""
        if isinstance(default, bool) or not default or "(default: " in declaration["help"]
        else f" (default: {default_text})"
    )
    help = (declaration["help"] + default_sentence).replace("%", "%%")
    if "nargs" in declaration:
        parser.add_argument(
            name,
            nargs=declaration["nargs"],
            choices=declaration.get("choices"),
            help=help,
            **arguments,
        )
        return False
    flags = [f"-{declaration['short']}"] if "short" in declaration else []
    flags.append(f"--{name.replace('_', '-')}")
    action = parser.add_argument(*flags, dest=declared.name, help=help, **arguments)
    is_rare: bool = declaration.get("rare", False)
    if is_rare:
        action.rare = help  # type: ignore[attr-defined]
        action.help = argparse.SUPPRESS
    return is_rare


def connected(options: OfCatalog) -> closing[Lake]:
    """The catalog of a command, for a ``with`` block that closes it."""
    from icekit.api import connect

    return closing(connect(options.catalog))
