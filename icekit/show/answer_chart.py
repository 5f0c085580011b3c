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
    measurements = answer.measured
    variants = list(answer.measured.values_by_variant)
    differing_measures = [
        m
        for m in measurements.measures
        if len({measurements.value(variant, m.name) for variant in variants} - {None}) > 1
    ]
    if not differing_measures:
        return empty_chart(answer.verdict)
    drawn_measures = differing_measures[:_PANELS]
    chart_title = f"{answer.question.replace('-', ' ').capitalize()}: {answer.facts.name}"
    style_by_variant = {answer.now: (ORANGE, "//"), answer.advised: (BLUE, "")}
    bar_colors, bar_hatches = zip(
        *(style_by_variant.get(variant, (SKY, "")) for variant in variants), strict=True
    )
    bar_style: dict[str, Any] = {
        "color": list(bar_colors),
        "hatch": bar_hatches,
        "edgecolor": BLACK,
    }
    panel_heights = (len(variants) + 0.8,) * len(drawn_measures)
    with canvas(chart_title, 0.6 + 0.5 * sum(panel_heights), panel_heights) as (figure, panel_axes):
        for axes, measure in zip(panel_axes, drawn_measures, strict=True):
            repeat_spreads = [measurements.spread(variant, measure.name) for variant in variants]
            measured_values = [measurements.value(variant, measure.name) for variant in variants]
            bar_ends = [measured_value or 0.0 for measured_value in measured_values]
            axes.barh(
                range(len(bar_ends)), bar_ends, 0.7, xerr=repeat_spreads, capsize=3, **bar_style
            )
            set_row_names(axes, variants)
            for bar_number, measured_value in enumerate(measured_values):
                value_text = "–" if measured_value is None else measure.unit.write(measured_value)
                add_note(
                    axes, value_text, bar_ends[bar_number] + repeat_spreads[bar_number], bar_number
                )
            axes.set_xlim(0, 1.25 * (max(bar_ends) + max(repeat_spreads)) or 1)
            if measure.unit.is_whole:
                set_whole_number_ticks(axes.xaxis)
            else:
                axes.xaxis.set_major_locator(MaxNLocator(4))
                format_ticks(axes.xaxis, measure.unit.write)
            axes.set_xlabel(measure.name.capitalize())
    return Chart(figure, answer.verdict, measurements.grid())
