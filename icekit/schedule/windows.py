"""Say when work may run: hours of days in a time zone, and when they end; pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from icekit.errors import ParameterError, nearest

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FORM = re.compile(r"(?:([A-Za-z][A-Za-z,\- ]*?)\s+)?(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_DAY = 24 * 60
# Beyond a week everything repeats; one more for what began the day before, and a change of clocks.
_AHEAD = 9


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of some days, by the clock on the wall: minutes after midnight, ``end`` not included.

    An ``end`` that is not after ``start`` is on the next day; ``days`` (0 is Monday) are those it begins on.
    """

    days: frozenset[int]
    start: int
    end: int
    said: str

    @classmethod
    def of(cls, text: str) -> Hours:
        """Read ``22:00-06:00``, ``Mon-Fri 08:00-18:00`` or ``Sat,Sun 00:00-24:00``.

        Raises :class:`~icekit.errors.ParameterError`.
        """
        found = _FORM.fullmatch(str(text).strip())
        if not found:
            raise ParameterError(f"{text!r} is no time of day; write it as 22:00-06:00, or Mon-Fri 08:00-18:00.")
        start, end = (int(found[n]) * 60 + int(found[n + 1]) for n in (2, 4))
        if start >= _DAY or end > _DAY or int(found[3]) > 59 or int(found[5]) > 59:
            raise ParameterError(f"{text!r} has a time that no clock shows; the last one of a day is 24:00.")
        if start == end:
            raise ParameterError(f"{text!r} ends when it begins; for the whole day write 00:00-24:00.")
        return cls(_days(found[1] or "Mon-Sun"), start, end, str(text).strip())

    def spans(self, first: dt.date, zone: ZoneInfo, days: int = _AHEAD) -> list[tuple[dt.datetime, dt.datetime]]:
        """When they begin and end, in UTC, on each fitting day from ``first`` on."""
        found = []
        for day in (first + dt.timedelta(days=n) for n in range(days)):
            if day.weekday() in self.days:
                last = day if self.end > self.start else day + dt.timedelta(days=1)
                found.append((_moment(day, self.start, zone), _moment(last, self.end, zone)))
        return found


def is_within(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> bool:
    """Tell whether a moment is in any of the hours."""
    return until(hours, zone, now) is not None


def until(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> dt.datetime | None:
    """When the hours that ``now`` is in end (those that follow without a gap are one); None if it is in none."""
    spans = _spans(hours, zone, now)
    end: dt.datetime | None = None
    for start, stop in spans:
        if start <= (end or now) < stop:
            end = stop
    return end


def begins(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> dt.datetime | None:
    """When the next of the hours begin after ``now``; None without any."""
    return min((start for start, _ in _spans(hours, zone, now) if start > now), default=None)


def _spans(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> list[tuple[dt.datetime, dt.datetime]]:
    yesterday = now.astimezone(zone).date() - dt.timedelta(days=1)
    return sorted(span for one in hours for span in one.spans(yesterday, zone))


def _moment(day: dt.date, minutes: int, zone: ZoneInfo) -> dt.datetime:
    # Through the day's own midnight, as an hour of that day may be there twice or not at all.
    day, minutes = day + dt.timedelta(days=minutes // _DAY), minutes % _DAY
    return dt.datetime(day.year, day.month, day.day, minutes // 60, minutes % 60, tzinfo=zone).astimezone(dt.UTC)


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        a, b = _day(first, text), _day(last or first, text)
        found.update(range(a, b + 1) if a <= b else (*range(a, 7), *range(b + 1)))
    return frozenset(found)


def _day(name: str, text: str) -> int:
    short = name.lower()[:3]
    if len(name) < 3 or short not in _DAYS:
        raise ParameterError(
            f"{name!r} in {text!r} is no day{nearest(short, _DAYS, count=1) or '; use Mon, Tue, Wed, Thu, Fri, Sat, Sun.'}"
        )
    return _DAYS.index(short)
