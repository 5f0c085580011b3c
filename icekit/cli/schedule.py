"""``icekit schedule``: maintain many tables under one policy, on a schedule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.errors import EXIT_HEALTHY, ParameterError
from icekit.saving import naming
from icekit.terminal import say

if TYPE_CHECKING:
    from icekit.schedule.policy import SchedulePolicy

_CHECK = """\
A policy is one YAML file: which tables (globs; the first matching rule applies to a table), when they are due, what
icekit may do to them, budgets, hours, and who is notified. `icekit schedule example > policy.yaml` writes one with a
comment for every key. This command checks a policy and says in words what it would allow. It reports all errors at
once, each with its line and the nearest known key.
"""
_RUN = """\
One pass: first it resumes unfinished runs of an earlier pass. Then it reports on and plans the tables that are due
according to their metadata; runs what the policy allows with `execute: true`, with a checkpoint and a proof; reports on
those tables again; and notifies the receivers, once for each change. You can call it every hour: it does only what
is due, and nothing twice. The next pass continues a pass that was killed. While one pass of a policy runs, another
one does nothing and exits with 0, or with 1 if the running pass is older than one day. icekit retries what failed on
a table after some hours; after a run that was not proved, it runs nothing more on the table until a person clears it
with `icekit schedule clear POLICY TABLE`.

Files in the policy's output: pass.html (all tables, with links), pass.json, a folder of pages for each rule and,
in its folder `after`, the pages of the changed tables.

Exit status, the most serious one: 0 done; 1 a table is unhealthy according to its rule's fail_on, something failed, or
a receiver could not be notified; 2 misconfigured (also a pattern that matches no table); 3 a bug in icekit or a timeout;
130 stopped by Ctrl-C or SIGTERM (the next pass continues).
"""
_CLEAR = """\
A pass skips a table on which a run failed or was not proved. Look at the table first; this command then allows
the next pass to run on it again.
"""
_RECIPES = ("cron", "systemd", "airflow", "spark-submit")


def add_parsers(commands: Any, debugging: argparse.ArgumentParser) -> None:
    """Add the group, its commands and their options."""
    schedule = commands.add_parser(
        "schedule", help="maintain many tables under one policy: check it, run one pass, print a recipe for cron"
    )
    group = schedule.add_subparsers(dest="schedule", required=True, metavar="COMMAND")
    check = group.add_parser("check", parents=[debugging], help="check a policy and list what it allows", description=_CHECK)
    check.add_argument("file", type=Path, metavar="POLICY", help="the policy file")
    check.set_defaults(verb=check_policy)
    group.add_parser("example", parents=[debugging], help="print a policy to start from, with a comment for every key").set_defaults(
        verb=print_example
    )
    run = group.add_parser(
        "run",
        parents=[debugging],
        help="run one pass of a policy: report, plan, run what is allowed, prove, report, notify",
        description=_RUN,
    )
    run.add_argument("file", type=Path, metavar="POLICY", help="the policy file")
    run.add_argument(
        "--dry-run", action="store_true", help="print what the pass would do to each table, or why it would do nothing; writes nothing"
    )
    run.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML, a case per table")
    run.set_defaults(verb=run_pass)
    clear = group.add_parser(
        "clear", parents=[debugging], help="allow runs again on a table that is blocked by a failed run", description=_CLEAR
    )
    clear.add_argument("file", type=Path, metavar="POLICY", help="the policy file")
    clear.add_argument("table", help="such as db.events")
    clear.set_defaults(verb=clear_table)
    recipe = group.add_parser(
        "recipe", parents=[debugging], help="print a file for cron, systemd, Airflow or spark-submit that runs a policy"
    )
    recipe.add_argument("kind", choices=_RECIPES, metavar="KIND", help=", ".join(_RECIPES))
    recipe.add_argument(
        "file", nargs="?", type=Path, default=Path("policy.yaml"), metavar="POLICY", help="the policy file (default: policy.yaml)"
    )
    recipe.add_argument("--output", type=Path, metavar="FOLDER", help="write the files there instead of printing them")
    recipe.set_defaults(verb=write_recipe)


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
    """Allow runs on a table again; returns the exit status."""
    from icekit.schedule.reading import read_policy

    say(_cleared(read_policy(arguments.file), arguments.table))
    return EXIT_HEALTHY


def _cleared(wanted: SchedulePolicy, table: str) -> str:
    """Allow runs on a table again; returns what was recorded against it."""
    from icekit.catalog import connect
    from icekit.compact.ledger import open_ledger
    from icekit.run.checkpointed import clear, clearing, holding
    from icekit.schedule.state import State, TableState, state_path

    state = State(state_path(wanted))
    record = state.table(table)
    if (failure := record.failure) is None:
        held = state.failed()
        raise ParameterError(f"{table} is not blocked; {'blocked: ' + ', '.join(held) if held else 'nor is any other table'}.")
    unseen: list[str] = []
    if record.state is TableState.UNPROVED:
        # The ledger may block the table too, for other runs as well.
        lake = connect(wanted.catalog or None)
        try:
            book = open_ledger(wanted.ledger)
            for held_by in holding(lake, lake.identifier(table), book):
                if held_by.run_id == failure.run_id:
                    clear(lake, table, held_by.run_id, ledger=book)
                else:
                    unseen.append(f"run {held_by.run_id} ({held_by.error}), with `{clearing(held_by)}`")
        finally:
            lake.close()
    state.apply(table, "clear")
    was = f"The failure was: {failure.action}: {failure.said}"
    if unseen:
        return f"{was}\nThe ledger still blocks {table}. Look at each of these runs, then clear it (with the same --ledger): {'; '.join(unseen)}"
    return f"{table} is cleared: the next pass may run on it again. {was}"


def run_pass(arguments: argparse.Namespace) -> int:
    """Run one pass; returns the exit status."""
    from icekit.engine.interrupting import ended_like_interrupted
    from icekit.schedule.one_pass import run_policy
    from icekit.schedule.reading import read_policy
    from icekit.schedule.state import AnotherPass

    wanted = read_policy(arguments.file)
    # A signal that stops a service is treated like Ctrl-C: commits stay, and the next pass continues.
    with ended_like_interrupted():
        try:
            made = run_policy(wanted, dry_run=arguments.dry_run, junit=arguments.junit, say=say)
        except AnotherPass as held:
            say(str(held))
            return held.exit_status
    return made.exit_status


def write_recipe(arguments: argparse.Namespace) -> int:
    """Print or write a recipe."""
    from icekit.schedule.recipes import left_out, recipe

    files = recipe(arguments.kind, arguments.file)
    if (missing := left_out(arguments.kind, arguments.file)) is not None:
        # The output may be redirected to a file.
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
