"""``icekit compact``: plan, try, run and resume from a terminal or from cron."""

from __future__ import annotations

import argparse
from typing import Any

from icekit.commands.observing import diagnosed, limits_of
from icekit.commands.running import EXIT_STATUS, add_running, run_plan
from icekit.terminal import say

_POLICY = """\
The policy decides what is taken; every setting has a default that is safe on a live table.

  what     --scope minor takes fragments, oversized files and files under deletes, and leaves
           well-sized files as they are; major rewrites every file of the partitions it takes.
           --strategy sort, zorder or hilbert also orders rows (by --columns, else by the
           table's sort order, else by its filter columns), and so rewrites every file.
           --min-files: undersized files that make a partition worth it. --delete-ratio: position
           deletes or deletion vectors per row that do; equality deletes always do. --old-specs
           also moves files of older partition specs into the current one.
  where    --since, --until and --skip-last choose partitions by their own time. Partitions
           written within --leave-alone (60 minutes) are not touched.
  budget   --budget "200 GB", "500 files" or "30 minutes": what the plan may read in all. It buys
           the partitions that save a full scan the most file opens per byte rewritten.

Each action is recorded in a ledger (--ledger, default ~/.local/state/icekit/ledger.db; "table": an
Iceberg table of the catalog, for schedulers on several machines), retried after a conflict, split
when it is too large, and proved: the rows of every partition it changed are compared before and
after. A run that was killed or stopped goes on with --resume, and does only what is left. After a
proof that failed nothing more is run on the table until a person has looked and says so with --clear RUN.
"""


def add_parser(commands: Any, *parents: argparse.ArgumentParser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "compact",
        parents=parents,
        help="plan the rewrites that pay back; with --execute run them under a checkpoint and prove them",
        description="Plan the rewrites of data files that pay back on a table, and run them if told.",
        epilog=_POLICY + EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    running = add_running(parser)
    running.add_argument("--trial", action="store_true", help="try the plan on a zero-copy clone first, and predict by what comes out")
    policy = parser.add_argument_group("policy")
    policy.add_argument("--scope", help="minor or major (default: minor)")
    policy.add_argument("--strategy", help="binpack, sort, zorder or hilbert (default: binpack)")
    policy.add_argument("--columns", help="columns to order rows by, separated by commas")
    policy.add_argument("--budget", help='what may be read: "200 GB", "500 files", "30 minutes"')
    policy.add_argument("--since", help="partitions from this date or time on (UTC)")
    policy.add_argument("--until", help="partitions that end by this date or time (UTC)")
    policy.add_argument("--skip-last", metavar="TIME", help='all but the last so long: "6 hours"')
    policy.add_argument("--leave-alone", metavar="TIME", help='not what was written within: "2 hours" (default: 60 minutes)')
    policy.add_argument("--min-files", help="undersized files that make a partition worth a rewrite (default: 5)")
    policy.add_argument("--delete-ratio", help="delete records per row that make it worth one (default: 0.05)")
    policy.add_argument("--min-win", help="file opens that a partition must save (default: 1)")
    policy.add_argument("--old-specs", action="store_const", const="true", help="move files of older partition specs into the current one")
    policy.add_argument("--max-action-bytes", metavar="SIZE", help='what one action may read: "50 GB" (default)')
    policy.add_argument("--max-action-partitions", metavar="N", help="partitions of one action (default: 100)")


def compact(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.api import Lake
    from icekit.compact import Plan, Policy, plan_table
    from icekit.compact.policy import SETTINGS

    limits = limits_of(arguments)
    policy = Policy.of({name: getattr(arguments, name) for name in SETTINGS})

    def planned(lake: Lake) -> Plan:
        facts, findings = diagnosed(lake, arguments, limits, ref=arguments.ref or None, collector=arguments.collector)
        return plan_table(lake, facts, findings, policy, thresholds=limits, ledger=arguments.ledger, trial=arguments.trial, progress=say)

    return run_plan(arguments, planned)
