"""``icekit tune``, ``write-mode`` and ``review-merge``: how a table should be written and laid out, measured on clones and samples."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icekit.cli.running import say_saved
from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY
from icekit.terminal import say
from icekit.tune import QUESTIONS

_TUNE = f"""\
{chr(10).join(f"  {name:<16} {what}" for name, what in QUESTIONS.items())}

Each answers with what was measured and one script to paste, with its undo, or with "leave it". What queries filter by
is stated (--filter, also a whole query), read from a Spark event log or from Iceberg's scan reports, or declared by the table
property icekit.filter-columns. The table itself is only read. Nothing is set.

Exit status: 0 answered (also when the answer is to leave it), 2 misconfigured, 3 crashed.
"""
_WRITE_MODE = """\
A DELETE, UPDATE or MERGE either rewrites changed files (copy-on-write: expensive writes, no cost for reads)
or writes deletes beside them (merge-on-read: cheap writes, more expensive reads, a compaction now and then). This
command tries both on zero-copy clones of the table, with a statement of yours (--statement FILE, or - for
standard input) or with synthetic ones shaped like the table's history; measures commits, scans and
compaction; and says which mode costs less at the table's reads per commit, where the two break even, and
what to set. The table itself is only read. Nothing is set.

Exit status: 0 answered (also when the answer is to leave it), 2 misconfigured, 3 crashed.
"""
_REVIEW_MERGE = """\
The file holds one MERGE statement (- reads it from standard input). Spark plans it and Iceberg plans its
scans; neither runs it. The answer: which files of the target are opened and which filters reach it, whether
and why the target is shuffled, whether a storage-partitioned join would avoid that and what it lacks, how
rows are written. If the source's values allow it, the same statement with a narrower ON, and a query that
must give 0 just before it is run.

The source is read for that, some aggregations; of the target only metadata. With --prove the statement and
what is offered are run on zero-copy clones, which are removed: rows compared, bytes, shuffle and time measured.

Names without a catalog are looked for in --catalog. Exit status: 0 reviewed; 1 with --prove, the rows
differ or cannot be compared, or the budget was spent; 2 misconfigured, or a statement that cannot be reviewed; 3 crashed.
"""


def add_parsers(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the three commands and their options."""
    _add_tune(commands, common)
    _add_write_mode(commands, common)
    _add_review_merge(commands, common)


def _add_tune(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "tune",
        parents=[common],
        help="file sizes, metrics columns, layout or planning: measured, with the ALTER TABLE and its undo",
        description="Measure one question about how a table is written, and say what to set.",
        epilog=_TUNE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", choices=list(QUESTIONS), metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("table")
    parser.add_argument(
        "--filter", action="append", default=[], metavar="SQL", help="what queries ask for: a predicate or a query; may be repeated"
    )
    parser.add_argument("--event-log", default="", metavar="PATH", help="read filters from a Spark event log, or a folder of them")
    parser.add_argument("--scan-reports", default="", metavar="FILE", help="read filters from Iceberg scan reports (JSON)")
    parser.add_argument("--no-trial", action="store_true", help="measure what is there, and try nothing on a clone or a sample")
    parser.add_argument("--sample-bytes", metavar="SIZE", help="how much of the table is tried (default: as the question needs)")
    parser.add_argument("--budget-seconds", type=float, default=900, help="end the trial after so long (default: 900)")
    parser.add_argument("--budget-bytes", default="20 GB", metavar="SIZE", help="end it before it writes more (default: 20 GB)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the answer as JSON")
    parser.set_defaults(verb=tune)


def _add_write_mode(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "write-mode",
        parents=[common],
        help="merge-on-read or copy-on-write: measured on clones of a table, with the ALTER TABLE",
        description="Measure what each write mode costs a table, and say which to set.",
        epilog=_WRITE_MODE,
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
    parser.set_defaults(verb=write_mode)


def _add_review_merge(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "review-merge",
        parents=[common],
        help="explain a MERGE without running it: what it reads and shuffles, and the same with a narrower ON",
        description="Review one MERGE statement.",
        epilog=_REVIEW_MERGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.sql", help="a file with one MERGE statement; - for standard input")
    parser.add_argument("--prove", action="store_true", help="also run it both ways on clones and compare")
    parser.add_argument("--budget-seconds", type=float, default=1800, help="with --prove: end the trial after so long (default: 1800)")
    parser.add_argument(
        "--budget-bytes", default="20 GB", metavar="SIZE", help='with --prove: end it before it writes more (default: "20 GB")'
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the review as JSON")
    parser.set_defaults(verb=review_merge)


def tune(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.api import connect

    options: dict[str, Any] = {
        "trial": not arguments.no_trial,
        "budget_seconds": arguments.budget_seconds,
        "budget_bytes": arguments.budget_bytes,
        "progress": say,
    }
    if arguments.sample_bytes:
        options["sample_bytes"] = arguments.sample_bytes
    asked = {"filters": arguments.filter, "event_log": arguments.event_log, "scan_reports": arguments.scan_reports}
    lake = connect(arguments.catalog or None)
    try:
        answer = lake.tune(arguments.question, arguments.table, **options, **{k: v for k, v in asked.items() if v})
        say(f"\n{answer!r}")
        say_saved(answer, arguments.output)
        return EXIT_HEALTHY
    finally:
        lake.close()


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
        return EXIT_HEALTHY
    finally:
        lake.close()


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
