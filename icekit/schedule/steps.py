"""Say of a plan what it would do, and of a run what it did; pure."""

from __future__ import annotations

from icekit.compact import Outcome, Plan
from icekit.schedule.result import Status, Step
from icekit.units import count, size


def planned(action: str, plan: Plan, why: str, *, status: Status = "planned") -> Step:
    """A step that was not run: what it would do, by its prediction, and why it was not."""
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
        p = plan.prediction
        return f"{count(p.files_in, 'file')} → {count(p.files_out, 'file')}, {size(p.bytes_in)}"
    return ", ".join(
        f"{one.procedure}: {count(one.prediction.files_in, one.prediction.unit)} → {count(one.prediction.files_out, one.prediction.unit_out)}"
        for one in plan.actions
    )


def ran(action: str, outcome: Outcome) -> Step:
    """A step that was run: what became of it, by the table's own commits."""
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
    if action == "convert":
        said += f"; {count(total.files_in, 'file')}, {size(total.bytes_in)} read, {size(total.bytes_out)} written"
    if status == "failed":
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
        is_unproved=outcome.status == "not proved",
    )
