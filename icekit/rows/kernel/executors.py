"""Find out what the executors of a session have, by one small task for each of their cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.cluster import cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def missing_on_executors(spark: SparkSession, packages: Sequence[str], path: str) -> str:
    """What an executor lacks: a package of Python, or the disk with a file (no file: empty); empty
    if it lacks nothing.
    """

    def missing(_: int) -> str:
        import importlib.util
        from pathlib import Path

        for name in packages:
            if importlib.util.find_spec(name) is None:
                return f"an executor's Python has no package {name}"
        if path and not Path(path).exists():
            return "an executor does not reach the disk of the table"
        return ""

    context: Any = spark.sparkContext
    tasks = 2 * cluster_of(spark).cores
    try:
        answers: list[str] = context.parallelize(range(tasks), tasks).map(missing).collect()
    except Exception:
        return "executors do not run Python"
    return max(answers)
