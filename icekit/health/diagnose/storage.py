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
    missing = context.facts.missing
    if missing is None or not missing.counts:
        return None
    severity = Severity.CRITICAL if missing.fails_scans else Severity.INFO
    if not missing.fails_scans and missing.count(Role.MANIFEST_LIST).gone_count:
        severity = Severity.WARNING
    gone_count = sum(each.gone_count for each in missing.counts)
    resized = sum(each.resized_count for each in missing.counts)
    lost = _lost_partitions(context, missing)
    effect, remedy = _effect_and_remedy(facts, missing, has_statement=lost is not None)
    snapshots = tuple(
        file.snapshot_id
        for file in missing.examples
        if file.role is Role.MANIFEST_LIST and file.snapshot_id is not None
    )
    if snapshots:
        remedy += f"{context.past_limits}{context.states_at_risk}"
    return context.finding(
        [file.path for file in missing.examples],
        severity=severity,
        figure=f"{gone_count:,} gone, {resized:,} of another size",
        evidence=f"{'; '.join(map(_counted, missing.counts))}. {_example(facts, missing)}",
        threshold="one referenced file that is gone, or whose size is not what its entry says",
        source="table spec: every file that metadata references must exist until no snapshot "
        "needs it",
        effect=effect,
        remedy=remedy,
        sql=(
            *([f"DELETE FROM {context.table} WHERE {lost}"] if lost else ()),
            *([context.expire(snapshots)] if snapshots else ()),
        ),
    )


def _counted(each: MissingCount) -> str:
    records = f", with {each.record_count:,} records" if each.record_count else ""
    return (
        f"{each.role}s: {each.gone_count:,} gone, {each.resized_count:,} of another size than the "
        f"metadata says{records}"
    )


def _example(facts: TableFacts, missing: MissingFiles) -> str:
    file = missing.examples[0]
    parts = [file.path]
    if file.partition is not None:
        parts.append(facts.partition_name(file.partition))
    if file.snapshot_id is not None:
        parts.append(f"snapshot {file.snapshot_id}")
    return f"For example {', '.join(parts)}"


def _lost_partitions(context: Context, missing: MissingFiles) -> str | None:
    """A filter for the partitions of which every data file is gone; None if it would select another
    file of the current snapshot.
    """
    facts = context.facts
    files = {group.partition: group.file_count for group in facts.of_kind(Kind.DATA)}
    # Files of another spec may have such rows too.
    if facts.ref is not None or len({partition.spec_id for partition in files}) != 1:
        return None
    lost = [p for p, gone_count in missing.partitions if files.get(p) == gone_count]
    return context.files_where(lost) if all(map(facts.is_filterable, lost)) else None


def _effect_and_remedy(
    facts: TableFacts, missing: MissingFiles, *, has_statement: bool
) -> tuple[str, str]:
    effects: list[str] = []
    remedies = [
        "Restore the files under the same paths, from a backup or from the older versions of the "
        "object store."
    ]
    if missing.fails_scans:
        effects.append(
            "A scan that needs one of these files fails, and so does each rewrite of its partition."
        )
        if has_statement:
            remedies.append(
                "If they are lost for good, the DELETE removes the partitions whose data files "
                "are all gone from the metadata; it reads no file."
            )
        if missing.before_id is not None and facts.ref is None:
            rollback = sql.call(
                facts.catalog,
                "rollback_to_snapshot",
                table=facts.name,
                snapshot_id=missing.before_id,
            )
            remedies.append(
                f"{rollback} goes back to the newest snapshot from before the files were added, "
                "and gives up every commit since."
            )
        remedies.append(
            "The entry of a single data file can be removed in Java or Scala: "
            "table.newDelete().deleteFile(path).commit()."
        )
    if missing.count(Role.MANIFEST_LIST).gone_count:
        effects.append(
            "Time travel to a snapshot without its manifest list fails, and so do "
            "expire_snapshots, remove_orphan_files and the metadata tables of all snapshots."
        )
        remedies.append(
            "A snapshot whose manifest list is lost can be expired: the call removes it and then "
            "fails, and what it alone referenced is left as orphan files."
        )
    if any(each.role is Role.STATISTICS for each in missing.counts):
        effects.append("Engines that read these statistics fail or plan without them.")
        remedies.append(
            "Table statistics can be computed again (compute_table_stats), partition statistics "
            "after the next commit (compute_partition_stats)."
        )
    return " ".join(effects), " ".join(remedies)


def shared_location(context: Context) -> Finding | None:
    """Another table keeps files in this table's location."""
    storage = context.facts.storage
    if storage is None or not storage.sharing.shared:
        return None
    return context.finding(
        [other.path for other in storage.sharing.shared],
        figure=f"with {count(len(storage.sharing.shared), 'table')}",
        evidence=f"{storage.sharing.summary}; this table's is {context.facts.location}",
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
    storage = context.facts.storage
    if storage is None or not storage.orphan_count:
        return None
    unknown = ""
    if storage.sharing.unchecked:
        unknown = f"; they may belong to another table ({storage.sharing.unchecked})"
    return context.finding(
        storage.examples,
        figure=count(storage.orphan_count, "file"),
        evidence=f"{storage.summary} under {context.facts.location} in no snapshot, and older than 3 "
        f"days{unknown}",
        threshold="one file older than 3 days",
        source="remove_orphan_files: older_than",
        effect="Orphan files cost storage and nothing reads them; failed and killed writers leave "
        "them behind.",
        remedy="List the orphan files again, check the list, then run the call without dry_run. "
        "Make sure that no other table references files in the location.",
        sql=(context.list_orphans(),),
    )
