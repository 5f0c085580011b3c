"""Hold the result of a pass: a status for each table and what was done to it, and the exit status;
as text and as one JSON document.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from icekit.common import frozen
from icekit.common.errors import EXIT_HEALTHY, EXIT_STOPPED, Status
from icekit.common.saving import versions
from icekit.common.units import size, span
from icekit.maintain.plan import Plan
from icekit.maintain.run.outcome import Outcome
from icekit.report.result import JUDGED, ReportRow, worst_exit_status

#: Incremented when a field of ``pass.json`` changes its meaning or is removed; added fields do not
# count.
SCHEMA_VERSION = 6


@frozen
class Step:
    """One command on a table; ``figures`` are what a run read and wrote according to the table's
    own commits, or what a plan would.
    """

    action: str
    status: Status
    summary: str
    run_id: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ": ".join(filter(None, [f"{self.action} {self.status}", self.summary]))


def planned_step(command: str, plan: Plan, reason: str) -> Step:
    """A step that was not run: what it would do, and why it was not run."""
    changes = ", ".join(
        f"{action.procedure}: {action.prediction.change_text}" for action in plan.actions
    )
    return Step(command, Status.PLANNED, f"{changes}; {reason}", figures=asdict(plan.prediction))


def executed_step(command: str, outcome: Outcome) -> Step:
    """A step that was run."""
    proof = outcome.proof
    parts = [
        f"{outcome_action.action.procedure}: {outcome_action.change}"
        for outcome_action in outcome.actions
    ]
    parts.append(f"{size(outcome.actual.bytes_in)} read")
    if proof is not None and proof.ok:
        parts.append("no difference found in a sample" if proof.is_sampled else "proved")
    if outcome.status.exit_status:
        parts += [
            outcome_action.error for outcome_action in outcome.actions if outcome_action.error
        ][:1]
    figures = asdict(outcome.actual) | {"seconds": outcome.seconds}
    return Step(command, outcome.status, ", ".join(parts), outcome.run_id, figures)


@dataclass
class TableResult:
    """A table in a pass, as ``pass.json`` has it: its rule, status and health of its newest report,
    and its steps; ``saved`` is what maintenance saves a full scan, in bytes.

    ``status`` is the most serious of its report and its steps.
    """

    table: str
    rule: str
    status: Status = Status.WAITS
    reported: Status = Status.WAITS
    health: str = ""
    page: str = ""
    error: str = ""
    saved: int = 0
    steps: list[Step] = field(default_factory=list)

    def judge(self, row: ReportRow, fail_on: str) -> None:
        """Note the newest report, and whether it fails a gate."""
        self.health = row.status if row.status in JUDGED else ""
        self.saved = row.savings.saved_bytes if row.savings else 0
        self.end(row.verdict(fail_on), row.error or "")

    def end(self, reported: Status, error: str) -> None:
        """Note how its report or its work ended."""
        self.reported = reported
        self.error = error
        self.status = _worst([reported, *(step.status for step in self.steps)])

    def add_failure(self, status: Status, error: str) -> None:
        """Note what ended the work on it."""
        self.add(Step("run", status, error))

    def add(self, step: Step) -> None:
        """Note a step."""
        self.steps.append(step)
        self.status = _worst([self.status, step.status])

    def __str__(self) -> str:
        line = f"{self.status:<13} {self.health:<9} {self.table}"
        lines = [line, *filter(None, [self.error]), *map(str, self.steps)]
        return "\n              ".join(lines)


def _worst(statuses: Iterable[Status]) -> Status:
    return min(statuses, key=lambda status: status.rank)


@dataclass
class PassResult:
    """One pass of a policy, as ``pass.json`` has it.

    ``problems`` belong to no table: a pattern that matches nothing, a history that was not written.
    """

    policy: str
    catalog: str
    started: dt.datetime
    seconds: float = 0.0
    interrupted: bool = False
    exit_status: int = EXIT_HEALTHY
    tables: list[TableResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=versions)
    schema_version: int = SCHEMA_VERSION

    def end(self, seconds: float, *, interrupted: bool) -> None:
        """Note how it ended: the exit status is 130 if it was stopped by hand or by a signal, else
        the most serious of its tables and problems (2).
        """
        self.seconds = seconds
        self.interrupted = interrupted
        # What the window or the budget stopped goes on in the next pass.
        statuses = {table.status for table in self.tables} - {Status.STOPPED}
        self.exit_status = (
            EXIT_STOPPED if interrupted else worst_exit_status(statuses, self.problems)
        )

    def __str__(self) -> str:
        counts = Counter(table.status for table in self.tables)
        counted = ", ".join(f"{counts[status]:,} {status}" for status in Status if counts[status])
        tables = sorted(self.tables, key=lambda table: (table.status.rank, table.table))
        summary = f"{counted or 'no table'}; {span(self.seconds * 1000)}"
        problems = [f"policy: {problem}" for problem in self.problems]
        return "\n".join([*map(str, tables), summary, *problems])
