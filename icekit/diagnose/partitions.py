"""Check how the table is partitioned: one function per finding."""

from __future__ import annotations

import statistics

from icekit import sql
from icekit.diagnose.findings import Context, Finding, Severity, Thresholds, agree
from icekit.facts.definition import Column
from icekit.facts.files import FileGroup, Kind, Totals
from icekit.facts.model import TableFacts
from icekit.facts.rollup import expected_files
from icekit.units import count, percent, size


def skewed_partitions(context: Context) -> Finding | None:
    """One partition far larger than the rest."""
    facts, limits = context.facts, context.thresholds
    sizes = {
        g.partition: g.size_in_bytes
        for g in facts.of_kind(Kind.DATA)
        if g.partition.spec_id == facts.default_spec_id
    }
    if len(sizes) < limits.skew_min_partitions:
        return None
    median = statistics.median(sizes.values())
    worst = sorted(sizes, key=lambda p: -sizes[p])
    most = sizes[worst[0]]
    if most < limits.skew_ratio * median or most <= facts.target_bytes:
        return None
    heavy = {p: None for p in worst if sizes[p] >= limits.skew_ratio * median}
    total = Totals.of(g for g in facts.of_kind(Kind.DATA) if g.partition in heavy)
    share = percent(total.size_in_bytes / sum(sizes.values()))
    return context.finding(
        Severity.WARNING,
        context.paths(list(heavy)),
        evidence=f"the largest of {len(sizes):,} partitions holds {size(most)}, "
        f"{most / median:,.0f} × the median of {size(median)}; {share} of the bytes are in "
        f"{count(len(heavy), 'partition')} above the threshold",
        threshold=f"{limits.skew_ratio:g} × the median partition, and more than one target file",
        effect="Writes and rewrites are split by partition: the task or file group of the largest "
        "partition runs long after all others have finished.",
        remedy="Split the large partitions further, with a bucket transform of an evenly "
        "distributed column or a finer transform; the query lists partition sizes.",
        sql=(
            "SELECT partition, record_count, file_count, total_data_file_size_in_bytes FROM "
            f"{context.table}.partitions ORDER BY 4 DESC LIMIT 20",
        ),
        at_stake=total,
    )


def thin_partitions(
    facts: TableFacts, limits: Thresholds
) -> tuple[list[FileGroup], list[FileGroup]]:
    """The partitions of the current spec, and those too small for one file of the target size,
    smallest first; none if they are few or a minority.
    """
    groups = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id]
    if (
        facts.default_spec.is_unpartitioned
        or not facts.target_bytes
        or len(groups) < limits.many_partitions
    ):
        return groups, []
    thin = sorted(
        (g for g in groups if g.size_in_bytes < limits.thin_partition_share * facts.target_bytes),
        key=lambda g: (g.size_in_bytes, facts.partition_name(g.partition)),
    )
    return groups, thin if 2 * len(thin) > len(groups) else []


def over_partitioned(context: Context) -> Finding | None:
    """Most partitions are too small for one file of the target size, and compaction never combines
    files of two partitions.
    """
    facts, limits = context.facts, context.thresholds
    groups, thin = thin_partitions(facts, limits)
    if not thin:
        return None
    total = Totals.of(thin)
    mean = total.size_in_bytes / len(thin)
    change = _coarser_spec(context, facts.target_bytes / mean)
    return context.finding(
        Severity.WARNING,
        context.paths([g.partition for g in thin]),
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
        remedy="Partition by a coarser transform, and sort by the column so that filters still "
        f"skip files. icekit tune layout {facts.name} measures how much your filters gain or "
        "lose. "
        + (
            "The rewrite moves the old files into the new partitions."
            if change
            else "Which field to drop or replace depends on the filters of your queries."
        ),
        sql=(*change, context.rewrite()) if change else (),
        at_stake=total,
    )


#: The next coarser transform of time, and how many partitions it combines into one.
_COARSER = {"hour": ("day", 24.0), "day": ("month", 30.4), "month": ("year", 12.0)}
_DAYS = ("date", "identity")


def _coarser_spec(context: Context, factor: float) -> tuple[str, ...]:
    """The statement that changes one field to make partitions about ``factor`` times larger: a time
    field first, then a bucket; none if there are only other fields.
    """
    facts = context.facts
    columns = facts.by_name

    def terms(column: Column, *transforms: str) -> list[str]:
        return [sql.transform_of(sql.identifier(*column.names), each) for each in transforms]

    for field in facts.default_spec.fields:
        column = columns.get(field.source or "")
        start = "day" if column and (column.type, field.transform) == _DAYS else field.transform
        transform, reached = start, 1.0
        while transform in _COARSER and reached < factor:
            transform, times = _COARSER[transform]
            reached *= times
        if column and transform != start:
            old, new = terms(column, field.transform, transform)
            return (f"ALTER TABLE {context.table} REPLACE PARTITION FIELD {old} WITH {new}",)
    for field in facts.default_spec.fields:
        column = columns.get(field.source or "")
        buckets = field.buckets
        if column and buckets > 1:
            old, new = terms(column, field.transform, f"bucket[{int(buckets / factor)}]")
            change = (
                f"REPLACE PARTITION FIELD {old} WITH {new}"
                if buckets >= 2 * factor
                else f"DROP PARTITION FIELD {old}"
            )
            return (f"ALTER TABLE {context.table} {change}",)
    return ()


def old_partition_spec(context: Context) -> Finding | None:
    """Live data files of a partition spec that is no longer the default."""
    facts = context.facts
    old = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id != facts.default_spec_id]
    if not old:
        return None
    total = Totals.of(old)
    files, share = total.file_count, total.size_in_bytes / max(1, facts.data.size_in_bytes)
    specs = sorted({g.partition.spec_id for g in old})
    now = ", ".join(f.name for f in facts.default_spec.fields) or "no partitioning"
    return context.finding(
        Severity.WARNING if share >= 0.1 else Severity.INFO,
        context.paths([g.partition for g in sorted(old, key=lambda g: -g.size_in_bytes)]),
        evidence=f"{count(files, 'data file')} of {facts.data.file_count:,} ({percent(share)} of "
        f"the bytes) {agree(files, 'was', 'were')} written under spec "
        f"{', '.join(map(str, specs))}; the current spec is {facts.default_spec_id} ({now})",
        threshold="any live data file of a spec that is not the default",
        source="table spec, Partition Evolution: old files keep their old layout",
        effect="Filters on the new partition fields skip none of these files, and "
        "storage-partitioned joins cannot use the new spec.",
        remedy=f"If filters on the new fields matter, run icekit compact {facts.name} "
        "--old-specs, which moves these files partition by partition and says how many files they "
        "become; other compactions leave them where they are, unless that saves file opens.",
        sql=(
            "SELECT partition, count(*) AS files, sum(file_size_in_bytes) AS bytes FROM "
            f"{context.table}.files WHERE content = 0 AND spec_id <> {facts.default_spec_id} "
            "GROUP BY partition ORDER BY bytes DESC",
        ),
        at_stake=total,
    )
