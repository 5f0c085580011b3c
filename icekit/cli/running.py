"""``icekit compact``, ``convert`` and ``maintain``: print a plan, run or resume it, and report the outcome; from a terminal or from cron."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.cli.observe import diagnosed, limits_of
from icekit.errors import EXIT_HEALTHY, ParameterError, RunDisproved
from icekit.terminal import say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.compact import Plan
    from icekit.run.options import CommandOptions
    from icekit.saving import Result

_COMPACT = """\
The policy decides which files to rewrite. Every default is safe on a live table.

  what     --scope minor rewrites small files, oversized files and files with deletes, and leaves
           well-sized files as they are; major rewrites every file of the partitions it selects.
           --strategy sort, zorder or hilbert also orders rows (by --columns, else by the
           table's sort order, else by its filter columns), and so rewrites every file.
           --old-specs also moves files of older partition specs into the current one.
  where    --since, --until and --skip-last select partitions by their time. Partitions
           written within --leave-alone are not touched; without it, those of the last 60 minutes
           where another commit is likely to conflict with the rewrite.
  when     A partition is worth a rewrite if it has --min-files undersized files, or --delete-ratio
           position deletes or deletion vectors per row; equality deletes are always worth one.
  budget   --budget "200 GB", "500 million rows", "500 files" or "30 minutes": how much the whole plan may read.
           The plan takes partitions in order of file opens saved per byte rewritten.

icekit records each action in a ledger (--ledger, default ~/.local/state/icekit/ledger.db), retries it after a conflict, splits it when it is too large, and proves it: icekit checks the rows of each rewrite before its commit
(--prove full compares every changed partition after it). --resume continues a run that was killed or stopped, and does only what is left. If a
proof fails, icekit runs nothing more on the table until a person has looked and confirms it with --clear RUN.
"""
_CONVERT = """\
Flink and other upsert writers leave equality deletes. To read them, Spark builds, for each data
file, a set of all later delete rows: heap grows with keys and cores, work with the square of the
number of commits. This command first forecasts how much heap and work that takes (for the executor given
with --executor "4 cores 8g", else for this session's). It then turns the deletes into position deletes
(deletion vectors in format version 3): it reads the key columns once, joins them once (the join can spill
to disk), and writes little. No row changes: icekit checks each commit
before it is made, keys by a sample where they are many (--prove full compares every row after it).

A batch is one commit (several, where a partition is too large for the disk). The commit fails, and is tried again,
if a data file that the batch points at, or a delete file that it removes, no longer exists. So a live upsert writer,
a compaction or an expiry may run at the same time: what they commit stays and applies. --resume continues a run
that was killed.

To readers of the change stream the commit is a `delete` (an `overwrite` if no row was hit), not a `replace`: Spark
streaming reads of the table need streaming-skip-delete-snapshots=true to skip it.
"""
_MAINTAIN = """\
icekit plans each step only if a finding asks for it, in this order: combine position delete
files, rewrite manifests (grouped by the partition fields that filters use), expire
snapshots. Rewrite the data files first (`icekit compact`): a compaction leaves old deletes,
manifests and snapshots for this command to clean up.

Orphan files are removed last, and only if you ask for it: --procedures remove_orphan_files,
which lists the table's location. icekit refuses if another table of the catalog keeps files in the
same location, or if it cannot check that. --storage only lists orphan files.

Retention is a time and a count: a snapshot is kept while it is younger than --keep or among the
last --keep-last of its branch, and always if a branch or tag points at it. The plan lists the time
travel that is lost. If you give --keep or --keep-last, snapshots expire; without them, they expire only if they pile up.
With --need you state how far back people must be able to look; icekit refuses a retention that keeps less. Snapshots younger than one hour never expire, and orphan files younger
than three days are never removed.
"""
# Closes the help of each of these commands.
_EXIT_STATUS = """
Nothing runs without --execute. Exit status: 0 done, nothing to do, or a dry run; 1 something failed or
could not be proved, or icekit refused to rewrite the table or to remove orphan files; 2 misconfigured, or another run holds the table; 3 crashed; 130 stopped by Ctrl-C.
"""


def add_parsers(
    commands: Any, common: argparse.ArgumentParser, observing: argparse.ArgumentParser, judging: argparse.ArgumentParser
) -> None:
    """Add the three commands and their options."""
    _add_compact(commands, common, observing, judging)
    _add_convert(commands, common)
    _add_maintain(commands, common, judging)


def _add_compact(commands: Any, *parents: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "compact",
        parents=parents,
        help="plan the rewrites that are worth it; with --execute run them with a checkpoint and prove them",
        description="Plan the rewrites of data files that are worth it on a table; with --execute run them.",
        epilog=_COMPACT + _EXIT_STATUS,
    )
    running = _add_running(parser)
    running.add_argument("--trial", action="store_true", help="try the plan on a zero-copy clone first, and predict from the result")
    policy = parser.add_argument_group("policy")
    policy.add_argument("--scope", help="minor or major (default: minor)")
    policy.add_argument("--strategy", help="binpack, sort, zorder or hilbert (default: binpack)")
    policy.add_argument("--columns", help="columns to order rows by, separated by commas")
    policy.add_argument("--budget", help='how much the plan may read: "200 GB", "500 million rows", "500 files", "30 minutes"')
    policy.add_argument("--since", help="only partitions from this date or time on (UTC)")
    policy.add_argument("--until", help="only partitions that end by this date or time (UTC)")
    policy.add_argument("--skip-last", metavar="TIME", help='skip partitions whose time is in the last: "6 hours"')
    policy.add_argument(
        "--leave-alone",
        metavar="TIME",
        help='skip partitions written in the last: "2 hours" (default: 60 minutes, where a conflict is likely)',
    )
    policy.add_argument("--min-files", help="undersized files that make a partition worth a rewrite (default: 5)")
    policy.add_argument("--delete-ratio", help="share of rows deleted by position that makes a partition worth a rewrite (default: 0.05)")
    policy.add_argument("--min-win", help="least number of file opens that rewriting a partition must save (default: 1)")
    policy.add_argument(
        "--old-specs",
        action="store_const",
        const="true",
        help="move files of older partition specs into the current one, partition by partition, even if more files come out",
    )
    policy.add_argument("--max-action-bytes", metavar="SIZE", help='most that one action may read (default: "50 GB")')
    policy.add_argument("--max-action-partitions", metavar="N", help="most partitions in one action (default: 100)")
    parser.set_defaults(verb=compact)


def _add_convert(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "convert",
        parents=[common],
        help="forecast what equality deletes cost to read; with --execute turn them into position deletes and prove it",
        description="Plan the conversion of a table's equality deletes; with --execute run it.",
        epilog=_CONVERT + _EXIT_STATUS,
    )
    running = _add_running(parser)
    running.add_argument(
        "--batch-bytes", metavar="SIZE", help='disk space that one batch may use: "200 GB" (default: half of the free space)'
    )
    parser.add_argument("--where", metavar="SQL", help="only partitions that may hold rows matching this filter")
    parser.add_argument("--branch", help="convert on a branch (default: the table itself)")
    parser.add_argument(
        "--executor", default="", metavar="SIZE", help='forecast for this executor: "4 cores 8g" (default: this session\'s)'
    )
    parser.set_defaults(verb=convert)


def _add_maintain(commands: Any, *parents: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "maintain",
        parents=parents,
        help="plan the clean-up of position deletes, manifests, snapshots and orphan files; with --execute run and prove it",
        description="Plan the maintenance that a table's findings ask for; with --execute run it.",
        epilog=_MAINTAIN + _EXIT_STATUS,
    )
    _add_running(parser)
    parser.add_argument("--keep", metavar="TIME", help='how long to keep snapshots: "7 days" (default: the table\'s, or 5 days)')
    parser.add_argument("--keep-last", metavar="N", help="how many snapshots to keep in any case (default: the table's, at least 10)")
    parser.add_argument("--need", metavar="TIME", help='how far people must be able to look back: "3 days"')
    parser.add_argument(
        "--procedures",
        default="",
        metavar="NAME,NAME",
        help="only these: rewrite_position_delete_files, rewrite_manifests, expire_snapshots, remove_orphan_files (default: all but remove_orphan_files)",
    )
    parser.add_argument(
        "--storage",
        action="store_true",
        help="also look for missing files (which stop all maintenance) and orphan files (removes none); lists the table's location",
    )
    parser.set_defaults(verb=maintain)


def _add_running(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the table and the options that all of these commands read; returns the group, for a command's own options."""
    parser.add_argument("table", help="such as db.events")
    running = parser.add_argument_group("running")
    running.add_argument("--execute", action="store_true", help="run the plan (default: only print it)")
    running.add_argument("--resume", action="store_true", help="continue the last unfinished run on the table")
    running.add_argument(
        "--clear",
        metavar="RUN",
        help="confirm that a person has looked at the failed or missing proof of this run, and allow runs on the table again; runs nothing",
    )
    running.add_argument(
        "--prove",
        default="checked",
        metavar="checked|full|N|none",
        help="check each rewrite or conversion before its commit, or compare all changed partitions after it (full), N of them, or none (default: checked)",
    )
    running.add_argument(
        "--ledger",
        default="",
        metavar="FILE",
        help="the file to record runs in (default: ~/.local/state/icekit/ledger.db)",
    )
    running.add_argument("--output", type=Path, metavar="FOLDER", help="also write the plan and its outcome as JSON into this folder")
    return running


def compact(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.compact import plan_table

    limits, options = limits_of(arguments), _options(arguments)

    def planned(lake: Lake) -> Plan:
        facts, findings = diagnosed(lake, arguments, limits, ref=arguments.ref or None, collector=arguments.collector)
        given: dict[str, Any] = {"thresholds": limits, "ledger": arguments.ledger, "trial": options.trial, "progress": say}
        return plan_table(lake, facts, findings, options.settings, **given)

    return _run(arguments, options, planned)


def convert(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.compact.equality_deletes import forecast_table, plan_conversion

    options = _options(arguments)

    def planned(lake: Lake) -> Plan:
        plan = plan_conversion(lake, arguments.table, branch=arguments.branch, ledger=arguments.ledger, **options.settings)
        if plan.actions:
            say(f"{forecast_table(lake, arguments.table, arguments.executor, ref=arguments.branch)!r}\n")
        return plan

    return _run(arguments, options, planned)


def maintain(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.maintain import plan_maintenance_table

    limits, options = limits_of(arguments), _options(arguments)
    wanted = options.settings

    def planned(lake: Lake) -> Plan:
        facts, findings = diagnosed(lake, arguments, limits, storage=wanted["storage"], say=say)
        given: dict[str, Any] = {"thresholds": limits, "procedures": wanted["procedures"]}
        return plan_maintenance_table(lake, facts, findings, wanted["retention"], **given)

    return _run(arguments, options, planned)


def _options(arguments: argparse.Namespace) -> CommandOptions:
    from icekit.run.options import OPTIONS, read_options

    return read_options(arguments.command, {name: getattr(arguments, name) for name in OPTIONS[arguments.command]})


def _run(arguments: argparse.Namespace, options: CommandOptions, planned: Callable[[Lake], Plan]) -> int:
    """Plan and run, or resume, as the arguments say; returns the exit status (130 when stopped)."""
    from icekit.api import connect
    from icekit.catalog.lake import let_go
    from icekit.engine.interrupting import Stop, ended_like_interrupted, heeded
    from icekit.run import clear, resume, run

    if arguments.execute and arguments.resume:
        raise ParameterError("--resume already runs what is left of a plan; leave out --execute.")
    if arguments.clear is not None and (arguments.execute or arguments.resume):
        raise ParameterError("--clear runs nothing; use it alone, then plan again.")
    stop = Stop()
    given: dict[str, Any] = {"ledger": arguments.ledger, "limits": options.limits, "stop": stop, "progress": say}
    lake = connect(arguments.catalog or None)
    # From here on Ctrl-C and a scheduler's signal are recorded as well as raised, because Python may drop the exception.
    with ended_like_interrupted() as ending, heeded(stop.set):
        try:
            if arguments.clear is not None:
                clear(lake, arguments.table, arguments.clear, ledger=arguments.ledger)
                say(f"{arguments.table} is cleared: runs are allowed again. Plan again; run {arguments.clear} cannot be resumed.")
                return EXIT_HEALTHY
            if arguments.resume:
                outcome = resume(lake, arguments.table, command=arguments.command, **given)
            else:
                plan = planned(lake)
                ending.check()
                if arguments.execute and plan.actions:
                    # Print the plan before it runs.
                    say(f"{plan!r}\n")
                outcome = run(lake, plan, execute=arguments.execute, **given)
            say(("" if outcome.is_dry_run else "\n") + repr(outcome))
            say_saved(outcome, arguments.output)
            return 130 if outcome.status == "stopped" else outcome.exit_status
        except Exception as error:
            # Report lost rows even to a user who asked the run to stop.
            if ending.takes(error) and not isinstance(error, RunDisproved):
                raise KeyboardInterrupt from error
            raise
        finally:
            let_go(lake, ending)


def say_saved(result: Result, folder: Path | None) -> None:
    """Write a result's JSON document if a folder is given, and print its path."""
    if folder:
        say(f"\nJSON  {result.write_into(folder)}")
