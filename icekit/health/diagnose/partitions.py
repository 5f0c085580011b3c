"""Check how the table is partitioned: one function per finding."""

import statistics

from icekit.common import sql
from icekit.common.units import count, percent, size
from icekit.health.diagnose.findings import Context, Finding, Severity
from icekit.health.facts.files import FileGroup, Totals
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import expected_files
from icekit.iceberg.definition import Column
from icekit.iceberg.file_kind import Kind


def skewed_partitions(context: Context) -> Finding | None:
    """One partition far larger than the rest."""
    facts = context.facts
    thresholds = context.thresholds
    partition_groups = sorted(_current_spec_groups(facts), key=lambda g: -g.size_in_bytes)
    if len(partition_groups) < thresholds.skew_min_partitions:
        return None
    median_partition_bytes = statistics.median(g.size_in_bytes for g in partition_groups)
    largest_partition_bytes = partition_groups[0].size_in_bytes
    heavy_groups = [
        g
        for g in partition_groups
        if g.size_in_bytes >= thresholds.skew_ratio * median_partition_bytes
    ]
    if not heavy_groups or largest_partition_bytes <= facts.target_bytes:
        return None
    heavy_byte_share = (
        Totals.of_groups(heavy_groups).size_in_bytes
        / Totals.of_groups(partition_groups).size_in_bytes
    )
    return context.finding(
        context.partition_names(g.partition for g in heavy_groups),
        figure=f"{largest_partition_bytes / max(1, median_partition_bytes):,.0f} × the median",
        evidence=f"the largest of {len(partition_groups):,} partitions holds "
        f"{size(largest_partition_bytes)}, "
        f"{largest_partition_bytes / max(1, median_partition_bytes):,.0f} × the median of "
        f"{size(median_partition_bytes)}; {percent(heavy_byte_share)} of the bytes are in "
        f"{count(len(heavy_groups), 'partition')} above the threshold",
        threshold=f"{thresholds.skew_ratio:g} × the median partition, and more than one target "
        "file",
        effect="Writes and rewrites are split by partition: the task or file group of the largest "
        "partition runs long after all others have finished.",
        remedy="Split the large partitions further, with a bucket transform of an evenly "
        "distributed column or a finer transform; the query lists partition sizes.",
        sql=(
            "SELECT partition, record_count, file_count, total_data_file_size_in_bytes FROM "
            f"{context.table_sql}.partitions ORDER BY 4 DESC LIMIT 20",
        ),
    )


def _current_spec_groups(facts: TableFacts) -> list[FileGroup]:
    return [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id]


def over_partitioned(context: Context) -> Finding | None:
    """Most partitions are too small for one file of the target size, and compaction never combines
    files of two partitions.
    """
    facts = context.facts
    thresholds = context.thresholds
    partition_groups = _current_spec_groups(facts)
    max_thin_bytes = thresholds.thin_partition_share * facts.target_bytes
    thin_groups = sorted(
        (g for g in partition_groups if g.size_in_bytes < max_thin_bytes),
        key=lambda g: g.size_in_bytes,
    )
    if (
        facts.default_spec.is_unpartitioned
        or len(partition_groups) < thresholds.many_partitions
        or 2 * len(thin_groups) <= len(partition_groups)
    ):
        return None
    thin_totals = Totals.of_groups(thin_groups)
    mean_thin_bytes = thin_totals.size_in_bytes / len(thin_groups)
    spec_statements = _coarser_spec_statements(
        context, facts.target_bytes / max(1, mean_thin_bytes)
    )
    return context.finding(
        context.partition_names(g.partition for g in thin_groups),
        figure=f"{size(mean_thin_bytes)} each",
        evidence=f"{len(thin_groups):,} of {count(len(partition_groups), 'partition')} hold "
        f"{size(mean_thin_bytes)} on average; the target file size is {size(facts.target_bytes)}. "
        f"They have {count(thin_totals.file_count, 'data file')}; "
        f"{expected_files(thin_totals.size_in_bytes, facts.target_bytes):,} of the target size "
        "would be enough",
        threshold=f"{thresholds.many_partitions} partitions, more than half of them smaller than "
        f"{percent(thresholds.thin_partition_share)} of one target file",
        effect="A data file never holds rows of two partitions, so compaction cannot combine "
        "their files: scans open a small file for each partition, and each commit writes a small "
        "file into each partition it touches.",
        remedy="Partition by a coarser transform or fewer fields, sort by the column so that "
        "filters still skip files, and rewrite the old files into the new partitions. "
        f"{context.command('tune layout')} measures how much your filters gain or lose.",
        sql=(*spec_statements, *context.rewrite_statements()) if spec_statements else (),
    )


#: The next coarser transform of time, and how many partitions it combines into one.
_COARSER_TRANSFORMS = {"hour": ("day", 24.0), "day": ("month", 30.4), "month": ("year", 12.0)}
_DATE_IDENTITY = ("date", "identity")


def coarser_transform(column: Column, transform: str, size_factor: float) -> str | None:
    """The transform of a time that makes partitions about ``factor`` times larger; None for
    another field.
    """
    first_transform = "day" if (column.type, transform) == _DATE_IDENTITY else transform
    transform = first_transform
    combined_count = 1.0
    while transform in _COARSER_TRANSFORMS and combined_count < size_factor:
        transform, step_factor = _COARSER_TRANSFORMS[transform]
        combined_count *= step_factor
    return None if transform == first_transform else transform


def _coarser_spec_statements(context: Context, size_factor: float) -> tuple[str, ...]:
    """The statement that changes the last time field; none if there are only other fields."""
    for partition_field in reversed(context.facts.default_spec.active_fields):
        column = context.facts.by_name.get(partition_field.source or "")
        if column and (
            new_transform := coarser_transform(column, partition_field.transform, size_factor)
        ):
            source_sql = sql.identifier(*column.names)
            old_transform_sql = sql.transform_sql(source_sql, partition_field.transform)
            new_transform_sql = sql.transform_sql(source_sql, new_transform)
            return (
                f"ALTER TABLE {context.table_sql} REPLACE PARTITION FIELD {old_transform_sql} WITH "
                f"{new_transform_sql}",
            )
    return ()


def old_partition_spec(context: Context) -> Finding | None:
    """Live data files of a partition spec that is no longer the default."""
    facts = context.facts
    old_groups = [
        g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id != facts.default_spec_id
    ]
    if not old_groups:
        return None
    old_totals = Totals.of_groups(old_groups)
    old_byte_share = old_totals.size_in_bytes / max(1, facts.data.size_in_bytes)
    old_spec_ids = sorted({g.partition.spec_id for g in old_groups})
    return context.finding(
        context.partition_names(
            g.partition for g in sorted(old_groups, key=lambda g: -g.size_in_bytes)
        ),
        severity=Severity.WARNING if old_byte_share >= 0.1 else Severity.INFO,
        figure=f"{old_totals.file_count:,} of {count(facts.data.file_count, 'file')}",
        evidence=f"{count(old_totals.file_count, 'data file')} of {facts.data.file_count:,} "
        f"({percent(old_byte_share)} of the bytes) of spec {', '.join(map(str, old_spec_ids))}; "
        f"the current spec is {facts.default_spec_id}",
        threshold="any live data file of a spec that is not the default",
        source="table spec, Partition Evolution: old files keep their old layout",
        effect="Filters on the new partition fields skip none of these files, and "
        "storage-partitioned joins cannot use the new spec.",
        remedy="If filters on the new fields matter, run "
        f"{context.command('compact', '--old-specs')}, which moves these files partition by "
        "partition and says how many files they "
        "become; other compactions leave them where they are, unless that saves file opens.",
        sql=(
            "SELECT partition, count(*) AS files, sum(file_size_in_bytes) AS bytes FROM "
            f"{context.table_sql}.files WHERE content = 0 AND spec_id <> {facts.default_spec_id} "
            "GROUP BY partition ORDER BY bytes DESC",
        ),
    )
