"""Draw a table's files: sizes, deletes, partitions; with manifests and commits, every chart there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from icekit.diagnose.findings import Thresholds
from icekit.facts import measures
from icekit.facts.measures import DeleteRatio, HistogramBar
from icekit.facts.model import Kind, TableFacts
from icekit.show import tables
from icekit.show.chart import (
    BAND,
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    SMALL,
    VERMILLION,
    Chart,
    beside,
    canvas,
    legend,
    nothing,
    partition_rows,
    percentages,
    styled,
    whole_numbers,
)
from icekit.show.history_charts import commits, manifests
from icekit.show.sizes import in_band, left_alone, size_bars, target_of
from icekit.units import count, percent, size, size_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORST = 15

_NOUNS = {
    Kind.DATA: "data file",
    Kind.POSITION_DELETES: "position delete file",
    Kind.EQUALITY_DELETES: "equality delete file",
    Kind.DELETION_VECTORS: "deletion vector",
}
_REWRITES = {Kind.DATA: "rewrite_data_files", Kind.POSITION_DELETES: "rewrite_position_delete_files"}


def file_sizes(facts: TableFacts, kind: Kind = Kind.DATA, thresholds: Thresholds | None = None) -> Chart:
    """How many files have which size, how the bytes spread over them, and what a rewrite leaves alone (by the limits, if given)."""
    title = f"Sizes of {_NOUNS[kind]}s: {facts.name}"
    bars = size_bars(facts, kind, thresholds, with_band=True)
    if not bars:
        return nothing(title, f"No {_NOUNS[kind]}s: nothing to draw.")
    places = [i + 0.5 for i in range(len(bars))]
    crowded = len(bars) > 12
    with styled():
        figure, (files, share) = canvas(title, 4.6, (2, 1), sharex=True)
        band = left_alone(facts, kind, thresholds)
        _mark_band(files, share, facts, kind, bars, band)
        drawn = files.bar(places, [b.file_count for b in bars], width=0.86, color=BLUE)
        labels = [f"{b.file_count:,}" if b.file_count else "" for b in bars]
        files.bar_label(drawn, labels, fontsize=SMALL, padding=2, rotation=90 if crowded else 0)
        files.set_ylabel("Files")
        files.margins(y=0.3 if crowded else 0.16)
        whole_numbers(files.yaxis)
        in_all = max(1, facts.total(kind).size_in_bytes)
        share.bar(
            places, [b.size_in_bytes / in_all for b in bars], width=0.86, facecolor=ORANGE, edgecolor=BLACK, linewidth=0.6, hatch="//"
        )
        share.set_ylabel("Bytes (%)")
        percentages(share.yaxis, ticks=3)
        share.margins(y=0.15)
        limits = [b.lower_bytes for b in bars]
        last = bars[-1].upper_bytes
        names = [*map(size, limits), "∞" if last is None else size(last)]
        share.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
        share.set_xlabel("File size (each bar from one limit up to the next)")
    return Chart(figure, title, _sizes_told(facts, kind, bars, band), tables.file_sizes(facts, kind, thresholds))


def _mark_band(files: Axes, share: Axes, facts: TableFacts, kind: Kind, bars: Sequence[HistogramBar], band: tuple[int, int] | None) -> None:
    """Shade the sizes that a rewrite leaves alone, and mark the target, in both panels."""
    lowers = [b.lower_bytes for b in bars]
    target = target_of(facts, kind)
    inside = [i for i, b in enumerate(bars) if in_band(b, band)]
    for axes in (files, share):
        if band is not None and inside:
            label = f"{size(band[0])}–{size(band[1])}: left alone by {_REWRITES[kind]}"
            axes.axvspan(min(inside), max(inside) + 1, color=BAND, zorder=0, label=label)
        if target in lowers:
            axes.axvline(lowers.index(target), color=VERMILLION, linestyle="--", linewidth=1.8, label=f"target {size(target)}")
    if files.get_legend_handles_labels()[1]:
        legend(files, columns=1)


def _sizes_told(facts: TableFacts, kind: Kind, bars: Sequence[HistogramBar], band: tuple[int, int] | None) -> str:
    total = facts.total(kind)
    fullest = max(bars, key=lambda b: b.file_count)
    target = target_of(facts, kind)
    told = f"{count(total.file_count, _NOUNS[kind])} of {facts.name}, {size(total.size_in_bytes)} in all, {size(total.mean_bytes or 0)} on average"
    told += f" against a target of {size(target)}" if target is not None else ""
    told += f"; most, {fullest.file_count:,}, are of {size_range(fullest.lower_bytes, fullest.upper_bytes)}"
    if band is not None:
        inside = [b for b in bars if in_band(b, band)]
        files, held = sum(b.file_count for b in inside), sum(b.size_in_bytes for b in inside)
        told += f". {_REWRITES[kind]} leaves alone {size_range(*band)}: {percent(files / total.file_count)} of the files"
        told += f" with {percent(held / max(1, total.size_in_bytes))} of the bytes"
    return told + "."


def delete_ratio(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Delete records of each kind as a share of the data records, in the worst partitions."""
    title = f"Deleted share of records: {facts.name}"
    ratios = measures.delete_ratios(facts)
    if not ratios:
        return nothing(title, "No delete files or deletion vectors: nothing to draw.")
    limit = (thresholds or Thresholds()).delete_ratio
    worst = ratios[:WORST]
    kinds = (
        ("position deletes", BLUE, "", [r.position_delete_record_count for r in worst]),
        ("equality deletes", ORANGE, "//", [r.equality_delete_record_count for r in worst]),
        ("deletion vectors", GREEN, "..", [r.deletion_vector_record_count for r in worst]),
    )
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.31 * len(worst))
        ends = [0.0] * len(worst)
        for name, color, hatch, records in kinds:
            # A partition without data has no ratio; its bar is a note.
            parts = [n / r.data_record_count if r.data_record_count else 0.0 for n, r in zip(records, worst, strict=True)]
            if any(records):
                axes.barh(
                    range(len(worst)),
                    parts,
                    left=ends,
                    height=0.7,
                    facecolor=color,
                    edgecolor=BLACK,
                    linewidth=0.6,
                    hatch=hatch,
                    label=name,
                )
            ends = [end + part for end, part in zip(ends, parts, strict=True)]
        axes.axvline(limit, color=BLACK, linestyle="--", linewidth=1.8, label=f"threshold {percent(limit)}")
        for row, (ratio, end) in enumerate(zip(worst, ends, strict=True)):
            axes.annotate(_share(ratio), (end, row), (5, 0), textcoords="offset points", va="center", fontsize=SMALL, bbox=_GROUND)
        partition_rows(axes, [tables.partition_name(facts, r.partition) for r in worst])
        percentages(axes.xaxis)
        axes.set_xlim(left=0)
        axes.set_xlabel("Delete records per data record (%)")
        legend(axes)
    return Chart(figure, title, _deletes_told(facts, ratios, limit), tables.delete_ratios(facts))


# Text over a dashed line stays readable on a ground of its own.
_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


def _share(ratio: DeleteRatio) -> str:
    return percent(ratio.by_records) if ratio.by_records is not None else f"no data, {count(ratio.delete_record_count, 'delete record')}"


def _deletes_told(facts: TableFacts, ratios: Sequence[DeleteRatio], limit: float) -> str:
    whole = measures.delete_ratio(facts)
    kinds = (
        (whole.position_delete_record_count, "by position"),
        (whole.equality_delete_record_count, "by equality"),
        (whole.deletion_vector_record_count, "in deletion vectors"),
    )
    parts = ", ".join(f"{n:,} {how}" for n, how in kinds if n)
    over = sum(r.by_records is None or r.by_records >= limit for r in ratios)
    worst = f"{tables.partition_name(facts, ratios[0].partition)} with {_share(ratios[0])}"
    return (
        f"{count(whole.delete_record_count, 'delete record')} ({parts}) against {count(whole.data_record_count, 'data record')} of {facts.name}"
        + (f", {percent(whole.by_records)}" if whole.by_records is not None else "")
        + f", in {count(len(ratios), 'partition')}; {over:,} at or over the threshold of {percent(limit)}, worst {worst}."
    )


def partitions(facts: TableFacts) -> Chart:
    """Data files of the worst partitions beside the number that their bytes need."""
    title = f"Data files by partition: {facts.name}"
    groups = measures.worst_partitions(facts, WORST)
    if not groups:
        return nothing(title, "No data files: nothing to draw.")
    files = [g.file_count for g in groups]
    needed = [tables.needed(g.size_in_bytes, facts.target_bytes) for g in groups]
    rows = range(len(groups))
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.31 * len(groups))
        axes.barh(rows, files, height=0.7, color=BLUE, label="data files")
        axes.plot(
            needed,
            rows,
            linestyle="none",
            marker="D",
            markersize=8,
            color=ORANGE,
            markeredgecolor=BLACK,
            label=f"needed at {size(facts.target_bytes)} each",
        )
        for row, (there, enough) in enumerate(zip(files, needed, strict=True)):
            axes.annotate(beside(there, enough), (max(there, enough), row), (9, 0), textcoords="offset points", va="center", fontsize=SMALL)
        partition_rows(axes, [tables.partition_name(facts, g.partition) for g in groups])
        whole_numbers(axes.xaxis)
        axes.set_xlim(left=0)
        axes.set_xlabel("Data files")
        legend(axes)
    everywhere = facts.of_kind(Kind.DATA)
    enough = sum(tables.needed(g.size_in_bytes, facts.target_bytes) for g in everywhere)
    told = (
        f"{count(facts.data.file_count, 'data file')} of {facts.name} in {count(len(everywhere), 'partition')}, "
        f"where {enough:,} would do at {size(facts.target_bytes)} each; worst {tables.partition_name(facts, groups[0].partition)} "
        f"with {count(files[0], 'file')} where {needed[0]:,} would do."
    )
    return Chart(figure, title, told, tables.worst_partitions(facts, WORST))


__all__ = ["Chart", "commits", "delete_ratio", "file_sizes", "manifests", "partitions"]
