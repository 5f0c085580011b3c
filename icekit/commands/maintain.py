"""``python -m icekit maintain``: deletes, manifests, snapshots and orphans, from a terminal or from cron."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icekit.commands.running import run_plan

_ORDER = """\
Planned in the order that is right, each only if a finding asks for it: position delete files are
combined, manifests are rewritten (grouped by the partition fields that filters use), snapshots
expire, orphan files are removed (with --storage, which lists the table's location). Rewrite the
data files first (`python -m icekit compact`): that leaves deletes, manifests and snapshots behind.

Retention is a time and a count: a snapshot is kept while it is younger than --keep or among the
last --keep-last of its branch, and always if a branch or tag points at it. The plan names what time
travel is lost. State with --need how far people must be able to look back, and a retention that
keeps less is refused. Nothing younger than an hour ever expires, and no orphan younger than three
days is removed.

Nothing is run without --execute. Exit status: 0 done, nothing to do, or a dry run; 1 something failed or
could not be proved; 2 misconfigured, or another run holds the table; 3 crashed; 130 stopped by Ctrl-C.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "maintain",
        parents=[common],
        help="plan deletes, manifests, expiry and orphan removal; with --execute run them and prove them",
        description="Plan the maintenance that findings ask for on a table, and run it if told.",
        epilog=_ORDER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table")
    parser.add_argument("--threshold", action="append", default=[], metavar="NAME=VALUE", help="change a limit; may be repeated")
    parser.add_argument("--filter-columns", default="", help="columns that queries filter by, separated by commas")
    parser.add_argument("--execute", action="store_true", help="run the plan (default: only print it)")
    parser.add_argument("--resume", action="store_true", help="go on with the last unfinished run on the table")
    parser.add_argument("--keep", metavar="TIME", help='how long snapshots are kept: "7 days" (default: the table\'s, or 5 days)')
    parser.add_argument("--keep-last", metavar="N", help="how many are kept in any case (default: the table's, at least 10)")
    parser.add_argument("--need", metavar="TIME", help='how far people must be able to look back: "3 days"')
    parser.add_argument("--storage", action="store_true", help="also look for orphan files; lists the storage")
    parser.add_argument("--prove", default="full", metavar="full|N|none", help="partitions compared for each commit (default: full)")
    parser.add_argument("--ledger", default="", metavar="FILE|table", help="where runs are recorded")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the plan and its outcome as JSON")


def maintain(arguments: argparse.Namespace, thresholds: dict[str, float], filter_columns: list[str]) -> int:
    """Run the command; returns the exit status."""
    from icekit.catalog import Lake
    from icekit.compact import Plan
    from icekit.diagnose import diagnose
    from icekit.findings import Thresholds
    from icekit.maintain import Retention, plan_maintenance_table

    retention = Retention.of({"keep": arguments.keep, "keep_last": arguments.keep_last, "need": arguments.need})
    wanted = Thresholds().with_changes(**thresholds)

    def planned(lake: Lake) -> Plan:
        facts = lake.observe(
            arguments.table, size_ratios=wanted.size_ratios, filter_columns=filter_columns or None, storage=arguments.storage
        )
        findings = diagnose(facts, wanted, session_conf=lake.session_conf())
        return plan_maintenance_table(lake, facts, findings, retention, thresholds=wanted)

    return run_plan(arguments, planned)
