"""Check manifests, snapshots, metadata files and statistics files: one function per finding."""

from icekit.common.units import count, elapsed, first_names, percent, size, span
from icekit.health.diagnose.findings import NAMED_WRITERS, Context, Finding, Severity
from icekit.health.facts.retention import DEFAULT_STAGED_HOURS, HOUR_MS
from icekit.health.facts.snapshot_statistics import renewal_statement
from icekit.iceberg.snapshots import History

#: A choice: the time of one small request to an object store, in seconds.
_REQUEST_SECONDS = 0.02
_MERGING = "commit.manifest-merge.enabled"


def fragmented_manifests(context: Context) -> Finding | None:
    """Many manifests that would fit into few."""
    facts = context.facts
    thresholds = context.thresholds
    manifests = facts.manifests
    target_bytes = facts.int_setting("commit.manifest.target-size-bytes")
    manifest_count = manifests.count
    entry_count = manifests.data_entry_count + manifests.delete_entry_count
    saved_count = sum(
        spec_manifests.saved_count(target_bytes) for spec_manifests in manifests.by_spec
    )
    if manifests.undersized_count < thresholds.fragmented_manifests or not any(
        spec_manifests.is_fragmented(target_bytes) for spec_manifests in manifests.by_spec
    ):
        return None
    statements = [context.call("rewrite_manifests")]
    more_evidence = ""
    more_remedy = ""
    if not facts.is_setting_true(_MERGING):
        statements.append(context.alter_statement({_MERGING: "true"}))
        more_evidence = f"; {_MERGING} is false"
        more_remedy = (
            " Turn merging on again. If a streaming writer needs it off, rewrite the manifests on "
            "a schedule instead."
        )
    return context.finding(
        figure=f"{manifest_count:,} where {manifest_count - saved_count:,} would do",
        evidence=f"{count(manifest_count, 'manifest')} of "
        f"{size(manifests.size_in_bytes / manifest_count)} on "
        f"average with {entry_count / manifest_count:,.1f} live entries each; "
        f"{manifest_count - saved_count:,} of "
        f"{size(target_bytes)} would be enough{more_evidence}",
        threshold=f"{thresholds.fragmented_manifests} manifests smaller than half of "
        "commit.manifest.target-size-bytes",
        source="commit.manifest.min-count-to-merge: the count at which commits merge manifests",
        effect="Every query opens every manifest that its filter cannot rule out: planning waits "
        "for one request per manifest before the first row is read. A rewrite saves a query up to "
        f"{count(saved_count, 'request')}: at most {elapsed(saved_count * _REQUEST_SECONDS)} of "
        "planning on "
        f"an object store at 20 ms each, hardly any on a local disk. {context.command('tune planning')} "
        "measures it.",
        remedy=f"Rewrite the manifests; this does not touch data files.{more_remedy}",
        sql=tuple(statements),
    )


def overlapping_manifests(context: Context) -> Finding | None:
    """Manifests whose partition ranges overlap, so that partition filters skip none.

    Checked only if a rewrite would leave several manifests; otherwise there is nothing to
    cluster.
    """
    facts = context.facts
    thresholds = context.thresholds
    target_bytes = facts.int_setting("commit.manifest.target-size-bytes")
    if facts.manifests.data_bytes <= 2 * target_bytes:
        return None
    overlaps = [
        o
        for o in facts.manifests.overlaps
        if o.spec_id == facts.default_spec_id
        and o.manifest_count >= thresholds.overlap_min_manifests
    ]
    if not overlaps:
        return None
    # A filter on the best clustered field still skips manifests.
    best_overlap = min(overlaps, key=lambda o: o.mean_share)
    if best_overlap.mean_share < thresholds.overlap_share:
        return None
    return context.finding(
        [o.field for o in overlaps],
        figure=f"{percent(best_overlap.mean_share)} of the others",
        evidence=f"a manifest's range of {best_overlap.field} overlaps "
        f"{percent(best_overlap.mean_share)} of the "
        f"other {count(best_overlap.manifest_count - 1, 'manifest')} on average; every other "
        "partition "
        "field is as bad or worse",
        threshold=f"{percent(thresholds.overlap_share)} of the other manifests, with "
        f"{thresholds.overlap_min_manifests} manifests or more",
        effect="A query for one partition opens most manifests, because almost every manifest may "
        "list its files.",
        remedy="Rewrite the manifests, which groups their entries by partition.",
        sql=(context.call("rewrite_manifests"),),
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
    facts = context.facts
    history_span = span(history.newest_snapshot_ms - history.oldest_snapshot_ms)
    max_age_ms = facts.int_setting("history.expire.max-snapshot-age-ms")
    retained_count = max(10, facts.int_setting("history.expire.min-snapshots-to-keep"))
    expirable_count = history.expirable_count
    statements: tuple[str, ...] = ()
    if not facts.is_setting_true("gc.enabled"):
        remedy = (
            "The table has gc.enabled=false, so snapshots must not be expired: another table may "
            "share its files."
        )
    elif expirable_count == 0:
        remedy = (
            "No snapshot would expire now: each is younger than the table's limit of "
            f"{span(max_age_ms)}, among the last of a branch (every branch keeps its own), the "
            "head of a branch or tag, or needed by a writer or a staged write. Drop branches and "
            "tags that nobody needs, or state a "
            f"shorter retention: {context.command('maintain', '--keep', 'TIME', '--keep-last', 'N')}."
        )
    else:
        remedy = (
            f"Expire snapshots older than the table's limit of {span(max_age_ms)} and keep the "
            "last "
            f"{retained_count}. Time travel to an expired snapshot is impossible, so first agree "
            "on how "
            "far back people need to look."
        )
        if history.writers or history.staged:
            # Iceberg's procedure knows nothing of these.
            remedy += (
                " Do it with icekit maintain: expire_snapshots itself would also remove what "
                f"{_snapshot_users(history)} need."
            )
        else:
            statements = (context.call("expire_snapshots", retain_last=retained_count),)
    expirable_text = "" if expirable_count is None else f"; {expirable_count:,} would expire now"
    return context.finding(
        severity=Severity.INFO if expirable_count == 0 else Severity.WARNING,
        figure=f"{expirable_count:,} of {history.snapshot_count:,} would expire"
        if expirable_count
        else f"{history.snapshot_count:,}",
        evidence=f"{count(history.snapshot_count, 'snapshot')} over {history_span}; "
        f"protected branches and tags: {len(history.refs):,}{expirable_text}",
        threshold=f"{thresholds.snapshots} snapshots",
        effect="Each commit rewrites the list of all snapshots, each query plan reads it, and no "
        "file that a snapshot references can be deleted.",
        remedy=remedy,
        sql=statements,
    )


def _snapshot_users(history: History) -> str:
    """Who needs snapshots: ``1 writer (Flink job 7f1c, checkpoint 41) and 2 staged writes``."""
    need_texts = []
    if history.writers:
        writers = dict.fromkeys(state.text for state in history.writers)
        writer_names = first_names(writers, NAMED_WRITERS)
        need_texts.append(f"{count(len(writers), 'writer')} ({writer_names})")
    if history.staged:
        need_texts.append(count(len(history.staged), "unpublished staged write"))
    return " and ".join(need_texts)


def staged_writes(context: Context) -> Finding | None:
    """Writes that were staged for an audit, and that nobody has published."""
    writes = context.facts.history.staged
    if not writes or context.facts.ref is not None:
        return None
    keep_time = span(DEFAULT_STAGED_HOURS * HOUR_MS)
    return context.finding(
        [write.wap_id for write in writes],
        severity=Severity.INFO,
        figure=f"{len(writes):,} not published",
        evidence=f"{count(len(writes), 'staged write')} that nobody has published: "
        f"{'; '.join(write.text for write in writes[:NAMED_WRITERS])}"
        + (f"; and {len(writes) - NAMED_WRITERS:,} more" if len(writes) > NAMED_WRITERS else ""),
        threshold="one snapshot with a wap.id, to which no branch or tag leads",
        source="write-audit-publish: spark.wap.id stages a snapshot, publish_changes publishes it",
        effect="No query sees these rows. Iceberg's expire_snapshots removes them for good, with "
        "their files, when they are older than its time; icekit maintain keeps them for "
        f"{keep_time} "
        "(--keep-staged).",
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
    has_deletion = facts.is_setting_true("write.metadata.delete-after-commit.enabled")
    if has_deletion or facts.history.metadata_log_count < log_limit:
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
            context.orphan_dry_run(),
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
    age_texts = (
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
        evidence="; ".join(age_texts),
        threshold="records added and deleted since: more than "
        f"{percent(thresholds.stale_statistics)} "
        "of those at the time",
        effect="Spark's cost-based optimizer and Trino plan joins by the number of distinct "
        "values in these statistics, and choose badly if they no longer hold.",
        remedy="Compute the statistics again, best after each large load. If nothing renews them, "
        "let Spark ignore them: spark.sql.iceberg.report-column-stats=false.",
        sql=tuple(
            renewal_statement(facts.catalog, facts.table, age.statistics) for age in stale_ages
        ),
    )
