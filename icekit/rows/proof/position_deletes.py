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

    def check_listed(self, tasks: Any) -> None:
        """Check that no delete file names a data file of some scan tasks by another path; its
        deletes would apply to nothing.

        Raises :class:`~icekit.common.errors.DeletesUnmatched`.
        """
        with self._lock:
            if not self._is_looked_up:
                self.java.lookUp(self.snapshot_id)
                self._is_looked_up = True
        _refuse(self.java.unlisted(tasks))

    def check_paths(self, files: Any, tasks: Any = None) -> None:
        """Check the paths inside delete files against the files of these scan tasks, or of the
        snapshot, as :meth:`check_listed` does.
        """
        # Java keeps what one call finds.
        with self._lock:
            wrong = self.java.wrong(files, tasks, self.snapshot_id)
        _refuse(wrong)

    def check_deleted(self, tasks: Any, rows: int | None) -> None:
        """Check that a rewrite read every row of some scan tasks once, without those that position
        deletes delete.

        ``rows`` are those that it read, before any equality delete took one; if they are unknown
        (None), rows under position deletes are counted again. Where each delete names one file, and
        the records add up, nothing is read.
        Raises :class:`~icekit.common.errors.DeletesUnmatched` or
        :class:`~icekit.rows.proof.checked.RowsDiffer`.
        """
        java = self.java
        staging = self.staging
        counted_tasks = tasks
        deleted = java.deleted(tasks)
        if rows is None:
            if not deleted.size():
                return
            counted_tasks = deleted
            rows = _count(staging, staging.java.plain(deleted))
        records = int(java.records(counted_tasks))
        of_files = int(staging.java.records(counted_tasks))
        if of_files - rows == records >= 0:
            return
        if deleted.size():
            self.check_paths(java.files(deleted), counted_tasks)
        expected = int(java.expected(counted_tasks, None))
        if of_files - rows != expected:
            # A writer may have counted the rows of a file wrongly.
            rows_by_file = _counted(staging, java.bare(counted_tasks))
            of_files = int(java.total(rows_by_file))
            expected = int(java.expected(counted_tasks, rows_by_file))
        if of_files - rows != expected:
            raise RowsDiffer.of(
                "files",
                f"{count(expected, 'row')} of the old files are deleted by position, but "
                f"{of_files - rows:,} were left out",
                "The old files stay.",
            )


@contextlib.contextmanager
def other_rows_explained(deletes: PositionDeletes | None) -> Iterator[None]:
    """Raise :class:`~icekit.common.errors.ReadersDisagree` where the guard, which compares with
    these deletes, refuses a rewrite of position deletes after which other rows would be deleted.
    """
    try:
        yield
    except Exception as error:
        path = deletes.java.changedPath() if deletes else None
        if path is None:
            raise
        reason = (
            f"{path} has a deletion vector, and position deletes that readers ignore because of "
            "it. Iceberg's own action would merge them, and so delete rows that readers show."
            if deletes and deletes.java.isVectorChanged()
            else f"After Iceberg's own rewrite of position deletes, readers would leave out other "
            f"rows of {path} than now."
        )
        raise ReadersDisagree(
            f"{reason} Nothing was committed. If rows that readers show now should go, delete them "
            "again. `icekit compact` with --scope major rewrites the data file as readers show it."
        ) from error


def _count(staging: Staging, tasks: Any) -> int:
    with staging.staged_rows(tasks) as rows:
        return rows.count()


def _counted(staging: Staging, tasks: Any) -> Any:
    """Java's list of the rows in each file of some tasks."""
    from pyspark.sql import functions as F

    with staging.staged_rows(tasks) as rows:
        return rows.groupBy(F.input_file_name().alias("path")).count()._jdf.collectAsList()


def _refuse(wrong: Any) -> None:
    """Raise the error for a path that Java found to be wrong, if it found one."""
    if wrong is None:
        return
    file, path, positions, instead = map(str, elements(wrong))
    verb, them = ("names", "it") if positions == "1" else ("name", "them")
    problem = (
        f"{verb} the data file {path}, which the table has as {instead}"
        if path
        else "may name no data file"
    )
    raise DeletesUnmatched(
        f"{count(int(positions), 'position delete')} in {file} {problem}, so Spark does not apply "
        f"{them}, but other engines may. Nothing was committed. If these "
        "rows should go, delete them again with Spark (with write.delete.mode = copy-on-write), "
        "and run this again; if they should stay, Iceberg's own rewrite_data_files keeps them."
    )
