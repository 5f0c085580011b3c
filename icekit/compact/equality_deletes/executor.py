"""Say what an executor is: its cores, its heap, and how many tasks run in it at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge
from icekit.engine.cluster import cluster_of
from icekit.errors import ParameterError
from icekit.parsing import size_in_bytes
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CACHE_KEYS = ("spark.sql.iceberg.executor-cache.enabled", "spark.sql.iceberg.executor-cache.delete-files.enabled")
_TEXT = re.compile(r"\s*(\d+)\s*cores?[\s,]+(?:and\s+)?(\d+(?:\.\d+)?)\s*([kmgt])i?b?\s*(?:[\s,]+(\d+)\s*cpus? (?:a|per) task)?\s*", re.I)


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor: ``cores``, the largest heap of its JVM, and ``spark.task.cpus``.

    ``delete_cache`` tells whether reads use Iceberg's executor cache of delete files, as they
    do unless a session turns it off.
    """

    cores: int
    heap_bytes: int
    task_cpus: int = 1
    delete_cache: bool = True

    def __post_init__(self) -> None:
        if self.cores < 1 or self.heap_bytes < 1 or self.task_cpus < 1:
            raise ParameterError(f"An executor has at least one core, some heap and one core a task, not {self!r}.")

    @property
    def tasks(self) -> int:
        """Tasks that run at once; one at least."""
        return max(1, self.cores // self.task_cpus)

    def __str__(self) -> str:
        return f"{count(self.cores, 'core')} and {size(self.heap_bytes)} of heap"

    @classmethod
    def parse(cls, text: str) -> Executor:
        """Read ``2 cores 4g``, or ``4 cores, 16 GB, 2 cpus per task``; sizes are binary, as Spark's."""
        found = _TEXT.fullmatch(text)
        if not found:
            raise ParameterError(f"{text!r} is not an executor; write it as '2 cores 4g'.")
        return cls(int(found[1]), size_in_bytes(f"{found[2]} {found[3]}iB"), int(found[4] or 1))

    @classmethod
    def of(cls, spark: SparkSession) -> Executor:
        """The executor of a session: its settings, or in local mode the driver's own heap and threads."""
        cluster = cluster_of(spark)
        cores = cluster.cores_per_executor
        cache = all(str(spark.conf.get(key, "true")).lower() == "true" for key in _CACHE_KEYS)
        if not has_bridge(spark):
            return cls(cores, cluster.heap_bytes, int(spark.conf.get("spark.task.cpus", "1") or 1), cache)
        context: Any = spark.sparkContext
        task_cpus = int(context.getConf().get("spark.task.cpus", "1"))
        if found := re.match(r"local(?:\[(\d+|\*))?", str(context.master)):
            processors = int(spark._jvm.java.lang.Runtime.getRuntime().availableProcessors())  # type: ignore[union-attr]
            cores = processors if found[1] == "*" else int(found[1] or 1)
        return cls(cores, cluster.heap_bytes, task_cpus, cache)
