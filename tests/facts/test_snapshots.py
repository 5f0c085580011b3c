"""The history of a table is read from the snapshots that its metadata still has."""

from __future__ import annotations

from typing import Any

import pytest

from icekit.errors import SnapshotNotFound
from icekit.facts import metadata

SNAPSHOTS = [
    {"snapshot-id": 1, "timestamp-ms": 1000, "summary": {"operation": "append", "added-data-files": "4", "engine-name": "spark"}},
    {"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 61_000, "summary": {"operation": "append"}},
    {"snapshot-id": 3, "parent-snapshot-id": 1, "timestamp-ms": 91_000, "summary": {"operation": "delete"}},
]


def table(there: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"format-version": 2, "snapshots": there, **more}


def test_history_counts_all_snapshots_and_follows_the_lineage_of_the_chosen_one() -> None:
    meta = table(SNAPSHOTS, refs={"main": {"snapshot-id": 2, "type": "branch"}})
    history = metadata.history(meta, SNAPSHOTS[1])

    assert (history.snapshot_count, history.lineage_count, history.operations) == (3, 2, (("append", 2),))
    assert history.median_seconds_between_commits == 60.0
    assert (history.commits[0].added_data_files, history.commits[0].writer, history.commits[1].added_data_files) == (4, "spark", None)


def test_a_parent_that_has_expired_ends_the_lineage() -> None:
    assert metadata.history(table(SNAPSHOTS[1:]), SNAPSHOTS[1]).lineage_count == 1


@pytest.mark.parametrize(
    ("ref", "said"),
    [("mian", "did you mean main"), (99, "expired; the newest of 3 snapshots is 3"), ("nothing like it", "known refs: main")],
)
def test_a_snapshot_or_ref_that_is_not_there_is_named_with_what_is(ref: str | int, said: str) -> None:
    meta = table(SNAPSHOTS, refs={"main": {"snapshot-id": 2, "type": "branch"}})

    with pytest.raises(SnapshotNotFound, match=said):
        metadata.choose_snapshot(meta, ref)
