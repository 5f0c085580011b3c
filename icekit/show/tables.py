"""Facts as tables, with the column names of Iceberg's metadata tables, and ranges of file sizes; no
pandas, no matplotlib.
"""

from itertools import chain

from icekit.common.units import size_range, utc_time
from icekit.common.view import BYTES, COUNT, FLAG, IDENTIFIER, NAME, NUMBER, SHARE, TEXT, TIME, Grid
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts import rollup
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import (
    expected_files,
    file_size_histogram,
    max_file_size,
    min_file_size,
)
from icekit.iceberg.manifest_counts import expected_manifest_count


def file_sizes(
    facts: TableFacts, thresholds: Thresholds | None = None, *, coarse: bool = False
) -> Grid:
    """Data files by size, up to the sizes that no size rule of a rewrite selects (by the given
    limits), which ``left_alone`` marks.

    The ranges end at the facts' own edges, or (``coarse``) at 1/16 and 1/4 of the target, and at
    the limits of those sizes: a changed limit lies between buckets, or findings reject it.
    """
    grid_columns = {
        "size": TEXT,
        "lower_bytes": BYTES("from"),
        "upper_bytes": BYTES("to"),
        "file_count": COUNT("files"),
        "size_in_bytes": BYTES("bytes"),
        "share_of_files": SHARE,
        "share_of_bytes": SHARE,
        "left_alone": FLAG("a rewrite leaves it alone"),
    }
    thresholds_in_force = thresholds or Thresholds()
    target_bytes = facts.target_bytes
    data_totals = facts.data
    min_size_bytes = min_file_size(target_bytes, thresholds_in_force.min_file_size_ratio)
    max_size_bytes = max_file_size(target_bytes, thresholds_in_force.max_file_size_ratio)
    range_edges = set(facts.data_edges)
    if coarse:
        range_edges = {
            0,
            *(
                coarse_edge
                for coarse_edge in (target_bytes // 16, target_bytes // 4)
                if coarse_edge < min_size_bytes
            ),
        }
    # A rewrite leaves a file of exactly either limit alone.
    range_edges = (range_edges | {min_size_bytes, max_size_bytes + 1}) - {max_size_bytes}
    range_rows = [
        (
            size_range(bar.lower_bytes, bar.upper_bytes),
            bar.lower_bytes,
            bar.upper_bytes,
            bar.file_count,
            bar.size_in_bytes,
            bar.file_count / data_totals.file_count,
            bar.size_in_bytes / data_totals.size_in_bytes if data_totals.size_in_bytes else None,
            min_size_bytes <= bar.lower_bytes <= max_size_bytes,
        )
        for bar in file_size_histogram(
            facts, tuple(sorted(range_edges)), (min_size_bytes, max_size_bytes)
        )
    ]
    return Grid("", grid_columns, range_rows)


def delete_ratios(facts: TableFacts) -> Grid:
    """Deletes compared with data, for each partition with deletes; highest ratio by records
    first.
    """
    grid_columns = {
        "partition": NAME,
        "record_count": COUNT("records"),
        "file_count": COUNT("files"),
        "position_delete_record_count": COUNT("position deletes"),
        "position_delete_file_count": COUNT("position delete files"),
        "equality_delete_record_count": COUNT("equality deletes"),
        "equality_delete_file_count": COUNT("equality delete files"),
        "dv_record_count": COUNT("rows deleted by vectors"),
        "dv_count": COUNT("deletion vectors"),
        "deletes_per_record": SHARE("delete records per data record"),
        "delete_files_per_file": NUMBER("delete files per data file"),
    }
    partition_rows = [
        (
            facts.partition_name(partition),
            *chain.from_iterable(
                (t.record_count, t.file_count) for t in ratio.totals_by_kind.values()
            ),
            ratio.by_records,
            ratio.by_files,
        )
        for partition, ratio in rollup.delete_ratios(facts).items()
    ]
    return Grid("", grid_columns, partition_rows)


def worst_partitions(facts: TableFacts, limit: int = 20) -> Grid:
    """Partitions with the most data files beyond the number needed at the target size."""
    grid_columns = {
        "partition": NAME,
        "spec_id": IDENTIFIER("spec"),
        "file_count": COUNT("files"),
        "files_needed": COUNT("needed"),
        "total_data_file_size_in_bytes": BYTES("size"),
        "record_count": COUNT("records"),
        "mean_file_size_in_bytes": BYTES("mean"),
    }
    partition_rows = [
        (
            facts.partition_name(g.partition),
            g.partition.spec_id,
            g.file_count,
            expected_files(g.size_in_bytes, facts.target_bytes),
            g.size_in_bytes,
            g.record_count,
            g.mean_bytes,
        )
        for g in rollup.worst_partitions(facts, limit)
    ]
    return Grid("", grid_columns, partition_rows)


def manifests(facts: TableFacts) -> Grid:
    """Data and delete manifests, and the number needed at the target size."""
    grid_columns = {
        "content": TEXT,
        "manifest_count": COUNT("manifests"),
        "manifests_needed": COUNT("needed"),
        "size_in_bytes": BYTES("size"),
        "mean_size_in_bytes": BYTES("mean"),
        "entry_count": COUNT("entries"),
        "entries_per_manifest": NUMBER("entries per manifest"),
    }
    target_bytes = facts.int_setting("commit.manifest.target-size-bytes")
    m = facts.manifests
    content_figures = [
        ("data", m.data_count, m.data_bytes, m.data_entry_count),
        ("deletes", m.delete_count, m.delete_bytes, m.delete_entry_count),
    ]
    content_rows = [
        (
            content,
            manifest_count,
            expected_manifest_count(size_in_bytes, target_bytes),
            size_in_bytes,
            size_in_bytes / manifest_count,
            entry_count,
            entry_count / manifest_count,
        )
        for content, manifest_count, size_in_bytes, entry_count in content_figures
        if manifest_count
    ]
    return Grid("", grid_columns, content_rows)


def commits(facts: TableFacts, limit: int | None = 20) -> Grid:
    """The newest commits of the lineage, newest first, from their summaries; ``limit`` None gives
    all in the facts.
    """
    grid_columns = {
        "committed_at": TIME,
        "snapshot_id": IDENTIFIER("snapshot"),
        "operation": TEXT,
        "added_data_files": COUNT,
        "added_delete_files": COUNT,
        "added_files_size": BYTES("added bytes"),
        "added_records": COUNT,
        "deleted_data_files": COUNT,
        "changed_partition_count": COUNT("changed partitions"),
        "writer": TEXT,
    }
    commit_rows = [
        (
            utc_time(c.committed_at_ms),
            c.snapshot_id,
            c.operation,
            c.added_data_files,
            c.added_delete_files,
            c.added_bytes,
            c.added_records,
            c.removed_data_files,
            c.changed_partitions,
            c.writer,
        )
        for c in facts.history.commits[::-1][:limit]
    ]
    return Grid("", grid_columns, commit_rows)


def settings(facts: TableFacts) -> Grid:
    """Table properties in force and the origin of each."""
    setting_rows = [(s.name, s.value, s.origin) for s in facts.settings]
    return Grid(
        "", {"name": TEXT, "value": TEXT, "origin": TEXT("origin")}, setting_rows, len(setting_rows)
    )


def columns(facts: TableFacts) -> Grid:
    """Leaf columns: the metrics that new files get, and what sampled files have."""
    metrics_sample = facts.metrics_sample
    grid_columns = {
        "field_id": IDENTIFIER("id"),
        "name": NAME,
        "type": NAME,
        "required": FLAG,
        "metrics_mode": TEXT("metrics of new files"),
        "files_sampled": COUNT,
        "files_with_bounds": COUNT("with bounds"),
        "files_with_counts": COUNT("with counts"),
        "stab_share": SHARE("files a lookup reads"),
    }
    column_rows = []
    for c in facts.columns:
        sampled_metrics = metrics_sample.column(c.name)
        bounds_and_counts = (
            (
                sampled_metrics.bounds_file_count,
                sampled_metrics.counts_file_count,
                sampled_metrics.stab_share,
            )
            if sampled_metrics
            else (None, None, None)
        )
        column_rows.append(
            (
                c.field_id,
                c.name,
                c.type,
                c.required,
                c.metrics_mode,
                metrics_sample.file_count,
                *bounds_and_counts,
            )
        )
    return Grid("", grid_columns, column_rows, 200)


def write_distribution(facts: TableFacts) -> Grid:
    """How each operation distributes rows before it writes, and why."""
    operation_rows = [(d.operation, d.mode, d.origin) for d in facts.distribution]
    return Grid("", {"operation": TEXT, "mode": TEXT, "origin": TEXT("origin")}, operation_rows)
