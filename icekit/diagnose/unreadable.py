"""Check what engines cannot read: files that are gone, and metadata that Iceberg refuses when it is
needed.
"""

from __future__ import annotations

from icekit import sql
from icekit.diagnose.findings import Context, Finding, Severity
from icekit.facts.definition import Flaw, MetadataFlaw, PartitionSpec
from icekit.facts.files import Kind, Partition
from icekit.facts.model import TableFacts
from icekit.facts.storage import MissingCount, MissingFiles, Role
from icekit.facts.where import MOST_PARTITIONS, WITHOUT_FUNCTIONS, askable
from icekit.units import count, counted


def missing_files(context: Context) -> Finding | None:
    """Referenced files that are gone, or of another size than their entries say; only if storage
    was searched.
    """
    facts, missing = context.facts, context.facts.missing
    if missing is None or not missing.counts:
        return None
    lost = _lost_partitions(facts, missing)
    predicate = facts.where(lost, of_rows=True) if lost else None
    effect, remedy = _effects_and_remedies(facts, missing, has_statement=predicate is not None)
    return context.finding(
        _severity_of(missing),
        [file.path for file in missing.examples],
        evidence=f"{'; '.join(_counted(facts, each) for each in missing.counts)}. "
        f"{_example(facts, missing)}",
        threshold="one referenced file that is gone, or whose size is not what its entry says",
        source="table spec: every file that metadata references must exist until no snapshot "
        "needs it",
        effect=effect,
        remedy=remedy,
        sql=(
            *([f"DELETE FROM {context.table} WHERE {predicate}"] if predicate else ()),
            *_expiry(context, missing),
        ),
        files_at_stake=sum(each.gone_count + each.resized_count for each in missing.counts),
    )


def _severity_of(missing: MissingFiles) -> Severity:
    if missing.fails_scans:
        return Severity.CRITICAL
    return Severity.WARNING if missing.count(Role.MANIFEST_LIST).gone_count else Severity.INFO


def _counted(facts: TableFacts, missing: MissingCount) -> str:
    """``2 data files are gone, with 20 of 30 records``."""
    parts = []
    if missing.gone_count:
        parts.append(f"{counted(missing.gone_count, missing.role, 'is', 'are')} gone")
    if missing.resized_count:
        resized = counted(missing.resized_count, missing.role, "has", "have")
        parts.append(f"{resized} another size than the metadata says")
    text = " and ".join(parts)
    if missing.role is Role.DATA:
        text += f", with {missing.record_count:,} of {count(facts.data.record_count, 'record')}"
    return text


def _example(facts: TableFacts, missing: MissingFiles) -> str:
    file = missing.examples[0]
    about = [] if file.partition is None else [facts.partition_name(file.partition)]
    if file.snapshot_id is not None:
        verb = "of" if file.role in (Role.MANIFEST_LIST, Role.STATISTICS) else "added by"
        about.append(f"{verb} snapshot {file.snapshot_id}")
    return f"For example {file.path} ({', '.join(about)})" if about else f"For example {file.path}"


def _lost_partitions(facts: TableFacts, missing: MissingFiles) -> list[Partition]:
    """The partitions of which every data file is gone, if a filter can name them and selects no
    other file of the current snapshot.
    """
    if (
        facts.ref is not None
        or len({group.partition.spec_id for group in facts.of_kind(Kind.DATA)}) != 1
    ):
        return []  # files of another spec may have such rows too
    files = {group.partition: group.file_count for group in facts.of_kind(Kind.DATA)}
    lost = [
        p
        for p, gone in missing.partitions
        if files.get(p) == gone and _is_deletable(facts.spec(p.spec_id), p)
    ]
    return lost if len(lost) <= MOST_PARTITIONS else []


def _is_deletable(spec: PartitionSpec, partition: Partition) -> bool:
    """Tell whether Iceberg can match a filter for a partition with its files without reading them:
    not one with a function, as for buckets.
    """
    return askable(spec, partition) and all(
        field.transform in WITHOUT_FUNCTIONS for field in spec.fields
    )


def _effects_and_remedies(
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
            call = sql.call(
                facts.catalog,
                "rollback_to_snapshot",
                table=facts.name,
                snapshot_id=missing.before_id,
            )
            remedies.append(
                f"{call} goes back to the newest snapshot from before the files were added, and "
                "gives up every commit since."
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


def _expiry(context: Context, missing: MissingFiles) -> tuple[str, ...]:
    ids = tuple(
        file.snapshot_id
        for file in missing.examples
        if file.role is Role.MANIFEST_LIST and file.snapshot_id is not None
    )
    return (context.call("expire_snapshots", snapshot_ids=ids),) if ids else ()


def unreadable_metadata(context: Context) -> Finding | None:
    """Metadata that breaks the specification, so that a part of what an engine does with the table
    fails.
    """
    facts = context.facts
    if not facts.flaws:
        return None
    texts = [_TEXTS[each.flaw] for each in facts.flaws]
    return context.finding(
        max(_severity(facts, each) for each in facts.flaws),
        [example for each in facts.flaws for example in each.examples],
        evidence="; ".join(
            f"{count(each.count, noun)} {what}"
            for each, (noun, what, _, _) in zip(facts.flaws, texts, strict=True)
        ),
        threshold="one such part of the metadata",
        source="table spec: manifest lists count the files of each manifest from version 2 on; "
        "schema-id names an existing schema",
        effect=" ".join(effect for *_, effect, _ in texts),
        remedy=" ".join(remedy for *_, remedy in texts),
        sql=_repair(context),
        files_at_stake=facts.data.file_count,
    )


def _repair(context: Context) -> tuple[str, ...]:
    facts = context.facts
    examples = {each.flaw: each.examples for each in facts.flaws}
    if facts.ref is not None:
        return ()
    if Flaw.UNCOUNTED_MANIFESTS in examples:
        whole = {"rewrite-all": "true"}
        return (context.call("rewrite_data_files", options=whole),)
    if Flaw.SCHEMA_GONE in examples:
        return (context.call("rewrite_manifests"),) if facts.manifests.data_count > 1 else ()
    if Flaw.OLD_SCHEMA_GONE in examples:
        ids = tuple(map(int, examples[Flaw.OLD_SCHEMA_GONE]))
        return (context.call("expire_snapshots", snapshot_ids=ids),)
    return ()


def _severity(facts: TableFacts, flaw: MetadataFlaw) -> Severity:
    """Critical if scans or commits of the current snapshot fail with every version of Iceberg."""
    always_fails = flaw.flaw is Flaw.SCHEMA_GONE or (
        flaw.flaw is Flaw.UNCOUNTED_MANIFESTS and facts.format_version > 1
    )
    return Severity.CRITICAL if always_fails else Severity.WARNING


#: For each flaw: what is counted, what is wrong with it, what fails, and what to do.
_TEXTS = {
    Flaw.UNCOUNTED_MANIFESTS: (
        "manifest",
        "in the manifest list without numbers of files",
        "Iceberg's metadata tables (files, entries, manifests) fail. From format version 2 on, "
        "which requires the numbers, each commit that keeps such a manifest fails too.",
        "Rewrite all data files in one commit, which keeps none of these manifests; "
        "rewrite_manifests is refused.",
    ),
    Flaw.SCHEMA_GONE: (
        "observed snapshot",
        "with a schema that the metadata does not have",
        "Iceberg reads a snapshot with its own schema: scans, DELETE and rewrites fail.",
        "A commit that adds a snapshot without reading this one gives it the current schema: "
        "rewrite_manifests, or an append, also of no rows.",
    ),
    Flaw.OLD_SCHEMA_GONE: (
        "other snapshot",
        "with a schema that the metadata does not have",
        "Time travel to them fails, and so do branches and tags of them.",
        "Expire these snapshots, which needs no schema: the statement names up to five of them, "
        "of which no branch or tag may be the head.",
    ),
    Flaw.ORDER_BY_DROPPED: (
        "former sort order",
        "by a column that was dropped",
        "Iceberg 1.11.0 cannot load the table; other versions can.",
        "Give every engine another version of Iceberg than 1.11.0: no statement removes a former "
        "sort order.",
    ),
}
