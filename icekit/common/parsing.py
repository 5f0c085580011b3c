"""Read sizes, durations and moments as people state them."""

import contextlib
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from icekit.common.errors import ParameterError

_SIZE_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    _SIZE_UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}
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
_LONGEST = 100 * 366 * 86_400


def size_in_bytes(text: str) -> int:
    """Bytes of ``200 GB``, ``64MiB`` or ``1000``."""
    return int(_quantity(text, _SIZE_UNITS, 10**21, "size", "200 GB or 64 MiB"))


def seconds(text: str) -> float:
    """Seconds of ``2 hours``, ``30 minutes``, ``90m`` or ``1 day``."""
    return _quantity(text, _SPAN_UNITS, _LONGEST, "duration", "30 minutes, 2 hours or 7 days")


def budget_limits(text: str) -> dict[str, Any]:
    """A limit by its name: ``budget_bytes`` of ``200 GB``, ``budget_rows`` of ``500 million rows``,
    ``budget_files`` of ``500 files`` or ``budget_minutes`` of ``30 minutes``.
    """
    if count_match := re.fullmatch(r"\s*(\d[\d_,]*)\s*(million|billion)?\s*(file|row)s?\s*", text):
        multiplier = {"million": 10**6, "billion": 10**9}.get(count_match[2], 1)
        amount = int(count_match[1].replace(",", "").replace("_", ""))
        return {f"budget_{count_match[3]}s": amount * multiplier}
    # With an M at its end, it may mean mebibytes or minutes.
    if not text.rstrip().endswith("M"):
        with contextlib.suppress(ParameterError):
            return {"budget_bytes": size_in_bytes(text)}
        with contextlib.suppress(ParameterError):
            return {"budget_minutes": seconds(text) / 60}
    raise ParameterError(
        f"The budget {text!r} is not bytes (200 GB), rows (500 million rows), files (500 files) "
        "or time (30 minutes)."
    )


def _quantity(
    text: str, units: Mapping[str, int], most_value: int, noun: str, example: str
) -> float:
    quantity_match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", text)
    unit = quantity_match[2].lower() if quantity_match else ""
    # A plural; but ms is no minute.
    unit = unit if unit in units or len(unit) < 3 else unit.removesuffix("s")
    if not quantity_match or unit not in units:
        raise ParameterError(f"{text!r} is not a {noun}. Write it as {example}.")
    quantity = float(quantity_match[1]) * units[unit]
    if quantity > most_value:
        raise ParameterError(f"{text!r} is too large a {noun}. Write it as {example}.")
    return quantity


def parse_time(value: object) -> dt.datetime:
    """A date or time, in UTC unless it includes another offset."""
    try:
        parsed_time = dt.datetime.fromisoformat(str(value))
    except ValueError:
        raise ParameterError(
            f"{value!r} is not a date. Write it as 2026-01-31 or 2026-01-31T06:00."
        ) from None
    return parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=dt.UTC)
