"""Read from a session the size of its cluster: cores and heap, of all executors and of one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ParameterError
from icekit.common.parsing import size_in_bytes
from icekit.common.units import count, size
from icekit.engine.bridge import has_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark gives this share of the heap beyond 300 MB to execution and storage (spark.memory.fraction).
_MEMORY_SHARE = 0.6
_RESERVED = 300 * 2**20
#: The settings of the cache in which executors keep delete files; each is true if it is not set.
CACHE_KEYS = (
    "spark.sql.iceberg.executor-cache.enabled",
    "spark.sql.iceberg.executor-cache.delete-files.enabled",
)
#: What :func:`caches_deletes` and :meth:`Executor.of_settings` read.
SESSION_SETTINGS = (
    *CACHE_KEYS,
    "spark.master",
    "spark.driver.memory",
    "spark.executor.cores",
    "spark.executor.memory",
)
_TEXT = re.compile(r"\s*(\d+)\s*cores?[\s,]+(?:and\s+)?(\d+(?:\.\d+)?)\s*([kmgt])i?b?\s*", re.I)


def caches_deletes(conf: Mapping[str, str]) -> bool:
    """Tell whether executors of a session with these settings keep delete files in a cache; other
    settings do not matter.
    """
    return all(conf.get(key, "true").lower() == "true" for key in CACHE_KEYS)


def memory_bytes(memory_text: str) -> int:
    """Bytes of Spark's ``4g``, ``512m``, ``4gb``; a bare number is MiB."""
    size_text = memory_text.strip().lower().removesuffix("b")
    return size_in_bytes(size_text + "mib" if size_text[-1:].isdigit() else size_text + "ib")


@frozen
class Executor:
    """One executor: ``cores``, each with a task at a time, and the largest heap of its JVM."""

    cores: int
    heap_bytes: int

    def __post_init__(self) -> None:
        if self.cores < 1 or self.heap_bytes < 1:
            raise ParameterError(f"An executor needs at least one core and some heap, not {self}.")

    @property
    def task_memory_bytes(self) -> int:
        """Memory that one task may use before it spills or dies."""
        return max(int((self.heap_bytes - _RESERVED) * _MEMORY_SHARE) // self.cores, 2**20)

    def __str__(self) -> str:
        return f"{count(self.cores, 'core')} and {size(self.heap_bytes)} of heap"

    @classmethod
    def parse(cls, executor_text: str) -> Executor:
        """Read ``2 cores 4g``, or ``4 cores and 16 GB``; sizes are binary, as Spark's."""
        text_match = _TEXT.fullmatch(executor_text)
        if not text_match:
            raise ParameterError(f"{executor_text!r} is not an executor. Write it as '2 cores 4g'.")
        return cls(int(text_match[1]), size_in_bytes(f"{text_match[2]} {text_match[3]}iB"))

    @classmethod
    def of_settings(cls, conf: Mapping[str, str]) -> Executor:
        """The executor in a session's settings, with Spark's defaults (1 core and 1 GiB; in local
        mode the driver's heap).
        """
        if local_match := re.match(r"local(?:\[(\d+|\*)|$)", conf.get("spark.master", "")):
            cores = (os.cpu_count() or 1) if local_match[1] == "*" else int(local_match[1] or 1)
            return cls(cores, memory_bytes(conf.get("spark.driver.memory", "1g")))
        return cls(
            int(conf.get("spark.executor.cores", "1")),
            memory_bytes(conf.get("spark.executor.memory", "1g")),
        )


@frozen
class Cluster:
    """The executors that run tasks: how many of which size, and the source of the figures."""

    executor: Executor
    executor_count: int
    source: str

    @property
    def cores(self) -> int:
        """The cores of all executors."""
        return self.executor_count * self.executor.cores


def cluster_of(spark: SparkSession) -> Cluster:
    """Read the actual cores and heap from the JVM's context; needs a classic session."""
    spark_context: Any = spark.sparkContext
    java_context = spark_context._jsc.sc()
    spark_settings = dict(spark_context.getConf().getAll())
    executor_count = 1
    location_text = "in one JVM"
    if java_context.isLocal():
        # The JVM knows of a container's limits.
        java_runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        spark_settings["spark.master"] = spark_context.master.replace(
            "*", str(java_runtime.availableProcessors())
        )
        executor = replace(
            Executor.of_settings(spark_settings), heap_bytes=int(java_runtime.maxMemory())
        )
    else:
        executor_count = max(int(java_context.getExecutorMemoryStatus().size()) - 1, 1)
        location_text = f"in each of {count(executor_count, 'executor')}"
        # What the executors report, unless spark.default.parallelism is set.
        core_count_text = str(max(int(java_context.defaultParallelism()) // executor_count, 1))
        executor = Executor.of_settings({"spark.executor.cores": core_count_text} | spark_settings)
    return Cluster(executor, executor_count, f"{executor} {location_text} ({spark_context.master})")


def is_local(spark: SparkSession) -> bool:
    """Whether Spark's tasks run in the driver's JVM, on this machine; False with Spark Connect."""
    return has_bridge(spark) and bool(spark.sparkContext._jsc.sc().isLocal())
