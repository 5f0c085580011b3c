"""``icekit admin``: list a catalog's tables and the clones that killed runs left in it, and find where erased rows can still be read."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY
from icekit.terminal import say
from icekit.units import count

_CLONES = """\
A trial works on a clone of the table, and drops the clone when it ends. A process that is killed leaves its
clone behind: an entry in the namespace icekit_scratch and a folder next to the table. Both are harmless,
but take space. icekit removes only clones whose process is known to have ended. It lists every other clone (made
on another host, before a restart, or in another container) with its age, for you to decide.

Nothing is removed without --remove. If you drop a clone by hand, do it without PURGE, which would delete the table's files.
"""


_ERASED = """\
icekit reads the columns of the predicate in every file that any snapshot, branch or tag reaches, and in Parquet files in the
table's location that no snapshot reaches. It names where matching rows can still be read, and prints the
statements that remove them, in order. It writes nothing.

Exit status: 0 erased everywhere; 1 not erased, or a file could not be read; 2 misconfigured; 3 crashed.
"""


def add_parsers(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the group and its commands."""
    admin = commands.add_parser("admin", help="list a catalog's tables or clones left behind; find where erased rows can still be read")
    group = admin.add_subparsers(dest="admin", required=True, metavar="COMMAND")
    group.add_parser("tables", parents=[common], help="list the tables of a catalog").set_defaults(verb=tables)
    parser = group.add_parser(
        "clones",
        parents=[common],
        help="list the clones that killed runs left behind; with --remove drop them",
        description="List stale clones, each with the statement that drops it.",
        epilog=_CLONES,
    )
    parser.add_argument("--remove", action="store_true", help="drop the clones whose process has ended, and remove their folders")
    parser.set_defaults(verb=clones)
    parser = group.add_parser(
        "prove-erased",
        parents=[common],
        help="find where rows that were deleted can still be read, and the statements that erase them",
        description="Find every snapshot, branch, tag and file in which rows of a predicate can still be read.",
        epilog=_ERASED,
    )
    parser.add_argument("table", help="such as db.users")
    parser.add_argument("--where", required=True, metavar="SQL", help='the rows, by columns of the table: "user_id = 42"')
    parser.add_argument(
        "--referenced-only",
        action="store_true",
        help="leave out files that no snapshot reaches; nothing is proved then, and the exit status is 1",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as a JSON document")
    parser.set_defaults(verb=prove_erased)


def tables(arguments: argparse.Namespace) -> int:
    """List the tables of a catalog; returns the exit status."""
    from icekit.api import connect
    from icekit.sql import display_name

    for name in connect(arguments.catalog or None).tables.names():
        say(display_name(name))
    return EXIT_HEALTHY


def clones(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.catalog import connect
    from icekit.sandbox import remove_stale, stale_clones

    lake = connect(arguments.catalog or None)
    try:
        found = stale_clones(lake)
        now = time.time_ns() // 1_000_000
        if not found:
            say("There are no stale clones.")
        for stale in found:
            say(stale.line(now))
            say(f"  {stale.drop};")
            say(f"  folder {stale.scratch or 'unknown'}")
        dead = [stale for stale in found if stale.is_dead]
        if arguments.remove and dead:
            removed = remove_stale(lake, dead)
            say(f"\n{count(len(removed), 'clone')} removed.")
        elif dead:
            say(f"\nNothing was removed. --remove drops the {count(len(dead), 'clone')} whose process has ended.")
        return EXIT_HEALTHY
    finally:
        lake.close()


def prove_erased(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.catalog import connect
    from icekit.prove import prove_erased as prove
    from icekit.saving import as_json

    lake = connect(arguments.catalog or None)
    try:
        proof = prove(lake, arguments.table, arguments.where, unreferenced=not arguments.referenced_only)
        say(as_json(asdict(proof)) if arguments.json else repr(proof))
        return EXIT_HEALTHY if proof.erased else EXIT_UNHEALTHY
    finally:
        lake.close()
