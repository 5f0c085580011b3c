"""The speed of past actions; pure."""

from dataclasses import replace

import pytest

from icekit.compact.actual import Actual
from icekit.compact.claims import ActionRecord
from icekit.compact.model import EQUALITY_DELETE, Prediction
from icekit.compact.service import past_speed
from icekit.compact.speed import Speed
from icekit.status import Status
from tests.compact.records import ACTION


def outcome(
    actual: Actual | None,
    seconds: float | None,
    *,
    status: Status = Status.DONE,
    unit: str = "file",
) -> ActionRecord:
    return replace(
        ACTION, predicted=Prediction(unit=unit), actual=actual, seconds=seconds, status=status
    )


def test_before_there_are_outcomes_no_speed_is_known() -> None:
    assert past_speed([], []) is None


@pytest.mark.parametrize("status", [Status.FAILED, Status.SPLIT, Status.RUNNING])
def test_only_actions_that_are_done_count(status: Status) -> None:
    assert past_speed([outcome(Actual(bytes_in=100), 1, status=status)], []) is None


def test_the_speed_is_of_the_tables_own_runs_unless_they_are_alike_in_size() -> None:
    def runs(*sizes: int, fixed: int) -> list[ActionRecord]:
        return [outcome(Actual(bytes_in=size), fixed + size / 100) for size in sizes]

    assert past_speed(runs(100, 1000, fixed=2), runs(100, 1000, fixed=7)) == Speed(
        2, 100, most_bytes=10_000
    )
    assert past_speed(runs(900, 1000, fixed=2), runs(100, 1000, fixed=7)) == Speed(
        7, 100, most_bytes=10_000
    )


def test_the_speed_of_conversions_is_not_that_of_rewrites() -> None:
    conversion = outcome(Actual(bytes_in=5000), 100, unit=EQUALITY_DELETE)

    assert past_speed([conversion], [conversion]) is None
    assert past_speed([conversion], [conversion], EQUALITY_DELETE) == Speed(0, 50, 500, 50_000)


@pytest.mark.parametrize(
    ("actual", "seconds"),
    [(None, None), (None, 1), (Actual(), 1), (Actual(bytes_in=5), 0), (Actual(bytes_in=5), None)],
)
def test_an_action_that_was_not_measured_gives_no_speed(
    actual: Actual | None, seconds: float | None
) -> None:
    assert past_speed([outcome(actual, seconds)], []) is None
