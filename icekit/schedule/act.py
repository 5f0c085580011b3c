"""Run on one table the actions that its rule and the pass's budget allow, in order; plan again if an earlier action changed the table."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from zoneinfo import ZoneInfo

from icekit.catalog import Lake
from icekit.compact import Plan, plan_table
from icekit.compact.ledger import Ledger, open_ledger
from icekit.engine.interrupting import Ending, Stop, Stopped, heeded
from icekit.errors import IcekitError, RunDisproved, TableClaimed, first_line, trace
from icekit.report import FactsCache
from icekit.run import Limits, resume, run, sampled
from icekit.run.checkpointed import CLEARED, new_run_id, plan_of
from icekit.saving import slug, write_text
from icekit.schedule.policy import ACTIONS, PassBudget, Rule
from icekit.schedule.result import Status, Step, TableHealth, most_serious, planned, ran
from icekit.schedule.state import StartedRun, TableRecord, TableState, how_to_clear, mark
from icekit.schedule.study import (
    Permit,
    Share,
    Studied,
    Watermark,
    compaction_policy,
    less,
    maintenance,
    observed,
    share_out,
    stopping_at,
    timely,
)
from icekit.sql import Identifier, display_name

Say = Callable[[str], None]
#: Statuses of a run that is worth resuming. A failed run is planned again, because its plan is the reason.
CUT_SHORT = ("running", "stopped")
#: Statuses of an action whose proof failed, or could not be made.
NOT_PROVED = ("disproved", "unproved")


@dataclass(frozen=True)
class TableWork:
    """The input for acting on a table.

    ``permit`` is called before each action; ``begin`` with each run before it begins; ``note`` with each step as it
    ends, also with the step that a person stops. ``timeout`` is the time limit for planning, in seconds; ``known`` has the
    facts of tables that the pass has observed.
    """

    lake: Lake
    table: Identifier
    rule: Rule
    ledger: str
    permit: Callable[[], Permit]
    now: Callable[[], dt.datetime]
    say: Say
    begin: Callable[[StartedRun], None]
    note: Callable[[Step], object]
    timeout: float | None = None
    known: FactsCache | None = None

    @property
    def name(self) -> str:
        """``namespace.table``."""
        return display_name(self.table)

    def is_allowed(self, action: str) -> bool:
        """Whether the rule says ``execute: true`` for an action."""
        section = self.rule.actions.get(action)
        return section is not None and section.execute

    def is_tried(self, action: str) -> bool:
        """Whether an action's plan is tried on a clone first."""
        return action == "compact" and self.rule.compact is not None and self.rule.compact.trial

    def limits(self, action: str) -> Limits:
        """How much of an action is proved."""
        return Limits(prove=sampled(self.rule.actions[action].prove))


def act(work: TableWork, studied: Studied, share: Share, *, dry_run: bool) -> None:
    """Run the actions of a table's plans in order; calls ``work.note`` with a step for each, run or not."""
    if studied.refusal:
        work.note(Step("maintain", "reported", studied.refusal))
    if dry_run and "report" in studied.idle:
        work.note(Step("report", "reported", studied.idle["report"]))
    changed = False
    for action in ACTIONS:
        plan = studied.plans.get(action)
        if plan is None and not (changed and work.is_allowed(action)):
            if dry_run and action in studied.idle:
                work.note(Step(action, "reported", studied.idle[action]))
            continue
        leave = work.permit()
        if plan is not None and not work.is_allowed(action):
            why = f"its rule does not say execute: true for {action}"
            if work.is_tried(action) and leave.granted and not dry_run:
                work.note(_tried_only(work, plan, share, leave, why))
            else:
                work.note(planned(action, plan, why))
            continue
        wait = _wait(action, plan, share, leave)
        if wait is not None:
            work.note(planned(action, plan, wait, status="waits") if plan else Step(action, "waits", wait))
            continue
        if changed or (action == "compact" and share.cut):
            plan = _again(work, action, share)
        if plan is None or not plan.actions:
            if share.cut and action == "compact":
                work.note(Step(action, "waits", "the rest of the pass's budget is too small for any partition"))
            continue
        if dry_run:
            work.note(planned(action, plan, "dry run: not executed"))
            continue
        step = _run(work, action, plan, share, leave)
        work.note(step)
        changed = changed or step.run_id is not None
        if step.status == "done" and action == "compact" and (share.cut or leaves_for_budget(plan)):
            work.note(Step(action, "waits", "over budget: its other partitions wait for the next pass"))
        if step.status in {"busy", "stopped", "failed"}:
            break


def leaves_for_budget(plan: Plan) -> bool:
    """Whether a plan would take more if its budget were larger."""
    return any("budget" in left.reason for left in plan.left_alone)


def _wait(action: str, plan: Plan | None, share: Share, leave: Permit) -> str | None:
    """Why an allowed action is left to a later pass; None if it is not."""
    if not leave.granted:
        return leave.why
    if action == "compact" and share.is_nothing:
        return "the pass's budget goes to tables that save more file opens per byte"
    if action == "compact" and plan is None and share.is_limited:
        return "it could be planned only after the conversion, when the pass's budget was already shared out"
    return None


def unfinished(work: TableWork, begun: StartedRun) -> Step | None:
    """Resume the run that an earlier pass of this policy began and did not finish; None if it must not be resumed.

    No other run is touched: neither a person's, nor this one after another run followed it. It is not resumed if
    the rule no longer allows it, or says something different about it, because its plan follows the old rule.
    If its proof is missing, the table stays blocked, unless the resumed run completes the proof.
    """
    full = display_name(work.lake.sql_name(work.table))
    book = open_ledger(work.ledger)
    record = book.last_run(full)
    if record is None or record.run_id != begun.run_id or record.status not in CUT_SHORT or not record.plan:
        return _unproved(book, begun)
    plan = plan_of(record)
    why_not = still(begun, work.rule, plan.command)
    if why_not is not None:
        work.say(
            f"{work.name}: run {record.run_id} of an earlier pass is not resumed, because {why_not}; its commits stay, and the rest is planned again"
        )
        return _unproved(book, begun)
    leave = work.permit()
    if not leave.granted:
        return Step(begun.action, "waits", f"run {record.run_id} is unfinished; {leave.why}", run_id=record.run_id)

    def go(stop: Stop) -> Step:
        outcome = resume(
            work.lake,
            work.table,
            command=plan.command,
            ledger=work.ledger or None,
            limits=work.limits(begun.action),
            stop=stop,
            progress=work.say,
            run_id=begun.run_id,
        )
        return ran(begun.action, outcome)

    return _guarded(begun.action, leave, work, go)


def _unproved(book: Ledger, begun: StartedRun) -> Step | None:
    """A step for a run that was not proved, if its pass ended before it could record that; None for any other run."""
    record = book.run(begun.run_id)
    if record is None or record.status == CLEARED or all(one.status not in NOT_PROVED for one in book.actions(begun.run_id)):
        return None
    said = f"run {begun.run_id} of an earlier pass was not proved{': ' + record.error if record.error else ''}"
    return Step(begun.action, "failed", said, run_id=begun.run_id, is_unproved=True)


def still(begun: StartedRun, rule: Rule, command: str) -> str | None:
    """Why the current rule does not allow resuming a run; None if it does. Pure."""
    section = rule.actions.get(begun.action)
    if section is None or not section.execute:
        return f"the rule no longer says execute: true for {begun.action}"
    if mark(rule, begun.action) != begun.mark:
        return f"the rule for {begun.action} has changed"
    return None if begun.action == command else "it is a different action than recorded"


def _again(work: TableWork, action: str, share: Share) -> Plan | None:
    """The plan of an action for the current table; partitions written a moment ago are included."""

    def plan(lake: Lake) -> Plan | None:
        if action == "compact":
            return _compaction(work, lake, share)
        facts, findings = observed(lake, work.table, work.rule, work.known)
        return maintenance(lake, facts, findings, work.rule)

    return timely(work.lake, work.timeout, plan)


def _compaction(work: TableWork, lake: Lake, share: Share, trial: Stop | None = None) -> Plan | None:
    """The plan of a compaction for the current table; None if nothing can be worth it.

    With a ``trial`` (the stop for it), the plan is tried on a clone next to the table, so only where work on the table is allowed now; raises
    :class:`~icekit.engine.interrupting.Stopped`.
    """
    facts, findings = observed(lake, work.table, work.rule, work.known)
    policy = compaction_policy(work.rule, findings, share)
    if policy is None:
        return None
    return plan_table(
        lake,
        facts,
        findings,
        policy,
        thresholds=work.rule.limits,
        ledger=work.ledger or None,
        trial=trial is not None,
        now=work.now(),
        stop=trial,
        progress=lambda _: None,
    )


def _tried_only(work: TableWork, plan: Plan, share: Share, leave: Permit, why: str) -> Step:
    return _guarded("compact", leave, work, lambda stop: planned("compact", _compaction(work, work.lake, share, trial=stop) or plan, why))


def _run(work: TableWork, action: str, plan: Plan, share: Share, leave: Permit) -> Step:
    work.say(f"{plan!r}\n")

    def go(stop: Stop) -> Step:
        tried = _compaction(work, work.lake, share, trial=stop) if work.is_tried(action) else plan
        if tried is None or not tried.actions:
            return Step(action, "reported", "after its trial, nothing is left to do")
        run_id = new_run_id()
        work.begin(StartedRun(run_id, action, mark(work.rule, action)))
        outcome = run(
            work.lake,
            tried,
            execute=True,
            ledger=work.ledger or None,
            limits=work.limits(action),
            stop=stop,
            progress=work.say,
            run_id=run_id,
        )
        return ran(action, outcome)

    return _guarded(action, leave, work, go)


def _guarded(action: str, leave: Permit, work: TableWork, go: Callable[[Stop], Step]) -> Step:
    """Run until the permit ends; a failure of the table becomes its step."""
    end = leave.end
    limit = getattr(work.rule.compact, "budget", None) if action == "compact" else None
    why = leave.why
    if limit is not None and limit.seconds is not None:
        own = work.now() + dt.timedelta(seconds=limit.seconds)
        if end is None or own < end:
            end, why = own, "the time in its budget ran out"
    try:
        stop = stopping_at(end, work.now())
        with heeded(stop.set):
            step = go(stop)
    except TableClaimed as problem:
        return Step(action, "busy", str(problem))
    except Stopped:
        step = Step(action, "stopped", "its trial was stopped; nothing was run")
    except RunDisproved as problem:
        return Step(action, "failed", str(problem), is_unproved=True, held_by=problem.run_id)
    except IcekitError as problem:
        return Step(action, "failed", str(problem))
    return stopped_by(stop, step, why, work.note)


def stopped_by(stop: Stop, step: Step, why: str, note: Callable[[Step], object]) -> Step:
    """A step that was cut short, with the reason: the clock, a lost claim (which makes the table busy), or a person.

    A person stops the complete pass: the step is noted, and KeyboardInterrupt raised. Pure.
    """
    if step.status != "stopped":
        return step
    if stop.reason == "clock":
        return replace(step, said=f"{step.said}; stopped because {why}; the next pass continues it")
    if stop.reason == "claim":
        return replace(step, status="busy", said=f"{step.said}; another run took the table over; the next pass checks what is left")
    note(replace(step, said=f"{step.said}; stopped by hand; the next pass continues it"))
    raise KeyboardInterrupt


# --- The state of a table during a pass


@dataclass
class Table:
    """A table during a pass; ``record`` is what is remembered of it, ``status`` its result once the pass has finished it."""

    name: Identifier
    rule: Rule
    record: TableRecord = field(default_factory=TableRecord)
    status: Status | None = None
    why: str = ""
    steps: list[Step] = field(default_factory=list)
    studied: Studied = field(default_factory=lambda: Studied({}))
    health: TableHealth | None = None
    before: TableHealth | None = None
    start: Watermark | None = None
    seconds: float = 0.0
    #: The permit used for sharing out the pass's budget; a refusal then stays a refusal.
    leave: Permit | None = None

    @property
    def written(self) -> str:
        """``namespace.table``."""
        return display_name(self.name)

    @property
    def is_over(self) -> bool:
        """Whether the pass has finished the table."""
        return self.status is not None

    @property
    def may_run(self) -> bool:
        """Whether runs may begin on the table in this pass."""
        return self.record.state is TableState.DUE and not self.is_over

    @property
    def status_now(self) -> Status:
        """Its status; before it has one, that of its most serious step."""
        return self.status or most_serious(step.status for step in self.steps)

    def end(self, status: Status, why: str) -> None:
        """Set its final status, which no later step changes."""
        self.status, self.why = status, why

    def crash(self, problem: BaseException, output: Path | None) -> None:
        """Finish it with an unexpected error; the trace goes into a file in ``output``, if given."""
        said = f"{type(problem).__name__}: {first_line(problem)}"
        if output is not None:
            # A full disk must not end the pass.
            with contextlib.suppress(OSError):
                kept_in = write_text(output / f"{slug(self.written)}.error.txt", trace(problem))
                said += f"; for details see {kept_in}"
        self.end("crashed", said)

    def keep_back(self, now: dt.datetime, zone: ZoneInfo) -> None:
        """Record what failed on it, and finish it if that is to be retried later; a table that was not proved is still reported on."""
        failure, is_unproved = self.record.failure, self.record.state is TableState.UNPROVED
        again = failure.rests_until(self.rule) if failure and self.record.state is TableState.FAILED else None
        if failure is None or not (is_unproved or (again is not None and now < again)):
            return
        self.steps.append(Step(failure.action, "failed", failure.said, is_unproved=is_unproved))
        clear = how_to_clear(self.written)
        if again is None:
            self.why = f"icekit runs nothing on it until a person has looked at it and clears it with {clear}"
        else:
            self.end("failed", f"{failure.often()}; icekit tries again from {again.astimezone(zone):%a %H:%M %Z} on, or after {clear}")


# --- Share a pass's budget among its tables: conversions first, then the partitions of all tables by file opens saved per byte


def shares(budget: PassBudget, tables: list[Table], permit: Callable[[Table], Permit]) -> dict[str, Share]:
    """Each table's share of the pass's budget; conversions come first, because nothing else helps their tables."""
    spent = [step for one in tables for step in one.steps if step.run_id]
    left = less(budget, sum(step.bytes_in for step in spent), sum(step.files_in for step in spent))
    if left.bytes is not None or left.files is not None:
        for one in tables:
            one.leave = permit(one)
    tables = [one for one in tables if one.may_run and (one.leave is None or one.leave.granted)]
    for one in tables:
        files, read = one.studied.convert_reads
        if files and one.rule.convert and one.rule.convert.execute:
            if (left.bytes is not None and read > left.bytes) or (left.files is not None and files > left.files):
                one.steps.append(Step("convert", "waits", "the pass's budget is too small for this and the other tables", files_in=0))
                one.studied = replace(one.studied, plans={k: v for k, v in one.studied.plans.items() if k != "convert"})
            else:
                left = less(left, read, files)
    wanted = {one.written: one.studied.offers for one in tables if one.rule.compact and one.rule.compact.execute}
    return share_out(wanted, left)


# --- End a pass on request: a step that was cut short is not a failure of the table


def while_ending(step: Step, ending: Ending) -> Step:
    """A step that failed after the process was asked to end: cut short, not a failure of the table; a disproved step stays disproved."""
    if step.status != "failed" or step.is_unproved or not ending.is_asked:
        return step
    return replace(step, status="stopped", said=f"{step.said}; the pass was asked to end meanwhile; the next pass continues")


def stop(tables: list[Table]) -> None:
    """Mark the tables that a pass did nothing on as stopped; the results of the others stay."""
    for one in tables:
        if not one.is_over and not one.steps:
            one.end("stopped", "the pass was stopped by hand or by a signal; the next pass continues")
