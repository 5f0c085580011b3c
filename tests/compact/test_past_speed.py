"""The speed of past actions; pure."""

from dataclasses import replace
from typing import Any

import pytest

from icekit.compact.claims import ActionRecord
from icekit.compact.service import past_speed
from icekit.compact.speed import Speed
from icekit.status import Status
from tests.compact.records import ACTION


def outcome(
    predicted: dict[str, Any],
    actual: dict[str, Any] | None,
    *,
    ended_ms: int = 1000,
    status: Status = Status.DONE,
) -> ActionRecord:
    return replace(ACTION, predicted=predicted, actual=actual, ended_ms=ended_ms, status=status)


def test_before_there_are_outcomes_no_speed_is_known() -> None:
    assert past_speed([], []) is None


@pytest.mark.parametrize("status", [Status.FAILED, Status.SPLIT, Status.RUNNING])
def test_only_actions_that_are_done_count(status: Status) -> None:
    other = outcome({"seconds": 1}, {"seconds": 1, "bytes_in": 100}, status=status)

    assert past_speed([other], []) is None


def test_the_speed_is_of_the_tables_own_runs_unless_they_are_alike_in_size() -> None:
    def runs(*sizes: int, fixed: int) -> list[ActionRecord]:
        return [
            outcome({}, {"bytes_in": size, "bytes_read": 1, "seconds": fixed + size / 100})
            for size in sizes
        ]

    assert past_speed(runs(100, 1000, fixed=2), runs(100, 1000, fixed=7)) == Speed(
        2, 100, most_bytes=10_000
    )
    assert past_speed(runs(900, 1000, fixed=2), runs(100, 1000, fixed=7)) == Speed(
        7, 100, most_bytes=10_000
    )


def test_the_speed_of_conversions_is_not_that_of_rewrites() -> None:
    conversion = outcome({}, {"bytes_read": 5000, "seconds": 100})

    assert past_speed([conversion], [conversion]) is None
    assert past_speed([conversion], [conversion], "bytes_read") == Speed(0, 50, 500, 50_000)


@pytest.mark.parametrize(
    "actual",
    [
        None,
        {},
        {"bytes_in": 0, "seconds": 1},
        {"bytes_in": 5, "seconds": 0},
        {"bytes_in": float("nan"), "seconds": 1},
    ],
)
def test_an_action_that_was_not_measured_gives_no_speed(actual: dict[str, Any] | None) -> None:
    assert past_speed([outcome({}, actual)], []) is None
