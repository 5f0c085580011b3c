"""A command of icekit's, given in this process."""

import contextlib
import io
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from icekit.cli.main import _LeafCommand, main, root_command


def command(*arguments: str) -> tuple[int, str]:
    """Run a command; gives its exit status, and all that was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(list(arguments))
    return status, printed.getvalue()


def leaves(command: click.Command | None = None, name: str = "icekit") -> Iterator[_LeafCommand]:
    """Every command that can be run, with its full name."""
    command = command or root_command()
    if not isinstance(command, click.Group):
        assert isinstance(command, _LeafCommand)
        command.name = name
        yield command
        return
    for own_name, sub in command.commands.items():
        yield from leaves(sub, f"{name} {own_name}")


def parsed(words: Sequence[str]) -> Any:
    """The options of a command line, whose command does not run."""
    rest = list(words)
    command: click.Command = root_command()
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    assert isinstance(command, _LeafCommand)
    with command.make_context(command.name, rest) as context:
        return command.command.options_class.of(context.params)


def refusals(lines: str) -> str:
    """What a terminal shows of commands that are misconfigured, each of which ends with 2."""
    shown = []
    for line in lines.splitlines():
        status, printed = command(*shlex.split(line))
        assert (status, "Traceback" in printed) == (2, False), printed
        shown.append(f"$ icekit {line}\n{printed}")
    return "\n".join(shown).replace(str(Path.cwd()), "/here")
