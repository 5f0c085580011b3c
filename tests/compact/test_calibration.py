"""Predictions against what happened; pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from icekit.compact.claims import ActionRecord
from icekit.compact.service import QUANTITIES, calibration, past_speed
from icekit.compact.speed import Speed
from tests.compact.records import ACTION


def outcome(predicted: dict[str, Any], actual: dict[str, Any] | None, *, ended_ms: int = 1000, status: str = "done") -> ActionRecord:
    return replace(ACTION, predicted=predicted, actual=actual, ended_ms=ended_ms, status=status)


def test_before_there_are_outcomes_nothing_is_known() -> None:
    empty = calibration([])

    assert [q.quantity for q in empty.quantities] == list(QUANTITIES)
    assert all((q.count, q.mean_absolute_percentage_error, q.median_ratio) == (0, None, None) for q in empty.quantities)
    assert empty.rows == ()
    assert past_speed([], []) is None


def test_the_error_is_a_share_of_what_happened_and_the_ratio_a_multiple_of_the_prediction() -> None:
    seconds = calibration([outcome({"seconds": 10}, {"seconds": 20}), outcome({"seconds": 30}, {"seconds": 20})]).of("seconds")

    assert seconds.count == 2
    assert seconds.mean_absolute_percentage_error == pytest.approx(0.5)
    assert seconds.median_ratio == pytest.approx((2 + 2 / 3) / 2)


def test_each_quantity_is_judged_by_what_both_sides_know_of_it() -> None:
    made = calibration([outcome({"files_out": 4, "seconds": None}, {"files_out": 5, "seconds": 3, "bytes_out": 9})])

    assert {q.quantity: q.count for q in made.quantities} == {"files_out": 1, "bytes_out": 0, "delete_files_removed": 0, "seconds": 0}


def test_nothing_predicted_and_nothing_found_is_no_error_and_no_ratio() -> None:
    deletes = calibration([outcome({"delete_files_removed": 0}, {"delete_files_removed": 0})]).of("delete_files_removed")

    assert (deletes.count, deletes.mean_absolute_percentage_error, deletes.median_ratio) == (1, 0.0, None)


def test_a_share_of_nothing_is_left_out_of_the_mean() -> None:
    deletes = calibration([outcome({"delete_files_removed": 3}, {"delete_files_removed": 0})]).of("delete_files_removed")

    assert (deletes.count, deletes.mean_absolute_percentage_error, deletes.median_ratio) == (1, None, 0.0)


def test_rows_are_newest_first() -> None:
    made = calibration([outcome({"seconds": 1}, {"seconds": 1}, ended_ms=ended) for ended in (5, 9, 7)])

    assert [row.ended_ms for row in made.rows] == [9, 7, 5]


@pytest.mark.parametrize("status", ["failed", "split", "running"])
def test_only_actions_that_are_done_count(status: str) -> None:
    other = outcome({"seconds": 1}, {"seconds": 1, "bytes_in": 100}, status=status)

    assert calibration([other]).rows == ()
    assert past_speed([other], []) is None


def test_the_speed_is_of_the_tables_own_runs_unless_they_are_alike_in_size() -> None:
    def runs(*sizes: int, fixed: int) -> list[ActionRecord]:
        return [outcome({}, {"bytes_in": size, "bytes_read": 1, "seconds": fixed + size / 100}) for size in sizes]

    assert past_speed(runs(100, 1000, fixed=2), runs(100, 1000, fixed=7)) == Speed(2, 100, most_bytes=10_000)
    assert past_speed(runs(900, 1000, fixed=2), runs(100, 1000, fixed=7)) == Speed(7, 100, most_bytes=10_000)


def test_the_speed_of_conversions_is_not_that_of_rewrites() -> None:
    conversion = outcome({}, {"bytes_read": 5000, "seconds": 100})

    assert past_speed([conversion], [conversion]) is None
    assert past_speed([conversion], [conversion], "bytes_read") == Speed(0, 50, 500, 50_000)


@pytest.mark.parametrize(
    "actual", [None, {}, {"bytes_in": 0, "seconds": 1}, {"bytes_in": 5, "seconds": 0}, {"bytes_in": float("nan"), "seconds": 1}]
)
def test_an_action_that_was_not_measured_gives_no_speed(actual: dict[str, Any] | None) -> None:
    assert past_speed([outcome({}, actual)], []) is None


def test_a_quantity_that_is_not_predicted_is_asked_for_in_vain() -> None:
    with pytest.raises(KeyError):
        calibration([]).of("beauty")
