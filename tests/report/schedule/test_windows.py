"""Hours are those of the clock on the wall."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from icekit.report.schedule.policy import Hours

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
        # An hour of the night is not there, or is there twice.
        (NIGHT, "2026-03-28T22:00", "2026-03-29T06:00"),
        (NIGHT, "2026-10-24T22:00", "2026-10-25T06:00"),
        (Hours.of("08:00-18:00 Europe/Berlin"), "2026-01-14T08:00", "2026-01-14T18:00"),
        (Hours.of("08:00-18:00 Europe/Berlin"), "2026-01-14T18:00", None),
        (Hours.of("18:00-00:00 Europe/Berlin"), "2026-01-14T23:59", "2026-01-15T00:00"),
        (Hours.of("08:00-18:00"), "2026-01-14T08:30", None),
    ],
)
def test_a_moment_is_in_the_window_until_it_ends(hours: Hours, when: str, end: str | None) -> None:
    assert hours.ends(at(when)) == (end and at(end))
