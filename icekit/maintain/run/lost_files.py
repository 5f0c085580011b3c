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
    way_back: str

    @property
    def text(self) -> str:
        """What is gone, and the way back."""
        files = count(len(self.paths), "file")
        return (
            f"Commit {self.snapshot_id} is in the table, but {files} that it added "
            f"{'is' if len(self.paths) == 1 else 'are'} gone, so that the table cannot be read: "
            f"{self.paths[0]}. {self.way_back}"
        )


def lost_files(
    lake: Lake,
    table: Identifier,
    at: Head,
    branch: str | None,
    commits: Collection[int],
    *,
    with_data: Collection[int],
) -> list[LostFiles]:
    """Look up the manifest list and the manifests of some commits of a table, which is loaded
    again, and the data and delete files of those in ``with_data``; commits that expired are left
    out, also if they expire meanwhile.
    """
    suspects = _missing(lake, table, commits, with_data)
    # Another job's expiry may have come between the table and its files.
    lost = _missing(lake, table, suspects, with_data) if suspects else {}
    return [
        LostFiles(snapshot_id, paths, way_back(lake, table, at, branch, snapshot_id))
        for snapshot_id, paths in lost.items()
    ]


def _missing(
    lake: Lake, table: Identifier, commits: Collection[int], with_data: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """The files of commits that are gone, by the ids of the commits, as the table is now."""
    name = lake.sql_name(table)
    loaded = load_latest_table(lake.spark, name)
    java = java_object(lake.spark, loaded, "Added", loaded)
    by_commit: dict[int, tuple[str, ...]] = {}
    for snapshot_id in commits:
        paths = elements(java.missing(snapshot_id, snapshot_id in with_data))
        by_commit[snapshot_id] = tuple(sorted(map(str, paths)))
    # The session is to see what other jobs commit from now on.
    lake.spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return {snapshot_id: paths for snapshot_id, paths in by_commit.items() if paths}


def way_back(
    lake: Lake, table: Identifier, table_head: Head, branch: str | None, snapshot_id: int
) -> str:
    """Sentences that say how to undo a commit: by its parent, or the metadata file before it."""
    commit = snapshots_by_id(table_head.metadata).get(snapshot_id) or {}
    sentences = []
    if (parent_id := commit.get("parent-snapshot-id")) is not None:
        statement = call_sql(
            lake.name, "rollback_to_snapshot", table=display_name(table), snapshot_id=parent_id
        )
        if branch:
            statement = (
                f"ALTER TABLE {identifier(*lake.sql_name(table))} CREATE OR REPLACE BRANCH "
                f"{identifier(branch)} AS OF VERSION {parent_id}"
            )
        sentences.append(f"To roll back to its parent: {statement}.")
    if file := _metadata_file_before(table_head.metadata, commit):
        sentences.append(f"The metadata file before it is {file}.")
    return " ".join(sentences)


def _metadata_file_before(metadata: Json, commit: Json) -> str | None:
    """The newest metadata file from before a commit, as the table lists them."""
    made_ms = commit.get("timestamp-ms")
    earlier = [
        entry
        for entry in metadata.get("metadata-log") or ()
        if made_ms is not None and entry["timestamp-ms"] < made_ms
    ]
    return str(earlier[-1]["metadata-file"]) if earlier else None
