"""Try variants of a table side by side, each in a sandbox of its own, until the figures have
settled or the budget is spent.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from icekit.common.sql import set_properties
from icekit.common.units import count, percent
from icekit.health.facts.model import TableFacts
from icekit.iceberg.metadata import ROW_GROUP, TARGET
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements
from icekit.tune.filters import Asked

#: A choice: a workload whose figures do not settle is run at most this many times as often.
_MOST_ROUNDS = 3
#: Figures by the name of their measure.
Figures = dict[str, float]
#: What a variant changes of a sandbox before it is measured, and the figures of that.
SetUp = Callable[[Sandbox], Figures | None]
#: One round of a workload: runs it in the sandbox of a variant.
Workload = Callable[[str, Sandbox], Figures]


def planned(box: Sandbox, filters: Asked) -> Mapping[str, float]:
    """The figures of a :class:`~icekit.engine.planner.PlannedScan`, on average over filters by
    their weight; those of a full scan without filters.
    """
    plans = [(f.weight, asdict(box.plan(where))) for f, where in filters]
    plans = plans or [(1.0, asdict(box.plan()))]
    total = sum(weight for weight, _ in plans)
    return {
        name: sum(weight * plan[name] for weight, plan in plans) / total for name in plans[0][1]
    }


def unchanged(_: Sandbox) -> None:
    """Set up the variant that is the table as it is."""


def scale_files(box: Sandbox, facts: TableFacts, target_bytes: int) -> None:
    """Give a sandbox a target size of files, and row groups in proportion to it."""
    group = max(facts.int_setting(ROW_GROUP) * target_bytes // facts.target_bytes, 1)
    box.set(set_properties(box.name, {TARGET: str(target_bytes), ROW_GROUP: str(group)}))


@dataclass(kw_only=True)
class Experiment:
    """Variants by name × measures, on zero-copy clones, or on copied samples where the catalog
    refuses clones or with ``always_sample``.

    ``with experiment.open():`` provides and sets up the sandboxes, and removes them; it ends the
    block, but not the question, when the budget is spent or the engine fails, and what was measured
    stands.
    """

    trial: Trial
    variants: Mapping[str, SetUp]
    measures: Sequence[Measure]
    always_sample: bool = False
    measured: Measurements = field(init=False)
    boxes: dict[str, Sandbox] = field(init=False, default_factory=dict)

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
            self.trial.sandboxes(len(names), always_sample=self.always_sample) as boxes,
        ):
            boxes_by_name = dict(zip(names, boxes, strict=True))
            for name, set_up in self.variants.items():
                self.measured.add(name, set_up(boxes_by_name[name]) or {})
            self.boxes = boxes_by_name
            yield
        if not self.boxes:
            yield

    def measure(
        self,
        what: str,
        workload: Workload,
        *,
        rounds: int = 1,
        is_settled: Callable[[Measurements], bool] = lambda _: True,
        only: Collection[str] = (),
    ) -> None:
        """Run a workload in each sandbox in turn (or ``only`` in some), for ``rounds``, and then
        until its figures have settled, for three times as many at most.
        """
        boxes = {name: box for name, box in self.boxes.items() if not only or name in only}
        self.trial.progress(f"measuring {what} ({count(len(boxes), 'variant')})")
        for number in range(_MOST_ROUNDS * rounds):
            if number >= rounds and is_settled(self.measured):
                break
            for name, box in boxes.items():
                self.measured.add(name, workload(name, box))

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
        """The answer from these measurements, which is no advice unless they are enough; ``fields``
        are others of it.
        """
        stopped = self.trial.stopped
        confidence = Confidence.HIGH
        because = "tried on zero-copy clones of the table."
        if samples := [box.scale for box in self.boxes.values() if box.is_sample]:
            share = percent(1 / max(samples))
            confidence = Confidence.MEDIUM
            because = f"tried on a copied sample of {share} of the table."
        if stopped:
            confidence = Confidence.LOW
            because = f"the trial is incomplete: {stopped}."
        if not (is_enough and self.measured.rounds):
            why = f": {stopped}" if stopped else ""
            confidence = Confidence.NONE
            because = f"too little was measured{why}."
            verdict = f"No advice: {because}"
            changes = ()
            fields = {}
        return Answer(
            question=question,
            facts=self.trial.facts,
            verdict=verdict,
            changes=tuple(changes),
            measured=self.measured,
            confidence=confidence,
            because=because,
            notes=tuple(notes),
            stopped=stopped,
            **fields,
        )


def unknown_filters(question: str, facts: TableFacts, notes: Iterable[str]) -> Answer:
    """The answer where nobody has said what queries filter by."""
    return Answer(
        question=question,
        facts=facts,
        verdict="No advice: the filters of your queries are not known. Give filters or a Spark "
        "event log, or declare filter columns in the table property icekit.filter-columns ('a,b').",
        notes=tuple(notes),
    )
