"""Partition transforms on values as facts keep them, and which partitions a filter may match; pure.

Source: the table spec ("Partition Transforms") and ``Projections.inclusive``: a partition is ruled out only where
none of its rows can match. Hashes are pyiceberg's.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, DateType, IntegerType, LongType, StringType, TimestampType, UUIDType

from icekit.facts.files import Scalar
from icekit.tune.filters.model import All, Either, Leaf, Node

_HOUR, _DAY = 3_600_000_000, 86_400_000_000
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_HASHED: dict[str, Any] = {
    "int": IntegerType(),
    "long": LongType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestampType(),
    "string": StringType(),
    "uuid": UUIDType(),
    "binary": BinaryType(),
}
_WHOLE = {"int", "long", "date", "timestamp", "timestamptz"}
#: Transforms that keep the order of values.
ORDERED = {"identity", "year", "month", "day", "hour", "truncate"}

Transform = Callable[[Scalar], Scalar]


@dataclass(frozen=True, slots=True, order=True)
class Field:
    """A partition field: a column by name and its transform as a spec names it (``day``, ``bucket[16]``)."""

    column: str
    transform: str

    @property
    def name(self) -> str:
        """The transform without its width."""
        return self.transform.partition("[")[0]


def function(transform: str, kind: str) -> Transform | None:
    """The transform as a function of values of a column type; None where it is not known how it takes them."""
    name, _, text = transform.partition("[")
    width = int(text.rstrip("]")) if text else 0
    if name == "identity":
        return lambda v: v
    if name == "bucket":
        return _bucket(width, kind)
    if name == "truncate":
        if kind == "string":
            return lambda v: None if v is None else str(v)[:width]
        if kind in {"int", "long"}:
            return lambda v: v - v % width if isinstance(v, int) else None
        return None
    if kind not in {"date", "timestamp", "timestamptz"}:
        return None
    return _TIMES.get((name, kind == "date"))


def _bucket(width: int, kind: str) -> Transform | None:
    hashed = _HASHED.get(kind)
    if hashed is None:
        return None
    bucket = BucketTransform(num_buckets=width).transform(hashed)

    def of(value: Scalar) -> Scalar:
        if value is None:
            return None
        given: Any = uuid.UUID(str(value)) if kind == "uuid" else bytes.fromhex(str(value)) if kind == "binary" else value
        return bucket(given)

    return of


def _month(days: int) -> int:
    # Times before year 1 or after 9999 have no date here; they are counted by the mean month.
    if not 1 <= days + _EPOCH_DAY <= dt.date.max.toordinal():
        return math.floor(days / 30.436875)
    day = dt.date.fromordinal(days + _EPOCH_DAY)
    return (day.year - 1970) * 12 + day.month - 1


def _time(of: Callable[[int], int]) -> Transform:
    return lambda v: None if v is None else of(int(v))


_TIMES: dict[tuple[str, bool], Transform] = {
    ("hour", False): _time(lambda v: v // _HOUR),
    ("day", False): _time(lambda v: v // _DAY),
    ("month", False): _time(lambda v: _month(v // _DAY)),
    ("year", False): _time(lambda v: _month(v // _DAY) // 12),
    ("day", True): _time(lambda v: v),
    ("month", True): _time(_month),
    ("year", True): _time(lambda v: _month(v) // 12),
}


@dataclass(frozen=True, slots=True)
class Values:
    """One partition field's values, an element a partition; ``kind`` is the type of its source column."""

    field: Field
    kind: str
    values: Any

    @classmethod
    def of(cls, field: Field, kind: str, values: Sequence[Scalar]) -> Values:
        """Hold values, which may be None, so that they compare."""
        array = np.empty(len(values), dtype=object)
        array[:] = [_comparable(v, kind) for v in values]
        return cls(field, kind, array)


def may_match(node: Node, fields: Sequence[Values], partitions: int) -> Any:
    """Which of so many partitions may hold rows that a filter asks for: an array of booleans."""
    if isinstance(node, All):
        return np.logical_and.reduce([may_match(part, fields, partitions) for part in node.parts])
    if isinstance(node, Either):
        return np.logical_or.reduce([may_match(part, fields, partitions) for part in node.parts])
    found = np.ones(partitions, dtype=bool)
    if isinstance(node, Leaf):
        for one in fields:
            if one.field.column == node.column:
                found &= _asked(node, one)
    return found


def _asked(leaf: Leaf, of: Values) -> Any:
    present = np.array([v is not None for v in of.values], dtype=bool)
    if leaf.op == "is null":
        return ~present
    if leaf.op == "not null" or not leaf.values:
        return present
    transform = function(of.field.transform, of.kind)
    if transform is None or (leaf.kind in {"range", "prefix"} and of.field.name not in ORDERED):
        return present
    there = of.values[present]
    if leaf.kind == "equality":
        wanted = {_comparable(transform(v), of.kind) for v in leaf.values}
        hit = np.array([v in wanted for v in there], dtype=bool)
    elif leaf.kind == "prefix":
        hit = _prefixed(str(leaf.values[0]), of.field, there)
    else:
        hit = _compared(leaf, of, transform, there)
    found = np.zeros(len(of.values), dtype=bool)
    found[present] = hit
    return found


def _compared(leaf: Leaf, of: Values, transform: Transform, there: Any) -> Any:
    value, op = leaf.values[0], leaf.op
    # Of whole numbers x < v is x <= v - 1, which may fall into the unit before.
    if of.kind in _WHOLE and op in {"<", ">"} and isinstance(value, int):
        value, op = (value - 1, "<=") if op == "<" else (value + 1, ">=")
    bound: Any = _comparable(transform(value), of.kind)
    if of.field.name != "identity":
        op = {"<": "<=", ">": ">="}.get(op, op)
    compare: Callable[[Any], bool] = {
        "<": lambda v: v < bound,
        "<=": lambda v: v <= bound,
        ">": lambda v: v > bound,
        ">=": lambda v: v >= bound,
    }[op]
    return np.array([compare(v) for v in there], dtype=bool)


def _prefixed(prefix: str, field: Field, there: Any) -> Any:
    if field.name == "truncate":
        prefix = prefix[: int(field.transform[9:-1])]
    return np.array([str(v).startswith(prefix) for v in there], dtype=bool)


def _comparable(value: Scalar, kind: str) -> Any:
    # Facts keep decimals, and numbers that are none, as text.
    return float(value) if isinstance(value, str) and kind.startswith(("decimal", "float", "double")) else value
