"""Check the sizes of data files: one function per finding."""

from typing import Any

from icekit.common.units import count, percent, size
from icekit.health.diagnose.findings import (
    CHOICE,
    Context,
    Finding,
    Severity,
    limit_options,
    oversized,
    under,
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
    limits = context.thresholds
    removed: list[tuple[int, RewriteGroup, Totals]] = []
    keeps_older = False
    for together in rewrite_groups(facts):
        groups = [under(group, context.min_file_size) for group in together.groups]
        small = Totals.of(groups)
        buckets = [bucket for group in groups for bucket in group.buckets]
        files_saved = small.file_count - together.files_out(buckets, facts.target_bytes)
        if files_saved > 0 and small.file_count >= limits.min_input_files:
            removed.append((files_saved, together, small))
        elif small.file_count and together.is_moved:
            keeps_older = True
    if not removed:
        return None
    removed.sort(key=lambda each: -each[0])
    files_saved = sum(n for n, _, _ in removed)
    partitions = [p for _, together, _ in removed for p in together.partitions]
    files_in = sum(small.file_count for _, _, small in removed)
    bytes_in = sum(small.size_in_bytes for _, _, small in removed)
    grave = (
        files_saved >= limits.critical_files
        and files_saved > limits.critical_share * facts.data.file_count
    )
    # Without a filter it would also distribute files of older specs over more files of the current
    # one.
    filtered: dict[str, Any] = (
        {"where": facts.where(partitions[:MOST_PARTITIONS])} if keeps_older else {}
    )
    return context.finding(
        context.paths(partitions),
        severity=Severity.CRITICAL if grave else Severity.WARNING,
        figure=f"{files_saved:,} of {facts.data.file_count:,} would go",
        evidence=f"compaction would remove {files_saved:,} of "
        f"{count(facts.data.file_count, 'data file')}: {count(files_in, 'file')} of "
        f"{size(bytes_in / files_in)} on average in {count(len(partitions), 'partition')}; the "
        f"target is {size(facts.target_bytes)}",
        threshold=f"{limits.min_input_files} files smaller than "
        f"{percent(limits.min_file_size_ratio)} of the target in one partition",
        source="rewrite_data_files: min-input-files and min-file-size-bytes",
        effect="Every file costs a request, a footer and a manifest entry: scans open far more "
        "files than the data needs, and planning takes longer with each file.",
        remedy="Combine the small files, then change how they are written, or new ones will "
        "follow.",
        sql=() if None in filtered.values() else context.rewrite(**filtered),
    )


def oversized_files(context: Context) -> Finding | None:
    """Data files that a rewrite would split. Source: SizeBasedFileRewritePlanner."""
    facts = context.facts
    row_group = facts.int_setting(ROW_GROUP)
    large = [
        oversized(group, context.max_file_size, row_group) for group in facts.of_kind(Kind.DATA)
    ]
    oversized_groups = sorted(
        (group for group in large if group.buckets), key=lambda g: -g.size_in_bytes
    )
    if not oversized_groups:
        return None
    total = Totals.of(oversized_groups)
    share = total.size_in_bytes / facts.data.size_in_bytes
    return context.finding(
        context.paths(group.partition for group in oversized_groups),
        severity=Severity.WARNING if share >= 0.05 else Severity.INFO,
        figure=f"{total.file_count:,} of {facts.data.file_count:,}, up to {size(total.max_bytes or 0)}",
        evidence=f"{count(total.file_count, 'data file')} of {facts.data.file_count:,} with "
        f"{size(total.size_in_bytes)} ({percent(share)} of the bytes); the largest is "
        f"{size(total.max_bytes or 0)}, the target is {size(facts.target_bytes)}",
        threshold=f"larger than {percent(context.thresholds.max_file_size_ratio)} of the target "
        f"({size(context.max_file_size)})",
        source="rewrite_data_files: max-file-size-bytes",
        effect="The bounds of a large file cover many values, so filters skip less; a "
        "copy-on-write change rewrites the entire file.",
        remedy="Rewrite the large files to split them, and check the writer's target file size "
        "and row group size.",
        sql=context.rewrite(),
    )


# What a Parquet file takes besides its rows, in bytes: for itself with Iceberg's schema, and for
# each column. Measured: 0.7 KiB with two columns.
_BARE_FILE = 512
_BARE_COLUMN = 128
# A choice: a target is below what a file can be if less than nine tenths of it are left for rows.
_BARE_SHARE = 0.1


def target_too_small(context: Context) -> Finding | None:
    """The target file size makes small files, which no rewrite can combine, because they have the
    size that was asked for.

    Partitions count in which files hold a read split or more together, or of which compaction
    leaves :attr:`~icekit.health.diagnose.findings.Thresholds.critical_files` more than a target of
    a split asks for (``min_input_files`` where the target is below what a file of these columns can
    be).
    """
    facts = context.facts
    limits = context.thresholds
    target = facts.target_bytes
    split = split_bytes(facts)
    if target >= limits.small_target_share * split:
        return None
    bare = _BARE_FILE + _BARE_COLUMN * len(facts.columns)
    fewest = limits.min_input_files if target * _BARE_SHARE <= bare else limits.critical_files
    files: dict[Partition, tuple[int, int]] = {}
    for group in facts.of_kind(Kind.DATA):
        large = oversized(group, context.max_file_size, facts.int_setting(ROW_GROUP))
        number = group.file_count - large.file_count
        total = group.size_in_bytes - large.size_in_bytes
        # Compaction combines what is smaller than the target.
        left = min(number, expected_files(total, target))
        if number and (total >= split or left - expected_files(total, split) >= fewest):
            files[group.partition] = number, total
    if not files:
        return None
    existing = sum(row[0] for row in files.values())
    total = sum(row[1] for row in files.values())
    enough = sum(expected_files(file_bytes, split) for _, file_bytes in files.values())
    return context.finding(
        context.paths(sorted(files, key=lambda p: -files[p][0])),
        severity=Severity.CRITICAL if target < open_file_cost(facts) else Severity.WARNING,
        figure=f"{size(target)} for splits of {size(split)}",
        evidence=f"the target file size is {size(target)}, {percent(target / split)} of a read "
        f"split ({size(split)}). There are {count(existing, 'file')} of {size(total)} in "
        f"{count(len(files), 'partition')}; a target of {size(split)} would ask for {enough:,}",
        threshold=f"a target below {percent(limits.small_target_share)} of "
        "read.split.target-size, and one partition with a split of such files, or with "
        f"{fewest} of them too many; critical below read.split.open-file-cost",
        source=f"{CHOICE}; read.split.target-size and read.split.open-file-cost are Iceberg's",
        effect="The files have the size that the table asks for, so compaction leaves them alone: "
        "each costs a request, a footer and a manifest entry, and a read task opens many of them.",
        remedy="Set a target of at least one read split before any rewrite, then rewrite the "
        "table, best without the partitions that are still written to. If the target is small on "
        f"purpose, so that copy-on-write rewrites little, {context.command('tune write-mode')} "
        "compares merge-on-read.",
        sql=(
            context.alter({TARGET: str(split)}),
            *context.rewrite(limit_options(limits, split)),
        ),
    )
