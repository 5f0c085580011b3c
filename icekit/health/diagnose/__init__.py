"""From facts and thresholds to findings: pure functions, one per symptom."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from icekit.health.diagnose import (
    column_metrics,
    content,
    deletes,
    files,
    integrity,
    metadata_layers,
    partitions,
    storage,
    writes,
)
from icekit.health.diagnose.findings import Context, Finding, Findings, Thresholds, command_for
from icekit.health.facts.model import TableFacts

#: Every symptom, by the name of its finding: of those that are equally serious, what changes the
#: results of queries comes first, then what should be fixed before the others.
SYMPTOMS: Mapping[str, Callable[[Context], Finding | None]] = {
    check.__name__: check
    for check in (
        storage.missing_files,
        integrity.unreadable_metadata,
        integrity.unsupported_columns,
        integrity.duplicate_files,
        deletes.misfiled_deletes,
        deletes.several_vectors,
        deletes.unmatched_deletes,
        deletes.replaced_deletes,
        integrity.manifest_bounds,
        deletes.misread_equality_deletes,
        deletes.executor_cache,
        writes.identifiers_not_unique,
        deletes.merge_on_read_on_v1,
        storage.shared_location,
        files.target_too_small,
        partitions.over_partitioned,
        deletes.equality_deletes,
        deletes.equality_deletes_of_new_keys,
        deletes.deletes_default_rewrite_ignores,
        deletes.position_deletes,
        deletes.deletion_vectors,
        files.small_files,
        files.oversized_files,
        partitions.skewed_partitions,
        partitions.old_partition_spec,
        deletes.dangling_deletes,
        deletes.v2_position_deletes,
        content.bytes_outside_columns,
        content.thin_column_chunks,
        writes.distribution_mode,
        writes.frequent_commits,
        writes.one_writing_task,
        writes.vectors_rewritten,
        metadata_layers.fragmented_manifests,
        metadata_layers.overlapping_manifests,
        metadata_layers.old_snapshots,
        metadata_layers.snapshots_piling_up,
        metadata_layers.staged_writes,
        content.heavy_metadata,
        storage.orphan_files,
        metadata_layers.metadata_files_piling_up,
        metadata_layers.stale_statistics,
        column_metrics.metrics_missing,
        column_metrics.unclustered_filter_columns,
        column_metrics.columns_past_metrics_limit,
        column_metrics.too_many_metrics,
        writes.managed_elsewhere,
    )
}


def diagnose(
    facts: TableFacts,
    thresholds: Thresholds | None = None,
    *,
    session_conf: Mapping[str, str] | None = None,
) -> Findings:
    """Find what is wrong with a table, most serious first; empty when there is nothing to do.

    ``session_conf`` holds the Spark settings of the session that reads the table, where known
    (:meth:`icekit.engine.lake.Lake.session_conf`). Findings of equal severity are in the order of
    :data:`SYMPTOMS`.
    """
    context = Context(facts, thresholds or Thresholds(), session_conf)
    findings = [
        replace(finding, name=finding_name, command=command_for(facts, finding_name))
        for finding_name, check in SYMPTOMS.items()
        if (finding := check(context)) is not None
    ]
    if facts.has_unreadable_columns:
        # Spark runs no statement on the table.
        findings = [replace(finding, sql=()) for finding in findings]
    return Findings(sorted(findings, key=lambda f: -f.severity))
