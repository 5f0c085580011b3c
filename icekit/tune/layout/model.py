"""Hold what a layout is made of, what was measured and tried of it, and which partitions a filter may match; pure."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, DateType, IntegerType, LongType, StringType, TimestampType, UUIDType

from icekit.facts.files import Partition, Scalar
from icekit.facts.model import PartitionSpec, TableFacts
from icekit.tune.filters import All, Either, Filter, Leaf, Node
from icekit.units import percent

# --- Partition transforms on values as facts keep them, and which partitions a filter may match; pure
#
# Source: the table spec ("Partition Transforms") and ``Projections.inclusive``: a partition is ruled out only where
# none of its rows can match. Hashes are pyiceberg's.


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


def fields_of(spec: PartitionSpec) -> tuple[Field, ...]:
    """A spec's fields by column; those that are void or whose column is gone are left out."""
    return tuple(Field(f.source, f.transform) for f in spec.fields if f.source is not None and f.transform != "void")


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
class FieldValues:
    """One partition field's values, an element a partition; ``kind`` is the type of its source column."""

    field: Field
    kind: str
    values: Any

    @classmethod
    def of(cls, field: Field, kind: str, values: Sequence[Scalar]) -> FieldValues:
        """Hold values, which may be None, so that they compare."""
        array = np.empty(len(values), dtype=object)
        array[:] = [_comparable(v, kind) for v in values]
        return cls(field, kind, array)


def partitions_that_may_match(node: Node, fields: Sequence[FieldValues], partitions: int) -> Any:
    """Which of so many partitions may hold rows that a filter asks for: an array of booleans."""
    if isinstance(node, All):
        return np.logical_and.reduce([partitions_that_may_match(part, fields, partitions) for part in node.parts])
    if isinstance(node, Either):
        return np.logical_or.reduce([partitions_that_may_match(part, fields, partitions) for part in node.parts])
    found = np.ones(partitions, dtype=bool)
    if isinstance(node, Leaf):
        for one in fields:
            if one.field.column == node.column:
                found &= _asked(node, one)
    return found


def _asked(leaf: Leaf, of: FieldValues) -> Any:
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


def _compared(leaf: Leaf, of: FieldValues, transform: Transform, there: Any) -> Any:
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


SORT, ZORDER, HILBERT = "sort", "zorder", "hilbert"


@dataclass(frozen=True, slots=True)
class LayoutOrder:
    """An order of rows within a partition: ``kind`` is sort, zorder or hilbert."""

    kind: str
    columns: tuple[str, ...]

    @property
    def is_curve(self) -> bool:
        """Tell whether it is a space-filling curve, which exists only in a rewrite."""
        return self.kind != SORT

    @property
    def name(self) -> str:
        """``origin, tailnum``; ``hilbert(origin, tailnum)``."""
        listed = ", ".join(self.columns)
        return f"{self.kind}({listed})" if self.is_curve else listed


def own_order(facts: TableFacts) -> LayoutOrder | None:
    """The table's sort order, as far as its first fields are plain columns; None without one."""
    columns: list[str] = []
    for field in facts.sort_order:
        if field.transform != "identity":
            break
        columns.append(field.source)
    return LayoutOrder(SORT, tuple(columns)) if columns else None


@dataclass(frozen=True, slots=True)
class PartitionSpread:
    """Partitions that a spec would have (those not sampled estimated), and the mean and largest bytes of one.

    ``a_year`` is how many new partitions a year of data adds, as far as the sampled times show it: 0 if they do not grow with time.
    """

    partitions: int
    mean_bytes: float
    largest_bytes: float
    a_year: float = 0.0


def weighted(shares: Mapping[Filter, float]) -> float:
    """The mean of shares by the filters' weights; 1.0 without filters."""
    total = math.fsum(f.weight for f in shares)
    return math.fsum(f.weight * share for f, share in shares.items()) / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Level:
    """What a filter reads now, at each level; shares are of the table's data bytes.

    ``partition_share`` is left when partitions are pruned by the specs they were written with. ``manifests`` are read and
    ``skipped_manifests`` ruled out, ``files`` and ``file_share`` left by bounds; None where Iceberg could not be asked.
    ``queries`` is how many bound filters it is the mean of.
    """

    text: str
    origin: str
    columns: tuple[str, ...]
    weight: float
    queries: int
    partition_share: float
    manifests: float | None = None
    skipped_manifests: float | None = None
    files: float | None = None
    file_share: float | None = None

    @property
    def is_ignored_by_spec(self) -> bool:
        """Tell whether partitions rule nothing out."""
        return self.partition_share >= 1.0


@dataclass(frozen=True, slots=True)
class OrderDepth:
    """Orders by so many columns: ``shares`` of the bytes that filters would read, by kind; the best is ``order``."""

    order: LayoutOrder
    share: float
    shares: tuple[tuple[LayoutOrder, float], ...]


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders compared on a sample: the rows as they came, the table's own order, and the best of one column, two and so on.

    ``best`` is the step beyond which another column does not pay; None without a column to order by.
    """

    as_they_came: float
    own: float | None
    steps: tuple[OrderDepth, ...]
    best: OrderDepth | None
    is_coarse: bool = False


@dataclass(frozen=True, slots=True)
class LayoutCandidate:
    """A partition spec tried on the sample: the share of bytes that filters would read, and its partitions.

    ``order`` is that of rows within, None for as they came; ``fits`` tells that partitions are well filled. ``partition_share`` is
    the share of the bytes that the partitions alone leave, however rows are ordered within them.
    """

    spec: tuple[Field, ...]
    share: float
    spread: PartitionSpread
    fits: bool
    order: LayoutOrder | None = None
    partition_share: float = 1.0

    @property
    def name(self) -> str:
        """``day(time_hour), bucket[16](id)``; ``unpartitioned``."""
        return spec_name(self.spec)


def spec_name(spec: tuple[Field, ...]) -> str:
    """A spec in words: identity fields by column alone."""
    return ", ".join(f.column if f.transform == "identity" else f"{f.transform}({f.column})" for f in spec) or "unpartitioned"


@dataclass(frozen=True, slots=True)
class Overlap:
    """A partition whose files overlap on the first sort column: a lookup opens ``depth`` of its ``files`` on average."""

    partition: Partition
    path: str
    files: int
    size_in_bytes: int
    depth: float


@dataclass(frozen=True, slots=True)
class BloomCheck:
    """Whether a bloom filter would serve a column: why not, or None where it would; ``is_there`` if it is set.

    ``is_judged`` is false where that cannot be told: no filters are known, or the column was not sampled.
    """

    column: str
    is_there: bool
    distinct: float
    distinct_bytes: float
    reason: str | None
    is_judged: bool = True


@dataclass(frozen=True, slots=True)
class BloomTrial:
    """Lookups on a sample without and with a bloom filter: rows read for all of them, and bytes of data files."""

    column: str
    lookups: int
    rows_without: int
    rows_with: int
    bytes_without: int
    bytes_with: int


@dataclass(frozen=True, slots=True)
class TriedLayout:
    """A layout written to a clone or a copied sample: shares of bytes that the filters read before and after, and what writing took."""

    spec: tuple[Field, ...]
    order: LayoutOrder | None
    share_before: float
    share_after: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float
    is_sample: bool
    scale: float

    @property
    def place(self) -> str:
        """Where it was written."""
        return "a copied sample" if self.is_sample else "a clone"

    @property
    def before(self) -> str:
        """What it is compared with: figures of a sample are not the table's."""
        return "the sample before" if self.is_sample else "the table now"

    @property
    def reads(self) -> str:
        """``14 % of the bytes on a clone (100 % in the table now)``."""
        of = f" of {percent(1 / self.scale)} of the table" if self.is_sample else ""
        return f"{percent(self.share_after)} of the bytes on {self.place}{of} ({percent(self.share_before)} in {self.before})"


@dataclass(frozen=True, slots=True)
class Sizing:
    """Rows and row groups against a writer's memory; ``heap_bytes`` is a task's share of an executor's heap, None if not known.

    ``open_files`` are those a task has open at once.
    """

    row_bytes: float
    columns: int
    row_group_bytes: int
    rows_a_group: float
    chunk_bytes: float
    open_files: int
    open_files_from: str
    heap_bytes: int | None

    @property
    def writer_bytes(self) -> int:
        """Row groups that a task holds in memory at once."""
        return self.row_group_bytes * self.open_files
