"""How a rewrite is fitted to the cluster, each figure with its reason."""

import pytest

from icekit.engine.cluster import CACHE_KEYS, Cluster, Executor, caches_deletes, memory_bytes
from icekit.maintain.planning.rewrite_actions import parallelism
from tests.factories import GIB, MIB

TARGET = 512 * MIB
EIGHT = Cluster(Executor(4, 8 * GIB), 2, "2 executors of 4 cores")


def options(
    bytes_in: int, groups: int, cluster: Cluster = EIGHT, *, sorting: bool = False
) -> dict[str, str]:
    explained = list(parallelism(cluster, TARGET, bytes_in, groups, is_sorting=sorting))
    assert all(e.why for e in explained)
    return {e.name: e.value for e in explained}


@pytest.mark.parametrize(
    ("mib", "groups", "at_once", "tasks"),
    [
        (100 * 10, 100, "16", "1 task"),
        (100 * 4 * 1024, 100, "2", "8 tasks"),
        (100 * 100 * 1024, 100, "1", "200 tasks"),
        (10, 1, "1", "1 task"),
    ],
)
def test_small_groups_run_many_at_once_and_large_ones_few(
    mib: int, groups: int, at_once: str, tasks: str
) -> None:
    first = next(parallelism(EIGHT, TARGET, mib * MIB, groups, is_sorting=False))

    assert (first.name, first.value) == ("max-concurrent-file-group-rewrites", at_once)
    assert first.why.startswith(f"2 executors of 4 cores; a group has {tasks} on average")


def test_groups_are_what_one_failure_costs() -> None:
    one, many = Cluster(Executor(1, GIB), 1, "x"), Cluster(Executor(4, GIB), 2_500, "x")

    assert [
        options(GIB, 1, cluster)["max-file-group-size-bytes"] for cluster in (EIGHT, one, many)
    ] == [str(4 * 8 * TARGET), str(2 * GIB), str(100 * GIB)]


def test_a_sort_is_shuffled_so_finely_that_a_task_fits_its_memory() -> None:
    tight = options(GIB, 1, Cluster(Executor(2, GIB), 1, "x"), sorting=True)
    roomy = options(GIB, 1, Cluster(Executor(2, 64 * GIB), 1, "x"), sorting=True)

    assert "max-file-group-size-bytes" not in tight
    assert tight["shuffle-partitions-per-file"] == "8"
    assert roomy["shuffle-partitions-per-file"] == "1"


def test_commits_are_about_one_per_gibibyte_and_never_more_than_groups_or_ten() -> None:
    runs = [(MIB, 100), (GIB, 100), (7 * GIB, 100), (100 * GIB, 100), (GIB, 0), (7 * GIB, 3)]

    assert [options(*run)["partial-progress.max-commits"] for run in runs] == [
        "2",
        "2",
        "7",
        "10",
        "1",
        "3",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4g", 4 * GIB),
        ("512m", 512 * MIB),
        ("1GB", GIB),
        ("2048", 2 * GIB),
        ("64k", 65536),
        ("1t", 1024 * GIB),
    ],
)
def test_memory_is_read_as_spark_reads_it(text: str, expected: int) -> None:
    assert memory_bytes(text) == expected


def test_a_tiny_heap_still_has_some_memory() -> None:
    assert Executor(1, 100 * MIB).task_memory_bytes == MIB


@pytest.mark.parametrize("off", CACHE_KEYS)
def test_only_its_own_settings_turn_the_cache_of_delete_files_off(off: str) -> None:
    """Cores and memory are in the same settings of a session."""
    assert caches_deletes({"spark.driver.memory": "910m", "spark.executor.cores": "2"})
    assert not caches_deletes({"spark.driver.memory": "910m", off: "FALSE"})
