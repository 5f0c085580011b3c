"""File sizes as pictures: what the next writes are, before and after, and the files that each mode makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from icekit.show.chart import BLACK, BLUE, GREY, ORANGE, VERMILLION, Chart, canvas, legend, named_rows, nothing, styled, whole_numbers
from icekit.tune.advisory_size.advise import Step
from icekit.tune.advisory_size.written import Written
from icekit.tune.file_sizes_result import made
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.file_sizes_result import FileSizes

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


def _commits(answer: FileSizes) -> list[tuple[str, Step]]:
    found: list[tuple[str, Step]] = []
    if answer.next_before is not None:
        found.append(("usual", Step("as it is", None, answer.next_before)))
        if answer.next_after is not None and answer.next_after is not answer.next_before:
            found.append(("usual", Step("as advised", None, answer.next_after)))
    if answer.size_trial is not None:
        found.append(("large", Step("as it is", None, answer.size_trial.before)))
        candidate, chosen = answer.size_trial.chosen
        if chosen is not answer.size_trial.before:
            found.append(("large", Step("as advised", candidate.size_in_bytes if candidate else None, chosen)))
    return found
