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
from icekit.report.history.store import HealthRecord
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
    size_grid = tables.file_sizes(facts, thresholds)
    if not size_grid:
        return empty_chart("No data files: nothing to draw.")
    lower_bytes = size_grid["lower_bytes"]
    upper_bytes = size_grid["upper_bytes"]
    file_counts = size_grid["file_count"]
    left_alone_indexes = [
        range_index
        for range_index, is_left_alone in enumerate(size_grid["left_alone"])
        if is_left_alone
    ]
    left_alone_range_text = size_range(
        lower_bytes[left_alone_indexes[0]], upper_bytes[left_alone_indexes[-1]]
    )
    target_bytes = facts.target_bytes
    data_totals = facts.data
    bar_positions = [range_index + 0.5 for range_index in range(len(size_grid))]
    bar_style: dict[str, Any] = {"width": 0.86, "edgecolor": BLACK, "linewidth": 0.6}
    byte_percentages = [100 * (byte_share or 0) for byte_share in size_grid["share_of_bytes"]]
    title = f"Sizes of data files: {facts.name}"
    with canvas(title, 4.6, (2, 1), sharex=True) as (figure, (files_axes, bytes_axes)):
        count_bars = files_axes.bar(bar_positions, file_counts, color=BLUE, **bar_style)
        bytes_axes.bar(bar_positions, byte_percentages, color=ORANGE, hatch="//", **bar_style)
        for axes, axis_label in ((files_axes, "Files"), (bytes_axes, "Bytes (%)")):
            band_label = f"{left_alone_range_text}: left alone by rewrite_data_files"
            axes.axvspan(
                left_alone_indexes[0],
                left_alone_indexes[-1] + 1,
                color=BAND,
                zorder=0,
                label=band_label,
            )
            if target_bytes in lower_bytes:
                draw_limit_line(
                    axes.axvline,
                    lower_bytes.index(target_bytes),
                    f"target {size(target_bytes)}",
                    VERMILLION,
                )
            axes.set_ylabel(axis_label)
            axes.margins(y=0.3)
            set_whole_number_ticks(axes.yaxis)
        add_legend(files_axes, column_count=1)
        count_labels = [f"{file_count:,}" if file_count else "" for file_count in file_counts]
        label_rotation = 90 if len(size_grid) > 12 else 0
        files_axes.bar_label(
            count_bars, count_labels, fontsize=SMALL, padding=2, rotation=label_rotation
        )
        edge_labels = [
            *map(size, lower_bytes),
            "∞" if upper_bytes[-1] is None else size(upper_bytes[-1]),
        ]
        bytes_axes.set_xticks(
            range(len(edge_labels)), edge_labels, rotation=60, ha="right", rotation_mode="anchor"
        )
        bytes_axes.set_xlabel("File size (each bar from one limit up to the next)")
    left_alone_file_share = sum(
        size_grid["share_of_files"][range_index] or 0 for range_index in left_alone_indexes
    )
    left_alone_byte_share = sum(
        size_grid["share_of_bytes"][range_index] or 0 for range_index in left_alone_indexes
    )
    alt_sentence = (
        f"{count(data_totals.file_count, 'data file')} of {facts.name}, "
        f"{size(data_totals.size_in_bytes)} in total, {size(data_totals.mean_bytes or 0)} on "
        f"average (the target is {size(target_bytes)}). No rewrite needed "
        f"({left_alone_range_text}): {percent(left_alone_file_share)} of the files, "
        f"{percent(left_alone_byte_share)} of the bytes."
    )
    return Chart(figure, alt_sentence, size_grid)


def delete_ratio(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
    """Delete records of each kind as a share of data records, in the worst partitions."""
    ratio_grid = tables.delete_ratios(facts)
    if not ratio_grid:
        return empty_chart("No delete files or deletion vectors: nothing to draw.")
    ratio_limit = (thresholds or Thresholds()).delete_ratio
    partition_names = _short_partition_names(ratio_grid["partition"])
    record_counts = ratio_grid["record_count"][:WORST]
    # A partition without data has no ratio: a note replaces its bar.
    delete_bars = [
        Bars(
            kind_label,
            [
                n / record_count if record_count else None
                for n, record_count in zip(ratio_grid[record_column], record_counts, strict=False)
            ],
            color,
            hatch,
        )
        for kind_label, record_column, color, hatch in _DELETES
    ]
    delete_ratios = ratio_grid["deletes_per_record"]
    ratio_texts = list(map(_share_text, delete_ratios[:WORST]))
    title = f"Deleted share of records: {facts.name}"
    height_inches = 1.9 + 0.31 * len(partition_names)
    with canvas(title, height_inches) as (figure, (axes,)):
        draw_limit_line(axes.axvline, ratio_limit, f"threshold {percent(ratio_limit)}")
        draw_bar_rows(
            axes, partition_names, delete_bars, ratio_texts, "Delete records per data record (%)"
        )
        format_ticks(axes.xaxis, lambda share: plain_number(share * 100, 4))
    table_ratio = rollup.delete_ratio(facts)
    over_limit_count = sum(
        deletes_per_record is None or deletes_per_record >= ratio_limit
        for deletes_per_record in delete_ratios
    )
    alt_sentence = (
        f"{count(table_ratio.delete_record_count, 'delete record')} for "
        f"{count(facts.data.record_count, 'data record')} of {facts.name}, "
        f"{_share_text(table_ratio.by_records)}, in {count(len(ratio_grid), 'partition')}; "
        f"{over_limit_count:,} at or over the threshold of {percent(ratio_limit)}; the worst "
        f"is {ratio_grid['partition'][0]} with {ratio_texts[0]}."
    )
    return Chart(figure, alt_sentence, ratio_grid)


def _short_partition_names(partition_names: Sequence[str]) -> list[str]:
    """The worst partitions by the values of their fields, which leaves room for the bars."""
    return [re.sub("[^/=]+=", "", partition_name) for partition_name in partition_names[:WORST]]


def _share_text(ratio: float | None) -> str:
    return "no data" if ratio is None else percent(ratio)


def partitions(facts: TableFacts) -> Chart:
    """Data files of the worst partitions next to the number needed at the target size."""
    partition_grid = tables.worst_partitions(facts, WORST)
    if not partition_grid:
        return empty_chart("No data files: nothing to draw.")
    partition_names = partition_grid["partition"]
    file_counts = partition_grid["file_count"]
    needed_counts = partition_grid["files_needed"]
    target_text = size(facts.target_bytes)
    title = f"Data files by partition: {facts.name}"
    height_inches = 1.9 + 0.31 * len(partition_grid)
    with canvas(title, height_inches) as (figure, (axes,)):
        draw_needed_rows(
            axes,
            _short_partition_names(partition_names),
            "data files",
            file_counts,
            needed_counts,
            target_text,
        )
    partition_groups = facts.of_kind(Kind.DATA)
    needed_file_count = sum(
        expected_files(g.size_in_bytes, facts.target_bytes) for g in partition_groups
    )
    alt_sentence = (
        f"{count(facts.data.file_count, 'data file')} of {facts.name} in "
        f"{count(len(partition_groups), 'partition')}; within these partitions, "
        f"{needed_file_count:,} of {target_text} would be enough. The worst is "
        f"{partition_names[0]} with {count(file_counts[0], 'file')}; {needed_counts[0]:,} would "
        "be enough."
    )
    return Chart(figure, alt_sentence, partition_grid)


def manifests(facts: TableFacts) -> Chart:
    """Manifests next to the number needed at the target size; the sentence says how much they
    overlap by partition field.
    """
    manifest_grid = tables.manifests(facts)
    if not manifest_grid:
        return empty_chart("No manifests: nothing to draw.")
    target_text = size(facts.int_setting("commit.manifest.target-size-bytes"))
    with canvas(f"Manifests: {facts.name}", 1.4 + 0.5 * len(manifest_grid)) as (figure, (axes,)):
        manifest_counts = manifest_grid["manifest_count"]
        needed_counts = manifest_grid["manifests_needed"]
        draw_needed_rows(
            axes, manifest_grid["content"], "manifests", manifest_counts, needed_counts, target_text
        )
    alt_sentences = []
    for content, manifest_count, needed_count, _, mean_bytes, _, mean_entries in manifest_grid.rows:
        alt_sentences.append(
            f"{manifest_count:,} with {content}, {size(mean_bytes)} and {mean_entries:,.1f} "
            f"live entries each on average; {needed_count:,} of {target_text} would be enough"
        )
    alt_sentences += [
        f"on average, a data manifest's range of {o.field} (spec {o.spec_id}) overlaps "
        f"{percent(o.mean_share)} of the others"
        for o in facts.manifests.overlaps
    ]
    return Chart(figure, f"Manifests of {facts.name}: {'; '.join(alt_sentences)}.", manifest_grid)


def commits(facts: TableFacts) -> Chart:
    """Data and delete files that each commit added, and their mean size, over time."""
    adding_commits = [c for c in facts.history.commits if _added_file_count(c)]
    if not adding_commits:
        return empty_chart("No commit states how many files it added: nothing to draw.")
    commit_counts_by_operation = Counter(
        c.operation or "unknown" for c in adding_commits
    ).most_common()
    # A summary adds up the bytes of data files and delete files.
    mean_file_sizes = [
        c.added_bytes / _added_file_count(c) for c in adding_commits if c.added_bytes
    ]
    chart_title = f"Files added by each commit: {facts.name}"
    with canvas(chart_title, 5.2, (1, 1), sharex=True) as (figure, (files_axes, sizes_axes)):
        for operation, commit_count in commit_counts_by_operation:
            plot_color, plot_marker = _MARKS.get(operation, _OTHER)
            marker_style: dict[str, Any] = {"color": plot_color, "alpha": 0.7, "markersize": 7}
            operation_commits = [
                c for c in adding_commits if (c.operation or "unknown") == operation
            ]
            commit_times: Any = [utc_time(c.committed_at_ms) for c in operation_commits]
            legend_label = f"{operation} ({commit_count:,})"
            files_axes.plot(
                commit_times,
                list(map(_added_file_count, operation_commits)),
                plot_marker,
                label=legend_label,
                **marker_style,
            )
            mean_sizes = [
                (c.added_bytes or math.nan) / _added_file_count(c) for c in operation_commits
            ]
            sizes_axes.plot(commit_times, mean_sizes, plot_marker, **marker_style)
        target_label = f"target {size(facts.target_bytes)}"
        draw_limit_line(sizes_axes.axhline, facts.target_bytes, target_label, VERMILLION)
        for axes, format_value, axis_label in (
            (files_axes, "{:,.0f}".format, "Files added (log)"),
            (sizes_axes, size, "Mean size (log)"),
        ):
            # A few ticks at powers of two.
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_locator(LogLocator(2, numticks=6))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.margins(y=0.2)
            format_ticks(axes.yaxis, format_value)
            axes.set_ylabel(axis_label)
            add_legend(axes, column_count=3)
        set_time_axis(sizes_axes, [c.committed_at_ms for c in adding_commits], "Committed at (UTC)")
    median_size_text = size(statistics.median(mean_file_sizes)) if mean_file_sizes else "unknown"
    alt_sentence = (
        f"{count(len(adding_commits), 'commit')} of {facts.name}, "
        f"{time_text(adding_commits[0].committed_at_ms)} to "
        f"{time_text(adding_commits[-1].committed_at_ms)}, added "
        f"{count(sum(map(_added_file_count, adding_commits)), 'file')}, "
        f"{plain_number(statistics.median(map(_added_file_count, adding_commits)), 4)} per commit "
        f"(median); the mean size of an added file is {median_size_text} (median over commits); "
        f"the target is {size(facts.target_bytes)}."
    )
    return Chart(figure, alt_sentence, tables.commits(facts, limit=None))


def _added_file_count(commit: Commit) -> int:
    return (commit.added_data_files or 0) + (commit.added_delete_files or 0)


def candidates(facts: TableFacts, ranked_candidates: Sequence[Candidate], plan: Plan) -> Chart:
    """File opens that a full scan saves, by bytes rewritten, most saved per byte first."""
    if not ranked_candidates:
        return empty_chart("No partition is worth a rewrite under this policy: nothing to draw.")
    cumulative_bytes = [0, *accumulate(c.prediction.bytes_in for c in ranked_candidates)]
    cumulative_opens_saved = [
        0,
        *accumulate(c.prediction.file_opens_saved for c in ranked_candidates),
    ]
    candidates_grid = candidate_grid(facts, ranked_candidates, plan)
    plan_predictions = [
        c.prediction
        for c, is_in_plan in zip(ranked_candidates, candidates_grid["in_plan"], strict=True)
        if is_in_plan
    ]
    plan_total = total_of(plan_predictions)
    plan_rewritten_bytes = plan_total.bytes_in
    plan_opens_saved = plan_total.file_opens_saved
    table_bytes = facts.data.size_in_bytes
    with canvas(f"Savings of a rewrite: {facts.name}", 3.8) as (figure, (axes,)):
        axes.step(cumulative_bytes, cumulative_opens_saved, where="post", color=GREY, linewidth=1.2)
        axes.plot(
            cumulative_bytes[1:],
            cumulative_opens_saved[1:],
            "o",
            color=BLUE,
            markersize=6,
            label=count(len(ranked_candidates), "candidate"),
        )
        if plan_rewritten_bytes:
            plan_label = f"this plan: {size(plan_rewritten_bytes)}"
            axes.plot(
                [plan_rewritten_bytes],
                [plan_opens_saved],
                "D",
                color=VERMILLION,
                markersize=10,
                label=plan_label,
            )
        draw_limit_line(axes.axvline, table_bytes, f"entire table: {size(table_bytes)}", SKY)
        axes.set_xlim(0, max(table_bytes, cumulative_bytes[-1]) * 1.04)
        axes.set_ylim(0, cumulative_opens_saved[-1] * 1.12)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        format_ticks(axes.xaxis, size)
        set_whole_number_ticks(axes.yaxis)
        axes.set_xlabel("Bytes rewritten")
        axes.set_ylabel("File opens saved")
        add_legend(axes, column_count=1)
    alt_sentence = (
        f"{count(len(ranked_candidates), 'candidate')} of {facts.name} would save a full scan "
        f"{count(cumulative_opens_saved[-1], 'file open')} for {size(cumulative_bytes[-1])} "
        f"rewritten; the best, {facts.partition_name(ranked_candidates[0].partitions[0])}, saves "
        f"{cumulative_opens_saved[1]:,} for {size(cumulative_bytes[1])}. The plan takes "
        f"{count(len(plan_predictions), 'candidate')}: "
        f"{percent(plan_opens_saved / max(cumulative_opens_saved[-1], 1))} of the possible "
        f"savings for {percent(plan_rewritten_bytes / max(table_bytes, 1))} of the table's bytes."
    )
    return Chart(figure, alt_sentence, candidates_grid)


def candidate_grid(facts: TableFacts, ranked_candidates: Sequence[Candidate], plan: Plan) -> Grid:
    """Candidates, most file opens saved per byte first."""
    grid_columns = {
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
    candidate_rows = [
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
    return Grid("", grid_columns, candidate_rows)


def trend(table: str, runs: Sequence[HealthRecord], thresholds: Thresholds | None = None) -> Chart:
    """The figure that reaches its threshold first (file size if none does) over the runs, oldest
    first; the sentence says what got worse or better.
    """
    if len(runs) < 2:
        return empty_chart(
            "No earlier run to compare with: icekit report --history FILE keeps each run.",
        )
    comparison = compare(runs, thresholds)
    coming_trend = comparison.trend
    trend_measure = coming_trend.measure if coming_trend else MEASURES[0]
    format_value = trend_measure.unit.write
    threshold_value = trend_measure.threshold_of(runs[-1], thresholds or Thresholds())
    run_times_ms = [run.observed_at_ms for run in runs]
    values_by_time: dict[Any, float] = {
        utc_time(r.observed_at_ms): v for r in runs if (v := trend_measure.value_of(r)) is not None
    }
    with canvas(f"Trend: {table}", 3.6) as (figure, (axes,)):
        axes.plot(
            list(values_by_time),
            list(values_by_time.values()),
            color=BLUE,
            marker="o",
            label=trend_measure.title,
        )
        draw_limit_line(
            axes.axhline, threshold_value, f"threshold {format_value(threshold_value)}", VERMILLION
        )
        if coming_trend:
            threshold_reached_ms = round(
                run_times_ms[-1] + coming_trend.days_to_threshold * 86_400_000
            )
            trend_times: Any = [utc_time(run_times_ms[-1]), utc_time(threshold_reached_ms)]
            trend_values = [
                coming_trend.threshold
                - coming_trend.change_per_day * coming_trend.days_to_threshold,
                coming_trend.threshold,
            ]
            axes.plot(trend_times, trend_values, color=GREY, linestyle=":", label="trend")
            # As far ahead as the runs go back, so that these do not shrink to a point.
            run_times_ms.append(min(threshold_reached_ms, 2 * run_times_ms[-1] - run_times_ms[0]))
        axes.set_ylim(0, 1.15 * max(*values_by_time.values(), threshold_value, 0) or 1)
        format_ticks(axes.yaxis, format_value)
        set_time_axis(axes, run_times_ms, "Observed at (UTC)")
        add_legend(axes, column_count=3)
    alt_sentence = (
        f"{count(len(runs), 'run')} of {table} from {time_text(runs[0].observed_at_ms)} to "
        f"{time_text(runs[-1].observed_at_ms)}; {comparison}."
    )
    grid_columns = {"observed_at": TIME, **{m.title: m.unit for m in MEASURES}, "status": TEXT}
    run_rows = [
        (utc_time(run.observed_at_ms), *(m.value_of(run) for m in MEASURES), run.status)
        for run in reversed(runs)
    ]
    return Chart(figure, alt_sentence, Grid("", grid_columns, run_rows))
