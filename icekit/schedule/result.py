"""Hold the result of a pass: a status for each table and what was done to it, and the exit status;
as text and as one JSON document.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from icekit.compact.model import Plan
from icekit.compact.outcome import Outcome
from icekit.diagnose.findings import Severity
from icekit.diagnose.gate import gated
from icekit.errors import EXIT_HEALTHY, EXIT_MISCONFIGURED, EXIT_STOPPED
from icekit.maintain.savings import Savings
from icekit.saving import versions
from icekit.schedule.policy import Rule
from icekit.sql import Identifier, display_name
from icekit.status import Status
from icekit.units import size, span

#: Incremented when a field of ``pass.json`` changes its meaning or is removed; added fields do not
# count.
SCHEMA_VERSION = 4


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class TableDocument:
    """A table in a pass, as JSON."""

    table: str
    status: Status
    rule: str
    reported: Status
    health: str
    page: str
    error: str
    saved: int
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDocument:
    """A pass as JSON."""

    schema_version: int = SCHEMA_VERSION
    exit_status: int
    versions: Mapping[str, str]
    policy: str
    catalog: str
    started: dt.datetime
    seconds: float
    interrupted: bool
    tables: Sequence[TableDocument]
    problems: Sequence[str]
    news: Mapping[str, Any]


def planned(command: str, plan: Plan, why: str) -> Step:
    """A step that was not run: what it would do, and why it was not run."""
    would = ", ".join(f"{action.procedure}: {action.prediction.change}" for action in plan.actions)
    return Step(command, Status.PLANNED, f"{would}; {why}", figures=asdict(plan.prediction))


def ran(action: str, outcome: Outcome) -> Step:
    """A step that was run."""
    proof = outcome.proof
    parts = [f"{done.action.procedure}: {done.change}" for done in outcome.actions]
    parts.append(f"{size(outcome.actual.bytes_in)} read")
    if proof is not None and proof.ok:
        parts.append("no difference found in a sample" if proof.is_sampled else "proved")
    if outcome.status.exit_status:
        parts += [done.error for done in outcome.actions if done.error][:1]
    figures = asdict(outcome.actual) | {"seconds": outcome.seconds}
    return Step(action, outcome.status, ", ".join(parts), outcome.run_id, figures)


@dataclass
class TableResult:
    """A table in a pass: status and health of its newest report, and its steps; ``saved`` is what
    maintenance saves a full scan, in bytes.
    """

    name: Identifier
    rule: Rule
    reported: Status = Status.WAITS
    health: str = ""
    page: str = ""
    error: str = ""
    saved: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def table(self) -> str:
        """``namespace.table``."""
        return display_name(self.name)

    @property
    def status(self) -> Status:
        """The most serious status of its report and its steps."""
        return min(
            (self.reported, *(step.status for step in self.steps)), key=lambda status: status.rank
        )

    def judge(self, health: str, worst: Severity | None, savings: Savings | None) -> None:
        """Note what its findings say, and whether they fail the gate of its rule."""
        self.health, self.saved = health, savings.saved if savings else 0
        self.reported = Status.UNHEALTHY if gated(worst, self.rule.fail_on) else Status.NOTHING

    def __str__(self) -> str:
        line = f"{self.status:<13} {self.health:<9} {self.table}"
        lines = [line, *filter(None, [self.error]), *map(str, self.steps)]
        return "\n              ".join(lines)

    def document(self) -> TableDocument:
        """As JSON has it."""
        own = {name: value for name, value in vars(self).items() if name not in ("name", "rule")}
        return TableDocument(table=self.table, status=self.status, rule=self.rule.name, **own)


@dataclass
class PassResult:
    """One pass of a policy.

    ``problems`` belong to no table: a pattern that matches nothing, a history that was not written.
    ``news`` is what was posted, see :func:`icekit.schedule.notify.tell`.
    """

    policy: str
    catalog: str
    started: dt.datetime
    seconds: float = 0.0
    interrupted: bool = False
    tables: list[TableResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    news: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """130 if it was stopped by hand or by a signal, else the most serious of its tables and
        problems (2).
        """
        if self.interrupted:
            return EXIT_STOPPED
        # What the window or the budget stopped goes on in the next pass.
        statuses = {table.status for table in self.tables} - {Status.STOPPED}
        least = EXIT_MISCONFIGURED if self.problems else EXIT_HEALTHY
        return max([least, *(status.exit_status for status in statuses)])

    def __str__(self) -> str:
        counts = Counter(table.status for table in self.tables)
        counted = ", ".join(f"{counts[status]:,} {status}" for status in Status if counts[status])
        tables = sorted(self.tables, key=lambda table: (table.status.rank, table.table))
        summary = f"{counted or 'no table'}; {span(self.seconds * 1000)}"
        problems = [f"policy: {problem}" for problem in self.problems]
        return "\n".join([*map(str, tables), summary, *problems])

    def document(self) -> PassDocument:
        """As JSON has it; secrets are masked when it is written."""
        own = vars(self) | {"tables": [table.document() for table in self.tables]}
        return PassDocument(exit_status=self.exit_status, versions=versions(), **own)
