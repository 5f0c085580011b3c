"""``icekit look``, ``plan``, ``compare`` and ``report``: observe and diagnose tables."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.cli.declared import command
from icekit.diagnose.findings import Severity
from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY, ParameterError
from icekit.options.commands import (
    CompareOptions,
    Judging,
    LookOptions,
    OfThresholds,
    PlanOptions,
    ReportOptions,
)
from icekit.sql import is_pattern
from icekit.terminal import say

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.diagnose.findings import Findings, Thresholds
    from icekit.facts import TableFacts


_PLAN = """\
icekit considers four kinds of work: compaction, conversion of equality deletes (where compaction
leaves their partitions alone and Spark's own read may not fit the heap), maintenance (position deletes,
manifests, expiry), and settings (each as the `icekit tune` question that measures it). For problems
that no command fixes, it lists the statement to paste. Each command plans its work again, in more
detail, before it runs anything.

Exit status: 0 planned (also when nothing is worth doing); 2 misconfigured; 3 a bug in icekit.
"""
_COMPARE = """\
A state is a table as it is now (db.events), or as it was (db.events@REF, with a branch, a tag, a
snapshot id or a date), or the JSON that `icekit report` wrote. Reads only metadata.

Exit status: 0 compared; 2 misconfigured, or a snapshot that does not exist; 3 a bug in icekit.
"""
_REPORT = """\
Exit status: 0 no finding as serious as --fail-on, 1 a table has one, 2 misconfigured (also a glob
that matches no table, damaged metadata, a full disk, or a history that could not be written), 3 a
bug in icekit or a timeout. icekit writes every report before it fails.
"""


def add_parsers(commands: Any) -> None:
    """Add the commands."""
    command(
        commands,
        look_at,
        LookOptions,
        "look",
        "a health card of one table in the terminal, or a line for each table of a pattern; starts no "
        "JVM for small tables",
        description="Print the health card of a table; of a pattern ('db.*'), a line for each table.",
    )
    command(
        commands,
        plan_all,
        PlanOptions,
        "plan",
        "everything worth doing on a table: what each step saves and costs, and its command",
        description="List what is worth doing on a table, in the order to do it. Reads only "
        "metadata, and runs nothing.",
        epilog=_PLAN,
    )
    command(
        commands,
        compare_states,
        CompareOptions,
        "compare",
        "what got better and worse between two states of a table, or two reports",
        epilog=_COMPARE,
    )
    command(
        commands,
        write_report,
        ReportOptions,
        "report",
        "write HTML and JSON reports on tables",
        description="Write an HTML and a JSON report on each table, and an index.",
        epilog=_REPORT,
    )


def look_at(options: LookOptions) -> int:
    """Print the health card of a table, or a line for each table of a pattern; returns the exit
    status.
    """
    from icekit.api import connect
    from icekit.diagnose.gate import gated

    limits = limits_of(options)
    gated(None, options.fail_on)
    lake = connect(options.catalog or None)
    try:
        show = _look_at_many if is_pattern(options.table) else _look_at_one
        worst = show(lake, options, limits)
    finally:
        lake.close()
    return EXIT_UNHEALTHY if gated(worst, options.fail_on) else EXIT_HEALTHY


def _look_at_one(lake: Lake, options: LookOptions, limits: Thresholds) -> Severity | None:
    from icekit.show.card import card

    more = {"ref": options.ref or None, **options.only("collector", "storage")}
    facts, findings = diagnosed(lake, options.table, options, limits, **more)
    if options.json:
        from icekit.diagnose.document import document
        from icekit.saving import as_json

        say(as_json(document(facts, findings, limits)))
        return findings.worst
    is_painted = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    later = ""
    if facts.recent or facts.contradictions:
        from icekit.maintain.savings import waiting

        later = waiting(facts, findings, limits)
    say(
        card(facts, findings, limits, later=later, color=is_painted, width=_width()),
        is_painted=is_painted,
    )
    return findings.worst


def _look_at_many(lake: Lake, options: LookOptions, limits: Thresholds) -> Severity | None:
    """A line for each table, the most serious first, with its first finding."""
    from icekit.answer.grid import BYTES, COUNT, TEXT, Grid
    from icekit.diagnose.document import status_of
    from icekit.errors import IcekitError
    from icekit.sql import display_name

    if options.json or options.ref:
        raise ParameterError("--json and --ref take one table; for many, use icekit report.")
    rows: list[tuple[int, list[object]]] = []
    for name in lake.match([options.table]):
        table = display_name(name)
        try:
            more = options.only("collector", "storage")
            facts, findings = diagnosed(lake, table, options, limits, **more)
        except IcekitError as problem:
            rows.append((-len(Severity) - 1, [table, "unreadable", None, None, str(problem)]))
            continue
        first = next((f"{f.title}: {f.evidence}" for f in findings), "")
        row = [table, status_of(findings), facts.data.file_count, facts.data.size_in_bytes, first]
        rows.append((-(findings.worst or 0), row))
    columns = {"table": TEXT, "status": TEXT, "files": COUNT, "size": BYTES, "first": TEXT("")}
    ranked = [row for _, row in sorted(rows, key=lambda each: each[0])]
    width = _width()
    for line in Grid("", columns, ranked, shown=len(ranked)).lines():
        say(line if width is None or len(line) <= width else f"{line[: width - 1]}…")
    worst = -min((grave for grave, _ in rows), default=0)
    return Severity(min(worst, max(Severity))) if worst else None


def plan_all(options: PlanOptions) -> int:
    """Print what is worth doing on a table; returns the exit status."""
    from icekit.api import connect
    from icekit.maintain.proposals import propose

    limits = limits_of(options)
    given = [
        word
        for name, value in options.thresholds.items()
        for word in ("--threshold", f"{name}={value:g}")
    ]
    given += (
        ["--filter-columns", ",".join(options.filter_columns)] if options.filter_columns else []
    )
    lake = connect(options.catalog or None)
    try:
        facts, findings = diagnosed(lake, options.table, options, limits)
        answer = propose(
            lake,
            facts,
            findings,
            thresholds=limits,
            executor=options.executor,
            leave_alone=options.leave_alone,
            options=shlex.join(given),
        )
        if options.json:
            from icekit.saving import as_json

            say(as_json(answer.document()))
        else:
            say(answer.text(_width()))
    finally:
        lake.close()
    return EXIT_HEALTHY


def compare_states(options: CompareOptions) -> int:
    """Print what changed between two states; returns the exit status."""
    from icekit.api import connect
    from icekit.history.compare import compare
    from icekit.saving import as_json

    lake = connect(options.catalog or None)
    try:
        comparison = compare(
            options.before, options.after, lake=lake, thresholds=limits_of(options)
        )
    finally:
        lake.close()
    say(as_json(comparison.document()) if options.json else comparison.text(_width()))
    return EXIT_HEALTHY


def _width() -> int | None:
    """The width from COLUMNS, or of the terminal; a pipe has no limit."""
    return shutil.get_terminal_size((0, 0)).columns or None


_OF_REPORTS = "catalog ref thresholds filter_columns collector storage fail_on history jobs".split()


def write_report(options: ReportOptions) -> int:
    """Report on tables; returns the exit status."""
    from icekit.report import Options, closing, report
    from icekit.report.junit import write_junit

    given = {
        "timeout_seconds": options.timeout,
        "output": Path(options.output),
        **options.only(*_OF_REPORTS),
    }
    run = report(options.tables, Options(**given), progress=say)
    if options.junit:
        write_junit(run, options.fail_on, Path(options.junit))
    say("".join(f"\n{problem}" for problem in run.problems), end="")
    say(f"\n{closing(run, options.catalog)}")
    say(f"\nHTML  {run.index}\nJSON  {run.index.parent}{os.sep}*.json")
    return run.exit_status


def limits_of(options: OfThresholds) -> Thresholds:
    """The default thresholds, with the given changes."""
    from icekit.diagnose.findings import Thresholds

    return Thresholds().with_changes(**options.thresholds)


def observed(lake: Lake, table: str, **more: Any) -> TableFacts:
    """The facts of the table that the command is about."""
    from icekit.catalog.lake import SMALL_BYTES
    from icekit.facts.files import Kind

    facts = lake.observe(table, **more)
    lake.is_small_work = sum(facts.total(kind).size_in_bytes for kind in Kind) <= SMALL_BYTES
    return facts


def diagnosed(
    lake: Lake, table: str, options: Judging, limits: Thresholds, **more: Any
) -> tuple[TableFacts, Findings]:
    """The facts and findings of the command's table; ``more`` goes to
    :meth:`icekit.api.Lake.observe`.
    """
    from icekit.diagnose import diagnose

    facts = observed(
        lake,
        table,
        size_ratios=limits.size_ratios,
        filter_columns=list(options.filter_columns) or None,
        **more,
    )
    return facts, diagnose(facts, limits, session_conf=lake.session_conf())
