"""Find out what the executors of a session have, by one small task for each of their cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.cluster import cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def missing_on_executors(spark: SparkSession, packages: Sequence[str], table_file_path: str) -> str:
    """What an executor lacks: a package of Python, or the disk with a file (no file: empty); empty
    if it lacks nothing.
    """

    def missing(_: int) -> str:
        import importlib.util
        from pathlib import Path

        for package_name in packages:
            if importlib.util.find_spec(package_name) is None:
                return f"an executor's Python has no package {package_name}"
        if table_file_path and not Path(table_file_path).exists():
            return "an executor does not reach the disk of the table"
        return ""

    context: Any = spark.sparkContext
    task_count = 2 * cluster_of(spark).cores
    try:
        missing_texts: list[str] = (
            context.parallelize(range(task_count), task_count).map(missing).collect()
        )
    except Exception:
        return "executors do not run Python"
    return max(missing_texts)
