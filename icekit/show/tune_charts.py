"""Draw the answers to tuning questions: file sizes, a MERGE, metrics of columns, planning, write modes, layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.answer.grid import TEXT, Grid
from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
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
from icekit.tune.metrics_columns.model import DELETE_KEY, FILES, FILTER, PARTITION, SORT, files_said, number
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.file_sizes import FileSizes
    from icekit.tune.metrics_columns.model import MetricsColumns

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


# --- Charts of the cost of column metrics, and the files they skip


#: The most rows in a chart; the table has all.
_ROWS = 10
_SHORT = {FILTER: "filter", SORT: "sort", PARTITION: "partition", DELETE_KEY: "delete key"}


def metrics_bytes_chart(answer: MetricsColumns) -> Chart:
    """Bytes of each column's statistics in a manifest entry: needed columns, the largest of the others, and one bar for the rest."""
    title = f"Bytes of a manifest entry: {answer.name}"
    entry = answer.entry
    if not entry.files or not any(c.size_in_bytes for c in entry.columns):
        return nothing(title, answer.verdict())
    needed = [c for c in entry.columns if c.column in answer.roles]
    others = [c for c in entry.columns if c.column not in answer.roles and c.size_in_bytes]
    idle = sum(c.size_in_bytes for c in others)
    sentence = (
        f"{percent(idle / entry.entry_bytes)} of the {size(entry.entry_bytes)} of an entry, before compression, "
        f"are statistics of {count(len(others), 'column')} without a known use."
    )
    named = [
        (f"{c.column} ({', '.join(_SHORT[role] for role in answer.roles[c.column])})", c.count_bytes, c.bound_bytes) for c in needed[:_ROWS]
    ]
    named.append((count(len(others), "column") + " without use", sum(c.count_bytes for c in others), sum(c.bound_bytes for c in others)))
    rest = entry.entry_bytes - sum(c.size_in_bytes for c in entry.columns)
    with styled():
        figure, (axes,) = canvas(title, 2.0 + 0.45 * (len(named) + 1))
        names = [name for name, *_ in named] + ["path, partition, the rest"]
        kinds = (
            Bars("sizes and counts", [*(c for _, c, _ in named), None], SKY, "//"),
            Bars("bounds", [*(b for *_, b in named), None], ORANGE),
            Bars("not statistics", [*(None for _ in named), max(rest, 0.0)], "white"),
        )
        draw_bars(axes, names, kinds, stacked=True, told="{:,.0f}".format)
        whole_numbers(axes.xaxis)
        axes.set_xlabel("Bytes per data file, before compression")
        legend(axes, columns=3)
    return Chart(figure, title, sentence, answer.tables()["columns"])


def skipping_chart(answer: MetricsColumns) -> Chart:
    """Data files that the filters on each column read: now, with default bounds, with full bounds, and sorted by the column."""
    title = f"Data files that filters read: {answer.name}"
    skips = [s for s in answer.skipping if s.now is not None or s.by_mode or s.if_sorted is not None]
    if not skips:
        return nothing(title, answer.verdict())
    files = answer.facts.data.file_count
    worst = max(skips, key=lambda s: (s.now or 0.0) - (s.full if s.full is not None else s.now or 0.0))
    sentence = f"Filters on {worst.column} read {number(worst.now)} of {files:,} data files now, {number(worst.full)} with full bounds, {number(worst.if_sorted)} if the rows were sorted by {worst.column}."
    shown = skips[:_ROWS]
    kinds = (
        Bars("now", [s.now for s in shown], VERMILLION),
        Bars("truncate(16)", [s.by_mode[0][1] if s.by_mode else None for s in shown], ORANGE, "//"),
        Bars("full bounds", [s.full for s in shown], BLUE),
        Bars("sorted by the column", [s.if_sorted for s in shown], GREEN, ".."),
    )
    with styled():
        figure, (axes,) = canvas(title, 2.0 + 0.95 * len(shown))
        draw_bars(axes, [s.column for s in shown], kinds, told=number)
        axes.set_xlim(0, files * 1.12)
        whole_numbers(axes.xaxis)
        axes.set_xlabel(f"Data files read, of {files:,} (mean of the filters)")
        legend(axes, columns=2)
    return Chart(figure, title, sentence, answer.tables()["skipping"])


def length_chart(answer: MetricsColumns) -> Chart:
    """Data files that filters on string columns read, by the number of characters in the bounds."""
    title = f"How long bounds must be: {answer.name}"
    texts = {c.name for c in answer.facts.columns if c.type == "string"}
    skips = [s for s in answer.skipping if s.column in texts and len(s.by_mode) > 1][:5]
    if not skips:
        return nothing(title, "No filter with values is on a string column with known bounds, so there is no length to choose.")
    modes = [mode for mode, _ in skips[0].by_mode]
    rows = [(mode, *(s.by_mode[place][1] for s in skips)) for place, mode in enumerate(modes)]
    grid = Grid("", {"bounds mode": TEXT("mode"), **dict.fromkeys((s.column for s in skips), FILES)}, rows)
    said = [f"Filters on {s.column} need {s.best[0]} to read {files_said(s.best[1])}" for s in skips if s.best is not None]
    with styled():
        figure, (axes,) = canvas(title, 4.2)
        styles = ((BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (VERMILLION, ":", "D"), (BLACK, "-", "x"))
        for skip, (colour, line, mark) in zip(skips, styles, strict=False):
            axes.plot(range(len(modes)), [files for _, files in skip.by_mode], color=colour, linestyle=line, marker=mark, label=skip.column)
        axes.set_xticks(range(len(modes)), [mode.removeprefix("truncate(").rstrip(")") for mode in modes])
        axes.set_ylim(0, answer.facts.data.file_count * 1.08)
        whole_numbers(axes.yaxis)
        axes.set_xlabel("Characters in the bounds: truncate(n), or full")
        axes.set_ylabel("Data files read")
        legend(axes)
    return Chart(figure, title, "; ".join(said) + ".", grid)


# --- Chart of planning: manifests that queries open


#: The most queries in a chart.
_SHOWN = 10
