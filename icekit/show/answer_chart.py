"""Draw an answer: for each measure, a bar for every variant, with how far repeats of it differ."""

from __future__ import annotations

from matplotlib.ticker import FuncFormatter

from icekit.show.chart import (
    BLACK,
    BLUE,
    ORANGE,
    SKY,
    Bars,
    Chart,
    canvas,
    draw_bars,
    note,
    nothing,
    styled,
    whole_numbers,
)
from icekit.tune.answer import Answer, Measure

#: The most measures that a chart draws; the table has all.
_PANELS = 4


def answer_chart(answer: Answer) -> Chart:
    """Each measure of the variants: now in orange, as advised in blue, what else was tried in
    grey.
    """
    measured, title = (
        answer.measured,
        f"{answer.question.replace('-', ' ').capitalize()}: {answer.name}",
    )
    variants = list(measured.rounds)
    values = {
        m: [measured.value(variant, m.name) for variant in variants] for m in measured.measures
    }
    drawn = [m for m, figures in values.items() if len({f for f in figures if f is not None}) > 1][
        :_PANELS
    ]
    if not drawn:
        return nothing(title, answer.verdict)
    looks = {answer.now: (ORANGE, "//"), answer.advised: (BLUE, "")}
    with styled():
        heights = (len(variants) + 0.8,) * len(drawn)
        figure, panels = canvas(title, 0.6 + 0.5 * sum(heights), heights)
        for axes, measure in zip(panels, drawn, strict=True):
            for variant in variants:
                color, hatch = looks.get(variant, (SKY, ""))
                bars = [
                    value if name == variant else None
                    for name, value in zip(variants, values[measure], strict=True)
                ]
                draw_bars(axes, variants, [Bars(variant, bars, color, hatch)])
            spreads = [measured.spread(variant, measure.name) for variant in variants]
            longest = max(value or 0.0 for value in values[measure])
            for row, (value, spread) in enumerate(zip(values[measure], spreads, strict=True)):
                axes.errorbar(
                    [value or 0.0],
                    [row],
                    xerr=[[0.0], [spread]],
                    color=BLACK,
                    capsize=3,
                    linewidth=1,
                )
                label = "–" if value is None else measure.unit.write(value)
                note(axes, label, (value or 0.0) + spread, row, bbox=None)
            axes.set_xlim(0, 1.25 * (longest + max(spreads)) or 1)
            whole_numbers(axes.xaxis) if measure.unit.is_whole else axes.xaxis.set_major_formatter(
                _ticks(measure)
            )
            axes.set_xlabel(measure.name.capitalize())
    return Chart(figure, title, answer.verdict, measured.grid())


def _ticks(measure: Measure) -> FuncFormatter:
    return FuncFormatter(lambda value, _: measure.unit.write(value))
