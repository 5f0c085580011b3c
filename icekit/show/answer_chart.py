"""Draw an answer: for each measure, a bar for every variant, with how far repeats of it differ."""

from typing import Any

from matplotlib.ticker import MaxNLocator

from icekit.show.chart import (
    BLACK,
    BLUE,
    ORANGE,
    SKY,
    Chart,
    canvas,
    named_rows,
    note,
    nothing,
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
    measured = answer.measured
    variants = list(answer.measured.values_by_variant)
    differing = [
        m
        for m in measured.measures
        if len({measured.value(variant, m.name) for variant in variants} - {None}) > 1
    ]
    if not differing:
        return nothing(answer.verdict)
    drawn = differing[:_PANELS]
    title = f"{answer.question.replace('-', ' ').capitalize()}: {answer.facts.name}"
    colors_by_name = {answer.now: (ORANGE, "//"), answer.advised: (BLUE, "")}
    colors, hatches = zip(
        *(colors_by_name.get(variant, (SKY, "")) for variant in variants), strict=True
    )
    looks: dict[str, Any] = {"color": list(colors), "hatch": hatches, "edgecolor": BLACK}
    heights = (len(variants) + 0.8,) * len(drawn)
    with canvas(title, 0.6 + 0.5 * sum(heights), heights) as (figure, panels):
        for axes, measure in zip(panels, drawn, strict=True):
            spreads = [measured.spread(variant, measure.name) for variant in variants]
            values = [measured.value(variant, measure.name) for variant in variants]
            ends = [value or 0.0 for value in values]
            axes.barh(range(len(ends)), ends, 0.7, xerr=spreads, capsize=3, **looks)
            named_rows(axes, variants)
            for row, value in enumerate(values):
                label = "–" if value is None else measure.unit.write(value)
                note(axes, label, ends[row] + spreads[row], row)
            axes.set_xlim(0, 1.25 * (max(ends) + max(spreads)) or 1)
            if measure.unit.is_whole:
                whole_numbers(axes.xaxis)
            else:
                axes.xaxis.set_major_locator(MaxNLocator(4))
                written(axes.xaxis, measure.unit.write)
            axes.set_xlabel(measure.name.capitalize())
    return Chart(figure, answer.verdict, measured.grid())
