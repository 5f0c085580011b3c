"""Draw a table's files (sizes, deletes, partitions) and the savings of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from matplotlib.ticker import MaxNLocator

from icekit.answer.grid import BYTES, COUNT, FLAG, NAME, TEXT, Grid
from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan
from icekit.compact.plan import covered, sums
from icekit.diagnose.findings import Thresholds
from icekit.facts import rollup
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.rollup import DeleteRatio, expected_files
from icekit.show import tables
from icekit.show.chart import (
    BAND,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    SMALL,
    VERMILLION,
    Bars,
    Chart,
    canvas,
    draw_bars,
    legend,
    limit_line,
    needed_rows,
    note,
    nothing,
    partition_rows,
    percentages,
    styled,
    whole_numbers,
    written,
)
from icekit.show.history_charts import commits, manifests
from icekit.show.tables import left_alone_sizes, target_of
from icekit.units import count, percent, size, size_range

__all__ = ["Chart", "commits", "delete_ratio", "file_sizes", "manifests", "partitions"]


WORST = 15

_NOUNS = {
    Kind.DATA: "data file",
    Kind.POSITION_DELETES: "position delete file",
    Kind.EQUALITY_DELETES: "equality delete file",
    Kind.DELETION_VECTORS: "deletion vector",
}
_REWRITES = {
    Kind.DATA: "rewrite_data_files",
    Kind.POSITION_DELETES: "rewrite_position_delete_files",
}


def file_sizes(
    facts: TableFacts, kind: Kind = Kind.DATA, thresholds: Thresholds | None = None
) -> Chart:
    """Number of files and share of bytes by file size, and the sizes that a rewrite leaves alone
    (under ``thresholds``, if given).
    """
    title = f"Sizes of {_NOUNS[kind]}s: {facts.name}"
    table = tables.file_sizes(facts, kind, thresholds)
    if not table:
        return nothing(title, f"No {_NOUNS[kind]}s: nothing to draw.")
    lowers, counts, last = table["lower_bytes"], table["file_count"], table["upper_bytes"][-1]
    inside = [row for row, is_left_alone in enumerate(table["left_alone"]) if is_left_alone]
    band, target = left_alone_sizes(facts, kind, thresholds), target_of(facts, kind)
    places = [row + 0.5 for row in range(len(table))]
    looks: dict[str, Any] = {"width": 0.86, "edgecolor": BLACK, "linewidth": 0.6}
    crowded = len(table) > 12
    with styled():
        figure, (files, share) = canvas(title, 4.6, (2, 1), sharex=True)
        for axes in (files, share):
            if band is not None:
                label = f"{size_range(*band)}: left alone by {_REWRITES[kind]}"
                axes.axvspan(inside[0], inside[-1] + 1, color=BAND, zorder=0, label=label)
            if target is not None and target in lowers:
                limit_line(axes.axvline, lowers.index(target), f"target {size(target)}", VERMILLION)
        if band is not None:
            legend(files, columns=1)
        drawn = files.bar(places, counts, color=BLUE, **looks)
        labels = [f"{number:,}" if number else "" for number in counts]
        files.bar_label(drawn, labels, fontsize=SMALL, padding=2, rotation=90 if crowded else 0)
        files.set_ylabel("Files")
        files.margins(y=0.3 if crowded else 0.16)
        whole_numbers(files.yaxis)
        shares = [value or 0 for value in table["share_of_bytes"]]
        share.bar(places, shares, color=ORANGE, hatch="//", **looks)
        share.set_ylabel("Bytes (%)")
        percentages(share.yaxis)
        share.margins(y=0.15)
        names = [*map(size, lowers), "∞" if last is None else size(last)]
        share.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
        share.set_xlabel("File size (each bar from one limit up to the next)")
    total = facts.total(kind)
    most = max(counts)
    sentence = (
        f"{count(total.file_count, _NOUNS[kind])} of {facts.name}, {size(total.size_in_bytes)} in "
        f"total, {size(total.mean_bytes or 0)} on average"
    )
    sentence += f" (the target is {size(target)})" if target is not None else ""
    sentence += (
        f"; the largest group, {count(most, 'file')}, is {table['size'][counts.index(most)]}"
    )
    if band is not None:
        sentence += (
            f". {_REWRITES[kind]} leaves alone {size_range(*band)}: "
            f"{percent(sum(table['share_of_files'][row] for row in inside))} of the files with "
            f"{percent(sum(shares[row] for row in inside))} of the bytes"
        )
    return Chart(figure, title, f"{sentence}.", table)


def delete_ratio(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Delete records of each kind as a share of data records, in the worst partitions."""
    title = f"Deleted share of records: {facts.name}"
    ratios = rollup.delete_ratios(facts)
    if not ratios:
        return nothing(title, "No delete files or deletion vectors: nothing to draw.")
    limit = (thresholds or Thresholds()).delete_ratio
    worst = ratios[:WORST]
    counted = (
        ("position deletes", BLUE, "", [r.position_delete_record_count for r in worst]),
        ("equality deletes", ORANGE, "//", [r.equality_delete_record_count for r in worst]),
        ("deletion vectors", GREEN, "..", [r.deletion_vector_record_count for r in worst]),
    )
    # A partition without data has no ratio: a note replaces its bar.
    kinds = [
        Bars(
            name,
            [
                n / r.data_record_count if r.data_record_count else None
                for n, r in zip(records, worst, strict=True)
            ],
            color,
            hatch,
        )
        for name, color, hatch, records in counted
    ]
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.31 * len(worst))
        draw_bars(axes, [""] * len(worst), kinds)
        limit_line(axes.axvline, limit, f"threshold {percent(limit)}")
        for row, ratio in enumerate(worst):
            note(axes, _share(ratio), sum(kind.values[row] or 0.0 for kind in kinds), row)
        partition_rows(axes, [facts.partition_name(r.partition) for r in worst])
        percentages(axes.xaxis)
        axes.set_xlabel("Delete records per data record (%)")
        legend(axes)
    return Chart(figure, title, _deletes_told(facts, ratios, limit), tables.delete_ratios(facts))


def _share(ratio: DeleteRatio) -> str:
    return (
        percent(ratio.by_records)
        if ratio.by_records is not None
        else f"no data, {count(ratio.delete_record_count, 'delete record')}"
    )


def _deletes_told(facts: TableFacts, ratios: Sequence[DeleteRatio], limit: float) -> str:
    whole = rollup.delete_ratio(facts)
    kinds = (
        (whole.position_delete_record_count, "by position"),
        (whole.equality_delete_record_count, "by equality"),
        (whole.deletion_vector_record_count, "in deletion vectors"),
    )
    parts = ", ".join(f"{n:,} {how}" for n, how in kinds if n)
    over = sum(r.by_records is None or r.by_records >= limit for r in ratios)
    worst = f"{facts.partition_name(ratios[0].partition)} with {_share(ratios[0])}"
    return (
        f"{count(whole.delete_record_count, 'delete record')} ({parts}) for "
        f"{count(whole.data_record_count, 'data record')} of {facts.name}"
        + (f", {percent(whole.by_records)}" if whole.by_records is not None else "")
        + f", in {count(len(ratios), 'partition')}; {over:,} at or over the threshold of "
        f"{percent(limit)}; the worst is {worst}."
    )


def partitions(facts: TableFacts) -> Chart:
    """Data files of the worst partitions next to the number needed at the target size."""
    title = f"Data files by partition: {facts.name}"
    groups = rollup.worst_partitions(facts, WORST)
    if not groups:
        return nothing(title, "No data files: nothing to draw.")
    files = [g.file_count for g in groups]
    needed = [expected_files(g.size_in_bytes, facts.target_bytes) for g in groups]
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.31 * len(groups))
        needed_rows(
            axes,
            [""] * len(groups),
            Bars("data files", files, BLUE),
            needed,
            size(facts.target_bytes),
        )
        partition_rows(axes, [facts.partition_name(g.partition) for g in groups])
    everywhere = facts.of_kind(Kind.DATA)
    enough = sum(expected_files(g.size_in_bytes, facts.target_bytes) for g in everywhere)
    sentence = (
        f"{count(facts.data.file_count, 'data file')} of {facts.name} in "
        f"{count(len(everywhere), 'partition')}; within these partitions, {enough:,} of "
        f"{size(facts.target_bytes)} would be enough. The worst is "
        f"{facts.partition_name(groups[0].partition)} with {count(files[0], 'file')}; "
        f"{needed[0]:,} would be enough."
    )
    return Chart(figure, title, sentence, tables.worst_partitions(facts, WORST))


def candidates(facts: TableFacts, ranked: Sequence[Candidate], plan: Plan) -> Chart:
    """File opens that a full scan saves, by bytes rewritten, most saved per byte first."""
    title = f"Savings of a rewrite: {facts.name}"
    if not ranked:
        return nothing(title, "No partition is worth a rewrite under this policy: nothing to draw.")
    spent = [0, *accumulate(c.bytes_in for c in ranked)]
    won = [0, *accumulate(c.file_opens_saved for c in ranked)]
    chosen = covered(ranked, plan)
    taken, _, saved = sums(chosen)
    total = facts.data.size_in_bytes
    with styled():
        figure, (axes,) = canvas(title, 3.8)
        axes.step(spent, won, where="post", color=GREY, linewidth=1.2)
        axes.plot(
            spent[1:], won[1:], "o", color=BLUE, markersize=6, label=count(len(ranked), "candidate")
        )
        if taken:
            label = f"this plan: {size(taken)}"
            axes.plot([taken], [saved], "D", color=VERMILLION, markersize=10, label=label)
        limit_line(axes.axvline, total, f"entire table: {size(total)}", SKY)
        axes.set_xlim(0, max(total, spent[-1]) * 1.04)
        axes.set_ylim(0, won[-1] * 1.12)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        written(axes.xaxis, size)
        whole_numbers(axes.yaxis)
        axes.set_xlabel("Bytes rewritten")
        axes.set_ylabel("File opens saved")
        legend(axes, columns=1)
    best = ranked[0]
    sentence = (
        f"{count(len(ranked), 'candidate')} of {facts.name} would save a full scan "
        f"{count(won[-1], 'file open')} for {size(spent[-1])} rewritten; the best, "
        f"{facts.partition_name(best.partitions[0])}, saves {best.file_opens_saved:,} for "
        f"{size(best.bytes_in)}. The plan takes {count(len(chosen), 'candidate')}: "
        f"{percent(saved / max(won[-1], 1))} of the possible savings for "
        f"{percent(taken / max(total, 1))} of the table's bytes."
    )
    return Chart(figure, title, sentence, candidate_grid(facts, ranked, plan))


def candidate_grid(facts: TableFacts, ranked: Sequence[Candidate], plan: Plan) -> Grid:
    """Candidates, most file opens saved per byte first."""
    columns = {
        "partition": NAME,
        "partitions": COUNT,
        "reasons": TEXT("because"),
        "files_in": COUNT,
        "files_out": COUNT,
        "bytes_in": BYTES("bytes to rewrite"),
        "file_opens_saved": COUNT,
        "in_plan": FLAG,
    }
    chosen = {p for action in plan.actions for p in action.partitions}
    rows = [
        (
            facts.partition_name(c.partitions[0]),
            len(c.partitions),
            ", ".join(c.reasons),
            c.files_in,
            c.files_out,
            c.bytes_in,
            c.file_opens_saved,
            chosen.issuperset(c.partitions),
        )
        for c in ranked
    ]
    return Grid("", columns, rows)
