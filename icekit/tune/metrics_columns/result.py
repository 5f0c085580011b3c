"""What the question about metrics came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from icekit.tune.answer import Answer
from icekit.tune.filters import Filters
from icekit.tune.metrics_columns.model import EntryBytes, Prefix, Skipping, Trial


@dataclass(frozen=True, repr=False)
class MetricsColumns(Answer):
    """Which columns have metrics, what they cost and skip, and what to set.

    ``entry`` are the bytes in sampled manifests, ``roles`` what columns are needed for, by name; ``trial`` is None where there
    was nothing to try. ``notes`` say in sentences what could not be told.
    """

    question: ClassVar[str] = "metrics-columns"

    entry: EntryBytes
    roles: dict[str, tuple[str, ...]]
    filters: Filters
    skipping: tuple[Skipping, ...]
    prefixes: tuple[Prefix, ...]
    trial: Trial | None
    notes: tuple[str, ...]

    def figures(self) -> dict[str, Any]:
        """What was measured: bytes and seconds, unrounded."""
        modes = {c.name: c.metrics_mode for c in self.facts.columns}
        return {
            "manifests": asdict(self.facts.manifests) | {"overlaps": len(self.facts.manifests.overlaps)},
            "entry": asdict(self.entry)
            | {
                "columns": [
                    asdict(c) | {"mode": modes.get(c.column), "roles": list(self.roles.get(c.column, ()))} for c in self.entry.columns
                ]
            },
            "filters": [{"text": f.text, "weight": f.weight, "origin": f.origin, "columns": list(f.columns)} for f in self.filters.filters],
            "skipping": [
                asdict(s) | {"kinds": sorted(s.kinds), "by_mode": dict(s.by_mode), "full": s.full, "best": s.best[0] if s.best else None}
                for s in self.skipping
            ],
            "prefixes": [asdict(p) for p in self.prefixes],
            "trial": None
            if self.trial is None
            else asdict(self.trial) | {"shrinks": self.trial.shrinks, "entry_bytes": self.trial.entry_bytes},
            "notes": list(self.notes),
        }
