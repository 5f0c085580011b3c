"""What write modes cost, as pictures and tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.ticker import FuncFormatter

from icekit.show.chart import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILLION, Chart, canvas, legend, named_rows, nothing, styled
from icekit.tune.write_mode.model import even_sentence, steps

if TYPE_CHECKING:
    from icekit.tune.write_mode.result import WriteModeChoice

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
