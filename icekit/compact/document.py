"""Write a plan and what became of it as JSON with a schema version, for whoever schedules it."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any

from icekit.compact.model import Action
from icekit.compact.outcome import ActionOutcome, Outcome, measured
from icekit.saving import versions

#: Raised by one when a field changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 1
# Partitions that an action lists; the others are counted.
_PARTITIONS = 100


def document(outcome: Outcome) -> dict[str, Any]:
    """A plan and its outcome as plain data; secrets are taken out when it is written."""
    plan = outcome.plan
    proof = outcome.proof
    return {
        "schema_version": SCHEMA_VERSION,
        "catalog": plan.catalog,
        "table": plan.name,
        "status": outcome.status,
        "exit_status": outcome.exit_status,
        "run_id": outcome.run_id,
        "planned_at": dt.datetime.fromtimestamp(plan.made_at_ms / 1000, dt.UTC).isoformat(),
        "snapshot_id": plan.snapshot_id,
        "seconds": round(outcome.seconds, 3),
        "versions": versions() | ({"iceberg": outcome.iceberg_version} if outcome.iceberg_version else {}),
        "predicted": asdict(plan.prediction) if plan.actions else None,
        "actual": None if outcome.is_dry_run else asdict(outcome.actual),
        "actions": [_action(one) for one in outcome.actions],
        "left_alone": [asdict(left) for left in plan.left_alone],
        "parallelism": [asdict(said) for said in plan.parallelism],
        "notes": [*plan.notes, *outcome.notes],
        "rehearsed": plan.rehearsed,
        "proof": None
        if proof is None
        else {"ok": proof.ok, "mode": proof.mode, "seconds": round(proof.seconds, 3), "said": repr(proof).split("\n")},
        "leftovers": list(outcome.leftovers),
        "clean_up": outcome.clean_up,
    }


def _action(one: ActionOutcome) -> dict[str, Any]:
    action: Action = one.action
    return {
        "action_id": action.action_id,
        "procedure": action.procedure,
        "why": action.why,
        "sql": action.sql,
        "partition_count": len(action.partitions),
        "partitions": list(action.partition_names[:_PARTITIONS]),
        "predicted": asdict(action.prediction),
        "status": one.status,
        "attempts": one.attempts,
        "actual": dict(measured(one)) if one.actual.any else None,
        "snapshot_ids": list(one.snapshot_ids),
        "error": one.error,
    }
