"""Hold what a pass did: a result for each table, the steps that were run, and the exit status of it all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from icekit.diagnose.findings import Severity
from icekit.errors import EXIT_CRASHED, EXIT_HEALTHY, EXIT_MISCONFIGURED, EXIT_UNHEALTHY
from icekit.notebook import gated

#: ``not due``, ``quiet``: not looked at. ``reported``: nothing to do, or nothing allowed. ``planned``: there is
#: something to do that the policy does not let run (or a dry run). ``done``: run and proved. ``waits``: left for
#: a later pass, by hours or budget. ``stopped``: cut short by them; the next pass goes on. ``busy``: another run
#: holds the table. ``timed out``: its report or its planning took longer than the policy's timeout.
Status = Literal[
    "not due", "quiet", "reported", "planned", "done", "waits", "stopped", "busy", "failed", "misconfigured", "timed out", "crashed"
]

#: As a shell has it for Ctrl-C.
EXIT_STOPPED = 130

#: The most serious first; how results are ordered and which of two statuses stays.
ORDER: tuple[Status, ...] = (
    "crashed",
    "timed out",
    "misconfigured",
    "failed",
    "stopped",
    "busy",
    "waits",
    "done",
    "planned",
    "reported",
    "quiet",
    "not due",
)
FAILED = frozenset({"crashed", "timed out", "misconfigured", "failed"})


@dataclass(frozen=True, slots=True)
class Step:
    """One plan that was made for a table, and what became of it.

    ``files_*`` and ``bytes_*`` are what a compaction or a conversion has read and written, by the table's own commits; predictions
    for what was not run.
    ``is_unproved``: it changed the table, and its proof failed or could not be made. ``held_by`` is a run that nobody has looked at
    since its proof failed, and for which this one was refused.
    """

    action: str
    status: Status
    said: str
    sql: tuple[str, ...] = ()
    run_id: str | None = None
    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    plan: str = field(default="", compare=False)
    is_unproved: bool = False
    held_by: str | None = None


@dataclass(frozen=True, slots=True)
class Did:
    """An action that a pass of the policy has run: when it ended (milliseconds since 1970), on which table, and what came of it."""

    at_ms: int
    table: str
    action: str
    status: str
    said: str
    run_id: str | None = None
    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Did:
        """Read one that was kept."""
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})

    @classmethod
    def by(cls, step: Step, table: str, at_ms: int) -> Did:
        """What a step has done to a table."""
        same = {f.name: getattr(step, f.name) for f in fields(cls) if f.name not in {"at_ms", "table"}}
        return cls(at_ms, table, **same)


@dataclass(frozen=True, slots=True)
class Health:
    """What a report said of a table: ``healthy`` or its most serious severity, its findings and its size then."""

    status: str
    findings: tuple[tuple[str, str], ...]
    data_files: int
    data_bytes: int
    records: int
    delete_files: int
    delete_records: int
    reported_ms: int
    page: str

    @property
    def worst(self) -> Severity | None:
        """The most serious severity."""
        return None if self.status == "healthy" else Severity[self.status.upper()]


@dataclass(frozen=True, slots=True)
class TableResult:
    """What a pass did with one table; ``health`` is from its newest report, which may be of an earlier pass.

    ``before`` is the health before what was run, where anything was.
    """

    table: str
    rule: str
    status: Status
    why: str
    fail_on: str = "never"
    health: Health | None = None
    before: Health | None = None
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0

    @property
    def is_unhealthy(self) -> bool:
        """Tell whether the newest report is as grave as the rule's gate."""
        return self.health is not None and gated(self.health.worst, self.fail_on)

    @property
    def exit_status(self) -> int:
        """The exit status that this table alone would give."""
        if self.status in {"crashed", "timed out"}:
            return EXIT_CRASHED
        if self.status == "misconfigured":
            return EXIT_MISCONFIGURED
        return EXIT_UNHEALTHY if self.status == "failed" or self.is_unhealthy else EXIT_HEALTHY


@dataclass(frozen=True)
class Pass:
    """One pass of a policy.

    ``problems`` are of no table: a pattern that matches nothing, a receiver that could not be told.
    ``alert_problems`` among them do not make a policy wrong, but a pass unhealthy. ``lately`` is what earlier passes
    ran, newest first.
    """

    policy: str
    catalog: str
    is_dry_run: bool
    started: dt.datetime
    seconds: float
    tables: tuple[TableResult, ...]
    problems: tuple[str, ...] = ()
    alert_problems: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    output: Path | None = None
    interrupted: bool = False
    lately: tuple[Did, ...] = ()
    failure: str = ""
    failure_status: int = EXIT_HEALTHY

    @property
    def exit_status(self) -> int:
        """130 if it was stopped by hand, else the most serious of: crashed or timed out 3, misconfigured 2, unhealthy, failed or an alert not sent 1, else 0."""
        if self.interrupted:
            return EXIT_STOPPED
        found = {table.exit_status for table in self.tables} | {self.failure_status}
        if self.problems:
            found.add(EXIT_MISCONFIGURED)
        if self.alert_problems:
            found.add(EXIT_UNHEALTHY)
        return max(found)

    def counted(self) -> str:
        """``2 done, 1 failed, 97 not due``."""
        numbers = [(status, sum(t.status == status for t in self.tables)) for status in ORDER]
        return ", ".join(f"{n:,} {status}" for status, n in numbers if n) or "no table"


def gravest(statuses: Iterable[Status]) -> Status:
    """The most serious of several; ``reported`` of none."""
    return min(statuses, key=ORDER.index, default="reported")


def ranked(results: Sequence[TableResult]) -> list[TableResult]:
    """The most serious first, then by name."""
    return sorted(results, key=lambda r: (ORDER.index(r.status), not r.is_unhealthy, r.table))


def unread(status: str) -> Status:
    """The status of a table whose report came to nothing, by that of its row."""
    known: dict[str, Status] = {"misconfigured": "misconfigured", "timed out": "timed out"}
    return known.get(status, "crashed")


def health_of(row: Any, reported_ms: int, page: str) -> Health | None:
    """The health in a row of :func:`icekit.report.report`; None for a table that could not be read."""
    said = row.outcome
    if said is None:
        return None
    data = said.totals["data"]
    deletes = [total for kind, total in said.totals.items() if kind != "data"]
    return Health(
        said.status,
        tuple((f["name"], f["severity"]) for f in said.findings),
        data["file_count"],
        data["size_in_bytes"],
        data["record_count"],
        sum(d["file_count"] for d in deletes),
        sum(d["record_count"] for d in deletes),
        reported_ms,
        page,
    )
