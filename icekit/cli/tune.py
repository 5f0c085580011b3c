"""``icekit tune`` and ``review-merge``: measure on clones and samples how a table should be written and laid out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icekit.cli.running import say_saved
from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY
from icekit.terminal import say
from icekit.tune import QUESTIONS

# For every question but write-mode.
_FILTERS = """\
State what queries filter by (--filter, also a whole query), read it from a Spark event log or from Iceberg's scan
reports, or declare it in the table property icekit.filter-columns.

"""
# Closes the help of each question.
_TUNE = """\
The answer is the measurements and one script to paste, with its undo, or "no change". icekit only reads the table, and sets nothing.

Exit status: 0 answered (also when the answer is "no change"), 2 misconfigured, 3 crashed.
"""
_WRITE_MODE = """\
A DELETE, UPDATE or MERGE either rewrites changed files (copy-on-write: expensive writes, no cost for reads)
or writes deletes next to them (merge-on-read: cheap writes, more expensive reads, occasional compaction). This
command tries both on zero-copy clones of the table, with your statement (--statement FILE, or - for
standard input) or with synthetic ones shaped like the table's history. It measures commits, scans and
compaction, and reports which mode costs less at the table's reads per commit, at how many reads the two break
even, and what to set.

"""
_REVIEW_MERGE = """\
The file holds one MERGE statement (- reads it from standard input). Spark plans it and Iceberg plans its
scans; neither runs it. The review shows which files of the target are opened and which filters reach it, whether
and why the target is shuffled, whether a storage-partitioned join would avoid that and what it lacks, and how
rows are written. If the values in the source allow it, the review offers the same statement with a narrower ON, and
a query that must return 0 immediately before you run it.

For this, icekit runs some aggregations on the source; of the target it reads only metadata. With --prove it runs
the statement and the narrower one on zero-copy clones, which it then removes: it compares rows and measures bytes, shuffle and time.

Names without a catalog are looked up in --catalog. Exit status: 0 reviewed; 1 with --prove, the rows
differ or cannot be compared, or the budget ran out; 2 misconfigured, or a statement that cannot be reviewed; 3 crashed.
"""


def add_parsers(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the two commands, a command for each question, and their options."""
    tuning = commands.add_parser(
        "tune",
        help="measure how a table should be written and laid out; gives the ALTER TABLE and its undo",
        description="Answer one question about how a table is written, and print what to set.",
    )
    questions = tuning.add_subparsers(dest="question", required=True, metavar="QUESTION")
    parsers = {
        name: questions.add_parser(
            name,
            parents=[common],
            help=what,
            description=f"Answer one question about a table: {what}.",
            epilog=_WRITE_MODE + _TUNE if name == "write-mode" else _TUNE if name == "file-sizes" else _FILTERS + _TUNE,
        )
        for name, what in QUESTIONS.items()
    }
    for name, parser in parsers.items():
        parser.add_argument("table", help="such as db.events")
        parser.set_defaults(verb=choose_write_mode if name == "write-mode" else tune)
    parsers["file-sizes"].add_argument(
        "--operation", metavar="NAME", help="also look at delete, update or merge (default: the operations in the history)"
    )
    for name in ("metrics-columns", "layout", "planning"):
        _add_filters(parsers[name])
    parsers["layout"].add_argument("--max-sort-columns", type=int, metavar="N", help="the most columns of a sort order to try (default: 4)")
    parsers["layout"].add_argument(
        "--reads-per-day", type=float, metavar="N", help="queries with these filters per day; used to say when the rewrite pays off"
    )
    parsers["planning"].add_argument("--repeats", type=int, metavar="N", help="measurements of each plan (default: 2)")
    _add_write_mode(parsers["write-mode"])
    for name in ("file-sizes", "metrics-columns", "layout", "planning"):
        if name != "planning":
            parsers[name].add_argument("--sample-bytes", metavar="SIZE", help='how much of the table to try (default: "1 GB")')
        _add_budget(parsers[name], 900)
    _add_budget(parsers["write-mode"], 1800)
    _add_review_merge(commands, common)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--filter",
        dest="filters",
        action="append",
        metavar="SQL",
        help="what queries filter by: a predicate, a query, or 'column = ?' for lookups of values of the table; may be repeated",
    )
    parser.add_argument("--event-log", metavar="PATH", help="read filters from a Spark event log, or a folder of them")
    parser.add_argument("--scan-reports", metavar="FILE", help="read filters from Iceberg scan reports (JSON)")


def _add_budget(parser: argparse.ArgumentParser, seconds: int) -> None:
    parser.add_argument("--budget-seconds", type=float, metavar="N", help=f"end the trial after N seconds (default: {seconds:,})")
    parser.add_argument("--budget-bytes", metavar="SIZE", help='end the trial before it writes more than this (default: "20 GB")')
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the answer as JSON")


def _add_write_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--statement", metavar="FILE", help="the DELETE, UPDATE or MERGE to try; - reads standard input")
    parser.add_argument(
        "--operation", metavar="NAME", help="synthetic statements to try: delete, update or merge (default: as in the history)"
    )
    parser.add_argument(
        "--share", type=float, help="share of rows that a synthetic statement changes (default: as in the history, else 0.01)"
    )
    parser.add_argument("--spread", help="which rows synthetic statements change: scattered (over all files) or clustered (in some)")
    parser.add_argument("--file-share", type=float, help="share of files that a clustered statement touches")
    parser.add_argument(
        "--reads-per-day", type=float, metavar="N", help="queries of the table per day; divided by the commits per day of the history"
    )
    parser.add_argument("--reads-per-commit", type=float, metavar="N", help="queries of the table per DELETE, UPDATE or MERGE")
    parser.add_argument("--event-log", metavar="PATH", help="count the queries in a Spark event log, or a folder of them")
    parser.add_argument("--filter", dest="read_filter", metavar="SQL", help="what queries filter by (default: full scans)")
    parser.add_argument("--compact-every", type=int, metavar="N", help="commits between compactions (default: as in the history)")
    parser.add_argument("--commits", type=int, metavar="N", help="synthetic statements to try (default: 2)")
    parser.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="scans of each clone, or up to three times as many if they differ (default: 3; the cheapest counts)",
    )
    parser.add_argument("--sample-bytes", metavar="SIZE", help="try a copied sample of this size instead of clones")


def _add_review_merge(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "review-merge",
        parents=[common],
        help="explain what a MERGE reads and shuffles without running it; offers a narrower ON",
        description="Review one MERGE statement.",
        epilog=_REVIEW_MERGE,
    )
    parser.add_argument("file", metavar="FILE.sql", help="a file with one MERGE statement; - for standard input")
    parser.add_argument("--prove", action="store_true", help="also run both statements on clones and compare")
    parser.add_argument(
        "--budget-seconds", type=float, default=1800, help="with --prove: end the trial after this many seconds (default: 1800)"
    )
    parser.add_argument(
        "--budget-bytes",
        default="20 GB",
        metavar="SIZE",
        help='with --prove: end the trial before it writes more than this (default: "20 GB")',
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the review as JSON")
    parser.set_defaults(verb=review_merge)


_OF_QUESTIONS = (
    "filters event_log scan_reports operation max_sort_columns reads_per_day repeats sample_bytes budget_seconds budget_bytes".split()
)
_OF_WRITE_MODE = (
    "operation share spread file_share reads_per_day reads_per_commit event_log read_filter compact_every commits repeats "
    "budget_seconds budget_bytes sample_bytes"
).split()


def tune(arguments: argparse.Namespace) -> int:
    """Answer a question; returns the exit status."""
    return _answered(arguments, _given(arguments, _OF_QUESTIONS))


def choose_write_mode(arguments: argparse.Namespace) -> int:
    """Choose a table's write mode; returns the exit status."""
    from icekit.tune.statement import read_file

    options = _given(arguments, _OF_WRITE_MODE)
    if arguments.statement:
        options["statement"] = read_file(arguments.statement)
    return _answered(arguments, options)


def _given(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The given options; the question's own defaults apply to the others."""
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def _answered(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    from icekit.api import connect

    lake = connect(arguments.catalog or None)
    try:
        answer = lake.tune(arguments.question, arguments.table, progress=say, **options)
        say(f"\n{answer!r}")
        say_saved(answer, arguments.output)
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
        return EXIT_UNHEALTHY if review.failure else EXIT_HEALTHY
    finally:
        lake.close()
