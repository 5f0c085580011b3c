"""Run a policy once: report on its tables, then plan and run what their rules allow, worst table
first; safe to call every hour.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from icekit.catalog import Lake, connect
from icekit.catalog.lake import let_go
from icekit.compact.claims import RunRecord, claimed
from icekit.compact.equality_deletes.plan import plan_conversion
from icekit.compact.ledger import open_ledger
from icekit.compact.model import Plan
from icekit.compact.outcome import Actual
from icekit.compact.service import plan_table
from icekit.diagnose.document import status_of
from icekit.engine.errors import outside
from icekit.engine.interrupting import Ending, Stop, Stopped, ended_like_interrupted, heeded
from icekit.errors import RunDisproved, TableClaimed, TableNotFound, first_line, trace
from icekit.maintain.plan import plan_maintenance_table
from icekit.maintain.savings import wins
from icekit.notebook import gated
from icekit.report import FactsCache, Part, ReportRun, report
from icekit.report.observing import Observed, observed
from icekit.run.blocked import clearing, holding, plan_of
from icekit.run.verbs import interrupted, new_run_id, resume, run
from icekit.saving import write_json
from icekit.schedule.notify import tell, url_of
from icekit.schedule.policy import Rule, SchedulePolicy, cut
from icekit.schedule.result import PassResult, Step, TableResult, planned, ran
from icekit.sql import Identifier, matches
from icekit.status import Status
from icekit.units import count

Say = Callable[[str], None]
Clock = Callable[[], dt.datetime]
#: What a limit of the pass counts of what a run read.
_READS = {"budget_bytes": "bytes_in", "budget_files": "files_in", "budget_rows": "rows_in"}
_NOW: Clock = partial(dt.datetime.now, dt.UTC)
_NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)
_BY_EXIT = {1: Status.FAILED, 2: Status.MISCONFIGURED, 3: Status.CRASHED}
_PREVENTED = {Stopped: Status.STOPPED, TableClaimed: Status.BUSY, RunDisproved: Status.DISPROVED}
#: After a step with another status nothing more is done to its table in this pass.
_GOES_ON = (Status.PLANNED, Status.DONE, Status.NOTHING)


def run_policy(
    policy: SchedulePolicy, *, dry_run: bool = False, clock: Clock = _NOW, say: Say = print
) -> PassResult:
    """Run one pass of a policy, post its news and write ``pass.json``; returns the result, also of
    a pass that was asked to end.

    A failing table does not stop the others, nor does a message that cannot be posted. A dry run
    takes no claim, writes nothing and posts nothing. Raises :class:`~icekit.errors.TableClaimed`
    while another pass of the policy is running, and :class:`~icekit.errors.IcekitError` for
    problems of all tables (the catalog, the ledger, the output).
    """
    url = "" if dry_run else url_of(policy.notify)
    made = PassResult(policy.name, policy.catalog, clock())
    if policy.hours and policy.hours.ends(made.started) is None and not dry_run:
        say(f"It is outside the hours {policy.hours.text}: this pass does nothing.")
        return made
    with contextlib.ExitStack() as stack:
        if not dry_run:
            key = f"The pass of policy {policy.name} into {policy.output}"
            stack.enter_context(claimed(open_ledger(policy.ledger), key, new_run_id()))
        ending = stack.enter_context(ended_like_interrupted())
        known = FactsCache(
            Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        )
        lake = connect(policy.catalog or None)
        stack.callback(let_go, lake, ending)
        try:
            _Pass(policy, made, lake, ending, known, clock=clock, say=say, dry_run=dry_run).go()
        except BaseException as error:
            if not ending.takes(error):
                raise
            ending.hear()
        made.interrupted, made.seconds = ending.is_asked, (clock() - made.started).total_seconds()
        say(f"\n{made}")
        if not dry_run:
            # From here on the result is posted and written whatever signal arrives; that takes
            # seconds.
            ending.hear()
            path = policy.output / "pass.json"
            made.news = tell(made, url, path, say)
            say(f"JSON  {write_json(path, made.document())}")
    return made


def assign(lake: Lake, rules: Sequence[Rule]) -> tuple[list[TableResult], list[str]]:
    """Each table with the first rule that matches it, and a sentence for each pattern that matches
    no table.
    """
    tables: dict[Identifier, TableResult] = {}
    problems: list[str] = []
    for rule in rules:
        try:
            names = lake.match(rule.match, problems)
        except TableNotFound:
            if not problems:
                raise
            continue  # the rule has its sentence, and the others go on
        for name in names:
            if not any(matches(pattern, name, lake.name) for pattern in rule.exclude):
                tables.setdefault(name, TableResult(name, rule))
    return list(tables.values()), problems


def mark(rule: Rule, command: str) -> str:
    """How the ids of the runs begin that a pass starts by a rule; it changes with every option that
    decides what they do.
    """
    around = json.dumps(
        [
            command,
            rule.actions[command].given,
            dict(rule.report.thresholds),
            rule.report.filter_columns,
        ]
    )
    return hashlib.sha256(around.encode()).hexdigest()[:8]


@dataclass
class _Pass:
    policy: SchedulePolicy
    made: PassResult
    lake: Lake
    ending: Ending
    known: FactsCache
    clock: Clock
    say: Say
    dry_run: bool

    def __post_init__(self) -> None:
        self.ledger, self.spent = open_ledger(self.policy.ledger), Actual()
        started, hours = self.made.started, self.policy.hours
        minutes = self.policy.budget.get("budget_minutes")
        ends = [hours and hours.ends(started), minutes and started + dt.timedelta(minutes=minutes)]
        self.deadline = min((end for end in ends if end), default=_NEVER)

    def go(self) -> None:
        made = self.made
        made.tables, made.problems = assign(self.lake, self.policy.rules)
        self.say(
            f"{count(len(made.tables), 'table')} of catalog {self.lake.name} under policy "
            f"{made.policy}"
        )
        if not self.dry_run:
            self._report(made.tables)
        for one in made.tables if self.dry_run else ():
            with self._on(one):
                self._look(one)
        # A pass that ends early should lose the least.
        for one in sorted(made.tables, key=lambda one: -one.saved):
            with self._on(one):
                for step in self._steps(one) if one.health else ():
                    one.steps.append(step)
                    self.say(f"{one.table}: {step}")
                    self.ending.check()
                    if step.status not in _GOES_ON:
                        break
        self._report(
            [one for one in made.tables if any(step.run_id for step in one.steps)], "after"
        )

    def _report(self, tables: Sequence[TableResult], folder: str = "") -> None:
        left = {one.table: one for one in tables}
        for rule in self.policy.rules:
            names = [name for name, one in left.items() if one.rule is rule]
            output, policy = self.policy.output / rule.name / folder, self.policy
            options = replace(
                rule.options, output=output, catalog=policy.catalog, history=policy.history
            )
            part = Part(len(tables) - len(left), len(tables), self.known)
            try:
                made = report(names, options, progress=self._said, part=part) if names else None
            except Stopped:
                return
            except Exception as problem:
                self.ending.check()
                # What was run must not go without a result because a history or a disk fails.
                if (known := outside(problem)) is None:
                    raise
                made = ReportRun((), output, known.exit_status, problems=(str(known),))
            self.made.problems += made.problems if made else ()
            for row in made.rows if made else ():
                one = left.pop(row.table)
                one.page, one.error = (
                    str(Path(rule.name, folder, row.page or "index.html")),
                    row.error or "",
                )
                one.reported = (
                    Status.MISCONFIGURED if row.status == Status.MISCONFIGURED else Status.CRASHED
                )
                if row.outcome is not None:
                    one.health, one.saved = (
                        row.outcome.status,
                        row.savings.saved if row.savings else 0,
                    )
                    one.reported = (
                        Status.UNHEALTHY
                        if gated(row.outcome.worst, rule.fail_on)
                        else Status.NOTHING
                    )

    def _said(self, line: str) -> None:
        """Print a line of a report, which ends between two tables when the time of the pass is
        over.
        """
        self.say(line)
        if self.clock() >= self.deadline:
            raise Stopped

    def _look(self, one: TableResult) -> None:
        facts, findings, _ = self._observed(one)
        one.health, one.saved = (
            status_of(findings),
            wins(facts, findings, one.rule.thresholds).saved,
        )
        one.reported = (
            Status.UNHEALTHY if gated(findings.worst, one.rule.fail_on) else Status.NOTHING
        )

    @contextlib.contextmanager
    def _on(self, one: TableResult) -> Iterator[None]:
        """Work on one table; any failure becomes its result."""
        self.ending.check()
        try:
            yield
        except Exception as problem:
            self.ending.check()
            known = outside(problem)
            one.reported = _BY_EXIT[known.exit_status] if known else Status.CRASHED
            one.error = str(known or f"{type(problem).__name__}: {first_line(problem)}")
            self.say(f"{one.table}: {one.reported}: {one.error if known else trace(problem)}")

    def _left(self) -> dict[str, float]:
        """What is left of the pass's budget of bytes, files and rows."""
        return {
            name: self.policy.budget[name] - getattr(self.spent, _READS[name])
            for name in _READS
            if name in self.policy.budget
        }

    def _steps(self, one: TableResult) -> Iterator[Step]:
        if one.rule.execute:
            held, record = (
                holding(self.lake, one.name, self.ledger),
                interrupted(self.lake, one.name, self.ledger),
            )
            command = plan_of(record).command if record else ""
            # Only a run that a pass began by the same rule is resumed; that makes its missing
            # proof.
            own = command in one.rule.actions and mark(one.rule, command)
            if (
                record
                and own
                and record.run_id.startswith(own)
                and all(run.run_id == record.run_id for run in held)
            ):
                yield self._step(one, command, record)
                held = holding(self.lake, one.name, self.ledger)
            for run in held:
                said = (
                    f"run {run.run_id} was not proved ({run.error}). Look at the table, then "
                    f"allow runs again: `{clearing(run)}`"
                )
                yield Step(
                    "run",
                    Status.DISPROVED if run.status is Status.DISPROVED else Status.UNPROVED,
                    said,
                )
        for command in one.rule.actions:
            yield self._step(one, command)

    def _step(self, one: TableResult, command: str, record: RunRecord | None = None) -> Step:
        """Resume a run, or plan a command and run the plan, as far as rule, time and budget
        allow.
        """
        left = self._left()
        if self.clock() >= self.deadline:
            return Step(command, Status.WAITS, "the time of this pass is over")
        if min(left.values(), default=1) <= 0:
            return Step(command, Status.WAITS, "the budget of this pass is spent")
        if record is not None:
            said = f"run {record.run_id} is unfinished; a pass resumes it"
            return (
                Step(command, Status.PLANNED, said)
                if self.dry_run
                else self._do(one, command, record)
            )
        plan = self._plan(one, command)
        if plan is None or not (plan.actions or plan.refused):
            return Step(command, Status.NOTHING, (plan and plan.waits) or "")
        self.say(f"{plan.text()}\n")
        if not one.rule.execute:
            return planned(command, plan, "its rule does not say execute: true")
        if any(
            need > left.get(name, need)
            for name, need in zip(("budget_files", "budget_bytes"), plan.reads, strict=True)
        ):
            return Step(command, Status.WAITS, "the rest of the budget of this pass is too small")
        if self.dry_run:
            self.spent += Actual(*plan.reads, rows_in=plan.prediction.rows_in)
            return planned(command, plan, "dry run: not executed")
        return self._do(one, command, plan)

    def _do(self, one: TableResult, command: str, what: Plan | RunRecord) -> Step:
        """Run a plan, or resume a run, until the time of the pass is over; what prevents that
        becomes the step.
        """
        section = one.rule.actions[command]
        stop = Stop((self.deadline - self.clock()).total_seconds())
        given: dict[str, Any] = {
            "ledger": self.ledger,
            "limits": section.limits,
            "stop": stop,
            "progress": self.say,
        }
        try:
            with heeded(stop.set):
                if isinstance(what, RunRecord):
                    outcome = resume(
                        self.lake, one.name, command=command, run_id=what.run_id, **given
                    )
                else:
                    plan = (section.trial and self._plan(one, command, stop)) or what
                    outcome = run(
                        self.lake,
                        plan,
                        execute=True,
                        run_id=mark(one.rule, command) + new_run_id(),
                        **given,
                    )
        except (Stopped, TableClaimed, RunDisproved) as problem:
            return Step(
                command,
                _PREVENTED[type(problem)],
                str(problem) or "its trial was stopped; nothing was run",
            )
        self.known.forget(one.name)
        self.spent += outcome.actual
        step = ran(command, outcome)
        if step.status is Status.FAILED and self.ending.is_asked:
            return replace(step, status=Status.STOPPED)
        return (
            replace(step, status=Status.BUSY)
            if step.status is Status.STOPPED and stop.reason == "claim"
            else step
        )

    def _plan(self, one: TableResult, command: str, trial: Stop | None = None) -> Plan | None:
        """The plan of a command, as the command makes it; None if the findings ask for nothing,
        which needs no Spark.
        """
        facts, findings, _ = self._observed(one)
        lake, settings = self.lake, one.rule.actions[command].settings
        given: dict[str, Any] = {"thresholds": one.rule.thresholds, "now": self.clock()}
        if command == "convert":
            return (
                plan_conversion(lake, one.name, ledger=self.ledger, **settings)
                if "equality_deletes" in findings.names
                else None
            )
        if command == "compact":
            policy = cut(settings, self._left())
            given |= {
                "ledger": self.ledger,
                "trial": trial is not None,
                "stop": trial,
                "progress": lambda _: None,
            }
            return (
                plan_table(lake, facts, findings, policy, **given)
                if findings or policy.scope != "minor"
                else None
            )
        # In a policy the retention is the limit of an expiry, and the finding its reason.
        given["procedures"] = [
            p
            for p in settings["procedures"]
            if p != "expire_snapshots" or "snapshots_piling_up" in findings.names
        ]
        return (
            plan_maintenance_table(lake, facts, findings, settings["retention"], **given)
            if findings
            else None
        )

    def _observed(self, one: TableResult) -> Observed:
        """A table's facts and findings by its rule; the facts of its report if the table has not
        changed since.
        """
        options = one.rule.options
        return observed(
            self.lake, one.name, options, options.timeout_seconds, collect=self.known.observe
        )
