"""Symptoms of data files: too small, too large, unevenly spread, left behind, orphaned."""

from __future__ import annotations

import statistics
from collections import defaultdict

from icekit import sql
from icekit.diagnose.context import CHOICE, Context, under
from icekit.diagnose.findings import Finding, Severity
from icekit.facts.model import Kind, Partition
from icekit.units import count, percent, size


def small_files(context: Context) -> Finding | None:
    """Partitions where a default rewrite has files to combine.

    A few small files are not an illness: a rewrite would leave them, or take them for the
    gain of one or two. Files of older specs share one group, as in the procedure. Source:
    SizeBasedFileRewritePlanner.
    """
    facts, limits = context.facts, context.thresholds
    groups: dict[Partition | None, list[int]] = defaultdict(lambda: [0, 0])
    for group in facts.of_kind(Kind.DATA):
        small = under(group, context.min_file_size)
        key = group.partition if group.partition.spec_id == facts.default_spec_id else None
        groups[key][0] += small.file_count
        groups[key][1] += small.size_in_bytes
    removed: dict[Partition | None, int] = {}
    for key, (files, total) in groups.items():
        gone = files - -(-total // facts.target_bytes)
        if gone > 0 and files >= limits.min_input_files:
            removed[key] = gone
    if not removed:
        return None
    worst = sorted(removed, key=lambda key: -removed[key])
    gone = sum(removed.values())
    files_in, bytes_in = (sum(groups[key][i] for key in removed) for i in (0, 1))
    grave = gone >= limits.critical_files and gone > limits.critical_share * facts.data.file_count
    return context.finding(
        "small_files",
        Severity.CRITICAL if grave else Severity.WARNING,
        context.paths([key for key in worst if key is not None]) + (["(older specs)"] if None in removed else []),
        evidence=f"{count(gone, 'data file')} of {facts.data.file_count:,} would disappear: {count(files_in, 'file')} of {size(bytes_in / files_in)} on average "
        f"in {count(len(removed), 'partition')}, against a target of {size(facts.target_bytes)}",
        threshold=f"{limits.min_input_files} files under {limits.min_file_size_ratio:g} of the target in one partition",
        source="rewrite_data_files: min-input-files and min-file-size-bytes",
        effect="Every file costs a request, a footer and a manifest entry: scans open far more files than their bytes need, and planning grows with them.",
        remedy="Combine them; then look at how they are written, or they come back.",
        sql=(context.rewrite_data_files(),),
        files_at_stake=files_in,
        bytes_at_stake=bytes_in,
    )


def oversized_files(context: Context) -> Finding | None:
    """Data files that a rewrite would split. Source: SizeBasedFileRewritePlanner."""
    facts, limits = context.facts, context.thresholds
    over: dict[Partition, tuple[int, int]] = {}
    largest = 0
    for group in facts.of_kind(Kind.DATA):
        rest = under(group, context.max_file_size + 1)
        if group.file_count > rest.file_count:
            over[group.partition] = group.file_count - rest.file_count, group.size_in_bytes - rest.size_in_bytes
            largest = max(largest, group.max_bytes)
    if not over:
        return None
    files, total = (sum(row[i] for row in over.values()) for i in (0, 1))
    share = total / facts.data.size_in_bytes
    return context.finding(
        "oversized_files",
        Severity.WARNING if share >= 0.05 else Severity.INFO,
        context.paths(sorted(over, key=lambda p: -over[p][1])),
        evidence=f"{count(files, 'data file')} of {facts.data.file_count:,} with {size(total)} ({percent(share)} of the bytes); the largest is {size(largest)}, "
        f"against a target of {size(facts.target_bytes)}",
        threshold=f"over {limits.max_file_size_ratio:g} of the target ({size(context.max_file_size)})",
        source="rewrite_data_files: max-file-size-bytes",
        effect="Bounds of a large file cover much, so filters skip less; a copy-on-write change rewrites all of it; deletes that name it are read whole.",
        remedy="Split them by a rewrite, and check the target and the row group size of the writer.",
        sql=(context.rewrite_data_files(),),
        files_at_stake=files,
        bytes_at_stake=total,
    )


def skewed_partitions(context: Context) -> Finding | None:
    """One partition far larger than the rest."""
    facts, limits = context.facts, context.thresholds
    sizes = {g.partition: g.size_in_bytes for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id}
    if len(sizes) < limits.skew_min_partitions:
        return None
    median = statistics.median(sizes.values())
    worst = sorted(sizes, key=lambda p: -sizes[p])
    most = sizes[worst[0]]
    if most < limits.skew_ratio * median or most <= facts.target_bytes:
        return None
    heavy = {p: None for p in worst if sizes[p] >= limits.skew_ratio * median}
    total = sum(sizes[p] for p in heavy)
    files = sum(g.file_count for g in facts.of_kind(Kind.DATA) if g.partition in heavy)
    listing = sql.identifier(*context.full_name, "partitions")
    return context.finding(
        "skewed_partitions",
        Severity.WARNING,
        context.paths(list(heavy)),
        evidence=f"the largest of {len(sizes):,} partitions holds {size(most)}, {most / median:,.0f} × the median of {size(median)}; "
        f"{count(len(heavy), 'such partition')} together hold {percent(total / sum(sizes.values()))} of the bytes",
        threshold=f"{limits.skew_ratio:g} × the median partition, and more than one target file",
        source=CHOICE,
        effect="Work is handed out by partition: the one task, or one rewrite group, that has the largest runs long after all others have ended.",
        remedy="Split the heavy partitions further, by a bucket of a well-spread column or a finer transform; the query shows the sizes to decide by.",
        sql=(f"SELECT partition, record_count, file_count, total_data_file_size_in_bytes FROM {listing} ORDER BY 4 DESC LIMIT 20",),
        files_at_stake=files,
        bytes_at_stake=total,
    )


def old_partition_spec(context: Context) -> Finding | None:
    """Live data files of a partition spec that is no longer the default."""
    facts = context.facts
    old = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id != facts.default_spec_id]
    if not old:
        return None
    files, total = sum(g.file_count for g in old), sum(g.size_in_bytes for g in old)
    share = total / facts.data.size_in_bytes if facts.data.size_in_bytes else 0.0
    specs = sorted({g.partition.spec_id for g in old})
    now = ", ".join(f.name for f in facts.default_spec.fields) or "no partitioning"
    listing = sql.identifier(*context.full_name, "files")
    return context.finding(
        "old_partition_spec",
        Severity.WARNING if share >= 0.1 else Severity.INFO,
        context.paths([g.partition for g in sorted(old, key=lambda g: -g.size_in_bytes)]),
        evidence=f"{count(files, 'data file')} of {facts.data.file_count:,} ({percent(share)} of the bytes) were written under spec {', '.join(map(str, specs))}; "
        f"the current spec {facts.default_spec_id} has {now}",
        threshold="any live data file of a spec that is not the default",
        source="table spec, Partition Evolution: old files keep their old layout",
        effect="Filters on the new partition fields prune nothing among these files, and a scan that joins by partition cannot use the new grouping.",
        remedy="Rewrite them, in portions that a where filter keeps small; a default rewrite takes only those of the wrong size.",
        sql=(
            f"SELECT partition, count(*) AS files, sum(file_size_in_bytes) AS bytes FROM {listing} "
            f"WHERE content = 0 AND spec_id <> {facts.default_spec_id} GROUP BY partition ORDER BY bytes DESC",
        ),
        files_at_stake=files,
        bytes_at_stake=total,
    )


def shared_location(context: Context) -> Finding | None:
    """Another table keeps files where this one does; only when storage was listed."""
    storage = context.facts.storage
    if storage is None or not storage.sharing.shared:
        return None
    return context.finding(
        "shared_location",
        Severity.WARNING,
        [place.path for place in storage.sharing.shared],
        evidence=f"{storage.sharing.told}; this table's is {context.facts.location}",
        threshold="one table of the catalog with a path that equals, contains or lies inside one of this table's",
        source="remove_orphan_files: what this table does not name in its location is removed",
        effect="Files of the other table look like orphans of this one: removing them destroys it. CREATE, RENAME and CREATE again leave two tables in one location.",
        remedy="Remove no orphan files here. Copy one of the tables to a location of its own (CREATE TABLE … AS SELECT).",
    )


def orphan_files(context: Context) -> Finding | None:
    """Files in the table's location that nothing references; only when storage was listed."""
    storage = context.facts.storage
    if storage is None or not storage.orphan_count:
        return None
    unknown = f"; whether they are another table's is not known ({storage.sharing.unchecked})" if storage.sharing.unchecked else ""
    return context.finding(
        "orphan_files",
        Severity.WARNING,
        storage.examples,
        evidence=f"{storage.told} under {context.facts.location} in no snapshot, and older than 3 days{unknown}",
        threshold="one file older than 3 days",
        source="remove_orphan_files: older_than",
        effect="They cost storage for ever and are read by nobody; failed and killed writers leave them.",
        remedy="List them again, look at the list, then run the call without dry_run. Make sure that no other table names files in the location.",
        sql=(context.list_orphans(),),
        files_at_stake=storage.orphan_count,
        bytes_at_stake=storage.orphan_bytes or 0,
    )
