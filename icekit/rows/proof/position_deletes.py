"""Compare what position deletes and deletion vectors say with the rows that a rewrite leaves
out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from icekit.common.errors import DeletesUnmatched, ReadersDisagree
from icekit.common.units import count
from icekit.engine.bridge import elements, java_object
from icekit.engine.staging import Staging
from icekit.rows.proof.checked import RowsDiffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The share of the driver's heap that read positions may take, if each takes eight bytes.
_HEAP_SHARE = 1 / 8


class PositionDeletes:
    """The position deletes and deletion vectors of one snapshot, to check rewrites of its data
    files.
    """

    def __init__(self, staging: Staging, snapshot_id: int) -> None:
        self.staging = staging
        self.snapshot_id = snapshot_id
        jvm: Any = staging.spark._jvm
        most_positions = int(jvm.java.lang.Runtime.getRuntime().maxMemory() * _HEAP_SHARE / 8)
        #: An object of the Java class.
        self.java = java_object(
            staging.spark, staging.table, "PositionDeletes", staging.java, most_positions
        )
        self._is_looked_up = False
        self._lock = threading.Lock()

    @classmethod
    def of_table(cls, spark: SparkSession, table: Any) -> PositionDeletes:
        """The position deletes of a table's current snapshot; ``table`` is an object of Iceberg's
        API.
        """
        return cls(Staging(spark, table), int(table.currentSnapshot().snapshotId()))

    def check_listed(self, scan_tasks: Any) -> None:
        """Check that no delete file names a data file of some scan tasks by another path; its
        deletes would apply to nothing.

        Raises :class:`~icekit.common.errors.DeletesUnmatched`.
        """
        with self._lock:
            if not self._is_looked_up:
                self.java.lookUp(self.snapshot_id)
                self._is_looked_up = True
        _refuse_path_problem(self.java.unlisted(scan_tasks))

    def check_paths(self, delete_files: Any, scan_tasks: Any = None) -> None:
        """Check the paths inside delete files against the files of these scan tasks, or of the
        snapshot, as :meth:`check_listed` does.
        """
        # Java keeps what one call finds.
        with self._lock:
            path_problem = self.java.wrong(delete_files, scan_tasks, self.snapshot_id)
        _refuse_path_problem(path_problem)

    def check_deleted(self, scan_tasks: Any, rows_read: int | None) -> None:
        """Check that a rewrite read every row of some scan tasks once, without those that position
        deletes delete.

        ``rows_read`` are those that it read, before any equality delete took one; if they are
        unknown (None), rows under position deletes are counted again. Where each delete names one
        file, and the records add up, nothing is read. Raises
        :class:`~icekit.common.errors.DeletesUnmatched` or
        :class:`~icekit.rows.proof.checked.RowsDiffer`.
        """
        java = self.java
        staging = self.staging
        counted_tasks = scan_tasks
        tasks_with_deletes = java.deleted(scan_tasks)
        if rows_read is None:
            if not tasks_with_deletes.size():
                return
            counted_tasks = tasks_with_deletes
            rows_read = _row_count(staging, staging.java.plain(tasks_with_deletes))
        delete_records = int(java.records(counted_tasks))
        rows_of_files = int(staging.java.records(counted_tasks))
        if rows_of_files - rows_read == delete_records >= 0:
            return
        if tasks_with_deletes.size():
            self.check_paths(java.files(tasks_with_deletes), counted_tasks)
        expected_deleted = int(java.expected(counted_tasks, None))
        if rows_of_files - rows_read != expected_deleted:
            # A writer may have counted the rows of a file wrongly.
            rows_by_file = _row_counts_by_file(staging, java.bare(counted_tasks))
            rows_of_files = int(java.total(rows_by_file))
            expected_deleted = int(java.expected(counted_tasks, rows_by_file))
        if rows_of_files - rows_read != expected_deleted:
            raise RowsDiffer.of(
                "files",
                f"{count(expected_deleted, 'row')} of the old files are deleted by position, but "
                f"{rows_of_files - rows_read:,} were left out",
                "The old files stay.",
            )


@contextlib.contextmanager
def changed_rows_as_disagreement(deletes: PositionDeletes | None) -> Iterator[None]:
    """Raise :class:`~icekit.common.errors.ReadersDisagree` where the guard, which compares with
    these deletes, refuses a rewrite of position deletes after which other rows would be deleted.
    """
    try:
        yield
    except Exception as error:
        changed_path = deletes.java.changedPath() if deletes else None
        if changed_path is None:
            raise
        reason = (
            f"{changed_path} has a deletion vector, and position deletes that readers ignore "
            "because of it. Iceberg's own action would merge them, and so delete rows that "
            "readers show."
            if deletes and deletes.java.isVectorChanged()
            else f"After Iceberg's own rewrite of position deletes, readers would leave out other "
            f"rows of {changed_path} than now."
        )
        raise ReadersDisagree(
            f"{reason} Nothing was committed. If rows that readers show now should go, delete them "
            "again. `icekit compact` with --scope major rewrites the data file as readers show it."
        ) from error


def _row_count(staging: Staging, scan_tasks: Any) -> int:
    with staging.staged_rows(scan_tasks) as rows:
        return rows.count()


def _row_counts_by_file(staging: Staging, scan_tasks: Any) -> Any:
    """Java's list of the rows in each file of some tasks."""
    from pyspark.sql import functions as F

    with staging.staged_rows(scan_tasks) as rows:
        return rows.groupBy(F.input_file_name().alias("path")).count()._jdf.collectAsList()


def _refuse_path_problem(path_problem: Any) -> None:
    """Raise the error for a path that Java found to be wrong, if it found one."""
    if path_problem is None:
        return
    delete_file, named_path, position_count, listed_path = map(str, elements(path_problem))
    verb, pronoun = ("names", "it") if position_count == "1" else ("name", "them")
    problem_text = (
        f"{verb} the data file {named_path}, which the table has as {listed_path}"
        if named_path
        else "may name no data file"
    )
    raise DeletesUnmatched(
        f"{count(int(position_count), 'position delete')} in {delete_file} {problem_text}, so "
        f"Spark does not apply {pronoun}, but other engines may. Nothing was committed. If these "
        "rows should go, delete them again with Spark (with write.delete.mode = copy-on-write), "
        "and run this again; if they should stay, Iceberg's own rewrite_data_files keeps them."
    )
