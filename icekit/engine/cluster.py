"""Read from a session what runs its tasks: cores and heap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge
from icekit.parsing import size_in_bytes
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark gives this share of the heap beyond 300 MB to execution and storage (spark.memory.fraction).
_MEMORY_SHARE, _RESERVED = 0.6, 300 * 2**20


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
        heap = memory_bytes(context.getConf().get("spark.executor.memory", "1g"))
        source = f"{count(executors, 'executor')} of {count(per_executor, 'core')} and {size(heap)} ({master})"
        return Cluster(executors * per_executor if told else cores, per_executor, heap, source, per_task)
    per_executor = int(spark.conf.get("spark.executor.cores", "1") or 1)
    executors = int(spark.conf.get("spark.executor.instances", "1") or 1)
    heap = memory_bytes(spark.conf.get("spark.executor.memory", "1g") or "1g")
    return Cluster(per_executor * executors, per_executor, heap, "the settings of the session; Spark Connect does not tell what is there")


def memory_bytes(text: str) -> int:
    """Bytes of Spark's ``4g``, ``512m``, ``4gb``; a bare number is MiB."""
    unit = text.strip().lower().removesuffix("b")
    return size_in_bytes(unit + "mib" if unit[-1:].isdigit() else unit + "ib")
