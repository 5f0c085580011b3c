"""Check data files, metadata layers and column statistics: one function per finding."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Sequence

from icekit import sql
from icekit.diagnose.findings import CHOICE, Context, Finding, Severity, Thresholds, limit_options, oversized, under
from icekit.facts.definition import PartitionSpec
from icekit.facts.fan_out import RewriteGroup, rewrite_groups
from icekit.facts.files import FileGroup, Kind, Partition, Totals
from icekit.facts.manifest_counts import expected_manifests
from icekit.facts.metadata import ROW_GROUP, TARGET
from icekit.facts.metrics_sample import ColumnSample
from icekit.facts.model import TableFacts
from icekit.facts.read_splits import open_file_cost, split_bytes
from icekit.facts.rollup import expected_files, max_file_size
from icekit.facts.snapshot_statistics import renewal
from icekit.facts.where import MOST_PARTITIONS, askable, partition_span, where
from icekit.units import count, elapsed, percent, size, span


def small_files(context: Context) -> Finding | None:
    """Partitions where a default rewrite has files to combine.

    A few small files are not a problem: a rewrite would leave them alone, or remove only one
    or two. Files of older specs count where a rewrite puts them into fewer files of the current one (:mod:`icekit.facts.fan_out`). Source:
    SizeBasedFileRewritePlanner.
    """
    facts, limits = context.facts, context.thresholds
    removed: list[tuple[int, RewriteGroup, Totals]] = []
    spared = False
    for together in rewrite_groups(facts):
        small = Totals.of(under(group, context.min_file_size) for group in together.groups)
        gone = small.file_count - together.files_out(small.size_in_bytes, small.record_count, facts.target_bytes)
        if gone > 0 and small.file_count >= limits.min_input_files:
            removed.append((gone, together, small))
        elif small.file_count and together.partitions[0].spec_id != facts.default_spec_id:
            spared = True
    if not removed:
        return None
    removed.sort(key=lambda one: -one[0])
    gone = sum(n for n, _, _ in removed)
    partitions = [p for _, together, _ in removed for p in together.partitions]
    files_in, bytes_in = sum(small.file_count for _, _, small in removed), sum(small.size_in_bytes for _, _, small in removed)
    grave = gone >= limits.critical_files and gone > limits.critical_share * facts.data.file_count
    return context.finding(
        "small_files",
        Severity.CRITICAL if grave else Severity.WARNING,
        context.paths(partitions),
        evidence=f"compaction would remove {gone:,} of {count(facts.data.file_count, 'data file')}: {count(files_in, 'file')} of {size(bytes_in / files_in)} on average "
        f"in {count(len(partitions), 'partition')}; the target is {size(facts.target_bytes)}",
        threshold=f"{limits.min_input_files} files smaller than {percent(limits.min_file_size_ratio)} of the target in one partition",
        source="rewrite_data_files: min-input-files and min-file-size-bytes",
        effect="Every file costs a request, a footer and a manifest entry: scans open far more files than the data needs, and planning takes longer with each file.",
        remedy="Combine the small files, then change how they are written, or new ones will follow.",
        # Without a filter it would also distribute files of older specs over more files of the current one.
        sql=_rewrite_of(context, partitions[:MOST_PARTITIONS] if spared else None, facts.target_bytes),
        files_at_stake=files_in,
        bytes_at_stake=bytes_in,
    )


def oversized_files(context: Context) -> Finding | None:
    """Data files that a rewrite would split. Source: SizeBasedFileRewritePlanner."""
    facts, limits = context.facts, context.thresholds
    over: dict[Partition, tuple[int, int]] = {}
    largest = 0
    for group in facts.of_kind(Kind.DATA):
        large = oversized(group, context.max_file_size, facts.int_setting(ROW_GROUP))
        if large.buckets:
            over[group.partition] = large.file_count, large.size_in_bytes
            largest = max(largest, large.max_bytes)
    if not over:
        return None
    files, total = (sum(row[i] for row in over.values()) for i in (0, 1))
    share = total / facts.data.size_in_bytes
    return context.finding(
        "oversized_files",
        Severity.WARNING if share >= 0.05 else Severity.INFO,
        context.paths(sorted(over, key=lambda p: -over[p][1])),
        evidence=f"{count(files, 'data file')} of {facts.data.file_count:,} with {size(total)} ({percent(share)} of the bytes); the largest is {size(largest)}, "
        f"the target is {size(facts.target_bytes)}",
        threshold=f"larger than {percent(limits.max_file_size_ratio)} of the target ({size(context.max_file_size)})",
        source="rewrite_data_files: max-file-size-bytes",
        effect="The bounds of a large file cover many values, so filters skip less; a copy-on-write change rewrites the entire file.",
        remedy="Rewrite the large files to split them, and check the writer's target file size and row group size.",
        sql=(context.rewrite(),),
        files_at_stake=files,
        bytes_at_stake=total,
    )


# What a Parquet file takes besides its rows, in bytes: for itself with Iceberg's schema, and for each column. Measured: 0.7 KiB with two columns.
_BARE_FILE, _BARE_COLUMN = 512, 128
# A choice: a target is below what a file can be if less than nine tenths of it are left for rows.
_BARE_SHARE = 0.1


def files_of_small_target(facts: TableFacts, limits: Thresholds) -> dict[Partition, tuple[int, int]]:
    """The partitions in which a target far below a read split makes too many files: their number and bytes.

    Too many are files that hold a split or more together, and those of which compaction leaves
    :attr:`~icekit.diagnose.findings.Thresholds.critical_files` more than a target of a split asks for (``min_input_files`` where the target is
    below what a file of these columns can be).
    """
    split = split_bytes(facts)
    if facts.target_bytes >= limits.small_target_share * split:
        return {}
    bare = _BARE_FILE + _BARE_COLUMN * len(facts.columns)
    fewest = limits.min_input_files if facts.target_bytes * _BARE_SHARE <= bare else limits.critical_files
    largest = max_file_size(facts.target_bytes, limits.max_file_size_ratio)
    found = {}
    for group in facts.of_kind(Kind.DATA):
        splittable = oversized(group, largest, facts.int_setting(ROW_GROUP))
        files, total = group.file_count - splittable.file_count, group.size_in_bytes - splittable.size_in_bytes
        # Compaction combines what is smaller than the target.
        left = min(files, expected_files(total, facts.target_bytes))
        if files and (total >= split or left - expected_files(total, split) >= fewest):
            found[group.partition] = files, total
    return found


def target_too_small(context: Context) -> Finding | None:
    """The target file size makes small files, which no rewrite can combine, because they have the size that was asked for."""
    facts = context.facts
    target, split = facts.target_bytes, split_bytes(facts)
    files = files_of_small_target(facts, context.thresholds)
    if not files:
        return None
    worst = sorted(files, key=lambda p: -files[p][0])
    asked, enough = (sum(expected_files(total, each) for _, total in files.values()) for each in (target, split))
    is_scattered = facts.distribution[0].mode == "none" and not facts.default_spec.is_unpartitioned
    closed = _closed(facts, worst)
    named = closed and closed[:MOST_PARTITIONS]
    return context.finding(
        "target_too_small",
        Severity.CRITICAL if target < open_file_cost(facts) else Severity.WARNING,
        context.paths(worst),
        evidence=f"the target file size is {size(target)}, {percent(target / split)} of a read split ({size(split)}). For {size(sum(n for _, n in files.values()))} "
        f"in {count(len(files), 'partition')} it asks for {count(asked, 'file')} (there are {sum(n for n, _ in files.values()):,}); a target of {size(split)} would ask for {enough:,}",
        threshold=f"a target below {percent(context.thresholds.small_target_share)} of read.split.target-size, and one partition with a split of such files, with "
        f"{context.thresholds.critical_files} of them too many, or with {context.thresholds.min_input_files} if the target is below what a file of these "
        "columns can be; critical below read.split.open-file-cost",
        source=f"{CHOICE}; read.split.target-size and read.split.open-file-cost are Iceberg's",
        effect="The files have the size that the table asks for, so compaction leaves them alone: each costs a request, a footer and a manifest entry, and a read task opens many of them.",
        remedy="Set a target of at least one read split before any rewrite, then rewrite the partitions that are no longer written to. "
        + (
            f"The statement names the {len(named):,} of them with the most files; icekit compact finds the other {len(closed) - len(named):,}. "
            if closed and named and len(closed) > len(named)
            else ""
        )
        + f"If the target is small on purpose, so that copy-on-write rewrites little, icekit tune write-mode {facts.name} compares merge-on-read.",
        sql=(
            context.alter({TARGET: str(split)} | ({"write.distribution-mode": "hash"} if is_scattered else {})),
            *_rewrite_of(context, named, split),
        ),
        files_at_stake=sum(n for n, _ in files.values()),
        bytes_at_stake=sum(n for _, n in files.values()),
    )


def _closed(facts: TableFacts, partitions: Sequence[Partition]) -> list[Partition] | None:
    """Those partitions whose time is over; None if the table is not partitioned by time."""
    spans = {p: partition_span(facts.spec(p.spec_id), p) for p in partitions}
    if not any(spans.values()):
        return None
    now = dt.datetime.fromtimestamp(facts.collected_at_ms / 1000, dt.UTC)
    return [p for p, time in spans.items() if time is not None and time[1] <= now and askable(facts.spec(p.spec_id), p)]


def _rewrite_of(context: Context, partitions: Sequence[Partition] | None, target_bytes: int) -> tuple[str, ...]:
    """The rewrite of these partitions, or of the table (None) for this target; none if there are no partitions."""
    facts, limits = context.facts, context.thresholds
    options = limit_options(limits, target_bytes)
    if partitions is None:
        return (context.rewrite(options),)
    predicate = where(facts.catalog, facts.specs_by_id, facts.columns, partitions) if partitions else None
    return (context.rewrite(options, where=predicate),) if predicate else ()


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
    listing = sql.identifier(*context.facts.sql_name, "partitions")
    return context.finding(
        "skewed_partitions",
        Severity.WARNING,
        context.paths(list(heavy)),
        evidence=f"the largest of {len(sizes):,} partitions holds {size(most)}, {most / median:,.0f} × the median of {size(median)}; "
        + (
            f"{count(len(heavy), 'partition')} above the threshold hold {percent(total / sum(sizes.values()))} of the bytes"
            if len(heavy) > 1
            else f"it has {percent(total / sum(sizes.values()))} of the bytes"
        ),
        threshold=f"{limits.skew_ratio:g} × the median partition, and more than one target file",
        source=CHOICE,
        effect="Spark divides work by partition: the task or rewrite group with the largest partition runs long after all others have finished.",
        remedy="Split the large partitions further, with a bucket transform of an evenly distributed column or a finer transform; the query lists partition sizes.",
        sql=(f"SELECT partition, record_count, file_count, total_data_file_size_in_bytes FROM {listing} ORDER BY 4 DESC LIMIT 20",),
        files_at_stake=files,
        bytes_at_stake=total,
    )


def thin_partitions(facts: TableFacts, limits: Thresholds) -> tuple[list[FileGroup], list[FileGroup]]:
    """The partitions of the current spec, and those too small for one file of the target size, smallest first; none if they are few or a minority."""
    groups = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id]
    if facts.default_spec.is_unpartitioned or not facts.target_bytes or len(groups) < limits.many_partitions:
        return groups, []
    thin = sorted(
        (g for g in groups if g.size_in_bytes < limits.thin_partition_share * facts.target_bytes),
        key=lambda g: (g.size_in_bytes, facts.partition_name(g.partition)),
    )
    return groups, thin if 2 * len(thin) > len(groups) else []


def over_partitioned(context: Context) -> Finding | None:
    """Most partitions are too small for one file of the target size, and compaction never combines files of two partitions."""
    facts, limits = context.facts, context.thresholds
    groups, thin = thin_partitions(facts, limits)
    if not thin:
        return None
    files, total = sum(g.file_count for g in thin), sum(g.size_in_bytes for g in thin)
    mean = total / len(thin)
    change = _coarser_spec(context, facts.target_bytes / mean)
    return context.finding(
        "over_partitioned",
        Severity.WARNING,
        context.paths([g.partition for g in thin]),
        evidence=f"{len(thin):,} of {count(len(groups), 'partition')} hold {size(mean)} on average; the target file size is {size(facts.target_bytes)}. "
        f"They have {count(files, 'data file')}; {expected_files(total, facts.target_bytes):,} of the target size would be enough",
        threshold=f"{limits.many_partitions} partitions, more than half of them smaller than {percent(limits.thin_partition_share)} of one target file",
        source=CHOICE,
        effect="A data file never holds rows of two partitions, so compaction cannot combine their files: scans open a small file for each partition, "
        "and each commit writes a small file into each partition it touches.",
        remedy="Partition by a coarser transform, and sort by the column so that filters still skip files. "
        f"icekit tune layout {facts.name} measures how much your filters gain or lose. "
        + (
            "The rewrite moves the old files into the new partitions."
            if change
            else "Which field to drop or replace depends on the filters of your queries."
        ),
        sql=(*change, context.rewrite()) if change else (),
        files_at_stake=files,
        bytes_at_stake=total,
    )


#: The next coarser transform of time, and how many partitions it combines into one.
_COARSER = {"hour": ("day", 24.0), "day": ("month", 30.4), "month": ("year", 12.0)}
_DAYS = ("date", "identity")


def _coarser_spec(context: Context, factor: float) -> tuple[str, ...]:
    """The statement that changes one field to make partitions about ``factor`` times larger: a time field first, then a bucket; none if there are only other fields."""
    facts = context.facts
    columns = {column.name: column for column in facts.columns}
    name = sql.identifier(*facts.sql_name)
    for field in facts.default_spec.fields:
        column = columns.get(field.source or "")
        start = "day" if column and (column.type, field.transform) == _DAYS else field.transform
        transform, reached = start, 1.0
        while transform in _COARSER and reached < factor:
            transform, times = _COARSER[transform]
            reached *= times
        if column and transform != start:
            old, new = (sql.transform_of(sql.identifier(*column.names), t) for t in (field.transform, transform))
            return (f"ALTER TABLE {name} REPLACE PARTITION FIELD {old} WITH {new}",)
    for field in facts.default_spec.fields:
        column = columns.get(field.source or "")
        buckets = int(field.transform.removeprefix("bucket[").rstrip("]")) if field.transform.startswith("bucket[") else 1
        if column and buckets > 1:
            old, new = (sql.transform_of(sql.identifier(*column.names), f"bucket[{n}]") for n in (buckets, int(buckets / factor)))
            change = f"REPLACE PARTITION FIELD {old} WITH {new}" if buckets >= 2 * factor else f"DROP PARTITION FIELD {old}"
            return (f"ALTER TABLE {name} {change}",)
    return ()


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
    listing = sql.identifier(*context.facts.sql_name, "files")
    return context.finding(
        "old_partition_spec",
        Severity.WARNING if share >= 0.1 else Severity.INFO,
        context.paths([g.partition for g in sorted(old, key=lambda g: -g.size_in_bytes)]),
        evidence=f"{count(files, 'data file')} of {facts.data.file_count:,} ({percent(share)} of the bytes) {'was' if files == 1 else 'were'} written under spec {', '.join(map(str, specs))}; "
        f"the current spec is {facts.default_spec_id} ({now})",
        threshold="any live data file of a spec that is not the default",
        source="table spec, Partition Evolution: old files keep their old layout",
        effect="Filters on the new partition fields skip none of these files, and storage-partitioned joins cannot use the new spec.",
        remedy=f"If filters on the new fields matter, run icekit compact {facts.name} --old-specs, which moves these files partition by partition "
        "and says how many files they become; other compactions leave them where they are, unless that saves file opens.",
        sql=(
            f"SELECT partition, count(*) AS files, sum(file_size_in_bytes) AS bytes FROM {listing} "
            f"WHERE content = 0 AND spec_id <> {facts.default_spec_id} GROUP BY partition ORDER BY bytes DESC",
        ),
        files_at_stake=files,
        bytes_at_stake=total,
    )


def shared_location(context: Context) -> Finding | None:
    """Another table keeps files in this table's location; only if storage was listed."""
    storage = context.facts.storage
    if storage is None or not storage.sharing.shared:
        return None
    return context.finding(
        "shared_location",
        Severity.WARNING,
        [place.path for place in storage.sharing.shared],
        evidence=f"{storage.sharing.told}; this table's is {context.facts.location}",
        threshold="one table of the catalog with a path that equals, contains or lies inside a path of this table",
        source="remove_orphan_files: removes every file in the location that this table does not reference",
        effect="Files of the other table look like orphans of this table: removing them destroys the other table. CREATE, RENAME, then CREATE with the old name puts two tables into one location.",
        remedy="Do not remove orphan files here. Copy one of the tables to its own location (CREATE TABLE … AS SELECT).",
    )


def orphan_files(context: Context) -> Finding | None:
    """Files in the table's location that no snapshot references; only if storage was listed."""
    storage = context.facts.storage
    if storage is None or not storage.orphan_count:
        return None
    unknown = f"; they may belong to another table ({storage.sharing.unchecked})" if storage.sharing.unchecked else ""
    return context.finding(
        "orphan_files",
        Severity.WARNING,
        storage.examples,
        evidence=f"{storage.told} under {context.facts.location} in no snapshot, and older than 3 days{unknown}",
        threshold="one file older than 3 days",
        source="remove_orphan_files: older_than",
        effect="Orphan files cost storage and nothing reads them; failed and killed writers leave them behind.",
        remedy="List the orphan files again, check the list, then run the call without dry_run. Make sure that no other table references files in the location.",
        sql=(context.list_orphans(),),
        files_at_stake=storage.orphan_count,
        bytes_at_stake=storage.orphan_bytes or 0,
    )


# --- Symptoms of the metadata layers: manifests, snapshots, metadata files


#: A choice: the time of one small request to an object store, in seconds.
_REQUEST_SECONDS = 0.02


def fragmented_manifests(context: Context) -> Finding | None:
    """Many data manifests that would fit into few."""
    facts, limits = context.facts, context.thresholds
    manifests = facts.manifests
    target = facts.int_setting("commit.manifest.target-size-bytes")
    of_specs = [(of_spec.data_count, expected_manifests(of_spec.data_bytes, target)) for of_spec in manifests.by_spec if of_spec.data_count]
    needed = sum(fewest for _, fewest in of_specs)
    if manifests.undersized_data_manifest_count < limits.fragmented_manifests or all(n <= 2 * fewest for n, fewest in of_specs):
        return None
    saved = manifests.data_count - needed
    merging = (facts.setting("commit.manifest-merge.enabled") or "true").lower() == "true"
    sql = [context.call("rewrite_manifests")]
    if not merging:
        sql.append(context.alter({"commit.manifest-merge.enabled": "true"}))
    return context.finding(
        "fragmented_manifests",
        Severity.WARNING,
        (),
        evidence=f"{count(manifests.data_count, 'data manifest')} of {size(manifests.data_bytes / manifests.data_count)} on average with "
        f"{manifests.data_entry_count / manifests.data_count:,.1f} live entries each; {needed:,} of {size(target)} would be enough"
        + ("" if merging else "; merging on commit is turned off"),
        threshold=f"{limits.fragmented_manifests} data manifests smaller than half of commit.manifest.target-size-bytes",
        source="commit.manifest.min-count-to-merge: the count at which commits merge manifests",
        effect="Every query opens every manifest that its filter cannot rule out: planning waits for one request per manifest before the first row is read. "
        f"A rewrite saves a query up to {count(saved, 'request')}: {elapsed(saved * _REQUEST_SECONDS)} of planning on an object store at 20 ms "
        f"each, hardly any on a local disk. icekit tune planning {facts.name} measures it.",
        remedy="Rewrite the manifests; this does not touch data files."
        + ("" if merging else " Turn merging on again. If a streaming writer needs it off, rewrite the manifests on a schedule instead."),
        sql=tuple(sql),
        files_at_stake=manifests.data_count,
        bytes_at_stake=manifests.data_bytes,
    )


def overlapping_manifests(context: Context) -> Finding | None:
    """Manifests whose partition ranges overlap, so that partition filters skip none.

    Checked only if a rewrite would leave several manifests; otherwise there is nothing to
    cluster.
    """
    facts, limits = context.facts, context.thresholds
    target = facts.int_setting("commit.manifest.target-size-bytes")
    if facts.manifests.data_bytes <= 2 * target:
        return None
    overlaps = [
        o for o in facts.manifests.overlaps if o.spec_id == facts.default_spec_id and o.manifest_count >= limits.overlap_min_manifests
    ]
    if not overlaps:
        return None
    # A filter on the best clustered field still skips manifests.
    best = min(overlaps, key=lambda o: o.mean_share)
    if best.mean_share < limits.overlap_share:
        return None
    return context.finding(
        "overlapping_manifests",
        Severity.WARNING,
        tuple(o.field for o in overlaps),
        evidence=f"a manifest's range of {best.field} overlaps {percent(best.mean_share)} of the other {count(best.manifest_count - 1, 'manifest')} on average; every other partition field is as bad or worse",
        threshold=f"{percent(limits.overlap_share)} of the other manifests, with {limits.overlap_min_manifests} manifests or more",
        source=CHOICE,
        effect="A query for one partition opens most manifests, because almost every manifest may list its files.",
        remedy="Rewrite the manifests, which groups their entries by partition.",
        sql=(context.call("rewrite_manifests"),),
        files_at_stake=best.manifest_count,
        bytes_at_stake=facts.manifests.data_bytes,
    )


def snapshots_piling_up(context: Context) -> Finding | None:
    """More snapshots than anybody uses for time travel."""
    history, limits = context.facts.history, context.thresholds
    if history.snapshot_count < limits.snapshots or history.oldest_snapshot_ms is None or history.newest_snapshot_ms is None:
        return None
    facts = context.facts
    kept = span(history.newest_snapshot_ms - history.oldest_snapshot_ms)
    max_age = facts.int_setting("history.expire.max-snapshot-age-ms")
    retained = max(10, facts.int_setting("history.expire.min-snapshots-to-keep"))
    remedy = f"Expire snapshots older than the table's limit of {span(max_age)} and keep the last {retained}. Time travel to an expired snapshot is impossible, so first agree on how far back people need to look."
    if history.newest_snapshot_ms - history.oldest_snapshot_ms < max_age:
        remedy += " No snapshot has reached that age: lower history.expire.max-snapshot-age-ms if a shorter history is enough."
    collected = (facts.setting("gc.enabled") or "true").lower() == "true"
    gone = history.expirable_count
    if collected and gone == 0:
        remedy += (
            " No snapshot would expire now: each is younger, among the last of a branch (every branch keeps its own), or the head of a branch or tag. "
            f"Drop branches and tags that nobody needs, or state a shorter retention: icekit maintain {facts.name} --keep TIME --keep-last N."
        )
    would = f"; {gone:,} would expire now" if collected and gone is not None else ""
    return context.finding(
        "snapshots_piling_up",
        Severity.WARNING,
        (),
        evidence=f"{count(history.snapshot_count, 'snapshot')} over {kept}; {count(len(history.refs), 'branch or tag', 'branches and tags')} protected{would}",
        threshold=f"{limits.snapshots} snapshots",
        source=CHOICE,
        effect="Each commit rewrites the list of all snapshots, each query plan reads it, and no file that a snapshot references can be deleted.",
        remedy=remedy
        if collected
        else "The table has gc.enabled=false, so snapshots must not be expired: another table may share its files.",
        sql=(context.call("expire_snapshots", retain_last=retained),) if collected and gone != 0 else (),
        files_at_stake=history.snapshot_count,
    )


def metadata_files_piling_up(context: Context) -> Finding | None:
    """A full metadata log, with deletion turned off: older metadata files leave the log but stay in storage."""
    facts = context.facts
    kept = facts.int_setting("write.metadata.previous-versions-max")
    limit = min(kept, context.thresholds.metadata_log)
    deleting = (facts.setting("write.metadata.delete-after-commit.enabled") or "false").lower() == "true"
    if deleting or facts.history.metadata_log_count < limit:
        return None
    return context.finding(
        "metadata_files_piling_up",
        Severity.INFO,
        (),
        evidence=f"the metadata log holds {count(facts.history.metadata_log_count, 'file')}, and write.metadata.delete-after-commit.enabled is false",
        threshold=f"{limit} entries: write.metadata.previous-versions-max, at most {context.thresholds.metadata_log}",
        source="table properties of metadata file retention",
        effect="Each commit drops the oldest entry from the log and leaves its file in storage, where only a search for orphan files finds it.",
        remedy="Let commits delete the metadata files that they drop. Files dropped earlier need remove_orphan_files.",
        sql=(context.alter({"write.metadata.delete-after-commit.enabled": "true"}), context.list_orphans()),
        files_at_stake=facts.history.metadata_log_count,
    )


def stale_statistics(context: Context) -> Finding | None:
    """Table or partition statistics of a snapshot from before many rows changed."""
    facts, limits = context.facts, context.thresholds
    stale = [
        age
        for age in facts.statistics
        if age.commit_count and age.record_count is not None and age.changed_count > limits.stale_statistics * age.record_count
    ]
    if not stale:
        return None
    told = (
        f"{age.statistics.kind} statistics are of snapshot {age.snapshot_id}, {count(age.commit_count, 'commit')} ago: it had "
        f"{count(age.record_count or 0, 'record')}, and {age.changed_count:,} were added or deleted since"
        for age in stale
    )
    return context.finding(
        "stale_statistics",
        Severity.INFO,
        [str(age.snapshot_id) for age in stale],
        evidence="; ".join(told),
        threshold=f"records added and deleted since: more than {percent(limits.stale_statistics)} of those at the time",
        source=CHOICE,
        effect="Spark's cost-based optimizer and Trino plan joins by the number of distinct values in these statistics, and choose badly if they no longer hold.",
        remedy="Compute the statistics again, best after each large load. If nothing renews them, let Spark ignore them: spark.sql.iceberg.report-column-stats=false.",
        sql=tuple(renewal(facts.catalog, facts.table, age.statistics) for age in stale),
    )


# --- Findings about column statistics: missing where filters need them, kept where nothing uses them


_NEVER_BOUNDED = ("list", "map", "struct", "variant", "geometry", "geography", "unknown")


def metrics_missing(context: Context) -> Finding | None:
    """Columns that filters use, without bounds in the files."""
    facts = context.facts
    sample = facts.metrics_sample
    roles: dict[str, str] = {}
    # The partition's value answers a filter on the column of an identity field, in files of every spec that has it.
    known = set.intersection(
        *(_identities(facts.spec(i)) for i in {g.partition.spec_id for g in facts.of_kind(Kind.DATA)} or {facts.default_spec_id})
    )
    for field in facts.default_spec.fields:
        if field.source and field.transform != "void":
            roles[field.source] = "partition source"
    roles.update({f.source: "sort order" for f in facts.sort_order})
    roles.update(dict.fromkeys(facts.filter_columns, "filter"))
    columns = {c.name: c for c in facts.columns}
    sick = {}
    for name, role in roles.items():
        column = columns.get(name)
        if column is None or column.type.startswith(_NEVER_BOUNDED) or name in known:
            continue
        seen = sample.column(name)
        if column.metrics_mode in {"none", "counts"} or (sample.file_count and seen and not seen.counts_file_count):
            sick[name] = f"{role}, mode {column.metrics_mode}"
    if not sick or not sample.file_count:
        return None
    without = {name: sample.file_count - (seen.bounds_file_count if (seen := sample.column(name)) else 0) for name in sick}
    if not any(without.values()):
        return None
    properties = {
        f"write.metadata.metrics.column.{name}": "truncate(16)" for name in sick if columns[name].metrics_mode in {"none", "counts"}
    }
    return context.finding(
        "metrics_missing",
        Severity.WARNING,
        tuple(sick),
        evidence="; ".join(
            f"{name} ({sick[name]}) has no bounds in {without[name]} of {sample.file_count} sampled data files" for name in list(sick)[:5]
        ),
        threshold="a partition-source, sort or declared filter column without bounds",
        source="write.metadata.metrics.*: scan planning skips files only by bounds",
        effect="A filter on such a column skips no file: a query opens every file that partition filters leave.",
        remedy="Keep bounds for these columns. New files get bounds at once, existing files when they are rewritten."
        if properties
        else "The table asks for these bounds already: the files are older than that, or their writer keeps none. "
        f"icekit compact {facts.name} --scope major --budget '100 GB' rewrites them in portions.",
        sql=(context.alter(properties), context.rewrite()) if properties else (),
        files_at_stake=facts.data.file_count,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def _identities(spec: PartitionSpec) -> set[str]:
    return {field.source for field in spec.fields if field.source and field.transform == "identity"}


def columns_past_metrics_limit(context: Context) -> Finding | None:
    """More columns than Iceberg collects metrics for: the rest silently have none."""
    facts = context.facts
    limit = facts.int_setting("write.metadata.metrics.max-inferred-column-defaults")
    if len(facts.columns) <= limit or "write.metadata.metrics.default" in facts.properties:
        return None
    bare = [c.name for c in facts.columns if c.metrics_mode == "none"]
    nested = facts.top_level_column_count < len(facts.columns)
    return context.finding(
        "columns_past_metrics_limit",
        Severity.INFO,
        tuple(bare),
        evidence=f"{len(facts.columns):,} columns{f' in {facts.top_level_column_count:,} top-level ones' if nested else ''}; "
        f"{count(len(bare), 'column')} beyond the first {limit} get no metrics",
        threshold=f"{limit} columns, counting the fields of structs, lists and maps",
        source="write.metadata.metrics.max-inferred-column-defaults",
        effect="The order of the columns decides which filters can skip files; a column added later never has bounds.",
        remedy="Choose explicitly: no metrics by default, and bounds for the columns that queries filter by. Declare those columns (icekit.filter-columns) to get the statement.",
        sql=_state_metrics(context),
        files_at_stake=facts.data.file_count,
    )


def too_many_metrics(context: Context) -> Finding | None:
    """Statistics of too many columns in every manifest entry."""
    facts, limits = context.facts, context.thresholds
    sample = facts.metrics_sample
    kept = [c for c in sample.columns if c.counts_file_count]
    per_entry = facts.manifests.bytes_per_data_entry
    if len(kept) <= limits.metrics_columns or per_entry is None:
        return None
    return context.finding(
        "too_many_metrics",
        Severity.INFO,
        (),
        evidence=f"every data file has statistics of {len(kept):,} columns: {size(per_entry)} of manifest per data file, {size(facts.manifests.data_bytes)} in total",
        threshold=f"{limits.metrics_columns} columns with metrics",
        source=CHOICE,
        effect="Planning reads and decodes all statistics to use the bounds of the one or two columns in the filter; drivers hold them in memory.",
        remedy="Keep metrics only for the columns that queries filter or sort by. Existing files keep their statistics until they are rewritten. Declare the columns (icekit.filter-columns) to get the statement.",
        sql=_state_metrics(context),
        files_at_stake=facts.data.file_count,
        bytes_at_stake=facts.manifests.data_bytes,
    )


def unclustered_filter_columns(context: Context) -> Finding | None:
    """Declared filter columns, or the first sort column, whose bounds rule out almost no file."""
    facts, limits = context.facts, context.thresholds
    sample = facts.metrics_sample
    # Sorting clusters only the first sort column; it orders the next ones only within equal values of the first.
    wanted = dict.fromkeys((*facts.filter_columns, *(f.source for f in facts.sort_order[:1] if f.transform == "identity")))
    sick: list[tuple[ColumnSample, float]] = []
    for name in wanted:
        seen = sample.column(name)
        if (
            seen
            and seen.stab_share is not None
            and seen.bounds_file_count >= limits.min_sampled_files
            and seen.stab_share >= limits.stab_share
        ):
            sick.append((seen, seen.stab_share))
    if not sick:
        return None
    names = [seen.column for seen, _ in sick]
    texts = any(c.type == "string" and c.metrics_mode.startswith("truncate") for c in facts.columns if c.name in names)
    alike = (
        " For strings with a long shared prefix, sorting does not help while bounds are truncated: tune the metrics first." if texts else ""
    )
    paths = {c.name: c.names for c in facts.columns}
    quoted = [sql.identifier(*paths.get(name, (name,))) for name in names]
    # The first column wins most, a second one little, further ones nothing; only a trial shows whether a curve does better.
    order = ", ".join(f"{name} ASC NULLS LAST" for name in quoted[:2])
    statements = [context.rewrite(strategy="sort", sort_order=order)]
    if not facts.sort_order:
        statements.append(f"ALTER TABLE {sql.identifier(*context.facts.sql_name)} WRITE ORDERED BY {order}")
    return context.finding(
        "unclustered_filter_columns",
        Severity.WARNING,
        tuple(names),
        evidence="; ".join(
            f"a value of {seen.column} is within the bounds of {percent(share)} of {seen.bounds_file_count} sampled data files"
            for seen, share in sick
        ),
        threshold=f"{percent(limits.stab_share)} of at least {limits.min_sampled_files} files",
        source=CHOICE,
        effect="Bounds are stored and read, but skip almost no file: each file covers nearly the full range of values.",
        remedy="Sort by the columns that most queries filter by, in portions: a rewrite takes well-sized files only with the option rewrite-all, so use it with a "
        f"where filter that keeps each run small. icekit tune layout {facts.name} tries other orders.{alike}",
        sql=tuple(statements),
        files_at_stake=facts.data.file_count,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def _state_metrics(context: Context) -> tuple[str, ...]:
    """ALTER TABLE that keeps bounds only for filter, sort, partition and delete key columns.

    Empty while no filter columns are declared: the statement could remove bounds that
    some query uses to skip files.
    """
    facts = context.facts
    if not facts.filter_columns:
        return ()
    wanted = [*facts.filter_columns, *(f.source for f in facts.default_spec.fields if f.source), *(f.source for f in facts.sort_order)]
    # A data file without bounds of the key loads every equality delete file (DeleteFileIndex).
    wanted += [c.name for c in facts.columns if any(c.field_id in key.field_ids for key in facts.equality_keys)]
    properties = {"write.metadata.metrics.default": "none"}
    properties.update({f"write.metadata.metrics.column.{name}": "truncate(16)" for name in dict.fromkeys(wanted)})
    return (context.alter(properties),)
