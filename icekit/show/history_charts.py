"""Draw a table's metadata: manifests, and commits over time."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib import dates
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from icekit.diagnose.findings import Thresholds
from icekit.facts.model import Commit, ManifestFacts, TableFacts
from icekit.show import tables
from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SMALL,
    VERMILLION,
    Chart,
    beside,
    canvas,
    legend,
    named_rows,
    nothing,
    styled,
    whole_numbers,
)
from icekit.units import at, count, moment, percent, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = {"append": (BLUE, "o"), "overwrite": (VERMILLION, "s"), "delete": (PURPLE, "v"), "replace": (GREEN, "D")}
_OTHER = (GREY, "X")
# For axes of years, months, days, hours, minutes and seconds: on ticks, and at the axis' end.
_TICKS = ["%Y", "%b", "%d", "%H:%M", "%H:%M", "%H:%M:%S"]
_AXIS_ENDS = ["", "%Y", "%b %Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"]
# Fewer, and for some spans the locator finds no interval and warns.
_MOST_TICKS = dict.fromkeys(range(dates.MICROSECONDLY + 1), 8) | {dates.SECONDLY: 7}
# Beyond this, a linear axis shows one commit and a line of dust.
_LOG_RATIO = 50


def manifests(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Manifests beside the number that their bytes need, and how far they overlap by partition field."""
    title = f"Manifests: {facts.name}"
    found = facts.manifests
    if not found.data_count and not found.delete_count:
        return nothing(title, "No manifests: nothing to draw.")
    target = facts.int_setting("commit.manifest.target-size-bytes")
    limit = (thresholds or Thresholds()).overlap_share
    rows = [
        (name, there, tables.needed(held, target), f"{size(held / there)}, {entries / there:,.1f} entries each")
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
            shares = [o.mean_share for o in overlaps]
            drawn = axes.barh(range(len(overlaps)), shares, height=0.6, facecolor=ORANGE, edgecolor=BLACK, linewidth=0.6, hatch="//")
            axes.bar_label(drawn, [percent(share) for share in shares], padding=5, fontsize=SMALL)
            axes.axvline(limit, color=BLACK, linestyle="--", linewidth=1.8, label=f"threshold {percent(limit)}")
            # The same field may be in several specs.
            several = len({o.spec_id for o in overlaps}) > 1
            named_rows(axes, [f"{o.field} (spec {o.spec_id})" if several else o.field for o in overlaps])
            axes.set_xlim(0, 1.16)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
            axes.set_xlabel("Other data manifests that one overlaps, mean (%)")
            legend(axes)
    table = pd.concat([tables.manifests(facts), tables.manifest_overlaps(facts).assign(content="data")], ignore_index=True)
    return Chart(figure, title, _manifests_told(facts, found, target), table)


def _draw_manifests(axes: Axes, rows: Sequence[tuple[str, int, int, str]], target: int) -> None:
    there, enough = [row[1] for row in rows], [row[2] for row in rows]
    axes.barh(range(len(rows)), there, height=0.5, color=BLUE, label="manifests")
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
    named_rows(axes, [row[0] for row in rows])
    axes.set_ylim(len(rows) - 0.2, -0.5)
    whole_numbers(axes.xaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel("Manifests")
    legend(axes)


def _manifests_told(facts: TableFacts, found: ManifestFacts, target: int) -> str:
    told = []
    if found.data_count:
        told.append(
            f"{count(found.data_count, 'data manifest')} of {facts.name}, {size(found.data_bytes / found.data_count)} and "
            f"{found.data_entry_count / found.data_count:,.1f} live entries each on average, where {tables.needed(found.data_bytes, target):,} of {size(target)} would do"
        )
    if found.delete_count:
        told.append(
            f"{count(found.delete_count, 'delete manifest')}, {size(found.delete_bytes / found.delete_count)} on average, "
            f"where {tables.needed(found.delete_bytes, target):,} would do"
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
        return nothing(title, "No commit that says how many files it added: nothing to draw.")
    # A summary counts the bytes of data and delete files together.
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
    """Handles of a legend: each operation with its count, and what an outline is."""
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
    sentence += f", {statistics.median(map(_added, told)):,g} a commit (median)"
    if means:
        sentence += f"; the mean size of an added file is {size(statistics.median(means))} (median over commits) against a target of {size(facts.target_bytes)}"
    return sentence + "."
