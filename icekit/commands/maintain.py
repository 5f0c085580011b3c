"""``icekit maintain``: deletes, manifests, snapshots and orphans, from a terminal or from cron."""

from __future__ import annotations

import argparse
from typing import Any

from icekit.commands.observing import diagnosed, limits_of
from icekit.commands.running import EXIT_STATUS, add_running, run_plan
from icekit.terminal import say

_ORDER = """\
Planned in the order that is right, each only if a finding asks for it: position delete files are
combined, manifests are rewritten (grouped by the partition fields that filters use), snapshots
expire. Rewrite the data files first (`icekit compact`): that leaves deletes, manifests and
snapshots behind.

Orphan files are removed last, and only where that is asked for by name: --procedures remove_orphan_files,
which lists the table's location. It is refused where another table of the catalog keeps files in the
same place, and where that cannot be told. --storage only lists them.

Retention is a time and a count: a snapshot is kept while it is younger than --keep or among the
last --keep-last of its branch, and always if a branch or tag points at it. The plan names what time
travel is lost. State with --need how far people must be able to look back, and a retention that
keeps less is refused. Nothing younger than an hour ever expires, and no orphan younger than three
days is removed.
"""


def add_parser(commands: Any, *parents: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "maintain",
        parents=parents,
        help="plan deletes, manifests, expiry and orphan removal; with --execute run them and prove them",
        description="Plan the maintenance that findings ask for on a table, and run it if told.",
        epilog=_ORDER + EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_running(parser)
    parser.add_argument("--keep", metavar="TIME", help='how long snapshots are kept: "7 days" (default: the table\'s, or 5 days)')
    parser.add_argument("--keep-last", metavar="N", help="how many are kept in any case (default: the table's, at least 10)")
    parser.add_argument("--need", metavar="TIME", help='how far people must be able to look back: "3 days"')
    parser.add_argument(
        "--procedures",
        default="",
        metavar="NAME,NAME",
        help="only these: rewrite_position_delete_files, rewrite_manifests, expire_snapshots, remove_orphan_files (default: all but the last)",
    )
    parser.add_argument("--storage", action="store_true", help="also look for orphan files, which removes none; lists the storage")


def maintain(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.api import Lake
    from icekit.compact import Plan
    from icekit.maintain import DEFAULT_PROCEDURES, Retention, plan_maintenance_table
    from icekit.maintain.plan import check_procedures

    limits = limits_of(arguments)
    retention = Retention.of({"keep": arguments.keep, "keep_last": arguments.keep_last, "need": arguments.need})

    procedures = tuple(filter(None, map(str.strip, arguments.procedures.split(",")))) or DEFAULT_PROCEDURES
    check_procedures(procedures)

    def planned(lake: Lake) -> Plan:
        storage = arguments.storage or "remove_orphan_files" in procedures
        facts, findings = diagnosed(lake, arguments, limits, storage=storage, say=say)
        return plan_maintenance_table(lake, facts, findings, retention, thresholds=limits, procedures=procedures)

    return run_plan(arguments, planned)
