"""``icekit compact``, ``convert`` and ``maintain``: print a plan, run or resume it, and report the
outcome; from a terminal or from cron.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.cli.observe import fit_session_to, look_of_table
from icekit.cli.parser import command
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.commands.run import CompactOptions, ConvertOptions, MaintainOptions
from icekit.common.errors import EXIT_HEALTHY, ParameterError, RunDisproved
from icekit.common.terminal import is_command_attended, say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.common.saving import Result
    from icekit.health import TableFacts
    from icekit.maintain.plan import Plan

_COMPACT = """\
These options decide which files to rewrite. Every default is safe on a live
table.

  what     --scope minor rewrites small files, oversized files and files with
           deletes, and leaves well-sized files as they are; major rewrites
           every file of the partitions it selects. --strategy sort, zorder or
           hilbert also orders rows (by --columns, else by the table's sort
           order, else by its filter columns), and so rewrites every file.
           --old-specs also moves files of older partition specs into the
           current one.
  where    --since, --until and --skip-last select partitions by their time.
           Partitions written within --leave-alone are not touched; without
           it, those of the last 60 minutes where another commit is likely to
           conflict with the rewrite.
  when     A partition is worth a rewrite if it has --min-files undersized
           files, or --delete-ratio (a share) of its rows deleted by position;
           equality deletes are always worth one.
  budget   --budget "200 GB", "500 million rows", "500 files" or "30 minutes":
           how much the whole plan may read. The plan takes partitions in
           order of file opens saved per byte rewritten.

icekit records each action in a ledger (--ledger, default
~/.local/state/icekit/ledger.db), retries it after a conflict, splits it when
it is too large, and proves it: icekit checks the rows of each rewrite before
its commit (--prove full compares every changed partition after it). --resume
continues a run that was killed or stopped, and does only what is left. If a
proof fails, icekit runs nothing more on the table until a person has looked
and confirms it with --clear RUN.
"""
_CONVERT = """\
Flink and other upsert writers leave equality deletes. To read them, Spark
builds, for each data file, a set of all later delete records: heap grows with
keys and cores, work with the square of the number of commits. This command
first forecasts how much heap and work that takes (for the executor given with
--executor "4 cores 8g", else for this session's). It then turns the deletes
into position deletes (deletion vectors in format version 3): it reads the key
columns once, joins them once (the join can spill to disk), and writes little.
No row changes: icekit checks each commit before it is made, on a sample if
there are many keys (--prove full compares every row after it).

A batch is one commit (several, where a partition is too large for the disk).
The commit fails, and is tried again, if a data file that the batch points at,
or a delete file that it removes, no longer exists. So a live upsert writer, a
compaction or an expiry may run at the same time: what they commit stays and
applies. --resume continues a run that was killed.

To readers of the change stream the commit is a `delete` (an `overwrite` if no
row was hit), not a `replace`: Spark streaming reads of the table need
streaming-skip-delete-snapshots=true to skip it.
"""
_MAINTAIN = """\
icekit plans each step only if a finding asks for it, in this order: combine
position delete files, rewrite manifests (grouped by the partition fields that
filters use), expire snapshots. Rewrite the data files first (`icekit
compact`): a compaction leaves old deletes, manifests and snapshots for this
command to clean up.

Orphan files are removed last, and only if you ask for it: --procedures
remove_orphan_files, which lists the table's location. icekit refuses if
another table of the catalog keeps files in the same location, or if it cannot
check that. --storage only lists orphan files.

Retention is a time and a count: a snapshot is kept while it is younger than
--keep or among the last --keep-last of its branch, and always if a branch or
tag points at it. Snapshots also stay while a streaming writer (Flink, Kafka
Connect, Spark and others) needs them to find its own state, or a staged write
waits to be published. The plan lists what is removed for good. If you give
--keep or --keep-last, snapshots expire; without them, they expire only if
they pile up. With --need you state how far back people must be able to look;
icekit refuses a retention that keeps less. Snapshots younger than one hour
never expire, and orphan files younger than three days are never removed.
"""
# A choice: Spark's code is worth compiling well for so many rows.
_LIGHT_RECORDS = 4_000_000

# Closes the help of each of these commands.
_EXIT_STATUS = """
Nothing runs without --execute. Exit status: 0 done, nothing to do, or a dry
run; 1 something failed or could not be proved, or icekit refused to rewrite
the table or to remove orphan files; 2 misconfigured, or another run holds the
table; 3 a bug in icekit; 130 stopped by Ctrl-C or SIGTERM.
"""


@command(
    "compact",
    CompactOptions,
    "plan the rewrites that are worth it; with --execute run them and check that no row changed",
    _COMPACT + _EXIT_STATUS,
)
def compact(options: CompactOptions) -> int:
    """Run the command; returns the exit status."""
    from icekit.maintain.planning.table_plan import plan_table

    def make_plan(lake: Lake, policy: CompactionPolicy) -> Plan:
        look = look_of_table(lake, options.table, options, **options.only("ref", "collector"))
        lake.is_light_work = _is_light_work(look.facts, options.strategy)
        plan = plan_table(
            lake,
            look.facts,
            look.findings,
            policy,
            thresholds=look.thresholds,
            exact=options.exact or options.execute or options.trial,
            attended=not options.execute or is_command_attended(),
            ledger=options.ledger,
        )
        if not options.trial:
            return plan
        from icekit.maintain.run.trial import try_plan

        return try_plan(lake, look.facts, plan, progress=say)

    return _plan_and_run("compact", options, make_plan)


def _is_light_work(facts: TableFacts, strategy: str) -> bool:
    """Whether Spark does little in a compaction: the kernel writes the rows, and Spark reads back
    those that equality deletes leave.
    """
    from icekit.iceberg.file_kind import Kind
    from icekit.rows.kernel.table_settings import missing_packages

    if facts.sort_order or strategy not in {"binpack", "sort"} or missing_packages():
        return False
    deleted_row_count = facts.total(Kind.EQUALITY_DELETES).record_count
    return facts.total(Kind.DATA).record_count - deleted_row_count < _LIGHT_RECORDS


@command(
    "convert",
    ConvertOptions,
    "forecast what equality deletes cost to read; with --execute turn them into position "
    "deletes and check that no row changed",
    _CONVERT + _EXIT_STATUS,
)
def convert(options: ConvertOptions) -> int:
    """Run the command; returns the exit status."""
    from icekit.maintain.planning.conversion import forecast_facts, plan_conversion
    from icekit.rows.kernel.table_settings import missing_packages

    def make_plan(lake: Lake, settings: dict[str, Any]) -> Plan:
        facts = lake.observe(options.table, ref=options.branch)
        fit_session_to(lake, facts)
        # The kernel finds the deleted rows.
        lake.is_light_work = not missing_packages()
        plan = plan_conversion(
            lake, options.table, branch=options.branch or None, ledger=options.ledger, **settings
        )
        if plan.actions:
            say(f"{forecast_facts(lake, facts, options.executor).text()}\n")
        return plan

    return _plan_and_run("convert", options, make_plan)


@command(
    "maintain",
    MaintainOptions,
    "plan the clean-up of position deletes, manifests, snapshots and orphan files; with "
    "--execute run it",
    _MAINTAIN + _EXIT_STATUS,
)
def maintain(options: MaintainOptions) -> int:
    """Run the command; returns the exit status."""
    from icekit.maintain.planning.maintenance import plan_maintenance_table

    def make_plan(lake: Lake, settings: dict[str, Any]) -> Plan:
        look = look_of_table(lake, options.table, options, storage=settings["storage"], say=say)
        return plan_maintenance_table(
            lake,
            look.facts,
            look.findings,
            settings["retention"],
            thresholds=look.thresholds,
            procedures=settings["procedures"],
        )

    return _plan_and_run("maintain", options, make_plan)


def _plan_and_run(
    command_name: str,
    options: CompactOptions | ConvertOptions | MaintainOptions,
    make_plan: Callable[[Lake, Any], Plan],
) -> int:
    """Plan and run, or resume, as the options say; returns the exit status (130 when stopped)."""
    from icekit.api import connect
    from icekit.engine.interrupting import Stop, sigterm_as_interrupt, stop_on_request
    from icekit.engine.lake import close_at_end
    from icekit.maintain.run.blocked import clear_blocking_runs
    from icekit.maintain.run.options import RunSettings, read_options
    from icekit.maintain.run.verbs import resume, run

    command_options = read_options(options)
    if options.execute and options.resume:
        raise ParameterError("--resume already runs what is left of a plan; leave out --execute.")
    if options.clear is not None and (options.execute or options.resume):
        raise ParameterError("--clear runs nothing; use it alone, then plan again.")
    stop_request = Stop()
    settings = RunSettings(options.ledger, command_options.limits, stop_request, say)
    lake = connect(options.catalog)
    # From here on Ctrl-C and a scheduler's signal are recorded as well as raised, because Python
    # may drop the exception.
    with sigterm_as_interrupt() as termination, stop_on_request(stop_request.set):
        try:
            if options.clear is not None:
                clear_blocking_runs(lake, options.table, options.clear, ledger=options.ledger)
                say(
                    f"{options.table} is cleared: runs are allowed again. Plan again; run "
                    f"{options.clear} cannot be resumed."
                )
                return EXIT_HEALTHY
            if options.resume:
                outcome = resume(lake, options.table, settings, command=command_name)
            else:
                plan = make_plan(lake, command_options.settings)
                termination.check()
                if options.execute and plan.actions:
                    # Print the plan before it runs.
                    say(f"{plan.text(explain=options.explain)}\n")
                outcome = run(lake, plan, settings, execute=options.execute)
            outcome_text = outcome.text(explain=options.explain)
            say(outcome_text if outcome.is_dry_run else f"\n{outcome_text}")
            save_result(outcome, options.output)
            return outcome.exit_status
        except Exception as error:
            # Report lost rows even to a user who asked the run to stop.
            if termination.explains(error) and not isinstance(error, RunDisproved):
                raise KeyboardInterrupt from error
            raise
        finally:
            close_at_end(lake, termination)


def save_result(result: Result, folder: str) -> None:
    """Write a result's JSON document if a folder is given, and print its path."""
    if folder:
        say(f"\nJSON  {result.write_into(Path(folder))}")
