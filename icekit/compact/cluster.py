"""Fit a rewrite to the cluster it runs on: how many groups at once, how large, how finely shuffled."""

from __future__ import annotations

import math
from collections.abc import Mapping

from icekit.compact.model import Explained
from icekit.engine.cluster import Cluster
from icekit.units import count, size

GIB = 2**30
# Iceberg's defaults, which are kept where the cluster gives no reason to leave them.
_GROUP_BYTES = 100 * GIB
_GROUPS_AT_ONCE = 5
_COMMITS = 10
# What compressed columns take as rows in a shuffle: the ratio SparkWriteConf assumes for zstd files.
_ROWS_PER_FILE_BYTES = 3


def parallelism(
    cluster: Cluster, target_bytes: int, bytes_in: int, group_count: int, *, sorting: bool, whole: bool = False
) -> tuple[Mapping[str, str], tuple[Explained, ...]]:
    """Options of ``rewrite_data_files`` for a cluster and the plan's sizes, each with its reason.

    ``whole`` is for rewrites of every file of a partition. Those keep the engine's largest
    group: which files of a partition are done only shows when all are, so that a resumed run
    would take a partition of several groups twice.
    """
    options: dict[str, str] = {}
    said: list[Explained] = []

    def choose(name: str, value: int, why: str) -> None:
        options[name] = str(value)
        said.append(Explained(name, str(value), why))

    # Groups: enough at once that no core waits for the last task of another group.
    tasks_per_group = max(1, math.ceil(bytes_in / max(group_count, 1) / target_bytes))
    at_once = min(max(group_count, 1), max(1, math.ceil(2 * cluster.cores / tasks_per_group)), 4 * cluster.cores)
    choose(
        "max-concurrent-file-group-rewrites",
        at_once,
        f"{cluster.source}; a group is {count(tasks_per_group, 'task')} on average, so {count(at_once, 'group')} keep the cores busy while others begin and commit",
    )
    if not sorting and not whole:
        # A group is what is lost when it fails; small ones lose little, and still give every core a few tasks.
        group = min(_GROUP_BYTES, max(GIB, 4 * cluster.cores * target_bytes))
        choose(
            "max-file-group-size-bytes",
            group,
            f"what one failure costs: four files of {size(target_bytes)} for each of {count(cluster.cores, 'core')}, at least 1 GiB",
        )
    elif sorting:
        rows = target_bytes * _ROWS_PER_FILE_BYTES
        per_file = max(1, math.ceil(rows / cluster.task_memory_bytes))
        choose(
            "shuffle-partitions-per-file",
            per_file,
            f"a file of {size(target_bytes)} is about {size(rows)} of rows, and a task may use {size(cluster.task_memory_bytes)}",
        )
    commits = max(1, min(_COMMITS, group_count))
    choose(
        "partial-progress.max-commits",
        commits,
        f"{count(max(group_count, 1), 'group')}: what is done is committed as it goes, in at most so many snapshots",
    )
    return options, tuple(said)
