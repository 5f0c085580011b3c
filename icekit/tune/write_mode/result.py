"""What the choice of a write mode came to, in figures, words and tables."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from icekit.tune.answer import Answer, Shown
from icekit.tune.write_mode.fit import is_lost_in_noise
from icekit.tune.write_mode.history import WriteHistory
from icekit.tune.write_mode.model import MAX_CYCLE, Changed, Comparison, Costs, Variant, even_sentence, is_robust
from icekit.tune.write_mode.trial import Measured, Trial
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.write_mode.trial import Measured


@dataclass(frozen=True, repr=False)
class WriteModeChoice(Answer):
    """The answer, with all that it rests on.

    ``reads`` are those per row-level commit (None if not known), ``reads_from`` says where that
    comes from; ``comparison`` is None when too little was measured to compare.
    """

    question: ClassVar[str] = "write-mode"

    history: WriteHistory
    operation: str
    current: Variant
    reads: float | None
    reads_from: str
    trial: Trial
    comparison: Comparison | None
    cycle_from: str
    sensitivity: tuple[Changed, ...]
    margin: float

    @property
    def is_answered(self) -> bool:
        """Tell whether the modes could be compared."""
        return self.comparison is not None

    def summary(self) -> str:
        """The answer in a few sentences."""
        head = f"{self.trial.workload.described}: "
        if self.comparison is None:
            return f"{head}too little was measured to compare the modes: {self.stopped}."
        changes = [a for a in self.advice if a.is_change]
        own = f" The table has {self.reads:,.3g} reads per commit." if self.reads is not None else ""
        said = (
            " ".join(f"Set {a.setting} to {a.proposed}: {_lowered(a.evidence)}" for a in changes)
            if changes
            else f"Nothing to change. {even_sentence(self.comparison.within(self.current.format_version))}{own}"
        )
        return f"{head}{said}"

    def tables(self) -> tuple[Shown, ...]:
        """What was measured, and the table's own row-level commits."""
        return (
            Shown("Measured", _HEAD, tuple(map(_row, self.trial.measured))),
            Shown("The table's own commits", _HISTORY, tuple(history_rows(self)), frozenset({0, 1})),
        )

    def basis(self) -> tuple[str, ...]:
        """What the answer rests on, a sentence each."""
        if self.comparison is None:
            return ()
        c = self.comparison
        reads = (
            "How often the table is read is not known." if self.reads is None else f"{self.reads:,.3g} reads per commit, {self.reads_from}."
        )
        kind = f"reads WHERE {self.trial.filter}" if self.trial.filter else "full scans"
        lines = [
            f"{reads} {_cycles(self)}; reads are {kind}, {c.read_seconds:.2f} s without deletes.",
            "Seconds are of this session and this storage. Each commit is taken to draw its files anew; a change is advised when it saves "
            f"{percent(self.margin)} or more of all cost, reads included.",
        ]
        if self.facts.has_deletes and self.trial.scale == 1:
            lines.append(
                "The deletes that the table has now were compacted away on the clones first: what is compared is what the modes add."
            )
        if is_lost_in_noise(self.trial):
            lines.append(
                "What the deletes add to a read is less than two reads of the same rows differ by, so the break-even is a guess: try more commits, more repeats, or a quieter machine."
            )
        if self.trial.scale > 1:
            lines.append(
                f"Measured on a copied sample and multiplied by {self.trial.scale:,.1f}, the size of the table by that of the sample."
            )
            if self.trial.workload.operation == "merge" and not self.trial.workload.is_synthetic:
                lines.append(
                    "Rows of your MERGE's source whose matches are not in the sample were inserted there: writes are dearer than on the table."
                )
        if self.trial.workload.operation == "merge" and self.trial.workload.is_synthetic:
            lines.append("An UPDATE stood in for the MERGE: its join is the same in each mode and is not in these figures.")
        if self.trial.equality is not None:
            e = self.trial.equality
            lines.append(
                f"The table's equality deletes belong to neither mode: a full scan takes {e.scan:.2f} s with them and {e.resolved_scan:.2f} s with the same "
                f"rows deleted by position, which took {e.resolving:.2f} s (icekit convert)."
            )
        if self.reads is not None and self.sensitivity:
            winner = c.winner(self.reads).variant
            flips = sorted({f"{x.name} × {x.factor:g}" for x in self.sensitivity if x.winner.mode != winner.mode})
            lines.append(
                "The mode stays the same with any one input half or twice as large."
                if is_robust(self.sensitivity, winner)
                else f"Another mode would win with {', '.join(flips)}."
            )
        return tuple(lines)

    def figures(self) -> dict[str, Any]:
        """A choice's figures as plain data. Seconds are on the wall, per commit where they are costs."""
        comparison, trial = self.comparison, self.trial
        return {
            "operation": self.operation,
            "current": self.current.name,
            "basis": list(self.basis()),
            "history": asdict(self.history),
            "workload": {"described": trial.workload.described, "is_synthetic": trial.workload.is_synthetic},
            "reads_per_commit": self.reads,
            "reads_from": self.reads_from,
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
                "cycle_from": self.cycle_from,
                "read_seconds": comparison.read_seconds,
                "break_even_reads_per_commit": _even(comparison),
                "variants": [_costs(comparison, c, self.reads) for c in comparison.costs],
            },
            "sensitivity": [
                {"input": c.name, "factor": c.factor, "winner": c.winner.name, "break_even_reads_per_commit": _finite(c.break_even)}
                for c in self.sensitivity
            ],
            "margin": self.margin,
        }


_HEAD = ("mode", "commit", "written", "files", "full scan", "deletes opened", "compaction")
_HISTORY = ("what", "how", "commits", "rows changed", "rows written per row", "bytes per row", "files touched", "partitions")


def _cycles(choice: WriteModeChoice) -> str:
    """How often each way to write is compacted."""
    c = choice.comparison
    assert c is not None
    if c.commits is not None:
        return f"{count(c.commits, 'commit')} between compactions, {choice.cycle_from}"
    if choice.reads is None:
        return f"Compacted {choice.cycle_from}"
    merging = [
        (x.variant.name.removeprefix("merge-on-read, "), c.cycle(x, choice.reads)) for x in c.costs if not x.variant.is_copy_on_write
    ]
    each = ", ".join(f"every {count(n, 'commit')} with {name}" if n < MAX_CYCLE else f"never with {name}" for name, n in merging)
    return f"Compacted {choice.cycle_from}: {each}"


def history_rows(choice: WriteModeChoice) -> list[tuple[str, ...]]:
    """The row-level commits of the history, by kind and mode, as text."""
    return [
        (
            o.kind,
            o.mode or "",
            f"{o.commit_count:,}",
            _number(o.rows_changed),
            "–" if o.row_amplification is None else f"{o.row_amplification:,.1f}",
            "–" if o.bytes_per_row_changed is None else size(o.bytes_per_row_changed),
            "–" if o.file_share is None else percent(o.file_share),
            _number(o.partitions),
        )
        for o in choice.history.row_level
    ]


def _row(m: Measured) -> tuple[str, ...]:
    return (
        m.variant.name,
        _seconds(m.write),
        "–" if m.bytes_written is None else size(m.bytes_written),
        _number(m.files_written),
        _seconds(m.scan),
        "–" if m.planned is None else f"{m.planned.delete_opens:,}",
        _seconds(m.compaction_seconds),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


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
