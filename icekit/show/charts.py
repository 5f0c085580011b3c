"""Draw a table's files (sizes, deletes, partitions), manifests and commits, the savings of a plan,
and how the table's health changed from run to run.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from icekit.common.units import at, count, moment, percent, plain, size, size_range
from icekit.common.view import BYTES, COUNT, FLAG, NAME, TEXT, TIME, Grid
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts import rollup
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import expected_files
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.snapshots import Commit
from icekit.maintain.candidates import Candidate
from icekit.maintain.model import Plan, total_of
from icekit.report.history.store import Health
from icekit.report.history.trend import MEASURES, compare
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
    bar_rows,
    canvas,
    legend,
    limit_line,
    needed_rows,
    nothing,
    time_axis,
    whole_numbers,
    written,
)

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
    lowers = table["lower_bytes"]
    uppers = table["upper_bytes"]
    counts = table["file_count"]
    inside = [row for row, is_left_alone in enumerate(table["left_alone"]) if is_left_alone]
    band = size_range(lowers[inside[0]], uppers[inside[-1]])
    target = facts.target_bytes
    total = facts.data
    rows = [row + 0.5 for row in range(len(table))]
    looks: dict[str, Any] = {"width": 0.86, "edgecolor": BLACK, "linewidth": 0.6}
    percentages = [100 * (share or 0) for share in table["share_of_bytes"]]
    title = f"Sizes of data files: {facts.name}"
    with canvas(title, 4.6, (2, 1), sharex=True) as (figure, (files, share)):
        bars = files.bar(rows, counts, color=BLUE, **looks)
        share.bar(rows, percentages, color=ORANGE, hatch="//", **looks)
        for axes, label in ((files, "Files"), (share, "Bytes (%)")):
            left_alone = f"{band}: left alone by rewrite_data_files"
            axes.axvspan(inside[0], inside[-1] + 1, color=BAND, zorder=0, label=left_alone)
            if target in lowers:
                limit_line(axes.axvline, lowers.index(target), f"target {size(target)}", VERMILLION)
            axes.set_ylabel(label)
            axes.margins(y=0.3)
            whole_numbers(axes.yaxis)
        legend(files, columns=1)
        labels = [f"{number:,}" if number else "" for number in counts]
        rotation = 90 if len(table) > 12 else 0
        files.bar_label(bars, labels, fontsize=SMALL, padding=2, rotation=rotation)
        names = [*map(size, lowers), "∞" if uppers[-1] is None else size(uppers[-1])]
        share.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
        share.set_xlabel("File size (each bar from one limit up to the next)")
    of_files = sum(table["share_of_files"][row] or 0 for row in inside)
    of_bytes = sum(table["share_of_bytes"][row] or 0 for row in inside)
    sentence = (
        f"{count(total.file_count, 'data file')} of {facts.name}, {size(total.size_in_bytes)} in "
        f"total, {size(total.mean_bytes or 0)} on average (the target is {size(target)}). "
        f"No rewrite needed ({band}): {percent(of_files)} of the files, "
        f"{percent(of_bytes)} of the bytes."
    )
    return Chart(figure, sentence, table)


def delete_ratio(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Delete records of each kind as a share of data records, in the worst partitions."""
    table = tables.delete_ratios(facts)
    if not table:
        return nothing("No delete files or deletion vectors: nothing to draw.")
    limit = (thresholds or Thresholds()).delete_ratio
    names = _short(table["partition"])
    records = table["record_count"][:WORST]
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
    ratios = table["deletes_per_record"]
    notes = list(map(_share, ratios[:WORST]))
    title = f"Deleted share of records: {facts.name}"
    height = 1.9 + 0.31 * len(names)
    with canvas(title, height) as (figure, (axes,)):
        limit_line(axes.axvline, limit, f"threshold {percent(limit)}")
        bar_rows(axes, names, kinds, notes, "Delete records per data record (%)")
        written(axes.xaxis, lambda share: plain(share * 100, 4))
    whole = rollup.delete_ratio(facts)
    over_count = sum(ratio is None or ratio >= limit for ratio in ratios)
    sentence = (
        f"{count(whole.delete_record_count, 'delete record')} for "
        f"{count(facts.data.record_count, 'data record')} of {facts.name}, "
        f"{_share(whole.by_records)}, in {count(len(table), 'partition')}; {over_count:,} at or over the "
        f"threshold of {percent(limit)}; the worst is {table['partition'][0]} with {notes[0]}."
    )
    return Chart(figure, sentence, table)


def _short(partitions: Sequence[str]) -> list[str]:
    """The worst partitions by the values of their fields, which leaves room for the bars."""
    return [re.sub("[^/=]+=", "", name) for name in partitions[:WORST]]


def _share(ratio: float | None) -> str:
    return "no data" if ratio is None else percent(ratio)


def partitions(facts: TableFacts) -> Chart:
    """Data files of the worst partitions next to the number needed at the target size."""
    table = tables.worst_partitions(facts, WORST)
    if not table:
        return nothing("No data files: nothing to draw.")
    names = table["partition"]
    files = table["file_count"]
    needed = table["files_needed"]
    target = size(facts.target_bytes)
    title = f"Data files by partition: {facts.name}"
    height = 1.9 + 0.31 * len(table)
    with canvas(title, height) as (figure, (axes,)):
        needed_rows(axes, _short(names), "data files", files, needed, target)
    everywhere = facts.of_kind(Kind.DATA)
    enough = sum(expected_files(g.size_in_bytes, facts.target_bytes) for g in everywhere)
    sentence = (
        f"{count(facts.data.file_count, 'data file')} of {facts.name} in "
        f"{count(len(everywhere), 'partition')}; within these partitions, {enough:,} of {target} "
        f"would be enough. The worst is {names[0]} with {count(files[0], 'file')}; {needed[0]:,} "
        "would be enough."
    )
    return Chart(figure, sentence, table)


def manifests(facts: TableFacts) -> Chart:
    """Manifests next to the number needed at the target size; the sentence says how much they
    overlap by partition field.
    """
    table = tables.manifests(facts)
    if not table:
        return nothing("No manifests: nothing to draw.")
    target = size(facts.int_setting("commit.manifest.target-size-bytes"))
    with canvas(f"Manifests: {facts.name}", 1.4 + 0.5 * len(table)) as (figure, (axes,)):
        existing = table["manifest_count"]
        needed = table["manifests_needed"]
        needed_rows(axes, table["content"], "manifests", existing, needed, target)
    parts = [
        f"{number:,} with {content}, {size(mean)} and {entries:,.1f} live entries each on "
        f"average; {needed:,} of {target} would be enough"
        for content, number, needed, _, mean, _, entries in table.rows
    ]
    parts += [
        f"on average, a data manifest's range of {o.field} (spec {o.spec_id}) overlaps "
        f"{percent(o.mean_share)} of the others"
        for o in facts.manifests.overlaps
    ]
    return Chart(figure, f"Manifests of {facts.name}: {'; '.join(parts)}.", table)


def commits(facts: TableFacts) -> Chart:
    """Data and delete files that each commit added, and their mean size, over time."""
    adding = [c for c in facts.history.commits if _added(c)]
    if not adding:
        return nothing("No commit states how many files it added: nothing to draw.")
    operations = Counter(c.operation or "unknown" for c in adding).most_common()
    # A summary adds up the bytes of data files and delete files.
    means = [c.added_bytes / _added(c) for c in adding if c.added_bytes]
    title = f"Files added by each commit: {facts.name}"
    with canvas(title, 5.2, (1, 1), sharex=True) as (figure, (files, sizes)):
        for operation, times in operations:
            color, marker = _MARKS.get(operation, _OTHER)
            looks: dict[str, Any] = {"color": color, "alpha": 0.7, "markersize": 7}
            mine = [c for c in adding if (c.operation or "unknown") == operation]
            moments: Any = [at(c.committed_at_ms) for c in mine]
            label = f"{operation} ({times:,})"
            files.plot(moments, list(map(_added, mine)), marker, label=label, **looks)
            drawn = [(c.added_bytes or math.nan) / _added(c) for c in mine]
            sizes.plot(moments, drawn, marker, **looks)
        target = f"target {size(facts.target_bytes)}"
        limit_line(sizes.axhline, facts.target_bytes, target, VERMILLION)
        for axes, write, title in (
            (files, "{:,.0f}".format, "Files added (log)"),
            (sizes, size, "Mean size (log)"),
        ):
            # A few ticks at powers of two.
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_locator(LogLocator(2, numticks=6))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.margins(y=0.2)
            written(axes.yaxis, write)
            axes.set_ylabel(title)
            legend(axes, columns=3)
        time_axis(sizes, [c.committed_at_ms for c in adding], "Committed at (UTC)")
    mean = size(statistics.median(means)) if means else "unknown"
    sentence = (
        f"{count(len(adding), 'commit')} of {facts.name}, {moment(adding[0].committed_at_ms)} to "
        f"{moment(adding[-1].committed_at_ms)}, added {count(sum(map(_added, adding)), 'file')}, "
        f"{plain(statistics.median(map(_added, adding)), 4)} per commit (median); the mean size of "
        f"an added file is {mean} (median over commits); the target is {size(facts.target_bytes)}."
    )
    return Chart(figure, sentence, tables.commits(facts, limit=None))


def _added(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def candidates(facts: TableFacts, ranked: Sequence[Candidate], plan: Plan) -> Chart:
    """File opens that a full scan saves, by bytes rewritten, most saved per byte first."""
    if not ranked:
        return nothing("No partition is worth a rewrite under this policy: nothing to draw.")
    spent = [0, *accumulate(c.prediction.bytes_in for c in ranked)]
    won = [0, *accumulate(c.prediction.file_opens_saved for c in ranked)]
    grid = candidate_grid(facts, ranked, plan)
    chosen_candidates = [
        c.prediction for c, is_chosen in zip(ranked, grid["in_plan"], strict=True) if is_chosen
    ]
    rewritten = total_of(chosen_candidates)
    bytes_taken = rewritten.bytes_in
    saved = rewritten.file_opens_saved
    total = facts.data.size_in_bytes
    with canvas(f"Savings of a rewrite: {facts.name}", 3.8) as (figure, (axes,)):
        axes.step(spent, won, where="post", color=GREY, linewidth=1.2)
        axes.plot(
            spent[1:], won[1:], "o", color=BLUE, markersize=6, label=count(len(ranked), "candidate")
        )
        if bytes_taken:
            label = f"this plan: {size(bytes_taken)}"
            axes.plot([bytes_taken], [saved], "D", color=VERMILLION, markersize=10, label=label)
        limit_line(axes.axvline, total, f"entire table: {size(total)}", SKY)
        axes.set_xlim(0, max(total, spent[-1]) * 1.04)
        axes.set_ylim(0, won[-1] * 1.12)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        written(axes.xaxis, size)
        whole_numbers(axes.yaxis)
        axes.set_xlabel("Bytes rewritten")
        axes.set_ylabel("File opens saved")
        legend(axes, columns=1)
    sentence = (
        f"{count(len(ranked), 'candidate')} of {facts.name} would save a full scan "
        f"{count(won[-1], 'file open')} for {size(spent[-1])} rewritten; the best, "
        f"{facts.partition_name(ranked[0].partitions[0])}, saves {won[1]:,} for "
        f"{size(spent[1])}. The plan takes {count(len(chosen_candidates), 'candidate')}: "
        f"{percent(saved / max(won[-1], 1))} of the possible savings for "
        f"{percent(bytes_taken / max(total, 1))} of the table's bytes."
    )
    return Chart(figure, sentence, grid)


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
    chosen_partitions = {p for action in plan.actions for p in action.partitions}
    rows = [
        (
            facts.partition_name(c.partitions[0]),
            len(c.partitions),
            ", ".join(c.reasons),
            c.prediction.files_in,
            c.prediction.files_out,
            c.prediction.bytes_in,
            c.prediction.file_opens_saved,
            chosen_partitions.issuperset(c.partitions),
        )
        for c in ranked
    ]
    return Grid("", columns, rows)


def trend(table: str, runs: Sequence[Health], thresholds: Thresholds | None = None) -> Chart:
    """The figure that reaches its threshold first (file size if none does) over the runs, oldest
    first; the sentence says what got worse or better.
    """
    if len(runs) < 2:
        return nothing(
            "No earlier run to compare with: icekit report --history FILE keeps each run.",
        )
    compared = compare(runs, thresholds)
    coming = compared.trend
    measure = coming.measure if coming else MEASURES[0]
    write = measure.unit.write
    limit = measure.limit(runs[-1], thresholds or Thresholds())
    times = [run.observed_at_ms for run in runs]
    observed: dict[Any, float] = {
        at(r.observed_at_ms): v for r in runs if (v := measure.value(r)) is not None
    }
    with canvas(f"Trend: {table}", 3.6) as (figure, (axes,)):
        axes.plot(
            list(observed), list(observed.values()), color=BLUE, marker="o", label=measure.title
        )
        limit_line(axes.axhline, limit, f"threshold {write(limit)}", VERMILLION)
        if coming:
            reached_ms = round(times[-1] + coming.days * 86_400_000)
            ahead: Any = [at(times[-1]), at(reached_ms)]
            fitted = [coming.limit - coming.per_day * coming.days, coming.limit]
            axes.plot(ahead, fitted, color=GREY, linestyle=":", label="trend")
            # As far ahead as the runs go back, so that these do not shrink to a point.
            times.append(min(reached_ms, 2 * times[-1] - times[0]))
        axes.set_ylim(0, 1.15 * max(*observed.values(), limit, 0) or 1)
        written(axes.yaxis, write)
        time_axis(axes, times, "Observed at (UTC)")
        legend(axes, columns=3)
    sentence = (
        f"{count(len(runs), 'run')} of {table} from {moment(runs[0].observed_at_ms)} to "
        f"{moment(runs[-1].observed_at_ms)}; {compared}."
    )
    columns = {"observed_at": TIME, **{m.title: m.unit for m in MEASURES}, "status": TEXT}
    rows = [
        (at(run.observed_at_ms), *(m.value(run) for m in MEASURES), run.status)
        for run in reversed(runs)
    ]
    return Chart(figure, sentence, Grid("", columns, rows))
