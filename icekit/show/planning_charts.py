"""Planning as pictures: manifests that queries open, and what other encodings take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from icekit.show.chart import BLUE, GREEN, GREY, ORANGE, Chart, canvas, legend, named_rows, nothing, percentages, styled, whole_numbers

if TYPE_CHECKING:
    from icekit.tune.planning import Planning

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
