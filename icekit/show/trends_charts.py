"""Draw how a table has changed: a small chart for each figure, its threshold, the maintenance between, and where it is going."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib import dates
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from icekit.history.past import Past
from icekit.history.trend import MEASURES, Measure
from icekit.show.chart import BLUE, GREEN, SMALL, VERMILLION, Chart, canvas, nothing, percentages, styled, whole_numbers
from icekit.units import at, count, moment, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {
    "data_files": "Data files",
    "mean_file_bytes": "Mean file size",
    "delete_ratio": "Delete rows (%)",
    "undersized_manifests": "Small manifests",
    "snapshots": "Snapshots",
}


def trends(past: Past) -> Chart:
    """How each figure moved over the runs that are kept, with its threshold and the maintenance between."""
    title = f"How it has changed: {past.table}"
    if not past.is_kept:
        return nothing(title, "No history is kept: report with --history FILE (or table), and give the same as history here.")
    if len(past.runs) < 2:
        return nothing(title, "This is the first run that the history knows of; the next one can be compared with it.")
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
        axes.yaxis.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2(max(top, 2.0) / 3))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
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
            f"dotted lines: {count(len(past.maintained), 'action')} of icekit's ({', '.join(sorted({m.what for m in past.maintained}))})"
        )
    if past.worse:
        told.append(f"since the last run: {', '.join(past.worse)}")
    if past.better:
        told.append(f"gone since the last run: {', '.join(past.better)}")
    return "; ".join(told) + "."


def runs(past: Past) -> pd.DataFrame:
    """The figures of each run, newest first."""
    return pd.DataFrame(
        [
            {"observed_at": at(run.observed_at_ms), **{measure.name: measure.value(run) for measure in MEASURES}, "status": run.status}
            for run in reversed(past.runs)
        ]
    )


def outlook(past: Past) -> pd.DataFrame:
    """A row for each figure: now, its threshold, the days until it is met, and a sentence; all of it text, as absent days are a dash."""
    return pd.DataFrame(
        [
            {
                "figure": trend.measure.title,
                "now": "not known" if trend.now is None else trend.measure.write(trend.now),
                "threshold": "none" if trend.limit is None else trend.measure.write(trend.limit),
                "days_until": trend.days_told,
                "outlook": trend.sentence,
            }
            for trend in past.trends
        ],
        columns=["figure", "now", "threshold", "days_until", "outlook"],
    )
