"""Fit a rewrite to the cluster it runs on: how many groups at once, how large, how finely shuffled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.compact.model import Explained
from icekit.compact.policy import size_in_bytes
from icekit.facts.bridge import has_bridge
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIB = 2**30
# Iceberg's defaults, which are kept where the cluster gives no reason to leave them.
_GROUP_BYTES = 100 * GIB
_GROUPS_AT_ONCE = 5
_COMMITS = 10
# Spark gives this share of the heap beyond 300 MB to execution and storage (spark.memory.fraction).
_MEMORY_SHARE, _RESERVED = 0.6, 300 * 2**20
# What compressed columns take as rows in a shuffle: the ratio SparkWriteConf assumes for zstd files.
_ROWS_PER_FILE_BYTES = 3


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs the tasks: cores in all, cores and heap bytes of one executor, and where the figures come from."""

    cores: int
    cores_per_executor: int
    heap_bytes: int
    source: str
    cores_per_task: int = 1

    @property
    def tasks_per_executor(self) -> int:
        """Tasks that share one executor's heap."""
        return max(self.cores_per_executor // self.cores_per_task, 1)

    @property
    def tasks(self) -> int:
        """Tasks that run at once on all executors."""
        return max(self.cores // self.cores_per_task, 1)

    @property
    def task_memory_bytes(self) -> int:
        """Memory that one task may use before it spills or dies."""
        return max(int((self.heap_bytes - _RESERVED) * _MEMORY_SHARE) // self.tasks_per_executor, 2**20)

    @property
    def task_heap_bytes(self) -> int:
        """One task's share of an executor's whole heap."""
        return self.heap_bytes // self.tasks_per_executor


def cluster_of(spark: SparkSession) -> Cluster:
    """Read the cores and the heap that are really there: of the JVM's context, or the settings under Spark Connect."""
    if has_bridge(spark):
        context: Any = spark.sparkContext
        java = context._jsc.sc()
        master = str(java.master())
        cores = int(java.defaultParallelism())
        per_task = int(context.getConf().get("spark.task.cpus", "1"))
        if master.startswith("local"):
            heap = int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]
            return Cluster(cores, cores, heap, f"{count(cores, 'core')} and {size(heap)} of heap in one JVM ({master})", per_task)
        executors = max(int(java.getExecutorMemoryStatus().size()) - 1, 1)
        # Told by the executors where they are told their cores: somebody may have set spark.default.parallelism.
        told = context.getConf().get("spark.executor.cores")
        per_executor = int(told or max(cores // executors, 1))
        heap = _memory(context.getConf().get("spark.executor.memory", "1g"))
        source = f"{count(executors, 'executor')} of {count(per_executor, 'core')} and {size(heap)} ({master})"
        return Cluster(executors * per_executor if told else cores, per_executor, heap, source, per_task)
    per_executor = int(spark.conf.get("spark.executor.cores", "1") or 1)
    executors = int(spark.conf.get("spark.executor.instances", "1") or 1)
    heap = _memory(spark.conf.get("spark.executor.memory", "1g") or "1g")
    return Cluster(per_executor * executors, per_executor, heap, "the settings of the session; Spark Connect does not tell what is there")


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


def _memory(text: str) -> int:
    """Bytes of Spark's ``4g``, ``512m``, ``4gb``; a bare number is MiB."""
    unit = text.strip().lower().removesuffix("b")
    return size_in_bytes(unit + "mib" if unit[-1:].isdigit() else unit + "ib")
