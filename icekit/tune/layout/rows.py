"""Arrange sampled rows in other partitions and orders, and propose the layout of which filters read least."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from icekit.facts.model import TableFacts
from icekit.tune.filters import EQUALITY, PREFIX, RANGE, Bounds, Filter, leaves, may_match, truncated
from icekit.tune.layout.model import (
    HILBERT,
    SORT,
    ZORDER,
    Field,
    FieldValues,
    LayoutCandidate,
    LayoutOrder,
    OrderDepth,
    Orders,
    PartitionSpread,
    TriedLayout,
    function,
    partitions_that_may_match,
    spec_name,
    weighted,
)
from icekit.tune.queries import Sample
from icekit.units import percent

# --- Order rows along a z-order or Hilbert curve, bit for bit as Iceberg's rewrite does; pure
#
# Each column gives eight bytes that compare as its values do: whole numbers widened to 64 bits with the sign flipped,
# timestamps in **seconds**, the first eight bytes of a text, nulls as zeros. The bits are of the values and not of their
# ranks, so a column whose values lie close together moves few of the high bits and weighs little beside a text.
#
# Source: ``SparkZOrderUDF.sortedLexicographically``, ``ZOrderByteUtils``, ``HilbertByteUtils``; the Hilbert index is
# J. Skilling's, "Programming the Hilbert curve", AIP Conf. Proc. 707, 381 (2004).


_BITS = 64
_SIGN = np.uint64(1 << 63)
_KINDS = ("int", "long", "float", "double", "string", "boolean", "date", "timestamp", "binary", "fixed", "uuid")


def takes(kind: str) -> bool:
    """Tell whether a curve can use a column of this type; decimals, times and nested types cannot be used."""
    return kind.startswith(_KINDS)


def ordered_bits(values: Sequence[Any], kind: str) -> Any:
    """Eight bytes of each value as an unsigned number; values have the types that facts use."""
    if kind.startswith(("string", "uuid", "binary", "fixed")):
        raw = [bytes.fromhex(v) if kind.startswith(("binary", "fixed")) else str(v).encode() for v in values]
        return np.array([int.from_bytes(v[:8].ljust(8, b"\0"), "big") for v in raw], dtype=np.uint64)
    if kind == "boolean":
        return np.array([(129 if v else 0) << 56 for v in values], dtype=np.uint64)
    if kind in {"float", "double"}:
        bits = np.array(values, dtype=np.float64).view(np.int64)
        return (bits ^ ((bits >> 63) | np.int64(-(2**63)))).view(np.uint64)
    whole = np.array(values, dtype=np.int64)
    if kind.startswith("timestamptz"):
        whole = whole // 1_000_000
    return whole.view(np.uint64) ^ _SIGN


def z_order(columns: Sequence[Any]) -> list[Any]:
    """Keys of rows on a z-order curve, most significant first: one bit from each column in turn, starting with the highest."""
    words, word, filled = [], np.zeros(len(columns[0]), dtype=np.uint64), 0
    for place in range(_BITS - 1, -1, -1):
        for column in columns:
            word = (word << np.uint64(1)) | ((column >> np.uint64(place)) & np.uint64(1))
            filled += 1
            if filled == _BITS:
                words.append(word)
                word, filled = np.zeros(len(columns[0]), dtype=np.uint64), 0
    return words


def hilbert(columns: Sequence[Any]) -> list[Any]:
    """Keys of rows on a Hilbert curve, the most significant first, from the bits of their columns."""
    axes = [np.array(column, dtype=np.uint64) for column in columns]
    for place in range(_BITS - 1, 0, -1):
        bit, lower = np.uint64(1 << place), np.uint64((1 << place) - 1)
        for i in range(len(axes)):
            is_set = (axes[i] & bit) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axes[i]) & lower)
            axes[i] = axes[i] ^ swapped
            axes[0] = axes[0] ^ np.where(is_set, lower, swapped) if i else np.where(is_set, axes[0] ^ lower, axes[0])
    for i in range(1, len(axes)):
        axes[i] = axes[i] ^ axes[i - 1]
    adjust = np.zeros(len(axes[0]), dtype=np.uint64)
    for place in range(_BITS - 1, 0, -1):
        adjust ^= np.where((axes[-1] & np.uint64(1 << place)) != 0, np.uint64((1 << place) - 1), np.uint64(0))
    return z_order([axis ^ adjust for axis in axes])


# --- Arrange a sample's rows in hypothetical partitions, orders and files, and count what filters would read; pure.
#
# A file stands for a run of rows of one partition, in the order the layout gives them. Bounds are those of its rows in the
# sample, so with few rows a file its bounds are a little narrower than the real ones: what is advised from here is tried.


#: The fewest rows of the sample that stand for a file; with fewer rows, files are assumed to be larger.
ROWS_A_FILE = 25
_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class SampleColumn:
    """A column of the sample: its distinct values in order, and the index of each row's value (-1 for null)."""

    kind: str
    distinct: Any
    ranks: Any

    @classmethod
    def of(cls, values: Sequence[Any], kind: str) -> SampleColumn:
        """Build it from a sample's values; not-a-number counts as null, because bounds leave it out."""
        present = np.array([v is not None and v == v for v in values], dtype=bool)
        kept = [v for v, there in zip(values, present, strict=True) if there]
        array: Any = np.array(kept) if kept and isinstance(kept[0], (int, float)) else np.array(kept, dtype=object)
        ranks = np.full(len(values), -1, dtype=np.int64)
        if not kept:
            return cls(kind, array, ranks)
        distinct, places = np.unique(array, return_inverse=True)
        ranks[present] = places
        return cls(kind, distinct, ranks)

    @cached_property
    def counts(self) -> Any:
        """How often each distinct value is in the sample."""
        return np.bincount(self.ranks[self.ranks >= 0], minlength=len(self.distinct))

    @cached_property
    def bits(self) -> Any:
        """Eight bytes of each row's value, for curves."""
        found = ordered_bits([*self.distinct.tolist()], self.kind)
        return np.where(self.ranks < 0, np.uint64(0), found[self.ranks]) if len(found) else np.zeros(len(self.ranks), dtype=np.uint64)

    def distinct_in_table(self, rows: int) -> float:
        """Distinct values in a table with this many rows, including an estimate of those not seen."""
        seen = len(self.distinct)
        if not seen or len(self.ranks) >= rows:
            return float(seen)
        return min(float(rows), seen + unseen(self.counts))


def unseen(counts: Any) -> float:
    """A lower bound of the number of values that a sample misses, estimated from the number of values seen once and twice.

    A. Chao, "Nonparametric estimation of the number of classes in a population" (1984), its bias-corrected form.
    """
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return once * (once - 1) / (2 * (twice + 1))


@dataclass(frozen=True, eq=False)
class SampleRows:
    """A sample of a table with ``table_rows`` rows, ``table_bytes`` bytes and a target file size of ``target_bytes``.

    ``cut`` is the length to which bounds of strings are truncated, by column; ``blind`` columns have no bounds, ``nested`` ones lie
    inside a struct.
    """

    columns: Mapping[str, SampleColumn]
    rows: int
    table_rows: int
    table_bytes: int
    target_bytes: int
    cut: Mapping[str, int]
    blind: Collection[str] = ()
    nested: Collection[str] = ()

    @classmethod
    def of(
        cls,
        drawn: Sample,
        kinds: Mapping[str, str],
        size_in_bytes: int,
        target_bytes: int,
        modes: Mapping[str, str] | None = None,
        nested: Collection[str] = (),
    ) -> SampleRows:
        """Build it from a sample; ``kinds`` are types and ``modes`` metrics modes (``truncate(16)``), by column."""
        modes = modes or {}
        cut = {name: int(found[1]) for name, mode in modes.items() if (found := re.fullmatch(r"truncate\((\d{1,9})\)", mode))}
        columns = {name: SampleColumn.of(values, kinds[name]) for name, values in drawn.columns.items()}
        blind = {name for name, mode in modes.items() if mode in {"none", "counts"}}
        return cls(
            columns=columns,
            rows=drawn.rows,
            table_rows=drawn.total_rows,
            table_bytes=size_in_bytes,
            target_bytes=target_bytes,
            cut=cut,
            blind=blind,
            nested=nested,
        )

    def spread(self, spec: Sequence[Field]) -> PartitionSpread:
        """How the table's bytes would be distributed over the partitions of a spec."""
        codes, values = self._partitions(spec)
        found = len(values[0].values) if values else 1
        counts = np.bincount(codes, minlength=found)
        number = min(float(self.table_rows), found + (unseen(counts) if self.rows < self.table_rows else 0.0))
        largest = float(counts.max()) / max(self.rows, 1) * self.table_bytes
        return PartitionSpread(round(number), self.table_bytes / max(number, 1.0), largest, self._a_year(spec, number))

    def _a_year(self, spec: Sequence[Field], partitions: float) -> float:
        """How many partitions a year of data adds, from the range of the sampled times, and at least from the units of time that it spans."""
        spans = []
        for field in spec:
            column = self.columns.get(field.column)
            if column is None or not len(column.distinct) or not time_parts(field, column):
                continue
            if column.kind == "date" or column.kind.startswith("timestamp"):
                range_ = float(column.distinct[-1]) - float(column.distinct[0])
                years = range_ / (_YEAR_DAYS if column.kind == "date" else _YEAR_DAYS * _DAY_MICROS)
                unit = function(field.transform, column.kind)
                units = len({unit(v) for v in column.distinct.tolist()}) if unit else 1
                spans.append(max(years, units / _UNITS_A_YEAR.get(field.transform, _YEAR_DAYS)))
            elif field.transform == "identity" and time_parts(field, column) == {"year"}:
                spans.append(float(len(column.distinct)))
        return partitions / max(spans) if spans else 0.0

    def left_by_partitions(self, spec: Sequence[Field], filters: Sequence[Filter]) -> float:
        """The share of the bytes in partitions that the filters cannot rule out, by weight."""
        codes, values = self._partitions(spec)
        if not values or not self.rows:
            return 1.0
        weights = np.bincount(codes, minlength=len(values[0].values)) / self.rows
        return weighted({f: float(weights[partitions_that_may_match(f.tree, values, len(weights))].sum()) for f in filters})

    def read(self, spec: Sequence[Field], order: LayoutOrder | None, filters: Sequence[Filter]) -> LayoutRead:
        """What the filters read of a table with these partitions and this order; without an order, rows keep the order of the sample."""
        if not self.rows:
            return LayoutRead({}, 1.0, 1, False)
        codes, values = self._partitions(spec)
        keys = [] if order is None else self._keys(order)
        placed = np.lexsort((*reversed(keys), codes)) if keys or values else np.arange(self.rows)
        starts, of_partition, scaled = self._files(np.bincount(codes))
        weights = np.diff([*starts, self.rows]) / self.rows
        known = set() if order is None else set(order.columns)
        bounds = {name: self._bounds(name, placed, starts, name in known) for name in self.columns}
        shares = {}
        for one in filters:
            hit = may_match(one.tree, bounds, len(starts))
            if values:
                hit = hit & partitions_that_may_match(one.tree, values, len(values[0].values))[of_partition]
            shares[one] = float(weights[hit].sum())
        return LayoutRead(shares, weighted(shares), len(starts), scaled)

    @cached_property
    def _by_spec(self) -> dict[tuple[Field, ...], tuple[Any, list[FieldValues]]]:
        return {}

    def knows(self, spec: Sequence[Field]) -> bool:
        """Tell whether each field of a spec can be computed from the sample."""
        return all(f.column in self.columns and function(f.transform, self.columns[f.column].kind) is not None for f in spec)

    def _partitions(self, spec: Sequence[Field]) -> tuple[Any, list[FieldValues]]:
        """Each row's partition as a number, and the values of each partition field; fields of unknown columns are left out."""
        # Used with every order and every spec, and slow for a column of many values.
        key = tuple(spec)
        if key not in self._by_spec:
            self._by_spec[key] = self._partitioned(key)
        return self._by_spec[key]

    def _partitioned(self, spec: Sequence[Field]) -> tuple[Any, list[FieldValues]]:
        found: list[tuple[Field, str, Any, list[Any]]] = []
        for field in spec:
            column = self.columns.get(field.column)
            transform = function(field.transform, column.kind) if column is not None else None
            if column is None or transform is None:
                continue
            results = [transform(v) for v in column.distinct.tolist()]
            names = list(dict.fromkeys(results))
            place = {v: i for i, v in enumerate(names)}
            of_rank = np.array([place[v] for v in results], dtype=np.int64)
            codes = np.where(column.ranks < 0, len(names), of_rank[column.ranks] if len(results) else len(names))
            found.append((field, column.kind, codes, [*names, None]))
        if not found:
            return np.zeros(self.rows, dtype=np.int64), []
        stacked, codes = np.unique(np.stack([f[2] for f in found]), axis=1, return_inverse=True)
        return codes.reshape(-1), [FieldValues.of(f, kind, [names[i] for i in stacked[n]]) for n, (f, kind, _, names) in enumerate(found)]

    def _files(self, counts: Any) -> tuple[Any, Any, bool]:
        """The start and the partition of each file, and whether files had to be larger than they would be in the table."""
        counts = counts[counts > 0]
        wanted = np.maximum(1, np.ceil(counts / self.rows * self.table_bytes / max(self.target_bytes, 1) - 1e-9)).astype(np.int64)
        most = np.maximum(1, counts // ROWS_A_FILE)
        files = np.minimum(wanted, most)
        offsets = np.cumsum(counts) - counts
        starts = [
            offset + n * place // number
            for offset, n, number in zip(offsets.tolist(), counts.tolist(), files.tolist(), strict=True)
            for place in range(number)
        ]
        return np.array(starts, dtype=np.int64), np.repeat(np.arange(len(counts)), files), bool((wanted > most).any())

    def _keys(self, order: LayoutOrder) -> list[Any]:
        there = [name for name in order.columns if name in self.columns]
        if not order.is_curve or len(there) < 2:
            return [self.columns[name].ranks for name in there]
        bits = [self.columns[name].bits for name in there]
        return {ZORDER: z_order, HILBERT: hilbert}[order.kind](bits)

    def _bounds(self, name: str, placed: Any, starts: Any, is_ordered: bool) -> Bounds:
        column = self.columns[name]
        ranks = column.ranks[placed]
        low = np.minimum.reduceat(np.where(ranks < 0, _LARGEST, ranks), starts)
        high = np.maximum.reduceat(ranks, starts)
        has_values = high >= 0
        # A sort column gets bounds whatever the defaults are (MetricsConfig.forTable).
        known = has_values & (is_ordered or name not in self.blind)
        if not len(column.distinct):
            empty = np.full(len(starts), None, dtype=object)
            return Bounds(empty, empty, has_values, np.ones(len(starts), dtype=bool), known)
        lower, upper = column.distinct[np.where(has_values, low, 0)], column.distinct[np.maximum(high, 0)]
        bounds = Bounds(lower, upper, has_values, np.minimum.reduceat(ranks, starts) < 0, known)
        length = self.cut.get(name, 16 if is_ordered else 0)
        is_long = column.kind == "string" and length and max(map(len, column.distinct)) > length
        return truncated(bounds, length) if is_long else bounds


@dataclass(frozen=True, eq=False)
class LayoutRead:
    """What filters read with a layout of ``files`` files: ``share`` of the bytes on average (by weight), ``shares`` for each filter.

    ``is_coarse`` is true if there would be more files than a sample of this size can distinguish.
    """

    shares: Mapping[Filter, float]
    share: float
    files: int
    is_coarse: bool


# --- Choose columns to order by: what filters would read of a sample, sorted, z-ordered or along a Hilbert curve; pure
#
# Columns are added one at a time, each time the one that helps most (greedy forward selection), until one more saves too little.


Check = Callable[[], object]
#: Choices: another column must save this share of what is read without it, and a curve this share of what a sort reads.
PAYS, CURVE_PAYS = 0.1, 0.2
#: The most columns considered, those most used by filters.
MOST_SORT_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Search:
    """Compares orders and specs by what ``filters`` would read of sampled rows.

    ``columns`` are those in filters; an order has up to ``most`` of them. ``files`` are the table's: less than half a file of all
    bytes is no difference. ``check`` is called before each order and spec, and may raise if the time is up.
    """

    rows: SampleRows
    filters: Sequence[Filter]
    columns: Sequence[str]
    most: int
    files: int
    check: Check = bool

    def choose(self, spec: Sequence[Field], own: LayoutOrder | None) -> Orders:
        """Compare orders of rows within a spec's partitions; ``own`` is the table's order."""
        rows, filters = self.rows, self.filters
        came = rows.read(spec, None, filters)
        owned = rows.read(spec, own, filters).share if own is not None else None
        # Within a partition an identity column has one value.
        fixed = {f.column for f in spec if f.transform == "identity"}
        open_ = [c for c in self.columns if c not in fixed and c in rows.columns and len(rows.columns[c].distinct) > 1]
        open_ = open_[:MOST_SORT_COLUMNS]
        steps: list[OrderDepth] = []
        while open_ and len(steps) < self.most:
            chosen = steps[-1].order.columns if steps else ()
            step = self._best(spec, chosen, [c for c in open_ if c not in chosen])
            if step is None:
                break
            steps.append(step)
        best = steps[0] if steps else None
        for step in steps[1:]:
            if best is not None and pays(best.share, step.share, self.files):
                best = step
        return Orders(came.share, owned, tuple(steps), best, came.is_coarse)

    def _best(self, spec: Sequence[Field], chosen: tuple[str, ...], more: Sequence[str]) -> OrderDepth | None:
        rows, tried = self.rows, dict[LayoutOrder, float]()
        for column in more:
            columns = (*chosen, column)
            orders = [LayoutOrder(SORT, columns)]
            if len(columns) > 1:
                # The first columns of a sort matter most, so a column may help more before those already chosen.
                orders.append(LayoutOrder(SORT, (column, *chosen)))
                # Iceberg's curves take top-level columns only (SparkZOrderFileRewriteRunner).
                if all(takes(rows.columns[c].kind) and c not in rows.nested for c in columns):
                    orders += [LayoutOrder(ZORDER, columns), LayoutOrder(HILBERT, columns)]
            for order in orders:
                self.check()
                tried[order] = rows.read(spec, order, self.filters).share
        if not tried:
            return None
        sort = min((o for o in tried if not o.is_curve), key=lambda o: (tried[o], o.name))
        curve = min((o for o in tried if o.is_curve), key=lambda o: (tried[o], o.name), default=None)
        # New files keep a sort order, but only a rewrite makes a curve, so a curve must be clearly better.
        best = curve if curve is not None and tried[curve] < tried[sort] * (1 - CURVE_PAYS) else sort
        by_kind: dict[str, LayoutOrder] = {}
        for order in sorted(tried, key=lambda o: (tried[o], o.name)):
            by_kind.setdefault(order.kind, order)
        return OrderDepth(best, tried[best], tuple((o, tried[o]) for o in by_kind.values()))

    def score(self, specs: Sequence[tuple[Field, ...]], order: LayoutOrder | None) -> list[LayoutCandidate]:
        """What the filters would read with each spec and an order within its partitions; specs stay in the order given."""
        rows, found = self.rows, []
        for spec in specs:
            self.check()
            spread = rows.spread(spec)
            fits = not spec or spread.mean_bytes >= WELL_FILLED * rows.target_bytes
            alone = rows.left_by_partitions(spec, self.filters)
            found.append(LayoutCandidate(spec, rows.read(spec, order, self.filters).share, spread, fits, order, alone))
        return found

    def with_own_orders(self, scored: Sequence[LayoutCandidate]) -> list[LayoutCandidate]:
        """The same, with the best order for each of the few best specs that fit, if it saves enough; never for the first spec."""
        best_few = sorted((c for c in scored[1:] if c.fits), key=lambda c: (c.share, len(c.spec), c.name))[:WITH_OWN_ORDER]
        found = []
        for one in scored:
            own = self.choose(one.spec, None).best if one in best_few else None
            is_better = own is not None and pays(one.share, own.share, self.files)
            found.append(replace(one, share=own.share, order=own.order) if own is not None and is_better else one)
        return found


def pays(before: float, after: float, files: int, margin: float = PAYS) -> bool:
    """Tell whether a change saves enough: more than the margin, and at least half a file per query."""
    return before - after >= max(margin * before, 0.5 / max(files, 1))


_TIMES = ("year", "month", "day", "hour")
#: A column with at most this many values may be an identity partition field.
LOW_CARDINALITY = 200
#: The most candidates that are scored, and the most columns they are made of.
MOST, MOST_COLUMNS = 48, 4
#: The number of buckets makes one file each, within these limits.
FEWEST_BUCKETS, MOST_BUCKETS = 4, 1024
#: A choice: a partition should have at least this share of the target size, or none of its files is ever well-sized.
WELL_FILLED = 0.5
#: Choices: partitions below this share of the target size are tiny; fewer than this many of them do not matter.
TINY, MANY = 0.25, 16
#: Specs for which an order of their own is searched, besides the order that is best for the current spec.
WITH_OWN_ORDER = 3


def candidates(rows: SampleRows, current: Sequence[Field], filters: Sequence[Filter], columns: Sequence[str]) -> list[tuple[Field, ...]]:
    """Specs to compare: the current one first, then none, its parts, coarser and finer ones, and fields for the columns of filters.

    Only the current one if one of its fields cannot be computed from the sample, because what it rules out is then not known.
    """
    known = tuple(current)
    if not rows.knows(known):
        return [known]
    found: dict[tuple[Field, ...], None] = {known: None, (): None}
    for size in range(1, len(known)):
        found.update(dict.fromkeys(itertools.combinations(known, size)))
    for place, field in enumerate(known):
        for other in _neighbours(field, rows):
            found[(*known[:place], other, *known[place + 1 :])] = None
    single = [f for column in columns[:MOST_COLUMNS] if column in rows.columns for f in _fields(rows, column, filters)]
    found.update({(field,): None for field in single})
    for field in single:
        if all(field.column != f.column for f in known) and known:
            found[(*known, field)] = None
    for a, b in itertools.combinations(single, 2):
        if a.column != b.column:
            # Times first, as people read paths.
            found[(a, b) if a.name in _TIMES or b.name not in _TIMES else (b, a)] = None
    # The order of fields decides only how paths read: of the same fields the first order is compared.
    by_fields: dict[frozenset[Field], tuple[Field, ...]] = {}
    for spec in found:
        if spec == known or is_whole_time(spec, rows.columns):
            by_fields.setdefault(frozenset(spec), spec)
    return list(by_fields.values())[:MOST]


# --- Parts of a time in columns of their own, as year, month and day: a day without its month combines days of all months


_YEAR_DAYS, _DAY_MICROS = 365.25, 86_400_000_000
_UNITS_A_YEAR = {"year": 1.0, "month": 12.0, "day": _YEAR_DAYS, "hour": 24 * _YEAR_DAYS}
_PARTS = ("year", "month", "day", "hour", "minute")
#: Names of columns that hold a part of a time, with its lowest and highest value.
_CYCLIC: Mapping[str, tuple[str, int, int]] = {
    **dict.fromkeys(("month", "mon", "mm"), ("month", 1, 12)),
    **dict.fromkeys(("day", "dd", "dom", "mday", "dayofmonth"), ("day", 1, 31)),
    **dict.fromkeys(("hour", "hr", "hh", "hourofday"), ("hour", 0, 23)),
    **dict.fromkeys(("minute", "minutes"), ("minute", 0, 59)),
}
_WRITTEN = ((re.compile(r"\d{4}-?\d\d-?\d\d"), 3), (re.compile(r"\d{4}-?\d\d"), 2), (re.compile(r"(19|20|21)\d\d"), 1))


def time_parts(field: Field, column: SampleColumn) -> set[str]:
    """The parts of a time that a partition field tells apart: a date tells year, month and day apart, a day of the month only the day."""
    if column.kind == "date" or column.kind.startswith("timestamp"):
        unit = "day" if field.transform == "identity" and column.kind == "date" else field.transform
        return set(_PARTS[: _PARTS.index(unit) + 1]) if unit in _PARTS else set(_PARTS) if unit == "identity" else set()
    if field.transform != "identity" or not len(column.distinct) or column.kind not in {"string", "int", "long"}:
        return set()
    values = [str(v) for v in column.distinct.tolist()]
    cyclic = _cyclic(field.column, values)
    if cyclic:
        return {cyclic}
    return next((set(_PARTS[:number]) for form, number in _WRITTEN if all(form.fullmatch(v) for v in values)), set())


def _cyclic(name: str, values: Sequence[str]) -> str | None:
    """The part of a time that comes again and again in a column of this name: a month, a day of the month, an hour of the day."""
    words = re.split(r"[._\s]+", name.lower())
    known = _CYCLIC.get(words[-1]) or _CYCLIC.get("".join(words)) or _CYCLIC.get("".join(words[-3:]))
    if known is None or not all(v.isascii() and v.isdigit() and len(v) <= 2 and known[1] <= int(v) <= known[2] for v in values):
        return None
    return known[0]


def is_whole_time(spec: Sequence[Field], columns: Mapping[str, SampleColumn]) -> bool:
    """Tell whether each part of a time in a spec has all the coarser parts with it: a month its year, a day its month and year."""
    parts = [time_parts(f, columns[f.column]) for f in spec if f.column in columns]
    told = set().union(*parts)
    return all(told.issuperset(_PARTS[: _PARTS.index(next(iter(p)))]) for p in parts if len(p) == 1)


def best(scored: Sequence[LayoutCandidate]) -> LayoutCandidate | None:
    """The spec with well-filled partitions of which filters read least.

    Among near equals it is the one whose partitions alone rule out more, then the one with fewer fields, new partitions a year, and partitions.
    """
    fitting = [c for c in scored if c.fits]
    if not fitting:
        return None
    least = min(c.share for c in fitting)
    near = [c for c in fitting if c.share <= least * 1.05 + 1e-9]
    return min(near, key=lambda c: (round(c.partition_share, 1), len(c.spec), c.spread.a_year, c.spread.partitions, c.share, c.name))


def is_tiny(candidate: LayoutCandidate, target_bytes: int) -> bool:
    """Tell whether a spec has many partitions that are too small for a well-sized file."""
    return candidate.spread.partitions >= MANY and candidate.spread.mean_bytes < TINY * target_bytes


def _neighbours(field: Field, rows: SampleRows) -> list[Field]:
    kind = rows.columns[field.column].kind
    if field.name in _TIMES:
        return [Field(field.column, t) for t in _units(kind) if t != field.transform]
    if field.name == "bucket":
        width = int(field.transform[7:-1])
        return [Field(field.column, f"bucket[{n}]") for n in {max(2, width // 4), width * 4} if n != width]
    return []


def _units(kind: str) -> tuple[str, ...]:
    return _TIMES[:3] if kind == "date" else _TIMES


def _fields(rows: SampleRows, column: str, filters: Sequence[Filter]) -> list[Field]:
    """Partition fields that help the filters on a column."""
    of, asked = rows.columns[column], [leaf for f in filters for leaf in leaves(f.tree) if leaf.column == column]
    kinds = {leaf.kind for leaf in asked}
    if of.kind in {"date", "timestamp", "timestamptz"}:
        return [Field(column, unit) for unit in _units(of.kind)]
    found = []
    distinct = of.distinct_in_table(rows.table_rows)
    if distinct <= LOW_CARDINALITY and of.kind in {"string", "int", "long", "boolean", "uuid"}:
        found.append(Field(column, "identity"))
    elif EQUALITY in kinds and of.kind in {"string", "int", "long", "uuid", "binary"}:
        found.append(Field(column, f"bucket[{_buckets(rows)}]"))
    if PREFIX in kinds and of.kind == "string":
        # A prefix that drew no value, as from a column of nulls, has no length.
        shortest = min((len(str(leaf.values[0])) for leaf in asked if leaf.kind == PREFIX and leaf.values), default=0)
        found += [Field(column, f"truncate[{shortest}]")] if shortest else []
    if RANGE in kinds and of.kind in {"int", "long"} and distinct > LOW_CARDINALITY:
        found.append(Field(column, f"truncate[{_width(rows, column)}]"))
    return found


def _buckets(rows: SampleRows) -> int:
    """The power of two that makes partitions of one to two target sizes."""
    wanted = max(1.0, rows.table_bytes / max(rows.target_bytes, 1))
    return int(min(max(2 ** int(wanted).bit_length() // 2, FEWEST_BUCKETS), MOST_BUCKETS))


def _width(rows: SampleRows, column: str) -> int:
    """The power of ten that makes partitions of at least a target size if the values are spread evenly."""
    distinct = rows.columns[column].distinct
    span = int(distinct[-1]) - int(distinct[0]) + 1
    wanted = span / max(1.0, rows.table_bytes / max(rows.target_bytes, 1))
    width = 1
    while width < wanted:
        width *= 10
    return width


# --- Propose a layout from a sample; it is tried before it is advised; pure


#: A new order or spec must save this share of the bytes that filters read now: a choice.
MARGIN = 0.2


@dataclass(frozen=True)
class LayoutProposal:
    """The proposal of the sample: a spec (the current one to keep it) and an order (None to keep it).

    ``share`` is the share of the bytes that filters would read. ``is_worn`` is true if the current order is right but files do not follow it, ``coarser`` if the spec is proposed
    for fewer, fuller partitions. ``doubt`` says why another sample might have led to another proposal, None if it would not.
    """

    spec: tuple[Field, ...]
    order: LayoutOrder | None
    share: float
    is_worn: bool = False
    coarser: bool = False
    doubt: str | None = None

    def change(self, current: Sequence[Field]) -> tuple[tuple[Field, ...], LayoutOrder | None] | None:
        """The spec and the order (None: the table's own) that a trial writes; None if nothing is proposed."""
        if self.spec == tuple(current) and self.order is None and not self.is_worn:
            return None
        return self.spec, self.order

    def simpler(self, orders: Orders, tried: TriedLayout | None) -> LayoutProposal | None:
        """A plain sort to use instead of a curve that a trial shows to be no better; None if there is nothing simpler to try."""
        if tried is None or self.order is None or not self.order.is_curve or not orders.steps:
            return None
        sorts = [(share, order) for step in orders.steps for order, share in step.shares if not order.is_curve]
        share, order = min(sorts, key=lambda pair: (pair[0], len(pair[1].columns)))
        return replace(self, order=order, share=share) if tried.share_after > share * (1 - CURVE_PAYS) else None


#: Choices: shares that differ by less than this share of them, and savings this close to :data:`MARGIN`, might change places in another sample.
NEAR, CLOSE = 0.1, 0.05


def is_close(before: float, after: float, files: int) -> bool:
    """Tell whether a saving is so near the limit that another measurement might be on its other side."""
    return pays(before, after, files, MARGIN - CLOSE) != pays(before, after, files, MARGIN + CLOSE)


def close_to_limit(before: float, after: float) -> str:
    """The doubt about such a saving."""
    return f"{percent(before)} → {percent(after)} of the bytes is close to the threshold, a saving of {percent(MARGIN)}"


def _doubted(
    found: LayoutProposal, own: LayoutOrder | None, orders: Orders, candidates: Sequence[LayoutCandidate], share_now: float, files: int
) -> LayoutProposal:
    """The same, with the doubt that near-equal layouts or a saving near the limit raise."""
    if not candidates:
        return found
    here = candidates[0].spec
    order = found.order or own
    rivals = [
        (c.share, f"{c.name}{f', sorted by {c.order.name}' if c.order else ''}") for c in candidates if c.fits and c.spec != found.spec
    ]
    if found.spec == here:
        # A longer or shorter sort by the same columns is no other layout.
        others = [(o, share) for step in orders.steps for o, share in step.shares if order is not None and o != order]
        rivals += [(share, f"{spec_name(here)}, sorted by {o.name}") for o, share in others if order and o.columns[0] != order.columns[0]]
    is_change = found.change(here) is not None
    near = sorted((share, name) for share, name in rivals if is_change and abs(share - found.share) <= NEAR * found.share + 1e-9)
    if near:
        share, name = min(near, key=lambda one: (abs(one[0] - found.share), one[1]))
        said = f"on the sample, another layout reads about as much ({name}: {percent(share)} of the bytes, the proposal {percent(found.share)})"
        return replace(found, doubt=said)
    compared = [(share_now, orders.best.share)] if orders.best is not None else []
    chosen = best(candidates)
    if chosen is not None and chosen.spec != here:
        compared.append((share_now if found.spec != here else found.share, chosen.share))
    close = next(((before, after) for before, after in compared if is_close(before, after, files)), None)
    return replace(found, doubt=f"on the sample, {close_to_limit(*close)}") if close else found


def propose(
    facts: TableFacts,
    current: tuple[Field, ...],
    own: LayoutOrder | None,
    orders: Orders,
    candidates: Sequence[LayoutCandidate],
    share_now: float,
) -> LayoutProposal:
    """The proposal of the sample, compared with what filters read now; the current spec is the first of ``candidates``."""
    found = _proposed(facts, current, own, orders, candidates, share_now)
    return _doubted(found, own, orders, candidates, share_now, facts.data.file_count)


def _proposed(
    facts: TableFacts,
    current: tuple[Field, ...],
    own: LayoutOrder | None,
    orders: Orders,
    candidates: Sequence[LayoutCandidate],
    share_now: float,
) -> LayoutProposal:
    files = facts.data.file_count
    order, share, worn = None, share_now, False
    found = orders.best
    if own is not None and orders.own is not None and (found is None or not pays(orders.own, found.share, files, MARGIN)):
        if pays(share_now, orders.own, files, MARGIN):
            share, worn = orders.own, True
    elif found is not None and pays(share_now, found.share, files, MARGIN):
        order, share = found.order, found.share
    keep = LayoutProposal(current, order, share, worn)
    if not candidates:
        return keep
    here, chosen = candidates[0], best(candidates)
    if chosen is None or chosen.spec == here.spec:
        return keep
    # A spec is more expensive to change than an order, so it must save as much again.
    if pays(share, chosen.share, files, MARGIN):
        return LayoutProposal(chosen.spec, chosen.order if chosen.order != own else None, chosen.share, worn)
    if is_tiny(here, facts.target_bytes):
        # Reading one well-sized file is never too much.
        most = max(share * (1 + MARGIN), facts.target_bytes / max(facts.data.size_in_bytes, 1))
        fitting = [c for c in candidates if c.fits and c.share <= most and c.spread.partitions < here.spread.partitions]
        if fitting:
            coarser = min(
                fitting,
                key=lambda c: (c.share > share, not c.spec, round(c.share, 2), c.partition_share, c.spread.a_year, len(c.spec), c.name),
            )
            return LayoutProposal(coarser.spec, coarser.order if coarser.order != own else None, coarser.share, worn, coarser=True)
    return keep
