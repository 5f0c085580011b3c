"""Stage scan tasks for Spark, as Iceberg's own rewrite does, and collect the new data files without
committing them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import frame_of_rows, java_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A choice: how long Spark may take to tell its listeners of a failed write.
_LISTENING_MS = 10_000


class Staging:
    """Scan tasks of one table (an object of Iceberg's API), staged for Spark under names that only
    this session's JVM knows.
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self.spark = spark
        self.table = table
        self.java = java_object(spark, table, "Staging", table)

    def file_sequences(self, files: Any) -> DataFrame:
        """The ``path`` and the data ``sequence`` number of Java's files or tasks."""
        return frame_of_rows(self.spark, self.java.rows(files), "path string, sequence bigint")

    @contextlib.contextmanager
    def staged_rows(
        self, tasks: Any, options: Mapping[str, str] | None = None
    ) -> Iterator[DataFrame]:
        """The rows of some tasks, with their metadata columns; valid only inside the ``with``."""
        task_set_id = str(uuid.uuid4())
        self.java.stage(tasks, task_set_id)
        try:
            yield self.frame(task_set_id, options)
        finally:
            self.java.clear(task_set_id)

    def frame(self, task_set_id: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """The rows of the tasks that are staged under a name."""
        # Older versions of Iceberg read the task set's name from an option.
        return (
            self.spark.read.format("iceberg")
            .options(**{"scan-task-set-id": task_set_id, "file-open-cost": "0", **(options or {})})
            .load(task_set_id)
        )

    def in_group_order(
        self, frame: DataFrame, runner: Any, file_group: Any, file_count: int
    ) -> DataFrame:
        """Rows in the order in which Iceberg's own action, whose runner this is, writes those of a
        group.
        """
        from pyspark.sql import DataFrame

        return DataFrame(self.java.sorted(runner, file_group, file_count, frame._jdf), self.spark)

    def write(self, frame: DataFrame, task_set_id: str, options: Mapping[str, str]) -> Any:
        """Write rows to new data files of the table, which are not committed yet; returns Java's
        set of them. A write that fails leaves no file behind.
        """
        failed_writes = java_object(self.spark, self.table, "FailedWrites")
        java_session: Any = self.spark._jsparkSession
        java_session.listenerManager().register(failed_writes)
        try:
            frame.write.format("iceberg").options(
                **{"rewritten-file-scan-task-set-id": task_set_id, **options}
            ).mode("append").save(task_set_id)
        except Exception:
            # A file system without folders, or a file that is gone: what is left is an orphan.
            with contextlib.suppress(Exception):
                self._remove_files(failed_writes, task_set_id, int(options["output-spec-id"]))
            raise
        finally:
            java_session.listenerManager().unregister(failed_writes)
        return self.java.written(task_set_id)

    def _remove_files(self, failed_writes: Any, task_set_id: str, spec_id: int) -> None:
        """Remove the files of a write that failed; Spark tells ``failed_writes`` of it a little
        later.
        """
        java_context: Any = self.spark.sparkContext._jsc
        java_context.sc().listenerBus().waitUntilEmpty(_LISTENING_MS)
        if query_id := failed_writes.queryId(task_set_id):
            self.java.takeBack(task_set_id, query_id, spec_id)
