"""``icekit convert``: forecast what equality deletes cost, and turn them into position deletes."""

from __future__ import annotations

import argparse
from typing import Any

from icekit.commands.running import EXIT_STATUS, add_running, run_plan
from icekit.errors import ParameterError
from icekit.terminal import say

_WHAT = """\
Flink and other upsert writers leave equality deletes. Spark reads them by building, for each data
file, a set of all later delete rows: heap grows with keys and cores, work with the square of the
commits. This command says first what that takes here (for an executor given as
--executor "4 cores 8g", else that of this session), then turns the deletes into position deletes
(deletion vectors in format version 3): one read of the key columns, one join that spills to disk, a
small write. No row changes, and every commit is proved row for row.

A batch is one commit (several, where a partition is too large for the disk). It fails, and is tried again, if a data file it points at or a delete it
removes is gone by then, so a live upsert writer, a compaction or an expiry may go on beside it; what
is committed meanwhile stays and applies. A run that was killed goes on with --resume.

The commit is a `delete` (an `overwrite` where no row was hit) to readers of the change stream, and not a `replace`: Spark streaming reads of
the table need streaming-skip-delete-snapshots=true to pass over it.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "convert",
        parents=[common],
        help="forecast what equality deletes cost to read; with --execute turn them into position deletes and prove it",
        description="Plan the conversion of a table's equality deletes, and run it if told.",
        epilog=_WHAT + EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    running = add_running(parser)
    running.add_argument("--then-compact", action="store_true", help="with --execute: afterwards rewrite the data files that it pays to")
    running.add_argument("--batch-bytes", metavar="SIZE", help='disk that one batch may spill to: "200 GB" (default: half of what is free)')
    parser.add_argument("--where", metavar="SQL", help="only the partitions that may hold such rows")
    parser.add_argument("--branch", help="convert on a branch (default: the table itself)")
    parser.add_argument(
        "--executor", default="", metavar="SIZE", help='forecast for such an executor: "4 cores 8g" (default: this session\'s)'
    )


def convert(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.catalog import Lake
    from icekit.compact import Plan
    from icekit.compact.equality_deletes import forecast_table, plan_conversion
    from icekit.run import finish_with_compaction

    if arguments.then_compact and not (arguments.execute or arguments.resume):
        raise ParameterError("--then-compact runs a compaction; give it with --execute.")

    def planned(lake: Lake) -> Plan:
        plan = plan_conversion(
            lake,
            arguments.table,
            where=arguments.where,
            branch=arguments.branch,
            batch_bytes=arguments.batch_bytes,
            ledger=arguments.ledger,
        )
        if plan.actions:
            say(f"{forecast_table(lake, arguments.table, arguments.executor, ref=arguments.branch)!r}\n")
        return plan

    return run_plan(arguments, planned, then=finish_with_compaction if arguments.then_compact else None)
