"""Make results of passes and metadata without a table."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.reading import parse_policy
from icekit.schedule.result import Pass, Step, TableHealth, TableResult

NOW = dt.datetime(2026, 1, 14, 12, 0, tzinfo=dt.UTC)  # a Wednesday
NOW_MS = int(NOW.timestamp() * 1000)
HERE = Path("/policies/policy.yaml")


def policy(text: str = "", **top: str) -> SchedulePolicy:
    """A policy of one rule, with more YAML after it."""
    more = "".join(f"{key}: {value}\n" for key, value in top.items())
    return parse_policy(f"version: 1\n{more}tables:\n  - name: all\n    match: '**'\n{text}", HERE)


def health(status: str = "critical", *findings: str, **changed: Any) -> TableHealth:
    named = tuple((name, status) for name in findings or (() if status == "healthy" else ("small_files",)))
    given: dict[str, Any] = {
        "status": status,
        "findings": named,
        "data_files": 10,
        "data_bytes": 1000,
        "records": 100,
        "delete_files": 0,
        "delete_records": 0,
        "reported_ms": NOW_MS,
        "page": "all/db.t.html",
    }
    return TableHealth(**given | changed)


def result(table: str = "db.t", **changed: Any) -> TableResult:
    made: dict[str, Any] = {"table": table, "rule": "all", "status": "reported", "why": "its first pass", "health": health("healthy")}
    return TableResult(**made | changed)


def step(action: str = "compact", status: Any = "done", said: str = "10 files → 1 file", **changed: Any) -> Step:
    return Step(action, status, said, **changed)


def made(*tables: TableResult, **changed: Any) -> Pass:
    given: dict[str, Any] = {
        "policy": "nightly",
        "catalog": "prod",
        "is_dry_run": False,
        "started": NOW,
        "seconds": 12.0,
        "tables": tables or (result(),),
    }
    return Pass(**given | changed)


def snapshot(number: int, **summary: Any) -> dict[str, Any]:
    """A commit; its parent is the one before."""
    said = {key.replace("_", "-"): str(value) for key, value in summary.items()}
    return {"snapshot-id": number, "parent-snapshot-id": number - 1 if number > 1 else None, "timestamp-ms": number, "summary": said}


def metadata(*snapshots: dict[str, Any], uuid: str = "u") -> dict[str, Any]:
    return {
        "table-uuid": uuid,
        "current-snapshot-id": snapshots[-1]["snapshot-id"] if snapshots else None,
        "snapshots": list(snapshots),
        "properties": {"write.target-file-size-bytes": "1000"},
    }
