"""Write a choice as JSON with a schema version, for whoever schedules it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icekit.report.document import versions, write_text
from icekit.secrets import scrub_data
from icekit.show.write_mode import basis, summary
from icekit.tune.write_mode.model import Comparison, Costs
from icekit.tune.write_mode.service import WriteModeChoice
from icekit.tune.write_mode.trial import Measured

#: Raised by one when a field changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 1


def document(choice: WriteModeChoice) -> dict[str, Any]:
    """A choice as plain data; secrets are taken out when it is written. Seconds are on the wall, per commit where they are costs."""
    comparison, trial = choice.comparison, choice.trial
    return {
        "schema_version": SCHEMA_VERSION,
        "catalog": choice.facts.catalog,
        "table": choice.name,
        "snapshot_id": choice.facts.snapshot_id,
        "operation": choice.operation,
        "current": choice.current.name,
        "summary": summary(choice),
        "basis": list(basis(choice)),
        "history": asdict(choice.history),
        "workload": {"described": trial.workload.described, "is_synthetic": trial.workload.is_synthetic},
        "reads_per_commit": choice.reads,
        "reads_from": choice.reads_from,
        "trial": {
            "seconds": round(trial.seconds, 3),
            "scale": trial.scale,
            "filter": trial.filter,
            "stopped": trial.stopped,
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
        "advice": [asdict(a) for a in choice.advice],
        "versions": versions(),
    }


def write(choice: WriteModeChoice, path: Path) -> Path:
    """Write the document; a reader never sees half of one."""
    return write_text(path, json.dumps(scrub_data(document(choice)), indent=1, default=str, allow_nan=False), clean=True)


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
