"""Check the deletes of merge-on-read: one function per finding."""

from typing import Any

from icekit.common.sql import unset_properties_sql
from icekit.common.units import count, first_names, percent, size
from icekit.engine.cluster import caches_deletes
from icekit.health.diagnose.findings import Context, Finding, Severity
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.rollup import (
    delete_ratios,
    equality_deletes_applied,
    sequences_by_partition,
)
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.metadata import MODES
from icekit.iceberg.partition import Partition

_UPSERT_PROPERTY = "write.upsert.enabled"


def equality_deletes(context: Context) -> Finding | None:
    """Equality deletes that apply to data: the most expensive kind of delete to read."""
    facts = context.facts
    heap_forecast = context.heap
    if heap_forecast.is_empty:
        return None
    deletes_per_partition = sorted(equality_deletes_applied(facts), key=lambda a: -a.record_loads)
    affected_row_count = sum(a.data_record_count for a in deletes_per_partition)
    # A writer may have left data files without a row.
    delete_ratio = heap_forecast.delete_record_count / max(facts.data.record_count, 1)
    affected_row_share = affected_row_count / max(facts.data.record_count, 1)
    is_critical = delete_ratio >= context.thresholds.critical_delete_ratio
    session_heap_text = (
        "this session has" if context.session_conf is not None else "an executor usually has"
    )
    fit_text = ": it fits" if heap_forecast.verdict == "fits" else ""
    first_step_text = (
        "Rewrite the data files that the deletes apply to"
        if heap_forecast.verdict == "fits" and not facts.misread_keys
        else f"Run {context.command('compact')}, which applies the equality deletes as it rewrites "
        "and does not need the memory of Spark's own rewrite"
    )
    return context.finding(
        context.partition_names(a.partition for a in deletes_per_partition),
        severity=Severity.CRITICAL if is_critical else Severity.WARNING,
        figure=count(heap_forecast.delete_record_count, "record"),
        evidence=f"{count(heap_forecast.delete_record_count, 'equality delete record')} in "
        f"{count(heap_forecast.delete_file_count, 'file')} for at most "
        f"{heap_forecast.data_file_count:,} of {facts.data.file_count:,} data files "
        f"({percent(affected_row_share)} of the rows). A full scan loads "
        f"{count(heap_forecast.record_loads, 'delete record')}, up to "
        f"{heap_forecast.max_deletes_per_file:,} for one file",
        threshold="any equality delete with a higher sequence number than data whose key bounds "
        "it meets",
        source="table spec, Scan Planning",
        effect="For every data file, a reader builds a hash set of all later delete records: work "
        "grows with the square of the commits, and memory with keys × cores.",
        remedy=f"{first_step_text}: Spark's own rewrite needs about "
        f"{size(heap_forecast.needed_bytes)} of heap per executor of "
        f"{count(heap_forecast.executor.cores, 'core')}, and {session_heap_text} "
        f"{size(heap_forecast.executor.heap_bytes)}{fit_text}. Afterwards, commit less often, or "
        "write position deletes or deletion vectors.",
        sql=context.rewrite_statements({"delete-file-threshold": "1"}),
    )


def executor_cache(context: Context) -> Finding | None:
    """Equality deletes read through the executor cache, which can hang or return wrong rows."""
    session_conf = context.session_conf
    if context.heap.is_empty or not caches_deletes(session_conf or {}):
        return None
    sessions_text = (
        "this session"
        if session_conf is not None
        else "every Spark session that does not turn it off"
    )
    return context.finding(
        figure=f"with {count(context.heap.delete_file_count, 'delete file')}",
        evidence="queries can return deleted rows, or hang: the executor cache for delete files is "
        f"on in {sessions_text}, and this table has "
        f"{count(context.heap.delete_file_count, 'equality delete file')}",
        threshold="spark.sql.iceberg.executor-cache.enabled is true (Iceberg's default)",
        source="apache/iceberg issues 10987 and 15039",
        effect="After a query with other columns, a query can miss deletes and return rows that "
        "are gone; with one or two cores a read can hang forever.",
        remedy="Start sessions that read this table with "
        "spark.sql.iceberg.executor-cache.enabled=false until no equality deletes are left. Set "
        "it before the first read: later changes have no effect.",
    )


def misread_equality_deletes(context: Context) -> Finding | None:
    """Equality deletes by a field inside a struct, or of a type, that readers misread."""
    facts = context.facts
    if context.heap.is_empty or not facts.misread_keys:
        return None
    record_count = sum(g.record_count for g in facts.of_kind(Kind.EQUALITY_DELETES))
    return context.finding(
        facts.misread_keys,
        severity=Severity.CRITICAL,
        figure=f"{record_count:,} by {first_names(facts.misread_keys, 2)}",
        evidence=f"{count(record_count, 'equality delete record')} by "
        f"{', '.join(facts.misread_keys)}: Spark misreads deletes by a field inside a struct, or "
        "by a column of type fixed",
        threshold="one equality delete by such a column",
        source="Iceberg 1.12: DeleteFilter.fileProjection looks missing keys up among top-level "
        "columns; of several fixed keys in a delete file, only the last is applied",
        effect="Queries that do not read the struct lose rows that are not deleted, and so does "
        "every query if the field was dropped: SELECT * and count(*) give different rows. Of fixed "
        "keys, deleted rows are visible.",
        remedy=f"Run {context.command('compact')} or {context.command('convert')}: both find the "
        "rows that are deleted by the specification, and every query shows the same rows "
        "afterwards. Do not use Spark's own rewrite_data_files, which keeps what its reader shows.",
    )


def position_deletes(context: Context) -> Finding | None:
    """Position deletes that cover a large share of the rows."""
    # The ratio rule counts only deletes that name one data file; the count rule counts all.
    is_file_scoped = context.facts.are_positions_scoped
    rewrite_options = _ratio_options(context) if is_file_scoped else {"delete-file-threshold": "1"}
    return _deleted_share_finding(
        context,
        Kind.POSITION_DELETES,
        "position delete file",
        effect="Every scan reads the delete files and skips the deleted rows. Deleted rows still "
        "take storage and still count in file statistics.",
        remedy="Rewrite the data files with many deletes, then combine the remaining delete files.",
        sql=(
            *context.rewrite_statements(rewrite_options),
            context.call_statement("rewrite_position_delete_files"),
        ),
    )


def deletion_vectors(context: Context) -> Finding | None:
    """Deletion vectors that cover a large share of the rows."""
    return _deleted_share_finding(
        context,
        Kind.DELETION_VECTORS,
        "deletion vector",
        effect="Scans read the hidden rows only to drop them, and the rows still take storage. "
        "Deletion vectors are cheap; the rows that they hide are not.",
        remedy="Rewrite the data files that have lost a large share of their rows.",
        sql=context.rewrite_statements(_ratio_options(context)),
    )


def _ratio_options(context: Context) -> dict[str, str]:
    return {"delete-ratio-threshold": f"{context.thresholds.delete_ratio:g}"}


def _deleted_share_finding(
    context: Context, kind: Kind, delete_noun: str, **finding_fields: Any
) -> Finding | None:
    """Deletes of one kind in the partitions whose share of deleted records is over the limit;
    critical if their share of the table reaches the limit at which a rewrite would act.
    """
    facts = context.facts
    thresholds = context.thresholds
    deleted_shares_by_partition: dict[Partition, float] = {}
    deleted_count_over_limit = 0
    for partition, partition_ratio in delete_ratios(facts).items():
        delete_count = partition_ratio.totals_by_kind[kind].record_count
        row_count = partition_ratio.totals_by_kind[Kind.DATA].record_count
        if row_count and delete_count / row_count >= thresholds.delete_ratio:
            deleted_shares_by_partition[partition] = delete_count / row_count
            deleted_count_over_limit += delete_count
    delete_totals = facts.total(kind)
    row_count = facts.data.record_count
    if not deleted_shares_by_partition or not delete_totals.file_count:
        return None
    # Deletes that name no single file may be of files that are gone.
    is_exact = kind is Kind.DELETION_VECTORS or facts.are_positions_scoped
    at_most_text = "" if is_exact else "at most "
    deleted_row_count = min(delete_totals.record_count, row_count)
    is_critical = deleted_count_over_limit / row_count >= thresholds.critical_delete_ratio
    return context.finding(
        context.partition_names(
            sorted(deleted_shares_by_partition, key=lambda p: -deleted_shares_by_partition[p])
        ),
        severity=Severity.CRITICAL if is_critical else Severity.WARNING,
        figure=f"{at_most_text}{percent(deleted_row_count / row_count)} of the rows",
        evidence=f"{count(delete_totals.file_count, delete_noun)} for "
        f"{count(facts.data.file_count, 'data file')}: "
        f"{at_most_text}{deleted_row_count:,} of {row_count:,} rows are deleted "
        f"({percent(deleted_row_count / row_count)})",
        threshold=f"{percent(thresholds.delete_ratio)} of the rows of the table or a partition",
        **finding_fields,
    )


def v2_position_deletes(context: Context) -> Finding | None:
    """Position delete files where version 3 keeps one deletion vector per data file."""
    facts = context.facts
    delete_file_count = facts.total(Kind.POSITION_DELETES).file_count
    data_file_count = facts.total(Kind.DATA).file_count
    if facts.format_version < 2 or not delete_file_count:
        return None
    remedy = (
        "If every engine that reads or writes the table supports version 3, upgrade it; "
        "the upgrade cannot be undone. Then rewrite_position_delete_files converts the remaining "
        "delete files."
    )
    statement = context.alter_statement({"format-version": "3"})
    if facts.format_version > 2:
        remedy = "Convert the delete files of version 2 to deletion vectors."
        statement = context.call_statement(
            "rewrite_position_delete_files", options={"rewrite-all": "true"}
        )
    return context.finding(
        severity=Severity.WARNING if delete_file_count > data_file_count else Severity.INFO,
        figure=f"{delete_file_count:,} for {count(data_file_count, 'data file')}",
        evidence=f"format version {facts.format_version} with "
        f"{count(delete_file_count, 'position delete file')} for "
        f"{count(data_file_count, 'data file')}",
        threshold="any live position delete file; a warning if there are more than data files",
        source="table spec, version 3: Deletion Vectors",
        effect="Version 3 keeps at most one small bitmap per data file and merges it at each "
        "write; version 2 adds a delete file per change, and scans must read all of them.",
        remedy=remedy,
        sql=(statement,),
    )


def dangling_deletes(context: Context) -> Finding | None:
    """Delete files that apply to no data file
    (:class:`~icekit.health.facts.integrity.DeleteState`).

    Compaction asks a scan which of them it drops: some readers apply a delete of a single data file
    whatever folder its path names.
    """
    return _unapplied_finding(
        context,
        DeleteState.DANGLING,
        "for no data file",
        threshold="one delete file that applies to no data",
        source="table spec, Scan Planning",
        effect="They delete no row. Planning still reads their entries and matches them to data "
        "files, and routine maintenance does not remove them.",
        remedy=f"Run {context.command('compact')}, which drops those of them that a scan "
        "gives to no data file, even if no data file needs a rewrite.",
    )


def equality_deletes_of_new_keys(context: Context) -> Finding | None:
    """Equality deletes that a stream of new rows writes in upsert mode: they delete nothing."""
    facts = context.facts
    return _unapplied_finding(
        context,
        DeleteState.NEW_KEYS,
        "only for keys outside the key ranges of all older data files",
        threshold="one equality delete file whose key bounds meet those of no older data file",
        source="DeleteFileIndex: canContainEqDeletesForFile",
        effect="They delete no row, and no scan opens them. But every commit writes a delete file "
        "beside each data file, and planning reads the entries of both with their bounds.",
        remedy="If the stream only adds rows with new keys, turn off the writer's upsert mode "
        "(write.upsert.enabled in Flink). Compaction alone does not help: the writer adds delete "
        f"files with every commit. Later, {context.command('compact')} drops those that are older "
        "than the data files it has rewritten.",
        sql=(context.alter_statement({_UPSERT_PROPERTY: "false"}),)
        if facts.is_setting_true(_UPSERT_PROPERTY)
        else (),
    )


def misfiled_deletes(context: Context) -> Finding | None:
    """Delete files under another partition or spec than the data file that they name."""
    return _unapplied_finding(
        context,
        DeleteState.MISFILED,
        "filed under another partition or spec than the data file named",
        severity=Severity.CRITICAL,
        threshold="one such delete file",
        source="table spec, Scan Planning; DeleteFileIndex of Iceberg 1.12",
        effect="Iceberg 1.12 cannot read these data files (Mismatched partition), earlier "
        "versions apply the deletes, and other engines may ignore them. "
        "rewrite_position_delete_files drops them: then the deleted rows are back.",
        remedy="With Iceberg 1.11, rewrite the data files that deletes apply to, which applies "
        "the deletes; icekit compact then drops the leftover delete files. Without 1.11, roll back "
        "to the snapshot before the one that added them, and delete the rows again. Run no other "
        "maintenance before.",
        sql=context.rewrite_statements({"delete-file-threshold": "1"}),
    )


def unmatched_deletes(context: Context) -> Finding | None:
    """Delete files that name a live data file by another path, so that a scan applies them to
    nothing.
    """
    return _unapplied_finding(
        context,
        DeleteState.UNMATCHED,
        "for a data file by a path that the table does not have, but a live data file of the same "
        "partition has the same name",
        severity=Severity.CRITICAL,
        threshold="one such delete file",
        source="table spec, Position Delete Files: paths are compared as they are written",
        effect="Spark ignores these deletes, so the rows that they delete are visible; engines "
        "that compare paths in another way may hide them.",
        remedy="If the rows should go, delete them again with Spark (write.delete.mode = "
        "copy-on-write); if they should stay, rewrite their data files with Iceberg's own "
        "rewrite_data_files. Then icekit compact drops these delete files, which apply to nothing "
        "any more.",
    )


def replaced_deletes(context: Context) -> Finding | None:
    """Position deletes of data files that have a deletion vector, which readers apply instead."""
    revived_counts = [
        misplaced_delete.revived_count
        for misplaced_delete in context.facts.integrity.misplaced
        if misplaced_delete.state is DeleteState.REPLACED
        and misplaced_delete.revived_count is not None
    ]
    revived_row_count = sum(revived_counts)
    revived_text = (
        f"; {count(revived_row_count, 'row')} deleted by {count(len(revived_counts), 'file')} of "
        "them, but not by the vector, can be seen in every query"
    )
    return _unapplied_finding(
        context,
        DeleteState.REPLACED,
        f"for data files that have a deletion vector{revived_text if revived_row_count else ''}",
        severity=Severity.CRITICAL if revived_row_count else Severity.WARNING,
        threshold="one position delete file of a data file with a deletion vector",
        source="table spec, Deletion Vectors: a vector replaces position deletes",
        effect="Readers ignore these delete files. Rows that only they delete are visible again: "
        "the writer of the vector did not merge them into it.",
        remedy=f"If the rows should go, delete them again. Then run {context.command('compact')}, "
        "which drops these delete files. Do not use Iceberg's own rewrite_position_delete_files "
        "before: it merges them into the vectors, and so deletes rows that readers show.",
    )


def several_vectors(context: Context) -> Finding | None:
    """Data files with more than one deletion vector, which no reader can apply."""
    return _unapplied_finding(
        context,
        DeleteState.SEVERAL_VECTORS,
        "for data files with more than one deletion vector",
        severity=Severity.CRITICAL,
        threshold="one data file with two deletion vectors",
        source="table spec, Deletion Vectors: at most one for each data file",
        effect="Iceberg cannot plan a scan of the table (Can't index multiple DVs), so queries, "
        "DELETE and rewrites fail.",
        remedy="Roll back to the snapshot before the one that added the second vector, and write "
        "the later changes again. Find the writer that does not merge vectors before it goes on.",
    )


def _unapplied_finding(
    context: Context, state: DeleteState, description: str, **finding_fields: Any
) -> Finding | None:
    """A finding about the delete files that apply to nothing for one reason, with an example where
    they name another data file.
    """
    facts = context.facts
    unapplied_deletes = facts.unapplied_in(state)
    delete_file_count = sum(unapplied_delete.file_count for unapplied_delete in unapplied_deletes)
    if not delete_file_count:
        return None
    example_text = ""
    misplaced_deletes = [
        misplaced_delete
        for misplaced_delete in facts.integrity.misplaced
        if misplaced_delete.state is state
    ]
    if misplaced_deletes:
        misplaced_delete = misplaced_deletes[0]
        delete_partition_text = (
            f"{facts.partition_name(misplaced_delete.partition)} of spec "
            f"{misplaced_delete.partition.spec_id}"
        )
        data_partition_text = (
            f"{facts.partition_name(misplaced_delete.data_partition)} of spec "
            f"{misplaced_delete.data_partition.spec_id}"
        )
        example_text = (
            f"; {misplaced_delete.path}, added by snapshot {misplaced_delete.snapshot_id}, is in "
            f"{delete_partition_text} and names {misplaced_delete.named_path}; the table has "
            f"{misplaced_delete.data_path} in {data_partition_text}"
        )
    records_text = count(
        sum(unapplied_delete.record_count for unapplied_delete in unapplied_deletes), "record"
    )
    return context.finding(
        context.partition_names(
            dict.fromkeys(unapplied_delete.partition for unapplied_delete in unapplied_deletes)
        ),
        figure=records_text,
        evidence=f"{count(delete_file_count, 'delete file')} with {records_text} "
        f"{description}{example_text}",
        **finding_fields,
    )


def deletes_default_rewrite_ignores(context: Context) -> Finding | None:
    """Well-sized data files with deletes that the default rewrite does not count.

    ``delete-ratio-threshold`` counts only deletes that name a single file, and
    ``delete-file-threshold`` is unlimited by default: equality deletes and partition-scoped
    position deletes of well-sized data files therefore stay.
    """
    facts = context.facts
    ignored_totals_by_partition = {
        partition_deletes.partition: (
            partition_deletes.well_sized_bytes,
            partition_deletes.well_sized_file_count,
        )
        for partition_deletes in equality_deletes_applied(facts)
        if partition_deletes.well_sized_file_count
    }
    sequence_rows_by_partition = sequences_by_partition(facts)
    for delete_group in facts.of_kind(Kind.POSITION_DELETES):
        if (
            delete_group.partition in ignored_totals_by_partition
            or delete_group.file_scoped_count == delete_group.file_count
        ):
            continue
        sequence_rows = sequence_rows_by_partition.get(delete_group.partition, ())
        newest_delete_sequence = max(
            (r.sequence_number for r in sequence_rows if r.position_delete_file_count), default=-1
        )
        rows_under_deletes = [
            row for row in sequence_rows if row.sequence_number <= newest_delete_sequence
        ]
        ignored_file_count = sum(row.well_sized_file_count for row in rows_under_deletes)
        if ignored_file_count:
            ignored_totals_by_partition[delete_group.partition] = (
                sum(row.well_sized_bytes for row in rows_under_deletes),
                ignored_file_count,
            )
    if not ignored_totals_by_partition:
        return None
    total_ignored_count = sum(
        ignored_file_count for _, ignored_file_count in ignored_totals_by_partition.values()
    )
    return context.finding(
        context.partition_names(
            sorted(ignored_totals_by_partition, key=lambda p: -ignored_totals_by_partition[p][0])
        ),
        figure=f"in {total_ignored_count:,} of {count(facts.data.file_count, 'file')}",
        evidence=f"{total_ignored_count:,} of {facts.data.file_count:,} data files, well-sized, "
        "with deletes that a default rewrite_data_files does not count",
        threshold="one well-sized data file with equality deletes, or with position deletes that "
        "do not name a single data file",
        source="rewrite_data_files: delete-file-threshold (unlimited) and delete-ratio-threshold "
        "(file-scoped deletes only)",
        effect="Nightly compaction reports success but leaves these deletes in place, so reads "
        "keep getting slower.",
        remedy="Set delete-file-threshold=1, which selects every data file that any delete may "
        "apply to.",
        sql=context.rewrite_statements({"delete-file-threshold": "1"}),
    )


def merge_on_read_on_v1(context: Context) -> Finding | None:
    """Merge-on-read is set on a table of format version 1, which cannot have delete files."""
    facts = context.facts
    mode_properties = [
        property_name
        for property_name in MODES
        if facts.properties.get(property_name) == "merge-on-read"
    ]
    if facts.format_version != 1 or not mode_properties:
        return None
    return context.finding(
        mode_properties,
        figure=count(len(mode_properties), "setting"),
        evidence=f"format version 1 with merge-on-read in {', '.join(mode_properties)}",
        threshold="merge-on-read for one kind of statement on a version 1 table",
        source="table spec, version 1: no delete files (a commit fails with: Deletes are "
        "supported in V2 and above)",
        effect="Such a DELETE, UPDATE or MERGE runs, writes its delete files, and then fails at "
        "the commit.",
        remedy="Remove the setting, so that these statements copy the files they change. Or "
        "upgrade the table to format version 2 "
        f"({context.alter_statement({'format-version': '2'})}), if "
        "every engine that reads it applies delete files; the upgrade cannot be undone.",
        sql=(unset_properties_sql(facts.sql_name, mode_properties),),
    )
