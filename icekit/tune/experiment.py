"""Try variants of a table side by side, each in a sandbox of its own, until the figures have
settled or the budget is spent.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from icekit.common.sql import set_properties_sql
from icekit.common.units import count, percent
from icekit.health.facts.model import TableFacts
from icekit.iceberg.metadata import ROW_GROUP, TARGET
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements
from icekit.tune.filters import SqlFilters

#: A choice: a workload whose figures do not settle is run at most this many times as often.
_MOST_ROUNDS = 3
#: Figures by the name of their measure.
Figures = dict[str, float]
#: What a variant changes of a sandbox before it is measured, and the figures of that.
SetUp = Callable[[Sandbox], Figures | None]
#: One round of a workload: runs it in the sandbox of a variant.
Workload = Callable[[str, Sandbox], Figures]


def mean_plan_figures(box: Sandbox, filters: SqlFilters) -> Mapping[str, float]:
    """The figures of a :class:`~icekit.engine.planner.PlannedScan`, on average over filters by
    their weight; those of a full scan without filters.
    """
    weighted_plans = [(f.weight, asdict(box.plan(condition_sql))) for f, condition_sql in filters]
    weighted_plans = weighted_plans or [(1.0, asdict(box.plan()))]
    total_weight = sum(weight for weight, _ in weighted_plans)
    return {
        figure_name: sum(
            weight * plan_figures[figure_name] for weight, plan_figures in weighted_plans
        )
        / total_weight
        for figure_name in weighted_plans[0][1]
    }


def set_up_nothing(_: Sandbox) -> None:
    """Set up the variant that is the table as it is."""


def set_target_size(box: Sandbox, facts: TableFacts, target_bytes: int) -> None:
    """Give a sandbox a target size of files, and row groups in proportion to it."""
    row_group_bytes = max(facts.int_setting(ROW_GROUP) * target_bytes // facts.target_bytes, 1)
    box.set(
        set_properties_sql(box.name, {TARGET: str(target_bytes), ROW_GROUP: str(row_group_bytes)})
    )


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
    measurements: Measurements = field(init=False)
    sandboxes_by_variant: dict[str, Sandbox] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.measurements = Measurements(tuple(self.measures))

    @contextmanager
    def open(self) -> Iterator[None]:
        """Provide the sandboxes, each set up as its variant; ``sandboxes_by_variant`` is
        empty in the block where that failed.
        """
        variant_names = list(self.variants)
        self.trial.progress(f"{self.trial.facts.name}: setting up {', '.join(variant_names)}")
        with (
            self.trial.attempt(),
            self.trial.sandboxes(len(variant_names), always_sample=self.always_sample) as sandboxes,
        ):
            sandboxes_by_variant = dict(zip(variant_names, sandboxes, strict=True))
            for variant, set_up in self.variants.items():
                self.measurements.add(variant, set_up(sandboxes_by_variant[variant]) or {})
            self.sandboxes_by_variant = sandboxes_by_variant
            yield
        if not self.sandboxes_by_variant:
            yield

    def measure(
        self,
        workload_label: str,
        workload: Workload,
        *,
        min_rounds: int = 1,
        is_settled: Callable[[Measurements], bool] = lambda _: True,
        only_variants: Collection[str] = (),
    ) -> None:
        """Run a workload in each sandbox in turn (or ``only_variants`` in some), for
        ``min_rounds``, and then until its figures have settled, for three times as many at most.
        """
        selected_sandboxes = {
            variant: box
            for variant, box in self.sandboxes_by_variant.items()
            if not only_variants or variant in only_variants
        }
        self.trial.progress(
            f"measuring {workload_label} ({count(len(selected_sandboxes), 'variant')})"
        )
        for round_number in range(_MOST_ROUNDS * min_rounds):
            if round_number >= min_rounds and is_settled(self.measurements):
                break
            for variant, box in selected_sandboxes.items():
                self.measurements.add(variant, workload(variant, box))

    def answer(
        self,
        question: str,
        verdict: str,
        changes: Iterable[Change],
        notes: Iterable[str] = (),
        *,
        now: str = "now",
        advised: str | None = None,
        has_enough_measurements: bool = True,
    ) -> Answer:
        """The answer from these measurements, which is no advice unless they are enough; its
        effects compare the variants ``now`` and ``advised``.
        """
        stop_reason = self.trial.stop_reason
        confidence = Confidence.HIGH
        confidence_reason = "tried on zero-copy clones of the table."
        if sample_scales := [
            box.scale for box in self.sandboxes_by_variant.values() if box.is_sample
        ]:
            sample_share_text = percent(1 / max(sample_scales))
            confidence = Confidence.MEDIUM
            confidence_reason = f"tried on a copied sample of {sample_share_text} of the table."
        if stop_reason:
            confidence = Confidence.LOW
            confidence_reason = f"the trial is incomplete: {stop_reason}."
        if not (has_enough_measurements and self.measurements.values_by_variant):
            stop_clause = f": {stop_reason}" if stop_reason else ""
            confidence = Confidence.NONE
            confidence_reason = f"too little was measured{stop_clause}."
            verdict = f"No advice: {confidence_reason}"
            changes = ()
            now = "now"
            advised = None
        return Answer(
            question=question,
            facts=self.trial.facts,
            verdict=verdict,
            changes=tuple(changes),
            measured=self.measurements,
            confidence=confidence,
            because=confidence_reason,
            notes=tuple(notes),
            stopped=stop_reason,
            now=now,
            advised=advised,
        )


def answer_without_filters(question: str, facts: TableFacts, notes: Iterable[str]) -> Answer:
    """The answer where nobody has said what queries filter by."""
    return Answer(
        question=question,
        facts=facts,
        verdict="No advice: the filters of your queries are not known. Give filters or a Spark "
        "event log, or declare filter columns in the table property icekit.filter-columns ('a,b').",
        notes=tuple(notes),
    )
