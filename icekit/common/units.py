"""Format figures for people: sizes, counts, shares, times."""

import datetime as dt
import math
import re
from collections.abc import Iterable
from decimal import Decimal

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNIT = re.compile(r"(?<=\d) (?=(?:%|B|[KMGTP]iB)(?!\w))")
_SPANS = (("year", 365 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 data file``, ``1,234 data files``."""
    return f"{number:,} " + (noun if number == 1 else plural or f"{noun}s")


def count_with_verb(number: int, noun: str, verb: str, plural_verb: str) -> str:
    """A number of things and a verb that agrees: ``1 file is``, ``2 files are``."""
    return f"{count(number, noun)} " + (verb if number == 1 else plural_verb)


def first_names(names: Iterable[str], most_names: int) -> str:
    """The names up to a number of them, and ``…`` if there are more."""
    all_names = list(names)
    return ", ".join([*all_names[:most_names], "…"] if len(all_names) > most_names else all_names)


def size(size_in_bytes: float) -> str:
    """Bytes for people, in binary units: ``1.5 MiB``, and ``1 GiB`` from 1,000 MiB on."""
    scaled_size = float(size_in_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        # A figure has at most three digits before the point: 1,000 bytes and more are written as
        # KiB.
        if abs(scaled_size) < 999.5:
            return (
                f"{scaled_size:.0f} {unit}"
                if unit == "B" or scaled_size >= 100
                else f"{scaled_size:.1f} {unit}".replace(".0 ", " ")
            )
        scaled_size /= 1024
    return f"{scaled_size:,.1f} PiB"


def about(size_in_bytes: float, *, is_estimate: bool) -> str:
    """Bytes for people, with a word before an estimate: ``about 1.5 MiB``."""
    return ("about " if is_estimate else "") + size(size_in_bytes)


def percent(share: float) -> str:
    """A share as a percentage: ``0 %``, ``under 0.1 %``, ``3.1 %``, ``87 %``."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.1 or not share else f"{share * 100:.1f} %"


def plain_number(value: float, digits: int = 3) -> str:
    """A number with about this many digits, and never with an exponent: ``0.25``, ``3.1``,
    ``12,200``.
    """
    if abs(value) >= 10**digits - 0.5:
        return f"{value:,.0f}"
    return format(Decimal(f"{value:.{digits}g}"), ",f") if math.isfinite(value) else str(value)


def size_range(lower_bytes: int, upper_bytes: int | None) -> str:
    """``64 KiB–128 KiB``, ``under 64 KiB`` or ``64 KiB and more``."""
    if upper_bytes is None:
        return f"{size(lower_bytes)} and more"
    return (
        f"{size(lower_bytes)}–{size(upper_bytes)}" if lower_bytes else f"under {size(upper_bytes)}"
    )


def span(milliseconds: float) -> str:
    """A duration in the largest unit in which it is a whole number, to a tenth: ``3 days``,
    ``36 hours``.
    """
    seconds = milliseconds / 1000
    for unit, unit_seconds in _SPANS:
        unit_count = seconds / unit_seconds
        if unit_count >= 1 and abs(unit_count - round(unit_count)) <= unit_count / 10:
            return count(round(unit_count), unit)
    return "under 1 second"


def capitalized(sentence: str) -> str:
    """A sentence with its first letter as a capital; the others stay as they are."""
    return sentence[:1].upper() + sentence[1:]


def elapsed(seconds: float) -> str:
    """A duration with two digits or in whole seconds, because repeated runs do not agree more
    closely: ``85 ms``, ``0.42 s``, ``1.2 s``, ``83 s``.
    """
    if seconds < 0.095:
        return f"{seconds * 1000:.0f} ms"
    return (
        f"{seconds:.2f} s"
        if seconds < 0.995
        else f"{seconds:.1f} s"
        if seconds < 9.95
        else f"{seconds:,.0f} s"
    )


def utc_time(milliseconds: int) -> dt.datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return _EPOCH + dt.timedelta(milliseconds=milliseconds)


def time_text(milliseconds: int) -> str:
    """``2026-01-02 03:04 UTC``."""
    return utc_time(milliseconds).strftime("%Y-%m-%d %H:%M UTC")


def shorten(text: str, width: int) -> str:
    """Cut out the middle of a long text: both ends of a partition path identify it."""
    if len(text) <= width:
        return text
    tail_length = (width - 1) // 2
    return f"{text[: width - 1 - tail_length]}…{text[len(text) - tail_length :]}"


def with_no_break_units(text: str) -> str:
    """Join figures to their units with no-break spaces."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def printable_text(text: str) -> str:
    """Replace what no font can draw, line ends too, in a label of one line; longer texts go through
    :func:`icekit.common.terminal.harmless_text`.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
