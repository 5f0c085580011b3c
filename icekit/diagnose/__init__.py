"""From facts and thresholds to findings: pure functions, one per symptom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from icekit.diagnose import (
    column_metrics,
    content,
    deletes,
    files,
    integrity,
    location,
    metadata_layers,
    partitions,
    unreadable,
    writes,
)
from icekit.diagnose.findings import Context, Finding, Findings, Thresholds, command_for
from icekit.facts.model import TableFacts

#: Every symptom, by the name of its finding.
SYMPTOMS: Mapping[str, Callable[[Context], Finding | None]] = {
    check.__name__: check
    for check in (
        unreadable.missing_files,
        unreadable.unreadable_metadata,
        integrity.duplicate_files,
        integrity.misfiled_deletes,
        integrity.unmatched_deletes,
        integrity.manifest_bounds,
        files.small_files,
        files.oversized_files,
        files.target_too_small,
        partitions.skewed_partitions,
        partitions.over_partitioned,
        partitions.old_partition_spec,
        location.orphan_files,
        location.shared_location,
        deletes.equality_deletes,
        deletes.equality_deletes_of_new_keys,
        deletes.executor_cache,
        deletes.position_deletes,
        deletes.v2_position_deletes,
        deletes.deletion_vectors,
        deletes.dangling_deletes,
        deletes.deletes_default_rewrite_ignores,
        deletes.merge_on_read_on_v1,
        metadata_layers.fragmented_manifests,
        metadata_layers.overlapping_manifests,
        metadata_layers.snapshots_piling_up,
        metadata_layers.metadata_files_piling_up,
        metadata_layers.stale_statistics,
        content.bytes_outside_columns,
        content.thin_column_chunks,
        content.heavy_metadata,
        writes.one_writing_task,
        writes.frequent_commits,
        writes.vectors_rewritten,
        writes.identifiers_not_unique,
        writes.managed_elsewhere,
        deletes.distribution_mode,
        column_metrics.metrics_missing,
        column_metrics.columns_past_metrics_limit,
        column_metrics.too_many_metrics,
        column_metrics.unclustered_filter_columns,
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
    (:meth:`icekit.catalog.Lake.session_conf`). Findings of equal severity are ordered by
    bytes at stake, then by files at stake.
    """
    context = Context(facts, thresholds or Thresholds(), session_conf)
    findings = [
        replace(finding, name=name, command=command_for(facts, name))
        for name, check in SYMPTOMS.items()
        if (finding := check(context)) is not None
    ]
    if context.resolves_first:
        findings = list(map(_resolved_first, findings))
    return Findings(
        sorted(findings, key=lambda f: (-f.severity, -f.bytes_at_stake, -f.files_at_stake, f.name))
    )


def _resolved_first(finding: Finding) -> Finding:
    """Leave out the statements that run Spark's own rewrite: it would load equality deletes that do not
    fit into its memory.
    """
    statements = tuple(
        statement for statement in finding.sql if ".rewrite_data_files(" not in statement
    )
    if statements == finding.sql:
        return finding
    return replace(
        finding,
        remedy=f"With icekit compact {finding.table} (its equality deletes do not fit into the "
        f"memory of Spark's own rewrite): {finding.remedy}",
        sql=statements,
    )
