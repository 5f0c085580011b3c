"""Symptoms of the metadata layers: manifests, snapshots, metadata files."""

from __future__ import annotations

from icekit.diagnose.context import CHOICE, Context
from icekit.diagnose.findings import Finding, Severity
from icekit.units import count, percent, size, span


def fragmented_manifests(context: Context) -> Finding | None:
    """Many data manifests that would fit into few."""
    facts, limits = context.facts, context.thresholds
    manifests = facts.manifests
    target = facts.int_setting("commit.manifest.target-size-bytes")
    needed = max(1, -(-manifests.data_bytes // target))
    if manifests.undersized_data_count < limits.fragmented_manifests or manifests.data_count <= 2 * needed:
        return None
    merging = (facts.setting("commit.manifest-merge.enabled") or "true").lower() == "true"
    sql = [context.call("rewrite_manifests")]
    if not merging:
        sql.append(context.alter({"commit.manifest-merge.enabled": "true"}))
    return context.finding(
        "fragmented_manifests",
        Severity.WARNING,
        (),
        evidence=f"{count(manifests.data_count, 'data manifest')} of {size(manifests.data_bytes / manifests.data_count)} on average with "
        f"{manifests.data_entry_count / manifests.data_count:,.1f} live entries each, where {needed:,} of {size(target)} would do"
        + ("" if merging else "; merging on commit is turned off"),
        threshold=f"{limits.fragmented_manifests} data manifests under half of commit.manifest.target-size-bytes",
        source="commit.manifest.min-count-to-merge: what merging on commit waits for",
        effect="Every query opens every manifest that its filter cannot rule out: planning waits for one request each before the first row is read.",
        remedy="Rewrite the manifests; it touches no data file."
        + ("" if merging else " Turn merging on again unless a streaming writer needs it off; then rewrite them on a schedule."),
        sql=tuple(sql),
        files_at_stake=manifests.data_count,
        bytes_at_stake=manifests.data_bytes,
    )


def overlapping_manifests(context: Context) -> Finding | None:
    """Manifests whose partition ranges overlap, so that partition filters skip none.

    Judged where a rewrite would leave several manifests; otherwise there is nothing to
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
        evidence=f"a manifest's range of {best.field} overlaps {percent(best.mean_share)} of the other {best.manifest_count - 1:,} on average, and no field does better",
        threshold=f"{percent(limits.overlap_share)} of the others, from {limits.overlap_min_manifests} manifests on",
        source=CHOICE,
        effect="A query for one partition opens most manifests, because almost every one may hold it.",
        remedy="Rewrite the manifests: entries are then grouped by partition.",
        sql=(context.call("rewrite_manifests"),),
        files_at_stake=best.manifest_count,
        bytes_at_stake=facts.manifests.data_bytes,
    )


def snapshots_piling_up(context: Context) -> Finding | None:
    """More snapshots than anybody travels back to."""
    history, limits = context.facts.history, context.thresholds
    if history.snapshot_count < limits.snapshots or history.oldest_snapshot_ms is None or history.newest_snapshot_ms is None:
        return None
    facts = context.facts
    kept = span(history.newest_snapshot_ms - history.oldest_snapshot_ms)
    max_age = facts.int_setting("history.expire.max-snapshot-age-ms")
    retained = max(10, facts.int_setting("history.expire.min-snapshots-to-keep"))
    remedy = f"Expire those older than the table's limit of {span(max_age)} and keep the last {retained}; time travel to expired ones is lost for ever, so agree on how far back people look."
    if history.newest_snapshot_ms - history.oldest_snapshot_ms < max_age:
        remedy += f" None is {span(max_age)} older than the newest yet: lower history.expire.max-snapshot-age-ms if less will do."
    collected = (facts.setting("gc.enabled") or "true").lower() == "true"
    return context.finding(
        "snapshots_piling_up",
        Severity.WARNING,
        (),
        evidence=f"{count(history.snapshot_count, 'snapshot')} over {kept}; {count(len(history.refs), 'branch or tag', 'branches and tags')} protected",
        threshold=f"{limits.snapshots} snapshots",
        source=CHOICE,
        effect="Each commit rewrites the list of all of them, each planning reads it, and no file that any of them names can be freed.",
        remedy=remedy
        if collected
        else "The table has gc.enabled=false, so nothing may be expired here: another table may share its files.",
        sql=(context.call("expire_snapshots", retain_last=retained),) if collected else (),
        files_at_stake=history.snapshot_count,
    )


def metadata_files_piling_up(context: Context) -> Finding | None:
    """A full metadata log that nothing empties: older metadata files are forgotten, not deleted."""
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
        effect="Each further commit drops the oldest entry from the log and leaves its file in storage, where only an orphan search finds it.",
        remedy="Let commits delete what they drop; files dropped before need remove_orphan_files.",
        sql=(context.alter({"write.metadata.delete-after-commit.enabled": "true"}), context.list_orphans()),
        files_at_stake=facts.history.metadata_log_count,
    )
