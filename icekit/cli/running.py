"""``icekit compact``, ``convert`` and ``maintain``: print a plan, run or resume it, and say what became of it; from a terminal or from cron."""

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
    from icekit.compact import Outcome, Plan
    from icekit.saving import Result

_COMPACT = """\
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
_CONVERT = """\
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
_MAINTAIN = """\
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
# Ends the help of each of these commands.
_EXIT_STATUS = """
Nothing is run without --execute. Exit status: 0 done, nothing to do, or a dry run; 1 something failed or
could not be proved, or a removal of orphan files that was asked for by name is refused; 2 misconfigured, or another run holds the table; 3 crashed; 130 stopped by Ctrl-C.
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
        help="plan the rewrites that pay back; with --execute run them under a checkpoint and prove them",
        description="Plan the rewrites of data files that pay back on a table, and run them if told.",
        epilog=_COMPACT + _EXIT_STATUS,
    )
    running = _add_running(parser)
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
    parser.set_defaults(verb=compact)


def _add_convert(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "convert",
        parents=[common],
        help="forecast what equality deletes cost to read; with --execute turn them into position deletes and prove it",
        description="Plan the conversion of a table's equality deletes, and run it if told.",
        epilog=_CONVERT + _EXIT_STATUS,
    )
    running = _add_running(parser)
    running.add_argument("--then-compact", action="store_true", help="with --execute: afterwards rewrite the data files that it pays to")
    running.add_argument("--batch-bytes", metavar="SIZE", help='disk that one batch may spill to: "200 GB" (default: half of what is free)')
    parser.add_argument("--where", metavar="SQL", help="only the partitions that may hold such rows")
    parser.add_argument("--branch", help="convert on a branch (default: the table itself)")
    parser.add_argument(
        "--executor", default="", metavar="SIZE", help='forecast for such an executor: "4 cores 8g" (default: this session\'s)'
    )
    parser.set_defaults(verb=convert)


def _add_maintain(commands: Any, *parents: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "maintain",
        parents=parents,
        help="plan deletes, manifests, expiry and orphan removal; with --execute run them and prove them",
        description="Plan the maintenance that findings ask for on a table, and run it if told.",
        epilog=_MAINTAIN + _EXIT_STATUS,
    )
    _add_running(parser)
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
    parser.set_defaults(verb=maintain)


def _add_running(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the table and the options that every one of the commands reads; returns their group, for a command's own."""
    parser.add_argument("table", help="such as db.events")
    running = parser.add_argument_group("running")
    running.add_argument("--execute", action="store_true", help="run the plan (default: only print it)")
    running.add_argument("--resume", action="store_true", help="go on with the last unfinished run on the table")
    running.add_argument(
        "--clear",
        metavar="RUN",
        help="say that a person has looked at what a failed proof found; the table may be worked on again, and nothing is run",
    )
    running.add_argument(
        "--prove", default="full", metavar="full|N|none", help="compare all changed partitions, N of each commit, or none (default: full)"
    )
    running.add_argument("--ledger", default="", metavar="FILE|table", help="where runs are recorded")
    running.add_argument("--output", type=Path, metavar="FOLDER", help="also write the plan and its outcome as JSON")
    return running


def compact(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from icekit.compact import Policy, plan_table
    from icekit.compact.model import SETTINGS

    limits = limits_of(arguments)
    policy = Policy.of({name: getattr(arguments, name) for name in SETTINGS})

    def planned(lake: Lake) -> Plan:
        facts, findings = diagnosed(lake, arguments, limits, ref=arguments.ref or None, collector=arguments.collector)
        return plan_table(lake, facts, findings, policy, thresholds=limits, ledger=arguments.ledger, trial=arguments.trial, progress=say)

    return _run(arguments, planned)


def convert(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
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

    return _run(arguments, planned, then=finish_with_compaction if arguments.then_compact else None)


def maintain(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
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

    return _run(arguments, planned)


def _run(arguments: argparse.Namespace, planned: Callable[[Lake], Plan], then: Callable[..., Outcome] | None = None) -> int:
    """Plan and run, or resume, as the arguments say; returns the exit status (130 when it was stopped).

    ``then`` goes on from the outcome of what was run: given the lake, the outcome, and what :func:`icekit.run.checkpointed` takes.
    """
    from icekit.api import connect
    from icekit.catalog.lake import let_go
    from icekit.engine.interrupting import Stop, ended_like_interrupted, heeded
    from icekit.run import Limits, clear, resume, run, sampled

    if arguments.execute and arguments.resume:
        raise ParameterError("--resume goes on with a plan that was made; give it without --execute.")
    if arguments.clear is not None and (arguments.execute or arguments.resume):
        raise ParameterError("--clear runs nothing; give it alone, and plan again after it.")
    stop = Stop()
    given: dict[str, Any] = {"ledger": arguments.ledger, "limits": Limits(prove=sampled(arguments.prove)), "stop": stop, "progress": say}
    lake = connect(arguments.catalog or None)
    # From here on Ctrl-C and a scheduler's signal are noted, and not only raised, which Python may drop.
    with ended_like_interrupted() as ending, heeded(stop.set):
        try:
            if arguments.clear is not None:
                clear(lake, arguments.table, arguments.clear, ledger=arguments.ledger)
                say(f"{arguments.table} may be worked on again; plan again, as run {arguments.clear} is not resumed.")
                return EXIT_HEALTHY
            if arguments.resume:
                outcome = resume(lake, arguments.table, command=arguments.command, **given)
            else:
                plan = planned(lake)
                ending.check()
                if arguments.execute and plan.actions:
                    # What is about to be run is said before it is.
                    say(f"{plan!r}\n")
                outcome = run(lake, plan, execute=arguments.execute, **given)
            if then is not None:
                outcome = then(lake, outcome, **given)
            say(("" if outcome.is_dry_run else "\n") + repr(outcome))
            say_saved(outcome, arguments.output)
            return 130 if outcome.status == "stopped" else outcome.exit_status
        except Exception as error:
            # That a run lost rows is said also to somebody who has asked it to end.
            if ending.takes(error) and not isinstance(error, RunDisproved):
                raise KeyboardInterrupt from error
            raise
        finally:
            let_go(lake, ending)


def say_saved(result: Result, folder: Path | None) -> None:
    """Write a result's JSON document if a folder is given, and say where it is."""
    if folder:
        say(f"\nJSON  {result.write_into(folder)}")
