"""Trends: a robust line with known answers, days until a threshold, and what got worse."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icekit import Thresholds
from icekit.history.store import Health
from icekit.history.trend import MEASURES, Past, Trend, better, same_table, since_reset, slope, trends, worse
from icekit.show import history_charts

DAY = 86_400_000


def run(day: float, **figures: Any) -> Health:
    """A run of a table on some day; its target is 1 MiB."""
    made = {"table_uuid": "u", "target_file_bytes": 2**20, "data_records": 1000, "data_files": 10, "data_bytes": 10 * 2**20, **figures}
    return Health(f"run{day}", "db.t", round(day * DAY), **made)


def of(name: str, runs: list[Health], limits: Thresholds | None = None) -> Trend:
    return next(t for t in trends(runs, limits) if t.measure.name == name)


def test_the_slope_of_a_straight_line_is_its_own() -> None:
    assert slope([(float(x), 3.0 + 2.5 * x) for x in range(10)]) == pytest.approx(2.5)


def test_one_odd_run_in_ten_does_not_turn_the_line() -> None:
    points = [(float(x), 2.0 * x) for x in range(10)]
    points[4] = (4.0, 10_000.0)

    assert slope(points) == pytest.approx(2.0)


def test_the_slope_of_sens_own_kind_of_example_is_the_median_of_the_pairs() -> None:
    # Slopes of all ten pairs, sorted: 1, 1, 4/3, 3/2, 3/2, 5/3, 7/4, 2, 2, 2; their median is between the fifth and the sixth.
    assert slope([(0, 0), (1, 1), (2, 3), (3, 5), (4, 6)]) == pytest.approx((3 / 2 + 5 / 3) / 2)


def test_noise_without_a_direction_has_no_trend() -> None:
    rng = random.Random(7)
    found = [slope([(float(x), rng.random()) for x in range(20)]) for _ in range(200)]

    # At five percent one in twenty is taken for a trend.
    assert sum(s is not None for s in found) < 25


@pytest.mark.parametrize("points", [[], [(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 5)] * 8, [(float(x), 5.0) for x in range(20)]])
def test_too_few_runs_and_figures_that_stand_still_have_no_trend(points: list[tuple[float, float]]) -> None:
    assert slope(points) is None


def test_the_days_until_a_threshold_are_those_of_the_line() -> None:
    trend = of("snapshots", [run(d, snapshots=10 + 5 * d) for d in range(10)], Thresholds(snapshots=100))

    # 55 on the ninth day and five a day: nine days to a hundred.
    assert trend.per_day == pytest.approx(5)
    assert trend.days == pytest.approx(9)
    assert trend.sentence == "55; up 5 a day; about 9 days until 100"


def test_a_threshold_that_was_met_is_past_and_one_that_recedes_is_never_met() -> None:
    rising = of("snapshots", [run(d, snapshots=100 + d) for d in range(10)])
    falling = of("snapshots", [run(d, snapshots=90 - d) for d in range(10)])

    assert rising.days == 0.0
    assert "past 100" in rising.sentence
    assert falling.days is None
    assert falling.per_day == pytest.approx(-1)


def test_a_mean_size_falls_ill_downwards() -> None:
    trend = of("mean_file_bytes", [run(d, data_bytes=10 * (2**20 - d * 2**14)) for d in range(10)])

    # 0.75 of a MiB is 16 steps of 16 KiB down; nine are done.
    assert trend.days == pytest.approx(7)


def test_only_the_runs_since_the_last_maintenance_are_judged() -> None:
    saw = [run(d, snapshots=10 + 8 * (d % 10)) for d in range(18)]
    trend = of("snapshots", saw)

    assert trend.runs == 8
    assert trend.per_day == pytest.approx(8)
    assert of("snapshots", saw[:12]).why == "2 runs since it was fixed"


def test_a_step_that_doubles_a_size_is_a_reset_too() -> None:
    assert since_reset([(0, 10), (1, 8), (2, 30), (3, 28)], -1) == [(2, 30), (3, 28)]
    assert since_reset([(0, 10), (1, 30)], 1) == [(0, 10), (1, 30)]


def test_a_figure_that_older_runs_do_not_have_is_judged_by_the_newer_ones() -> None:
    runs = [run(d, snapshots=None) for d in range(5)] + [run(d, snapshots=d) for d in range(5, 12)]

    assert of("snapshots", runs).runs == 7
    assert of("undersized_manifests", runs).sentence == "not known"


def test_a_table_created_again_under_its_old_name_begins_a_new_history() -> None:
    old, new = [run(d, table_uuid="old") for d in range(5)], [run(d, table_uuid="new") for d in range(5, 7)]

    assert same_table([*old, *new]) == new
    assert worse(old[-1], dataclasses.replace(new[0], findings=(("small_files", "critical"),))) == ()
    assert trends([]) == ()


def test_what_got_worse_is_a_new_finding_a_graver_one_or_a_threshold_that_was_crossed() -> None:
    before = run(1, findings=(("small_files", "warning"), ("equality_deletes", "warning")), snapshots=99)
    now = run(2, findings=(("small_files", "critical"), ("position_deletes", "info")), snapshots=100)

    assert worse(before, now) == ("small files is now critical", "position deletes is new", "snapshots: 99 → 100")
    assert better(before, now) == ("equality deletes",)
    assert worse(now, now) == ()


@pytest.mark.parametrize(("was", "now"), [(None, 100), (99, None), (None, None)])
def test_a_threshold_is_not_crossed_from_or_to_what_is_not_known(was: int | None, now: int | None) -> None:
    assert worse(run(1, snapshots=was), run(2, snapshots=now)) == ()


def test_days_beyond_any_number_are_not_known() -> None:
    # The smallest step that a number can have, once a day: no count of days reaches the threshold.
    line = [run(d, delete_bytes=0, position_delete_records=d, data_records=10**320) for d in range(9)]
    trend = of("delete_ratio", line, Thresholds(delete_ratio=0.9))

    assert trend.per_day is not None
    assert (trend.days, trend.days_told) == (None, "–")
    assert slope([(x * 1e-300, x * 1e300) for x in range(9)]) is None


def test_every_measure_writes_its_own_figures() -> None:
    assert [m.write(0.5) for m in MEASURES if m.unit == "share"] == ["50 %"]
    assert all(m.falls_ill in {-1, 0, 1} for m in MEASURES)


#: What a history may hold: absent figures, zeros, ones that stand still, and the largest that a column takes.
FIGURES = st.one_of(st.none(), st.sampled_from([0, 7, 2**63 - 1]), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(st.integers(0, 3 * DAY), FIGURES, FIGURES, FIGURES), max_size=12))
def test_days_and_slopes_are_numbers_or_absent_whatever_the_history_holds(
    rows: list[tuple[int, int | None, int | None, int | None]],
) -> None:
    runs = [
        Health(
            f"run{place}",
            "db.t",
            at,
            data_files=files,
            data_bytes=held,
            snapshots=files,
            delete_bytes=held,
            data_records=records,
            position_delete_records=files,
            undersized_manifests=held,
            target_file_bytes=2**20,
        )
        for place, (at, files, held, records) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]

    for trend in trends(runs):
        for value in (trend.now, trend.per_day, trend.days):
            assert value is None or math.isfinite(value), trend
        assert trend.days is None or trend.days >= 0
        assert not {"nan", "inf", "none"} & set(trend.sentence.lower().split()), trend.sentence
    shown = history_charts.outlook(Past("db.t", tuple(runs), (), Thresholds()))
    assert not {"nan", "inf", "none"} & set(repr(shown).lower().split())


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=12))
def test_a_slope_is_a_number_or_none(points: list[tuple[float, float]]) -> None:
    found = slope(points)

    assert found is None or math.isfinite(found)


def test_days_that_are_not_known_are_a_dash() -> None:
    def told(days: float | None) -> str:
        return Trend(MEASURES[0], 1.0, 2.0, None, days, 9, "no trend").days_told

    assert [told(d) for d in (None, 0.0, 0.01, 1.0, 9.4, 365.0, 366.0)] == ["–", "0", "under 1", "1", "9", "365", "over 365"]
