"""Run a policy once: report on its tables, then plan and run what their rules allow, worst table
first; safe to call every hour.
"""

import contextlib
import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from icekit.common.commands import Policy
from icekit.common.errors import RunDisproved, Status, TableClaimed, TableNotFound, trace, why
from icekit.common.saving import write_json
from icekit.common.sql import display_name, matches, parse_identifier
from icekit.common.units import count
from icekit.engine.errors import environment_error
from icekit.engine.interrupting import Ending, Stop, Stopped, sigterm_as_interrupt, stop_on_request
from icekit.engine.lake import Lake, close_at_end
from icekit.health.diagnose.findings import Findings
from icekit.health.facts.model import TableFacts
from icekit.maintain.plan import Plan
from icekit.maintain.planning.conversion import plan_conversion
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.planning.savings import savings_of
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.policy import findings_of
from icekit.maintain.record.claims import RunRecord
from icekit.maintain.record.ledger import open_ledger
from icekit.maintain.record.results import Actual
from icekit.maintain.run.blocked import clearing, holding, plan_of
from icekit.maintain.run.trial import try_plan
from icekit.maintain.run.verbs import interrupted, new_run_id, resume, run
from icekit.report.observing import FactsCache
from icekit.report.result import Row, failure
from icekit.report.schedule.policy import Rule, SchedulePolicy, cut
from icekit.report.schedule.result import PassResult, Step, TableResult, news, planned, ran

Say = Callable[[str], None]
Clock = Callable[[], dt.datetime]
#: What a limit of the pass counts of what a run read.
_READS = {"budget_bytes": "bytes_in", "budget_files": "files_in", "budget_rows": "rows_in"}
_NOW: Clock = partial(dt.datetime.now, dt.UTC)
_NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)
_PREVENTED = {Stopped: Status.STOPPED, TableClaimed: Status.BUSY, RunDisproved: Status.DISPROVED}
#: After a step with another status nothing more is done to its table in this pass.
_GOES_ON = (Status.PLANNED, Status.DONE, Status.NOTHING)


def run_policy(
    policy: SchedulePolicy, *, dry_run: bool = False, clock: Clock = _NOW, say: Say = print
) -> PassResult:
    """Run one pass of a policy and write ``pass.json``; returns the result, also of a pass that was
    asked to end.

    A failing table does not stop the others. A dry run takes no claim and writes nothing. Raises
    :class:`~icekit.common.errors.TableClaimed` while another pass of the policy is running, and
    :class:`~icekit.common.errors.IcekitError` for problems of all tables (the catalog, the ledger,
    the output).
    """
    result = PassResult(policy.name, policy.catalog, clock())
    if policy.hours and policy.hours.ends(result.started) is None and not dry_run:
        say(f"It is outside the hours {policy.hours.text}: this pass does nothing.")
        return result
    with contextlib.ExitStack() as stack:
        if not dry_run:
            key = f"The pass of policy {policy.name} into {policy.output}"
            stack.enter_context(open_ledger(policy.ledger).claimed(key, new_run_id()))
        ending = stack.enter_context(sigterm_as_interrupt())
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        lake = Lake.connect(policy.catalog)
        stack.callback(close_at_end, lake, ending)
        facts_cache = FactsCache(Path(folder))
        try:
            _Pass(policy, result, lake, ending, facts_cache, clock, say, dry_run).go()
        except BaseException as error:
            if not ending.explains(error):
                raise
            ending.acknowledge()
        seconds = (clock() - result.started).total_seconds()
        result.end(seconds, interrupted=ending.is_requested)
        say(f"\n{result}")
        if not dry_run:
            # From here on the result is written whatever signal arrives; that takes seconds.
            ending.acknowledge()
            path = policy.output / "pass.json"
            result.news = news(result, path)
            say(f"JSON  {write_json(path, result)}")
    return result


def assign(lake: Lake, rules: Sequence[Rule]) -> tuple[list[TableResult], list[str]]:
    """Each table with the first rule that matches it, and a sentence for each pattern that matches
    no table.
    """
    tables: dict[str, TableResult] = {}
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
                table = display_name(name)
                tables.setdefault(table, TableResult(table, rule.name))
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
    result: PassResult
    lake: Lake
    ending: Ending
    known: FactsCache
    clock: Clock
    say: Say
    dry_run: bool

    def __post_init__(self) -> None:
        self.ledger = open_ledger(self.policy.ledger)
        self.rules: Mapping[str, Rule] = {rule.name: rule for rule in self.policy.rules}
        # What is left of the budget of bytes, files and rows.
        self.left = dict(self.policy.budget)
        started = self.result.started
        hours = self.policy.hours
        minutes = self.left.pop("budget_minutes", None)
        ends = [hours and hours.ends(started), minutes and started + dt.timedelta(minutes=minutes)]
        self.deadline = min((end for end in ends if end), default=_NEVER)

    def go(self) -> None:
        tables, self.result.problems = assign(self.lake, self.policy.rules)
        self.result.tables = tables
        tables_text = count(len(tables), "table")
        self.say(f"{tables_text} of catalog {self.lake.name} under policy {self.policy.name}")
        if self.dry_run:
            for table in tables:
                with self._on(table):
                    self._look(table)
        else:
            self._report(tables)
        # A pass that ends early should lose the least.
        for table in sorted(tables, key=lambda table: -table.saved):
            with self._on(table):
                for step in self._steps(table) if table.health else ():
                    table.add(step)
                    self.say(f"{table.table}: {step}")
                    self.ending.check()
                    if step.status not in _GOES_ON:
                        break
        if changed := [table for table in tables if any(s.run_id for s in table.steps)]:
            self._report(changed, "after")

    def _report(self, tables: Sequence[TableResult], folder: str = "") -> None:
        # Its libraries come with the extra report, which a dry run does not need.
        from icekit.report.service import report

        for rule in self.policy.rules:
            of_rule = {table.table: table for table in tables if table.rule == rule.name}
            if not of_rule:
                continue
            options = rule.options.replaced(
                tables=tuple(of_rule),
                output=str(self.policy.output / rule.name / folder),
                **self.policy.only("catalog", "history"),
            )
            try:
                reported = report(options, progress=self._progress, facts_cache=self.known)
            except Stopped:
                return
            except Exception as problem:
                self.ending.check()
                # What was run must not go without a result because a history or a disk fails.
                if (outside_error := environment_error(problem)) is None:
                    raise
                self.result.problems.append(str(outside_error))
                continue
            self.result.problems += reported.problems
            for row in reported.rows:
                table = of_rule[row.table]
                table.page = str(Path(rule.name, folder, row.page or "index.html"))
                table.judge(row, rule.fail_on)

    def _progress(self, line: str) -> None:
        """Print a line of a report, which ends between two tables when the time of the pass is
        over.
        """
        self.say(line)
        if self.clock() >= self.deadline:
            raise Stopped

    def _look(self, table: TableResult) -> None:
        facts, findings = self._observed(table)
        rule = self.rules[table.rule]
        policy = rule.compact.settings if rule.compact else Policy()
        own_findings = findings_of(policy, facts, findings, rule.thresholds)
        savings = savings_of(facts, own_findings, rule.thresholds, policy)
        table.judge(Row(table.table, findings.status, savings=savings), rule.fail_on)

    @contextlib.contextmanager
    def _on(self, table: TableResult) -> Iterator[None]:
        """Work on one table; any failure becomes its result."""
        self.ending.check()
        try:
            yield
        except Exception as problem:
            self.ending.check()
            status, outside_error = failure(problem)
            table.end(status, why(outside_error or problem))
            self.say(f"{table.table}: {status}: {outside_error or trace(problem)}")

    def _steps(self, table: TableResult) -> Iterator[Step]:
        name = parse_identifier(table.table)
        rule = self.rules[table.rule]
        if rule.execute:
            holding_run = holding(self.lake, name, self.ledger)
            record = interrupted(self.lake, name, self.ledger)
            command = plan_of(record).command if record else ""
            # Only a run that a pass began by the same rule is resumed; that makes its missing
            # proof.
            if (
                record
                and command in rule.actions
                and record.run_id.startswith(mark(rule, command))
                and {run.run_id for run in holding_run} <= {record.run_id}
            ):
                yield self._step(table, command, record)
                holding_run = holding(self.lake, name, self.ledger)
            for run in holding_run:
                summary = (
                    f"run {run.run_id} was not proved ({run.error}). Look at the table, then "
                    f"allow runs again: `{clearing(run)}`"
                )
                disproved = run.status is Status.DISPROVED
                yield Step("run", Status.DISPROVED if disproved else Status.UNPROVED, summary)
        for command in rule.actions:
            yield self._step(table, command)

    def _step(self, table: TableResult, command: str, record: RunRecord | None = None) -> Step:
        """Resume a run, or plan a command and run the plan, as far as rule, time and budget
        allow; what prevents that becomes the step.
        """
        if self.clock() >= self.deadline:
            return Step(command, Status.WAITS, "the time of this pass is over")
        if min(self.left.values(), default=1) <= 0:
            return Step(command, Status.WAITS, "the budget of this pass is spent")
        stop = Stop((self.deadline - self.clock()).total_seconds())
        try:
            with stop_on_request(stop.set):
                return self._run(table, command, record, stop)
        except (Stopped, TableClaimed, RunDisproved) as problem:
            summary = str(problem) or "its trial was stopped; nothing was run"
            return Step(command, _PREVENTED[type(problem)], summary)

    def _run(self, table: TableResult, command: str, record: RunRecord | None, stop: Stop) -> Step:
        """Resume a run, or plan a command and run the plan, until the time of the pass is over."""
        name = parse_identifier(table.table)
        rule = self.rules[table.rule]
        run_arguments: dict[str, Any] = {
            "ledger": self.ledger,
            "limits": rule.actions[command].limits,
            "stop": stop,
            "progress": self.say,
        }
        if record is not None:
            if self.dry_run:
                summary = f"run {record.run_id} is unfinished; a pass resumes it"
                return Step(command, Status.PLANNED, summary)
            outcome = resume(
                self.lake, name, command=command, run_id=record.run_id, **run_arguments
            )
        else:
            plan = self._plan(table, command)
            if plan is None or not (plan.actions or plan.refused):
                return Step(command, Status.NOTHING, (plan and plan.waits) or "")
            self.say(f"{plan.text()}\n")
            if not rule.execute:
                return planned(command, plan, "its rule does not say execute: true")
            files, size_in_bytes = plan.reads
            need = Actual(files, size_in_bytes, rows_in=plan.prediction.rows_in)
            if any(getattr(need, _READS[name]) > left for name, left in self.left.items()):
                return Step(
                    command, Status.WAITS, "the rest of the budget of this pass is too small"
                )
            if self.dry_run:
                self._spend(need)
                return planned(command, plan, "dry run: not executed")
            if rule.actions[command].trial:
                facts, _ = self._observed(table)
                plan = try_plan(self.lake, facts, plan, stop=stop, progress=lambda _: None)
            run_id = mark(rule, command) + new_run_id()
            outcome = run(self.lake, plan, execute=True, run_id=run_id, **run_arguments)
        self.known.forget(name)
        self._spend(outcome.actual)
        step = ran(command, outcome)
        if step.status is Status.FAILED and self.ending.is_requested:
            return replace(step, status=Status.STOPPED)
        if step.status is Status.STOPPED and stop.reason == "claim":
            return replace(step, status=Status.BUSY)
        return step

    def _spend(self, actual: Actual) -> None:
        for name in self.left:
            self.left[name] -= getattr(actual, _READS[name])

    def _plan(self, table: TableResult, command: str) -> Plan | None:
        """The plan of a command, as the command makes it; None if the findings ask for nothing,
        which needs no Spark.
        """
        facts, findings = self._observed(table)
        lake = self.lake
        rule = self.rules[table.rule]
        settings = rule.actions[command].settings
        plan_arguments: dict[str, Any] = {"thresholds": rule.thresholds, "now": self.clock()}
        if command == "convert":
            if "equality_deletes" not in findings.names:
                return None
            name = parse_identifier(table.table)
            return plan_conversion(lake, name, ledger=self.ledger, **settings)
        if command == "compact":
            policy = cut(settings, self.left)
            if policy.scope == "minor" and not findings_of(
                policy, facts, findings, rule.thresholds
            ):
                return None
            plan_arguments["ledger"] = self.ledger
            plan_arguments["exact"] = rule.execute and not self.dry_run
            # Nobody reads the plan before it runs.
            plan_arguments["attended"] = not rule.execute
            return plan_table(lake, facts, findings, policy, **plan_arguments)
        if not findings:
            return None
        # In a policy the retention is the limit of an expiry, and the finding its reason.
        plan_arguments["procedures"] = [
            procedure
            for procedure in settings["procedures"]
            if procedure != "expire_snapshots" or "snapshots_piling_up" in findings.names
        ]
        return plan_maintenance_table(
            lake, facts, findings, settings["retention"], **plan_arguments
        )

    def _observed(self, table: TableResult) -> tuple[TableFacts, Findings]:
        """A table's facts and findings by its rule; the facts of its report if the table has not
        changed since.
        """
        options = self.rules[table.rule].options
        return self.known.observed(self.lake, parse_identifier(table.table), options)
