"""Check what a search of storage found: files that are gone, orphan files, and other tables in the
same location. One function per finding.
"""

from icekit.common import sql
from icekit.common.units import count
from icekit.health.diagnose.findings import Context, Finding, Severity
from icekit.health.facts.model import TableFacts
from icekit.health.facts.storage import MissingCount, MissingFiles, Role
from icekit.iceberg.file_kind import Kind


def missing_files(context: Context) -> Finding | None:
    """Referenced files that are gone, or of another size than their entries say."""
    facts = context.facts
    missing_summary = context.facts.missing
    if missing_summary is None or not missing_summary.counts:
        return None
    severity = Severity.CRITICAL if missing_summary.fails_scans else Severity.INFO
    if not missing_summary.fails_scans and missing_summary.count(Role.MANIFEST_LIST).gone_count:
        severity = Severity.WARNING
    gone_count = sum(role_count.gone_count for role_count in missing_summary.counts)
    resized_count = sum(role_count.resized_count for role_count in missing_summary.counts)
    lost_partitions_sql = _lost_partitions_sql(context, missing_summary)
    effect, remedy = _effect_and_remedy(
        facts, missing_summary, has_statement=lost_partitions_sql is not None
    )
    snapshot_ids_without_list = tuple(
        missing_file.snapshot_id
        for missing_file in missing_summary.examples
        if missing_file.role is Role.MANIFEST_LIST and missing_file.snapshot_id is not None
    )
    if snapshot_ids_without_list:
        remedy += f"{context.always_removed_sentence}{context.writer_state_sentence}"
    return context.finding(
        [missing_file.path for missing_file in missing_summary.examples],
        severity=severity,
        figure=f"{gone_count:,} gone, {resized_count:,} of another size",
        evidence=f"{'; '.join(map(_missing_count_text, missing_summary.counts))}. "
        f"{_missing_example_text(facts, missing_summary)}",
        threshold="one referenced file that is gone, or whose size is not what its entry says",
        source="table spec: every file that metadata references must exist until no snapshot "
        "needs it",
        effect=effect,
        remedy=remedy,
        sql=(
            *(
                [f"DELETE FROM {context.table_sql} WHERE {lost_partitions_sql}"]
                if lost_partitions_sql
                else ()
            ),
            *(
                [context.expire_statement(snapshot_ids_without_list)]
                if snapshot_ids_without_list
                else ()
            ),
        ),
    )


def _missing_count_text(role_count: MissingCount) -> str:
    records_text = f", with {role_count.record_count:,} records" if role_count.record_count else ""
    return (
        f"{role_count.role}s: {role_count.gone_count:,} gone, {role_count.resized_count:,} of "
        f"another size than the metadata says{records_text}"
    )


def _missing_example_text(facts: TableFacts, missing_summary: MissingFiles) -> str:
    missing_file = missing_summary.examples[0]
    file_details = [missing_file.path]
    if missing_file.partition is not None:
        file_details.append(facts.partition_name(missing_file.partition))
    if missing_file.snapshot_id is not None:
        file_details.append(f"snapshot {missing_file.snapshot_id}")
    return f"For example {', '.join(file_details)}"


def _lost_partitions_sql(context: Context, missing_summary: MissingFiles) -> str | None:
    """A filter for the partitions of which every data file is gone; None if it would select another
    file of the current snapshot.
    """
    facts = context.facts
    file_counts_by_partition = {
        group.partition: group.file_count for group in facts.of_kind(Kind.DATA)
    }
    # Files of another spec may have such rows too.
    if (
        facts.ref is not None
        or len({present_partition.spec_id for present_partition in file_counts_by_partition}) != 1
    ):
        return None
    lost_partitions = [
        p
        for p, gone_count in missing_summary.partitions
        if file_counts_by_partition.get(p) == gone_count
    ]
    return (
        context.whole_file_condition(lost_partitions)
        if all(map(facts.is_filterable, lost_partitions))
        else None
    )


def _effect_and_remedy(
    facts: TableFacts, missing_summary: MissingFiles, *, has_statement: bool
) -> tuple[str, str]:
    effects: list[str] = []
    remedies = [
        "Restore the files under the same paths, from a backup or from the older versions of the "
        "object store."
    ]
    if missing_summary.fails_scans:
        effects.append(
            "A scan that needs one of these files fails, and so does each rewrite of its partition."
        )
        if has_statement:
            remedies.append(
                "If they are lost for good, the DELETE removes the partitions whose data files "
                "are all gone from the metadata; it reads no file."
            )
        if missing_summary.before_id is not None and facts.ref is None:
            rollback_statement = sql.call_sql(
                facts.catalog,
                "rollback_to_snapshot",
                table=facts.name,
                snapshot_id=missing_summary.before_id,
            )
            remedies.append(
                f"{rollback_statement} goes back to the newest snapshot from before the files were "
                "added, and gives up every commit since."
            )
        remedies.append(
            "The entry of a single data file can be removed in Java or Scala: "
            "table.newDelete().deleteFile(path).commit()."
        )
    if missing_summary.count(Role.MANIFEST_LIST).gone_count:
        effects.append(
            "Time travel to a snapshot without its manifest list fails, and so do "
            "expire_snapshots, remove_orphan_files and the metadata tables of all snapshots."
        )
        remedies.append(
            "A snapshot whose manifest list is lost can be expired: the call removes it and then "
            "fails, and what it alone referenced is left as orphan files."
        )
    if any(role_count.role is Role.STATISTICS for role_count in missing_summary.counts):
        effects.append("Engines that read these statistics fail or plan without them.")
        remedies.append(
            "Table statistics can be computed again (compute_table_stats), partition statistics "
            "after the next commit (compute_partition_stats)."
        )
    return " ".join(effects), " ".join(remedies)


def shared_location(context: Context) -> Finding | None:
    """Another table keeps files in this table's location."""
    storage_facts = context.facts.storage
    if storage_facts is None or not storage_facts.sharing.shared:
        return None
    return context.finding(
        [shared_place.path for shared_place in storage_facts.sharing.shared],
        figure=f"with {count(len(storage_facts.sharing.shared), 'table')}",
        evidence=f"{storage_facts.sharing.summary}; this table's is {context.facts.location}",
        threshold="one table of the catalog with a path that equals, contains or lies inside a "
        "path of this table",
        source="remove_orphan_files: removes every file in the location that this table does not "
        "reference",
        effect="Files of the other table look like orphans of this table: removing them destroys "
        "the other table. CREATE, RENAME, then CREATE with the old name puts two tables into one "
        "location.",
        remedy="Do not remove orphan files here. Copy one of the tables to its own location "
        "(CREATE TABLE … AS SELECT).",
    )


def orphan_files(context: Context) -> Finding | None:
    """Files in the table's location that no snapshot references."""
    storage_facts = context.facts.storage
    if storage_facts is None or not storage_facts.orphan_count:
        return None
    sharing_text = ""
    if storage_facts.sharing.unchecked:
        sharing_text = f"; they may belong to another table ({storage_facts.sharing.unchecked})"
    return context.finding(
        storage_facts.examples,
        figure=count(storage_facts.orphan_count, "file"),
        evidence=f"{storage_facts.summary} under {context.facts.location} in no snapshot, and "
        f"older than 3 days{sharing_text}",
        threshold="one file older than 3 days",
        source="remove_orphan_files: older_than",
        effect="Orphan files cost storage and nothing reads them; failed and killed writers leave "
        "them behind.",
        remedy="List the orphan files again, check the list, then run the call without dry_run. "
        "Make sure that no other table references files in the location.",
        sql=(context.orphan_dry_run_statement(),),
    )
