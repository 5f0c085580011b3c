"""Draw the answers to tuning questions: file sizes, a MERGE, metrics of columns, planning, write modes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, MultipleLocator

from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Chart,
    canvas,
    legend,
    named_rows,
    nothing,
    percentages,
    styled,
    whole_numbers,
)
from icekit.sql import display_name
from icekit.tune.advisory_size.trial import SizeStep
from icekit.tune.advisory_size.written import Written
from icekit.tune.file_sizes import made
from icekit.tune.merge.model import Review, summary
from icekit.tune.metrics_columns.model import DELETE_KEY, FILTER, PARTITION, SORT, files_said, number
from icekit.tune.write_mode.model import even_sentence, steps
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.file_sizes import FileSizes
    from icekit.tune.metrics_columns.model import MetricsColumns
    from icekit.tune.planning import Planning
    from icekit.tune.write_mode.service import WriteModeChoice


_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def sizes_table(answer: FileSizes) -> pd.DataFrame:
    """Each commit that was tried, a row; sizes in bytes, the ratio of shuffle to file bytes."""
    rows = [
        (commit, s.name, w.files, w.fewest, w.mean_bytes, w.min_bytes, w.max_bytes, w.well_sized_share, w.target_bytes, w.ratio)
        for commit, s in _commits(answer)
        for w in (s.written,)
    ]
    names = "commit settings files fewest_files mean_bytes min_bytes max_bytes well_sized_share target_bytes ratio"
    return pd.DataFrame(rows, columns=names.split())


def modes_table(answer: FileSizes) -> pd.DataFrame:
    """Each mode that was tried, a row: files predicted and made, mean size in bytes."""
    rows = [
        (
            t.operation,
            m.mode,
            m.mode == t.in_force,
            m.predicted.files if m.predicted else None,
            m.written.files,
            m.written.mean_bytes,
            m.written.delete_files,
        )
        for t in answer.mode_trials
        for m in t.tried
    ]
    return pd.DataFrame(rows, columns="operation mode in_force predicted_files files mean_bytes delete_files".split())


def next_writes_chart(answer: FileSizes) -> Chart:
    """Mean file sizes of a usual and of a large commit, as things are and as advised, against the target."""
    title = f"Next writes: {answer.name}"
    commits = _commits(answer)
    if not commits:
        return nothing(title, "Nothing was tried, so there are no next writes to show.")
    target = commits[-1][1].written.target_bytes
    unit, name = next(((u, n) for u, n in _UNITS if target >= u), (1, "B"))
    shown = [(f"{commit}, {s.name}", s.written) for commit, s in commits]
    sentence = f"The target is {size(target)}. " + " ".join(f"{label.capitalize()}: {made(w)}." for label, w in shown)
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.55 * len(shown))
        for place, (label, w) in enumerate(shown):
            mean = w.mean_bytes or 0.0
            first = label.endswith("as it is")
            axes.barh(
                place,
                mean / unit,
                facecolor=ORANGE if first else BLUE,
                hatch="//" if first else "",
                edgecolor=BLACK,
                linewidth=0.6,
                height=0.55,
            )
            axes.annotate(
                _label(w),
                (mean / unit, place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
            )
        axes.axvline(target / unit, color=VERMILLION, linewidth=1.8, label="target")
        axes.axvspan(0.85 * target / unit, 1.15 * target / unit, color=GREY, alpha=0.15, linewidth=0, label="within 15 %")
        named_rows(axes, [label for label, _ in shown])
        axes.set_xlim(0, 1.6 * max(target, *(w.mean_bytes or 0 for _, w in shown)) / unit)
        axes.set_xlabel(f"Mean size of a data file ({name}); share of bytes in well-sized files")
        legend(axes, columns=2)
    return Chart(figure, title, sentence, sizes_table(answer))


def modes_chart(answer: FileSizes) -> Chart:
    """The files that a commit makes under each mode, predicted and made."""
    title = f"Files of a commit: {answer.name}"
    trial = answer.mode_trials[0] if answer.mode_trials else None
    if trial is None:
        return nothing(title, "No mode was tried.")
    names = [t.mode + (" (in force)" if t.mode == trial.in_force else "") for t in trial.tried]
    made_files = [t.written.files for t in trial.tried]
    predicted = [t.predicted.files if t.predicted else 0 for t in trial.tried]
    sentence = (
        "; ".join(f"{n}: predicted {p:,}, made {m:,}" for n, p, m in zip(names, predicted, made_files, strict=True))
        + f". Of {trial.described}."
    )
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.75 * len(names))
        places = range(len(names))
        axes.barh(
            [p - 0.18 for p in places],
            predicted,
            height=0.32,
            facecolor="white",
            hatch="..",
            edgecolor=GREY,
            linewidth=0.8,
            label="predicted",
        )
        axes.barh([p + 0.18 for p in places], made_files, height=0.32, facecolor=BLUE, edgecolor=BLACK, linewidth=0.6, label="made")
        for place, (p, m) in enumerate(zip(predicted, made_files, strict=True)):
            axes.annotate(f"{p:,}", (p, place - 0.18), xytext=(4, 0), textcoords="offset points", va="center")
            axes.annotate(f"{m:,}", (m, place + 0.18), xytext=(4, 0), textcoords="offset points", va="center")
        named_rows(axes, names)
        axes.set_xlim(left=0)
        axes.set_xlabel("Data files of one commit")
        whole_numbers(axes.xaxis)
        legend(axes, columns=2)
    frame = modes_table(answer)
    return Chart(figure, title, sentence, frame[frame["operation"] == trial.operation].reset_index(drop=True))


def _label(written: Written) -> str:
    share = written.well_sized_share
    return count(written.files, "file") + (f", {percent(share)} well-sized" if share else "")


def _commits(answer: FileSizes) -> list[tuple[str, SizeStep]]:
    found: list[tuple[str, SizeStep]] = []
    if answer.next_before is not None:
        found.append(("usual", SizeStep("as it is", None, answer.next_before)))
        if answer.next_after is not None and answer.next_after is not answer.next_before:
            found.append(("usual", SizeStep("as advised", None, answer.next_after)))
    if answer.size_trial is not None:
        found.append(("large", SizeStep("as it is", None, answer.size_trial.before)))
        candidate, chosen = answer.size_trial.chosen
        if chosen is not answer.size_trial.before:
            found.append(("large", SizeStep("as advised", candidate.size_in_bytes if candidate else None, chosen)))
    return found


# --- What a MERGE opens and shuffles, as it is and as offered: a table and a picture


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


def merge_bytes_chart(review: Review) -> Chart:
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


# --- What metrics of columns cost and skip, as pictures


#: Rows that a chart shows; the table has all.
_ROWS = 10
_SHORT = {FILTER: "filter", SORT: "sort", PARTITION: "partition", DELETE_KEY: "delete key"}


def metrics_bytes_chart(answer: MetricsColumns) -> Chart:
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


# --- Planning as pictures: manifests that queries open, and what other encodings take


#: Queries that a chart has room for.
_SHOWN = 10


def manifests_chart(answer: Planning) -> Chart:
    """The manifests that a full scan and each filter open now, and once they are rewritten by partition."""
    title = f"Manifests opened to plan: {answer.name}"
    if answer.rewritten is None:
        return nothing(title, answer.summary())
    r = answer.rewritten
    reads = r.reads[:_SHOWN]
    names = [read.text or "full scan" for read in reads]
    before, after = [read.before.manifests for read in reads], [read.after.manifests for read in reads]
    sentence = (
        f"A full scan opens {before[0]:,} data manifests now and {after[0]:,} once they are rewritten; it is planned in "
        f"{reads[0].before.seconds:.2f} s and {reads[0].after.seconds:.2f} s."
    )
    frame = pd.DataFrame(
        {
            "query": [read.text or "full scan" for read in r.reads],
            "manifests_now": [read.before.manifests for read in r.reads],
            "manifests_rewritten": [read.after.manifests for read in r.reads],
            "planning_seconds_now": [read.before.seconds for read in r.reads],
            "planning_seconds_rewritten": [read.after.seconds for read in r.reads],
        }
    )
    places = np.arange(len(reads))
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.5 * len(reads))
        axes.barh(places - 0.2, before, 0.38, color=ORANGE, label="now")
        axes.barh(places + 0.2, after, 0.38, color=BLUE, hatch="//", edgecolor="white", label="once rewritten")
        for place, (b, a) in enumerate(zip(before, after, strict=True)):
            axes.annotate(f" {b:,}", (b, place - 0.2), va="center")
            axes.annotate(f" {a:,}", (a, place + 0.2), va="center")
        named_rows(axes, names)
        whole_numbers(axes.xaxis)
        axes.set_xlabel("Data manifests opened")
        legend(axes)
    return Chart(figure, title, sentence, frame)


def encodings_chart(answer: Planning) -> Chart:
    """Bytes, time to write and time to read of each encoding, against the way the table is written now."""
    title = f"Written in other ways: {answer.name}"
    if not answer.encodings:
        return nothing(title, "No other way to write was tried.")
    here = answer.encodings[0]
    frame = pd.DataFrame(
        [(e.name, e.size_in_bytes, e.write_seconds, e.scan_seconds) for e in answer.encodings],
        columns=["written_as", "size_in_bytes", "write_seconds", "scan_seconds"],
    )
    smallest = min(answer.encodings, key=lambda e: e.size_in_bytes)
    sentence = (
        f"The smallest, {smallest.name}, takes {smallest.size_in_bytes / here.size_in_bytes * 100:.0f} % of the bytes of now, "
        f"{smallest.write_seconds / here.write_seconds * 100:.0f} % of the time to write and {smallest.scan_seconds / here.scan_seconds * 100:.0f} % of the time to read."
    )
    shares = (
        ("bytes", BLUE, "", [e.size_in_bytes / here.size_in_bytes for e in answer.encodings]),
        ("time to write", ORANGE, "//", [e.write_seconds / here.write_seconds for e in answer.encodings]),
        ("time to read", GREEN, "..", [e.scan_seconds / here.scan_seconds for e in answer.encodings]),
    )
    places = np.arange(len(answer.encodings))
    with styled():
        figure, (axes,) = canvas(title, 2.0 + 0.62 * len(places))
        for number, (name, colour, hatch, values) in enumerate(shares):
            axes.barh(places + (number - 1) * 0.27, values, 0.25, color=colour, hatch=hatch, edgecolor="white", label=name)
        axes.axvline(1.0, color=GREY, linewidth=1.2)
        named_rows(axes, [e.name for e in answer.encodings])
        percentages(axes.xaxis)
        axes.set_xlabel("Share of the way it is written now (%)")
        legend(axes, columns=3)
    return Chart(figure, title, sentence, frame)


# --- What write modes cost, as pictures and tables


_LINES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PURPLE, ":"), (BLACK, "-"))
_POINTS = 41


def measured_table(choice: WriteModeChoice) -> pd.DataFrame:
    """What was measured, a variant a row; seconds on the wall, bytes and files per commit."""
    rows = [
        (
            m.variant.name,
            m.variant.format_version,
            m.write,
            m.bytes_written,
            m.files_written,
            m.scan,
            m.filtered,
            m.planned.delete_opens if m.planned else None,
            m.compaction_seconds,
        )
        for m in choice.trial.measured
    ]
    names = "mode format_version commit_seconds bytes_written files_written scan_seconds filtered_seconds delete_opens compaction_seconds"
    return pd.DataFrame(rows, columns=names.split())


def sensitivity_table(choice: WriteModeChoice) -> pd.DataFrame:
    """The winner and the break-even with each input half and twice as large."""
    rows = [(c.name, c.factor, c.winner.name, c.break_even) for c in choice.sensitivity]
    return pd.DataFrame(rows, columns=["input", "factor", "winner", "break_even_reads_per_commit"])


def cost_chart(choice: WriteModeChoice) -> Chart:
    """The cost of a commit in each mode against the reads that follow it, with the table's own place."""
    title = f"Cost of a commit: {choice.name}"
    if choice.comparison is None:
        return nothing(title, choice.summary())
    here = choice.comparison.within(choice.current.format_version)
    found = here.main_break_even()
    even = found[2] if found else math.inf
    marks = [x for x in (even, choice.reads) if x and math.isfinite(x)]
    reach = max(marks, default=10.0) * 1.6
    at = [reach * i / (_POINTS - 1) for i in range(_POINTS)]
    lines = steps(choice.comparison, at)
    own = f" The table has {choice.reads:,.3g} reads per commit." if choice.reads is not None else ""
    sentence = f"{even_sentence(here)}{own}"
    with styled():
        figure, (axes,) = canvas(title, 5.0)
        for (name, costs), (colour, style) in zip(lines.items(), _LINES * 2, strict=False):
            axes.plot(at, costs, color=colour, linestyle=style, linewidth=2.2, label=name)
        if choice.reads is not None:
            axes.axvline(choice.reads, color=VERMILLION, linewidth=1.6, label="this table")
        axes.set_xlim(0, reach)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Reads per commit")
        axes.set_ylabel("Seconds per commit,\nbeside the reads themselves")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:,.3g}"))
        legend(axes, columns=1)
    frame = pd.DataFrame({"reads_per_commit": at, **lines})
    return Chart(figure, title, sentence, frame.iloc[::4].reset_index(drop=True))


def parts_chart(choice: WriteModeChoice) -> Chart:
    """What the cost of a commit is made of in each mode: writing, slower reads, compaction."""
    title = f"What a commit costs: {choice.name}"
    if choice.comparison is None:
        return nothing(title, choice.summary())
    reads = choice.reads if choice.reads is not None else 1.0
    costs = [(c.variant.name, choice.comparison.per_commit(c, reads)) for c in choice.comparison.costs]
    frame = pd.DataFrame([(name, c.write, c.read, c.compaction, c.total) for name, c in costs])
    frame.columns = pd.Index(["mode", "write_seconds", "read_seconds", "compaction_seconds", "total_seconds"])
    name, least = min(costs, key=lambda pair: pair[1].total)
    sentence = f"At {reads:,.3g} reads per commit {name} costs least: {least.total:.2f} s a commit."
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.5 * len(costs))
        left = [0.0] * len(costs)
        for label, colour, hatch, values in (
            ("writing", BLUE, "", frame["write_seconds"]),
            ("slower reads", ORANGE, "//", frame["read_seconds"]),
            ("compaction", GREEN, "..", frame["compaction_seconds"]),
        ):
            axes.barh(
                range(len(costs)),
                values,
                left=left,
                facecolor=colour,
                hatch=hatch,
                edgecolor=BLACK,
                linewidth=0.6,
                height=0.55,
                label=label,
            )
            left = [a + b for a, b in zip(left, values, strict=True)]
        short = [n.replace("merge-on-read, ", "").replace("position deletes ", "deletes ") for n, _ in costs]
        named_rows(axes, short)
        axes.set_xlabel(f"Seconds per commit at {reads:,.3g} reads per commit")
        legend(axes, columns=3)
    return Chart(figure, title, sentence, frame)
