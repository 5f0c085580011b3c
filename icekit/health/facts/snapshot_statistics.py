"""Read the statistics that snapshots have in files of their own, how far they are behind, and how
to renew them.
"""

from collections.abc import Sequence

from icekit.common.sql import call, display_name
from icekit.iceberg.metadata import (
    Json,
    children,
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
    table = [
        file for file in metadata.get("statistics") or () if file["snapshot-id"] == snapshot_id
    ]
    partition = [
        file
        for file in metadata.get("partition-statistics") or ()
        if file["snapshot-id"] == snapshot_id
    ]
    statistics: list[SnapshotStatistics] = []
    if table:
        schema = schema_of(metadata)
        names = {leaf.field_id: leaf.name for leaf in leaves(schema)}
        ids = [
            i for file in table for blob in file.get("blob-metadata") or () for i in blob["fields"]
        ]
        columns = dict.fromkeys(names[i] for i in ids if i in names)
        # What compute_table_stats takes without columns.
        by_default = {field.name for field in children(schema) if isinstance(field.type, str)}
        statistics.append(
            SnapshotStatistics("table", () if columns.keys() == by_default else tuple(columns))
        )
    if partition:
        statistics.append(SnapshotStatistics("partition"))
    return tuple(statistics)


def renewal(catalog: str, table: Sequence[str], statistics: SnapshotStatistics) -> str:
    """The statement that computes such statistics for the current snapshot."""
    procedure = f"compute_{statistics.kind}_stats"
    name = display_name(table)
    if statistics.columns:
        return call(catalog, procedure, table=name, columns=statistics.columns)
    return call(catalog, procedure, table=name)


def statistics_ages(metadata: Json, snapshot: Json | None) -> tuple[StatisticsAge, ...]:
    """How far the newest statistics of each kind are behind a snapshot; without those whose
    snapshot is not in its lineage.
    """
    ages: dict[str, StatisticsAge] = {}
    changed = 0
    computed_for = {file["snapshot-id"] for file in statistics_files(metadata)}
    for commits, ancestor in enumerate(lineage(snapshots_by_id(metadata), snapshot)):
        snapshot_id = ancestor["snapshot-id"]
        summary = summary_of(ancestor)
        for computed in statistics_of(metadata, snapshot_id) if snapshot_id in computed_for else ():
            records = summary.get("total-records")
            age = StatisticsAge(
                computed, snapshot_id, commits, changed, None if records is None else int(records)
            )
            ages.setdefault(computed.kind, age)
        if summary.get("operation") != "replace":
            changed += sum(int(summary.get(key, 0)) for key in _CHANGED_RECORDS)
    return tuple(ages.values())
