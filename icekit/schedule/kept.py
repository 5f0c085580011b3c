"""Write a table's result as plain data, for the record of passes and for pass.json, and read its health back."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from icekit.schedule.model import Rule
from icekit.schedule.result import Health, TableResult

_HEALTH = TypeAdapter(Health)


def as_data(result: TableResult) -> dict[str, Any]:
    """A result as plain data."""
    made = asdict(result)
    for step in made["steps"]:
        del step["plan"]
    return made | {"is_unhealthy": result.is_unhealthy, "exit_status": result.exit_status}


def kept(result: TableResult, rule: Rule, snapshot_id: int | None) -> dict[str, Any]:
    """A result as the record of passes holds it; ``snapshot_id`` is what its report was of, None if that has changed since."""
    return as_data(result) | {"by": _mark(rule), "snapshot_id": snapshot_id}


def same_report(document: dict[str, Any] | None, rule: Rule, snapshot_id: int | None) -> Health | None:
    """The health of a table whose last report would come out the same now: same snapshot, same rule, and not yet passed."""
    if not document or snapshot_id is None or document.get("snapshot_id") != snapshot_id or document.get("by") != _mark(rule):
        return None
    return health_in(document) if document.get("status") in {"waits", "stopped", "busy"} else None


def _mark(rule: Rule) -> str:
    return hashlib.sha256(rule.model_dump_json(exclude={"hours", "quiet_hours"}).encode()).hexdigest()[:16]


def health_in(document: dict[str, Any] | None) -> Health | None:
    """The health that a kept result holds; None without one, or where another version wrote it."""
    if not document or not document.get("health"):
        return None
    try:
        return _HEALTH.validate_python(document["health"])
    except ValidationError:
        return None
