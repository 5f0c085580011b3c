"""Draw how a table changed: manifests and commits, figures with their thresholds, file sizes at each snapshot."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib import dates
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from icekit.answer.grid import BYTES, COUNT, FIGURE, IDENTIFIER, SHARE, TEXT, TIME, Grid
from icekit.diagnose.findings import Thresholds
from icekit.facts.head import SizesAt
from icekit.facts.model import Commit, Kind, ManifestFacts, TableFacts, expected_manifests
from icekit.facts.rollup import HistogramBar, bucket_of
from icekit.history.trend import LEAST_RUNS, MEASURES, Measure, Past
from icekit.show import tables
from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    VERMILLION,
    Bars,
    Chart,
    beside,
    canvas,
    draw_bars,
    legend,
    nothing,
    percentages,
    sizes_up_to,
    styled,
    whole_numbers,
)
from icekit.show.tables import class_limits, left_alone_sizes
from icekit.units import at, count, moment, percent, plain, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["sizes_through_time"]


_MARKS = {"append": (BLUE, "o"), "overwrite": (VERMILLION, "s"), "delete": (PURPLE, "v"), "replace": (GREEN, "D")}
_OTHER = (GREY, "X")
# For axes of years, months, days, hours, minutes and seconds: formats of the ticks, and of the end of the axis.
_TICKS = ["%Y", "%b", "%d", "%H:%M", "%H:%M", "%H:%M:%S"]
_AXIS_ENDS = ["", "%Y", "%b %Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"]
# With fewer ticks the locator finds no interval for some spans and warns.
_MOST_TICKS = dict.fromkeys(range(dates.MICROSECONDLY + 1), 8) | {dates.SECONDLY: 7}
# Beyond this ratio, a linear axis shows one commit and nothing of the others.
_LOG_RATIO = 50


def manifests(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Manifests next to the number needed at the target size, and their overlap by partition field."""
    title = f"Manifests: {facts.name}"
    found = facts.manifests
    if not found.data_count and not found.delete_count:
        return nothing(title, "No manifests: nothing to draw.")
    target = facts.int_setting("commit.manifest.target-size-bytes")
    limit = (thresholds or Thresholds()).overlap_share
    rows = [
        (name, there, expected_manifests(held, target), f"{size(held / there)}, {entries / there:,.1f} entries each")
        for name, there, held, entries in (
            ("data", found.data_count, found.data_bytes, found.data_entry_count),
            ("deletes", found.delete_count, found.delete_bytes, found.delete_entry_count),
        )
        if there
    ]
    overlaps = found.overlaps
    with styled():
        weights = (1.0 + len(rows), 1.0 + len(overlaps)) if overlaps else (1.0,)
        figure, panels = canvas(title, 1.9 + 0.6 * len(rows) + (1.2 + 0.36 * len(overlaps) if overlaps else 0), weights)
        _draw_manifests(panels[0], rows, target)
        if overlaps:
            axes = panels[1]
            # Several specs may have the same field.
            several = len({o.spec_id for o in overlaps}) > 1
            names = [f"{o.field} (spec {o.spec_id})" if several else o.field for o in overlaps]
            draw_bars(axes, names, [Bars("overlap", [o.mean_share for o in overlaps], ORANGE, "//")], told=percent)
            axes.axvline(limit, color=BLACK, linestyle="--", linewidth=1.8, label=f"threshold {percent(limit)}")
            axes.set_xlim(0, 1.16)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
            axes.set_xlabel("Mean share of the other data manifests that a manifest overlaps (%)")
            legend(axes)
    return Chart(figure, title, _manifests_told(facts, found, target), tables.manifests(facts))


def _draw_manifests(axes: Axes, rows: Sequence[tuple[str, int, int, str]], target: int) -> None:
    there, enough = [row[1] for row in rows], [row[2] for row in rows]
    draw_bars(axes, [row[0] for row in rows], [Bars("manifests", there, BLUE)], height=0.5)
    axes.plot(
        enough,
        range(len(rows)),
        linestyle="none",
        marker="D",
        markersize=8,
        color=ORANGE,
        markeredgecolor=BLACK,
        label=f"needed at {size(target)} each",
    )
    for place, (_, n, m, told) in enumerate(rows):
        axes.annotate(beside(n, m), (max(n, m), place), (9, 0), textcoords="offset points", va="center", fontsize=SMALL)
        axes.annotate(told, (0, place + 0.27), (2, -2), textcoords="offset points", va="top", fontsize=SMALL, color=GREY)
    axes.set_ylim(len(rows) - 0.2, -0.5)
    whole_numbers(axes.xaxis)
    axes.set_xlabel("Manifests")
    legend(axes)


def _manifests_told(facts: TableFacts, found: ManifestFacts, target: int) -> str:
    told = []
    if found.data_count:
        told.append(
            f"{count(found.data_count, 'data manifest')} of {facts.name}, {size(found.data_bytes / found.data_count)} and "
            f"{found.data_entry_count / found.data_count:,.1f} live entries each on average; {expected_manifests(found.data_bytes, target):,} of {size(target)} would be enough"
        )
    if found.delete_count:
        told.append(
            f"{count(found.delete_count, 'delete manifest')}, {size(found.delete_bytes / found.delete_count)} on average; "
            f"{expected_manifests(found.delete_bytes, target):,} would be enough"
        )
    else:
        told.append("no delete manifests")
    told += [f"by {o.field} (spec {o.spec_id}) a data manifest overlaps {percent(o.mean_share)} of the others" for o in found.overlaps]
    return "; ".join(told) + "."


def commits(facts: TableFacts) -> Chart:
    """Files that each commit added, and their mean size, over time."""
    title = f"Files added by each commit: {facts.name}"
    told = [c for c in facts.history.commits if c.added_data_files or c.added_delete_files]
    if not told:
        return nothing(title, "No commit states how many files it added: nothing to draw.")
    # A summary adds up the bytes of data files and delete files.
    means = [(c, c.added_bytes / _added(c)) for c in told if c.added_bytes]
    with styled():
        figure, (files, sizes) = canvas(title, 5.2, (1, 1), sharex=True)
        for operation in dict.fromkeys(c.operation for c in told):
            mine = [c for c in told if c.operation == operation]
            scatter = partial(_scatter, operation=operation, many=len(told) > 100)
            scatter(files, [(c, c.added_data_files) for c in mine if c.added_data_files])
            scatter(files, [(c, c.added_delete_files) for c in mine if c.added_delete_files], outline=True)
            scatter(sizes, [(c, mean) for c, mean in means if c.operation == operation])
        _count_axis(files, [n for c in told for n in (c.added_data_files, c.added_delete_files) if n])
        _size_axis(sizes, [mean for _, mean in means], facts.target_bytes)
        _time_axis(sizes, told)
        legend(files, columns=3, handles=_operations(told))
        legend(sizes)
    return Chart(figure, title, _commits_told(facts, told, [mean for _, mean in means]), tables.commits(facts, limit=None))


def _added(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def _scatter(axes: Axes, points: Sequence[tuple[Commit, float]], *, operation: str | None, many: bool, outline: bool = False) -> None:
    if not points:
        return
    color, marker = _MARKS.get(operation or "", _OTHER)
    times: Any = [at(c.committed_at_ms) for c, _ in points]
    # An outline is larger, to be seen around a mark at the same place.
    looks: dict[str, Any] = (
        {"color": BLACK, "markerfacecolor": "none", "markersize": 7 if many else 12, "markeredgewidth": 0.8 if many else 1.4}
        if outline
        else {"color": color, "markeredgewidth": 0, "markersize": 5 if many else 8}
    )
    axes.plot(times, [y for _, y in points], linestyle="none", marker=marker, alpha=0.6 if many else 0.9, **looks)


def _operations(told: Sequence[Commit]) -> list[Line2D]:
    """Handles of a legend: each operation with its count, and the meaning of an outline."""
    handles = []
    for operation, times in Counter(c.operation for c in told).most_common():
        color, marker = _MARKS.get(operation or "", _OTHER)
        handles.append(
            Line2D([], [], linestyle="none", marker=marker, markersize=8, color=color, label=f"{operation or 'unknown'} ({times:,})")
        )
    if any(c.added_delete_files for c in told):
        handles.append(
            Line2D([], [], linestyle="none", marker="o", markersize=8, color=BLACK, markerfacecolor="none", label="outlines: delete files")
        )
    return handles


def _count_axis(axes: Axes, counts: Sequence[int]) -> None:
    if max(counts) > _LOG_RATIO * min(counts):
        axes.set_yscale("log")
        axes.set_ylim(min(counts) / 2, max(counts) * 2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else ""))
        axes.set_ylabel("Files added (log)")
        return
    axes.set_ylim(0, max(counts) * 1.15)
    whole_numbers(axes.yaxis)
    axes.set_ylabel("Files added")


def _size_axis(axes: Axes, means: Sequence[float], target: int) -> None:
    axes.axhline(target, color=VERMILLION, linestyle="--", linewidth=1.8, label=f"target {size(target)}")
    low, high = math.floor(math.log2(min(means, default=target))) - 1, math.ceil(math.log2(max(target, *means, 1))) + 1
    axes.set_yscale("log", base=2)
    axes.set_ylim(2.0**low, 2.0**high)
    step = max(1, -(-(high - low) // 5))
    ticks = [2.0**k for k in range(high - 1, low, -step)]
    axes.set_yticks(ticks, [size(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("Mean size (log)")


def _time_axis(axes: Axes, told: Sequence[Commit]) -> None:
    first, last = at(told[0].committed_at_ms), at(told[-1].committed_at_ms)
    first, last = min(first, last), max(first, last)
    # A single moment has no width to draw in.
    room = max((last - first) * 0.03, dt.timedelta(seconds=2)) if first != last else dt.timedelta(minutes=30)
    ends: Any = first - room, last + room
    axes.set_xlim(ends)
    locator = dates.AutoDateLocator(tz=dt.UTC, minticks=3, maxticks=_MOST_TICKS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = dates.ConciseDateFormatter(locator, tz=dt.UTC, formats=_TICKS, offset_formats=_AXIS_ENDS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlabel("Committed at (UTC)")


def _commits_told(facts: TableFacts, told: Sequence[Commit], means: Sequence[float]) -> str:
    operations = ", ".join(f"{n:,} {operation or 'unknown'}" for operation, n in Counter(c.operation for c in told).most_common())
    files, deletes = sum(c.added_data_files or 0 for c in told), sum(c.added_delete_files or 0 for c in told)
    when = moment(told[0].committed_at_ms)
    when = f"at {when}" if len(told) == 1 else f"from {when} to {moment(told[-1].committed_at_ms)}"
    kept = facts.history.commits
    of = (
        ""
        if len(told) == len(kept)
        else f" of {len(kept):,}"
        if facts.history.lineage_count <= len(kept)
        else f" of the newest {len(kept):,}"
    )
    sentence = f"{len(told):,}{of} commit{'s' if len(kept) != 1 else ''} of {facts.name} {when} ({operations}) added {count(files, 'data file')} and {count(deletes, 'delete file')}"
    sentence += f", {plain(statistics.median(map(_added, told)), 4)} per commit (median)"
    if means:
        sentence += f"; the mean size of an added file is {size(statistics.median(means))} (median over commits); the target is {size(facts.target_bytes)}"
    return sentence + "."


# --- Draw how a table has changed: a small chart for each figure, with its threshold, maintenance and trend


_TITLES = {
    "data_files": "Data files",
    "mean_file_bytes": "Mean file size",
    "delete_ratio": "Delete rows (%)",
    "undersized_manifests": "Small manifests",
    "snapshots": "Snapshots",
}


def trends(past: Past) -> Chart:
    """Each figure over the stored runs, with its threshold and the maintenance between runs."""
    title = f"Trend: {past.table}"
    if not past.is_kept:
        return nothing(
            title, "No history is kept: run icekit report with --history FILE (or table), and set the parameter history to the same value."
        )
    if len(past.runs) < 2:
        return nothing(title, "This is the first run in the history; the next run can be compared with it.")
    times: Any = [at(run.observed_at_ms) for run in past.runs]
    with styled():
        figure, panels = canvas(title, 1.2 + 1.55 * len(MEASURES), (1,) * len(MEASURES), sharex=True)
        for axes, measure in zip(panels, MEASURES, strict=True):
            _panel(axes, past, measure, times)
        locator = dates.AutoDateLocator(tz=dt.UTC, minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
        if past.maintained:
            handles, labels = panels[0].get_legend_handles_labels()
            panels[0].legend(handles[:1], labels[:1], loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1)
        panels[-1].xaxis.set_major_locator(locator)
        panels[-1].xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=dt.UTC))  # type: ignore[no-untyped-call]
        panels[-1].set_xlabel("Observed at (UTC)")
    return Chart(figure, title, _told(past), runs(past))


def _panel(axes: Axes, past: Past, measure: Measure, times: Any) -> None:
    values = [measure.value(run) for run in past.runs]
    drawn = [float("nan") if value is None else value for value in values]
    axes.plot(times, drawn, color=BLUE, marker="o", markersize=3.5, linewidth=1.6)
    axes.set_title(_TITLES[measure.name], loc="left", fontsize=SMALL)
    limit = measure.limit(past.runs[-1], past.thresholds)
    highest = max([v for v in values if v is not None], default=0.0)
    if limit is not None:
        axes.axhline(limit, color=VERMILLION, linestyle="--", linewidth=1.5)
        axes.annotate(
            f"threshold {measure.write(limit)}",
            (0.995, limit),
            (0, 2),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=SMALL - 2,
            color=VERMILLION,
        )
    for done in past.maintained:
        when: Any = at(done.ended_ms)
        axes.axvline(when, color=GREEN, linestyle=":", linewidth=1.8, label="maintained by icekit")
    top = max(highest, limit or 0.0, 1e-9)
    axes.set_ylim(0, 1.3 * top)
    if measure.unit == "bytes":
        sizes_up_to(axes.yaxis, 2 * top)
    elif measure.unit == "share":
        percentages(axes.yaxis, ticks=3)
    else:
        whole_numbers(axes.yaxis)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _told(past: Past) -> str:
    first, last = past.runs[0], past.runs[-1]
    told = [f"{count(len(past.runs), 'run')} of {past.table} from {moment(first.observed_at_ms)} to {moment(last.observed_at_ms)}"]
    told += [f"{trend.measure.title}: {trend.sentence}" for trend in past.trends]
    if past.maintained:
        told.append(
            f"dotted lines: {count(len(past.maintained), 'icekit action')} ({', '.join(sorted({m.what for m in past.maintained}))})"
        )
    if past.worse:
        told.append(f"since the last run: {', '.join(past.worse)}")
    if past.better:
        told.append(f"gone since the last run: {', '.join(past.better)}")
    return "; ".join(told) + "."


_UNITS = {"bytes": BYTES, "share": SHARE}


def runs(past: Past) -> Grid:
    """The figures of each run, newest first."""
    columns = {"observed_at": TIME, **{m.name: _UNITS.get(m.unit, COUNT)(_TITLES[m.name]) for m in MEASURES}, "status": TEXT}
    rows = [(at(run.observed_at_ms), *(m.value(run) for m in MEASURES), run.status) for run in reversed(past.runs)]
    return Grid("", columns, rows)


#: The first report with a history begins it; until then there is nothing to draw a trend through.
_NO_OUTLOOK = (
    f"There is no outlook without a history. The first run of icekit report with --history begins one; a trend needs {LEAST_RUNS} runs."
)


def outlook(past: Past) -> Grid:
    """A row per figure: its current value, its threshold, the days until it reaches the threshold (0 = already past; – = never), and a sentence.

    Without a history there are no rows, and the table says how to keep one.
    """
    columns = {"figure": TEXT, "now": FIGURE, "threshold": FIGURE, "days_until": FIGURE, "outlook": TEXT}
    rows = [
        (
            trend.measure.title,
            None if trend.now is None else trend.measure.write(trend.now),
            None if trend.limit is None else trend.measure.write(trend.limit),
            trend.days_told,
            trend.sentence,
        )
        for trend in (past.trends if past.is_kept else ())
    ]
    return Grid("", columns, rows, if_empty=_NO_OUTLOOK)


# --- Draw how the file sizes of a table changed: one snapshot's histogram, and all snapshots in one chart


_UNDER, _BAND, _OVER = ((VERMILLION, "xx"), (ORANGE, "//"), (SKY, "..")), (GREEN, ""), (BLUE, "\\\\")


def sizes_through_time(facts: TableFacts, sizes: Sequence[SizesAt], thresholds: Thresholds | None = None) -> Chart:
    """Data files at each snapshot, stacked by size: sizes that a rewrite leaves alone, smaller and larger ones."""
    title = f"File sizes over time: {facts.name}"
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
        f"{count(first.file_count, 'data file')} of {_mean(first)} on average in the first, {last.file_count:,} of {_mean(last)} in the last; "
        f"the maximum is {max(s.file_count for s in sizes):,}."
    )
    return Chart(figure, title, told, _table(sizes, names, counts))


def band_of(facts: TableFacts, sizes: Sequence[SizesAt], thresholds: Thresholds | None) -> tuple[int, int]:
    """The sizes that a rewrite leaves alone under the given limits; Iceberg's own limits if a snapshot's files were not counted at the given ones."""
    given, own = (left_alone_sizes(facts, Kind.DATA, limits) for limits in (thresholds, None))
    assert given is not None  # data files always have a band
    assert own is not None
    limits = (given[0], given[1] + 1)
    bars = [(b.min_bytes, b.max_bytes) for one in sizes for b in one.bars]
    lies_across = any(low is not None and high is not None and low < limit <= high for low, high in bars for limit in limits)
    return own if lies_across else given


def _classes(facts: TableFacts, sizes: Sequence[SizesAt], band: tuple[int, int]) -> tuple[list[str], list[list[int]]]:
    """The ranges of :func:`icekit.show.tables.class_limits`, and the files of each at each snapshot."""
    limits, labels = class_limits(facts.target_bytes, band)
    names = [f"{label} (left alone)" if limit == band[0] else label for limit, label in zip(limits, labels, strict=True)]
    counts = [[0] * len(sizes) for _ in limits]
    for place, one in enumerate(sizes):
        for bar in one.bars:
            counts[bisect_right(limits, _least(bar)) - 1][place] += bar.file_count
    return names, counts


def _table(sizes: Sequence[SizesAt], names: Sequence[str], counts: Sequence[Sequence[int]]) -> Grid:
    columns = {
        "committed_at": TIME,
        "snapshot_id": IDENTIFIER("snapshot"),
        "operation": TEXT,
        "file_count": COUNT("data files"),
        "size_in_bytes": BYTES("bytes"),
        "delete_file_count": COUNT("delete files"),
        **dict.fromkeys(names, COUNT),
    }
    rows = [
        (at(s.committed_at_ms), s.snapshot_id, s.operation, s.file_count, s.size_in_bytes, s.delete_file_count, *files)
        for s, files in zip(sizes, zip(*counts, strict=True), strict=True)
    ]
    return Grid("", columns, rows)


def _mean(one: SizesAt) -> str:
    return size(one.mean_bytes) if one.mean_bytes is not None else "–"


def _counted(one: SizesAt, edges: tuple[int, ...]) -> tuple[Counter[int], Counter[int]]:
    """Files and bytes of a snapshot by the lower edge of their bar, which may be cut at a changed limit."""
    files, held = Counter[int](), Counter[int]()
    for bar in one.bars:
        edge = bucket_of(_least(bar), edges)
        files[edge] += bar.file_count
        held[edge] += bar.size_in_bytes
    return files, held


def _least(bar: HistogramBar) -> int:
    return bar.lower_bytes if bar.min_bytes is None else bar.min_bytes
