"""Run on one table what its rule allows, in order; each plan is made again where the one before changed the table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from icekit.catalog import Lake
from icekit.compact import Limits, Outcome, Plan, resume, run
from icekit.compact.execute import Stop
from icekit.compact.kept import plan_of
from icekit.compact.ledger import opened
from icekit.errors import IcekitError, TableClaimed
from icekit.notebook import sampled
from icekit.schedule.budget import Share
from icekit.schedule.model import ACTIONS, Rule
from icekit.schedule.permitted import Permit, stopping_at
from icekit.schedule.result import Status, Step
from icekit.schedule.study import Studied, compaction, maintenance, observed
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name
from icekit.units import count, size

Say = Callable[[str], None]
#: Statuses of a run whose rest is worth resuming. What failed is planned anew: its plan is why.
CUT_SHORT = ("running", "stopped")


@dataclass(frozen=True)
class Work:
    """What acting on a table needs to know; ``permit`` is asked before each action."""

    lake: Lake
    table: Identifier
    rule: Rule
    ledger: str
    permit: Callable[[], Permit]
    now: Callable[[], dt.datetime]
    say: Say

    @property
    def name(self) -> str:
        """``namespace.table``."""
        return display_name(self.table)

    def is_allowed(self, action: str) -> bool:
        """Tell whether the rule says ``execute: true`` for an action."""
        section = self.rule.actions.get(action)
        return section is not None and section.execute

    def limits(self, action: str) -> Limits:
        """How much of an action is proved."""
        return Limits(prove=sampled(self.rule.actions[action].prove))


def act(work: Work, studied: Studied, share: Share, *, dry_run: bool) -> tuple[Step, ...]:
    """Go through the actions of a table's plans; returns a step for each, run or not."""
    steps: list[Step] = []
    changed = False
    for action in ACTIONS:
        plan = studied.plans.get(action)
        if plan is None and not (changed and work.is_allowed(action)):
            continue
        if plan is not None and not work.is_allowed(action):
            steps.append(planned(action, plan, f"its rule does not say execute: true for {action}"))
            continue
        leave = work.permit()
        wait = _wait(action, plan, share, leave)
        if wait is not None:
            steps.append(planned(action, plan, wait, status="waits") if plan else Step(action, "waits", wait))
            continue
        if changed or (action == "compact" and share.cut):
            plan = _again(work, action, share)
        if plan is None or not plan.actions:
            if share.cut and action == "compact":
                steps.append(Step(action, "waits", "what the pass's budget leaves for it is too little for any partition"))
            continue
        if dry_run:
            steps.append(planned(action, plan, "this is what would be run"))
            continue
        step = _run(work, action, plan, leave)
        steps.append(step)
        changed = changed or step.run_id is not None
        if step.status == "done" and action == "compact" and (share.cut or leaves_for_budget(plan)):
            steps.append(Step(action, "waits", "its other partitions are left to the next pass by the budget"))
        if step.status in {"busy", "stopped", "failed"}:
            break
    return tuple(steps)


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


def unfinished(work: Work, begun_ms: int) -> Step | None:
    """Go on with the run that an earlier pass of this policy began and did not end; None if there is none.

    A run of somebody else's is not touched. What the rule no longer allows is not resumed.
    """
    full = display_name(work.lake.sql_name(work.table))
    with opened(work.ledger or None, work.lake) as book:
        record = book.last_run(full)
    if record is None or record.started_ms < begun_ms or record.status not in CUT_SHORT or not record.plan:
        return None
    plan = plan_of(record)
    if not work.is_allowed(plan.command):
        return None
    leave = work.permit()
    if not leave.granted:
        return Step(plan.command, "waits", f"run {record.run_id} is unfinished; {leave.why}", run_id=record.run_id)
    return _guarded(
        plan.command,
        leave,
        work,
        lambda stop: resume(
            work.lake,
            work.table,
            command=plan.command,
            ledger=work.ledger or None,
            limits=work.limits(plan.command),
            stop=stop,
            progress=work.say,
        ),
    )


def planned(action: str, plan: Plan, why: str, *, status: Status = "planned") -> Step:
    """A step that was not run: what it would do, by its prediction, and why it was not."""
    total = plan.prediction
    return Step(
        action,
        status,
        f"{_would(action, plan)}; {why}",
        tuple(one.sql for one in plan.actions),
        files_in=total.files_in,
        bytes_in=total.bytes_in,
        files_out=total.files_out,
        bytes_out=total.bytes_out,
        plan=repr(plan),
    )


def _would(action: str, plan: Plan) -> str:
    if action == "compact":
        p = plan.prediction
        return f"{count(p.files_in, 'file')} → {count(p.files_out, 'file')}, {size(p.bytes_in)}"
    return ", ".join(
        f"{one.procedure}: {count(one.prediction.files_in, one.prediction.unit)} → {count(one.prediction.files_out, one.prediction.unit_out)}"
        for one in plan.actions
    )


def _again(work: Work, action: str, share: Share) -> Plan | None:
    """The plan of an action for the table as it is now; what was done just now is not left alone."""
    facts, findings = observed(work.lake, work.table, work.rule)
    if action == "compact":
        return compaction(work.lake, facts, findings, work.rule, ledger=work.ledger, now=work.now(), share=share)
    return maintenance(work.lake, facts, findings, work.rule)


def _run(work: Work, action: str, plan: Plan, leave: Permit) -> Step:
    work.say(f"{plan!r}\n")
    given: Mapping[str, object] = {"ledger": work.ledger or None, "limits": work.limits(action), "progress": work.say}
    return _guarded(action, leave, work, lambda stop: run(work.lake, plan, execute=True, stop=stop, **given))  # type: ignore[arg-type]


def _guarded(action: str, leave: Permit, work: Work, go: Callable[[Stop], Outcome]) -> Step:
    """Run until the leave ends; what goes wrong with the table becomes its step."""
    end = leave.end
    limit = getattr(work.rule.compact, "budget", None) if action == "compact" else None
    why = leave.why
    if limit is not None and limit.seconds is not None:
        own = work.now() + dt.timedelta(seconds=limit.seconds)
        if end is None or own < end:
            end, why = own, "the time of its budget was spent"
    try:
        with stopping_at(end, work.now()) as stop:
            outcome = go(stop)
    except TableClaimed as problem:
        return Step(action, "busy", str(problem))
    except IcekitError as problem:
        return Step(action, "failed", scrub(str(problem)))
    if outcome.status == "stopped" and not stop.by_clock:
        raise KeyboardInterrupt  # by a person, and not by the clock
    return _step(action, outcome, why)


def _step(action: str, outcome: Outcome, why: str) -> Step:
    total = outcome.actual
    statuses: dict[str, Status] = {"done": "done", "nothing to do": "done", "stopped": "stopped"}
    status = statuses.get(outcome.status, "failed")
    error = next((a.error for a in outcome.actions if a.error), None)
    if action == "compact":
        said = f"{count(total.files_in, 'file')} → {count(total.files_out, 'file')}, {size(total.bytes_in)} read"
    else:
        said = ", ".join(
            f"{a.action.procedure}: {count(a.actual.items_before, a.action.prediction.unit)} → {count(a.actual.items_after, a.action.prediction.unit_out)}"
            for a in outcome.actions
        )
    if status == "stopped":
        said += f"; stopped, as {why}; the next pass goes on with it"
    elif status == "failed":
        said += f"; {outcome.status}{': ' + error if error else ''}"
    elif outcome.proof is not None:
        said += ", proved" if outcome.proof.ok else ""
    return Step(
        action,
        status,
        said,
        tuple(a.action.sql for a in outcome.actions),
        outcome.run_id,
        total.files_in,
        total.bytes_in,
        total.files_out,
        total.bytes_out,
        outcome.seconds,
    )
