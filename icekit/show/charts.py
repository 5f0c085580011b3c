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

from icekit.common.units import (
    count,
    percent,
    plain_number,
    size,
    size_range,
    time_text,
    utc_time,
)
from icekit.common.view import BYTES, COUNT, FLAG, NAME, TEXT, TIME, Grid
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts import rollup
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import expected_files
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.snapshots import Commit
from icekit.maintain.plan import Plan
from icekit.maintain.planning.candidates import Candidate
from icekit.maintain.prediction import total_of
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
    add_legend,
    canvas,
    draw_bar_rows,
    draw_limit_line,
    draw_needed_rows,
    empty_chart,
    format_ticks,
    set_time_axis,
    set_whole_number_ticks,
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
        return empty_chart("No data files: nothing to draw.")
    lower_bytes = table["lower_bytes"]
    upper_bytes = table["upper_bytes"]
    file_counts = table["file_count"]
    left_alone_rows = [
        row for row, is_left_alone in enumerate(table["left_alone"]) if is_left_alone
    ]
    left_alone_range = size_range(lower_bytes[left_alone_rows[0]], upper_bytes[left_alone_rows[-1]])
    target_bytes = facts.target_bytes
    all_files = facts.data
    bar_positions = [row + 0.5 for row in range(len(table))]
    bar_style: dict[str, Any] = {"width": 0.86, "edgecolor": BLACK, "linewidth": 0.6}
    byte_percentages = [100 * (bytes_axes or 0) for bytes_axes in table["share_of_bytes"]]
    title = f"Sizes of data files: {facts.name}"
    with canvas(title, 4.6, (2, 1), sharex=True) as (figure, (files_axes, bytes_axes)):
        bars = files_axes.bar(bar_positions, file_counts, color=BLUE, **bar_style)
        bytes_axes.bar(bar_positions, byte_percentages, color=ORANGE, hatch="//", **bar_style)
        for axes, label in ((files_axes, "Files"), (bytes_axes, "Bytes (%)")):
            band_label = f"{left_alone_range}: left alone by rewrite_data_files"
            axes.axvspan(
                left_alone_rows[0], left_alone_rows[-1] + 1, color=BAND, zorder=0, label=band_label
            )
            if target_bytes in lower_bytes:
                draw_limit_line(
                    axes.axvline,
                    lower_bytes.index(target_bytes),
                    f"target {size(target_bytes)}",
                    VERMILLION,
                )
            axes.set_ylabel(label)
            axes.margins(y=0.3)
            set_whole_number_ticks(axes.yaxis)
        add_legend(files_axes, columns=1)
        count_labels = [f"{number:,}" if number else "" for number in file_counts]
        rotation = 90 if len(table) > 12 else 0
        files_axes.bar_label(bars, count_labels, fontsize=SMALL, padding=2, rotation=rotation)
        edge_labels = [
            *map(size, lower_bytes),
            "∞" if upper_bytes[-1] is None else size(upper_bytes[-1]),
        ]
        bytes_axes.set_xticks(
            range(len(edge_labels)), edge_labels, rotation=60, ha="right", rotation_mode="anchor"
        )
        bytes_axes.set_xlabel("File size (each bar from one limit up to the next)")
    left_alone_file_share = sum(table["share_of_files"][row] or 0 for row in left_alone_rows)
    left_alone_byte_share = sum(table["share_of_bytes"][row] or 0 for row in left_alone_rows)
    sentence = (
        f"{count(all_files.file_count, 'data file')} of {facts.name}, "
        f"{size(all_files.size_in_bytes)} in total, {size(all_files.mean_bytes or 0)} on average "
        f"(the target is {size(target_bytes)}). No rewrite needed ({left_alone_range}): "
        f"{percent(left_alone_file_share)} of the files, {percent(left_alone_byte_share)} of the "
        "bytes."
    )
    return Chart(figure, sentence, table)


def delete_ratio(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Delete records of each kind as a share of data records, in the worst partitions."""
    table = tables.delete_ratios(facts)
    if not table:
        return empty_chart("No delete files or deletion vectors: nothing to draw.")
    ratio_limit = (thresholds or Thresholds()).delete_ratio
    partition_names = _short_partition_names(table["partition"])
    record_counts = table["record_count"][:WORST]
    # A partition without data has no ratio: a note replaces its bar.
    delete_bars = [
        Bars(
            name,
            [
                n / rows if rows else None
                for n, rows in zip(table[column], record_counts, strict=False)
            ],
            color,
            hatch,
        )
        for name, column, color, hatch in _DELETES
    ]
    delete_ratios = table["deletes_per_record"]
    ratio_texts = list(map(_share_text, delete_ratios[:WORST]))
    title = f"Deleted share of records: {facts.name}"
    height = 1.9 + 0.31 * len(partition_names)
    with canvas(title, height) as (figure, (axes,)):
        draw_limit_line(axes.axvline, ratio_limit, f"threshold {percent(ratio_limit)}")
        draw_bar_rows(
            axes, partition_names, delete_bars, ratio_texts, "Delete records per data record (%)"
        )
        format_ticks(axes.xaxis, lambda share: plain_number(share * 100, 4))
    table_ratio = rollup.delete_ratio(facts)
    partitions_over_limit = sum(ratio is None or ratio >= ratio_limit for ratio in delete_ratios)
    sentence = (
        f"{count(table_ratio.delete_record_count, 'delete record')} for "
        f"{count(facts.data.record_count, 'data record')} of {facts.name}, "
        f"{_share_text(table_ratio.by_records)}, in {count(len(table), 'partition')}; "
        f"{partitions_over_limit:,} at or over the threshold of {percent(ratio_limit)}; the worst "
        f"is {table['partition'][0]} with {ratio_texts[0]}."
    )
    return Chart(figure, sentence, table)


def _short_partition_names(partition_names: Sequence[str]) -> list[str]:
    """The worst partitions by the values of their fields, which leaves room for the bars."""
    return [re.sub("[^/=]+=", "", name) for name in partition_names[:WORST]]


def _share_text(ratio: float | None) -> str:
    return "no data" if ratio is None else percent(ratio)


def partitions(facts: TableFacts) -> Chart:
    """Data files of the worst partitions next to the number needed at the target size."""
    table = tables.worst_partitions(facts, WORST)
    if not table:
        return empty_chart("No data files: nothing to draw.")
    partition_names = table["partition"]
    file_counts = table["file_count"]
    needed_counts = table["files_needed"]
    target_text = size(facts.target_bytes)
    title = f"Data files by partition: {facts.name}"
    height = 1.9 + 0.31 * len(table)
    with canvas(title, height) as (figure, (axes,)):
        draw_needed_rows(
            axes,
            _short_partition_names(partition_names),
            "data files",
            file_counts,
            needed_counts,
            target_text,
        )
    partition_files = facts.of_kind(Kind.DATA)
    needed_total = sum(expected_files(g.size_in_bytes, facts.target_bytes) for g in partition_files)
    sentence = (
        f"{count(facts.data.file_count, 'data file')} of {facts.name} in "
        f"{count(len(partition_files), 'partition')}; within these partitions, {needed_total:,} of "
        f"{target_text} would be enough. The worst is {partition_names[0]} with "
        f"{count(file_counts[0], 'file')}; {needed_counts[0]:,} would be enough."
    )
    return Chart(figure, sentence, table)


def manifests(facts: TableFacts) -> Chart:
    """Manifests next to the number needed at the target size; the sentence says how much they
    overlap by partition field.
    """
    table = tables.manifests(facts)
    if not table:
        return empty_chart("No manifests: nothing to draw.")
    target_text = size(facts.int_setting("commit.manifest.target-size-bytes"))
    with canvas(f"Manifests: {facts.name}", 1.4 + 0.5 * len(table)) as (figure, (axes,)):
        manifest_counts = table["manifest_count"]
        needed_counts = table["manifests_needed"]
        draw_needed_rows(
            axes, table["content"], "manifests", manifest_counts, needed_counts, target_text
        )
    sentences = [
        f"{manifest_count:,} with {content}, {size(mean_bytes)} and {entries_per_manifest:,.1f} "
        f"live entries each on average; {needed_count:,} of {target_text} would be enough"
        for content, manifest_count, needed_count, _, mean_bytes, _, entries_per_manifest in table.rows
    ]
    sentences += [
        f"on average, a data manifest's range of {o.field} (spec {o.spec_id}) overlaps "
        f"{percent(o.mean_share)} of the others"
        for o in facts.manifests.overlaps
    ]
    return Chart(figure, f"Manifests of {facts.name}: {'; '.join(sentences)}.", table)


def commits(facts: TableFacts) -> Chart:
    """Data and delete files that each commit added, and their mean size, over time."""
    adding_commits = [c for c in facts.history.commits if _added_file_count(c)]
    if not adding_commits:
        return empty_chart("No commit states how many files it added: nothing to draw.")
    operation_counts = Counter(c.operation or "unknown" for c in adding_commits).most_common()
    # A summary adds up the bytes of data files and delete files.
    mean_file_sizes = [
        c.added_bytes / _added_file_count(c) for c in adding_commits if c.added_bytes
    ]
    title = f"Files added by each commit: {facts.name}"
    with canvas(title, 5.2, (1, 1), sharex=True) as (figure, (files_axes, sizes_axes)):
        for operation, commit_count in operation_counts:
            color, marker = _MARKS.get(operation, _OTHER)
            marker_style: dict[str, Any] = {"color": color, "alpha": 0.7, "markersize": 7}
            operation_commits = [
                c for c in adding_commits if (c.operation or "unknown") == operation
            ]
            commit_times: Any = [utc_time(c.committed_at_ms) for c in operation_commits]
            label = f"{operation} ({commit_count:,})"
            files_axes.plot(
                commit_times,
                list(map(_added_file_count, operation_commits)),
                marker,
                label=label,
                **marker_style,
            )
            mean_sizes = [
                (c.added_bytes or math.nan) / _added_file_count(c) for c in operation_commits
            ]
            sizes_axes.plot(commit_times, mean_sizes, marker, **marker_style)
        target_label = f"target {size(facts.target_bytes)}"
        draw_limit_line(sizes_axes.axhline, facts.target_bytes, target_label, VERMILLION)
        for axes, format_value, title in (
            (files_axes, "{:,.0f}".format, "Files added (log)"),
            (sizes_axes, size, "Mean size (log)"),
        ):
            # A few ticks at powers of two.
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_locator(LogLocator(2, numticks=6))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.margins(y=0.2)
            format_ticks(axes.yaxis, format_value)
            axes.set_ylabel(title)
            add_legend(axes, columns=3)
        set_time_axis(sizes_axes, [c.committed_at_ms for c in adding_commits], "Committed at (UTC)")
    mean_text = size(statistics.median(mean_file_sizes)) if mean_file_sizes else "unknown"
    sentence = (
        f"{count(len(adding_commits), 'commit')} of {facts.name}, "
        f"{time_text(adding_commits[0].committed_at_ms)} to "
        f"{time_text(adding_commits[-1].committed_at_ms)}, added "
        f"{count(sum(map(_added_file_count, adding_commits)), 'file')}, "
        f"{plain_number(statistics.median(map(_added_file_count, adding_commits)), 4)} per commit "
        f"(median); the mean size of an added file is {mean_text} (median over commits); the "
        f"target is {size(facts.target_bytes)}."
    )
    return Chart(figure, sentence, tables.commits(facts, limit=None))


def _added_file_count(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def candidates(facts: TableFacts, ranked_candidates: Sequence[Candidate], plan: Plan) -> Chart:
    """File opens that a full scan saves, by bytes rewritten, most saved per byte first."""
    if not ranked_candidates:
        return empty_chart("No partition is worth a rewrite under this policy: nothing to draw.")
    rewritten_bytes = [0, *accumulate(c.prediction.bytes_in for c in ranked_candidates)]
    opens_saved = [0, *accumulate(c.prediction.file_opens_saved for c in ranked_candidates)]
    grid = candidate_grid(facts, ranked_candidates, plan)
    plan_predictions = [
        c.prediction
        for c, is_chosen in zip(ranked_candidates, grid["in_plan"], strict=True)
        if is_chosen
    ]
    plan_total = total_of(plan_predictions)
    plan_bytes = plan_total.bytes_in
    plan_opens_saved = plan_total.file_opens_saved
    table_bytes = facts.data.size_in_bytes
    with canvas(f"Savings of a rewrite: {facts.name}", 3.8) as (figure, (axes,)):
        axes.step(rewritten_bytes, opens_saved, where="post", color=GREY, linewidth=1.2)
        axes.plot(
            rewritten_bytes[1:],
            opens_saved[1:],
            "o",
            color=BLUE,
            markersize=6,
            label=count(len(ranked_candidates), "candidate"),
        )
        if plan_bytes:
            label = f"this plan: {size(plan_bytes)}"
            axes.plot(
                [plan_bytes], [plan_opens_saved], "D", color=VERMILLION, markersize=10, label=label
            )
        draw_limit_line(axes.axvline, table_bytes, f"entire table: {size(table_bytes)}", SKY)
        axes.set_xlim(0, max(table_bytes, rewritten_bytes[-1]) * 1.04)
        axes.set_ylim(0, opens_saved[-1] * 1.12)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        format_ticks(axes.xaxis, size)
        set_whole_number_ticks(axes.yaxis)
        axes.set_xlabel("Bytes rewritten")
        axes.set_ylabel("File opens saved")
        add_legend(axes, columns=1)
    sentence = (
        f"{count(len(ranked_candidates), 'candidate')} of {facts.name} would save a full scan "
        f"{count(opens_saved[-1], 'file open')} for {size(rewritten_bytes[-1])} rewritten; the "
        f"best, {facts.partition_name(ranked_candidates[0].partitions[0])}, saves "
        f"{opens_saved[1]:,} for {size(rewritten_bytes[1])}. The plan takes "
        f"{count(len(plan_predictions), 'candidate')}: "
        f"{percent(plan_opens_saved / max(opens_saved[-1], 1))} of the possible savings for "
        f"{percent(plan_bytes / max(table_bytes, 1))} of the table's bytes."
    )
    return Chart(figure, sentence, grid)


def candidate_grid(facts: TableFacts, ranked_candidates: Sequence[Candidate], plan: Plan) -> Grid:
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
    plan_partitions = {p for action in plan.actions for p in action.partitions}
    rows = [
        (
            facts.partition_name(c.partitions[0]),
            len(c.partitions),
            ", ".join(c.reasons),
            c.prediction.files_in,
            c.prediction.files_out,
            c.prediction.bytes_in,
            c.prediction.file_opens_saved,
            plan_partitions.issuperset(c.partitions),
        )
        for c in ranked_candidates
    ]
    return Grid("", columns, rows)


def trend(table: str, runs: Sequence[Health], thresholds: Thresholds | None = None) -> Chart:
    """The figure that reaches its threshold first (file size if none does) over the runs, oldest
    first; the sentence says what got worse or better.
    """
    if len(runs) < 2:
        return empty_chart(
            "No earlier run to compare with: icekit report --history FILE keeps each run.",
        )
    comparison = compare(runs, thresholds)
    coming_trend = comparison.trend
    measure = coming_trend.measure if coming_trend else MEASURES[0]
    format_value = measure.unit.write
    threshold = measure.limit(runs[-1], thresholds or Thresholds())
    run_times_ms = [run.observed_at_ms for run in runs]
    values_by_time: dict[Any, float] = {
        utc_time(r.observed_at_ms): v for r in runs if (v := measure.value(r)) is not None
    }
    with canvas(f"Trend: {table}", 3.6) as (figure, (axes,)):
        axes.plot(
            list(values_by_time),
            list(values_by_time.values()),
            color=BLUE,
            marker="o",
            label=measure.title,
        )
        draw_limit_line(axes.axhline, threshold, f"threshold {format_value(threshold)}", VERMILLION)
        if coming_trend:
            reached_ms = round(run_times_ms[-1] + coming_trend.days * 86_400_000)
            trend_times: Any = [utc_time(run_times_ms[-1]), utc_time(reached_ms)]
            trend_values = [
                coming_trend.limit - coming_trend.per_day * coming_trend.days,
                coming_trend.limit,
            ]
            axes.plot(trend_times, trend_values, color=GREY, linestyle=":", label="trend")
            # As far ahead as the runs go back, so that these do not shrink to a point.
            run_times_ms.append(min(reached_ms, 2 * run_times_ms[-1] - run_times_ms[0]))
        axes.set_ylim(0, 1.15 * max(*values_by_time.values(), threshold, 0) or 1)
        format_ticks(axes.yaxis, format_value)
        set_time_axis(axes, run_times_ms, "Observed at (UTC)")
        add_legend(axes, columns=3)
    sentence = (
        f"{count(len(runs), 'run')} of {table} from {time_text(runs[0].observed_at_ms)} to "
        f"{time_text(runs[-1].observed_at_ms)}; {comparison}."
    )
    columns = {"observed_at": TIME, **{m.title: m.unit for m in MEASURES}, "status": TEXT}
    rows = [
        (utc_time(run.observed_at_ms), *(m.value(run) for m in MEASURES), run.status)
        for run in reversed(runs)
    ]
    return Chart(figure, sentence, Grid("", columns, rows))
