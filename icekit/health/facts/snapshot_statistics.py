"""Read the statistics that snapshots have in files of their own, how far they are behind, and how
to renew them.
"""

from collections.abc import Sequence

from icekit.common.sql import call_sql, display_name
from icekit.iceberg.metadata import (
    Json,
    child_fields,
    leaves,
    lineage,
    schema_of,
    snapshots_by_id,
    statistics_files,
    summary_of,
)
from icekit.iceberg.snapshots import SnapshotStatistics, StatisticsAge

#: The figures of a summary that count the rows that a commit changed (SnapshotSummary).
_CHANGED_RECORDS = (
    "added-records",
    "deleted-records",
    "added-position-deletes",
    "added-equality-deletes",
)


def statistics_of(metadata: Json, snapshot_id: int | None) -> tuple[SnapshotStatistics, ...]:
    """The statistics of a snapshot: a commit leaves them with the snapshot before it, and has none
    of its own.
    """
    table_statistics_files = [
        file for file in metadata.get("statistics") or () if file["snapshot-id"] == snapshot_id
    ]
    partition_statistics_files = [
        file
        for file in metadata.get("partition-statistics") or ()
        if file["snapshot-id"] == snapshot_id
    ]
    statistics: list[SnapshotStatistics] = []
    if table_statistics_files:
        schema = schema_of(metadata)
        names_by_id = {leaf_column.field_id: leaf_column.name for leaf_column in leaves(schema)}
        column_ids = [
            i
            for file in table_statistics_files
            for blob in file.get("blob-metadata") or ()
            for i in blob["fields"]
        ]
        column_names = dict.fromkeys(names_by_id[i] for i in column_ids if i in names_by_id)
        # What compute_table_stats takes without columns.
        default_column_names = {
            top_level_field.name
            for top_level_field in child_fields(schema)
            if isinstance(top_level_field.type, str)
        }
        statistics.append(
            SnapshotStatistics(
                "table", () if column_names.keys() == default_column_names else tuple(column_names)
            )
        )
    if partition_statistics_files:
        statistics.append(SnapshotStatistics("partition"))
    return tuple(statistics)


def compute_statistics_sql(
    catalog: str, table: Sequence[str], statistics: SnapshotStatistics
) -> str:
    """The statement that computes such statistics for the current snapshot."""
    procedure = f"compute_{statistics.kind}_stats"
    table_name = display_name(table)
    if statistics.columns:
        return call_sql(catalog, procedure, table=table_name, columns=statistics.columns)
    return call_sql(catalog, procedure, table=table_name)


def statistics_ages(metadata: Json, snapshot: Json | None) -> tuple[StatisticsAge, ...]:
    """How far the newest statistics of each kind are behind a snapshot; without those whose
    snapshot is not in its lineage.
    """
    ages_by_kind: dict[str, StatisticsAge] = {}
    changed_row_count = 0
    statistics_snapshot_ids = {
        statistics_file["snapshot-id"] for statistics_file in statistics_files(metadata)
    }
    for commit_count, ancestor in enumerate(lineage(snapshots_by_id(metadata), snapshot)):
        snapshot_id = ancestor["snapshot-id"]
        summary = summary_of(ancestor)
        for statistics in (
            statistics_of(metadata, snapshot_id) if snapshot_id in statistics_snapshot_ids else ()
        ):
            record_count_text = summary.get("total-records")
            age = StatisticsAge(
                statistics,
                snapshot_id,
                commit_count,
                changed_row_count,
                None if record_count_text is None else int(record_count_text),
            )
            ages_by_kind.setdefault(statistics.kind, age)
        if summary.get("operation") != "replace":
            changed_row_count += sum(int(summary.get(key, 0)) for key in _CHANGED_RECORDS)
    return tuple(ages_by_kind.values())
