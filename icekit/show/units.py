"""Write figures for people: sizes, counts, shares, times."""

from __future__ import annotations

import datetime as dt

from icekit.diagnose.context import count, percent, size

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SPANS = (("year", 365 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def edge(size_in_bytes: float) -> str:
    """A limit between sizes, without needless decimals: ``64 KiB``, ``1.5 MiB``."""
    return size(size_in_bytes).replace(".0 ", " ")


def size_range(lower_bytes: int, upper_bytes: int | None) -> str:
    """``64 KiB–128 KiB``; without an upper limit ``64 KiB and more``."""
    return f"{edge(lower_bytes)} and more" if upper_bytes is None else f"{edge(lower_bytes)}–{edge(upper_bytes)}"


def span(milliseconds: float) -> str:
    """A length of time in its largest fitting unit: ``3 days``, ``40 minutes``."""
    seconds = milliseconds / 1000
    for unit, length in _SPANS:
        if seconds >= length:
            return count(round(seconds / length), unit)
    return "under 1 second"


def at(milliseconds: int) -> dt.datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return _EPOCH + dt.timedelta(milliseconds=milliseconds)


def moment(milliseconds: int) -> str:
    """``2026-01-02 03:04 UTC``."""
    return at(milliseconds).strftime("%Y-%m-%d %H:%M UTC")


def shorten(text: str, width: int) -> str:
    """Cut out the middle of a text that is too long: both ends of a partition path tell it apart."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey and a font does not have."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


__all__ = ["at", "count", "edge", "moment", "percent", "printable", "shorten", "size", "size_range", "span"]
