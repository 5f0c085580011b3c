"""Compare the runs of a table: what got worse or better since the last one, and the figure that
reaches its threshold first.

The slope is the Theil–Sen estimator: the median of the slopes between all pairs of runs (Sen 1968,
"Estimates of the regression coefficient based on Kendall's tau"). A single odd run does not change
it. The Mann–Kendall test on the same pairs, at 5 %, decides whether there is a trend.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from icekit.common import frozen
from icekit.common.units import count
from icekit.common.view import BYTES, SHARE, Unit
from icekit.health.diagnose.findings import Severity, Thresholds
from icekit.health.facts.rollup import min_file_size
from icekit.report.history.store import HealthRecord

#: Fewer runs show no trend: with four, even a steady rise happens by chance one time in twelve.
LEAST_RUNS = 5
#: A threshold that is further away is none to prepare for.
MOST_DAYS = 365
#: A step that at least halves a figure is maintenance: earlier runs do not predict what follows.
_RESET = 0.5
#: Two-sided, of the normal distribution.
_FIVE_PERCENT = 1.96
_DAY_MS = 86_400_000

Points = Sequence[tuple[float, float]]


@frozen
class HealthMeasure:
    """A figure with a threshold: how to read both (a share of nothing is None), and their unit.
    ``direction`` is 1 if more is worse, -1 if less is.
    """

    title: str
    unit: Unit
    direction: int
    value_of: Callable[[HealthRecord], float | None]
    threshold_of: Callable[[HealthRecord, Thresholds], float]

    def is_past(self, value: float, threshold: float) -> bool:
        """Tell whether a value has reached the threshold."""
        return (value - threshold) * self.direction >= 0


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


#: For figures that are computed, too.
_WHOLE = Unit("{:,.0f}".format, is_whole=True)
MEASURES: tuple[HealthMeasure, ...] = (
    HealthMeasure(
        "mean size of a data file",
        BYTES,
        -1,
        lambda h: _share(h.data_bytes, h.data_files),
        lambda h, t: min_file_size(h.target_file_bytes, t.min_file_size_ratio),
    ),
    HealthMeasure(
        "delete records per data record",
        SHARE,
        1,
        lambda h: _share(h.delete_records, h.data_records),
        lambda _, t: t.delete_ratio,
    ),
    HealthMeasure(
        "small data manifests",
        _WHOLE,
        1,
        lambda h: h.undersized_manifests,
        lambda _, t: t.fragmented_manifests,
    ),
    HealthMeasure("snapshots", _WHOLE, 1, lambda h: h.snapshots, lambda _, t: t.snapshots),
)


@frozen
class Trend:
    """A figure on its way to its threshold: ``days_to_threshold`` from the last run, from 0 to
    :data:`MOST_DAYS`, by ``change_per_day`` each.
    """

    measure: HealthMeasure
    newest_value: float
    threshold: float
    change_per_day: float
    days_to_threshold: float

    def __str__(self) -> str:
        value_text, threshold_text = map(
            self.measure.unit.write, (self.newest_value, self.threshold)
        )
        days_text = count(max(1, round(self.days_to_threshold)), "day")
        return f"{self.measure.title}: {value_text}, about {days_text} until {threshold_text}"


@frozen
class RunComparison:
    """What got ``worse`` and ``better`` between two runs, and the trend that reaches its threshold
    first, if any.
    """

    worse: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    trend: Trend | None = None

    def __str__(self) -> str:
        change_texts = [
            f"{direction_word}: {', '.join(change_sentences)}"
            for direction_word, change_sentences in (("worse", self.worse), ("better", self.better))
            if change_sentences
        ]
        if self.trend:
            change_texts.append(str(self.trend))
        return "; ".join(change_texts) or "no change"


def compare(runs: Sequence[HealthRecord], thresholds: Thresholds | None = None) -> RunComparison:
    """Compare the runs of one table, oldest first; only those since the table with that name was
    last created.
    """
    thresholds = thresholds or Thresholds()
    runs_of_table = runs_since_creation(runs)
    comparison = RunComparison()
    if len(runs_of_table) > 1:
        comparison = changes(runs_of_table[-2], runs_of_table[-1], thresholds)
    trends = [
        trend for measure in MEASURES if (trend := _trend(measure, runs_of_table, thresholds))
    ]
    return replace(
        comparison, trend=min(trends, key=lambda trend: trend.days_to_threshold, default=None)
    )


def runs_since_creation(runs: Sequence[HealthRecord]) -> Sequence[HealthRecord]:
    """The runs since the table with that name was last re-created."""
    runs_of_table = itertools.takewhile(
        lambda h: h.table_uuid == runs[-1].table_uuid, reversed(runs)
    )
    return list(runs_of_table)[::-1]


def slope(points: Points) -> float | None:
    """The Theil–Sen slope of (x, y), in the order of x; None if the Mann–Kendall test finds no
    trend or there are fewer than :data:`LEAST_RUNS`.
    """
    n = len(points)
    point_differences = [
        (b[0] - a[0], b[1] - a[1]) for a, b in itertools.combinations(points, 2) if b[0] > a[0]
    ]
    trend_score = abs(sum((dy > 0) - (dy < 0) for _, dy in point_differences))
    if (
        n < LEAST_RUNS
        or max(trend_score - 1, 0) ** 2 < _FIVE_PERCENT**2 * n * (n - 1) * (2 * n + 5) / 18
    ):
        return None
    return statistics.median(dy / dx for dx, dy in point_differences)


def points_since_reset(points: Points, direction: int) -> Points:
    """The points after the last improvement that halved the figure (or doubled it, if less is
    worse).
    """
    start_index = 0
    for point_index, ((_, old_value), (_, new_value)) in enumerate(itertools.pairwise(points), 1):
        if new_value < old_value * _RESET if direction > 0 else old_value < new_value * _RESET:
            start_index = point_index
    return points[start_index:]


def _trend(
    measure: HealthMeasure, runs: Sequence[HealthRecord], thresholds: Thresholds
) -> Trend | None:
    all_points = [
        (h.observed_at_ms / _DAY_MS, float(figure))
        for h in runs
        if (figure := measure.value_of(h)) is not None
    ]
    points = points_since_reset(all_points, measure.direction)
    change_per_day = slope(points)
    if change_per_day is None or change_per_day * measure.direction <= 0:
        return None
    threshold = measure.threshold_of(runs[-1], thresholds)
    if measure.is_past(all_points[-1][1], threshold):
        return None
    # From the line, not from the last run, which may be an outlier.
    fitted_value = (
        statistics.median(y - change_per_day * x for x, y in points)
        + change_per_day * points[-1][0]
    )
    days_to_threshold = max((threshold - fitted_value) / change_per_day, 0.0)
    return (
        Trend(measure, all_points[-1][1], threshold, change_per_day, days_to_threshold)
        if days_to_threshold <= MOST_DAYS
        else None
    )


def changes(
    old_run: HealthRecord,
    new_run: HealthRecord,
    thresholds: Thresholds,
    evidence_by_finding: Mapping[str, str] | None = None,
) -> RunComparison:
    """What got worse and better: findings that came, went or changed their severity (with their
    ``evidence`` by name, if it is given), and figures that crossed their threshold.
    """
    worse = list[str]()
    better = list[str]()
    severities_before = dict(old_run.findings)
    severities_now = dict(new_run.findings)
    rank_of_severity = ["", *map(str, Severity)].index
    for finding_name in severities_now | severities_before:
        old_severity = severities_before.get(finding_name, "")
        new_severity = severities_now.get(finding_name, "")
        state_text = (
            f"is now {new_severity}"
            if old_severity and new_severity
            else "is new"
            if new_severity
            else "is gone"
        )
        if old_severity != new_severity:
            target_list = (
                worse if rank_of_severity(new_severity) > rank_of_severity(old_severity) else better
            )
            text_parts = (
                f"{finding_name.replace('_', ' ')} {state_text}",
                (evidence_by_finding or {}).get(finding_name),
            )
            target_list.append(": ".join(filter(None, text_parts)))
    for measure in MEASURES:
        old_value = measure.value_of(old_run)
        new_value = measure.value_of(new_run)
        threshold = measure.threshold_of(new_run, thresholds)
        if old_value is None or new_value is None:
            continue
        is_past = measure.is_past(new_value, threshold)
        if is_past != measure.is_past(old_value, threshold):
            change_text = " → ".join(map(measure.unit.write, (old_value, new_value)))
            (worse if is_past else better).append(f"{measure.title}: {change_text}")
    return RunComparison(tuple(worse), tuple(better))
