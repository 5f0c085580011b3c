"""Run on one table what its rule and the pass's budget allow, in order; each plan is made again where the one before changed the table."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from zoneinfo import ZoneInfo

from icekit.catalog import Lake
from icekit.compact import Plan, plan_table
from icekit.compact.ledger import Ledger, opened
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
#: Statuses of a run whose rest is worth resuming. What failed is planned again: its plan is why.
CUT_SHORT = ("running", "stopped")
#: Statuses of an action whose proof failed, or could not be made.
NOT_PROVED = ("disproved", "unproved")


@dataclass(frozen=True)
class TableWork:
    """What acting on a table needs to know.

    ``permit`` is asked before each action; ``begin`` is told of a run before it begins; ``note`` gets each step as it
    ends, also the one that a person stops. ``timeout`` is the longest that planning may take, in seconds; ``known`` has the
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
        """Tell whether the rule says ``execute: true`` for an action."""
        section = self.rule.actions.get(action)
        return section is not None and section.execute

    def is_tried(self, action: str) -> bool:
        """Tell whether an action's plan is tried on a clone first."""
        return action == "compact" and self.rule.compact is not None and self.rule.compact.trial

    def limits(self, action: str) -> Limits:
        """How much of an action is proved."""
        return Limits(prove=sampled(self.rule.actions[action].prove))


def act(work: TableWork, studied: Studied, share: Share, *, dry_run: bool) -> None:
    """Go through the actions of a table's plans; ``work.note`` gets a step for each, run or not."""
    if studied.refusal:
        work.note(Step("maintain", "reported", studied.refusal))
    changed = False
    for action in ACTIONS:
        plan = studied.plans.get(action)
        if plan is None and not (changed and work.is_allowed(action)):
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
                work.note(Step(action, "waits", "what the pass's budget leaves for it is too little for any partition"))
            continue
        if dry_run:
            work.note(planned(action, plan, "this is what would be run"))
            continue
        step = _run(work, action, plan, share, leave)
        work.note(step)
        changed = changed or step.run_id is not None
        if step.status == "done" and action == "compact" and (share.cut or leaves_for_budget(plan)):
            work.note(Step(action, "waits", "its other partitions are left to the next pass by the budget"))
        if step.status in {"busy", "stopped", "failed"}:
            break


def leaves_for_budget(plan: Plan) -> bool:
    """Tell whether a plan would take more if its budget were larger."""
    return any("budget" in left.reason for left in plan.left_alone)


def _wait(action: str, plan: Plan | None, share: Share, leave: Permit) -> str | None:
    """Why an action that is allowed is left for a later pass; None if it is not."""
    if not leave.granted:
        return leave.why
    if action == "compact" and share.is_nothing:
        return "the pass's budget buys other tables that win more per byte"
    if action == "compact" and plan is None and share.is_limited:
        return "it can be planned only now, after the conversion, and the pass's budget was shared out before"
    return None


def unfinished(work: TableWork, begun: StartedRun) -> Step | None:
    """Go on with the run that an earlier pass of this policy began and did not end; None if that is not to be done.

    No other run is touched: neither a person's, nor this one once another has followed it. It is not resumed where
    the rule no longer allows it, or says something else of it than it did then: its plan is of what it said then.
    What of it was not proved holds the table back, unless the run that is resumed proves it.
    """
    full = display_name(work.lake.sql_name(work.table))
    with opened(work.ledger or None, work.lake) as book:
        record = book.last_run(full)
        if record is None or record.run_id != begun.run_id or record.status not in CUT_SHORT or not record.plan:
            return _unproved(book, begun)
        plan = plan_of(record)
        why_not = still(begun, work.rule, plan.command)
        if why_not is not None:
            work.say(
                f"{work.name}: run {record.run_id} of an earlier pass is not resumed, as {why_not}; what it committed stays, and the rest is planned again"
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
    """A step for a run that was not proved, and whose pass ended before it heard so; None for any other run."""
    record = book.run(begun.run_id)
    if record is None or record.status == CLEARED or all(one.status not in NOT_PROVED for one in book.actions(begun.run_id)):
        return None
    said = f"run {begun.run_id} of an earlier pass was not proved{': ' + record.error if record.error else ''}"
    return Step(begun.action, "failed", said, run_id=begun.run_id, is_unproved=True)


def still(begun: StartedRun, rule: Rule, command: str) -> str | None:
    """Why a run may not go on by what the rule says now; None if it may. Pure."""
    section = rule.actions.get(begun.action)
    if section is None or not section.execute:
        return f"the rule no longer says execute: true for {begun.action}"
    if mark(rule, begun.action) != begun.mark:
        return f"the rule says something else of {begun.action} now"
    return None if begun.action == command else "it is of another kind than was noted"


def _again(work: TableWork, action: str, share: Share) -> Plan | None:
    """The plan of an action for the table as it is now; what was done just now is not left alone."""

    def plan(lake: Lake) -> Plan | None:
        if action == "compact":
            return _compaction(work, lake, share)
        facts, findings = observed(lake, work.table, work.rule, work.known)
        return maintenance(lake, facts, findings, work.rule)

    return timely(work.lake, work.timeout, plan)


def _compaction(work: TableWork, lake: Lake, share: Share, trial: Stop | None = None) -> Plan | None:
    """The plan of a compaction for the table as it is now; None where nothing can be worth it.

    With what ends a ``trial`` it is tried on a clone beside the table, so only by who may work on the table now; raises
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
            return Step(action, "reported", "its trial leaves nothing to do")
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
    """Run until the leave ends; what goes wrong with the table becomes its step."""
    end = leave.end
    limit = getattr(work.rule.compact, "budget", None) if action == "compact" else None
    why = leave.why
    if limit is not None and limit.seconds is not None:
        own = work.now() + dt.timedelta(seconds=limit.seconds)
        if end is None or own < end:
            end, why = own, "the time of its budget was spent"
    try:
        stop = stopping_at(end, work.now())
        with heeded(stop.set):
            step = go(stop)
    except TableClaimed as problem:
        return Step(action, "busy", str(problem))
    except Stopped:
        step = Step(action, "stopped", "its trial was stopped, and nothing was run")
    except RunDisproved as problem:
        return Step(action, "failed", str(problem), is_unproved=True, held_by=problem.run_id)
    except IcekitError as problem:
        return Step(action, "failed", str(problem))
    return stopped_by(stop, step, why, work.note)


def stopped_by(stop: Stop, step: Step, why: str, note: Callable[[Step], object]) -> Step:
    """A step that was cut short, with who stopped it: the clock, a lost claim (which makes it busy), or a person.

    A person stops the whole pass: the step is noted, and KeyboardInterrupt raised. Pure.
    """
    if step.status != "stopped":
        return step
    if stop.reason == "clock":
        return replace(step, said=f"{step.said}; stopped, as {why}; the next pass goes on with it")
    if stop.reason == "claim":
        return replace(step, status="busy", said=f"{step.said}; another run has taken the table over; the next pass looks at what is left")
    note(replace(step, said=f"{step.said}; stopped by hand; the next pass goes on with it"))
    raise KeyboardInterrupt


# --- Hold what a pass knows of a table that it has not done with yet


@dataclass
class Table:
    """A table on its way through a pass; ``record`` is what is known of it, ``status`` what the pass says of it once it has done with it."""

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
    #: The leave that the pass's budget was shared out by; a refusal then stays one.
    leave: Permit | None = None

    @property
    def written(self) -> str:
        """``namespace.table``."""
        return display_name(self.name)

    @property
    def is_over(self) -> bool:
        """Tell whether the pass has done with it."""
        return self.status is not None

    @property
    def may_run(self) -> bool:
        """Tell whether runs may begin on it in this pass."""
        return self.record.state is TableState.DUE and not self.is_over

    @property
    def status_now(self) -> Status:
        """Its status; as long as it has none, that of its most serious step."""
        return self.status or most_serious(step.status for step in self.steps)

    def end(self, status: Status, why: str) -> None:
        """Give it its status, which no step changes any more; it is done with."""
        self.status, self.why = status, why

    def crash(self, problem: BaseException, output: Path | None) -> None:
        """End it by an error that nobody foresaw; its trace goes into a file of ``output``, where one is given."""
        said = f"{type(problem).__name__}: {first_line(problem)}"
        if output is not None:
            # A full disk must not end the pass.
            with contextlib.suppress(OSError):
                kept_in = write_text(output / f"{slug(self.written)}.error.txt", trace(problem))
                said += f"; for details see {kept_in}"
        self.end("crashed", said)

    def keep_back(self, now: dt.datetime, zone: ZoneInfo) -> None:
        """Say what failed on it, and end it if that is tried again later; what was not proved lets it be reported on."""
        failure, is_unproved = self.record.failure, self.record.state is TableState.UNPROVED
        again = failure.rests_until(self.rule) if failure and self.record.state is TableState.FAILED else None
        if failure is None or not (is_unproved or (again is not None and now < again)):
            return
        self.steps.append(Step(failure.action, "failed", failure.said, is_unproved=is_unproved))
        clear = how_to_clear(self.written)
        if again is None:
            self.why = f"nothing is run on it until a person has looked at it, and says so by {clear}"
        else:
            self.end("failed", f"{failure.often()}; it is tried again from {again.astimezone(zone):%a %H:%M %Z} on, or after {clear}")


# --- Share a pass's budget out among its tables: conversions first, then partitions of all tables by what they win


def shares(budget: PassBudget, tables: list[Table], permit: Callable[[Table], Permit]) -> dict[str, Share]:
    """What each table gets of the pass's budget; conversions come first, as nothing else helps their tables."""
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
                one.steps.append(Step("convert", "waits", "the pass's budget is too small for it beside the others", files_in=0))
                one.studied = replace(one.studied, plans={k: v for k, v in one.studied.plans.items() if k != "convert"})
            else:
                left = less(left, read, files)
    wanted = {one.written: one.studied.offers for one in tables if one.rule.compact and one.rule.compact.execute}
    return share_out(wanted, left)


# --- Let a pass end that was asked to: what it broke off is no table's failure


def while_ending(step: Step, ending: Ending) -> Step:
    """A step that failed once the process was asked to end: cut short, and not the table's failure; what was disproved stays."""
    if step.status != "failed" or step.is_unproved or not ending.is_asked:
        return step
    return replace(step, status="stopped", said=f"{step.said}; the pass was asked to end meanwhile, and the next one goes on")


def stop(tables: list[Table]) -> None:
    """Say of the tables that a pass has done nothing on that it was stopped; what it did on the others stays said."""
    for one in tables:
        if not one.is_over and not one.steps:
            one.end("stopped", "the pass was stopped by hand or by a signal; the next one goes on")
