"""Lay a sample's rows out in partitions, orders and files that are not there yet, and count what filters would read; pure.

A file stands for a run of rows of one partition, in the order the layout gives them. Bounds are those of its rows in the
sample, so with few rows a file its bounds are a little narrower than the real ones: what is advised from here is tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from icekit.tune.filters.model import Filter
from icekit.tune.filters.read import Sample
from icekit.tune.filters.skipping import Bounds, truncated
from icekit.tune.filters.skipping import may_match as may_hold
from icekit.tune.layout.model import HILBERT, SORT, ZORDER, Field, FieldValues, LayoutOrder, PartitionSpread, function, may_match

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
    """Tell whether a curve can be laid through a column of this type (not through decimals, times and nested types)."""
    return kind.startswith(_KINDS)


def ordered_bits(values: Sequence[Any], kind: str) -> Any:
    """Eight bytes of each value as an unsigned number; values are as facts keep them."""
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
    """Keys of rows on a z-order curve, the most significant first, from the bits of their columns."""
    return _interleaved(columns)


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
    return _interleaved([axis ^ adjust for axis in axes])


def _interleaved(columns: Sequence[Any]) -> list[Any]:
    """A bit from each column in turn, from the highest down, in words of 64 bits."""
    words, word, filled = [], np.zeros(len(columns[0]), dtype=np.uint64), 0
    for place in range(_BITS - 1, -1, -1):
        for column in columns:
            word = (word << np.uint64(1)) | ((column >> np.uint64(place)) & np.uint64(1))
            filled += 1
            if filled == _BITS:
                words.append(word)
                word, filled = np.zeros(len(columns[0]), dtype=np.uint64), 0
    return words


#: Rows of the sample that a file is told from, at least; with fewer the files are taken to be larger.
ROWS_A_FILE = 25
_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class SampleColumn:
    """A column of the sample: its distinct values in order, and each row's place among them, -1 for null."""

    kind: str
    distinct: Any
    ranks: Any

    @classmethod
    def of(cls, values: Sequence[Any], kind: str) -> SampleColumn:
        """Hold a sample's values; not-a-number counts as null, as bounds leave it out."""
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
        """Distinct values in a table of so many rows, by Chao's lower bound: those seen once and twice tell how many were not seen.

        A. Chao, "Nonparametric estimation of the number of classes in a population" (1984), its bias-corrected form.
        """
        seen = len(self.distinct)
        if not seen or len(self.ranks) >= rows:
            return float(seen)
        once, twice = int((self.counts == 1).sum()), int((self.counts == 2).sum())
        return min(float(rows), seen + once * (once - 1) / (2 * (twice + 1)))


@dataclass(frozen=True, eq=False)
class SampleRows:
    """A sample of a table of ``table_rows`` rows and ``table_bytes`` bytes, whose files are to be of ``target_bytes``.

    ``cut`` is the length that bounds of texts are cut off at, by column; ``blind`` columns have no bounds, ``nested`` ones lie
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
        """Hold a sample; ``kinds`` are types and ``modes`` metrics modes (``truncate(16)``), by column."""
        modes = modes or {}
        cut = {name: int(found[1]) for name, mode in modes.items() if (found := re.fullmatch(r"truncate\((\d{1,9})\)", mode))}
        columns = {name: SampleColumn.of(values, kinds[name]) for name, values in drawn.columns.items()}
        blind = {name for name, mode in modes.items() if mode in {"none", "counts"}}
        return cls(columns, drawn.rows, drawn.total_rows, size_in_bytes, target_bytes, cut, blind, nested)

    def spread(self, spec: Sequence[Field]) -> PartitionSpread:
        """How the table's bytes would be spread over the partitions of a spec."""
        codes, values = self._partitions(spec)
        found = len(values[0].values) if values else 1
        counts = np.bincount(codes, minlength=found)
        once, twice = int((counts == 1).sum()), int((counts == 2).sum())
        unseen = once * (once - 1) / (2 * (twice + 1)) if self.rows < self.table_rows else 0.0
        number = min(float(self.table_rows), found + unseen)
        largest = float(counts.max()) / max(self.rows, 1) * self.table_bytes
        return PartitionSpread(round(number), self.table_bytes / max(number, 1.0), largest)

    def read(self, spec: Sequence[Field], order: LayoutOrder | None, filters: Sequence[Filter]) -> LayoutRead:
        """What the filters read of a table that is partitioned and ordered so; without an order rows stay in that of the sample."""
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
            hit = may_hold(one.tree, bounds, len(starts))
            if values:
                hit = hit & may_match(one.tree, values, len(values[0].values))[of_partition]
            shares[one] = float(weights[hit].sum())
        return LayoutRead(shares, weighted(shares), len(starts), scaled)

    @cached_property
    def _by_spec(self) -> dict[tuple[Field, ...], tuple[Any, list[FieldValues]]]:
        return {}

    def knows(self, spec: Sequence[Field]) -> bool:
        """Tell whether each field of a spec can be worked out from the sample."""
        return all(f.column in self.columns and function(f.transform, self.columns[f.column].kind) is not None for f in spec)

    def _partitions(self, spec: Sequence[Field]) -> tuple[Any, list[FieldValues]]:
        """Each row's partition as a number, and the values of the partitions, a field each; fields of unknown columns are left out."""
        # Asked for with every order and every spread, and slow for a column of many values.
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
        """Where each file begins, and its partition; and whether files had to be taken larger than they would be."""
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
        if order.kind == SORT or len(there) < 2:
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
    """What filters read of a layout: ``share`` of the bytes on average (by weight), ``shares`` each; of ``files`` files.

    ``is_coarse`` tells that there would be more files than a sample of this size can tell apart.
    """

    shares: Mapping[Filter, float]
    share: float
    files: int
    is_coarse: bool


def weighted(shares: Mapping[Filter, float]) -> float:
    """The mean of shares by the filters' weights; 1.0 without filters."""
    total = math.fsum(f.weight for f in shares)
    return math.fsum(f.weight * share for f, share in shares.items()) / total if total else 1.0
