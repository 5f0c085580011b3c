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
    limits = context.thresholds
    groups = sorted(_of_current_spec(facts), key=lambda g: -g.size_in_bytes)
    if len(groups) < limits.skew_min_partitions:
        return None
    median = statistics.median(g.size_in_bytes for g in groups)
    largest_bytes = groups[0].size_in_bytes
    heavy = [g for g in groups if g.size_in_bytes >= limits.skew_ratio * median]
    if not heavy or largest_bytes <= facts.target_bytes:
        return None
    share = Totals.of(heavy).size_in_bytes / Totals.of(groups).size_in_bytes
    return context.finding(
        context.paths(g.partition for g in heavy),
        figure=f"{largest_bytes / max(1, median):,.0f} × the median",
        evidence=f"the largest of {len(groups):,} partitions holds {size(largest_bytes)}, "
        f"{largest_bytes / max(1, median):,.0f} × the median of {size(median)}; {percent(share)} of the bytes are "
        f"in {count(len(heavy), 'partition')} above the threshold",
        threshold=f"{limits.skew_ratio:g} × the median partition, and more than one target file",
        effect="Writes and rewrites are split by partition: the task or file group of the largest "
        "partition runs long after all others have finished.",
        remedy="Split the large partitions further, with a bucket transform of an evenly "
        "distributed column or a finer transform; the query lists partition sizes.",
        sql=(
            "SELECT partition, record_count, file_count, total_data_file_size_in_bytes FROM "
            f"{context.table}.partitions ORDER BY 4 DESC LIMIT 20",
        ),
    )


def _of_current_spec(facts: TableFacts) -> list[FileGroup]:
    return [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id]


def over_partitioned(context: Context) -> Finding | None:
    """Most partitions are too small for one file of the target size, and compaction never combines
    files of two partitions.
    """
    facts = context.facts
    limits = context.thresholds
    groups = _of_current_spec(facts)
    largest = limits.thin_partition_share * facts.target_bytes
    thin = sorted((g for g in groups if g.size_in_bytes < largest), key=lambda g: g.size_in_bytes)
    if (
        facts.default_spec.is_unpartitioned
        or len(groups) < limits.many_partitions
        or 2 * len(thin) <= len(groups)
    ):
        return None
    total = Totals.of(thin)
    mean = total.size_in_bytes / len(thin)
    change = _coarser_spec(context, facts.target_bytes / max(1, mean))
    return context.finding(
        context.paths(g.partition for g in thin),
        figure=f"{size(mean)} each",
        evidence=f"{len(thin):,} of {count(len(groups), 'partition')} hold {size(mean)} on "
        f"average; the target file size is {size(facts.target_bytes)}. They have "
        f"{count(total.file_count, 'data file')}; "
        f"{expected_files(total.size_in_bytes, facts.target_bytes):,} of the "
        "target size would be enough",
        threshold=f"{limits.many_partitions} partitions, more than half of them smaller than "
        f"{percent(limits.thin_partition_share)} of one target file",
        effect="A data file never holds rows of two partitions, so compaction cannot combine "
        "their files: scans open a small file for each partition, and each commit writes a small "
        "file into each partition it touches.",
        remedy="Partition by a coarser transform or fewer fields, sort by the column so that "
        "filters still skip files, and rewrite the old files into the new partitions. "
        f"{context.command('tune layout')} measures how much your filters gain or lose.",
        sql=(*change, *context.rewrite()) if change else (),
    )


#: The next coarser transform of time, and how many partitions it combines into one.
_COARSER = {"hour": ("day", 24.0), "day": ("month", 30.4), "month": ("year", 12.0)}
_DAYS = ("date", "identity")


def coarser(column: Column, transform: str, factor: float) -> str | None:
    """The transform of a time that makes partitions about ``factor`` times larger; None for
    another field.
    """
    start = "day" if (column.type, transform) == _DAYS else transform
    transform = start
    combined_partitions = 1.0
    while transform in _COARSER and combined_partitions < factor:
        transform, times = _COARSER[transform]
        combined_partitions *= times
    return None if transform == start else transform


def _coarser_spec(context: Context, factor: float) -> tuple[str, ...]:
    """The statement that changes the last time field; none if there are only other fields."""
    for field in reversed(context.facts.default_spec.active_fields):
        column = context.facts.by_name.get(field.source or "")
        if column and (coarse := coarser(column, field.transform, factor)):
            source = sql.identifier(*column.names)
            old = sql.transform_sql(source, field.transform)
            new = sql.transform_sql(source, coarse)
            return (f"ALTER TABLE {context.table} REPLACE PARTITION FIELD {old} WITH {new}",)
    return ()


def old_partition_spec(context: Context) -> Finding | None:
    """Live data files of a partition spec that is no longer the default."""
    facts = context.facts
    old = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id != facts.default_spec_id]
    if not old:
        return None
    total = Totals.of(old)
    share = total.size_in_bytes / max(1, facts.data.size_in_bytes)
    specs = sorted({g.partition.spec_id for g in old})
    return context.finding(
        context.paths(g.partition for g in sorted(old, key=lambda g: -g.size_in_bytes)),
        severity=Severity.WARNING if share >= 0.1 else Severity.INFO,
        figure=f"{total.file_count:,} of {count(facts.data.file_count, 'file')}",
        evidence=f"{count(total.file_count, 'data file')} of {facts.data.file_count:,} "
        f"({percent(share)} of the bytes) of spec {', '.join(map(str, specs))}; the current spec "
        f"is {facts.default_spec_id}",
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
            f"{context.table}.files WHERE content = 0 AND spec_id <> {facts.default_spec_id} "
            "GROUP BY partition ORDER BY bytes DESC",
        ),
    )
