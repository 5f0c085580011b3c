"""``icekit tables``, ``clones`` and ``lab``: what a catalog has, what killed runs left in it, and the embedded lake's sick tables."""

from __future__ import annotations

import argparse
import time
from typing import Any

from icekit.errors import EXIT_HEALTHY
from icekit.terminal import say
from icekit.units import count

_CLONES = """\
A trial works on a clone of the table, and drops it at its end. A process that is killed leaves its
clone behind: an entry in the namespace icekit_scratch and a folder beside the table. Both are harmless,
and take space. Only clones whose process is known to have ended are removed: one that was made on another
host, before a restart or in another container is listed with its age, for you to judge.

Nothing is removed without --remove. Drop a clone by hand without PURGE, which would delete the table's files.
"""


def add_parsers(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the three commands and their options."""
    commands.add_parser("tables", parents=[common], help="list the tables of a catalog").set_defaults(verb=tables)
    _add_clones(commands, common)
    lab = commands.add_parser("lab", parents=[common], help="build the lab's sick tables in the embedded lake")
    lab.add_argument("names", nargs="*", metavar="NAME", help="tables to build (default: all)")
    lab.add_argument("--scale", type=int, default=1, help="multiply the rows (default: 1, 336,776 flights)")
    instead = lab.add_mutually_exclusive_group()
    instead.add_argument("--rebuild", action="store_true", help="build again what is there already")
    instead.add_argument(
        "--reset", action="store_true", help="put tables back as they were built, whatever was done to them; starts no JVM"
    )
    instead.add_argument("--list", action="store_true", help="only say what each table suffers from")
    lab.set_defaults(verb=build_lab)


def _add_clones(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "clones",
        parents=[common],
        help="list the clones that killed runs have left; with --remove drop them",
        description="List stale clones, each with the statement that drops it.",
        epilog=_CLONES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--remove", action="store_true", help="drop those whose process has ended, and remove their folders")
    parser.set_defaults(verb=clones)


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
    from icekit.clone import remove_stale, stale_clones

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
            say(f"\nNothing was removed; --remove drops the {count(len(dead), 'clone')} whose process has ended.")
        return EXIT_HEALTHY
    finally:
        lake.close()


def build_lab(arguments: argparse.Namespace) -> int:
    """Build, reset or list the lab's tables; returns the exit status."""
    from icekit.lab import TABLES, build, reset

    if arguments.list:
        for table in TABLES.values():
            say(f"lab.{table.name:<28} {table.illness}")
        return EXIT_HEALTHY
    from icekit.api import connect

    lake = connect(arguments.catalog or None)
    try:
        if arguments.reset:
            reset(lake, arguments.names or None, progress=say)
            return EXIT_HEALTHY
        build(lake, arguments.names or None, scale=arguments.scale, rebuild=arguments.rebuild, progress=say)
    finally:
        lake.close()
    return EXIT_HEALTHY
