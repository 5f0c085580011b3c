"""Hours are those of the clock on the wall."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from icekit.engine.interrupting import Stopped
from icekit.errors import ParameterError
from icekit.schedule.policy import Hours, begins, is_within, until
from icekit.schedule.study import permit, quiet, stopping_at
from tests.schedule.making import NOW, policy

BERLIN = ZoneInfo("Europe/Berlin")
UTC = ZoneInfo("UTC")


def at(text: str, zone: ZoneInfo = BERLIN) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(dt.UTC)


@pytest.mark.parametrize(
    ("text", "when", "within"),
    [
        ("22:00-06:00", "2026-01-14T23:00", True),
        ("22:00-06:00", "2026-01-14T05:59", True),
        ("22:00-06:00", "2026-01-14T06:00", False),
        ("22:00-06:00", "2026-01-14T22:00", True),
        ("Mon-Fri 08:00-18:00", "2026-01-14T08:00", True),
        ("Mon-Fri 08:00-18:00", "2026-01-17T08:00", False),
        ("Fri 22:00-06:00", "2026-01-17T05:00", True),
        ("Fri 22:00-06:00", "2026-01-16T05:00", False),
        ("Sat,Sun 00:00-24:00", "2026-01-18T23:59", True),
        ("Sat,Sun 00:00-24:00", "2026-01-19T00:00", False),
        ("Fri-Mon 10:00-11:00", "2026-01-18T10:30", True),
        ("Fri-Mon 10:00-11:00", "2026-01-20T10:30", False),
    ],
)
def test_a_moment_is_in_hours_by_the_day_they_begin_on(text: str, when: str, within: bool) -> None:
    assert is_within([Hours.of(text)], BERLIN, at(when)) is within


def test_hours_that_meet_are_one() -> None:
    hours = [Hours.of("Sat,Sun 00:00-24:00"), Hours.of("22:00-06:00")]
    assert until(hours, BERLIN, at("2026-01-16T23:00")) == at("2026-01-19T06:00")


def test_an_hour_that_is_there_twice_or_not_at_all_changes_how_long_it_is() -> None:
    night = [Hours.of("22:00-06:00")]
    for evening, hours in (("2026-03-28T22:00", 7), ("2026-10-24T22:00", 9), ("2026-01-14T22:00", 8)):
        end = until(night, BERLIN, at(evening))
        assert end is not None
        assert (end - at(evening)).total_seconds() == hours * 3600


def test_the_next_hours_are_those_of_another_day_if_need_be() -> None:
    assert begins([Hours.of("Mon 09:00-10:00")], UTC, NOW) == at("2026-01-19T09:00", UTC)
    assert begins([], UTC, NOW) is None


@pytest.mark.parametrize(
    "text", ["", "8-10", "25:00-26:00", "08:60-09:00", "Mo-Fr 08:00-09:00", "Funday 08:00-09:00", "24:00-01:00", "08:00-08:00"]
)
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        Hours.of(text)


def test_quiet_hours_forbid_everything_and_other_hours_only_work() -> None:
    rule = policy("    hours: 22:00-06:00\n    quiet_hours: Wed 11:00-13:00\n").tables[0]
    assert quiet(rule, UTC, NOW) == "quiet hours until Wed 13:00 UTC"
    later = NOW + dt.timedelta(hours=2)
    assert quiet(rule, UTC, later) is None
    refused = permit(rule, UTC, later)
    assert (refused.granted, refused.why) == (False, "outside its hours, which begin at Wed 22:00 UTC")


def test_leave_ends_with_the_first_of_hours_quiet_hours_and_the_passs_time() -> None:
    rule = policy("    hours: 10:00-20:00\n    quiet_hours: 15:00-16:00\n").tables[0]
    assert permit(rule, UTC, NOW).end == NOW + dt.timedelta(hours=3)
    early = NOW + dt.timedelta(minutes=5)
    granted = permit(rule, UTC, NOW, early)
    assert (granted.granted, granted.end, granted.why) == (True, early, "the pass's time ran out")
    assert permit(rule, UTC, early, early).granted is False
    assert permit(policy().tables[0], UTC, NOW).end is None


def test_a_stop_by_the_clock_is_told_from_a_persons() -> None:
    by_clock, by_person, in_time = stopping_at(NOW, NOW), stopping_at(NOW, NOW), stopping_at(None, NOW)
    by_person.set()
    by_clock.set("claim")

    assert (by_clock.is_set, by_clock.reason) == (True, "clock")
    assert (by_person.is_set, by_person.reason) == (True, "person")
    assert (in_time.is_set, in_time.reason) == (False, None)
    with pytest.raises(Stopped):
        by_clock.sleep(60)
