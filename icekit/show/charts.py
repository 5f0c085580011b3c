"""Draw a table's files (sizes, deletes, partitions), manifests and commits, and the savings of a
plan.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from icekit.answer.grid import BYTES, COUNT, FLAG, NAME, TEXT, Grid
from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan
from icekit.compact.plan import covered, sums
from icekit.diagnose.findings import Thresholds
from icekit.facts import rollup
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.rollup import expected_files
from icekit.facts.snapshots import Commit
from icekit.show import tables
from icekit.show.chart import (
    BAND,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
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
    percentages,
    styled,
    time_axis,
    whole_numbers,
    written,
)
from icekit.units import at, count, moment, percent, plain, size, size_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORST = 15

#: The kinds of deletes, each with the column of its records, its color and hatch.
_DELETES = (
    ("position deletes", "position_delete_record_count", BLUE, ""),
    ("equality deletes", "equality_delete_record_count", ORANGE, "//"),
    ("deletion vectors", "dv_record_count", GREEN, ".."),
)
_MARKS = {
    "append": (BLUE, "o"),
    "overwrite": (VERMILLION, "s"),
    "delete": (PURPLE, "v"),
    "replace": (GREEN, "D"),
}
_OTHER = (GREY, "X")


def file_sizes(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Number of data files and share of bytes by file size, and the sizes that a rewrite leaves
    alone (under ``thresholds``, if given).
    """
    table = tables.file_sizes(facts, thresholds)
    if not table:
        return nothing("No data files: nothing to draw.")
    lowers, uppers, counts = table["lower_bytes"], table["upper_bytes"], table["file_count"]
    inside = [row for row, is_left_alone in enumerate(table["left_alone"]) if is_left_alone]
    band = size_range(lowers[inside[0]], uppers[inside[-1]])
    target, shares = facts.target_bytes, [value or 0 for value in table["share_of_bytes"]]
    places = [row + 0.5 for row in range(len(table))]
    looks: dict[str, Any] = {"width": 0.86, "edgecolor": BLACK, "linewidth": 0.6}
    crowded = len(table) > 12
    with styled():
        figure, (files, share) = canvas(
            f"Sizes of data files: {facts.name}", 4.6, (2, 1), sharex=True
        )
        for axes in (files, share):
            label = f"{band}: left alone by rewrite_data_files"
            axes.axvspan(inside[0], inside[-1] + 1, color=BAND, zorder=0, label=label)
            if target in lowers:
                limit_line(axes.axvline, lowers.index(target), f"target {size(target)}", VERMILLION)
        legend(files, columns=1)
        drawn = files.bar(places, counts, color=BLUE, **looks)
        labels = [f"{number:,}" if number else "" for number in counts]
        files.bar_label(drawn, labels, fontsize=SMALL, padding=2, rotation=90 if crowded else 0)
        files.set_ylabel("Files")
        files.margins(y=0.3 if crowded else 0.16)
        whole_numbers(files.yaxis)
        share.bar(places, shares, color=ORANGE, hatch="//", **looks)
        share.set_ylabel("Bytes (%)")
        percentages(share.yaxis)
        share.margins(y=0.15)
        names = [*map(size, lowers), "∞" if uppers[-1] is None else size(uppers[-1])]
        share.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
        share.set_xlabel("File size (each bar from one limit up to the next)")
    total, most = facts.data, max(counts)
    sentence = (
        f"{count(total.file_count, 'data file')} of {facts.name}, {size(total.size_in_bytes)} in "
        f"total, {size(total.mean_bytes or 0)} on average (the target is {size(target)}); the "
        f"largest group, {count(most, 'file')}, is {table['size'][counts.index(most)]}. "
        f"rewrite_data_files leaves alone {band}: "
        f"{percent(sum(table['share_of_files'][row] for row in inside))} of the files with "
        f"{percent(sum(shares[row] for row in inside))} of the bytes."
    )
    return Chart(figure, sentence, table)


def delete_ratio(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Delete records of each kind as a share of data records, in the worst partitions."""
    table = tables.delete_ratios(facts)
    if not table:
        return nothing("No delete files or deletion vectors: nothing to draw.")
    limit = (thresholds or Thresholds()).delete_ratio
    names, records = table["partition"][:WORST], table["record_count"][:WORST]
    # A partition without data has no ratio: a note replaces its bar.
    kinds = [
        Bars(
            name,
            [n / rows if rows else None for n, rows in zip(table[column], records, strict=False)],
            color,
            hatch,
        )
        for name, column, color, hatch in _DELETES
    ]
    shares = [_share(ratio) for ratio in table["deletes_per_record"]]
    with styled():
        figure, (axes,) = canvas(f"Deleted share of records: {facts.name}", 1.9 + 0.31 * len(names))
        draw_bars(axes, names, kinds)
        limit_line(axes.axvline, limit, f"threshold {percent(limit)}")
        for row in range(len(names)):
            note(axes, shares[row], sum(kind.values[row] or 0.0 for kind in kinds), row)
        percentages(axes.xaxis)
        axes.set_xlabel("Delete records per data record (%)")
        legend(axes)
    whole = rollup.delete_ratio(facts)
    over = sum(ratio is None or ratio >= limit for ratio in table["deletes_per_record"])
    counts = ((name, sum(table[column])) for name, column, _, _ in _DELETES)
    listed = ", ".join(f"{number:,} {name}" for name, number in counts if number)
    sentence = (
        f"{count(whole.delete_record_count, 'delete record')} ({listed}) for "
        f"{count(facts.data.record_count, 'data record')} of {facts.name}, "
        f"{_share(whole.by_records)}, in {count(len(table), 'partition')}; {over:,} at or over the "
        f"threshold of {percent(limit)}; the worst is {names[0]} with {shares[0]}."
    )
    return Chart(figure, sentence, table)


def _share(ratio: float | None) -> str:
    return "no data" if ratio is None else percent(ratio)


def partitions(facts: TableFacts) -> Chart:
    """Data files of the worst partitions next to the number needed at the target size."""
    table = tables.worst_partitions(facts, WORST)
    if not table:
        return nothing("No data files: nothing to draw.")
    names, files, needed = table["partition"], table["file_count"], table["files_needed"]
    target = size(facts.target_bytes)
    with styled():
        figure, (axes,) = canvas(f"Data files by partition: {facts.name}", 1.9 + 0.31 * len(table))
        needed_rows(axes, names, Bars("data files", files, BLUE), needed, target)
    everywhere = facts.of_kind(Kind.DATA)
    enough = sum(expected_files(g.size_in_bytes, facts.target_bytes) for g in everywhere)
    sentence = (
        f"{count(facts.data.file_count, 'data file')} of {facts.name} in "
        f"{count(len(everywhere), 'partition')}; within these partitions, {enough:,} of {target} "
        f"would be enough. The worst is {names[0]} with {count(files[0], 'file')}; {needed[0]:,} "
        "would be enough."
    )
    return Chart(figure, sentence, table)


def manifests(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Manifests next to the number needed at the target size, and their overlap by partition
    field.
    """
    table = tables.manifests(facts)
    if not table:
        return nothing("No manifests: nothing to draw.")
    target = size(facts.int_setting("commit.manifest.target-size-bytes"))
    overlaps = {f"{o.field} (spec {o.spec_id})": o.mean_share for o in facts.manifests.overlaps}
    panels = (1.0 + len(table), *([1.0 + len(overlaps)] if overlaps else []))
    with styled():
        figure, (top, *below) = canvas(f"Manifests: {facts.name}", 0.9 + 0.5 * sum(panels), panels)
        existing = Bars("manifests", table["manifest_count"], BLUE)
        needed_rows(top, table["content"], existing, table["manifests_needed"], target)
        for axes in below:
            limit = (thresholds or Thresholds()).overlap_share
            shares = list(overlaps.values())
            draw_bars(axes, list(overlaps), [Bars("overlap", shares, ORANGE, "//")])
            for row, share in enumerate(shares):
                note(axes, percent(share), share, row)
            limit_line(axes.axvline, limit, f"threshold {percent(limit)}")
            axes.set_xlim(0, 1.16)
            percentages(axes.xaxis)
            axes.set_xlabel("Mean share of the other manifests that one overlaps (%)")
            legend(axes)
    parts = [
        f"{number:,} with {content}, {size(mean)} and {entries:,.1f} live entries each on "
        f"average; {needed:,} of {target} would be enough"
        for content, number, needed, _, mean, _, entries in table.rows
    ]
    parts += [
        f"by {name} a data manifest overlaps {percent(share)} of the others"
        for name, share in overlaps.items()
    ]
    return Chart(figure, f"Manifests of {facts.name}: {'; '.join(parts)}.", table)


def commits(facts: TableFacts) -> Chart:
    """Files that each commit added, and their mean size, over time."""
    adding = [c for c in facts.history.commits if _added(c)]
    if not adding:
        return nothing("No commit states how many files it added: nothing to draw.")
    operations = Counter(c.operation or "unknown" for c in adding).most_common()
    # A summary adds up the bytes of data files and delete files.
    means = [c.added_bytes / _added(c) for c in adding if c.added_bytes]
    with styled():
        figure, (files, sizes) = canvas(
            f"Files added by each commit: {facts.name}", 5.2, (1, 1), sharex=True
        )
        for operation, times in operations:
            color, marker = _MARKS.get(operation, _OTHER)
            label = f"{operation} ({times:,})"
            mine = [c for c in adding if (c.operation or "unknown") == operation]
            _points(files, mine, [c.added_data_files for c in mine], color, marker, label)
            _points(
                sizes, mine, [(c.added_bytes or 0) / _added(c) for c in mine], color, marker, ""
            )
        deletes = [c.added_delete_files for c in adding]
        if any(deletes):
            _points(files, adding, deletes, BLACK, "+", "delete files")
        _log_axis(files, "{:,.0f}".format, "Files added (log)")
        limit_line(
            sizes.axhline, facts.target_bytes, f"target {size(facts.target_bytes)}", VERMILLION
        )
        _log_axis(sizes, size, "Mean size (log)")
        time_axis(sizes, [c.committed_at_ms for c in adding], "Committed at (UTC)")
        legend(files, columns=3)
        legend(sizes)
    when = " to ".join(dict.fromkeys(moment(c.committed_at_ms) for c in (adding[0], adding[-1])))
    kinds = ", ".join(f"{times:,} {operation}" for operation, times in operations)
    sentence = (
        f"{count(len(adding), 'commit')} of {facts.name}, {when} ({kinds}), added "
        f"{count(sum(c.added_data_files or 0 for c in adding), 'data file')} and "
        f"{count(sum(c.added_delete_files or 0 for c in adding), 'delete file')}, "
        f"{plain(statistics.median(map(_added, adding)), 4)} per commit (median)"
    )
    if means:
        sentence += (
            f"; the mean size of an added file is {size(statistics.median(means))} (median over "
            f"commits); the target is {size(facts.target_bytes)}"
        )
    return Chart(figure, f"{sentence}.", tables.commits(facts, limit=None))


def _added(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def _points(
    axes: Axes,
    commits: Sequence[Commit],
    values: Sequence[float | None],
    color: str,
    marker: str,
    label: str,
) -> None:
    """A mark for each commit; none where its value is 0 or not known."""
    times: Any = [at(c.committed_at_ms) for c in commits]
    known = [value or math.nan for value in values]
    axes.plot(times, known, marker, color=color, label=label, alpha=0.7, markersize=7)


def _log_axis(axes: Axes, write: Callable[[float], str], label: str) -> None:
    """An axis with ticks at powers of two, a few of them."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(2, numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.2)
    written(axes.yaxis, write)
    axes.set_ylabel(label)


def candidates(facts: TableFacts, ranked: Sequence[Candidate], plan: Plan) -> Chart:
    """File opens that a full scan saves, by bytes rewritten, most saved per byte first."""
    if not ranked:
        return nothing("No partition is worth a rewrite under this policy: nothing to draw.")
    spent = [0, *accumulate(c.bytes_in for c in ranked)]
    won = [0, *accumulate(c.file_opens_saved for c in ranked)]
    chosen = covered(ranked, plan)
    taken, _, saved = sums(chosen)
    total = facts.data.size_in_bytes
    with styled():
        figure, (axes,) = canvas(f"Savings of a rewrite: {facts.name}", 3.8)
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
    return Chart(figure, sentence, candidate_grid(facts, ranked, plan))


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
