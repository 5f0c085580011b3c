"""Check the sizes of data files: one function per finding."""

from typing import Any

from icekit.common.units import count, percent, size
from icekit.health.diagnose.findings import (
    CHOICE,
    Context,
    Finding,
    Severity,
    oversized_part,
    threshold_options,
    undersized_part,
)
from icekit.health.facts.fan_out import RewriteGroup, rewrite_groups
from icekit.health.facts.files import Totals
from icekit.health.facts.rollup import expected_files, open_file_cost, split_bytes
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.metadata import ROW_GROUP, TARGET
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import MOST_PARTITIONS


def small_files(context: Context) -> Finding | None:
    """Partitions where a default rewrite has files to combine.

    A few small files are not a problem: a rewrite would leave them alone, or remove only one or
    two. Files of older specs count where a rewrite puts them into fewer files of the current one
    (:mod:`icekit.health.facts.fan_out`). Source: SizeBasedFileRewritePlanner.
    """
    facts = context.facts
    thresholds = context.thresholds
    combinable_groups: list[tuple[int, RewriteGroup, Totals]] = []
    has_older_spec_leftovers = False
    for rewrite_group in rewrite_groups(facts):
        undersized_groups = [
            undersized_part(group, context.min_file_size) for group in rewrite_group.groups
        ]
        small_totals = Totals.of_groups(undersized_groups)
        small_buckets = [bucket for group in undersized_groups for bucket in group.buckets]
        saved_count = small_totals.file_count - rewrite_group.files_out(
            small_buckets, facts.target_bytes
        )
        if saved_count > 0 and small_totals.file_count >= thresholds.min_input_files:
            combinable_groups.append((saved_count, rewrite_group, small_totals))
        elif small_totals.file_count and rewrite_group.has_older_specs:
            has_older_spec_leftovers = True
    if not combinable_groups:
        return None
    combinable_groups.sort(key=lambda combinable_group: -combinable_group[0])
    saved_file_count = sum(saved_count for saved_count, _, _ in combinable_groups)
    partitions = [p for _, rewrite_group, _ in combinable_groups for p in rewrite_group.partitions]
    input_file_count = sum(small_totals.file_count for _, _, small_totals in combinable_groups)
    input_bytes = sum(small_totals.size_in_bytes for _, _, small_totals in combinable_groups)
    is_critical = (
        saved_file_count >= thresholds.critical_files
        and saved_file_count > thresholds.critical_share * facts.data.file_count
    )
    # Without a filter it would also distribute files of older specs over more files of the current
    # one.
    rewrite_arguments: dict[str, Any] = (
        {"where": facts.where(partitions[:MOST_PARTITIONS])} if has_older_spec_leftovers else {}
    )
    return context.finding(
        context.partition_names(partitions),
        severity=Severity.CRITICAL if is_critical else Severity.WARNING,
        figure=f"{saved_file_count:,} of {facts.data.file_count:,} would go",
        evidence=f"compaction would remove {saved_file_count:,} of "
        f"{count(facts.data.file_count, 'data file')}: {count(input_file_count, 'file')} of "
        f"{size(input_bytes / input_file_count)} on average in "
        f"{count(len(partitions), 'partition')}; the target is {size(facts.target_bytes)}",
        threshold=f"{thresholds.min_input_files} files smaller than "
        f"{percent(thresholds.min_file_size_ratio)} of the target in one partition",
        source="rewrite_data_files: min-input-files and min-file-size-bytes",
        effect="Every file costs a request, a footer and a manifest entry: scans open far more "
        "files than the data needs, and planning takes longer with each file.",
        remedy="Combine the small files, then change how they are written, or new ones will "
        "follow.",
        sql=()
        if None in rewrite_arguments.values()
        else context.rewrite_statements(**rewrite_arguments),
    )


def oversized_files(context: Context) -> Finding | None:
    """Data files that a rewrite would split. Source: SizeBasedFileRewritePlanner."""
    facts = context.facts
    row_group_bytes = facts.int_setting(ROW_GROUP)
    oversized_parts = [
        oversized_part(group, context.max_file_size, row_group_bytes)
        for group in facts.of_kind(Kind.DATA)
    ]
    oversized_groups = sorted(
        (group for group in oversized_parts if group.buckets), key=lambda g: -g.size_in_bytes
    )
    if not oversized_groups:
        return None
    oversized_totals = Totals.of_groups(oversized_groups)
    oversized_byte_share = oversized_totals.size_in_bytes / facts.data.size_in_bytes
    return context.finding(
        context.partition_names(group.partition for group in oversized_groups),
        severity=Severity.WARNING if oversized_byte_share >= 0.05 else Severity.INFO,
        figure=f"{oversized_totals.file_count:,} of {facts.data.file_count:,}, up to "
        f"{size(oversized_totals.max_bytes or 0)}",
        evidence=f"{count(oversized_totals.file_count, 'data file')} of {facts.data.file_count:,} "
        f"with {size(oversized_totals.size_in_bytes)} ({percent(oversized_byte_share)} of the "
        f"bytes); the largest is {size(oversized_totals.max_bytes or 0)}, the target is "
        f"{size(facts.target_bytes)}",
        threshold=f"larger than {percent(context.thresholds.max_file_size_ratio)} of the target "
        f"({size(context.max_file_size)})",
        source="rewrite_data_files: max-file-size-bytes",
        effect="The bounds of a large file cover many values, so filters skip less; a "
        "copy-on-write change rewrites the entire file.",
        remedy="Rewrite the large files to split them, and check the writer's target file size "
        "and row group size.",
        sql=context.rewrite_statements(),
    )


# What a Parquet file takes besides its rows, in bytes: for itself with Iceberg's schema, and for
# each column. Measured: 0.7 KiB with two columns.
_EMPTY_FILE_BYTES = 512
_EMPTY_COLUMN_BYTES = 128
# A choice: a target is below what a file can be if less than nine tenths of it are left for rows.
_MAX_EMPTY_SHARE = 0.1


def target_too_small(context: Context) -> Finding | None:
    """The target file size makes small files, which no rewrite can combine, because they have the
    size that was asked for.

    Partitions count in which files hold a read split or more together, or of which compaction
    leaves :attr:`~icekit.health.diagnose.findings.Thresholds.critical_files` more than a target of
    a split asks for (``min_input_files`` where the target is below what a file of these columns can
    be).
    """
    facts = context.facts
    thresholds = context.thresholds
    target_bytes = facts.target_bytes
    read_split_bytes = split_bytes(facts)
    if target_bytes >= thresholds.small_target_share * read_split_bytes:
        return None
    empty_file_bytes = _EMPTY_FILE_BYTES + _EMPTY_COLUMN_BYTES * len(facts.columns)
    min_excess_count = (
        thresholds.min_input_files
        if target_bytes * _MAX_EMPTY_SHARE <= empty_file_bytes
        else thresholds.critical_files
    )
    file_totals_by_partition: dict[Partition, tuple[int, int]] = {}
    for group in facts.of_kind(Kind.DATA):
        oversized_group = oversized_part(group, context.max_file_size, facts.int_setting(ROW_GROUP))
        unsplit_count = group.file_count - oversized_group.file_count
        unsplit_bytes = group.size_in_bytes - oversized_group.size_in_bytes
        # Compaction combines what is smaller than the target.
        compacted_file_count = min(unsplit_count, expected_files(unsplit_bytes, target_bytes))
        if unsplit_count and (
            unsplit_bytes >= read_split_bytes
            or compacted_file_count - expected_files(unsplit_bytes, read_split_bytes)
            >= min_excess_count
        ):
            file_totals_by_partition[group.partition] = unsplit_count, unsplit_bytes
    if not file_totals_by_partition:
        return None
    total_file_count = sum(file_count for file_count, _ in file_totals_by_partition.values())
    total_bytes = sum(partition_bytes for _, partition_bytes in file_totals_by_partition.values())
    sufficient_file_count = sum(
        expected_files(partition_bytes, read_split_bytes)
        for _, partition_bytes in file_totals_by_partition.values()
    )
    return context.finding(
        context.partition_names(
            sorted(file_totals_by_partition, key=lambda p: -file_totals_by_partition[p][0])
        ),
        severity=Severity.CRITICAL if target_bytes < open_file_cost(facts) else Severity.WARNING,
        figure=f"{size(target_bytes)} for splits of {size(read_split_bytes)}",
        evidence=f"the target file size is {size(target_bytes)}, "
        f"{percent(target_bytes / read_split_bytes)} of a read split ({size(read_split_bytes)}). "
        f"There are {count(total_file_count, 'file')} of {size(total_bytes)} in "
        f"{count(len(file_totals_by_partition), 'partition')}; a target of "
        f"{size(read_split_bytes)} would ask for {sufficient_file_count:,}",
        threshold=f"a target below {percent(thresholds.small_target_share)} of "
        "read.split.target-size, and one partition with a split of such files, or with "
        f"{min_excess_count} of them too many; critical below read.split.open-file-cost",
        source=f"{CHOICE}; read.split.target-size and read.split.open-file-cost are Iceberg's",
        effect="The files have the size that the table asks for, so compaction leaves them alone: "
        "each costs a request, a footer and a manifest entry, and a read task opens many of them.",
        remedy="Set a target of at least one read split before any rewrite, then rewrite the "
        "table, best without the partitions that are still written to. If the target is small on "
        f"purpose, so that copy-on-write rewrites little, {context.command('tune write-mode')} "
        "compares merge-on-read.",
        sql=(
            context.alter_statement({TARGET: str(read_split_bytes)}),
            *context.rewrite_statements(threshold_options(thresholds, read_split_bytes)),
        ),
    )
