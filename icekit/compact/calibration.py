"""How near predictions came to what happened, and how fast past actions were; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from icekit.compact.model import EQUALITY_DELETE
from icekit.compact.records import ActionRecord

#: What a plan predicts of each action; ``bytes_out`` in bytes, ``seconds`` in seconds.
QUANTITIES = ("files_out", "bytes_out", "delete_files_removed", "seconds")


@dataclass(frozen=True, slots=True)
class Pair:
    """One prediction and what came of it.

    ``error`` is ``|actual - predicted| / actual``, 0 where both are 0, and None where only
    the actual is: no share of nothing can be given. ``ratio`` is ``actual / predicted``,
    None where nothing was predicted.
    """

    quantity: str
    ended_ms: int | None
    table: str
    run_id: str
    action_id: str
    predicted: float
    actual: float

    @property
    def error(self) -> float | None:
        """The absolute error as a share of the actual; 0.1 is 10 %."""
        if self.actual == self.predicted:
            return 0.0
        return abs(self.actual - self.predicted) / abs(self.actual) if self.actual else None

    @property
    def ratio(self) -> float | None:
        """The actual as a multiple of the prediction: 2.0 is twice as much."""
        return self.actual / self.predicted if self.predicted else None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well one quantity was predicted over ``count`` actions.

    ``mean_absolute_percentage_error`` is a share (0.1 is 10 %); it and ``median_ratio``
    (actual / predicted) are None where no action gives one.
    """

    quantity: str
    count: int
    mean_absolute_percentage_error: float | None
    median_ratio: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The accuracy of each of :data:`QUANTITIES`, and every pair it rests on, newest first."""

    quantities: tuple[Accuracy, ...]
    rows: tuple[Pair, ...]

    def of(self, quantity: str) -> Accuracy:
        """The accuracy of one quantity; KeyError if it is none of :data:`QUANTITIES`."""
        for accuracy in self.quantities:
            if accuracy.quantity == quantity:
                return accuracy
        raise KeyError(quantity)


def calibration(outcomes: Iterable[ActionRecord]) -> Calibration:
    """Compare predicted with actual, of actions that are done and of what both sides know."""
    done = sorted((o for o in outcomes if o.is_outcome), key=lambda o: -(o.ended_ms or 0))
    rows = tuple(pair for outcome in done for quantity in QUANTITIES if (pair := _pair(outcome, quantity)) is not None)
    return Calibration(tuple(_accuracy(quantity, [row for row in rows if row.quantity == quantity]) for quantity in QUANTITIES), rows)


def throughput(outcomes: Iterable[ActionRecord]) -> float | None:
    """Bytes read per second: the median of past done actions; None before there are any.

    The median, as one action that waited for a full cluster says nothing of the next.
    """
    rates = []
    for outcome in outcomes:
        read, seconds = _number(outcome.actual, "bytes_in"), _number(outcome.actual, "seconds")
        if outcome.is_outcome and read and seconds and read > 0 and seconds > 0:
            rates.append(read / seconds)
    return statistics.median(rates) if rates else None


def conversion_rate(outcomes: Iterable[ActionRecord]) -> float | None:
    """Bytes of data and delete files per second of past conversions, their median; None before there are any."""
    rates = []
    for outcome in outcomes:
        read, seconds = _number(outcome.predicted, "bytes_in"), _number(outcome.actual, "seconds")
        if outcome.is_outcome and (outcome.predicted or {}).get("unit") == EQUALITY_DELETE and read and seconds:
            rates.append(read / seconds)
    return statistics.median(rates) if rates else None


def _pair(outcome: ActionRecord, quantity: str) -> Pair | None:
    predicted, actual = _number(outcome.predicted, quantity), _number(outcome.actual, quantity)
    if predicted is None or actual is None:
        return None
    return Pair(quantity, outcome.ended_ms, outcome.table, outcome.run_id, outcome.action_id, predicted, actual)


def _accuracy(quantity: str, rows: list[Pair]) -> Accuracy:
    errors = [row.error for row in rows if row.error is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return Accuracy(
        quantity,
        len(rows),
        statistics.fmean(errors) if errors else None,
        statistics.median(ratios) if ratios else None,
    )


def _number(values: Mapping[str, Any] | None, name: str) -> float | None:
    value = (values or {}).get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
