"""Read from a session the size of its cluster: cores and heap, of all executors and of one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge
from icekit.errors import ParameterError
from icekit.parsing import size_in_bytes
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark gives this share of the heap beyond 300 MB to execution and storage (spark.memory.fraction).
_MEMORY_SHARE, _RESERVED = 0.6, 300 * 2**20
#: The settings of the cache in which executors keep delete files; each is true if it is not set.
CACHE_KEYS = (
    "spark.sql.iceberg.executor-cache.enabled",
    "spark.sql.iceberg.executor-cache.delete-files.enabled",
)
#: What :meth:`Executor.of_settings` reads.
EXECUTOR_SETTINGS = (
    "spark.master",
    "spark.driver.memory",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.task.cpus",
)
_TEXT = re.compile(
    r"\s*(\d+)\s*cores?[\s,]+(?:and\s+)?(\d+(?:\.\d+)?)\s*([kmgt])i?b?\s*(?:[\s,]+(\d+)\s*cpus? "
    r"(?:a|per) task)?\s*",
    re.I,
)


def caches_deletes(conf: Mapping[str, str]) -> bool:
    """Tell whether executors of a session with these settings keep delete files in a cache; other
    settings do not matter.
    """
    return all(conf.get(key, "true").lower() == "true" for key in CACHE_KEYS)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The resources that run tasks: cores in total, cores and heap bytes of one executor, and the
    source of the figures.
    """

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
        return max(
            int((self.heap_bytes - _RESERVED) * _MEMORY_SHARE) // self.tasks_per_executor, 2**20
        )


def cluster_of(spark: SparkSession) -> Cluster:
    """Read the actual cores and heap from the JVM's context; needs a classic session."""
    context: Any = spark.sparkContext
    java = context._jsc.sc()
    master = str(java.master())
    cores = int(java.defaultParallelism())
    per_task = int(context.getConf().get("spark.task.cpus", "1"))
    if master.startswith("local"):
        heap = int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]
        return Cluster(
            cores,
            cores,
            heap,
            f"{count(cores, 'core')} and {size(heap)} of heap in one JVM ({master})",
            per_task,
        )
    executors = max(int(java.getExecutorMemoryStatus().size()) - 1, 1)
    # Derived from the executors if they report their cores: spark.default.parallelism may have been
    # set.
    stated = context.getConf().get("spark.executor.cores")
    per_executor = int(stated or max(cores // executors, 1))
    heap = memory_bytes(context.getConf().get("spark.executor.memory", "1g"))
    source = (
        f"{count(executors, 'executor')} of {count(per_executor, 'core')} and {size(heap)} "
        f"({master})"
    )
    return Cluster(
        executors * per_executor if stated else cores, per_executor, heap, source, per_task
    )


def is_local(spark: SparkSession) -> bool:
    """Whether Spark's tasks run in the driver's JVM, on this machine; False with Spark Connect."""
    return has_bridge(spark) and bool(spark.sparkContext._jsc.sc().isLocal())


def memory_bytes(text: str) -> int:
    """Bytes of Spark's ``4g``, ``512m``, ``4gb``; a bare number is MiB."""
    unit = text.strip().lower().removesuffix("b")
    return size_in_bytes(unit + "mib" if unit[-1:].isdigit() else unit + "ib")


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor: ``cores``, the largest heap of its JVM, and ``spark.task.cpus``."""

    cores: int
    heap_bytes: int
    task_cpus: int = 1

    def __post_init__(self) -> None:
        if self.cores < 1 or self.heap_bytes < 1 or self.task_cpus < 1:
            raise ParameterError(
                "An executor needs at least one core, some heap and one core per task, not "
                f"{self!r}."
            )

    @property
    def tasks(self) -> int:
        """Tasks that run at once; at least one."""
        return max(1, self.cores // self.task_cpus)

    def __str__(self) -> str:
        return f"{count(self.cores, 'core')} and {size(self.heap_bytes)} of heap"

    @classmethod
    def parse(cls, text: str) -> Executor:
        """Read ``2 cores 4g``, or ``4 cores, 16 GB, 2 cpus per task``; sizes are binary, as
        Spark's.
        """
        match = _TEXT.fullmatch(text)
        if not match:
            raise ParameterError(f"{text!r} is not an executor. Write it as '2 cores 4g'.")
        return cls(int(match[1]), size_in_bytes(f"{match[2]} {match[3]}iB"), int(match[4] or 1))

    @classmethod
    def of_settings(cls, conf: Mapping[str, str]) -> Executor:
        """The executor in a session's settings, with Spark's defaults (1 core and 1 GiB; in local
        mode the driver's heap).
        """
        task_cpus = int(conf.get("spark.task.cpus", "1"))
        if match := re.match(r"local(?:\[(\d+|\*))?", conf.get("spark.master", "")):
            cores = (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)
            return cls(cores, memory_bytes(conf.get("spark.driver.memory", "1g")), task_cpus)
        return cls(
            int(conf.get("spark.executor.cores", "1")),
            memory_bytes(conf.get("spark.executor.memory", "1g")),
            task_cpus,
        )

    @classmethod
    def of(cls, spark: SparkSession) -> Executor:
        """The executor of a session: its settings, or in local mode the driver's own heap and
        threads.
        """
        cluster = cluster_of(spark)
        cores = cluster.cores_per_executor
        if not has_bridge(spark):
            return cls(cores, cluster.heap_bytes, int(spark.conf.get("spark.task.cpus", "1") or 1))
        context: Any = spark.sparkContext
        task_cpus = int(context.getConf().get("spark.task.cpus", "1"))
        if match := re.match(r"local(?:\[(\d+|\*))?", str(context.master)):
            processors = int(spark._jvm.java.lang.Runtime.getRuntime().availableProcessors())  # type: ignore[union-attr]
            cores = processors if match[1] == "*" else int(match[1] or 1)
        return cls(cores, cluster.heap_bytes, task_cpus)
