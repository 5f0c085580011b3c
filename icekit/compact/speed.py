"""Predict the seconds of an action from those of earlier ones of about its size; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

#: A choice: actions within this factor count as of about one size.
_ALIKE = 4


@dataclass(frozen=True, slots=True)
class Speed:
    """The bytes that each of some earlier actions read, and its seconds."""

    measured: tuple[tuple[float, float], ...]

    @property
    def most_bytes(self) -> float:
        """The largest size that the earlier actions say something about."""
        return _ALIKE * max(size for size, _ in self.measured)

    def seconds(self, size_in_bytes: float) -> float | None:
        """The seconds of an action that reads this many bytes, at the median speed of those of
        about its size (one that waited for a full cluster says nothing about the next); None
        without any.
        """
        rates = [
            seconds / size
            for size, seconds in self.measured
            if size <= size_in_bytes * _ALIKE and size_in_bytes <= size * _ALIKE
        ]
        return size_in_bytes * statistics.median(rates) if rates else None

    def bytes_within(self, seconds: float) -> int:
        """The bytes that actions read in this time, at the speed of the largest ones."""
        largest = self.most_bytes / _ALIKE
        return int(seconds * largest / (self.seconds(largest) or seconds))


def speed_of(measured: Iterable[tuple[float | None, float | None]]) -> Speed | None:
    """The speed of actions from the bytes that each read, and its seconds; None if none was
    measured.
    """
    known = tuple((size, seconds) for size, seconds in measured if size and seconds)
    return Speed(known) if known else None
