"""Draw how the file sizes of a table changed: one snapshot's histogram, and all of them in one picture."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from icekit.diagnose.findings import Thresholds
from icekit.facts.measures import HistogramBar
from icekit.facts.model import Kind, TableFacts
from icekit.facts.sizes import bucket_of
from icekit.facts.through_time import SizesAt
from icekit.show.chart import BLACK, BLUE, GREEN, ORANGE, SKY, VERMILLION, Chart, canvas, legend, nothing, styled, whole_numbers
from icekit.show.sizes import class_limits, cut_at, left_alone
from icekit.units import at, count, moment, size

_UNDER, _BAND, _OVER = ((VERMILLION, "xx"), (ORANGE, "//"), (SKY, "..")), (GREEN, ""), (BLUE, "\\\\")


def sizes_through_time(facts: TableFacts, sizes: Sequence[SizesAt], thresholds: Thresholds | None = None) -> Chart:
    """Data files at each snapshot, stacked by size: what a rewrite leaves alone, and what is smaller and larger."""
    title = f"File sizes through time: {facts.name}"
    if not sizes:
        return nothing(title, "No snapshot was read: nothing to draw.")
    names, counts = _classes(facts, sizes, band_of(facts, sizes, thresholds))
    places = range(len(sizes))
    with styled():
        figure, (axes,) = canvas(title, 4.4)
        ends = [0] * len(sizes)
        looks = (*_UNDER[: len(names) - 2], _BAND, _OVER)
        for name, (color, hatch), files in zip(names, looks, counts, strict=True):
            if any(files):
                axes.bar(places, files, 0.8, bottom=ends, facecolor=color, edgecolor=BLACK, linewidth=0.5, hatch=hatch, label=name)
            ends = [end + n for end, n in zip(ends, files, strict=True)]
        axes.set_ylabel("Data files")
        whole_numbers(axes.yaxis)
        axes.margins(y=0.1)
        marks = sorted({round(i * (len(sizes) - 1) / 4) for i in range(5)})
        times = [at(sizes[i].committed_at_ms) for i in marks]
        one_day = times[0].date() == times[-1].date()
        axes.set_xticks(marks, [t.strftime("%H:%M:%S" if one_day else "%Y-%m-%d\n%H:%M") for t in times])
        axes.set_xlabel("Snapshot, committed at (UTC" + (f", {times[0]:%Y-%m-%d})" if one_day else ")"))
        legend(axes, columns=2)
    first, last = sizes[0], sizes[-1]
    told = (
        f"{count(len(sizes), 'snapshot')} of {facts.name} from {moment(first.committed_at_ms)} to {moment(last.committed_at_ms)}: "
        f"{count(first.file_count, 'data file')} of {_mean(first)} on average at first, {last.file_count:,} of {_mean(last)} at last; "
        f"the most were {max(s.file_count for s in sizes):,}."
    )
    return Chart(figure, title, told, _table(sizes, names, counts))


def sizes_at_one(facts: TableFacts, sizes: Sequence[SizesAt], place: int, thresholds: Thresholds | None = None) -> Chart:
    """The histogram at one of the snapshots, on axes that are the same for all of them."""
    shown = sizes[place]
    title = f"File sizes at one snapshot: {facts.name}"
    lowers = sorted({b.lower_bytes for s in sizes for b in s.bars})
    if not lowers:
        return nothing(title, "No data files at any of these snapshots: nothing to draw.")
    # From the smallest to the largest in use at any time, and as far as the band that is left alone.
    band = band_of(facts, sizes, thresholds)
    low, high = min(lowers[0], band[0]), max(lowers[-1], band[1])
    cut = cut_at(facts.data_edges, band)
    edges = [e for e in cut if low <= e <= high]
    files, held = _counted(shown, cut)
    tallest = max(b.file_count for s in sizes for b in s.bars)
    inside = [i for i, edge in enumerate(edges) if band[0] <= edge <= band[1]]
    with styled():
        figure, (axes,) = canvas(title, 3.6)
        if inside:
            label = f"{size(band[0])}–{size(band[1])}: left alone by rewrite_data_files"
            axes.axvspan(min(inside), max(inside) + 1, color="#D9EFE6", zorder=0, label=label)
            legend(axes, columns=1)
        heights = [files.get(edge, 0) for edge in edges]
        drawn = axes.bar([i + 0.5 for i in range(len(edges))], heights, width=0.86, color=BLUE)
        axes.bar_label(drawn, [f"{n:,}" if n else "" for n in heights], fontsize=11, padding=2)
        ends = [*edges, *cut[cut.index(edges[-1]) + 1 :][:1]]
        axes.set_xticks(range(len(ends)), [size(edge) for edge in ends], rotation=60, ha="right", rotation_mode="anchor")
        axes.set_ylim(0, tallest * 1.18)
        axes.set_xlim(0, len(edges))
        whole_numbers(axes.yaxis)
        axes.set_ylabel("Files")
        axes.set_xlabel("File size (each bar from one limit up to the next)")
    told = (
        f"Snapshot {place + 1} of {len(sizes)}: {shown.snapshot_id} of {moment(shown.committed_at_ms)} ({shown.operation or 'unknown'}). "
        f"{count(shown.file_count, 'data file')}, {size(shown.size_in_bytes)}, {_mean(shown)} on average"
        + (f"; {count(shown.delete_file_count, 'delete file')}." if shown.delete_file_count else ".")
    )
    bars = pd.DataFrame(
        [(size(edge), files.get(edge, 0), held.get(edge, 0)) for edge in edges],
        columns=["from", "file_count", "size_in_bytes"],
    )
    return Chart(figure, title, told, bars)


def band_of(facts: TableFacts, sizes: Sequence[SizesAt], thresholds: Thresholds | None) -> tuple[int, int]:
    """The sizes that a rewrite leaves alone by the limits given; by Iceberg's own where a snapshot's files cannot be told apart by them."""
    given, own = (left_alone(facts, Kind.DATA, limits) for limits in (thresholds, None))
    assert given is not None  # data files always have a band
    assert own is not None
    limits = (given[0], given[1] + 1)
    bars = [(b.min_bytes, b.max_bytes) for one in sizes for b in one.bars]
    lies_across = any(low is not None and high is not None and low < limit <= high for low, high in bars for limit in limits)
    return own if lies_across else given


def _classes(facts: TableFacts, sizes: Sequence[SizesAt], band: tuple[int, int]) -> tuple[list[str], list[list[int]]]:
    """The ranges of :func:`icekit.show.sizes.class_limits`, and the files of each at each snapshot."""
    limits, labels = class_limits(facts.target_bytes, band)
    names = [f"{label} (left alone)" if limit == band[0] else label for limit, label in zip(limits, labels, strict=True)]
    counts = [[0] * len(sizes) for _ in limits]
    for place, one in enumerate(sizes):
        for bar in one.bars:
            counts[bisect_right(limits, _least(bar)) - 1][place] += bar.file_count
    return names, counts


def _table(sizes: Sequence[SizesAt], names: Sequence[str], counts: Sequence[Sequence[int]]) -> pd.DataFrame:
    made = pd.DataFrame(
        [(at(s.committed_at_ms), s.snapshot_id, s.operation, s.file_count, s.size_in_bytes, s.delete_file_count) for s in sizes],
        columns=["committed_at", "snapshot_id", "operation", "file_count", "size_in_bytes", "delete_file_count"],
    )
    return made.assign(**dict(zip(names, counts, strict=True)))


def _mean(one: SizesAt) -> str:
    return size(one.mean_bytes) if one.mean_bytes is not None else "–"


def _counted(one: SizesAt, edges: tuple[int, ...]) -> tuple[Counter[int], Counter[int]]:
    """Files and bytes of a snapshot by the lower edge of their bar, which may be cut where a limit was moved to."""
    files, held = Counter[int](), Counter[int]()
    for bar in one.bars:
        edge = bucket_of(_least(bar), edges)
        files[edge] += bar.file_count
        held[edge] += bar.size_in_bytes
    return files, held


def _least(bar: HistogramBar) -> int:
    return bar.lower_bytes if bar.min_bytes is None else bar.min_bytes


__all__ = ["sizes_at_one", "sizes_through_time"]
