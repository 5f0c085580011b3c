"""Draw an answer: for each measure, a bar for every variant, with how far repeats of it differ."""

from typing import Any

from matplotlib.ticker import MaxNLocator

from icekit.show.chart import (
    BLACK,
    BLUE,
    ORANGE,
    SKY,
    Chart,
    add_note,
    canvas,
    empty_chart,
    format_ticks,
    set_row_names,
    set_whole_number_ticks,
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
    differing_measures = [
        m
        for m in measured.measures
        if len({measured.value(variant, m.name) for variant in variants} - {None}) > 1
    ]
    if not differing_measures:
        return empty_chart(answer.verdict)
    drawn_measures = differing_measures[:_PANELS]
    title = f"{answer.question.replace('-', ' ').capitalize()}: {answer.facts.name}"
    colors_by_name = {answer.now: (ORANGE, "//"), answer.advised: (BLUE, "")}
    colors, hatches = zip(
        *(colors_by_name.get(variant, (SKY, "")) for variant in variants), strict=True
    )
    bar_style: dict[str, Any] = {"color": list(colors), "hatch": hatches, "edgecolor": BLACK}
    panel_heights = (len(variants) + 0.8,) * len(drawn_measures)
    with canvas(title, 0.6 + 0.5 * sum(panel_heights), panel_heights) as (figure, panels):
        for axes, measure in zip(panels, drawn_measures, strict=True):
            spreads = [measured.spread(variant, measure.name) for variant in variants]
            values = [measured.value(variant, measure.name) for variant in variants]
            bar_ends = [value or 0.0 for value in values]
            axes.barh(range(len(bar_ends)), bar_ends, 0.7, xerr=spreads, capsize=3, **bar_style)
            set_row_names(axes, variants)
            for bar_number, value in enumerate(values):
                label = "–" if value is None else measure.unit.write(value)
                add_note(axes, label, bar_ends[bar_number] + spreads[bar_number], bar_number)
            axes.set_xlim(0, 1.25 * (max(bar_ends) + max(spreads)) or 1)
            if measure.unit.is_whole:
                set_whole_number_ticks(axes.xaxis)
            else:
                axes.xaxis.set_major_locator(MaxNLocator(4))
                format_ticks(axes.xaxis, measure.unit.write)
            axes.set_xlabel(measure.name.capitalize())
    return Chart(figure, answer.verdict, measured.grid())
