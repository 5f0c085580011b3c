"""Read sizes, durations and moments as people state them."""

from __future__ import annotations

import datetime as dt
import re

from icekit.errors import ParameterError

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SPAN_UNITS = {
    "s": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
    "week": 604800,
}
_LARGEST = 10**21
_LONGEST = 100 * 366 * 86_400


def size_in_bytes(text: str) -> int:
    """Bytes of ``200 GB``, ``64MiB`` or ``1000``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].lower() not in _SIZE_UNITS:
        raise ParameterError(f"{text!r} is not a size. Write it as 200 GB or 64 MiB.")
    size = float(match[1]) * _SIZE_UNITS[match[2].lower()]
    if size > _LARGEST:
        raise ParameterError(
            f"{text!r} is more than any storage holds. Write a size such as 200 GB."
        )
    return int(size)


def seconds(text: str) -> float:
    """Seconds of ``2 hours``, ``30 minutes``, ``90m`` or ``1 day``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)\s*", text)
    unit = match[2].lower() if match else ""
    # A plural; but ms is no minute.
    unit = unit if unit in _SPAN_UNITS or len(unit) < 3 else unit.removesuffix("s")
    if not match or unit not in _SPAN_UNITS:
        raise ParameterError(
            f"{text!r} is not a duration. Write it as 30 minutes, 2 hours or 7 days."
        )
    span = float(match[1]) * _SPAN_UNITS[unit]
    if span > _LONGEST:
        raise ParameterError(
            f"{text!r} is more than 100 years. Write a duration such as 30 minutes, 2 hours or 7 "
            "days."
        )
    return span


def moment(value: object) -> dt.datetime:
    """A date or time, in UTC unless it includes another offset."""
    try:
        if isinstance(value, dt.datetime):
            time = value
        elif isinstance(value, dt.date):
            time = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
        else:
            time = dt.datetime.fromisoformat(str(value))
    except ValueError:
        raise ParameterError(
            f"{value!r} is not a date. Write it as 2026-01-31 or 2026-01-31T06:00."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)
