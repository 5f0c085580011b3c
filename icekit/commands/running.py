"""Print a plan, run or resume it, and say what became of it: what compact, convert and maintain share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.errors import EXIT_HEALTHY, ParameterError
from icekit.terminal import say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.compact import Outcome, Plan
    from icekit.notebook.closing import Result

#: Ends the help of each of these commands.
EXIT_STATUS = """
Nothing is run without --execute. Exit status: 0 done, nothing to do, or a dry run; 1 something failed or
could not be proved; 2 misconfigured, or another run holds the table; 3 crashed; 130 stopped by Ctrl-C.
"""


def add_running(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the table and the options that :func:`run_plan` reads; returns their group, for a command's own."""
    parser.add_argument("table")
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


def run_plan(arguments: argparse.Namespace, planned: Callable[[Lake], Plan], then: Callable[..., Outcome] | None = None) -> int:
    """Plan and run, or resume, as the arguments say; returns the exit status (130 when it was stopped).

    ``then`` goes on from the outcome of what was run: given the lake, the outcome, and what :func:`icekit.run.service` takes.
    """
    from icekit.api import connect
    from icekit.notebook import sampled
    from icekit.run import Limits, clear, resume, run

    if arguments.execute and arguments.resume:
        raise ParameterError("--resume goes on with a plan that was made; give it without --execute.")
    if arguments.clear is not None and (arguments.execute or arguments.resume):
        raise ParameterError("--clear runs nothing; give it alone, and plan again after it.")
    limits = Limits(prove=sampled(arguments.prove))
    lake = connect(arguments.catalog or None)
    try:
        if arguments.clear is not None:
            clear(lake, arguments.table, arguments.clear, ledger=arguments.ledger)
            say(f"{arguments.table} may be worked on again; plan again, as run {arguments.clear} is not resumed.")
            return EXIT_HEALTHY
        if arguments.resume:
            outcome = resume(lake, arguments.table, command=arguments.command, ledger=arguments.ledger, limits=limits, progress=say)
        else:
            plan = planned(lake)
            if arguments.execute and plan.actions:
                # What is about to be run is said before it is.
                say(f"{plan!r}\n")
            outcome = run(lake, plan, execute=arguments.execute, ledger=arguments.ledger, limits=limits, progress=say)
        if then is not None:
            outcome = then(lake, outcome, ledger=arguments.ledger, limits=limits, progress=say)
        say(("" if outcome.is_dry_run else "\n") + repr(outcome))
        say_saved(outcome, arguments.output)
        return 130 if outcome.status == "stopped" else outcome.exit_status
    finally:
        lake.close()


def say_saved(result: Result, folder: Path | None) -> None:
    """Write a result's JSON document if a folder is given, and say where it is."""
    if folder:
        say(f"\nJSON  {result.write_into(folder)}")
