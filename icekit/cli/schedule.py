"""``icekit schedule``: look after many tables by a policy, on a schedule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.errors import EXIT_HEALTHY, ParameterError
from icekit.saving import naming
from icekit.terminal import say

if TYPE_CHECKING:
    from icekit.report import ReportRun
    from icekit.schedule.alerts import Writers
    from icekit.schedule.policy import SchedulePolicy

_CHECK = """\
A policy is one YAML file: which tables (globs; the first matching rule is a table's), when they are due, what
may be done to them, budgets, hours, and who is told. `icekit schedule example > policy.yaml` writes one with a comment
for every key. This command checks a policy and says in words what it would allow. Errors come all at once, each
with its line and the nearest known key.
"""
_RUN = """\
One pass: unfinished runs of an earlier pass go on first; tables that are due by their metadata are reported on and
planned; what the policy says `execute: true` for is run under a checkpoint, proved, and reported on again; then the
receivers are told, each once per change. It may be called every hour: it does what is due and nothing twice. A pass
that was killed is taken up by the next one. While one pass of a policy runs, another does nothing and ends with 0; with 1,
once that one has run for a day. What failed on a table is tried again after some hours; after a run that was not
proved nothing more is run on the table until a person says so with `icekit schedule clear FILE TABLE`.

Files in the policy's output: pass.html (all tables, with links), pass.json, a folder of pages for each rule and,
in its folder `after`, of those tables that were changed.

Exit status, the most serious: 0 done, 1 a table is unhealthy by its rule's fail_on, something failed, or a receiver could
not be told, 2 misconfigured (also a pattern that matches no table), 3 a bug in icekit, or timed out, 130 stopped by Ctrl-C
or by a signal to end (SIGTERM); the next pass goes on.
"""
_CLEAR = """\
A pass keeps back a table on which a run failed or was not proved. Look at the table first; then this command lets
the next pass work on it again.
"""
_RECIPES = ("cron", "systemd", "airflow", "spark-submit")


def add_parsers(commands: Any, debugging: argparse.ArgumentParser) -> None:
    """Add the group, its commands and their options."""
    schedule = commands.add_parser("schedule", help="look after many tables by a policy: check it, run one pass, print a recipe for cron")
    group = schedule.add_subparsers(dest="schedule", required=True, metavar="COMMAND")
    check = group.add_parser("check", parents=[debugging], help="check a policy and say what it allows", description=_CHECK)
    check.add_argument("file", type=Path, metavar="POLICY")
    check.set_defaults(verb=check_policy)
    group.add_parser("example", parents=[debugging], help="print a policy to begin with, with a comment for every key").set_defaults(
        verb=print_example
    )
    run = group.add_parser(
        "run",
        parents=[debugging],
        help="one pass of a policy: report, plan, run what is allowed, prove, report, notify",
        description=_RUN,
    )
    run.add_argument("file", type=Path, metavar="POLICY")
    run.add_argument("--dry-run", action="store_true", help="print what would be done to each table, or why nothing; writes nothing")
    add_monitoring(run)
    run.set_defaults(verb=run_pass)
    clear = group.add_parser(
        "clear", parents=[debugging], help="let a table be worked on again that a failed run keeps back", description=_CLEAR
    )
    clear.add_argument("file", type=Path, metavar="POLICY")
    clear.add_argument("table", help="such as db.events")
    clear.set_defaults(verb=clear_table)
    recipe = group.add_parser(
        "recipe", parents=[debugging], help="print a file for cron, systemd, Airflow or spark-submit that runs a policy, ready to install"
    )
    recipe.add_argument("kind", choices=_RECIPES, metavar="KIND", help=", ".join(_RECIPES))
    recipe.add_argument("file", nargs="?", type=Path, default=Path("policy.yaml"), metavar="POLICY", help="default: policy.yaml")
    recipe.add_argument("--output", type=Path, metavar="FOLDER", help="write the files there instead of printing them")
    recipe.set_defaults(verb=write_recipe)


def add_monitoring(parser: argparse.ArgumentParser) -> None:
    """Add the options of the two files that monitoring reads; `report` and `schedule run` share them."""
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML, a case per table")
    parser.add_argument("--prometheus", type=Path, metavar="FILE", help="also write metrics for node_exporter's textfile collector")


def monitors(arguments: argparse.Namespace) -> Writers:
    """What writes the files that ``report`` is asked for; asked before the tables are read, which may take hours."""
    if arguments.junit is None and arguments.prometheus is None:
        return ()
    from icekit.schedule.alerts import writers

    return writers(arguments.junit, arguments.prometheus)


def write_monitoring(run: ReportRun, arguments: argparse.Namespace, monitors: Writers) -> None:
    """Write the files that ``report`` was asked for."""
    if not monitors:
        return
    from icekit.schedule.alerts import of_report

    watched = of_report(run, arguments.catalog or "lake", arguments.fail_on)
    for write, path in monitors:
        write(watched, path)


def check_policy(arguments: argparse.Namespace) -> int:
    """Check a policy; returns the exit status."""
    from icekit.schedule.alerts import check_places, check_receivers
    from icekit.schedule.reading import in_words, read_policy

    wanted = read_policy(arguments.file)
    unchecked = check_receivers(wanted)
    check_places(wanted)
    say("\n".join([in_words(wanted), *unchecked]))
    return EXIT_HEALTHY


def print_example(_arguments: argparse.Namespace) -> int:
    """Print a commented policy; returns the exit status."""
    from icekit.schedule.recipes import example

    say(example(), end="")
    return EXIT_HEALTHY


def clear_table(arguments: argparse.Namespace) -> int:
    """Let a table be worked on again; returns the exit status."""
    from icekit.schedule.reading import read_policy

    say(_cleared(read_policy(arguments.file), arguments.table))
    return EXIT_HEALTHY


def _cleared(wanted: SchedulePolicy, table: str) -> str:
    """Let a table be worked on again; what was said against it."""
    from icekit.catalog import connect
    from icekit.compact.ledger import opened
    from icekit.run.checkpointed import clear, clearing, holding
    from icekit.schedule.state import State, TableState, state_path

    state = State(state_path(wanted))
    record = state.table(table)
    if (failure := record.failure) is None:
        held = state.failed()
        raise ParameterError(
            f"Nothing is held against {table}; {'there is something against ' + ', '.join(held) if held else 'nor against any other table'}."
        )
    unseen: list[str] = []
    if record.state is TableState.UNPROVED:
        # The ledger holds the table back too, and for more than this perhaps.
        lake = connect(wanted.catalog or None)
        try:
            with opened(wanted.ledger or None, lake) as book:
                for held_by in holding(lake, lake.identifier(table), book):
                    if held_by.run_id == failure.run_id:
                        clear(lake, table, held_by.run_id, ledger=book)
                    else:
                        unseen.append(f"run {held_by.run_id} ({held_by.error}), with `{clearing(held_by)}`")
        finally:
            lake.close()
    state.apply(table, "clear")
    was = f"Against it was: {failure.action}: {failure.said}"
    if unseen:
        return f"{was}\nThe ledger still holds {table} back. Look at each of these and say so (with the same --ledger): {'; '.join(unseen)}"
    return f"{table} may be worked on again by the next pass. {was}"


def run_pass(arguments: argparse.Namespace) -> int:
    """One pass; returns the exit status."""
    from icekit.engine.interrupting import ended_like_interrupted
    from icekit.schedule.one_pass import run_policy
    from icekit.schedule.reading import read_policy
    from icekit.schedule.state import AnotherPass

    wanted = read_policy(arguments.file)
    # What stops a service is as polite as Ctrl-C: what is committed stays, and the next pass goes on.
    with ended_like_interrupted():
        try:
            made = run_policy(wanted, dry_run=arguments.dry_run, junit=arguments.junit, prometheus=arguments.prometheus, say=say)
        except AnotherPass as held:
            say(str(held))
            return held.exit_status
    return made.exit_status


def write_recipe(arguments: argparse.Namespace) -> int:
    """Print or write a recipe."""
    from icekit.schedule.recipes import left_out, recipe

    files = recipe(arguments.kind, arguments.file)
    if (missing := left_out(arguments.kind, arguments.file)) is not None:
        # What is printed may go into a file.
        say(missing, error=True)
    for name, text in files.items():
        if arguments.output:
            arguments.output.mkdir(parents=True, exist_ok=True)
            path = arguments.output / name
            with naming(path):
                path.write_text(text)
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
            say(str(path))
        else:
            say(
                f"{'# --- ' + name if len(files) > 1 else ''}{chr(10) if len(files) > 1 else ''}{text}",
                end="" if text.endswith("\n") else "\n",
            )
    return EXIT_HEALTHY
