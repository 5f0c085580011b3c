"""Write a plan and its actions' outcomes as the ledger keeps them, and read them back."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from icekit.compact.lineage import Actual
from icekit.compact.model import Action, Plan
from icekit.compact.outcome import CONVERTED, ActionOutcome
from icekit.compact.records import ActionRecord, RunRecord
from icekit.secrets import mask_data

_PLAN = TypeAdapter(Plan)


def kept(plan: Plan) -> dict[str, Any]:
    """A plan as the ledger keeps it; empty where masking its secrets would change what a resumed run does."""
    written: dict[str, Any] = _PLAN.dump_python(plan, mode="json")
    return written if mask_data(written) == written else {}


def plan_of(record: RunRecord) -> Plan:
    """The plan of a run whose record holds one."""
    return _PLAN.validate_python(record.plan)


def as_before(action: Action, record: ActionRecord) -> ActionOutcome:
    """What became of an action that a run has done and proved before it ended."""
    told: dict[str, Any] = {CONVERTED.get(name, name): value for name, value in (record.actual or {}).items()}
    names = ("files_in", "bytes_in", "files_out", "bytes_out", "delete_files_removed", "items_before", "items_after")
    known = {k: int(told[k]) for k in names if k in told}
    return ActionOutcome(
        action,
        "done",
        record.attempt,
        Actual(**known, commits=len(record.snapshot_ids)),
        float(told.get("seconds", 0.0)),
        record.snapshot_ids,
    )
