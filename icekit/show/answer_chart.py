"""Draw an answer: for each measure, a bar for every variant, with how far repeats of it differ."""

from __future__ import annotations

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
    written,
)
from icekit.tune.answer import Answer

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
            figures = dict(zip(variants, values[measure], strict=True))
            kinds = [
                Bars(
                    name,
                    [value if row == name else None for row in variants],
                    *looks.get(name, (SKY,)),
                )
                for name, value in figures.items()
            ]
            draw_bars(axes, variants, kinds)
            spreads = [measured.spread(variant, measure.name) for variant in variants]
            longest = max(value or 0.0 for value in figures.values())
            for row, (value, spread) in enumerate(zip(figures.values(), spreads, strict=True)):
                end, to = value or 0.0, [[0.0], [spread]]
                axes.errorbar([end], [row], xerr=to, color=BLACK, capsize=3, linewidth=1)
                label = "–" if value is None else measure.unit.write(value)
                note(axes, label, end + spread, row)
            axes.set_xlim(0, 1.25 * (longest + max(spreads)) or 1)
            if measure.unit.is_whole:
                whole_numbers(axes.xaxis)
            else:
                written(axes.xaxis, measure.unit.write)
            axes.set_xlabel(measure.name.capitalize())
    return Chart(figure, title, answer.verdict, measured.grid())
