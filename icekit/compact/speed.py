"""Predict the seconds of an action from those of earlier ones: a fixed part for each action, and a
rate; pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Choices: actions whose sizes differ by this factor tell the fixed part from the rate,
_APART = 8
#: a time is given for actions up to this factor larger than any that was measured,
_REACH = 10
#: actions within this factor count as of one size,
_ALIKE = 2
#: and in an action that took this many seconds, planning, starting jobs and committing are a small
# part.
_LONG_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Speed:
    """What earlier actions took: each ``fixed_seconds``, and the rest at ``bytes_per_second`` (of
    bytes read).

    They say something about actions of ``least_bytes`` to ``most_bytes``. The same holds for rows
    in place of bytes.
    """

    fixed_seconds: float
    bytes_per_second: float
    least_bytes: float = 0.0
    most_bytes: float = math.inf

    def seconds(self, size_in_bytes: int) -> float | None:
        """The seconds of an action that reads this many bytes; None if the earlier actions are too
        few, or far smaller or larger.
        """
        if not self.least_bytes <= size_in_bytes <= self.most_bytes:
            return None
        return self.fixed_seconds + size_in_bytes / self.bytes_per_second

    def bytes_within(self, seconds: float) -> int:
        """The bytes that one action reads in this time."""
        return int(max(0.0, seconds - self.fixed_seconds) * self.bytes_per_second)


def speed_of(measured: Iterable[tuple[float | None, float | None]]) -> Speed | None:
    """The speed of actions from the bytes that each read, and its seconds; None if none was
    measured.

    The line through the medians of the largest and of the smallest actions (Tukey's resistant line,
    because one action that waited for a full cluster says nothing about the next). Without actions
    of different sizes, nobody knows which part of their time is fixed: then only actions of about
    their size get a time, unless they took long.
    """
    known = [
        (size, seconds)
        for size, seconds in measured
        if size and seconds and size > 0 and seconds > 0
    ]
    if not known:
        return None
    largest = max(size for size, _ in known)
    size, seconds = _medians([run for run in known if run[0] * _ALIKE >= largest])
    small = [run for run in known if run[0] * _APART <= largest]
    if small:
        less, sooner = _medians(small)
        if sooner < seconds:
            fixed = max(0.0, sooner - less * (seconds - sooner) / (size - less))
            return Speed(fixed, size / (seconds - fixed), most_bytes=largest * _REACH)
    reach = _REACH if seconds >= _LONG_SECONDS else _ALIKE
    return Speed(0.0, size / seconds, largest / reach, largest * reach)


def _medians(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(size for size, _ in measured), statistics.median(
        seconds for _, seconds in measured
    )
