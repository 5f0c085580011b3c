"""Which of a commit's partitions a sample compares; no Spark."""

from __future__ import annotations

from icekit.facts.files import Partition
from icekit.prove.commits import _chosen

CHANGED = tuple(Partition(0, (region,)) for region in ("a", "b", "c", "d"))


def test_a_commit_always_chooses_the_same_partitions_and_others_choose_others() -> None:
    assert _chosen(CHANGED, 2, snapshot_id=7) == _chosen(CHANGED, 2, snapshot_id=7)
    assert len({_chosen(CHANGED, 2, snapshot_id=commit) for commit in range(9)}) > 1


def test_a_sample_keeps_the_order_and_one_as_large_as_the_commit_is_all_of_it() -> None:
    for commit in range(9):
        chosen = _chosen(CHANGED, 3, commit)
        assert len(chosen) == 3
        assert [partition for partition in CHANGED if partition in chosen] == list(chosen)
    assert _chosen(CHANGED, 4, 7) == _chosen(CHANGED, None, 7) == CHANGED
