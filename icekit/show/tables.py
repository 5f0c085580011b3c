"""Facts and findings as pandas DataFrames, with the column names of Iceberg's metadata tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pandas as pd

from icekit.diagnose.findings import Finding, Thresholds, findings_html
from icekit.facts import rollup
from icekit.facts.model import Kind, Partition, TableFacts
from icekit.facts.rollup import expected_files, expected_manifests
from icekit.show.sparkline import in_band, left_alone, size_bars
from icekit.units import at, size_range

_Row = TypeVar("_Row")

#: What a partition without a name, the whole of an unpartitioned table, is called.
UNPARTITIONED = "(unpartitioned)"


def files(facts: TableFacts) -> pd.DataFrame:
    """Files of each kind there is: how many, how large, how many records."""
    return _frame(
        [(kind, facts.total(kind)) for kind in Kind if facts.of_kind(kind)],
        content=lambda r: r[0].value,
        file_count=lambda r: r[1].file_count,
        size_in_bytes=lambda r: r[1].size_in_bytes,
        record_count=lambda r: r[1].record_count,
        mean_file_size_in_bytes=lambda r: round(r[1].mean_bytes or 0),
        min_file_size_in_bytes=lambda r: r[1].min_bytes,
        max_file_size_in_bytes=lambda r: r[1].max_bytes,
        partition_count=lambda r: len(facts.of_kind(r[0])),
    )


def file_sizes(facts: TableFacts, kind: Kind = Kind.DATA, thresholds: Thresholds | None = None) -> pd.DataFrame:
    """Files of one kind by size; ``left_alone`` marks sizes that no size rule of a rewrite selects."""
    total = facts.total(kind)
    band = left_alone(facts, kind, thresholds)
    return _frame(
        size_bars(facts, kind, thresholds),
        ("upper_bytes",),
        size=lambda r: size_range(r.lower_bytes, r.upper_bytes),
        lower_bytes=lambda r: r.lower_bytes,
        upper_bytes=lambda r: r.upper_bytes,
        file_count=lambda r: r.file_count,
        size_in_bytes=lambda r: r.size_in_bytes,
        share_of_files=lambda r: r.file_count / total.file_count,
        share_of_bytes=lambda r: r.size_in_bytes / total.size_in_bytes if total.size_in_bytes else None,
        left_alone=lambda r: in_band(r, band),
    )


def delete_ratios(facts: TableFacts) -> pd.DataFrame:
    """Deletes against data of each partition that has any, highest ratio by records first."""
    return _frame(
        rollup.delete_ratios(facts),
        partition=lambda r: partition_name(facts, r.partition),
        record_count=lambda r: r.data_record_count,
        file_count=lambda r: r.data_file_count,
        position_delete_record_count=lambda r: r.position_delete_record_count,
        position_delete_file_count=lambda r: r.position_delete_file_count,
        equality_delete_record_count=lambda r: r.equality_delete_record_count,
        equality_delete_file_count=lambda r: r.equality_delete_file_count,
        dv_record_count=lambda r: r.deletion_vector_record_count,
        dv_count=lambda r: r.deletion_vector_count,
        deletes_per_record=lambda r: r.by_records,
        delete_files_per_file=lambda r: r.by_files,
    )


def worst_partitions(facts: TableFacts, limit: int = 20) -> pd.DataFrame:
    """Partitions with the most data files beyond what their bytes need at the target size."""
    return _frame(
        rollup.worst_partitions(facts, limit),
        partition=lambda r: partition_name(facts, r.partition),
        spec_id=lambda r: r.partition.spec_id,
        file_count=lambda r: r.file_count,
        files_needed=lambda r: expected_files(r.size_in_bytes, facts.target_bytes),
        total_data_file_size_in_bytes=lambda r: r.size_in_bytes,
        record_count=lambda r: r.record_count,
        mean_file_size_in_bytes=lambda r: round(r.mean_bytes),
    )


def manifests(facts: TableFacts) -> pd.DataFrame:
    """Data and delete manifests, and how many their bytes need at the target size."""
    target = facts.int_setting("commit.manifest.target-size-bytes")
    m = facts.manifests
    found = [("data", m.data_count, m.data_bytes, m.data_entry_count), ("deletes", m.delete_count, m.delete_bytes, m.delete_entry_count)]
    return _frame(
        [row for row in found if row[1]],
        content=lambda r: r[0],
        manifest_count=lambda r: r[1],
        manifests_needed=lambda r: expected_manifests(r[2], target),
        size_in_bytes=lambda r: r[2],
        mean_size_in_bytes=lambda r: round(r[2] / r[1]),
        entry_count=lambda r: r[3],
        entries_per_manifest=lambda r: r[3] / r[1],
    )


def manifest_overlaps(facts: TableFacts) -> pd.DataFrame:
    """The mean share of the other data manifests that one overlaps, by partition field."""
    return _frame(
        facts.manifests.overlaps,
        partition_spec_id=lambda r: r.spec_id,
        partition_field=lambda r: r.field,
        manifest_count=lambda r: r.manifest_count,
        mean_overlap=lambda r: r.mean_share,
    )


def commits(facts: TableFacts, limit: int | None = 20) -> pd.DataFrame:
    """The newest commits of the lineage, newest first, as their summaries tell them; None gives all that facts keep."""
    return _frame(
        facts.history.commits[::-1][:limit],
        ("added_data_files", "added_delete_files", "added_files_size", "added_records", "deleted_data_files", "changed_partition_count"),
        committed_at=lambda r: at(r.committed_at_ms),
        snapshot_id=lambda r: r.snapshot_id,
        operation=lambda r: r.operation,
        added_data_files=lambda r: r.added_data_files,
        added_delete_files=lambda r: r.added_delete_files,
        added_files_size=lambda r: r.added_bytes,
        added_records=lambda r: r.added_records,
        deleted_data_files=lambda r: r.removed_data_files,
        changed_partition_count=lambda r: r.changed_partitions,
        writer=lambda r: r.writer,
    )


def settings(facts: TableFacts) -> pd.DataFrame:
    """Table properties in force and where each comes from."""
    return _frame(facts.settings, name=lambda r: r.name, value=lambda r: r.value, origin=lambda r: r.origin)


def columns(facts: TableFacts) -> pd.DataFrame:
    """Leaf columns: the metrics that new files get, and what sampled files have."""
    sample = facts.metrics_sample
    return _frame(
        [(column, sample.column(column.name)) for column in facts.columns],
        ("files_with_bounds", "files_with_counts"),
        field_id=lambda r: r[0].field_id,
        name=lambda r: r[0].name,
        type=lambda r: r[0].type,
        required=lambda r: r[0].required,
        metrics_mode=lambda r: r[0].metrics_mode,
        files_sampled=lambda r: sample.file_count,  # noqa: ARG005 - the same for every column
        files_with_bounds=lambda r: r[1].bounds_file_count if r[1] else None,
        files_with_counts=lambda r: r[1].counts_file_count if r[1] else None,
        stab_share=lambda r: r[1].stab_share if r[1] else None,
    )


def distribution(facts: TableFacts) -> pd.DataFrame:
    """How each operation distributes rows before it writes, and why."""
    return _frame(facts.distribution, operation=lambda r: r.operation, mode=lambda r: r.mode, origin=lambda r: r.origin)


def findings_table(findings: Iterable[Finding]) -> pd.DataFrame:
    """Findings in their order; ``sql`` holds the statements, one to a line."""
    return _frame(
        findings,
        table=lambda r: r.table,
        severity=lambda r: r.severity.name.lower(),
        finding=lambda r: r.name,
        evidence=lambda r: r.evidence,
        where=lambda r: ", ".join(r.where),
        where_count=lambda r: r.where_count,
        threshold=lambda r: r.threshold,
        source=lambda r: r.source,
        effect=lambda r: r.effect,
        remedy=lambda r: r.remedy,
        sql=lambda r: ";\n".join(r.sql),
    )


def partition_name(facts: TableFacts, partition: Partition | None) -> str:
    """A partition as people read it."""
    return (facts.partition_path(partition) if partition is not None else "") or UNPARTITIONED


def _frame(rows: Iterable[_Row], integers: tuple[str, ...] = (), /, **columns: Callable[[_Row], object]) -> pd.DataFrame:
    """A frame of the columns named, which it has even without rows; ``integers`` stay whole beside absent ones."""
    made = [[value(row) for value in columns.values()] for row in rows]
    return pd.DataFrame(made, columns=list(columns)).astype(dict.fromkeys(integers, "Int64"))


__all__ = [
    "columns",
    "commits",
    "delete_ratios",
    "distribution",
    "file_sizes",
    "files",
    "findings_html",
    "findings_table",
    "manifest_overlaps",
    "manifests",
    "settings",
    "worst_partitions",
]
