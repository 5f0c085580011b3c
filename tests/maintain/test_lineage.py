"""What a run has done is read from the table's own commits."""

from typing import Any

import pytest

from icekit.common.errors import SnapshotNotFound
from icekit.health.facts.head import Head, commits_since
from icekit.maintain.record.results import (
    ACTION_TAG,
    RUN_TAG,
    Actual,
    actual_of,
    in_history,
    run_commits,
)


def snapshot(number: int, parent: int | None, **summary: str) -> dict[str, Any]:
    named = {"run": RUN_TAG, "action": ACTION_TAG}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "sequence-number": number,
        "summary": {named.get(k, k.replace("_", "-")): v for k, v in summary.items()},
    }


# 3 is on a branch that main has left behind.
SNAPSHOTS = [
    snapshot(1, None, operation="append"),
    snapshot(2, 1, run="r", action="a1"),
    snapshot(3, 2, run="r", action="a1"),
    snapshot(4, 2, operation="append"),
    snapshot(5, 4, run="r", action="a2"),
    snapshot(6, 5, run="other", action="a1"),
]
AT = Head({"snapshots": SNAPSHOTS}, SNAPSHOTS[-1])


def ids(found: tuple[Any, ...]) -> list[int]:
    return [s["snapshot-id"] for s in found]


def test_a_runs_own_commits_are_told_by_their_tags() -> None:
    assert ids(run_commits(AT, "r", {"a1", "a2"}, snapshot_ids=())) == [2, 5]
    assert ids(run_commits(AT, "r", {"a2"}, snapshot_ids=())) == [5]
    assert ids(run_commits(AT, "nobody", {"a1"}, snapshot_ids=())) == []
    # Commits noted by id are its own too.
    assert ids(run_commits(AT, "r", {"a2"}, snapshot_ids={4, 3})) == [4, 5]


def test_commits_since_a_snapshot_are_those_after_it_in_the_lineage() -> None:
    assert ids(commits_since(AT, 4)) == [5, 6]
    assert ids(commits_since(AT, 6)) == []
    assert ids(commits_since(AT, None)) == [1, 2, 4, 5, 6]


def test_a_snapshot_that_is_no_ancestor_any_more_is_an_error() -> None:
    with pytest.raises(
        SnapshotNotFound, match="Snapshot 3, from which the run started, is no longer an ancestor"
    ):
        commits_since(AT, 3)


@pytest.mark.parametrize(
    ("snapshots", "commit", "is_known"),
    [
        (SNAPSHOTS, 2, True),
        (SNAPSHOTS, 3, False),  # it is there, and main went on without it
        (SNAPSHOTS[3:], 2, True),  # expired, like all that was before 4
        (SNAPSHOTS[:2] + SNAPSHOTS[3:], 3, False),  # the history is whole
        (SNAPSHOTS[5:], 5, True),
        ([], 5, False),
    ],
)
def test_a_commit_is_done_again_only_where_it_is_known_to_be_gone(
    snapshots: list[dict[str, Any]], commit: int, is_known: bool
) -> None:
    timed = [{**s, "timestamp-ms": s["snapshot-id"] * 10} for s in snapshots]
    at = Head({"snapshots": timed}, timed[-1] if timed else None)

    assert in_history(at, [commit], began_ms=commit * 10 - 5) is is_known
    assert in_history(at, [], began_ms=0)
    # The history reaches back to before an action that began after its oldest snapshot.
    assert not in_history(at, [99], began_ms=1_000)


def test_a_table_without_snapshots_is_at_none() -> None:
    empty = Head({}, None)

    assert empty.snapshot_id is None
    assert empty.sequence_number == 0
    assert list(empty.lineage()) == []


def test_what_commits_changed_is_the_sum_of_their_summaries() -> None:
    rewrite = snapshot(
        1,
        None,
        deleted_data_files="5",
        removed_files_size="500",
        added_data_files="1",
        added_files_size="400",
        removed_delete_files="2",
    )
    dangling = snapshot(2, 1, removed_delete_files="3", removed_files_size="30")

    assert actual_of([rewrite, dangling]) == Actual(5, 500, 1, 400, 5, 2)
    # By what the prediction counts: delete files, and manifests.
    assert actual_of([dangling], "delete file") == Actual(0, 30, 0, 0, 3, 1, items_before=3)
    manifests = snapshot(3, 2, manifests_replaced="7", manifests_created="2", manifests_kept="1")
    assert actual_of([manifests], "manifest") == Actual(commits=1, items_before=7, items_after=2)
    assert actual_of([]) == Actual()
    assert not Actual().has_changes
    assert actual_of([snapshot(1, None)]).has_changes
