"""Draw how a table changed: manifests, commits, and the figure that reaches its threshold first."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import dates
from matplotlib.ticker import NullLocator

from icekit.answer.grid import BYTES, COUNT, SHARE, TEXT, TIME, Grid
from icekit.diagnose.findings import Thresholds
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
    percentages,
    sizes_up_to,
    styled,
    written,
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
_MANIFESTS = {"data": "data manifest", "deletes": "delete manifest"}


def manifests(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Manifests next to the number needed at the target size, and their overlap by partition
    field.
    """
    title = f"Manifests: {facts.name}"
    table = tables.manifests(facts)
    if not table:
        return nothing(title, "No manifests: nothing to draw.")
    target = size(facts.int_setting("commit.manifest.target-size-bytes"))
    overlaps = {f"{o.field} (spec {o.spec_id})": o.mean_share for o in facts.manifests.overlaps}
    panels = (1.0 + len(table), *([1.0 + len(overlaps)] if overlaps else []))
    with styled():
        figure, (top, *below) = canvas(title, 0.9 + 0.5 * sum(panels), panels)
        existing = Bars("manifests", table["manifest_count"], BLUE)
        needed_rows(top, table["content"], existing, table["manifests_needed"], target)
        for axes in below:
            limit = (thresholds or Thresholds()).overlap_share
            shares = list(overlaps.values())
            draw_bars(axes, list(overlaps), [Bars("overlap", shares, ORANGE, "//")])
            for row, share in enumerate(shares):
                note(axes, percent(share), share, row)
            limit_line(axes.axvline, limit, f"threshold {percent(limit)}")
            axes.set_xlim(0, 1.16)
            percentages(axes.xaxis)
            axes.set_xlabel("Mean share of the other manifests that one overlaps (%)")
            legend(axes)
    parts = [
        f"{count(number, _MANIFESTS[content])} of {facts.name}, {size(mean)} and {entries:,.1f} "
        f"live entries each on average; {needed:,} of {target} would be enough"
        for content, number, needed, _, mean, _, entries in table.rows
    ]
    parts += [
        f"by {name} a data manifest overlaps {percent(share)} of the others"
        for name, share in overlaps.items()
    ]
    return Chart(figure, title, "; ".join(parts) + ".", table)


def commits(facts: TableFacts) -> Chart:
    """Files that each commit added, and their mean size, over time."""
    title = f"Files added by each commit: {facts.name}"
    adding = [c for c in facts.history.commits if _added(c)]
    if not adding:
        return nothing(title, "No commit states how many files it added: nothing to draw.")
    operations = Counter(c.operation or "unknown" for c in adding).most_common()
    # A summary adds up the bytes of data files and delete files.
    means = [c.added_bytes / _added(c) for c in adding if c.added_bytes]
    with styled():
        figure, (files, sizes) = canvas(title, 5.2, (1, 1), sharex=True)
        for operation, times in operations:
            color, marker = _MARKS.get(operation, _OTHER)
            label = f"{operation} ({times:,})"
            mine = [c for c in adding if (c.operation or "unknown") == operation]
            _points(files, mine, [c.added_data_files for c in mine], color, marker, label)
            _points(
                sizes, mine, [(c.added_bytes or 0) / _added(c) for c in mine], color, marker, ""
            )
        deletes = [c.added_delete_files for c in adding]
        if any(deletes):
            _points(files, adding, deletes, BLACK, "+", "delete files")
        counts = [n for c in adding for n in (c.added_data_files, c.added_delete_files) if n]
        _log_axis(files, counts, "{:,.0f}".format, "Files added (log)")
        limit_line(
            sizes.axhline, facts.target_bytes, f"target {size(facts.target_bytes)}", VERMILLION
        )
        _log_axis(sizes, [facts.target_bytes, *means], size, "Mean size (log)")
        _time_axis(sizes, [c.committed_at_ms for c in adding], "Committed at (UTC)")
        legend(files, columns=3)
        legend(sizes)
    when = " to ".join(dict.fromkeys(moment(c.committed_at_ms) for c in (adding[0], adding[-1])))
    kinds = ", ".join(f"{times:,} {operation}" for operation, times in operations)
    kept = facts.history.commits
    of = f" of the newest {len(kept):,}" if len(adding) < len(kept) else ""
    noun = "commit" if len(kept) == 1 else "commits"
    sentence = (
        f"{len(adding):,}{of} {noun} of {facts.name}, {when} ({kinds}), added "
        f"{count(sum(c.added_data_files or 0 for c in adding), 'data file')} and "
        f"{count(sum(c.added_delete_files or 0 for c in adding), 'delete file')}, "
        f"{plain(statistics.median(map(_added, adding)), 4)} per commit (median)"
    )
    if means:
        sentence += (
            f"; the mean size of an added file is {size(statistics.median(means))} (median over "
            f"commits); the target is {size(facts.target_bytes)}"
        )
    return Chart(figure, title, f"{sentence}.", tables.commits(facts, limit=None))


def _added(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def _points(
    axes: Axes,
    commits: Sequence[Commit],
    values: Sequence[float | None],
    color: str,
    marker: str,
    label: str,
) -> None:
    """A mark for each commit; none where its value is 0 or not known."""
    times: Any = [at(c.committed_at_ms) for c in commits]
    known = [value or math.nan for value in values]
    axes.plot(times, known, marker, color=color, label=label, alpha=0.7, markersize=7)


def _log_axis(
    axes: Axes, values: Sequence[float], write: Callable[[float], str], label: str
) -> None:
    """An axis with ticks at powers of two, a few of them, that shows every value."""
    low, high = math.floor(math.log2(min(values))) - 1, math.ceil(math.log2(max(values))) + 1
    axes.set_yscale("log", base=2)
    axes.set_ylim(2.0**low, 2.0**high)
    ticks = [2.0**k for k in range(high - 1, low, min(-1, (low - high) // 5))]
    axes.set_yticks(ticks, [write(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(label)


def _time_axis(axes: Axes, moments_ms: Sequence[int], label: str) -> None:
    first, last = sorted((at(moments_ms[0]), at(moments_ms[-1])))
    # A single moment has no width to draw in.
    room = max((last - first) * 0.03, dt.timedelta(seconds=2))
    if first == last:
        room = dt.timedelta(minutes=30)
    ends: Any = first - room, last + room
    axes.set_xlim(ends)
    locator = dates.AutoDateLocator(tz=dt.UTC, minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = dates.ConciseDateFormatter(locator, tz=dt.UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlabel(label)


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
        points = {at(r.observed_at_ms): v for r in runs if (v := measure.value(r)) is not None}
        observed: Any = list(points)
        axes.plot(observed, list(points.values()), color=BLUE, marker="o", label=measure.title)
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
        top = max(*points.values(), limit or 0, 0)
        axes.set_ylim(0, 1.15 * top or 1)
        if measure.write is size:
            sizes_up_to(axes.yaxis, top)
        else:
            written(axes.yaxis, measure.write)
        _time_axis(axes, times, "Observed at (UTC)")
        legend(axes, columns=3)
    sentence = (
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
    return Chart(figure, title, sentence, Grid("", columns, rows))
