"""Make the parser of a command from its declared options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.options import Declared, Settings
from icekit.units import raised

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.options.commands import OfCatalog


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        show_all(parser)
        parser.print_help()
        parser.exit()


def show_all(parser: argparse.ArgumentParser) -> None:
    """Let a parser's help show also what is rarely used."""
    for action in parser._actions:
        action.help = getattr(action, "rare", action.help)


def command(
    commands: Any,
    verb: Callable[..., int],
    options: type[Settings],
    name: str,
    help: str,
    epilog: str = "",
) -> None:
    """Add a command, whose ``verb`` is called with its ``options``."""
    about = f"{raised(help)}."
    parser = commands.add_parser(name, help=help, description=about, epilog=epilog)
    parser.fill = partial(_fill, parser, verb, options)


def _fill(
    parser: argparse.ArgumentParser, verb: Callable[..., int], options: type[Settings]
) -> None:
    parser.set_defaults(verb=verb, options=options)
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the stack trace of an error",
    )
    rare = [
        _add(parser, name)
        for name in options.declared.values()
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
    how, default, name = declared.metadata, declared.default, declared.name
    given: dict[str, Any] = {"metavar": how["metavar"]}
    if isinstance(default, bool):
        given = {
            "action": argparse.BooleanOptionalAction if default else "store_true",
            "default": None,
        }
    elif how.get("repeats"):
        given["action"], name = "append", name.removesuffix("s")
    shown = f"{default:,g}" if isinstance(default, float) else default
    stated = "" if isinstance(default, bool) or not default else f" (default: {shown})"
    help = (how["help"] + stated).replace("%", "%%")
    if "nargs" in how:
        parser.add_argument(
            name, nargs=how["nargs"], choices=how.get("choices"), help=help, **given
        )
        return False
    action = parser.add_argument(
        f"--{name.replace('_', '-')}", dest=declared.name, help=help, **given
    )
    is_rare: bool = how.get("rare", False)
    if is_rare:
        action.rare, action.help = help, argparse.SUPPRESS  # type: ignore[attr-defined]
    return is_rare


def connected(options: OfCatalog) -> closing[Lake]:
    """The catalog of a command, for a ``with`` block that closes it."""
    from icekit.api import connect

    return closing(connect(options.catalog))
