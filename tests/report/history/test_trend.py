"""Trends: a robust line with known answers, days until a threshold, and what got worse."""

import dataclasses
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icekit import Thresholds
from icekit.report.history.store import HealthRecord
from icekit.report.history.trend import (
    RunComparison,
    Trend,
    compare,
    points_since_reset,
    runs_since_creation,
    slope,
)
from icekit.show import charts

DAY = 86_400_000


def run(day: float, **figures: Any) -> HealthRecord:
    """A run of a table on some day; its target is 1 MiB."""
    made = {
        **dict.fromkeys((field.name for field in dataclasses.fields(HealthRecord)), 0),
        "run_id": f"run{day}",
        "table_name": "db.t",
        "observed_at_ms": round(day * DAY),
        "status": "healthy",
        "findings": (),
        "target_file_bytes": 2**20,
        "data_records": 1000,
        "data_files": 10,
        "data_bytes": 10 * 2**20,
        **figures,
    }
    return HealthRecord(**made)


#: 55 on the ninth day and five a day: nine days to a hundred.
RISING = [run(d, snapshots=10 + 5 * d) for d in range(10)]
ABOUT_NINE_DAYS = "snapshots: 55, about 9 days until 100"


def trend(runs: list[HealthRecord], **limits: float) -> Trend:
    found = compare(runs, Thresholds().with_changes(**limits)).trend
    assert found is not None
    return found


def test_the_slope_is_the_median_of_the_pairs_so_that_one_odd_run_does_not_turn_it() -> None:
    line = [(float(x), 3.0 + 2.5 * x) for x in range(10)]
    odd = [*line[:4], (4.0, 10_000.0), *line[5:]]

    assert slope(line) == pytest.approx(2.5)
    assert slope(odd) == pytest.approx(2.5)
    # Sen's own kind of example. Slopes of all ten pairs, sorted: 1, 1, 4/3, 3/2, 3/2, 5/3, 7/4, 2,
    # 2, 2; their median is between the fifth and the sixth.
    assert slope([(0, 0), (1, 1), (2, 3), (3, 5), (4, 6)]) == pytest.approx((3 / 2 + 5 / 3) / 2)


def test_noise_without_a_direction_has_no_trend() -> None:
    rng = random.Random(7)
    found = [slope([(float(x), rng.random()) for x in range(20)]) for _ in range(200)]

    # At five percent one in twenty is taken for a trend.
    assert sum(s is not None for s in found) < 25


@pytest.mark.parametrize(
    "points",
    [[], [(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 5)] * 8, [(float(x), 5.0) for x in range(20)]],
)
def test_too_few_runs_and_figures_that_stand_still_have_no_trend(
    points: list[tuple[float, float]],
) -> None:
    assert slope(points) is None


@pytest.mark.parametrize(
    ("runs", "per_day", "days", "told"),
    [
        (RISING, 5, 9, ABOUT_NINE_DAYS),
        # 0.75 of a MiB is 16 steps of 16 KiB down; nine are done.
        (
            [run(d, data_bytes=10 * (2**20 - d * 2**14)) for d in range(10)],
            -(2**14),
            7,
            "mean size of a data file: 880 KiB, about 7 days until 768 KiB",
        ),
    ],
)
def test_the_days_until_a_threshold_are_those_of_the_line(
    runs: list[HealthRecord], per_day: float, days: float, told: str
) -> None:
    found = trend(runs)

    assert found.change_per_day == pytest.approx(per_day)
    assert found.days_to_threshold == pytest.approx(days)
    assert str(found) == told


def test_of_several_figures_the_one_that_reaches_its_threshold_first_is_told() -> None:
    runs = [run(d, snapshots=10 + 5 * d, undersized_manifests=10 * d) for d in range(10)]

    assert (
        str(trend(runs, snapshots=100, fragmented_manifests=100))
        == "small data manifests: 90, about 1 day until 100"
    )
    assert trend(runs, snapshots=60, fragmented_manifests=200).measure.title == "snapshots"


def test_a_threshold_that_was_met_recedes_or_is_more_than_a_year_away_has_no_trend() -> None:
    past, falling, slow = (
        [run(d, snapshots=start + step * d) for d in range(10)]
        for start, step in ((100, 1), (90, -1), (10, 0.1))
    )

    assert [compare(runs).trend for runs in (past, falling, slow)] == [None, None, None]
    assert str(compare(past)) == "no change"


def test_only_the_runs_since_the_last_maintenance_are_judged() -> None:
    saw = [run(d, snapshots=10 + 8 * (d % 10)) for d in range(18)]

    assert trend(saw).change_per_day == pytest.approx(8)
    assert compare(saw[:12]).trend is None, "two runs since it was fixed"


def test_a_step_that_doubles_a_size_is_a_reset_too() -> None:
    assert points_since_reset([(0, 10), (1, 8), (2, 30), (3, 28)], -1) == [(2, 30), (3, 28)]
    assert points_since_reset([(0, 10), (1, 30)], 1) == [(0, 10), (1, 30)]


def test_a_share_is_judged_by_the_runs_in_which_the_table_had_rows() -> None:
    newer = [run(d, delete_records=d) for d in range(5, 12)]
    empty = [run(d, data_records=0) for d in range(5)]

    assert trend(empty + newer) == trend(newer)
    assert compare([empty[0], run(1, delete_records=900)]) == RunComparison()


def test_a_table_created_again_under_its_old_name_begins_a_new_history() -> None:
    old = [run(d, table_uuid="old") for d in range(5)]
    new = run(5, table_uuid="new", findings=(("small_files", "critical"),))

    assert runs_since_creation([*old, new]) == [new]
    assert compare([*old, new]) == compare([]) == RunComparison()


def test_what_changed_is_a_finding_that_came_went_or_changed_and_a_threshold_that_was_crossed() -> (
    None
):
    had = {"small_files": "warning", "equality_deletes": "warning", "wide": "critical"}
    has = {"small_files": "critical", "position_deletes": "info", "wide": "info"}
    before = run(1, findings=tuple(had.items()), snapshots=99)
    now = run(2, findings=tuple(has.items()), snapshots=100)
    found = compare([before, now])

    assert found.worse == (
        "small files is now critical",
        "position deletes is new",
        "snapshots: 99 → 100",
    )
    assert found.better == ("wide is now info", "equality deletes is gone")
    assert str(found) == f"worse: {', '.join(found.worse)}; better: {', '.join(found.better)}"
    assert "snapshots: 100 → 99" in compare([now, before]).better
    assert compare([now, now]) == RunComparison()


def test_a_table_without_earlier_runs_has_a_sentence_and_no_chart() -> None:
    chart = charts.trend("db.t", [run(1)])

    assert chart.figure is None
    assert (
        chart.alt == "No earlier run to compare with: icekit report --history FILE keeps each run."
    )


@pytest.mark.parametrize(
    ("runs", "labels", "sentence"),
    [
        (RISING, ["snapshots", "threshold 100", "trend"], ABOUT_NINE_DAYS),
        (
            [run(d) for d in range(10)],
            ["mean size of a data file", "threshold 768 KiB"],
            "no change",
        ),
    ],
)
def test_the_chart_draws_the_runs_the_threshold_and_the_way_to_it(
    runs: list[HealthRecord], labels: list[str], sentence: str
) -> None:
    chart = charts.trend("db.t", runs)

    assert chart.figure is not None
    assert [line.get_label() for line in chart.figure.axes[0].get_lines()] == labels
    assert (
        chart.alt
        == f"10 runs of db.t from 1970-01-01 00:00 UTC to 1970-01-10 00:00 UTC; {sentence}."
    )
    assert list(chart.table["status"]) == ["healthy"] * 10


#: What a history may hold: zeros, figures that stand still, and the largest that a column takes.
FIGURES = st.one_of(st.sampled_from([0, 7, 2**63 - 1]), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(st.integers(0, 3 * DAY), FIGURES, FIGURES, FIGURES), max_size=12))
def test_a_trend_is_of_numbers_or_absent_whatever_the_history_holds(
    rows: list[tuple[int, int, int, int]],
) -> None:
    runs = [
        run(
            at / DAY,
            data_files=files,
            data_bytes=held,
            snapshots=files,
            data_records=records,
            delete_records=files,
            undersized_manifests=held,
        )
        for at, files, held, records in sorted(rows, key=lambda row: row[0])
    ]

    found = compare(runs)
    if found.trend:
        assert all(
            map(
                math.isfinite,
                (
                    found.trend.newest_value,
                    found.trend.change_per_day,
                    found.trend.days_to_threshold,
                ),
            )
        )
        assert 0 <= found.trend.days_to_threshold <= 365
    assert not {"nan", "inf", "none"} & set(str(found).lower().replace(",", "").split())


def test_days_beyond_any_number_are_no_trend() -> None:
    # The smallest step that a number can have, once a day: no count of days reaches the threshold.
    line = [run(d, delete_records=d, data_records=10**320) for d in range(9)]

    assert compare(line, Thresholds(delete_ratio=0.9)).trend is None
