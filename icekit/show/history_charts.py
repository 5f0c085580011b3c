"""Draw how a table's health changed from run to run: the figure that reaches its threshold first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icekit.answer.grid import TEXT, TIME, Grid
from icekit.diagnose.findings import Thresholds
from icekit.history.store import Health
from icekit.history.trend import MEASURES, compare
from icekit.show.chart import (
    BLUE,
    GREY,
    VERMILLION,
    Chart,
    canvas,
    legend,
    limit_line,
    nothing,
    styled,
    time_axis,
    written,
)
from icekit.units import at, count, moment


def trend(table: str, runs: Sequence[Health], thresholds: Thresholds | None = None) -> Chart:
    """The figure that reaches its threshold first (file size if none does) over the runs, oldest
    first; the sentence says what got worse or better.
    """
    if len(runs) < 2:
        return nothing(
            "No earlier run to compare with: icekit report --history FILE (or table) keeps each "
            "run.",
        )
    compared = compare(runs, thresholds)
    coming = compared.trend
    measure = coming.measure if coming else MEASURES[0]
    write = measure.unit.write
    limit = measure.limit(runs[-1], thresholds or Thresholds())
    times = [run.observed_at_ms for run in runs]
    with styled():
        figure, (axes,) = canvas(f"Trend: {table}", 3.6)
        points = {at(r.observed_at_ms): v for r in runs if (v := measure.value(r)) is not None}
        observed: Any = list(points)
        axes.plot(observed, list(points.values()), color=BLUE, marker="o", label=measure.title)
        if limit is not None:
            limit_line(axes.axhline, limit, f"threshold {write(limit)}", VERMILLION)
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
        written(axes.yaxis, write)
        time_axis(axes, times, "Observed at (UTC)")
        legend(axes, columns=3)
    sentence = (
        f"{count(len(runs), 'run')} of {table} from {moment(runs[0].observed_at_ms)} to "
        f"{moment(runs[-1].observed_at_ms)}; {compared}."
    )
    columns = {"observed_at": TIME, **{m.title: m.unit for m in MEASURES}, "status": TEXT}
    rows = [
        (at(run.observed_at_ms), *(m.value(run) for m in MEASURES), run.status)
        for run in reversed(runs)
    ]
    return Chart(figure, sentence, Grid("", columns, rows))
