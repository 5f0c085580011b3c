"""Hold the result of a pass: a result for each table, its steps and failures, the exit status; written as JSON, page and text."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from icekit.answer.html import render
from icekit.compact import Outcome, Plan
from icekit.diagnose.findings import Severity
from icekit.errors import EXIT_CRASHED, EXIT_HEALTHY, EXIT_MISCONFIGURED, EXIT_UNHEALTHY
from icekit.notebook import gated
from icekit.report import Options, Part, report
from icekit.saving import versions, write_json, write_text
from icekit.schedule.policy import Rule, SchedulePolicy
from icekit.units import count, moment, shorten, size, span

#: ``not due``, ``quiet``: not read. ``reported``: nothing to do, or nothing allowed. ``planned``: there is
#: something to do that the policy does not allow (or a dry run). ``done``: run and proved. ``waits``: left for
#: a later pass, because of hours or budget. ``stopped``: cut short by them; the next pass continues. ``busy``: another run
#: holds the table. ``timed out``: its report or its planning took longer than the policy's timeout.
Status = Literal[
    "not due", "quiet", "reported", "planned", "done", "waits", "stopped", "busy", "failed", "misconfigured", "timed out", "crashed"
]

#: As shells report Ctrl-C.
EXIT_STOPPED = 130

#: Most serious first: the order of results, and which of two statuses is kept.
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
    """One plan that was made for a table, and its result.

    ``files_*`` and ``bytes_*`` are what a compaction or a conversion read and wrote, according to the table's own commits; predictions
    for plans that were not run.
    ``is_unproved``: it changed the table, and its proof failed or could not be made. ``held_by`` is a run whose proof failed, that nobody
    has looked at, and because of which this one was refused.
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

    @property
    def was_run(self) -> bool:
        """Whether a run was active; a run that waits to be resumed was not."""
        return self.run_id is not None and self.status != "waits"


@dataclass(frozen=True, slots=True)
class PastAction:
    """An action that a pass of the policy ran: when it ended (milliseconds since 1970), on which table, and its result."""

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
    def of(cls, data: Mapping[str, Any]) -> PastAction:
        """Read a saved action."""
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})

    @classmethod
    def by(cls, step: Step, table: str, at_ms: int) -> PastAction:
        """What a step did to a table."""
        same = {f.name: getattr(step, f.name) for f in fields(cls) if f.name not in {"at_ms", "table"}}
        return cls(at_ms, table, **same)


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The result of a report on a table: ``healthy`` or its most serious severity, its findings and its size then."""

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
    """What a pass did with one table; ``health`` is from its newest report, which may be from an earlier pass.

    ``before`` is the health before anything was run, if anything was.
    """

    table: str
    rule: str
    status: Status
    why: str
    fail_on: str = "never"
    health: TableHealth | None = None
    before: TableHealth | None = None
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0

    @property
    def is_unhealthy(self) -> bool:
        """Whether the newest report is at least as serious as the rule's fail_on."""
        return self.health is not None and gated(self.health.worst, self.fail_on)

    @property
    def exit_status(self) -> int:
        """The exit status for this table alone."""
        if self.status in {"crashed", "timed out"}:
            return EXIT_CRASHED
        if self.status == "misconfigured":
            return EXIT_MISCONFIGURED
        return EXIT_UNHEALTHY if self.status == "failed" or self.is_unhealthy else EXIT_HEALTHY


@dataclass(frozen=True)
class Pass:
    """One pass of a policy.

    ``problems`` belong to no table: a pattern that matches nothing, a receiver that could not be notified.
    The ``alert_problems`` among them do not make a policy misconfigured, but a pass unhealthy. ``lately`` is what earlier passes
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
    lately: tuple[PastAction, ...] = ()
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


def most_serious(statuses: Iterable[Status]) -> Status:
    """The most serious of several; ``reported`` if there are none."""
    return min(statuses, key=ORDER.index, default="reported")


def ranked(results: Sequence[TableResult]) -> list[TableResult]:
    """The most serious first, then by name."""
    return sorted(results, key=lambda r: (ORDER.index(r.status), not r.is_unhealthy, r.table))


def unread(status: str) -> Status:
    """The status of a table whose report failed, from the status of its row."""
    known: dict[str, Status] = {"misconfigured": "misconfigured", "timed out": "timed out"}
    return known.get(status, "crashed")


def health_of(row: Any, reported_ms: int, page: str) -> TableHealth | None:
    """The health in a row of :func:`icekit.report.report`; None for a table that could not be read."""
    said = row.outcome
    if said is None:
        return None
    data = said.totals["data"]
    deletes = [total for kind, total in said.totals.items() if kind != "data"]
    return TableHealth(
        status=said.status,
        findings=tuple((f["name"], f["severity"]) for f in said.findings),
        data_files=data["file_count"],
        data_bytes=data["size_in_bytes"],
        records=data["record_count"],
        delete_files=sum(d["file_count"] for d in deletes),
        delete_records=sum(d["record_count"] for d in deletes),
        reported_ms=reported_ms,
        page=page,
    )


# --- Write a table's result as plain data, for the record of passes and for pass.json, and read its health back


_HEALTH = TypeAdapter(TableHealth)


def as_data(result: TableResult) -> dict[str, Any]:
    """A result as plain data."""
    made = asdict(result)
    for step in made["steps"]:
        del step["plan"]
    return made | {"is_unhealthy": result.is_unhealthy, "exit_status": result.exit_status}


def kept(result: TableResult, rule: Rule, snapshot_id: int | None) -> dict[str, Any]:
    """A result as the record of passes stores it; ``snapshot_id`` is the snapshot of its report, None if that has changed since."""
    return as_data(result) | {"by": _mark(rule), "snapshot_id": snapshot_id}


def same_report(document: dict[str, Any] | None, rule: Rule, snapshot_id: int | None) -> TableHealth | None:
    """The health of a table whose report would be the same now: same snapshot, same rule, and not yet passed."""
    if not document or snapshot_id is None or document.get("snapshot_id") != snapshot_id or document.get("by") != _mark(rule):
        return None
    return health_in(document) if document.get("status") in {"waits", "stopped", "busy"} else None


def _mark(rule: Rule) -> str:
    return hashlib.sha256(rule.model_dump_json(exclude={"hours", "quiet_hours"}).encode()).hexdigest()[:16]


def health_in(document: dict[str, Any] | None) -> TableHealth | None:
    """The health in a saved result; None without one, or if another version wrote it."""
    if not document or not document.get("health"):
        return None
    try:
        return _HEALTH.validate_python(document["health"])
    except ValidationError:
        return None


# --- Write a pass as JSON with a schema version, as a page that links every report, and as text


#: Incremented when a field changes its meaning or is removed; added fields do not count.
SCHEMA_VERSION = 1
JSON_FILE, PAGE_FILE = "pass.json", "pass.html"
_WIDTH = 100


def document(made: Pass) -> dict[str, Any]:
    """A pass as plain data; secrets are masked when it is written."""
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": made.policy,
        "catalog": made.catalog,
        "dry_run": made.is_dry_run,
        "interrupted": made.interrupted,
        "failure": made.failure,
        "started_at": made.started.isoformat(timespec="seconds"),
        "seconds": round(made.seconds, 3),
        "exit_status": made.exit_status,
        "versions": versions(),
        "counted": {status: sum(t.status == status for t in made.tables) for status in sorted({t.status for t in made.tables})},
        "problems": list(made.problems),
        "alert_problems": list(made.alert_problems),
        "told": list(made.told),
        "tables": [as_data(one) for one in made.tables],
        "lately": [asdict(one) for one in made.lately],
    }


def write(made: Pass, folder: Path) -> tuple[Path, Path]:
    """Write ``pass.json`` and ``pass.html``; a reader never sees a partial file."""
    written = write_json(folder / JSON_FILE, document(made))
    return written, write_text(folder / PAGE_FILE, page(made))


def text(made: Pass) -> str:
    """The pass as lines of text, most serious first; tables that are not due are only counted."""
    lines = [f"{'status':<13} {'health':<9} table", "─" * _WIDTH]
    for one in made.tables:
        if one.status == "not due" and not one.is_unhealthy:
            continue
        health = one.health.status if one.health else ""
        changed = f"{one.before.status} → {health}" if one.before and one.before.status != health else health
        lines.append(f"{one.status:<13} {changed:<9} {one.table}")
        lines += [f"{'':<14}{shorten(said, _WIDTH * 3)}" for said in _said(one)]
    lines.append("─" * _WIDTH)
    lines.append(f"{made.counted()}; {span(made.seconds * 1000)}")
    unhealthy = [f"{one.table} ({one.health.status} with fail_on={one.fail_on})" for one in made.tables if one.is_unhealthy and one.health]
    lines += [f"unhealthy: {', '.join(unhealthy)}"] if unhealthy else []
    lines += [f"the pass itself failed: {made.failure}"] if made.failure else []
    lines += [f"policy: {problem}" for problem in made.problems]
    lines += [f"notified: {name}" for name in made.told]
    lines += [f"not notified: {problem}" for problem in made.alert_problems]
    return "\n".join(lines)


def page(made: Pass) -> str:
    """One HTML file that opens offline and links each table's newest report."""
    problems = [*filter(None, [made.failure]), *made.problems, *made.alert_problems]
    return render("pass.html", title=f"icekit: {made.policy}", made=made, problems=problems, said=_said, changed=_changed, moment=moment)


def _changed(before: str | None, now: str | None) -> str:
    """``warning → healthy``; a single value if nothing has changed."""
    return "–" if now is None else now if before in {None, now} else f"{before} → {now}"


def _said(one: TableResult) -> list[str]:
    return [*([one.why] if one.why else []), *(f"{step.action} {step.status}: {step.said}" for step in one.steps)]


# --- Report on a rule's tables in a pass, before and after actions are run on them


def folder(policy: SchedulePolicy, rule: Rule, *, after: bool) -> Path:
    """The folder of a rule's pages: ``output/RULE``, and ``output/RULE/after`` for the tables that the pass changed."""
    return policy.output / rule.name / "after" if after else policy.output / rule.name


def reported(
    policy: SchedulePolicy, rule: Rule, tables: Sequence[str], *, after: bool, say: Callable[[str], None], part: Part | None = None
) -> tuple[dict[str, tuple[str, TableHealth | None, str | None]], Sequence[str]]:
    """Status, health and error of each table's report, and problems that belong to no table."""
    output = folder(policy, rule, after=after)
    options = Options(
        catalog=policy.catalog,
        thresholds=dict(rule.thresholds),
        filter_columns=rule.filter_columns,
        storage=rule.storage,
        fail_on=rule.fail_on,
        output=output,
        history=policy.history,
        timeout_seconds=policy.timeout,
    )
    run = report(tables, options, progress=say, part=part)
    now = int(time.time() * 1000)
    found: dict[str, tuple[str, TableHealth | None, str | None]] = {}
    for row in run.rows:
        page = (output / row.page).relative_to(policy.output).as_posix() if row.page else ""
        found[row.table] = (row.status, health_of(row, now, page), row.error)
    return {table: found.get(table, ("crashed", None, "its report is missing")) for table in tables}, run.problems


# --- Describe what a plan would do, and what a run did; pure


def planned(action: str, plan: Plan, why: str, *, status: Status = "planned") -> Step:
    """A step that was not run: what it would do, from its prediction, and why it was not run."""
    total = plan.prediction
    files_in, bytes_in = plan.reads
    return Step(
        action,
        status,
        f"{_would(action, plan)}; {why}",
        tuple(one.sql for one in plan.actions),
        files_in=files_in,
        bytes_in=bytes_in,
        files_out=total.files_out,
        bytes_out=total.bytes_out,
        plan=repr(plan),
    )


def _would(action: str, plan: Plan) -> str:
    if action == "compact":
        return f"{plan.prediction.change}, {size(plan.prediction.bytes_in)}"
    return ", ".join(f"{one.procedure}: {one.prediction.change}" for one in plan.actions)


def ran(action: str, outcome: Outcome) -> Step:
    """A step that was run, with its result from the table's own commits."""
    total = outcome.actual
    statuses: dict[str, Status] = {"done": "done", "nothing to do": "done", "stopped": "stopped"}
    status = statuses.get(outcome.status, "failed")
    error = next((a.error for a in outcome.actions if a.error), None)
    if action == "compact":
        said = f"{total.change(outcome.plan.prediction)}, {size(total.bytes_in)} read"
    else:
        said = ", ".join(f"{a.action.procedure}: {a.change}" for a in outcome.actions)
    if action == "convert":
        said += f"; {count(total.files_in, 'file')}, {size(total.bytes_in)} read, {size(total.bytes_out)} written"
    if status == "failed":
        said += f"; {outcome.status}{': ' + error if error else ''}"
    elif outcome.proof is not None and outcome.proof.ok:
        said += ", no difference found in a sample" if outcome.proof.is_sampled else ", proved"
    return Step(
        action=action,
        status=status,
        said=said,
        sql=tuple(a.action.sql for a in outcome.actions),
        run_id=outcome.run_id,
        files_in=total.files_in,
        bytes_in=total.bytes_in,
        files_out=total.files_out,
        bytes_out=total.bytes_out,
        seconds=outcome.seconds,
        is_unproved=outcome.status == "not proved",
    )
