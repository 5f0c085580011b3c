"""Try variants of a table side by side, each in a sandbox of its own, until the figures have
settled or the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements
from icekit.units import count, percent

#: What a variant changes of a sandbox before it is measured.
SetUp = Callable[[Sandbox], object]
#: Figures by the name of their measure.
Figures = dict[str, float]
#: One round of a workload: runs it in the sandbox of a variant.
Workload = Callable[[str, Sandbox], Figures]


def mean(weighted: Iterable[tuple[float, float]]) -> float:
    """The mean of pairs of weight and value; 0 without any."""
    pairs = list(weighted)
    return sum(weight * value for weight, value in pairs) / (
        sum(weight for weight, _ in pairs) or 1.0
    )


def unchanged(_: Sandbox) -> None:
    """Set up the variant that is the table as it is."""


@dataclass(kw_only=True)
class Experiment:
    """Variants by name × measures, on zero-copy clones, or on copied samples where the catalog
    refuses clones or with ``always_sample``.

    ``spare`` sandboxes are not measured: for a warm-up, or for a step that is not a variant.

    ``with experiment.open():`` provides and sets up the sandboxes, and removes them; it ends the
    block, but not the question, when the budget is spent or the engine fails, and what was measured
    stands.
    """

    trial: Trial
    variants: Mapping[str, SetUp]
    measures: Sequence[Measure]
    always_sample: bool = False
    spare: int = 0
    measured: Measurements = field(init=False)
    boxes: dict[str, Sandbox] = field(init=False, default_factory=dict)
    spares: Sequence[Sandbox] = field(init=False, default=())

    def __post_init__(self) -> None:
        self.measured = Measurements(tuple(self.measures))

    @contextmanager
    def open(self) -> Iterator[None]:
        """Provide the sandboxes, each set up as its variant; ``boxes`` is empty in the block where
        that failed.
        """
        names = list(self.variants)
        with (
            self.trial.attempt(),
            self.trial.sandboxes(
                len(names) + self.spare, always_sample=self.always_sample
            ) as boxes,
        ):
            boxes_by_name = dict(zip(names, boxes, strict=False))
            for name, set_up in self.variants.items():
                set_up(boxes_by_name[name])
            self.boxes, self.spares = boxes_by_name, boxes[len(names) :]
            yield
        if not self.boxes:
            yield

    def measure(
        self,
        what: str,
        workload: Workload,
        *,
        rounds: int = 1,
        most_rounds: int = 0,
        is_settled: Callable[[Measurements], bool] | None = None,
        only: Collection[str] = (),
    ) -> None:
        """Run a workload in each sandbox in turn (or ``only`` in some), for ``rounds``, and on
        until its figures have settled or ``most_rounds`` are done.
        """
        boxes = {name: box for name, box in self.boxes.items() if not only or name in only}
        self.trial.progress(f"measuring {what} of {count(len(boxes), 'variant')}")
        for number in range(max(rounds, most_rounds)):
            if number >= rounds and (is_settled is None or is_settled(self.measured)):
                break
            for name, box in boxes.items():
                self.measured.add(name, workload(name, box))

    @property
    def is_sample(self) -> bool:
        """Tell whether the figures are those of a sample."""
        return any(box.is_sample for box in self.boxes.values())

    @property
    def scale(self) -> float:
        """How many times as large as the sandboxes the table is."""
        return max((box.scale for box in self.boxes.values()), default=1.0)

    def confidence(self) -> tuple[Confidence, str]:
        """How sure an answer from these measurements is, and why."""
        if not self.measured.rounds:
            why = f": {self.trial.stopped}" if self.trial.stopped else ""
            return Confidence.NONE, f"nothing was measured{why}."
        if self.trial.stopped:
            return Confidence.LOW, f"the trial is incomplete: {self.trial.stopped}."
        if self.is_sample:
            return (
                Confidence.MEDIUM,
                f"tried on a copied sample of {percent(1 / self.scale)} of the table.",
            )
        return Confidence.HIGH, "tried on zero-copy clones of the table."

    def answer(
        self,
        question: str,
        verdict: str,
        changes: Iterable[Change],
        notes: Iterable[str] = (),
        **fields: Any,
    ) -> Answer:
        """The answer from these measurements; ``fields`` are others of it."""
        confidence, because = self.confidence()
        fields = {"confidence": confidence, "because": because, **fields}
        return Answer(
            question=question,
            facts=self.trial.facts,
            verdict=verdict,
            changes=tuple(changes),
            measured=self.measured,
            notes=tuple(notes),
            stopped=self.trial.stopped,
            **fields,
        )
