"""Run a policy once, under its lock: observe, report, plan, run what is allowed, prove, report again, alert; safe to call every hour."""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from icekit.catalog import EMBEDDED, Lake, connect
from icekit.catalog.lake import let_go
from icekit.engine.errors import outside
from icekit.engine.interrupting import Ending, ended_like_interrupted
from icekit.errors import EXIT_CRASHED, EXIT_MISCONFIGURED, IcekitError, LedgerUnusable, first_line
from icekit.facts.head import head
from icekit.report import FactsCache, Part
from icekit.schedule import result as document
from icekit.schedule.act import Say, Table, TableWork, act, shares, stop, unfinished, while_ending
from icekit.schedule.alerts import check_places, check_receivers, messages, of_pass, require_junit, send, urls, write_junit
from icekit.schedule.policy import Rule, SchedulePolicy
from icekit.schedule.result import Pass, PastAction, Step, TableResult, health_in, kept, ranked, reported, same_report, unread
from icekit.schedule.state import LONGEST, Event, Failure, State, TableState, mark, one_at_a_time, state_path
from icekit.schedule.study import Assigned, Permit, PlanTimedOut, Share, Watermark, assign, due, permit, quiet, study, timely
from icekit.units import count

Clock = Callable[[], dt.datetime]
#: Why a table in such a state is due, whatever its trigger.
_DUE_ANYWAY = {
    TableState.UNFINISHED: "a run of an earlier pass was unfinished",
    TableState.CLEARED: "it was cleared",
    TableState.DUE: "an earlier pass left something to do",
}


def run_pass(policy: SchedulePolicy, state: State, *, dry_run: bool = False, clock: Clock | None = None, say: Say = print) -> Pass:
    """Run one pass of a policy; returns its result.

    A failing table does not stop the others. A dry run writes nothing. The caller holds the lock, notifies
    the receivers and writes the files. Raises :class:`~icekit.errors.IcekitError` for problems of all tables
    (the catalog, the record of passes).
    """
    return _OnePass(policy, state, dry_run, clock or (lambda: dt.datetime.now(dt.UTC)), say).go()


class _OnePass:
    def __init__(self, policy: SchedulePolicy, state: State, dry_run: bool, clock: Clock, say: Say) -> None:
        self.policy, self.state, self.dry_run, self.clock, self.say = policy, state, dry_run, clock, say
        self.started = clock()
        seconds = policy.budget.seconds
        self.deadline = None if seconds is None else self.started + dt.timedelta(seconds=seconds)
        self.lake: Lake = connect(policy.catalog or None)
        self.ending = Ending()
        self.known = FactsCache()
        self.problems: list[str] = []

    def go(self) -> Pass:
        began = time.monotonic()
        tables: list[Table] = []
        assigned = Assigned(())
        with ended_like_interrupted() as self.ending, tempfile.TemporaryDirectory(prefix="icekit-", ignore_cleanup_errors=True) as folder:
            self.known = FactsCache(Path(folder))
            try:
                assigned = assign(self.policy, self.lake.tables.names())
                for problem in assigned.unmatched:
                    self.say(f"policy: {problem}")
                tables = [Table(name, rule) for name, rule in assigned.tables]
                self.say(
                    f"{count(len(tables), 'table')} of catalog {self.lake.name} under policy {self.policy.name}{', dry run' if self.dry_run else ''}"
                )
                self._through(tables)
            except BaseException as error:
                if not self.ending.takes(error):
                    raise
                self.ending.hear()
                stop(tables)
            finally:
                let_go(self.lake, self.ending)
        results = ranked([self._result(one) for one in tables])
        return Pass(
            policy=self.policy.name,
            catalog=self.lake.name,
            is_dry_run=self.dry_run,
            started=self.started,
            seconds=time.monotonic() - began,
            tables=tuple(results),
            problems=(*assigned.unmatched, *self.problems),
            output=None if self.dry_run else self.policy.output,
            interrupted=self.ending.is_asked,
        )

    def _through(self, tables: list[Table]) -> None:
        for one in tables:
            with self._on(one):
                self._look(one)
        self._report([one for one in tables if not one.is_over], after=False)
        for one in tables:
            if not one.is_over and not self._hushed(one) and one.may_run:
                with self._on(one):
                    plan = partial(study, rule=one.rule, ledger=self.policy.ledger, now=self.clock(), known=self.known)
                    one.studied = timely(self.lake, self.policy.timeout, partial(plan, table=one.name))
        shared = shares(self.policy.budget, tables, self._permit)
        # The tables that gain most come first: a pass that ends early should lose the least.
        queue = sorted((one for one in tables if not one.is_over), key=lambda one: -sum(o.file_opens_saved for o in one.studied.offers))
        self._work_through(queue, shared)

    def _work_through(self, queue: list[Table], shared: Mapping[str, Share]) -> None:
        changed = []
        for one in queue:
            with self._on(one):
                self._work(one, shared.get(one.written, Share()))
            is_changed = not one.is_over and any(step.was_run for step in one.steps)
            # Saved at once, so that a kill loses nothing; a changed table is saved again with its new report.
            with self._on(one):
                self._keep(one, is_reported=not is_changed)
            changed += [one] if is_changed else []
            one.status = one.status_now
        self._report(changed, after=True)

    def _hushed(self, one: Table) -> bool:
        """Whether its quiet hours have begun since the pass read it; the rest is for the next pass."""
        silent = quiet(one.rule, self.policy.timezone, self.clock())
        if silent is None:
            return False
        if one.is_over:
            one.why += f"; not reported on again: {silent}"
        elif one.steps:
            # A resumed table has its result; the rest waits.
            one.steps.append(Step("report", "waits", silent))
            one.status = one.status_now
        else:
            one.end("quiet", silent)
        return True

    def _look(self, one: Table) -> None:
        """Whether the table is read in this pass; an unfinished run is resumed first."""
        if silent := quiet(one.rule, self.policy.timezone, self.clock()):
            one.end("quiet", silent)
            return
        one.record = known = self.state.table(one.written)
        one.keep_back(self.clock(), self.policy.timezone)
        if one.is_over:
            return
        if known.state is TableState.UNFINISHED:
            step = unfinished(self._work_on(one), known.run) if known.run and not self.dry_run else None
            if step is None:
                self._apply(one, "end")
            else:
                self._note(one, step)
        at = head(self.lake, one.name)
        one.start = Watermark(at.metadata.get("table-uuid"), at.snapshot_id, int(self.clock().timestamp() * 1000))
        found = due(at.metadata, known.seen, one.rule.when, one.start.passed_ms, one.rule.limits.min_file_size_ratio)
        why = found.why if found.is_due else _DUE_ANYWAY.get(known.state)
        if why is None:
            one.end("failed" if one.why else "not due", one.why or found.why)
            return
        if known.state is not TableState.UNFINISHED:
            self._apply(one, "take")
        one.why = f"{why}; {one.why}" if one.why else why
        one.health = same_report(known.last, one.rule, at.snapshot_id)
        self.say(f"{one.written}: due, {why}")

    def _work(self, one: Table, share: Share) -> None:
        if not one.may_run:
            return
        if one.record.failure is not None:
            self.say(f"{one.written}: {one.record.failure.often()}; trying again")
        act(self._work_on(one), one.studied, share, dry_run=self.dry_run)

    def _apply(self, one: Table, event: Event | None, **changed: Any) -> None:
        """Let an event change the record of a table; a dry run saves nothing."""
        one.record = one.record.after(event, **changed) if self.dry_run else self.state.apply(one.written, event, **changed)

    def _note(self, one: Table, step: Step) -> None:
        """Add a step as it ends, and save at once what it means for the table."""
        step = while_ending(step, self.ending)
        one.steps.append(step)
        now_ms = int(self.clock().timestamp() * 1000)
        if step.status == "failed":
            before, run_id = one.record.failure, step.run_id or step.held_by
            times = before.times + 1 if before and before.action == step.action else 1
            failure = Failure(step.action, step.said, mark(one.rule, step.action), now_ms, times, run_id)
            self._apply(one, "hold" if step.is_unproved else "fail", failure=failure)
        elif step.status == "done":
            # A trial of another action may have failed before.
            self._apply(one, "fail" if one.status_now == "failed" else "end")
        self.say(f"{one.written}: {step.action} {step.status}: {step.said}")
        if self.dry_run:
            if step.plan:
                self.say(f"{step.plan}\n")
        elif step.was_run:
            self.known.forget(one.name)
            self.state.acted(PastAction.by(step, one.written, now_ms))

    def _work_on(self, one: Table) -> TableWork:
        return TableWork(
            lake=self.lake,
            table=one.name,
            rule=one.rule,
            ledger=self.policy.ledger,
            permit=lambda: one.leave if one.leave is not None and not one.leave.granted else self._permit(one),
            now=self.clock,
            say=self.say,
            begin=lambda begun: self._apply(one, "begin", run=begun),
            note=partial(self._note, one),
            timeout=self.policy.timeout,
            known=self.known,
        )

    def _permit(self, one: Table) -> Permit:
        return permit(one.rule, self.policy.timezone, self.clock(), self.deadline)

    def _report(self, tables: list[Table], *, after: bool) -> None:
        if self.dry_run:
            return
        # A waiting table that was reported on before, and has not changed since, keeps its result.
        by_rule = [
            (rule, [one for one in tables if one.rule.name == rule.name and (after or one.health is None)]) for rule in self.policy.tables
        ]
        before, altogether = 0, sum(len(several) for _, several in by_rule)
        for rule, several in by_rule:
            mine = [one for one in several if not self._hushed(one)]
            if mine:
                self._report_rule(rule, mine, Part(before, altogether, self.known), after=after)
            before += len(several)

    def _report_rule(self, rule: Rule, mine: list[Table], part: Part, *, after: bool) -> None:
        try:
            found, problems = reported(self.policy, rule, [one.written for one in mine], after=after, say=self.say, part=part)
        except Exception as problem:
            self.ending.check()
            if (known := outside(problem)) is None:
                raise
            for one in mine:
                one.end("misconfigured", str(known))
            return
        self.problems += problems
        for one in mine:
            status, health, error = found[one.written]
            if health is None:
                one.end(unread(status), error or "it could not be reported on")
            else:
                one.before, one.health = one.health, health
            if after:
                with self._on(one):
                    self._keep(one)

    @contextlib.contextmanager
    def _on(self, one: Table) -> Iterator[None]:
        """Work on one table; any failure becomes its result."""
        began = time.monotonic()
        self.ending.check()
        try:
            yield
            self.ending.check()
        except Exception as problem:
            self.ending.check()
            if (known := outside(problem)) is None:
                # Not the table's fault.
                one.crash(problem, None if self.dry_run else self.policy.output)
            else:
                one.end("timed out" if isinstance(known, PlanTimedOut) else "misconfigured", str(known))
            self.say(f"{one.written}: {one.status}: {one.why}")
        finally:
            one.seconds += time.monotonic() - began

    def _result(self, one: Table) -> TableResult:
        return TableResult(
            table=one.written,
            rule=one.rule.name,
            status=one.status_now,
            why=one.why,
            fail_on=one.rule.fail_on,
            health=one.health or health_in(self.state.table(one.written).last),
            before=one.before,
            steps=tuple(one.steps),
            seconds=one.seconds,
        )

    def _keep(self, one: Table, *, is_reported: bool = True) -> None:
        """Save a table; it passes only when everything due is done, and an unproved table when it is reported on."""
        if self.dry_run:
            return
        result, seen = self._result(one), one.start
        is_changed = any(step.was_run for step in one.steps)
        passes = {"failed"} if one.record.state is TableState.UNPROVED else {"done", "reported", "planned"}
        last = kept(result, one.rule, seen.snapshot_id if seen and not is_changed else None)
        if not is_reported or result.status not in passes:
            self._apply(one, None, last=last)
            return
        if seen and is_changed:
            # A table that is rolled back past our commits is at exactly the snapshot that was seen.
            with contextlib.suppress(IcekitError):
                seen = replace(seen, left_id=head(self.lake, one.name).snapshot_id)
        self._apply(one, "pass", last=last, seen=seen)


# --- Run a policy as a scheduler does: under its lock, then notify the receivers, write the files, and return the exit status


def run_policy(
    policy: SchedulePolicy,
    *,
    dry_run: bool = False,
    junit: Path | None = None,
    clock: Clock | None = None,
    say: Say = print,
) -> Pass:
    """One complete pass of a policy: every receiver is notified and every file written before its exit status counts.

    Raises :class:`~icekit.schedule.state.AnotherPass` while another pass is running, and the errors of
    :mod:`icekit.errors` for problems of all tables. A dry run takes no lock, writes nothing and notifies nobody.
    """
    path = state_path(policy)
    state = State(path)
    if dry_run:
        for unchecked in check_receivers(policy):
            say(unchecked)
        check_places(policy)
        made = run_pass(policy, state, dry_run=True, clock=clock, say=say)
        say("\n" + document.text(made))
        return made
    to = urls(policy)
    junit = junit or policy.junit
    require_junit(junit)
    # A pass may end somewhat late, because commits are still proved.
    with one_at_a_time(path, max(LONGEST, 2 * (policy.budget.seconds or 0.0))), ended_like_interrupted() as ending:
        try:
            check_places(policy)
            # Read before the pass adds to it: messages show it next to the pass's own actions.
            lately = state.lately()
            made = replace(run_pass(policy, state, clock=clock, say=say), lately=lately)
            # From here on, results are sent and written whatever signal arrives; that takes seconds.
            ending.hear()
        except Exception as problem:
            # Receivers are notified before the scheduler is; a failure here changes no more than this.
            lost = failed(policy, problem, clock)
            with contextlib.suppress(Exception):
                lost = tell(lost, policy, state, to)
            with contextlib.suppress(Exception):
                _write(lost, policy, junit)
            raise
        made = tell(made, policy, state, to)
        written = _write(made, policy, junit)
    say("\n" + document.text(made))
    say("\n".join(f"{path.suffix[1:].upper():<5} {path}" for path in written))
    return made


def failed(policy: SchedulePolicy, problem: Exception, clock: Clock | None = None) -> Pass:
    """A pass that reached no table: the catalog, the record of passes or icekit itself failed."""
    status, said = EXIT_CRASHED, f"{type(problem).__name__}: {first_line(problem)}"
    if (known := outside(problem)) is not None:
        status, said = known.exit_status or EXIT_MISCONFIGURED, str(known)
    now = clock() if clock else dt.datetime.now(dt.UTC)
    return Pass(policy.name, policy.catalog or EMBEDDED, False, now, 0.0, (), output=policy.output, failure=said, failure_status=status)


def _write(made: Pass, policy: SchedulePolicy, junit: Path | None) -> list[Path]:
    written = [*document.write(made, policy.output)]
    return [*written, write_junit(of_pass(made), junit)] if junit else written


def tell(made: Pass, policy: SchedulePolicy, state: State, to: dict[str, str], now: dt.datetime | None = None) -> Pass:
    """Notify every receiver of its news; returns the pass with the receivers reached and the failures."""
    now_ms = int((now or dt.datetime.now(dt.UTC)).timestamp() * 1000)
    try:
        before = {one.name: state.told(one.name) for one in policy.notify}
    except LedgerUnusable:
        if not made.failure:
            raise
        before = {}  # the message is about the record itself
    written = messages(made, policy, before, now_ms)
    answers = send(written, to)
    problems = []
    for message in written:
        problem = answers.get(message.receiver)
        if problem is None:
            # Recorded only now: a receiver that was not reached gets the message from the next pass.
            with contextlib.suppress(LedgerUnusable) if made.failure else contextlib.nullcontext():
                state.tell(message.receiver, dict(message.told))
        else:
            problems.append(f"{message.receiver} could not be notified: {problem}")
    told = tuple(message.receiver for message in written if message.title and answers.get(message.receiver) is None)
    return replace(made, told=told, alert_problems=tuple(problems))
