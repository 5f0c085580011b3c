"""``icekit tune``: how a table should be written and laid out, one question at a time, measured on clones and samples."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icekit.commands.running import say_saved
from icekit.terminal import say
from icekit.tune.questions import QUESTIONS

_WHAT = f"""\
{chr(10).join(f"  {name:<16} {what}" for name, what in QUESTIONS.items())}

Each answers with what was measured and one script to paste, with its undo, or with "leave it". What queries filter by
is stated (--filter, also a whole query), read from a Spark event log or from Iceberg's scan reports, or declared by the table
property icekit.filter-columns. The table itself is only read. Nothing is set.

Exit status: 0 answered (also when the answer is to leave it), 2 misconfigured, 3 crashed.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "tune",
        parents=[common],
        help="file sizes, metrics columns, layout or planning: measured, with the ALTER TABLE and its undo",
        description="Measure one question about how a table is written, and say what to set.",
        epilog=_WHAT,
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
        return 0
    finally:
        lake.close()
