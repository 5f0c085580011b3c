"""The figures of a choice, for its JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from icekit.tune.write_mode.model import Comparison, Costs
from icekit.tune.write_mode.service import WriteModeChoice
from icekit.tune.write_mode.trial import Measured


def figures(choice: WriteModeChoice) -> dict[str, Any]:
    """A choice's figures as plain data. Seconds are on the wall, per commit where they are costs."""
    comparison, trial = choice.comparison, choice.trial
    return {
        "operation": choice.operation,
        "current": choice.current.name,
        "basis": list(choice.basis()),
        "history": asdict(choice.history),
        "workload": {"described": trial.workload.described, "is_synthetic": trial.workload.is_synthetic},
        "reads_per_commit": choice.reads,
        "reads_from": choice.reads_from,
        "trial": {
            "seconds": round(trial.seconds, 3),
            "scale": trial.scale,
            "filter": trial.filter,
            "equality_deletes": asdict(trial.equality) if trial.equality else None,
            "measured": [_measured(m) for m in trial.measured],
        },
        "comparison": None
        if comparison is None
        else {
            "cycle_from": choice.cycle_from,
            "read_seconds": comparison.read_seconds,
            "break_even_reads_per_commit": _even(comparison),
            "variants": [_costs(comparison, c, choice.reads) for c in comparison.costs],
        },
        "sensitivity": [
            {"input": c.name, "factor": c.factor, "winner": c.winner.name, "break_even_reads_per_commit": _finite(c.break_even)}
            for c in choice.sensitivity
        ],
        "margin": choice.margin,
    }


def _measured(m: Measured) -> dict[str, Any]:
    return {
        "mode": m.variant.name,
        "format_version": m.variant.format_version,
        "commit_seconds": m.write_seconds,
        "commits": [asdict(c) for c in m.changes],
        "scan_seconds": m.scan_seconds,
        "filtered_seconds": m.filtered_seconds,
        "planned": asdict(m.planned) if m.planned else None,
        "compaction_seconds": m.compaction_seconds,
        "compacted_bytes": m.compacted_bytes,
    }


def _costs(comparison: Comparison, costs: Costs, reads: float | None) -> dict[str, Any]:
    cost = comparison.per_commit(costs, reads) if reads is not None else None
    model = {k: v for k, v in asdict(costs).items() if k != "variant"}
    return {
        "mode": costs.variant.name,
        **model,
        "commits_between_compactions": comparison.cycle(costs, reads or 0.0),
        "cost_per_commit": {**asdict(cost), "total": cost.total} if cost else None,
    }


def _even(comparison: Comparison) -> float | None:
    found = comparison.main_break_even()
    return _finite(found[2]) if found else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
