"""Write a command line of icekit, for a person to paste."""

import shlex
from collections.abc import Sequence


def command_line(verb: str, catalog: str, table: str | Sequence[str], *options: str) -> str:
    """A command line of icekit for a table, or for several."""
    table_names = [table] if isinstance(table, str) else table
    catalog_arguments = [] if catalog in {"", "lake"} else ["--catalog", catalog]
    return shlex.join(["icekit", *verb.split(), *table_names, *catalog_arguments, *options])
