"""The answer: how filters find a table's partitions, files and row groups, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from icekit.tune.answer import Answer
from icekit.tune.layout.model import BloomCheck, BloomTrial, Candidate, Level, Orders, Sizing, Tried, Worn


@dataclass(frozen=True, repr=False)
class Layout(Answer):
    """What filters read of a table now, of other layouts on a sample, and of the one that was tried; see :func:`tune_layout`.

    ``share_now`` is the share of the data bytes that the filters read, by weight: by Iceberg's planner, or by the sample where
    ``is_measured`` is false. ``notes`` say what was left out and why.
    """

    question: ClassVar[str] = "layout"

    levels: tuple[Level, ...]
    share_now: float
    is_measured: bool
    sampled_rows: int
    orders: Orders
    candidates: tuple[Candidate, ...]
    worn: tuple[Worn, ...]
    blooms: tuple[BloomCheck, ...]
    bloom_trials: tuple[BloomTrial, ...]
    sizing: Sizing | None
    tried: Tried | None
    notes: tuple[str, ...]

    def figures(self) -> dict[str, Any]:
        """What was measured: shares of the data bytes, bytes, files, rows."""
        return {
            "share_now": self.share_now,
            "is_measured": self.is_measured,
            "sampled_rows": self.sampled_rows,
            "levels": [asdict(level) for level in self.levels],
            "orders": asdict(self.orders),
            "specs": [{"name": c.name, **asdict(c)} for c in self.candidates],
            "worn": [asdict(w) for w in self.worn],
            "blooms": [asdict(b) for b in self.blooms],
            "bloom_trials": [asdict(t) for t in self.bloom_trials],
            "sizing": asdict(self.sizing) if self.sizing else None,
            "tried": asdict(self.tried) if self.tried else None,
            "notes": list(self.notes),
        }
