"""``icekit policy``, ``run`` and ``recipe``: many tables looked after on a schedule."""

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

_POLICY = """\
A policy is one YAML file: which tables (globs; the first matching rule is a table's), when they are due, what
may be done to them, budgets, hours, and who is told. `policy --example > policy.yaml` writes one with a comment
for every key; `policy FILE` checks it and says in words what it would allow. Errors come all at once, each with
its line and the nearest known key.
"""
_RUN = """\
One pass: unfinished runs of an earlier pass go on first; tables that are due by their metadata are reported on and
planned; what the policy says `execute: true` for is run under a checkpoint, proved, and reported on again; then the
receivers are told, each once per change. It may be called every hour: it does what is due and nothing twice. A pass
that was killed is taken up by the next one. While one pass of a policy runs, another does nothing and ends with 0; with 1,
once that one has run for a day. What failed on a table is tried again after some hours; after a run that was not
proved nothing more is run on the table until a person says so by `policy FILE --clear TABLE`.

Files in the policy's output: pass.html (all tables, with links), pass.json, a folder of pages for each rule and,
in its folder `after`, of those tables that were changed.

Exit status, the most serious: 0 done, 1 a table is unhealthy by its rule's fail_on, something failed, or a receiver could
not be told, 2 misconfigured (also a pattern that matches no table), 3 a bug in icekit, or timed out, 130 stopped by Ctrl-C
or by a signal to end (SIGTERM); the next pass goes on.
"""
_RECIPES = ("cron", "systemd", "airflow", "spark-submit")


def add_parsers(commands: Any) -> None:
    """Add the three commands and their options."""
    form = argparse.RawDescriptionHelpFormatter
    policy = commands.add_parser(
        "policy", help="check a policy and say what it allows, or print one to begin with", description=_POLICY, formatter_class=form
    )
    policy.add_argument("file", nargs="?", type=Path, metavar="FILE")
    policy.add_argument("--example", action="store_true", help="print a commented policy")
    policy.add_argument(
        "--clear",
        metavar="TABLE",
        help="let a table be worked on again that is kept back, as a run on it was not proved or failed",
    )
    policy.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the stack trace of an error")
    policy.set_defaults(verb=check_policy)
    run = commands.add_parser(
        "run", help="one pass of a policy: report, plan, run what is allowed, prove, report, tell", description=_RUN, formatter_class=form
    )
    run.add_argument("file", type=Path, metavar="POLICY")
    run.add_argument("--dry-run", action="store_true", help="print what would be done to each table, or why nothing; writes nothing")
    add_monitoring(run)
    run.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the stack trace of an error")
    run.set_defaults(verb=run_pass)
    recipe = commands.add_parser(
        "recipe", help="print a file for cron, systemd, Airflow or spark-submit that runs a policy, ready to install"
    )
    recipe.add_argument("kind", choices=_RECIPES, metavar="KIND", help=", ".join(_RECIPES))
    recipe.add_argument("file", nargs="?", type=Path, default=Path("policy.yaml"), metavar="POLICY", help="default: policy.yaml")
    recipe.add_argument("--output", type=Path, metavar="FOLDER", help="write the files there instead of printing them")
    recipe.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the stack trace of an error")
    recipe.set_defaults(verb=write_recipe)


def add_monitoring(parser: argparse.ArgumentParser) -> None:
    """Add the options of the two files that monitoring reads; report and run share them."""
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
    """Check a policy, or print the example."""
    from icekit.schedule.reading import in_words
    from icekit.schedule.recipes import example

    if arguments.example:
        say(example(), end="")
        return EXIT_HEALTHY
    if arguments.file is None:
        raise ParameterError("Name the policy to check, or print one with --example.")
    from icekit.schedule.reading import read_policy

    wanted = read_policy(arguments.file)
    if arguments.clear is not None:
        say(_cleared(wanted, arguments.clear))
        return EXIT_HEALTHY
    from icekit.schedule.alerts import check_places, check_receivers

    unchecked = check_receivers(wanted)
    check_places(wanted)
    say("\n".join([in_words(wanted), *unchecked]))
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
