"""Hours are those of the clock on the wall."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from icekit.errors import ParameterError
from icekit.schedule.policy import Hours

NIGHT = Hours.of("22:00-06:00 Europe/Berlin")


def at(text: str) -> dt.datetime:
    return (
        dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).astimezone(dt.UTC)
    )


@pytest.mark.parametrize(
    ("hours", "when", "end"),
    [
        (NIGHT, "2026-01-14T21:59", None),
        (NIGHT, "2026-01-14T22:00", "2026-01-15T06:00"),
        (NIGHT, "2026-01-14T05:59", "2026-01-14T06:00"),
        (NIGHT, "2026-01-14T06:00", None),
        (Hours.of("08:00-18:00 Europe/Berlin"), "2026-01-14T08:00", "2026-01-14T18:00"),
        (Hours.of("08:00-18:00 Europe/Berlin"), "2026-01-14T18:00", None),
        (Hours.of("18:00-00:00 Europe/Berlin"), "2026-01-14T23:59", "2026-01-15T00:00"),
        (Hours.of("08:00-18:00"), "2026-01-14T08:30", None),
    ],
)
def test_a_moment_is_in_the_window_until_it_ends(hours: Hours, when: str, end: str | None) -> None:
    assert hours.ends(at(when)) == (end and at(end))


@pytest.mark.parametrize(
    ("evening", "hours"),
    [("2026-03-28T22:00", 7), ("2026-10-24T22:00", 9), ("2026-01-14T22:00", 8)],
)
def test_an_hour_that_is_there_twice_or_not_at_all_changes_how_long_the_window_is(
    evening: str, hours: int
) -> None:
    end = NIGHT.ends(at(evening))
    assert end is not None
    assert end - at(evening) == dt.timedelta(hours=hours)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Mon 22:00-06:00", "is not a window. Write it as 22:00-06:00"),
        ("22-6", "is not a window"),
        ("22:00-22:00", "is not a window"),
        ("22:00-24:00", "midnight is 00:00"),
        ("22:00-06:00 Europe/Berln", "did you mean Europe/Berlin"),
        ("22:00-06:00 ../etc", "There is no time zone"),
    ],
)
def test_what_is_no_window_is_refused(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        Hours.of(text)
