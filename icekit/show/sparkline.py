"""Draw small pictures as text: a sparkline in SVG, and what bars of file sizes rest on; no pandas, no matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from icekit.answer.html import text
from icekit.diagnose.findings import Thresholds
from icekit.facts.model import Kind, TableFacts
from icekit.facts.rollup import HistogramBar, file_size_histogram, max_file_size, min_file_size
from icekit.units import size

WIDTH, HEIGHT, MOST = 120, 24, 90
_ROOM = 3.0


def sparkline(points: Sequence[float], said: str) -> str:
    """The newest points from left to right, from zero up, the last one marked; ``said`` is for those who do not see it."""
    shown = list(points)[-MOST:]
    top = max([*shown, 0.0]) or 1.0
    step = (WIDTH - 2 * _ROOM) / max(len(shown) - 1, 1)
    places = [(_ROOM + step * i, HEIGHT - _ROOM - (HEIGHT - 2 * _ROOM) * max(value, 0.0) / top) for i, value in enumerate(shown)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1] if places else (_ROOM, HEIGHT - _ROOM)
    return (
        f"<svg class=spark role=img aria-label='{text(said)}' width={WIDTH} height={HEIGHT} viewBox='0 0 {WIDTH} {HEIGHT}'>"
        f"<title>{text(said)}</title><polyline points='{line}' fill=none stroke='#0072b2' stroke-width=1.8 />"
        f"<circle cx={x:.1f} cy={y:.1f} r=2.6 fill='#d55e00' /></svg>"
    )


# --- What every picture of file sizes rests on: bars, the target, and the band a rewrite leaves alone; no pandas


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
