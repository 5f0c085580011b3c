"""Draw the answers to tuning questions: file sizes, a MERGE, metrics of columns, planning, write modes, layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.show.chart import (
    BLUE,
    GREY,
    ORANGE,
    VERMILLION,
    Bars,
    Chart,
    canvas,
    draw_bars,
    legend,
    note,
    nothing,
    sizes_up_to,
    styled,
    whole_numbers,
)
from icekit.sql import display_name
from icekit.tune.file_sizes import commits, made
from icekit.tune.file_sizes.written import Written
from icekit.tune.merge.model import Review
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.file_sizes import FileSizes

_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def next_writes_chart(answer: FileSizes) -> Chart:
    """Mean file sizes of a typical and of a large commit, now and as advised, compared with the target."""
    title = f"Next writes: {answer.name}"
    tried = commits(answer)
    if not tried:
        return nothing(title, "No write was tried, so there is nothing to draw.")
    target = tried[-1][1].written.target_bytes
    unit, name = next(((u, n) for u, n in _UNITS if target >= u), (1, "B"))
    shown = [(f"{commit}, {s.name}", s.written) for commit, s in tried]
    sentence = f"The target is {size(target)}. " + " ".join(f"{label.capitalize()}: {made(w)}." for label, w in shown)
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.55 * len(shown))
        kinds = (
            Bars("now", [(w.mean_bytes or 0.0) / unit if label.endswith("now") else None for label, w in shown], ORANGE, "//"),
            Bars("as advised", [(w.mean_bytes or 0.0) / unit if label.endswith("advised") else None for label, w in shown], BLUE),
        )
        draw_bars(axes, [label for label, _ in shown], kinds, stacked=True)
        for place, (_, w) in enumerate(shown):
            note(axes, _label(w), (w.mean_bytes or 0.0) / unit, place)
        axes.axvline(target / unit, color=VERMILLION, linewidth=1.8, label="target")
        axes.axvspan(0.85 * target / unit, 1.15 * target / unit, color=GREY, alpha=0.15, linewidth=0, label="within 15 %")
        axes.set_xlim(0, 1.6 * max(target, *(w.mean_bytes or 0 for _, w in shown)) / unit)
        axes.set_xlabel(f"Mean size of a data file ({name}); share of bytes in well-sized files")
        legend(axes, columns=2)
    return Chart(figure, title, sentence, answer.tables()["commits"])


def modes_chart(answer: FileSizes) -> Chart:
    """The data files that a commit writes under each mode, predicted and actual."""
    title = f"Data files per commit: {answer.name}"
    trial = answer.mode_trials[0] if answer.mode_trials else None
    if trial is None:
        return nothing(title, "No distribution mode was tried, so there is nothing to draw.")
    names = [t.mode + (" (in force)" if t.mode == trial.in_force else "") for t in trial.tried]
    made_files = [t.written.files for t in trial.tried]
    predicted = [t.predicted.files if t.predicted else 0 for t in trial.tried]
    sentence = (
        "; ".join(f"{n}: predicted {p:,}, actual {m:,}" for n, p, m in zip(names, predicted, made_files, strict=True))
        + f". Tried with {trial.described}."
    )
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.75 * len(names))
        kinds = (Bars("predicted", predicted, "white", ".."), Bars("actual", made_files, BLUE))
        draw_bars(axes, names, kinds, told="{:,.0f}".format)
        axes.set_xlabel("Data files per commit")
        whole_numbers(axes.xaxis)
        legend(axes, columns=2)
    return Chart(figure, title, sentence, answer.tables()["mode_trials"])


def _label(written: Written) -> str:
    share = written.well_sized_share
    return count(written.files, "file") + (f", {percent(share)} well-sized" if share else "")


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
