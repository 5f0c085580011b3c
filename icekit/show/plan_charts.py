"""Draw what a plan's bytes buy, and how near past predictions came."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pandas as pd
from matplotlib.ticker import FuncFormatter, MaxNLocator

from icekit.compact.buying import bought
from icekit.compact.calibration import QUANTITIES, Calibration
from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan
from icekit.facts.model import TableFacts
from icekit.show.chart import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Chart, canvas, legend, nothing, styled, whole_numbers
from icekit.show.tables import partition_name
from icekit.units import count, percent, size

_MARKS = dict(zip(QUANTITIES, ("o", "s", "^", "D"), strict=True))
_COLORS = dict(zip(QUANTITIES, (BLUE, ORANGE, GREEN, PURPLE), strict=True))


def candidates(facts: TableFacts, found: Sequence[Candidate], plan: Plan) -> Chart:
    """File opens that a full scan is spared, against the bytes that are rewritten for it, best buys first."""
    title = f"What rewriting buys: {facts.name}"
    if not found:
        return nothing(title, "No partition is worth a rewrite at this policy: nothing to draw.")
    spent = [0, *accumulate(c.bytes_in for c in found)]
    won = [0, *accumulate(c.file_opens_saved for c in found)]
    taken = bought(found, plan)
    total = facts.data.size_in_bytes
    with styled():
        figure, (axes,) = canvas(title, 3.8)
        axes.step(spent, won, where="post", color=GREY, linewidth=1.2)
        axes.plot(spent[1:], won[1:], "o", color=BLUE, markersize=6, label=count(len(found), "candidate"))
        if taken.candidates:
            label = f"this plan: {size(taken.bytes_in)}"
            axes.plot([taken.bytes_in], [taken.file_opens_saved], "D", color=VERMILLION, markersize=10, label=label)
        axes.axvline(total, color=SKY, linestyle="--", linewidth=1.8, label=f"the whole table: {size(total)}")
        axes.set_xlim(0, max(total, spent[-1]) * 1.04)
        axes.set_ylim(0, won[-1] * 1.12)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        whole_numbers(axes.yaxis)
        axes.set_xlabel("Bytes rewritten")
        axes.set_ylabel("File opens saved")
        legend(axes, columns=1)
    best = found[0]
    told = (
        f"{count(len(found), 'candidate')} of {facts.name} would save a full scan {won[-1]:,} file opens for {size(spent[-1])} rewritten; "
        f"the best, {partition_name(facts, best.partitions[0])}, saves {best.file_opens_saved:,} for {size(best.bytes_in)}. "
        f"The plan takes {count(taken.candidates, 'candidate')}: {percent(taken.share_won or 0)} of what can be won for {percent(taken.bytes_in / max(total, 1))} of the table's bytes."
    )
    return Chart(figure, title, told, candidate_table(facts, found, plan))


def candidate_table(facts: TableFacts, found: Sequence[Candidate], plan: Plan) -> pd.DataFrame:
    """Candidates as a table, best win per byte first."""
    chosen = {p for action in plan.actions for p in action.partitions}
    return pd.DataFrame(
        [
            (
                partition_name(facts, c.partitions[0]) + (f" and {len(c.partitions) - 1:,} more" if len(c.partitions) > 1 else ""),
                ", ".join(c.reasons),
                c.files_in,
                c.files_out,
                c.bytes_in,
                c.file_opens_saved,
                chosen.issuperset(c.partitions),
            )
            for c in found
        ],
        columns=["partition", "reasons", "files_in", "files_out", "bytes_in", "file_opens_saved", "in_plan"],
    )


def calibration(found: Calibration) -> Chart:
    """Actual over predicted of each past action, oldest first: 1 is a prediction that came true."""
    title = "Predictions: actual over predicted"
    rows = [row for row in reversed(found.rows) if row.ratio is not None]
    if not rows:
        return nothing(title, "The ledger has no past action to compare with: nothing to draw.")
    actions = list(dict.fromkeys((row.run_id, row.action_id) for row in rows))
    place = {key: i + 1 for i, key in enumerate(actions)}
    with styled():
        figure, (axes,) = canvas(title, 3.6)
        axes.axhspan(0.95, 1.05, color="#D9EFE6", zorder=0, label="within 5 %")
        for quantity in QUANTITIES:
            points = [(place[row.run_id, row.action_id], row.ratio) for row in rows if row.quantity == quantity and row.ratio is not None]
            if points:
                axes.plot(
                    *zip(*points, strict=True), _MARKS[quantity], color=_COLORS[quantity], markersize=7, label=quantity.replace("_", " ")
                )
        axes.set_xlabel("Action, oldest first")
        axes.set_ylabel("Actual / predicted")
        axes.set_ylim(bottom=0)
        axes.margins(y=0.15)
        axes.set_xlim(0.5, len(actions) + 0.5)
        whole_numbers(axes.xaxis)
        if len(actions) < 5:
            axes.set_xticks(range(1, len(actions) + 1))
        legend(axes, columns=3)
    errors = ", ".join(
        f"{a.quantity.replace('_', ' ')} {percent(a.mean_absolute_percentage_error)}"
        for a in found.quantities
        if a.mean_absolute_percentage_error is not None
    )
    return Chart(figure, title, f"Mean error of {count(len(actions), 'past action')}: {errors}.", calibration_table(found))


def calibration_table(found: Calibration) -> pd.DataFrame:
    """Past predictions beside what came, newest first."""
    return pd.DataFrame(
        [(r.table, r.run_id, r.action_id, r.quantity, r.predicted, r.actual, r.ratio) for r in found.rows],
        columns=["table", "run_id", "action_id", "quantity", "predicted", "actual", "actual_over_predicted"],
    )
