"""How alike texts begin: whether bounds cut to some length can tell them apart. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from icekit.tune.metrics_columns.model import DEFAULT_LENGTH, LENGTHS, Prefix

_COLLIDING = 0.01


def prefix_of(column: str, values: Iterable[Any]) -> Prefix | None:
    """The beginnings of a column's sampled values; None without two different ones."""
    distinct = {v for v in values if isinstance(v, str)}
    if len(distinct) < 2:
        return None
    needed = next((n for n in LENGTHS if colliding(distinct, n) <= _COLLIDING), None)
    # The first and the last in order share what all share.
    first, last = min(distinct), max(distinct)
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return Prefix(column, len(distinct), common, colliding(distinct, DEFAULT_LENGTH), needed)


def colliding(distinct: Iterable[str], length: int) -> float:
    """The share of different values whose first characters are another's too."""
    starts = Counter(value[:length] for value in distinct)
    total = sum(starts.values())
    return sum(n for n in starts.values() if n > 1) / total if total else 0.0
