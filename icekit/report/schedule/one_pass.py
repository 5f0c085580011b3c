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

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import RunDisproved, Status, TableClaimed, TableNotFound, trace, why
from icekit.common.saving import write_json
from icekit.common.sql import display_name, parse_identifier
from icekit.common.units import count
from icekit.engine.errors import environment_error
from icekit.engine.interrupting import Ending, Stop, Stopped, sigterm_as_interrupt, stop_on_request
from icekit.engine.lake import Lake, close_at_end
from icekit.health.diagnose.findings import EXPIRED, Findings
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
from icekit.maintain.run.blocked import clear_command, find_blocking_runs, plan_of
from icekit.maintain.run.options import RunSettings
from icekit.maintain.run.trial import try_plan
from icekit.maintain.run.verbs import interrupted_run, new_run_id, resume, run
from icekit.report.facts_cache import FactsCache
from icekit.report.result import ReportRow, status_and_error
from icekit.report.schedule.policy import Rule, SchedulePolicy, limited_to
from icekit.report.schedule.result import (
    PassResult,
    Step,
    TableResult,
    executed_step,
    planned_step,
)

Say = Callable[[str], None]
Clock = Callable[[], dt.datetime]
#: What the budget counts of what a run read.
_FIGURES = {"budget_bytes": "bytes_in", "budget_files": "files_in", "budget_rows": "rows_in"}
_NOW: Clock = partial(dt.datetime.now, dt.UTC)
_NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)
_STATUS_OF_ERROR = {
    Stopped: Status.STOPPED,
    TableClaimed: Status.BUSY,
    RunDisproved: Status.DISPROVED,
}
#: After a step with another status nothing more is done to its table in this pass.
_CONTINUING = (Status.PLANNED, Status.DONE, Status.NOTHING)


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
            stack.enter_context(open_ledger(policy.ledger).hold(key, new_run_id()))
        ending = stack.enter_context(sigterm_as_interrupt())
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        lake = Lake.connect(policy.catalog)
        stack.callback(close_at_end, lake, ending)
        facts_cache = FactsCache(Path(folder))
        try:
            _Pass(policy, result, lake, ending, facts_cache, clock, say, dry_run).run()
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
            say(f"JSON  {write_json(policy.output / 'pass.json', result)}")
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
            table = display_name(name)
            tables.setdefault(table, TableResult(table, rule.name))
    return list(tables.values()), problems


def run_id_prefix(rule: Rule, command: str) -> str:
    """How the ids of the runs begin that a pass starts by a rule; it changes with every option that
    decides what they do.
    """
    deciding_options = json.dumps(
        [
            command,
            rule.options_by_command[command].given,
            dict(rule.report.thresholds),
            rule.report.filter_columns,
        ]
    )
    return hashlib.sha256(deciding_options.encode()).hexdigest()[:8]


@dataclass
class _Pass:
    policy: SchedulePolicy
    result: PassResult
    lake: Lake
    ending: Ending
    facts_cache: FactsCache
    clock: Clock
    say: Say
    dry_run: bool

    def __post_init__(self) -> None:
        self.ledger = open_ledger(self.policy.ledger)
        self.rules: Mapping[str, Rule] = {rule.name: rule for rule in self.policy.rules}
        # What is left of the budget of bytes, files or rows.
        self.remaining_budget = dict(self.policy.budget)
        started = self.result.started
        hours = self.policy.hours
        minutes = self.remaining_budget.pop("budget_minutes", None)
        window_end = hours.ends(started) if hours else None
        budget_end = started + dt.timedelta(minutes=minutes) if minutes else None
        self.deadline = min(window_end or _NEVER, budget_end or _NEVER)

    def run(self) -> None:
        """Report on the tables, and work on them."""
        tables, self.result.problems = assign(self.lake, self.policy.rules)
        self.result.tables = tables
        table_count = count(len(tables), "table")
        self.say(f"{table_count} of catalog {self.lake.name} under policy {self.policy.name}")
        if self.dry_run:
            for table in tables:
                with self._failure_as(table, table.end):
                    self._look(table)
        else:
            self._report(tables)
        # A pass that ends early should lose the least.
        for table in sorted(tables, key=lambda table: -table.saved):
            with self._failure_as(table, table.add_failure):
                self._work_on(table)

    def _look(self, table: TableResult) -> None:
        """Judge a table as it is now, without a page."""
        facts, findings = self._observed(table)
        rule = self.rules[table.rule]
        policy = rule.compact.settings if rule.compact else CompactionPolicy()
        policy_findings = findings_of(policy, facts, findings, rule.thresholds)
        savings = savings_of(facts, policy_findings, rule.thresholds, policy)
        table.judge(ReportRow(table.table, findings.status, savings=savings), rule.fail_on)

    def _work_on(self, table: TableResult) -> None:
        if not table.health:
            return
        for step in self._steps(table):
            table.add(step)
            self.say(f"{table.table}: {step}")
            self.ending.check()
            if step.status not in _CONTINUING:
                break
        if any(step.run_id for step in table.steps):
            self._look(table)

    def _report(self, tables: Sequence[TableResult]) -> None:
        """Judge the tables, each by its rule, and write their pages."""
        # Its libraries come with the extra report, which a dry run does not need.
        from icekit.report.service import report

        for rule in self.policy.rules:
            tables_by_name = {table.table: table for table in tables if table.rule == rule.name}
            if not tables_by_name:
                continue
            options = rule.report_options.with_values(
                tables=tuple(tables_by_name),
                output=str(self.policy.output / rule.name),
                **self.policy.only("catalog", "history"),
            )
            try:
                report_run = report(options, progress=self._progress, facts_cache=self.facts_cache)
            except Stopped:
                return
            except Exception as problem:
                self.ending.check()
                # What was run must not go without a result because a history or a disk fails.
                if (outside_error := environment_error(problem)) is None:
                    raise
                self.result.problems.append(str(outside_error))
                continue
            self.result.problems += report_run.problems
            for row in report_run.rows:
                table = tables_by_name[row.table]
                table.page = str(Path(rule.name, row.page_name or "index.html"))
                table.judge(row, rule.fail_on)

    def _progress(self, line: str) -> None:
        """Print a line of a report, which ends between two tables when the time of the pass is
        over.
        """
        self.say(line)
        if self._is_over():
            raise Stopped

    def _is_over(self) -> bool:
        return self.clock() >= self.deadline

    @contextlib.contextmanager
    def _failure_as(
        self, table: TableResult, note_failure: Callable[[Status, str], None]
    ) -> Iterator[None]:
        """Work on one table; any failure is noted in its result."""
        self.ending.check()
        try:
            yield
        except Exception as problem:
            self.ending.check()
            status, outside_error = status_and_error(problem)
            note_failure(status, why(outside_error or problem))
            self.say(f"{table.table}: {status}: {outside_error or trace(problem)}")

    def _steps(self, table: TableResult) -> Iterator[Step]:
        name = parse_identifier(table.table)
        rule = self.rules[table.rule]
        if rule.execute:
            blocking_runs = find_blocking_runs(self.lake, name, self.ledger)
            record = interrupted_run(self.lake, name, self.ledger)
            command = plan_of(record).command if record else ""
            # Only a run that a pass began by the same rule is resumed; that makes its missing
            # proof.
            if (
                record
                and command in rule.options_by_command
                and record.run_id.startswith(run_id_prefix(rule, command))
                and {blocking_run.run_id for blocking_run in blocking_runs} <= {record.run_id}
            ):
                yield self._step(table, command, record)
                blocking_runs = find_blocking_runs(self.lake, name, self.ledger)
            for blocking_run in blocking_runs:
                blocking_summary = (
                    f"run {blocking_run.run_id} was not proved ({blocking_run.error}). Look at the "
                    f"table, then allow runs again: `{clear_command(blocking_run)}`"
                )
                is_disproved = blocking_run.status is Status.DISPROVED
                yield Step(
                    "run", Status.DISPROVED if is_disproved else Status.UNPROVED, blocking_summary
                )
        for command in rule.options_by_command:
            yield self._step(table, command)

    def _step(self, table: TableResult, command: str, record: RunRecord | None = None) -> Step:
        """Resume a run, or plan a command and run the plan, as far as rule, time and budget
        allow; what prevents that becomes the step.
        """
        if self._is_over():
            return Step(command, Status.WAITS, "the time of this pass is over")
        if min(self.remaining_budget.values(), default=1) <= 0:
            return Step(command, Status.WAITS, "the budget of this pass is spent")
        stop = Stop((self.deadline - self.clock()).total_seconds())
        try:
            with stop_on_request(stop.set):
                return self._run(table, command, record, stop)
        except (Stopped, TableClaimed, RunDisproved) as problem:
            stop_summary = str(problem) or "its trial was stopped; nothing was run"
            return Step(command, _STATUS_OF_ERROR[type(problem)], stop_summary)

    def _run(self, table: TableResult, command: str, record: RunRecord | None, stop: Stop) -> Step:
        """Resume a run, or plan a command and run the plan, until the time of the pass is over."""
        name = parse_identifier(table.table)
        rule = self.rules[table.rule]
        limits = rule.options_by_command[command].limits
        if record is not None:
            if self.dry_run:
                summary = f"run {record.run_id} is unfinished; a pass resumes it"
                return Step(command, Status.PLANNED, summary)
            settings = RunSettings(self.ledger, limits, stop, self.say, record.run_id)
            outcome = resume(self.lake, name, settings, command=command)
        else:
            plan = self._plan(table, command)
            if plan is None or not (plan.actions or plan.refused):
                return Step(command, Status.NOTHING, (plan and plan.waits) or "")
            self.say(f"{plan.text()}\n")
            if not rule.execute:
                return planned_step(command, plan, "its rule does not say execute: true")
            files, size_in_bytes = plan.files_and_bytes_read
            plan_reads = Actual(files, size_in_bytes, rows_in=plan.prediction.rows_in)
            if any(
                getattr(plan_reads, _FIGURES[limit]) > rest
                for limit, rest in self.remaining_budget.items()
            ):
                return Step(
                    command, Status.WAITS, "the rest of the budget of this pass is too small"
                )
            if self.dry_run:
                self._spend(plan_reads)
                return planned_step(command, plan, "dry run: not executed")
            if rule.options_by_command[command].trial:
                facts, _ = self._observed(table)
                plan = try_plan(self.lake, facts, plan, stop=stop, progress=lambda _: None)
            run_id = run_id_prefix(rule, command) + new_run_id()
            settings = RunSettings(self.ledger, limits, stop, self.say, run_id)
            outcome = run(self.lake, plan, settings, execute=True)
        self.facts_cache.forget(name)
        self._spend(outcome.actual)
        step = executed_step(command, outcome)
        if step.status is Status.FAILED and self.ending.is_requested:
            return replace(step, status=Status.STOPPED)
        if step.status is Status.STOPPED and stop.reason == "claim":
            return replace(step, status=Status.BUSY)
        return step

    def _spend(self, actual: Actual) -> None:
        for limit in self.remaining_budget:
            self.remaining_budget[limit] -= getattr(actual, _FIGURES[limit])

    def _plan(self, table: TableResult, command: str) -> Plan | None:
        """The plan of a command, as the command makes it; None if the findings ask for nothing,
        which needs no Spark.
        """
        facts, findings = self._observed(table)
        rule = self.rules[table.rule]
        options = rule.options_by_command[command]
        if command == "convert":
            if "equality_deletes" not in findings.names:
                return None
            name = parse_identifier(table.table)
            return plan_conversion(self.lake, name, ledger=self.ledger, **options.settings)
        if command == "compact":
            policy = limited_to(options.settings, self.remaining_budget)
            if policy.scope == "minor" and not findings_of(
                policy, facts, findings, rule.thresholds
            ):
                return None
            return plan_table(
                self.lake,
                facts,
                findings,
                policy,
                thresholds=rule.thresholds,
                now=self.clock(),
                ledger=self.ledger,
                exact=rule.execute and not self.dry_run,
                # Nobody reads the plan before it runs.
                attended=not rule.execute,
            )
        if not findings:
            return None
        # In a policy the retention is the limit of an expiry, and the finding its reason.
        procedures = [
            procedure
            for procedure in options.settings["procedures"]
            if procedure != "expire_snapshots" or findings.names.intersection(EXPIRED)
        ]
        return plan_maintenance_table(
            self.lake,
            facts,
            findings,
            options.settings["retention"],
            procedures=procedures,
            thresholds=rule.thresholds,
            now=self.clock(),
        )

    def _observed(self, table: TableResult) -> tuple[TableFacts, Findings]:
        """A table's facts and findings by its rule; the facts of its report if the table has not
        changed since.
        """
        options = self.rules[table.rule].report_options
        return self.facts_cache.facts_and_findings(
            self.lake, parse_identifier(table.table), options
        )
