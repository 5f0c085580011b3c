"""Draw how a table changed: manifests, commits, and the figure that reaches its threshold first."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import dates
from matplotlib.ticker import FuncFormatter, NullLocator

from icekit.answer.grid import BYTES, COUNT, SHARE, TEXT, TIME, Grid
from icekit.diagnose.findings import Thresholds
from icekit.facts.manifest_counts import ManifestFacts, expected_manifests
from icekit.facts.model import TableFacts
from icekit.facts.snapshots import Commit
from icekit.history.store import Health
from icekit.history.trend import MEASURES, compare
from icekit.show import tables
from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    Bars,
    Chart,
    canvas,
    draw_bars,
    legend,
    limit_line,
    needed_rows,
    note,
    nothing,
    sizes_up_to,
    styled,
    whole_numbers,
)
from icekit.units import at, count, moment, percent, plain, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = {
    "append": (BLUE, "o"),
    "overwrite": (VERMILLION, "s"),
    "delete": (PURPLE, "v"),
    "replace": (GREEN, "D"),
}
_OTHER = (GREY, "X")
# For axes of years, months, days, hours, minutes and seconds: formats of the ticks, and of the end
# of the axis.
_TICKS = ["%Y", "%b", "%d", "%H:%M", "%H:%M", "%H:%M:%S"]
_AXIS_ENDS = ["", "%Y", "%b %Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"]
# With fewer ticks the locator finds no interval for some spans and warns.
_MOST_TICKS = dict.fromkeys(range(dates.MICROSECONDLY + 1), 8) | {dates.SECONDLY: 7}
# Beyond this ratio, a linear axis shows one commit and nothing of the others.
_LOG_RATIO = 50


def manifests(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Manifests next to the number needed at the target size, and their overlap by partition
    field.
    """
    title = f"Manifests: {facts.name}"
    found = facts.manifests
    if not found.data_count and not found.delete_count:
        return nothing(title, "No manifests: nothing to draw.")
    target = facts.int_setting("commit.manifest.target-size-bytes")
    limit = (thresholds or Thresholds()).overlap_share
    rows = [
        (
            name,
            there,
            expected_manifests(held, target),
            f"{size(held / there)}, {entries / there:,.1f} entries each",
        )
        for name, there, held, entries in (
            ("data", found.data_count, found.data_bytes, found.data_entry_count),
            ("deletes", found.delete_count, found.delete_bytes, found.delete_entry_count),
        )
        if there
    ]
    overlaps = found.overlaps
    with styled():
        weights = (1.0 + len(rows), 1.0 + len(overlaps)) if overlaps else (1.0,)
        figure, panels = canvas(
            title, 1.9 + 0.6 * len(rows) + (1.2 + 0.36 * len(overlaps) if overlaps else 0), weights
        )
        _draw_manifests(panels[0], rows, target)
        if overlaps:
            axes = panels[1]
            # Several specs may have the same field.
            several = len({o.spec_id for o in overlaps}) > 1
            names = [f"{o.field} (spec {o.spec_id})" if several else o.field for o in overlaps]
            draw_bars(
                axes,
                names,
                [Bars("overlap", [o.mean_share for o in overlaps], ORANGE, "//")],
                told=percent,
            )
            limit_line(axes.axvline, limit, f"threshold {percent(limit)}")
            axes.set_xlim(0, 1.16)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
            axes.set_xlabel("Mean share of the other data manifests that a manifest overlaps (%)")
            legend(axes)
    return Chart(figure, title, _manifests_told(facts, found, target), tables.manifests(facts))


def _draw_manifests(axes: Axes, rows: Sequence[tuple[str, int, int, str]], target: int) -> None:
    existing = Bars("manifests", [row[1] for row in rows], BLUE)
    needed_rows(
        axes, [row[0] for row in rows], existing, [row[2] for row in rows], size(target), height=0.5
    )
    for place, (*_, told) in enumerate(rows):
        note(axes, told, 0, place + 0.27, xytext=(2, -2), va="top", color=GREY, bbox=None)
    axes.set_ylim(len(rows) - 0.2, -0.5)


def _manifests_told(facts: TableFacts, found: ManifestFacts, target: int) -> str:
    told = []
    if found.data_count:
        told.append(
            f"{count(found.data_count, 'data manifest')} of {facts.name}, "
            f"{size(found.data_bytes / found.data_count)} and "
            f"{found.data_entry_count / found.data_count:,.1f} live entries each on average; "
            f"{expected_manifests(found.data_bytes, target):,} of {size(target)} would be enough"
        )
    if found.delete_count:
        told.append(
            f"{count(found.delete_count, 'delete manifest')}, "
            f"{size(found.delete_bytes / found.delete_count)} on average; "
            f"{expected_manifests(found.delete_bytes, target):,} would be enough"
        )
    else:
        told.append("no delete manifests")
    told += [
        f"by {o.field} (spec {o.spec_id}) a data manifest overlaps {percent(o.mean_share)} of the "
        "others"
        for o in found.overlaps
    ]
    return "; ".join(told) + "."


def commits(facts: TableFacts) -> Chart:
    """Files that each commit added, and their mean size, over time."""
    title = f"Files added by each commit: {facts.name}"
    told = [c for c in facts.history.commits if c.added_data_files or c.added_delete_files]
    if not told:
        return nothing(title, "No commit states how many files it added: nothing to draw.")
    # A summary adds up the bytes of data files and delete files.
    means = [(c, c.added_bytes / _added(c)) for c in told if c.added_bytes]
    many = len(told) > 100
    looks: dict[str, Any] = {"linestyle": "none", "alpha": 0.7, "markersize": 5 if many else 8}
    with styled():
        figure, (files, sizes) = canvas(title, 5.2, (1, 1), sharex=True)
        for operation, times in Counter(c.operation for c in told).most_common():
            color, marker = _MARKS.get(operation or "", _OTHER)
            mine = [c for c in told if c.operation == operation]
            label = f"{operation or 'unknown'} ({times:,})"
            for axes, points in (
                (files, [(c, c.added_data_files) for c in mine if c.added_data_files]),
                (sizes, [(c, mean) for c, mean in means if c.operation == operation]),
            ):
                _plot(axes, points, color=color, marker=marker, label=label, **looks)
                label = ""
        deletes = [(c, c.added_delete_files) for c in told if c.added_delete_files]
        if deletes:
            _plot(files, deletes, color=BLACK, marker="+", label="delete files", **looks)
        _count_axis(
            files, [n for c in told for n in (c.added_data_files, c.added_delete_files) if n]
        )
        _size_axis(sizes, [mean for _, mean in means], facts.target_bytes)
        _time_axis(sizes, [c.committed_at_ms for c in told], "Committed at (UTC)")
        legend(files, columns=3)
        legend(sizes)
    return Chart(
        figure,
        title,
        _commits_told(facts, told, [mean for _, mean in means]),
        tables.commits(facts, limit=None),
    )


def _added(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def _plot(axes: Axes, points: Sequence[tuple[Commit, float]], **looks: Any) -> None:
    times: Any = [at(c.committed_at_ms) for c, _ in points]
    axes.plot(times, [y for _, y in points], **looks)


def _count_axis(axes: Axes, counts: Sequence[int]) -> None:
    if max(counts) > _LOG_RATIO * min(counts):
        axes.set_yscale("log")
        axes.set_ylim(min(counts) / 2, max(counts) * 2)
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "")
        )
        axes.set_ylabel("Files added (log)")
        return
    axes.set_ylim(0, max(counts) * 1.15)
    whole_numbers(axes.yaxis)
    axes.set_ylabel("Files added")


def _size_axis(axes: Axes, means: Sequence[float], target: int) -> None:
    limit_line(axes.axhline, target, f"target {size(target)}", VERMILLION)
    low, high = (
        math.floor(math.log2(min(means, default=target))) - 1,
        math.ceil(math.log2(max(target, *means, 1))) + 1,
    )
    axes.set_yscale("log", base=2)
    axes.set_ylim(2.0**low, 2.0**high)
    step = max(1, -(-(high - low) // 5))
    ticks = [2.0**k for k in range(high - 1, low, -step)]
    axes.set_yticks(ticks, [size(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("Mean size (log)")


def _time_axis(axes: Axes, moments_ms: Sequence[int], label: str) -> None:
    first, last = sorted((at(moments_ms[0]), at(moments_ms[-1])))
    # A single moment has no width to draw in.
    room = (
        max((last - first) * 0.03, dt.timedelta(seconds=2))
        if first != last
        else dt.timedelta(minutes=30)
    )
    ends: Any = first - room, last + room
    axes.set_xlim(ends)
    locator = dates.AutoDateLocator(tz=dt.UTC, minticks=3, maxticks=_MOST_TICKS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = dates.ConciseDateFormatter(
        locator, tz=dt.UTC, formats=_TICKS, offset_formats=_AXIS_ENDS
    )  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlabel(label)


def _commits_told(facts: TableFacts, told: Sequence[Commit], means: Sequence[float]) -> str:
    operations = ", ".join(
        f"{n:,} {operation or 'unknown'}"
        for operation, n in Counter(c.operation for c in told).most_common()
    )
    files, deletes = (
        sum(c.added_data_files or 0 for c in told),
        sum(c.added_delete_files or 0 for c in told),
    )
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
    sentence = (
        f"{len(told):,}{of} commit{'s' if len(kept) != 1 else ''} of {facts.name} {when} "
        f"({operations}) added {count(files, 'data file')} and {count(deletes, 'delete file')}"
    )
    sentence += f", {plain(statistics.median(map(_added, told)), 4)} per commit (median)"
    if means:
        sentence += (
            f"; the mean size of an added file is {size(statistics.median(means))} (median over "
            f"commits); the target is {size(facts.target_bytes)}"
        )
    return sentence + "."


# --- Draw the figure of a table that reaches its threshold first, over the stored runs


def trend(table: str, runs: Sequence[Health], thresholds: Thresholds | None = None) -> Chart:
    """The figure that reaches its threshold first (file size if none does) over the runs, oldest
    first; the sentence says what got worse or better.
    """
    title = f"Trend: {table}"
    if len(runs) < 2:
        return nothing(
            title,
            "No earlier run to compare with: icekit report --history FILE (or table) keeps each "
            "run.",
        )
    compared = compare(runs, thresholds)
    coming = compared.trend
    measure = coming.measure if coming else MEASURES[0]
    limit = measure.limit(runs[-1], thresholds or Thresholds())
    times = [run.observed_at_ms for run in runs]
    with styled():
        figure, (axes,) = canvas(title, 3.6)
        points: Any = [
            (at(run.observed_at_ms), value)
            for run in runs
            if (value := measure.value(run)) is not None
        ]
        axes.plot(
            *zip(*points, strict=True), color=BLUE, marker="o", label=measure.title
        ) if points else None
        if limit is not None:
            limit_line(axes.axhline, limit, f"threshold {measure.write(limit)}", VERMILLION)
        if coming:
            ahead: Any = [at(times[-1]), at(round(times[-1] + coming.days * 86_400_000))]
            axes.plot(
                ahead,
                [coming.limit - coming.per_day * coming.days, coming.limit],
                color=GREY,
                linestyle=":",
                label="trend",
            )
            # As far ahead as the runs go back, so that these do not shrink to a point.
            times.append(round(times[-1] + min(coming.days * 86_400_000, times[-1] - times[0])))
        top = max((*(value for _, value in points), limit or 0))
        axes.set_ylim(0, 1.15 * top or 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: measure.write(value)))
        if measure.write is size:
            sizes_up_to(axes.yaxis, top)
        _time_axis(axes, times, "Observed at (UTC)")
        legend(axes, columns=3)
    told = (
        f"{count(len(runs), 'run')} of {table} from {moment(runs[0].observed_at_ms)} to "
        f"{moment(runs[-1].observed_at_ms)}; {compared}."
    )
    units = {size: BYTES, percent: SHARE}
    columns = {
        "observed_at": TIME,
        **{m.title: units.get(m.write, COUNT) for m in MEASURES},
        "status": TEXT,
    }
    rows = [
        (at(run.observed_at_ms), *(m.value(run) for m in MEASURES), run.status)
        for run in reversed(runs)
    ]
    return Chart(figure, title, told, Grid("", columns, rows))
