"""Try variants of a table side by side, each in a sandbox of its own, until the figures have
settled or the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from icekit.facts.model import TableFacts
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import set_properties
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements
from icekit.units import count, percent

#: A choice: the rounds at most of a workload whose figures do not settle, for each one asked for.
_MOST_ROUNDS = 3
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
        self.trial.progress(f"{self.trial.facts.name}: setting up {', '.join(names)}")
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
        is_settled: Callable[[Measurements], bool] | None = None,
        only: Collection[str] = (),
    ) -> None:
        """Run a workload in each sandbox in turn (or ``only`` in some), for ``rounds``, and with
        ``is_settled`` on until its figures have settled, for three times as many at most.
        """
        boxes = {name: box for name, box in self.boxes.items() if not only or name in only}
        self.trial.progress(f"measuring {what} ({count(len(boxes), 'variant')})")
        for number in range(rounds if is_settled is None else _MOST_ROUNDS * rounds):
            if is_settled is not None and number >= rounds and is_settled(self.measured):
                break
            for name, box in boxes.items():
                self.measured.add(name, workload(name, box))

    def confidence(self, *, is_enough: bool = True) -> tuple[Confidence, str]:
        """How sure an answer from these measurements is, and why; not at all unless they are
        enough.
        """
        stopped = self.trial.stopped
        if not (is_enough and self.measured.rounds):
            why = f": {stopped}" if stopped else ""
            return Confidence.NONE, f"too little was measured{why}."
        if stopped:
            return Confidence.LOW, f"the trial is incomplete: {stopped}."
        if samples := [box.scale for box in self.boxes.values() if box.is_sample]:
            share = percent(1 / max(samples))
            return Confidence.MEDIUM, f"tried on a copied sample of {share} of the table."
        return Confidence.HIGH, "tried on zero-copy clones of the table."

    def answer(
        self,
        question: str,
        verdict: str,
        changes: Iterable[Change],
        notes: Iterable[str] = (),
        *,
        is_enough: bool = True,
        **fields: Any,
    ) -> Answer:
        """The answer from these measurements; ``fields`` are others of it."""
        confidence, because = self.confidence(is_enough=is_enough)
        return Answer(
            question=question,
            facts=self.trial.facts,
            verdict=verdict,
            changes=tuple(changes),
            measured=self.measured,
            confidence=confidence,
            because=because,
            notes=tuple(notes),
            stopped=self.trial.stopped,
            **fields,
        )


def unknown_filters(question: str, facts: TableFacts, notes: Iterable[str]) -> Answer:
    """The answer where nobody has said what queries filter by."""
    declare = set_properties(facts.sql_name, {"icekit.filter-columns": "a,b"})
    return Answer(
        question=question,
        facts=facts,
        verdict="No advice: the filters of your queries are not known. Give filters or a Spark "
        f"event log, or declare filter columns ({declare}).",
        because="without filters, nothing can be compared.",
        notes=tuple(notes),
    )
