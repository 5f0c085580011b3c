"""Check manifests, snapshots, metadata files and statistics files: one function per finding."""

from icekit.common.units import count, elapsed, first_names, percent, size, span
from icekit.health.diagnose.findings import NAMED_WRITERS, Context, Finding, Severity
from icekit.health.facts.retention import DEFAULT_STAGED_HOURS, HOUR_MS
from icekit.health.facts.snapshot_statistics import compute_statistics_sql
from icekit.health.facts.storage_use import CountedBy
from icekit.iceberg.snapshots import History

#: A choice: the time of one small request to an object store, in seconds.
_REQUEST_SECONDS = 0.02
_MERGING_PROPERTY = "commit.manifest-merge.enabled"


def fragmented_manifests(context: Context) -> Finding | None:
    """Many manifests that would fit into few."""
    facts = context.facts
    thresholds = context.thresholds
    manifest_facts = facts.manifests
    manifest_target_bytes = facts.int_setting("commit.manifest.target-size-bytes")
    manifest_count = manifest_facts.count
    entry_count = manifest_facts.data_entry_count + manifest_facts.delete_entry_count
    saved_manifest_count = sum(
        spec_manifests.saved_count(manifest_target_bytes)
        for spec_manifests in manifest_facts.by_spec
    )
    if manifest_facts.undersized_count < thresholds.fragmented_manifests or not any(
        spec_manifests.is_fragmented(manifest_target_bytes)
        for spec_manifests in manifest_facts.by_spec
    ):
        return None
    statements = [context.call_statement("rewrite_manifests")]
    merging_evidence = ""
    merging_remedy = ""
    if not facts.is_setting_true(_MERGING_PROPERTY):
        statements.append(context.alter_statement({_MERGING_PROPERTY: "true"}))
        merging_evidence = f"; {_MERGING_PROPERTY} is false"
        merging_remedy = (
            " Turn merging on again. If a streaming writer needs it off, rewrite the manifests on "
            "a schedule instead."
        )
    return context.finding(
        figure=f"{manifest_count:,} where {manifest_count - saved_manifest_count:,} would do",
        evidence=f"{count(manifest_count, 'manifest')} of "
        f"{size(manifest_facts.size_in_bytes / manifest_count)} on average with "
        f"{entry_count / manifest_count:,.1f} live entries each; "
        f"{manifest_count - saved_manifest_count:,} of {size(manifest_target_bytes)} would be "
        f"enough{merging_evidence}",
        threshold=f"{thresholds.fragmented_manifests} manifests smaller than half of "
        "commit.manifest.target-size-bytes",
        source="commit.manifest.min-count-to-merge: the count at which commits merge manifests",
        effect="Every query opens every manifest that its filter cannot rule out: planning waits "
        "for one request per manifest before the first row is read. A rewrite saves a query up to "
        f"{count(saved_manifest_count, 'request')}: at most "
        f"{elapsed(saved_manifest_count * _REQUEST_SECONDS)} of planning on an object store at 20 "
        f"ms each, hardly any on a local disk. {context.command('tune planning')} measures it.",
        remedy=f"Rewrite the manifests; this does not touch data files.{merging_remedy}",
        sql=tuple(statements),
    )


def overlapping_manifests(context: Context) -> Finding | None:
    """Manifests whose partition ranges overlap, so that partition filters skip none.

    Checked only if a rewrite would leave several manifests; otherwise there is nothing to
    cluster.
    """
    facts = context.facts
    thresholds = context.thresholds
    manifest_target_bytes = facts.int_setting("commit.manifest.target-size-bytes")
    if facts.manifests.data_bytes <= 2 * manifest_target_bytes:
        return None
    field_overlaps = [
        o
        for o in facts.manifests.overlaps
        if o.spec_id == facts.default_spec_id
        and o.manifest_count >= thresholds.overlap_min_manifests
    ]
    if not field_overlaps:
        return None
    # A filter on the best clustered field still skips manifests.
    best_overlap = min(field_overlaps, key=lambda o: o.mean_share)
    if best_overlap.mean_share < thresholds.overlap_share:
        return None
    return context.finding(
        [o.field for o in field_overlaps],
        figure=f"{percent(best_overlap.mean_share)} of the others",
        evidence=f"a manifest's range of {best_overlap.field} overlaps "
        f"{percent(best_overlap.mean_share)} of the other "
        f"{count(best_overlap.manifest_count - 1, 'manifest')} on average; every other partition "
        "field is as bad or worse",
        threshold=f"{percent(thresholds.overlap_share)} of the other manifests, with "
        f"{thresholds.overlap_min_manifests} manifests or more",
        effect="A query for one partition opens most manifests, because almost every manifest may "
        "list its files.",
        remedy="Rewrite the manifests, which groups their entries by partition.",
        sql=(context.call_statement("rewrite_manifests"),),
    )


def snapshots_piling_up(context: Context) -> Finding | None:
    """More snapshots than anybody uses for time travel."""
    history = context.facts.history
    thresholds = context.thresholds
    if (
        history.snapshot_count < thresholds.snapshots
        or history.oldest_snapshot_ms is None
        or history.newest_snapshot_ms is None
    ):
        return None
    history_span_text = span(history.newest_snapshot_ms - history.oldest_snapshot_ms)
    expirable_count = history.expirable_count
    remedy, statements = _expiry_remedy(context)
    expirable_text = "" if expirable_count is None else f"; {expirable_count:,} would expire now"
    return context.finding(
        severity=Severity.INFO if expirable_count == 0 else Severity.WARNING,
        figure=f"{expirable_count:,} of {history.snapshot_count:,} would expire"
        if expirable_count
        else f"{history.snapshot_count:,}",
        evidence=f"{count(history.snapshot_count, 'snapshot')} over {history_span_text}; "
        f"protected branches and tags: {len(history.refs):,}{expirable_text}",
        threshold=f"{thresholds.snapshots} snapshots",
        effect="Each commit rewrites the list of all snapshots, each query plan reads it, and no "
        "file that a snapshot references can be deleted.",
        remedy=remedy,
        sql=statements,
    )


def _expiry_remedy(context: Context) -> tuple[str, tuple[str, ...]]:
    """What to do about old snapshots, and the statement for it."""
    facts = context.facts
    history = facts.history
    max_age_ms = facts.int_setting("history.expire.max-snapshot-age-ms")
    retained_count = max(10, facts.int_setting("history.expire.min-snapshots-to-keep"))
    if not facts.is_setting_true("gc.enabled"):
        return (
            "The table has gc.enabled=false, so snapshots must not be expired: another table may "
            "share its files.",
            (),
        )
    if history.expirable_count == 0:
        return (
            "No snapshot would expire now: each is younger than the table's limit of "
            f"{span(max_age_ms)}, among the last of a branch (every branch keeps its own), the "
            "head of a branch or tag, or needed by a writer or a staged write. Drop branches and "
            "tags that nobody needs, or state a shorter retention: "
            f"{context.command('maintain', '--keep', 'TIME', '--keep-last', 'N')}.",
            (),
        )
    remedy = (
        f"Expire snapshots older than the table's limit of {span(max_age_ms)} and keep the last "
        f"{retained_count}. Time travel to an expired snapshot is impossible, so first agree on "
        "how far back people need to look."
    )
    if history.writers or history.staged:
        # Iceberg's procedure knows nothing of these.
        remedy += (
            " Do it with icekit maintain: expire_snapshots itself would also remove what "
            f"{_snapshot_users(history)} need."
        )
        return remedy, ()
    return remedy, (context.call_statement("expire_snapshots", retain_last=retained_count),)


def old_snapshots(context: Context) -> Finding | None:
    """Much of the storage is held by files that only older snapshots have."""
    facts = context.facts
    thresholds = context.thresholds
    use = facts.storage_use
    if use is None or not use.total:
        return None
    old = use.old_snapshots
    share = old.total / use.total
    if not old.total or share < thresholds.old_snapshots_share:
        return None
    remedy, statements = _expiry_remedy(context)
    ref_texts = [f"{ref.kind} {ref.name} holds {size(ref.held)} of it" for ref in old.refs]
    summaries_text = (
        ["counted from the summaries of snapshots"] if old.counted_by is CountedBy.SUMMARIES else []
    )
    parts = [
        f"{size(old.total)} of {size(use.total)} are files that only older snapshots have",
        *ref_texts[:NAMED_WRITERS],
        *summaries_text,
    ]
    return context.finding(
        [ref.name for ref in old.refs],
        figure=f"{size(old.total)}, {percent(share)} of the storage",
        evidence="; ".join(parts),
        threshold=f"{percent(thresholds.old_snapshots_share)} of the storage",
        effect="Storage is paid for rows that no query of the current table reads. Only time "
        "travel, rollbacks and incremental readers use them.",
        remedy=remedy,
        sql=statements,
    )


def _snapshot_users(history: History) -> str:
    """Who needs snapshots: ``1 writer (Flink job 7f1c, checkpoint 41) and 2 staged writes``."""
    user_texts = []
    if history.writers:
        writer_texts = dict.fromkeys(writer_state.text for writer_state in history.writers)
        writer_names_text = first_names(writer_texts, NAMED_WRITERS)
        user_texts.append(f"{count(len(writer_texts), 'writer')} ({writer_names_text})")
    if history.staged:
        user_texts.append(count(len(history.staged), "unpublished staged write"))
    return " and ".join(user_texts)


def staged_writes(context: Context) -> Finding | None:
    """Writes that were staged for an audit, and that nobody has published."""
    unpublished_writes = context.facts.history.staged
    if not unpublished_writes or context.facts.ref is not None:
        return None
    write_texts = [write.text for write in unpublished_writes[:NAMED_WRITERS]]
    if len(unpublished_writes) > NAMED_WRITERS:
        write_texts.append(f"and {len(unpublished_writes) - NAMED_WRITERS:,} more")
    keep_time_text = span(DEFAULT_STAGED_HOURS * HOUR_MS)
    return context.finding(
        [write.wap_id for write in unpublished_writes],
        severity=Severity.INFO,
        figure=f"{len(unpublished_writes):,} not published",
        evidence=f"{count(len(unpublished_writes), 'staged write')} that nobody has published: "
        f"{'; '.join(write_texts)}",
        threshold="one snapshot with a wap.id, to which no branch or tag leads",
        source="write-audit-publish: spark.wap.id stages a snapshot, publish_changes publishes it",
        effect="No query sees these rows. Iceberg's expire_snapshots removes them for good, with "
        "their files, when they are older than its time; icekit maintain keeps them for "
        f"{keep_time_text} (--keep-staged).",
        remedy="Publish those that passed their audit (publish_changes with the wap_id). icekit "
        "maintain removes the others when their time is over, and names them in its plan.",
    )


def metadata_files_piling_up(context: Context) -> Finding | None:
    """A full metadata log, with deletion turned off: older metadata files leave the log but stay in
    storage.
    """
    facts = context.facts
    max_versions = max(1, facts.int_setting("write.metadata.previous-versions-max"))
    log_limit = min(max_versions, context.thresholds.metadata_log)
    is_deletion_on = facts.is_setting_true("write.metadata.delete-after-commit.enabled")
    if is_deletion_on or facts.history.metadata_log_count < log_limit:
        return None
    return context.finding(
        severity=Severity.INFO,
        figure=f"{facts.history.metadata_log_count:,} in the log",
        evidence=f"the metadata log holds {count(facts.history.metadata_log_count, 'file')}, and "
        "write.metadata.delete-after-commit.enabled is false",
        threshold=f"{log_limit} entries: write.metadata.previous-versions-max, at most "
        f"{context.thresholds.metadata_log}",
        source="table properties of metadata file retention",
        effect="Each commit drops the oldest entry from the log and leaves its file in storage, "
        "where only a search for orphan files finds it.",
        remedy="Let commits delete the metadata files that they drop. Files dropped earlier need "
        "remove_orphan_files.",
        sql=(
            context.alter_statement({"write.metadata.delete-after-commit.enabled": "true"}),
            context.orphan_dry_run_statement(),
        ),
    )


def stale_statistics(context: Context) -> Finding | None:
    """Table or partition statistics of a snapshot from before many rows changed."""
    facts = context.facts
    thresholds = context.thresholds
    stale_ages = [
        age
        for age in facts.statistics
        if age.commit_count
        and age.record_count is not None
        and age.changed_count > thresholds.stale_statistics * age.record_count
    ]
    if not stale_ages:
        return None
    stale_texts = (
        f"{age.statistics.kind} statistics are of snapshot {age.snapshot_id}, "
        f"{count(age.commit_count, 'commit')} ago: it had "
        f"{count(age.record_count or 0, 'record')}, and {age.changed_count:,} were added or "
        "deleted since"
        for age in stale_ages
    )
    return context.finding(
        [str(age.snapshot_id) for age in stale_ages],
        severity=Severity.INFO,
        figure=f"{max(age.changed_count for age in stale_ages):,} changes since",
        evidence="; ".join(stale_texts),
        threshold="records added and deleted since: more than "
        f"{percent(thresholds.stale_statistics)} "
        "of those at the time",
        effect="Spark's cost-based optimizer and Trino plan joins by the number of distinct "
        "values in these statistics, and choose badly if they no longer hold.",
        remedy="Compute the statistics again, best after each large load. If nothing renews them, "
        "let Spark ignore them: spark.sql.iceberg.report-column-stats=false.",
        sql=tuple(
            compute_statistics_sql(facts.catalog, facts.table, age.statistics) for age in stale_ages
        ),
    )
