"""Check merge-on-read and how the table is written: one function per finding."""

from __future__ import annotations

import statistics

from icekit.diagnose.findings import Context, Finding, Severity, agree
from icekit.engine.cluster import caches_deletes
from icekit.facts.files import DELETE_KINDS, Kind, Partition
from icekit.facts.integrity import DeleteState
from icekit.facts.metadata import MODES
from icekit.facts.rollup import (
    delete_ratios,
    equality_deletes_applied,
    sequences_by_partition,
)
from icekit.sql import unset_properties
from icekit.units import count, counted, percent, size

_UPSERT = "write.upsert.enabled"


def equality_deletes(context: Context) -> Finding | None:
    """Equality deletes that apply to data: the most expensive kind of delete to read."""
    facts, limits = context.facts, context.thresholds
    applied = sorted(equality_deletes_applied(facts), key=lambda a: -a.loads)
    if not applied:
        return None
    total = facts.total(Kind.EQUALITY_DELETES)
    rows = sum(a.data_record_count for a in applied)
    files = sum(a.data_file_count for a in applied)
    # A writer may have left data files without a row.
    ratio, reached = (n / max(facts.data.record_count, 1) for n in (total.record_count, rows))
    executor, heap = context.executor, context.rewrite_heap_bytes
    session = "this session has" if context.session_conf is not None else "an executor usually has"
    needs = (
        f"Spark's own rewrite needs about {size(heap)} of heap per executor of "
        f"{count(executor.cores, 'core')}, and {session} {size(executor.heap_bytes)}"
    )
    first = (
        f"Run icekit compact {facts.name}, which applies the equality deletes as it rewrites and "
        f"does not need the memory of Spark's own rewrite: {needs}."
        if context.resolves_first
        else f"Rewrite the data files that the deletes apply to: {needs}."
    )
    return context.finding(
        Severity.CRITICAL if ratio >= limits.critical_delete_ratio else Severity.WARNING,
        context.paths([a.partition for a in applied]),
        evidence=f"{count(total.record_count, 'equality delete record')} in "
        f"{count(total.file_count, 'file')} {agree(total.record_count, 'applies', 'apply')} "
        f"to at most {files:,} of {facts.data.file_count:,} data files ({percent(reached)} of the "
        f"rows). A full scan loads {count(sum(a.loads for a in applied), 'delete record')}, up to "
        f"{max(a.max_deletes_per_file for a in applied):,} for one file",
        threshold="any equality delete with a higher sequence number than data whose key bounds "
        "it meets",
        source="table spec, Scan Planning",
        effect="For every data file, a reader builds a hash set of all later delete records: work "
        "grows with the square of the commits, and memory with keys × cores.",
        remedy=f"{first} Afterwards, commit less often, or write position deletes or deletion "
        "vectors.",
        sql=() if context.resolves_first else (context.rewrite({"delete-file-threshold": "1"}),),
        files_at_stake=files + total.file_count,
        bytes_at_stake=total.size_in_bytes
        + facts.data.size_in_bytes * files // facts.data.file_count,
    )


def executor_cache(context: Context) -> Finding | None:
    """Equality deletes read through the executor cache, which can hang or return wrong rows."""
    if not any(True for _ in equality_deletes_applied(context.facts)):
        return None
    conf = context.session_conf
    if conf is not None and not caches_deletes(conf):
        return None
    sessions = "this session"
    if conf is None:
        sessions = "every Spark session that does not turn it off"
    total = context.facts.total(Kind.EQUALITY_DELETES)
    return context.finding(
        Severity.WARNING,
        evidence=f"the executor cache for delete files is on in {sessions}, and "
        f"{counted(total.file_count, 'equality delete file', 'applies', 'apply')} to this table",
        threshold="spark.sql.iceberg.executor-cache.enabled is true (Iceberg's default)",
        source="apache/iceberg issues 10987 and 15039",
        effect="After a query with other columns, a query can miss deletes and return rows that "
        "are gone; with one or two cores a read can hang forever.",
        remedy="Start sessions that read this table with "
        "spark.sql.iceberg.executor-cache.enabled=false until no equality deletes are left. Set "
        "it before the first read: later changes have no effect.",
        files_at_stake=total.file_count,
    )


def position_deletes(context: Context) -> Finding | None:
    """Position deletes that cover a large share of the rows."""
    facts = context.facts
    partitions, severity = _heavy(context, Kind.POSITION_DELETES)
    total = facts.total(Kind.POSITION_DELETES)
    if not partitions or not total.file_count:
        return None
    scoped = sum(g.file_scoped_count for g in facts.of_kind(Kind.POSITION_DELETES))
    # The ratio rule counts only deletes that name one data file; the count rule counts all.
    option = (
        {"delete-ratio-threshold": f"{context.thresholds.delete_ratio:g}"}
        if scoped == total.file_count
        else {"delete-file-threshold": "1"}
    )
    return context.finding(
        severity,
        partitions,
        evidence=f"{count(total.record_count, 'position delete record')} in "
        f"{count(total.file_count, 'delete file')} for {facts.data.record_count:,} rows "
        f"({percent(total.record_count / facts.data.record_count)}); "
        f"{counted(scoped, 'delete file', 'covers', 'each cover')} only one data file",
        threshold=f"{percent(context.thresholds.delete_ratio)} of the rows of the table or a "
        "partition",
        effect="Every scan reads the delete files and skips the deleted rows. Deleted rows still "
        "take storage and still count in file statistics.",
        remedy="Rewrite the data files with many deletes, then combine the remaining delete files.",
        sql=(
            context.rewrite(option),
            context.call("rewrite_position_delete_files"),
        ),
        at_stake=total,
    )


def v2_position_deletes(context: Context) -> Finding | None:
    """Position delete files where format v3 would keep one deletion vector per data file."""
    facts = context.facts
    total = facts.total(Kind.POSITION_DELETES)
    if facts.format_version != 2 or not total.file_count:
        return None
    return context.finding(
        Severity.INFO,
        evidence=f"format version 2 with {count(total.file_count, 'position delete file')}",
        threshold="any live position delete file on a version 2 table",
        source="table spec, version 3: Deletion Vectors",
        effect="Version 3 keeps at most one small bitmap per data file and merges it at each "
        "write; version 2 adds a delete file per change, and scans must read all of them.",
        remedy="If every engine that reads or writes the table supports version 3, upgrade it; "
        "the upgrade cannot be undone. Then rewrite_position_delete_files converts the remaining "
        "delete files.",
        sql=(context.alter({"format-version": "3"}),),
        at_stake=total,
    )


def deletion_vectors(context: Context) -> Finding | None:
    """Deletion vectors that cover a large share of the rows."""
    facts = context.facts
    partitions, severity = _heavy(context, Kind.DELETION_VECTORS)
    total = facts.total(Kind.DELETION_VECTORS)
    if not partitions or not total.file_count:
        return None
    return context.finding(
        severity,
        partitions,
        evidence=f"{counted(total.file_count, 'deletion vector', 'hides', 'hide')} "
        f"{total.record_count:,} of "
        f"{facts.data.record_count:,} rows "
        f"({percent(total.record_count / facts.data.record_count)}) in "
        f"{percent(total.file_count / facts.data.file_count)} of the data files",
        threshold=f"{percent(context.thresholds.delete_ratio)} of the rows of the table or a "
        "partition",
        effect="Scans read the hidden rows only to drop them, and the rows still take storage. "
        "Deletion vectors are cheap; the rows that they hide are not.",
        remedy="Rewrite the data files that have lost a large share of their rows.",
        sql=(context.rewrite({"delete-ratio-threshold": f"{context.thresholds.delete_ratio:g}"}),),
        at_stake=total,
    )


def dangling_deletes(context: Context) -> Finding | None:
    """Delete files that apply to no data file, see :class:`~icekit.facts.integrity.DeleteState`.

    Compaction asks a scan which of them it drops: some readers apply a delete of a single data file
    whatever folder its path names.
    """
    facts = context.facts
    dangling, where = context.unapplied(DeleteState.DANGLING)
    files, records = dangling.file_count, dangling.record_count
    if not files:
        return None
    total = sum(facts.total(kind).file_count for kind in DELETE_KINDS)
    total += sum(each.file_count for each in facts.unapplied)
    return context.finding(
        Severity.WARNING,
        where,
        evidence=f"{files:,} of {count(total, 'delete file')} ({count(records, 'record')}) "
        f"{agree(files, 'applies', 'apply')} to no data file",
        threshold="one delete file that applies to no data",
        source="table spec, Scan Planning",
        effect="They delete no row. Planning still reads their entries and matches them to data "
        "files, and routine maintenance does not remove them.",
        remedy=f"Run icekit compact {facts.name}, which drops those of them that a scan gives to "
        "no data file, even if no data file needs a rewrite.",
        at_stake=dangling,
    )


def equality_deletes_of_new_keys(context: Context) -> Finding | None:
    """Equality deletes that a stream of new rows writes in upsert mode: they delete nothing."""
    facts = context.facts
    of_new_keys, where = context.unapplied(DeleteState.NEW_KEYS)
    files, records = of_new_keys.file_count, of_new_keys.record_count
    if not files:
        return None
    total = facts.total(Kind.EQUALITY_DELETES).file_count + sum(
        each.file_count for each in facts.unapplied if each.kind is Kind.EQUALITY_DELETES
    )
    return context.finding(
        Severity.WARNING,
        where,
        evidence=f"{files:,} of {count(total, 'equality delete file')} "
        f"({count(records, 'record')}) {agree(files, 'deletes', 'delete')} only keys outside "
        "the key ranges of all older data files",
        threshold="one equality delete file whose key bounds meet those of no older data file",
        source="DeleteFileIndex: canContainEqDeletesForFile",
        effect="They delete no row, and no scan opens them. But every commit writes a delete file "
        "beside each data file, and planning reads the entries of both with their bounds.",
        remedy="If the stream only adds rows with new keys, turn off the writer's upsert mode "
        "(write.upsert.enabled in Flink). Compaction alone does not help: the writer adds delete "
        f"files with every commit. Later, icekit compact {facts.name} drops those that are older "
        "than the data files it has rewritten.",
        sql=(context.alter({_UPSERT: "false"}),) if facts.is_on(_UPSERT) else (),
        at_stake=of_new_keys,
    )


def deletes_default_rewrite_ignores(context: Context) -> Finding | None:
    """Well-sized data files with deletes that the default rewrite does not count.

    ``delete-ratio-threshold`` counts only deletes that name a single file, and
    ``delete-file-threshold`` is unlimited by default: equality deletes and partition-scoped
    position deletes of well-sized data files therefore stay.
    """
    facts = context.facts
    blind: dict[Partition, tuple[int, int]] = {}
    for applied in equality_deletes_applied(facts):
        if applied.well_sized_file_count:
            blind[applied.partition] = applied.well_sized_file_count, applied.well_sized_bytes
    scoped = {
        g.partition: g.file_scoped_count == g.file_count
        for g in facts.of_kind(Kind.POSITION_DELETES)
    }
    for partition, rows in sequences_by_partition(facts).items():
        if partition in blind or scoped.get(partition, True):
            continue
        newest = max((r.sequence_number for r in rows if r.position_delete_file_count), default=-1)
        under = [r for r in rows if r.sequence_number <= newest and r.well_sized_file_count]
        if under:
            blind[partition] = (
                sum(r.well_sized_file_count for r in under),
                sum(r.well_sized_bytes for r in under),
            )
    if not blind:
        return None
    files, total = (sum(row[i] for row in blind.values()) for i in (0, 1))
    return context.finding(
        Severity.WARNING,
        context.paths(sorted(blind, key=lambda p: -blind[p][1])),
        evidence=f"{files:,} of {facts.data.file_count:,} data files "
        f"{agree(files, 'is well-sized and has', 'are well-sized and have')} deletes that a "
        "default rewrite_data_files does not count",
        threshold="one well-sized data file with equality deletes, or with position deletes that "
        "do not name a single data file",
        source="rewrite_data_files: delete-file-threshold (unlimited) and delete-ratio-threshold "
        "(file-scoped deletes only)",
        effect="Nightly compaction reports success but leaves these deletes in place, so reads "
        "keep getting slower.",
        remedy="Set delete-file-threshold=1, which selects every data file that any delete may "
        "apply to.",
        sql=(context.rewrite({"delete-file-threshold": "1"}),),
        files_at_stake=files,
        bytes_at_stake=total,
    )


def merge_on_read_on_v1(context: Context) -> Finding | None:
    """Merge-on-read is set on a table of format version 1, which cannot have delete files."""
    facts = context.facts
    modes = [name for name in MODES if facts.properties.get(name) == "merge-on-read"]
    if facts.format_version != 1 or not modes:
        return None
    return context.finding(
        Severity.WARNING,
        modes,
        evidence=f"format version 1 with {' = merge-on-read, '.join(modes)} = merge-on-read",
        threshold="merge-on-read for one kind of statement on a version 1 table",
        source="table spec, version 1: no delete files (a commit fails with: Deletes are "
        "supported in V2 and above)",
        effect="Such a DELETE, UPDATE or MERGE runs, writes its delete files, and then fails at "
        "the commit.",
        remedy="Remove the setting, so that these statements copy the files they change. Or "
        f"upgrade the table to format version 2 ({context.alter({'format-version': '2'})}), if "
        "every engine that reads it applies delete files; the upgrade cannot be undone.",
        sql=(unset_properties(facts.sql_name, modes),),
    )


def _heavy(context: Context, kind: Kind) -> tuple[list[str], Severity]:
    """Partitions whose share of deleted records is over the limit; critical if the deleted share of
    the table reaches the limit at which a rewrite would act.
    """
    limits, rows = context.thresholds, context.facts.data.record_count
    counted = [
        (partition, ratio.totals[kind].record_count, ratio.totals[Kind.DATA].record_count)
        for partition, ratio in delete_ratios(context.facts).items()
    ]
    heavy = [
        (deleted / existing, deleted, partition)
        for partition, deleted, existing in counted
        if existing and deleted / existing >= limits.delete_ratio
    ]
    total = sum(deleted for _, deleted, _ in heavy)
    is_critical = rows and total / rows >= limits.critical_delete_ratio
    worst = sorted(heavy, key=lambda each: -each[0])
    return (
        context.paths([partition for *_, partition in worst]),
        Severity.CRITICAL if is_critical else Severity.WARNING,
    )


def distribution_mode(context: Context) -> Finding | None:
    """Recent appends that wrote several small files into each partition they touched."""
    facts, limits = context.facts, context.thresholds
    if facts.default_spec.is_unpartitioned or not limits.recent_commits:
        return None
    recent = [
        (c.added_data_files, c.changed_partitions, c.added_bytes)
        for c in facts.history.commits[-limits.recent_commits :]
        if c.operation == "append" and c.added_data_files and c.changed_partitions and c.added_bytes
    ]
    # One file per partition and one per target size are not a problem: the bytes alone explain
    # them.
    scattered = [
        (f, p, b)
        for f, p, b in recent
        if f > limits.files_per_partition_per_commit * (p + b / facts.target_bytes)
    ]
    if not scattered or len(scattered) * 2 < len(recent):
        return None
    per_partition = statistics.median(f / p for f, p, _ in scattered)
    mean_bytes = statistics.median(b / f for f, _, b in scattered)
    append = facts.distribution[0]
    if append.mode == "none":
        remedy = (
            "Let Spark group the rows by partition before it writes: one more shuffle, and about "
            "one file per partition and commit."
        )
        sql: tuple[str, ...] = (context.alter({"write.distribution-mode": "hash"}),)
    else:
        remedy = (
            "Spark shuffles the rows, but into small tasks: check that adaptive execution is on "
            "and that no session or write option overrides the table's distribution."
        )
        sql = ()
    return context.finding(
        Severity.WARNING,
        evidence=f"{len(scattered):,} of the last {count(len(recent), 'append')} wrote "
        f"{per_partition:,.1f} files per partition (median), {size(mean_bytes)} each, with "
        f"write.distribution-mode={append.mode} ({append.origin})",
        threshold=f"{limits.files_per_partition_per_commit:g} × one file per partition and one "
        "per target size written",
        effect="Every task writes its own file into every partition it has rows for: tasks × "
        "partitions files, however few the rows.",
        remedy=remedy,
        sql=sql,
        files_at_stake=sum(f for f, _, _ in recent),
        bytes_at_stake=sum(b for _, _, b in recent),
    )
