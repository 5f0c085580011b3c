"""Count what every picture of file sizes rests on: bars, the target, and the band a rewrite leaves alone; no pandas, no matplotlib."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from icekit.diagnose.findings import Thresholds
from icekit.facts.model import Kind, TableFacts
from icekit.facts.rollup import HistogramBar, file_size_histogram, max_file_size, min_file_size
from icekit.units import size


def target_of(facts: TableFacts, kind: Kind) -> int | None:
    """The target file size of one kind; deletion vectors have none."""
    if kind is Kind.DATA:
        return facts.target_bytes
    return None if kind is Kind.DELETION_VECTORS else facts.int_setting("write.delete.target-file-size-bytes")


def left_alone(facts: TableFacts, kind: Kind, thresholds: Thresholds | None = None) -> tuple[int, int] | None:
    """The smallest and largest size that a rewrite leaves alone; None for kinds that no rewrite sizes.

    By the limits given for data files, which a rewrite is told; by Iceberg's own for position delete files.
    """
    target = target_of(facts, kind)
    # rewrite_position_delete_files has the size rules of rewrite_data_files, at its own target;
    # nothing combines equality deletes by size.
    if target is None or kind is Kind.EQUALITY_DELETES:
        return None
    chosen = thresholds if thresholds is not None and kind is Kind.DATA else Thresholds()
    return min_file_size(target, chosen.min_file_size_ratio), max_file_size(target, chosen.max_file_size_ratio)


def cut_at(edges: Iterable[int], band: tuple[int, int] | None) -> tuple[int, ...]:
    """Bucket edges with the band's own among them: a limit that was moved lies between buckets, or findings refuse it."""
    # A file of exactly the limit is left alone on either side.
    return tuple(sorted({*edges, band[0], band[1] + 1} - {band[1]})) if band is not None else tuple(edges)


def class_limits(target_bytes: int, band: tuple[int, int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Lower limits of a few ranges of sizes, and what they are called: some under the band, the band, and over it.

    Under 1/16 and 1/4 of the target, and up to the band; a range that the band leaves no room for is not there.
    """
    low, over = band[0], band[1] + 1
    limits = tuple(sorted({0, *(limit for limit in (target_bytes // 16, target_bytes // 4) if limit < low), low, over}))
    names = (f"under {size(limits[1])}", *(f"{size(a)}–{size(b)}" for a, b in pairwise(limits[1:])), f"over {size(over)}")
    return limits, names


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Data files of a range of sizes relative to the target; ``left_alone`` is the band no size rule selects."""

    label: str
    file_count: int
    size_in_bytes: int
    left_alone: bool = False


def size_classes(facts: TableFacts, thresholds: Thresholds | None = None) -> tuple[SizeClass, ...]:
    """Ranges of data file sizes: see :func:`class_limits`; the band is that of the limits given.

    The limits are bucket edges, or lie between buckets (:func:`icekit.facts.rollup.edges`; findings refuse others), so
    the counts are exact.
    """
    band = left_alone(facts, Kind.DATA, thresholds)
    assert band is not None  # data files always have one
    limits, labels = class_limits(facts.target_bytes, band)
    bars = {bar.lower_bytes: (bar.file_count, bar.size_in_bytes) for bar in file_size_histogram(facts, Kind.DATA, limits)}
    return tuple(
        SizeClass(label, *bars.get(limit, (0, 0)), left_alone=limit == band[0]) for limit, label in zip(limits, labels, strict=True)
    )


def in_band(bar: HistogramBar, band: tuple[int, int] | None) -> bool:
    """Tell whether all sizes of a bar are within limits, which are bucket edges."""
    return band is not None and band[0] <= bar.lower_bytes and bar.upper_bytes is not None and bar.upper_bytes <= band[1] + 1


def size_bars(
    facts: TableFacts, kind: Kind = Kind.DATA, thresholds: Thresholds | None = None, *, with_band: bool = False
) -> tuple[HistogramBar, ...]:
    """The size histogram, cut at the facts' own edges and at the limits; ``with_band`` reaches to the band with empty bars."""
    band = left_alone(facts, kind, thresholds)
    edges = facts.data_edges if kind is Kind.DATA else facts.delete_edges
    return file_size_histogram(facts, kind, cut_at(edges, band), reach=band if with_band else None)
