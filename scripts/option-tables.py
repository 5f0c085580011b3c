"""Write the option tables of docs/ from the help of each command: `python scripts/option-tables.py`; a test checks that they are current.

A table follows a comment, `<!-- options of COMMAND -->`, or `<!-- options of COMMAND: --one --two -->` for these options alone.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from icekit.cli.declared import show_all
from icekit.cli.main import _parser

DOCS = Path(__file__).parents[1] / "docs"
_TABLE = re.compile(r"(<!-- options of ([a-z -]+?)(?:: ([^>]*))? -->\n)(?:\|.*\n)*")


def updated(page: str) -> str:
    """A page with the tables that its comments ask for."""
    return _TABLE.sub(
        lambda found: found[1] + _table(found[2].split(), (found[3] or "").split()), page
    )


def _table(command: list[str], wanted: list[str]) -> str:
    parser = _parser()
    for name in command:
        parser = next(
            a for a in parser._actions if isinstance(a, argparse._SubParsersAction)
        ).choices[name]
    show_all(parser)
    by_name = {
        a.option_strings[-1]: a
        for a in parser._actions
        if a.option_strings and a.help not in {None, argparse.SUPPRESS}
    }
    help_of = parser._get_formatter()._expand_help
    rows = [
        f"| `{name}` | {help_of(by_name[name])} |\n".replace('"', "`")
        for name in wanted or by_name
        if name not in {"--help", "--help-all", "--debug", "--catalog"}
    ]
    return "".join(["| option | meaning |\n", "|---|---|\n", *rows])


if __name__ == "__main__":
    for path in DOCS.glob("*.md"):
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
