"""Read from a table's own commits what a run did: find them by their tags, and sum up what they
changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from icekit.common import frozen
from icekit.health.facts.head import Head
from icekit.iceberg.metadata import Json, snapshots_by_id, summary_of
from icekit.maintain.prediction import EQUALITY_DELETE

#: A key in the snapshot summary of each of a run's commits.
RUN_TAG = "icekit.run-id"
ACTION_TAG = "icekit.action-id"


#: Keys of a conversion's commits, because no key of Iceberg's own says it: the files read for the
# commit, and their bytes.
FILES_READ_TAG = "icekit.files-read"
BYTES_READ_TAG = "icekit.bytes-read"


@frozen
class Actual:
    """What commits changed, according to their own summaries, never according to a procedure's
    output.

    ``files_in`` and ``bytes_in`` are the data files removed; for a conversion the data and delete
    files read, and ``files_out`` and ``bytes_out`` the delete files written. ``rows_in`` are the
    rows of the data files removed, before deletes. ``items_before`` and ``items_after`` are for
    maintenance: delete files, manifests, snapshots or orphans, as the action's prediction counts
    them.
    """

    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    delete_files_removed: int = 0
    commits: int = 0
    items_before: int = 0
    items_after: int = 0
    rows_in: int = 0

    def __add__(self, other: Actual) -> Actual:
        """The sum of what two actions changed."""
        return Actual(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def has_changes(self) -> bool:
        """Whether anything was committed, or counted where nothing is committed."""
        return self.commits > 0 or self.items_before > 0


def run_commits(
    table_head: Head, run_id: str, action_ids: Collection[str], *, snapshot_ids: Collection[int]
) -> tuple[Json, ...]:
    """A run's commits in the lineage, oldest first: those that carry its tag, or whose ids are in
    ``snapshot_ids``.
    """

    def is_own(snapshot: Json) -> bool:
        summary = summary_of(snapshot)
        is_tagged = summary.get(RUN_TAG) == run_id and summary.get(ACTION_TAG) in action_ids
        return is_tagged or snapshot["snapshot-id"] in snapshot_ids

    return tuple(reversed([*filter(is_own, table_head.lineage())]))


def in_history(table_head: Head, snapshot_ids: Sequence[int], began_ms: int) -> bool:
    """Whether an action's commits (oldest first) are in the table's history, so not rolled back.
    True if it made none.

    The last commit decides, because the others are its ancestors. If the history begins after the
    action (which began at ``began_ms``), because older snapshots have expired, that commit may have
    been part of it: unless something shows that it was rolled back, the action is not done again.
    """
    if not snapshot_ids or snapshot_ids[-1] in snapshots_by_id(table_head.metadata):
        return not snapshot_ids or any(
            snapshot["snapshot-id"] == snapshot_ids[-1] for snapshot in table_head.lineage()
        )
    oldest_snapshots = list(table_head.lineage())[-1:]
    return any(
        snapshot.get("parent-snapshot-id") is not None and snapshot["timestamp-ms"] >= began_ms
        for snapshot in oldest_snapshots
    )


def actual_of(commits: Iterable[Json], counted_unit: str = "file") -> Actual:
    """Add up what the commits of an action changed, from their summaries; ``counted_unit`` is
    what its prediction counts.
    """
    return sum(
        (_actual_of_commit(summary_of(commit), counted_unit) for commit in commits), Actual()
    )


def _actual_of_commit(summary: Mapping[str, Any], counted_unit: str) -> Actual:
    def number(name: str) -> int:
        return int(summary.get(name) or 0)

    removed_delete_count = number("removed-delete-files")
    added_delete_count = number("added-delete-files")
    removed_bytes = number("removed-files-size")
    added_bytes = number("added-files-size")
    if counted_unit == "manifest":
        return Actual(
            commits=1,
            items_before=number("manifests-replaced"),
            items_after=number("manifests-created"),
        )
    if counted_unit == "delete file":
        return Actual(
            bytes_in=removed_bytes,
            bytes_out=added_bytes,
            delete_files_removed=removed_delete_count,
            commits=1,
            items_before=removed_delete_count,
            items_after=added_delete_count,
        )
    if counted_unit == EQUALITY_DELETE:
        # The sizes of a summary cover only added and removed files.
        return Actual(
            files_in=number(FILES_READ_TAG),
            bytes_in=number(BYTES_READ_TAG),
            files_out=added_delete_count,
            bytes_out=added_bytes,
            delete_files_removed=removed_delete_count,
            commits=1,
            items_before=number("removed-equality-delete-files"),
            items_after=added_delete_count,
        )
    files_in = number("deleted-data-files")
    files_out = number("added-data-files")
    # Sizes count data and delete files together; a commit that only drops deletes reads no data.
    return Actual(
        files_in=files_in,
        bytes_in=removed_bytes if files_in else 0,
        files_out=files_out,
        bytes_out=added_bytes if files_out else 0,
        delete_files_removed=removed_delete_count,
        commits=1,
        rows_in=number("deleted-records"),
    )
