"""``icekit review-merge``: explain a MERGE without running it, and narrow it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icekit.commands.running import say_saved
from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY
from icekit.terminal import say

_WHAT = """\
The file holds one MERGE statement (- reads it from standard input). Spark plans it and Iceberg plans its
scans; neither runs it. The answer: which files of the target are opened and which filters reach it, whether
and why the target is shuffled, whether a storage-partitioned join would spare that and what it lacks, how
rows are written. If the source's values allow it, the same statement with a narrower ON, and a query that
must give 0 just before it is run.

The source is read for that, some aggregations; of the target only metadata. With --prove the statement and
what is offered are run on zero-copy clones, which are removed: rows compared, bytes, shuffle and time measured.

Names without a catalog are looked for in --catalog. Exit status: 0 reviewed; 1 with --prove, the rows
differ or cannot be compared, or the budget was spent; 2 misconfigured, or a statement that cannot be reviewed; 3 crashed.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "review-merge",
        parents=[common],
        help="explain a MERGE without running it: what it reads and shuffles, and the same with a narrower ON",
        description="Review one MERGE statement.",
        epilog=_WHAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.sql", help="a file with one MERGE statement; - for standard input")
    parser.add_argument("--prove", action="store_true", help="also run it both ways on clones and compare")
    parser.add_argument("--budget-seconds", type=float, default=1800, help="with --prove: end the trial after so long (default: 1800)")
    parser.add_argument(
        "--budget-bytes", default="20 GB", metavar="SIZE", help='with --prove: end it before it writes more (default: "20 GB")'
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the review as JSON")


def review_merge(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.api import connect
    from icekit.tune.statement import read_file

    sql = read_file(arguments.file)
    lake = connect(arguments.catalog or None)
    try:
        review = lake.review_merge(sql, prove=arguments.prove, budget_seconds=arguments.budget_seconds, budget_bytes=arguments.budget_bytes)
        say(repr(review))
        say_saved(review, arguments.output)
        return EXIT_HEALTHY if review.is_proved else EXIT_UNHEALTHY
    finally:
        lake.close()
