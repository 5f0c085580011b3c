"""Files of a commit follow from how its rows lie."""

from __future__ import annotations

from icekit.tune.file_sizes.advisory_size import Chain, chain
from icekit.tune.file_sizes.distribution import CommitSpread, predict
from tests.factories import MIB, TARGET, table_facts
from tests.tune.file_sizes.making import CLUSTER

SCATTERED = CommitSpread(16, 2, 32_000, 32, 32, 2, 0.5, 100.0)


def files(spread: CommitSpread, given: Chain | None = None, ratio: float = 3.0) -> dict[str, int]:
    return {p.mode: p.files for p in predict(spread, given or chain(table_facts(), {}, CLUSTER, mode="none"), ratio)}


def test_none_makes_a_file_for_each_pair_and_hash_one_for_each_partition() -> None:
    found = files(SCATTERED)

    assert (found["none"], found["hash"]) == (32, 2)


def test_range_cuts_a_partition_at_each_bound_between_tasks() -> None:
    # 9.6 MB of shuffle for 8 cores, at least 1 MiB each: 8 tasks.
    assert files(SCATTERED)["range"] == 2 + 7


def test_a_partition_larger_than_the_advisory_size_is_split_into_files_below_the_target() -> None:
    # A GiB in one partition: two or three files of the target, eight of what 384 MiB of shuffle give.
    large = CommitSpread(8, 1, 2 * TARGET // 100, 8, 8, 3, 1.0, 100.0)

    assert files(large)["hash"] == 8
    assert (
        files(large, chain(table_facts(), {"spark.sql.iceberg.advisory-partition-size": str(4000 * MIB)}, CLUSTER, mode="hash"))["hash"]
        == 3
    )


def test_rows_that_come_clustered_are_told() -> None:
    assert not SCATTERED.is_clustered
    assert CommitSpread(4, 20, 100, 22, 22, 20, 0.1, 1.0).is_clustered


def test_without_adaptive_execution_range_has_as_many_tasks_as_the_session_says() -> None:
    off = chain(table_facts(), {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "50"}, CLUSTER, mode="range")

    assert files(SCATTERED, off)["range"] == 2 + 49
