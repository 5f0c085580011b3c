"""``icekit schedule``: maintain many tables under one policy, on a schedule."""

from pathlib import Path

from icekit.cli.parser import command
from icekit.common.commands.schedule import PassOptions, PolicyFileOptions, RecipeOptions
from icekit.common.errors import EXIT_HEALTHY, TableClaimed, require_extra
from icekit.common.options import Settings
from icekit.common.saving import write_text
from icekit.common.terminal import say

_CHECK = """\
A policy is one YAML file: rules for tables, each with a section of options
for report, convert, compact and maintain, and a budget and a window for each
pass. `icekit schedule example > policy.yaml` writes one with comments. This
command checks a policy and says in words what it would allow. It reports all
errors at once, each with its line and the nearest known key.
"""
_RUN = """\
One pass: report on all tables; then, worst table first, resume the unfinished
runs of an earlier pass, plan, and run what the rules allow with `execute:
true`, with a checkpoint and a proof. Safe to run hourly: finished work is
skipped, interrupted work is resumed. While one pass of a policy runs, another
one does nothing and exits with 0. On a table with a run that was not proved,
icekit runs nothing more until a person has looked; the result says with which
command to clear it.

Files in the policy's output: pass.json, and a folder of pages for each rule,
which show the tables before the work of the pass.

Exit status, the most serious one: 0 done; 1 a table is unhealthy according to
its rule's fail_on, or something failed; 2 misconfigured (also a pattern that
matches no table); 3 a bug in icekit or a timeout; 130 stopped by Ctrl-C or
SIGTERM.
"""


@command("schedule check", PolicyFileOptions, "check a policy and list what it allows", _CHECK)
def check_policy(options: PolicyFileOptions) -> int:
    """Check a policy; returns the exit status."""
    from icekit.report.schedule.reading import in_words, read_policy

    say(in_words(read_policy(Path(options.file))))
    return EXIT_HEALTHY


@command("schedule example", Settings, "print a policy to start from, with comments")
def print_example(_options: Settings) -> int:
    """Print a commented policy; returns the exit status."""
    from icekit.report.schedule.recipes import example

    say(example(), end="")
    return EXIT_HEALTHY


@command(
    "schedule run",
    PassOptions,
    "run one pass of a policy: report, plan, run what is allowed, prove",
    _RUN,
)
def run_pass(options: PassOptions) -> int:
    """Run one pass; returns the exit status."""
    if not options.dry_run:
        require_extra("report", "icekit schedule run")
    from icekit.report.schedule.one_pass import run_policy
    from icekit.report.schedule.reading import read_policy

    try:
        return run_policy(
            read_policy(Path(options.file)), dry_run=options.dry_run, say=say
        ).exit_status
    except TableClaimed as other:
        say(f"{other} This pass does nothing; the next one runs as usual.")
        return EXIT_HEALTHY


@command(
    "schedule recipe",
    RecipeOptions,
    "print a file for cron, systemd or Airflow that runs a policy",
)
def write_recipe(options: RecipeOptions) -> int:
    """Print or write a recipe."""
    from icekit.report.schedule.recipes import recipe

    texts_by_name = recipe(options.kind, Path(options.file))
    for file_name, file_text in texts_by_name.items():
        if options.output:
            say(str(write_text(Path(options.output, file_name), file_text, is_clean=True)))
        else:
            say(f"# --- {file_name}\n" * (len(texts_by_name) > 1) + file_text, end="")
    return EXIT_HEALTHY
