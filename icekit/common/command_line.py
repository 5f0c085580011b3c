"""Write a command line of icekit, for a person to paste."""

import shlex
from collections.abc import Sequence


def command_line(verb: str, catalog: str, table: str | Sequence[str], *options: str) -> str:
    """A command line of icekit for a table, or for several."""
    tables = [table] if isinstance(table, str) else table
    of_catalog = [] if catalog in {"", "lake"} else ["--catalog", catalog]
    return shlex.join(["icekit", *verb.split(), *tables, *of_catalog, *options])
