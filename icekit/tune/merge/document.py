"""Write a review of a MERGE as JSON with a schema version, for whoever schedules it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from icekit.saving import versions
from icekit.sql import display_name
from icekit.tune.merge.model import EnginePlan, Review

#: Raised by one when a field changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 1


def document(review: Review) -> dict[str, Any]:
    """A review as JSON: figures in bytes and seconds, the SQL as it is to be run."""
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "table": display_name(review.table),
        "branch": review.statement.branch,
        "statement": review.statement.sql,
        "versions": versions(),
        "clauses": list(review.statement.clauses),
        "total": asdict(review.total),
        "plan": _plan(review.plan),
        "rewrite": None,
        "storage_partitioned_join": {
            "is_used": review.partitioned_join.is_used,
            "is_possible": review.partitioned_join.is_possible,
            "settings": dict(review.partitioned_join.settings),
            "lacks": list(review.partitioned_join.lacks),
            "layout": list(review.partitioned_join.layout),
        },
        "lines": [asdict(line) for line in review.lines],
        "stopped": review.stopped,
        "trials": [{**asdict(trial), "is_same": trial.is_same} for trial in review.trials],
    }
    if review.rewrite is not None:
        found["rewrite"] = {
            "sql": review.rewrite.sql,
            "predicate": review.rewrite.predicate,
            "guard": review.rewrite.guard,
            "added": [asdict(added) for added in review.rewrite.added],
            "plan": _plan(review.rewrite.plan),
        }
    return found


def _plan(plan: EnginePlan) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(plan).items() if k != "tree"}, "is_target_shuffled": plan.is_target_shuffled}
