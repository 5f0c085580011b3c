"""Look up in storage what commits added: after an answer that was wrong or lost, a table may name
files that are gone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.sql import Identifier, call_sql, display_name, identifier
from icekit.common.units import count
from icekit.engine.bridge import elements, java_object, load_latest_table
from icekit.health.facts.head import Head
from icekit.iceberg.metadata import Json, snapshots_by_id

if TYPE_CHECKING:
    from icekit.engine.lake import Lake


@frozen
class LostFiles:
    """The files that a commit added and that are gone, and the statements that undo the commit."""

    snapshot_id: int
    paths: tuple[str, ...]
    undo_text: str

    @property
    def text(self) -> str:
        """What is gone, and the way back."""
        file_count_text = count(len(self.paths), "file")
        return (
            f"Commit {self.snapshot_id} is in the table, but {file_count_text} that it added "
            f"{'is' if len(self.paths) == 1 else 'are'} gone, so that the table cannot be read: "
            f"{self.paths[0]}. {self.undo_text}"
        )


def lost_files(
    lake: Lake,
    table: Identifier,
    table_head: Head,
    branch: str | None,
    commit_ids: Collection[int],
    *,
    data_commit_ids: Collection[int],
) -> list[LostFiles]:
    """Look up the manifest list and the manifests of some commits of a table, which is loaded
    again, and the data and delete files of those in ``data_commit_ids``; commits that expired are
    left out, also if they expire meanwhile.
    """
    suspect_commits = _missing_paths(lake, table, commit_ids, data_commit_ids)
    # Another job's expiry may have come between the table and its files.
    missing_by_commit = (
        _missing_paths(lake, table, suspect_commits, data_commit_ids) if suspect_commits else {}
    )
    return [
        LostFiles(snapshot_id, paths, undo_text(lake, table, table_head, branch, snapshot_id))
        for snapshot_id, paths in missing_by_commit.items()
    ]


def _missing_paths(
    lake: Lake, table: Identifier, commit_ids: Collection[int], data_commit_ids: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """The files of commits that are gone, by the ids of the commits, as the table is now."""
    table_name = lake.sql_name(table)
    latest_table = load_latest_table(lake.spark, table_name)
    java_added_files = java_object(lake.spark, latest_table, "Added", latest_table)
    missing_by_commit: dict[int, tuple[str, ...]] = {}
    for snapshot_id in commit_ids:
        paths = elements(java_added_files.missing(snapshot_id, snapshot_id in data_commit_ids))
        missing_by_commit[snapshot_id] = tuple(sorted(map(str, paths)))
    # The session is to see what other jobs commit from now on.
    lake.spark.sql(f"REFRESH TABLE {identifier(*table_name)}")
    return {snapshot_id: paths for snapshot_id, paths in missing_by_commit.items() if paths}


def undo_text(
    lake: Lake, table: Identifier, table_head: Head, branch: str | None, snapshot_id: int
) -> str:
    """Sentences that say how to undo a commit: by its parent, or the metadata file before it."""
    commit = snapshots_by_id(table_head.metadata).get(snapshot_id) or {}
    sentences = []
    if (parent_id := commit.get("parent-snapshot-id")) is not None:
        rollback_sql = call_sql(
            lake.name, "rollback_to_snapshot", table=display_name(table), snapshot_id=parent_id
        )
        if branch:
            rollback_sql = (
                f"ALTER TABLE {identifier(*lake.sql_name(table))} CREATE OR REPLACE BRANCH "
                f"{identifier(branch)} AS OF VERSION {parent_id}"
            )
        sentences.append(f"To roll back to its parent: {rollback_sql}.")
    if earlier_metadata_file := _metadata_file_before(table_head.metadata, commit):
        sentences.append(f"The metadata file before it is {earlier_metadata_file}.")
    return " ".join(sentences)


def _metadata_file_before(metadata: Json, commit: Json) -> str | None:
    """The newest metadata file from before a commit, as the table lists them."""
    committed_ms = commit.get("timestamp-ms")
    earlier_entries = [
        entry
        for entry in metadata.get("metadata-log") or ()
        if committed_ms is not None and entry["timestamp-ms"] < committed_ms
    ]
    return str(earlier_entries[-1]["metadata-file"]) if earlier_entries else None
