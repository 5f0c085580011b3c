"""``icekit write-mode``: measure merge-on-read and copy-on-write on clones of a table, and say which to set."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icekit.commands.running import say_saved
from icekit.terminal import say

_WHAT = """\
A DELETE, UPDATE or MERGE either writes changed files anew (copy-on-write: dear writes, no cost for reads)
or writes deletes beside them (merge-on-read: cheap writes, dearer reads, a compaction now and then). This
command tries both on zero-copy clones of the table, with a statement of yours (--statement FILE, or - for
standard input) or with synthetic ones shaped like the table's history; measures commits, scans and
compaction; and says which mode costs less at the table's reads per commit, where the two break even, and
what to set. The table itself is only read. Nothing is set.

Exit status: 0 answered (also when the answer is to leave it), 2 misconfigured, 3 crashed.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "write-mode",
        parents=[common],
        help="merge-on-read or copy-on-write: measured on clones of a table, with the ALTER TABLE",
        description="Measure what each write mode costs a table, and say which to set.",
        epilog=_WHAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table")
    parser.add_argument("--statement", metavar="FILE", help="the DELETE, UPDATE or MERGE to try; - reads standard input")
    parser.add_argument("--operation", help="of synthetic statements: delete, update or merge (default: as in the history)")
    parser.add_argument("--share", type=float, help="rows that a synthetic statement changes (default: as in the history, else 0.01)")
    parser.add_argument("--spread", help="of synthetic statements: scattered over all files, or clustered in some")
    parser.add_argument("--file-share", type=float, help="files that a clustered statement touches")
    parser.add_argument("--reads-per-day", type=float, help="queries that read the table; divided by the commits of the history")
    parser.add_argument("--reads-per-commit", type=float, help="the same, stated per DELETE, UPDATE or MERGE")
    parser.add_argument("--event-log", metavar="PATH", help="count the reads in a Spark event log, or a folder of them")
    parser.add_argument("--filter", metavar="SQL", help="what reads ask for (default: full scans)")
    parser.add_argument("--compact-every", type=int, metavar="N", help="commits between compactions (default: as in the history)")
    parser.add_argument("--commits", type=int, default=2, help="synthetic statements to try (default: 2)")
    parser.add_argument("--repeats", type=int, default=3, help="scans of each clone (default: 3; the shortest counts)")
    parser.add_argument("--margin", type=float, default=0.1, help="advise a change that saves this share of all cost (default: 0.1)")
    parser.add_argument("--budget-seconds", type=float, default=1800, help="end the trial after so long (default: 1800)")
    parser.add_argument("--budget-bytes", default="20 GB", metavar="SIZE", help='end it before it writes more (default: "20 GB")')
    parser.add_argument("--sample", metavar="SIZE", help="try a copied sample of this size instead of clones, and scale")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the answer as JSON")


def write_mode(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.api import connect
    from icekit.tune.statement import read_file
    from icekit.tune.write_mode import choose_write_mode

    given = {
        name: getattr(arguments, name)
        for name in (
            "operation share spread file_share reads_per_day reads_per_commit event_log compact_every "
            "commits repeats margin budget_seconds budget_bytes"
        ).split()
    }
    if arguments.sample:
        given |= {"sample": True, "sample_bytes": arguments.sample}
    lake = connect(arguments.catalog or None)
    try:
        statement = read_file(arguments.statement) if arguments.statement else None
        choice = choose_write_mode(lake, arguments.table, statement=statement, read_filter=arguments.filter, progress=say, **given)
        say(f"\n{choice!r}")
        say_saved(choice, arguments.output)
        return 0
    finally:
        lake.close()
