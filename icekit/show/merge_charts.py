"""What a MERGE opens and shuffles, as it is and as offered: a table and a picture."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.ticker import FuncFormatter, MultipleLocator

from icekit.show.chart import BLACK, BLUE, GREY, ORANGE, Chart, canvas, named_rows, styled
from icekit.sql import display_name
from icekit.tune.merge.result import Review, summary
from icekit.units import size


def bytes_table(review: Review) -> pd.DataFrame:
    """One row for each way to run it: planned from metadata, and measured on clones if that was asked for."""
    rows: list[tuple[object, ...]] = [
        ("the whole target", "planned", review.total.files, review.total.size_in_bytes, None, None),
        ("as it is", "planned", review.plan.scan.files, review.plan.size_in_bytes, None, None),
    ]
    if review.rewrite is not None:
        rows.append(("narrower ON", "planned", review.rewrite.plan.scan.files, review.rewrite.plan.size_in_bytes, None, None))
    for place, trial in enumerate(review.trials):
        measured = [("as it is", trial.before)] if place == 0 else []
        for name, run in [*measured, (trial.what, trial.after)]:
            rows.append((name, "measured", run.files, run.size_in_bytes, run.shuffle_bytes, run.seconds))
    frame = pd.DataFrame(rows, columns=["statement", "how_known", "file_count", "size_in_bytes", "shuffle_bytes", "seconds"])
    return frame.astype({"shuffle_bytes": "Int64"})


def bytes_chart(review: Review) -> Chart:
    """Bytes of the target's files that are opened; where it was tried, also bytes shuffled."""
    title = f"What the MERGE opens: {display_name(review.table[1:])}"
    frame = bytes_table(review)
    planned, measured = frame[frame.how_known == "planned"], frame[frame.how_known == "measured"]
    panels = [("size_in_bytes", planned, "Bytes of files opened, planned", BLUE)]
    if len(measured):
        panels += [
            ("size_in_bytes", measured, "Bytes of files opened, on clones", BLUE),
            ("shuffle_bytes", measured, "Bytes shuffled, on clones", ORANGE),
        ]
    with styled():
        heights = tuple(float(len(rows)) + 0.8 for _, rows, _, _ in panels)
        figure, axes = canvas(title, 0.6 + 0.55 * sum(heights), heights)
        for one, (column, rows, label, color) in zip(axes, panels, strict=True):
            values = [int(v) for v in rows[column]]
            colors = [GREY if name == "the whole target" else color for name in rows.statement]
            one.barh(range(len(values)), values, height=0.55, color=colors, edgecolor=BLACK, linewidth=0.6)
            for place, value in enumerate(values):
                one.annotate(size(value), (value, place), xytext=(4, 0), textcoords="offset points", va="center")
            named_rows(one, list(rows.statement))
            longest = max(*values, 1) * 1.2
            one.set_xlim(0, longest)
            one.xaxis.set_major_locator(MultipleLocator(2 ** math.ceil(math.log2(longest / 6))))
            one.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
            one.set_xlabel(label)
    return Chart(figure, title, summary(review)[0].upper() + summary(review)[1:], frame)
