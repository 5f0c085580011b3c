"""What metrics of columns cost and skip, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILLION,
    Chart,
    canvas,
    legend,
    named_rows,
    nothing,
    styled,
    whole_numbers,
)
from icekit.tune.metrics_columns.model import DELETE_KEY, FILTER, PARTITION, SORT, files_said
from icekit.tune.metrics_columns.result import number
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.metrics_columns.result import MetricsColumns

#: Rows that a chart shows; the table has all.
_ROWS = 10
_SHORT = {FILTER: "filter", SORT: "sort", PARTITION: "partition", DELETE_KEY: "delete key"}


def bytes_chart(answer: MetricsColumns) -> Chart:
    """What each column's statistics take of a manifest entry: those that are needed, and the largest that are not, the rest as one."""
    title = f"Bytes of a manifest entry: {answer.name}"
    entry = answer.entry
    if not entry.files or not any(c.size_in_bytes for c in entry.columns):
        return nothing(title, answer.summary())
    needed = [c for c in entry.columns if c.column in answer.roles]
    others = [c for c in entry.columns if c.column not in answer.roles and c.size_in_bytes]
    frame = pd.DataFrame(
        [(c.column, ", ".join(answer.roles.get(c.column, ())) or "no known use", c.count_bytes, c.bound_bytes) for c in (*needed, *others)],
        columns=["column", "needed_as", "count_bytes", "bound_bytes"],
    )
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
        counts, bounds = [c for _, c, _ in named] + [0.0], [b for *_, b in named] + [0.0]
        axes.barh(
            range(len(names)), counts, facecolor=SKY, hatch="//", edgecolor=BLACK, linewidth=0.6, height=0.6, label="sizes and counts"
        )
        axes.barh(range(len(names)), bounds, left=counts, facecolor=ORANGE, edgecolor=BLACK, linewidth=0.6, height=0.6, label="bounds")
        axes.barh(len(names) - 1, max(rest, 0.0), facecolor="#FFFFFF", edgecolor=GREY, linewidth=0.6, height=0.6)
        totals = [c + b for c, b in zip(counts, bounds, strict=True)]
        totals[-1] = max(rest, 0.0)
        for row, total in enumerate(totals):
            axes.annotate(f"{total:,.0f}", (total, row), xytext=(4, 0), textcoords="offset points", va="center", color=GREY)
        named_rows(axes, names)
        whole_numbers(axes.xaxis)
        axes.set_xlabel("Bytes per data file, before compression")
        legend(axes)
    return Chart(figure, title, sentence, frame)


def skipping_chart(answer: MetricsColumns) -> Chart:
    """Data files that the filters on each column read: now, with the default bounds, with whole ones, and sorted by it."""
    title = f"Data files that filters read: {answer.name}"
    skips = [s for s in answer.skipping if s.now is not None or s.by_mode or s.if_sorted is not None]
    if not skips:
        return nothing(title, answer.summary())
    files = answer.facts.data.file_count
    names = [s.column for s in skips]
    rows = [(s.now, s.by_mode[0][1] if s.by_mode else None, s.full, s.if_sorted) for s in skips]
    frame = pd.DataFrame(rows, columns=["now", "truncate_16", "whole_bounds", "if_sorted"])
    frame.insert(0, "column", names)
    worst = max(skips, key=lambda s: (s.now or 0.0) - (s.full if s.full is not None else s.now or 0.0))
    sentence = f"Filters on {worst.column} read {number(worst.now)} of {files:,} data files now, {number(worst.full)} with whole bounds, {number(worst.if_sorted)} if the rows were sorted by it."
    kinds = (("now", VERMILLION, ""), ("truncate(16)", ORANGE, "//"), ("whole bounds", BLUE, ""), ("sorted by it", GREEN, ".."))
    with styled():
        figure, (axes,) = canvas(title, 2.0 + 0.95 * len(rows[:_ROWS]))
        for place, (label, colour, hatch) in enumerate(kinds):
            at = [row + (place - 1.5) * 0.2 for row in range(len(rows[:_ROWS]))]
            values = [row[place] for row in rows[:_ROWS]]
            axes.barh(
                at, [v or 0.0 for v in values], height=0.19, facecolor=colour, hatch=hatch, edgecolor=BLACK, linewidth=0.6, label=label
            )
            for y, value in zip(at, values, strict=True):
                axes.annotate(
                    number(value), (value or 0.0, y), xytext=(4, 0), textcoords="offset points", va="center", color=GREY, fontsize=11
                )
        named_rows(axes, names[:_ROWS])
        axes.set_xlim(0, files * 1.12)
        whole_numbers(axes.xaxis)
        axes.set_xlabel(f"Data files read, of {files:,} (mean of the filters)")
        legend(axes, columns=2)
    return Chart(figure, title, sentence, frame)


def length_chart(answer: MetricsColumns) -> Chart:
    """Data files that filters on texts read, by the characters that their bounds keep."""
    title = f"How long bounds must be: {answer.name}"
    texts = {c.name for c in answer.facts.columns if c.type == "string"}
    skips = [s for s in answer.skipping if s.column in texts and len(s.by_mode) > 1][:5]
    if not skips:
        return nothing(title, "No filter with values asks for a text column whose bounds are known, so no length is to be chosen.")
    modes = [mode for mode, _ in skips[0].by_mode]
    frame = pd.DataFrame({"mode": modes, **{s.column: [files for _, files in s.by_mode] for s in skips}})
    said = [f"Filters on {s.column} need {s.best[0]} to read {files_said(s.best[1])}" for s in skips if s.best is not None]
    with styled():
        figure, (axes,) = canvas(title, 4.2)
        styles = ((BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (VERMILLION, ":", "D"), (BLACK, "-", "x"))
        for skip, (colour, line, mark) in zip(skips, styles, strict=False):
            axes.plot(range(len(modes)), [files for _, files in skip.by_mode], color=colour, linestyle=line, marker=mark, label=skip.column)
        axes.set_xticks(range(len(modes)), [mode.removeprefix("truncate(").rstrip(")") for mode in modes])
        axes.set_ylim(0, answer.facts.data.file_count * 1.08)
        whole_numbers(axes.yaxis)
        axes.set_xlabel("Characters that bounds keep: truncate(n), or full")
        axes.set_ylabel("Data files read")
        legend(axes)
    return Chart(figure, title, "; ".join(said) + ".", frame)
