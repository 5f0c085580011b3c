"""Check whether metadata contradicts itself or the specification: one function per finding."""

from typing import NamedTuple

from icekit.common.sql import display_name, identifier
from icekit.common.units import count
from icekit.health.diagnose.findings import Context, Finding, Severity
from icekit.health.facts.column_support import engine_limits, newer_engine_sentence
from icekit.health.facts.integrity import NarrowManifest
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import STOPPING_FLAWS, Flaw, MetadataFlaw
from icekit.iceberg.partition import Scalar


def duplicate_files(context: Context) -> Finding | None:
    """Files with more than one live entry: a scan reads each entry."""
    integrity = context.facts.integrity
    if not integrity.duplicates:
        return None
    snapshot_ids = {
        snapshot_id for duplicate in integrity.duplicates for snapshot_id in duplicate.snapshot_ids
    }
    first_duplicate = integrity.duplicates[0]
    return context.finding(
        (*integrity.duplicate_manifests, *(duplicate.path for duplicate in integrity.duplicates)),
        severity=Severity.CRITICAL,
        figure=f"{count(integrity.duplicate_record_count, 'row')} again"
        if integrity.duplicate_record_count
        else count(integrity.duplicate_delete_file_count, "delete file"),
        evidence=f"{count(integrity.duplicate_data_file_count, 'data file')} and "
        f"{count(integrity.duplicate_delete_file_count, 'delete file')} with more than one live "
        f"entry, so scans count {count(integrity.duplicate_record_count, 'row')} again; "
        f"{first_duplicate.path} has {first_duplicate.entry_count:,}; added by snapshots "
        f"{', '.join(map(str, sorted(snapshot_ids)))}; "
        f"{count(len(integrity.duplicate_manifests), 'manifest')} more than once in the manifest "
        "list",
        threshold="one file with more than one live entry",
        source="table spec, Manifests: each live file has one entry; nothing checks it when a "
        "file is added",
        effect="Every query counts the rows of these data files as often as they are listed, and "
        "shows rows again that were deleted before the last entry was added. A rewrite would keep "
        "the copies for good, or fail.",
        remedy="If nothing after it has to stay, roll back to the snapshot before the one that "
        "added the second entry. Otherwise write the rows again, each row of a file once, with "
        "the statement. Stop all writers first: a file that one of them commits meanwhile may be "
        "replaced, too.",
        sql=(_deduplication_statement(context),),
    )


def _deduplication_statement(context: Context) -> str:
    """A statement that writes the rows of the affected partitions again, each position of a file
    once, in one commit; of the whole table where no simple condition selects the partitions.
    """
    facts = context.facts
    table_sql = context.table_sql
    column_names_sql = dict.fromkeys(
        identifier(column.names[0]) for column in sorted(facts.columns, key=lambda c: c.position)
    )
    partitions_sql = context.whole_file_condition(facts.integrity.duplicate_partitions) or "true"
    return (
        f"INSERT INTO {table_sql} REPLACE WHERE {partitions_sql} SELECT "
        f"{', '.join(column_names_sql)} FROM (SELECT *, row_number() OVER (PARTITION BY _file, "
        f"_pos ORDER BY _pos) AS icekit_copy FROM {table_sql} WHERE {partitions_sql}) WHERE "
        "icekit_copy = 1"
    )


def manifest_bounds(context: Context) -> Finding | None:
    """Manifests whose partition summary in the manifest list does not cover their entries."""
    facts = context.facts
    narrow_manifests = facts.integrity.narrow_manifests
    narrow_manifest_count = facts.integrity.narrow_manifest_count
    if not narrow_manifest_count:
        return None
    rewritable_spec_ids = sorted(
        {
            narrow_manifest.spec_id
            for narrow_manifest in narrow_manifests
            if not narrow_manifest.is_alone
        }
    )
    rewrite_statements = [
        context.call_statement(
            "rewrite_manifests",
            **({} if spec_id == facts.default_spec_id else {"spec_id": spec_id}),
        )
        for spec_id in rewritable_spec_ids
    ]
    if any(narrow_manifest.is_alone for narrow_manifest in narrow_manifests):
        # With all data files rewritten, the entries of a narrow delete manifest apply to nothing.
        rewrite_options = {"rewrite-all": "true"}
        if any(narrow_manifest.is_deletes for narrow_manifest in narrow_manifests):
            rewrite_options["remove-dangling-deletes"] = "true"
        rewrite_statements += context.rewrite_statements(rewrite_options)
    return context.finding(
        [narrow_manifest.path for narrow_manifest in narrow_manifests],
        severity=Severity.CRITICAL,
        figure=f"{count(narrow_manifest_count, 'manifest')} too narrow",
        evidence=f"{count(narrow_manifest_count, 'manifest')} with a partition summary that is "
        f"narrower than the entries; {_narrow_manifest_text(narrow_manifests[0])}",
        threshold="one partition value outside the summary of its manifest",
        source="table spec, Manifest Lists: field_summary; Iceberg up to 1.10 writes such "
        "summaries for binary partitions",
        effect="A filter on the partition skips the manifest: queries lose its rows or its "
        "deletes, and a rewrite with a filter misses them.",
        remedy="Rewrite the manifests; this does not touch data files. rewrite_manifests leaves "
        "the only manifest of a spec alone: for it, rewrite all data files, without a filter.",
        sql=tuple(rewrite_statements),
    )


def _narrow_manifest_text(manifest: NarrowManifest) -> str:
    missing_values_text = f" and {manifest.missing}" if manifest.missing else ""
    return (
        f"{manifest.path}: the summary of {manifest.field} says {_range_text(manifest.listed)}, "
        f"its entries hold {_range_text(manifest.held)}{missing_values_text}"
    )


def _range_text(bounds: tuple[Scalar, Scalar]) -> str:
    return "no value" if bounds[0] is None else " to ".join(map(str, bounds))


def unreadable_metadata(context: Context) -> Finding | None:
    """Metadata that breaks the specification, so that a part of what an engine does with the table
    fails.
    """
    facts = context.facts
    if not facts.flaws:
        return None
    flaw_texts = [_TEXTS[flaw.flaw] for flaw in facts.flaws]
    worst_flaw = max(facts.flaws, key=lambda flaw: _flaw_severity(facts, flaw))
    flaw_kinds = {flaw.flaw for flaw in facts.flaws}
    expiry_risk_text = ""
    if Flaw.OLD_SCHEMA_GONE in flaw_kinds:
        expiry_risk_text = f"{context.always_removed_sentence}{context.writer_state_sentence}"
    return context.finding(
        [example for flaw in facts.flaws for example in flaw.examples],
        severity=_flaw_severity(facts, worst_flaw),
        figure=count(worst_flaw.count, _TEXTS[worst_flaw.flaw].noun),
        evidence="; ".join(
            f"{count(flaw.count, flaw_text.noun)} "
            f"{flaw_text.description.format(example=flaw.examples[0])}"
            for flaw, flaw_text in zip(facts.flaws, flaw_texts, strict=True)
        ),
        threshold="one such part of the metadata",
        source="table spec: manifest lists count the files of each manifest from version 2 on; "
        "schema-id names an existing schema; Iceberg's TableMetadata: entries of the logs are in "
        "the order of time, within a minute",
        effect=" ".join(flaw_text.effect for flaw_text in flaw_texts),
        remedy=" ".join(flaw_text.remedy for flaw_text in flaw_texts) + expiry_risk_text,
        sql=() if facts.ref is not None else _repair_statements(context),
    )


def unsupported_columns(context: Context) -> Finding | None:
    """Columns of types that the engine cannot read, or cannot write into new data files."""
    facts = context.facts
    if not facts.unsupported_columns:
        return None
    effect = "icekit rewrites nothing of the table, and tries nothing on it."
    if facts.has_unreadable_columns:
        effect = f"Spark opens the table neither to read nor to change it. {effect}"
    remedies = [
        newer_engine_sentence(facts.unsupported_columns),
        "Maintain the table with an engine that has these types, or drop the columns with it if "
        "nobody needs them.",
    ]
    return context.finding(
        [display_name(column.names) for column in facts.unsupported_columns],
        figure=count(len(facts.unsupported_columns), "column"),
        evidence=engine_limits(facts.engine, facts.unsupported_columns),
        threshold="one such column in the current schema",
        source="Iceberg's TypeToSparkType and writers of data files",
        effect=effect,
        remedy=" ".join(filter(None, remedies)),
    )


def _repair_statements(context: Context) -> tuple[str, ...]:
    facts = context.facts
    examples_by_flaw = {flaw.flaw: flaw.examples for flaw in facts.flaws}
    if Flaw.UNCOUNTED_MANIFESTS in examples_by_flaw:
        return context.rewrite_statements(
            {"rewrite-all": "true", "partial-progress.enabled": "false"}
        )
    if Flaw.SCHEMA_GONE in examples_by_flaw:
        return (
            (context.call_statement("rewrite_manifests"),) if facts.manifests.data_count > 1 else ()
        )
    if Flaw.OLD_SCHEMA_GONE in examples_by_flaw:
        snapshot_ids = tuple(map(int, examples_by_flaw[Flaw.OLD_SCHEMA_GONE]))
        return (context.expire_statement(snapshot_ids),)
    return ()


def _flaw_severity(facts: TableFacts, flaw: MetadataFlaw) -> Severity:
    """Critical if scans or commits of the current snapshot fail with every version of Iceberg."""
    is_always_fatal = flaw.flaw in {Flaw.SCHEMA_GONE, *STOPPING_FLAWS} or (
        flaw.flaw is Flaw.UNCOUNTED_MANIFESTS and facts.format_version > 1
    )
    return Severity.CRITICAL if is_always_fatal else Severity.WARNING


class _FlawText(NamedTuple):
    """What is counted of a flaw, what is wrong with it, what fails, and what to do."""

    noun: str
    description: str
    effect: str
    remedy: str


_TEXTS = {
    Flaw.UNCOUNTED_MANIFESTS: _FlawText(
        "manifest",
        "in the manifest list without numbers of files",
        "Iceberg's metadata tables (files, entries, manifests) fail. From format version 2 on, "
        "which requires the numbers, each commit that keeps such a manifest fails too.",
        "Rewrite all data files in one commit, which keeps none of these manifests; "
        "rewrite_manifests is refused.",
    ),
    Flaw.SCHEMA_GONE: _FlawText(
        "observed snapshot",
        "with a schema that the metadata does not have",
        "Iceberg reads a snapshot with its own schema: scans, DELETE and rewrites fail.",
        "A commit that adds a snapshot without reading this one gives it the current schema: "
        "rewrite_manifests, or an append, also of no rows.",
    ),
    Flaw.OLD_SCHEMA_GONE: _FlawText(
        "other snapshot",
        "with a schema that the metadata does not have",
        "Time travel to them fails, and so do branches and tags of them.",
        "Expire these snapshots, which needs no schema: the statement names up to five of them, "
        "of which no branch or tag may be the head.",
    ),
    Flaw.ORDER_BY_DROPPED: _FlawText(
        "former sort order",
        "by a column that was dropped",
        "Iceberg 1.11.0 cannot load the table; other versions can.",
        "Give every engine another version of Iceberg than 1.11.0: no statement removes a former "
        "sort order.",
    ),
    Flaw.MISCOUNTED_MANIFESTS: _FlawText(
        "manifest",
        "with another number of live files than the manifest list says, for example {example}",
        "No engine opens a manifest without live files by the list, and engines count and plan by "
        "these numbers: queries may miss rows or deletes, and commits may drop them for good.",
        "Restore the manifest list from a backup, or roll back to a snapshot before it (look at "
        "that snapshot first: icekit look --ref SNAPSHOT_ID).",
    ),
    Flaw.FUTURE_TIMES: _FlawText(
        "time",
        "of the metadata in the future; every commit fails {example}",
        "Every commit fails: Iceberg refuses one that is older than the last change.",
        "If that moment is soon, wait. Otherwise copy the metadata file, correct "
        "last-updated-ms and the timestamp-ms of the snapshots and of both logs in the copy, and "
        "register the table with it (register_table). Set the clock of the machine that wrote it.",
    ),
}
