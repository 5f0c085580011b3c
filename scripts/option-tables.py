"""Write the option tables and the help texts of docs/ from the commands: `python scripts/option-tables.py`; a test checks that they are current.

A table follows a comment, `<!-- options of COMMAND -->`, or `<!-- options of COMMAND: --one --two -->` for these options alone. The help of every command
follows `<!-- every command -->`, to the end of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from icekit.cli.main import root_command
from icekit.cli.parser import unhide_options
from icekit.health.facts.writer_states import WRITERS

DOCS = Path(__file__).parents[1] / "docs"
_WRITERS = re.compile(r"(<!-- writers -->\n)(?:\|.*\n)*")
_TABLE = re.compile(r"(<!-- options of ([a-z -]+?)(?:: ([^>]*))? -->\n)(?:\|.*\n)*")


def updated(page: str) -> str:
    """A page with the tables and texts that its comments ask for."""
    before, mark, _ = page.partition("<!-- every command -->\n")
    page = before + (mark + "".join(_texts(root_command(), "icekit")) if mark else "")
    page = _WRITERS.sub(lambda found: found[1] + _writers(), page)
    return _TABLE.sub(
        lambda found: found[1] + _table(found[2].split(), (found[3] or "").split()), page
    )


def _writers() -> str:
    """The keys of each writer whose state an expiry keeps."""
    rows = []
    for keys in WRITERS:
        key = keys.state_key + ("*" if keys.state_key.endswith(".") else "")
        by = ", ".join(f"`{each}`" for each in keys.job_keys)
        if keys.job_member is not None:
            by = f"`{keys.job_member}` in it"
        if keys.state_key.endswith("."):
            by = "the rest of the key"
        rows.append(f"| {keys.writer} | `{key}` | {by or 'one job'} | {keys.code_reference} |\n")
    head = "| writer | summary key | jobs are told apart by | where the writer reads it |\n"
    return "".join([head, "|---|---|---|---|\n", *rows])


def _texts(command: click.Command, name: str) -> Iterator[str]:
    """The help of every command that can be run, each under its name."""
    if isinstance(command, click.Group):
        for own_name, sub in command.commands.items():
            yield from _texts(sub, f"{name} {own_name}")
        return
    context = click.Context(command, info_name=name, terminal_width=84)
    unhide_options(context)
    yield f"\n## {name}\n\n```text\n{context.get_help()}\n```\n"


def _table(words: list[str], names: list[str]) -> str:
    command: click.Command = root_command()
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    by_name = {
        option.opts[-1]: option
        for option in command.get_params(click.Context(command))
        if isinstance(option, click.Option)
    }
    rows = [
        f"| `{name}` | {by_name[name].help} |\n".replace('"', "`")
        for name in names or by_name
        if name not in {"--help", "--help-all", "--debug", "--catalog"}
    ]
    return "".join(["| option | meaning |\n", "|---|---|\n", *rows])


if __name__ == "__main__":
    for path in DOCS.glob("*.md"):
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
