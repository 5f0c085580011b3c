"""What every picture of file sizes rests on: bars, the target, and the band a rewrite leaves alone; no pandas."""

from __future__ import annotations

from bisect import bisect_right

from icekit.facts.measures import HistogramBar, file_size_histogram
from icekit.facts.model import Kind, TableFacts
from icekit.facts.sizes import max_file_size, min_file_size


def target_of(facts: TableFacts, kind: Kind) -> int | None:
    """The target file size of one kind; deletion vectors have none."""
    if kind is Kind.DATA:
        return facts.target_bytes
    return None if kind is Kind.DELETION_VECTORS else facts.int_setting("write.delete.target-file-size-bytes")


def left_alone(facts: TableFacts, kind: Kind) -> tuple[int, int] | None:
    """The smallest and largest size that a rewrite leaves alone; None for kinds that no rewrite sizes."""
    target = target_of(facts, kind)
    # rewrite_position_delete_files has the size rules of rewrite_data_files, at its own target;
    # nothing combines equality deletes by size.
    if target is None or kind is Kind.EQUALITY_DELETES:
        return None
    return min_file_size(target), max_file_size(target)


def in_band(bar: HistogramBar, band: tuple[int, int] | None) -> bool:
    """Tell whether all sizes of a bar are within limits, which are bucket edges."""
    return band is not None and band[0] <= bar.lower_bytes and bar.upper_bytes is not None and bar.upper_bytes <= band[1] + 1


def size_bars(facts: TableFacts, kind: Kind = Kind.DATA, *, with_band: bool = False) -> tuple[HistogramBar, ...]:
    """The size histogram; ``with_band`` reaches to the band with empty bars."""
    bars = file_size_histogram(facts, kind)
    band = left_alone(facts, kind)
    if not bars:
        return ()
    edges = facts.data_edges if kind is Kind.DATA else facts.delete_edges
    low, high = bars[0].lower_bytes, bars[-1].lower_bytes
    if with_band and band is not None:
        low, high = min(low, band[0]), max(high, band[1])
    first, last = bisect_right(edges, low) - 1, bisect_right(edges, high) - 1
    known = {bar.lower_bytes: bar for bar in bars}
    uppers: tuple[int | None, ...] = (*edges[1:], None)
    return tuple(known.get(edges[i], HistogramBar(edges[i], uppers[i], 0, 0)) for i in range(first, last + 1))
