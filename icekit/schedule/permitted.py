"""Say whether work on a table may begin now, why not, and when it must end."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from icekit.compact.execute import Stop
from icekit.schedule.model import Rule
from icekit.schedule.windows import begins, until


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to work until ``end`` (None: no end), or the reason why not; ``why`` also says what the end is."""

    granted: bool
    why: str = ""
    end: dt.datetime | None = None


def quiet(rule: Rule, zone: ZoneInfo, now: dt.datetime) -> str | None:
    """Why a table is not even read now; None if it may be."""
    end = until(rule.quiet_hours, zone, now)
    return None if end is None else f"quiet hours until {_clock(end, zone)}"


def permit(rule: Rule, zone: ZoneInfo, now: dt.datetime, deadline: dt.datetime | None = None) -> Permit:
    """Whether an action may begin on a rule's table at ``now``; ``deadline`` is when the pass must end."""
    if silent := quiet(rule, zone, now):
        return Permit(False, silent)
    ends: list[tuple[dt.datetime, str]] = []
    if rule.hours:
        end = until(rule.hours, zone, now)
        if end is None:
            following = begins(rule.hours, zone, now)
            return Permit(False, f"outside its hours, which begin at {_clock(following, zone)}" if following else "outside its hours")
        ends.append((end, f"its hours ended at {_clock(end, zone)}"))
    if (hush := begins(rule.quiet_hours, zone, now)) is not None:
        ends.append((hush, f"its quiet hours began at {_clock(hush, zone)}"))
    if deadline is not None:
        if now >= deadline:
            return Permit(False, "the pass's time is spent")
        ends.append((deadline, "the pass's time was spent"))
    end, why = min(ends, default=(None, ""))
    return Permit(True, why, end)


@contextlib.contextmanager
def stopping_at(end: dt.datetime | None, now: dt.datetime) -> Iterator[Stop]:
    """A stop that the clock sets at ``end``; what is committed by then stays."""
    stop = Stop()
    if end is None:
        yield stop
        return
    timer = threading.Timer(max(0.0, (end - now).total_seconds()), stop.set, ["clock"])
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


def _clock(moment: dt.datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%a %H:%M %Z}"
