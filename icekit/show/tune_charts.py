"""Draw the answers to tuning questions: file sizes, a MERGE, metrics of columns, planning, write modes, layouts."""

from __future__ import annotations

from icekit.show.chart import (
    BLUE,
    ORANGE,
    Bars,
    Chart,
    canvas,
    draw_bars,
    sizes_up_to,
    styled,
)
from icekit.sql import display_name
from icekit.tune.merge.model import Review
from icekit.units import size

# --- The files that a MERGE opens and shuffles, now and as proposed: a table and a chart


def merge_bytes_chart(review: Review) -> Chart:
    """Bytes of the target's files that the MERGE opens and, if tried, bytes shuffled."""
    title = f"Files that the MERGE opens: {display_name(review.table[1:])}"
    grid = review.tables()["ways"]
    rows = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    planned, measured = ([row for row in rows if row["how_known"] == how] for how in ("planned", "measured"))
    panels = [("size_in_bytes", planned, "Bytes of files opened, planned", BLUE)]
    if measured:
        panels += [
            ("size_in_bytes", measured, "Bytes of files opened, on clones", BLUE),
            ("shuffle_bytes", measured, "Bytes shuffled, on clones", ORANGE),
        ]
    with styled():
        heights = tuple(float(len(shown)) + 0.8 for _, shown, _, _ in panels)
        figure, axes = canvas(title, 0.6 + 0.55 * sum(heights), heights)
        for one, (column, shown, label, color) in zip(axes, panels, strict=True):
            values = [int(row[column]) for row in shown]
            draw_bars(one, [row["statement"] for row in shown], [Bars(label, values, color)], told=size)
            longest = max(*values, 1) * 1.2
            one.set_xlim(0, longest)
            sizes_up_to(one.xaxis, longest)
            one.set_xlabel(label)
    return Chart(figure, title, review.verdict(), grid)
