"""Hold what the groups of files of one rewrite share."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import encryption_class, head_snapshot, java_object, metadata_of
from icekit.engine.cluster import cluster_of
from icekit.engine.interrupting import Stop
from icekit.engine.staging import Staging
from icekit.iceberg.definition import SortField
from icekit.iceberg.metadata import schema_of, sort_order
from icekit.rows.deletes.key_table import KeyTable
from icekit.rows.deletes.keys import DeleteKeys
from icekit.rows.kernel.kernel_settings import KernelSettings
from icekit.rows.kernel.table_settings import KernelUnavailable, writer_settings
from icekit.rows.proof.position_deletes import PositionDeletes
from icekit.rows.proof.readers import most_delete_records
from icekit.rows.rewrite.key import Key, RowColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.rows.rewrite.rewrite_order import RewriteOrder


class NotHere(Exception):
    """Only Iceberg's own action can do this rewrite; says why."""


# If Iceberg's own reader takes in at most this many delete records for the files of a group,
# added up over the files, it applies them faster (in about 1 s of CPU) than the queries of a join
# start. The check reads all files of the group by it once more, so it is small, too: it has so many
# bytes, or becomes one file.
_FEW_APPLIED = 1_000_000
SMALL_BYTES = 64 << 20


class RewriteSession:
    """What the groups of one rewrite share; ``table`` is an object of Iceberg's API."""

    def __init__(
        self,
        spark: SparkSession,
        table: Any,
        sql_name: tuple[str, ...],
        branch: str | None,
        order: RewriteOrder,
        stop: Stop,
        check: bool,
    ) -> None:
        self.spark = spark
        self.table = table
        self.stop = stop
        self.check = check
        #: The name of the table, with its catalog.
        self.sql_name = sql_name
        self.branch = branch
        self.order = order
        #: How the kernel writes new files; None where it cannot.
        self.writer: KernelSettings | None = None
        #: Why Spark writes groups instead, and how many.
        self.kernel_refusals: Counter[str] = Counter()
        self.encryption = encryption_class(table)
        self.metadata = metadata_of(spark, table)
        self.cluster = cluster_of(spark)
        self.most_applied = _FEW_APPLIED
        # One for all groups: Spark compiles a query again if a number in it differs.
        self.salt = random.getrandbits(31)
        self.staging = Staging(spark, table)
        self.added = RowColumns(
            str(schema_field["name"]) for schema_field in schema_of(self.metadata)["fields"]
        )
        self._delete_stagings: dict[tuple[int, ...], Staging] = {}
        self.snapshot = head_snapshot(table, branch)
        self.snapshot_id = 0 if self.snapshot is None else int(self.snapshot.snapshotId())
        self.deletes = PositionDeletes(self.staging, self.snapshot_id)
        #: How groups are split into tasks: also the prediction's answer.
        self.rewrites = java_object(spark, table, "Rewrites", table)
        #: What sorts the rows, if they are sorted, and the id of their order; 0 for an order that
        # is none of the table's.
        self.runner: Any = None
        self.order_id = 0

    def find_kernel(self, keys_by_group: Sequence[Sequence[Key]]) -> None:
        """Find out whether the kernel can write the new files of groups, each with its keys."""
        key_columns = [
            column for group_keys in keys_by_group for key in group_keys for column in key.columns
        ]
        try:
            if not all(column.is_current for column in key_columns):
                raise KernelUnavailable("a column of a key was dropped")
            key_types = {column.field_id: column.type_name for column in key_columns}
            sort_fields = self._sort_fields()
            self.writer = writer_settings(
                self.spark, self.table, self.metadata, key_types, sort_fields
            )
        except KernelUnavailable as refusal:
            self.kernel_refusals[str(refusal)] = len(keys_by_group)

    def _sort_fields(self) -> Sequence[SortField] | None:
        """How rows are sorted; None if they are not."""
        order = self.order
        if not order.is_sorting:
            return None
        if order.strategy != "sort":
            raise KernelUnavailable(f"its rows are sorted by {order.strategy}")
        if not order.by:
            return sort_order(self.metadata)
        return [
            SortField(".".join(column_path), "identity", "asc", "nulls-first")
            for column_path in order.by
        ]

    def delete_staging(self, keys: DeleteKeys) -> Staging:
        """What reads only the columns of some keys, and from delete files."""
        field_ids = tuple(keys.columns)
        if field_ids not in self._delete_stagings:
            key_table = KeyTable.of_fields(self.spark, self.table, self.metadata, keys.fields)
            self._delete_stagings[field_ids] = key_table.staging
        return self._delete_stagings[field_ids]

    def applied_records(self, file_group: Any, keys: Sequence[Key]) -> int | None:
        """The records of equality deletes that Iceberg's own reader takes in for the files of a
        group, added up over the files; None if a join applies them faster, they do not fit, or that
        reader misreads one of their keys.
        """
        if not all(key.is_read_correctly for key in keys):
            return None
        is_small = int(file_group.inputFilesSizeInBytes()) <= max(
            SMALL_BYTES, int(file_group.inputSplitSize())
        )
        record_count = int(
            self.staging.java.applied(
                file_group.fileScanTasks(), most_delete_records(self.cluster.executor)
            )
        )
        return record_count if is_small and 0 <= record_count <= self.most_applied else None

    def take_back(self, file_group: Any) -> None:
        """Remove the files of a group that was not committed."""
        with contextlib.suppress(Exception):
            self.commit_manager().abortFileGroup(file_group)

    def commit_manager(self, *commit_arguments: Any) -> Any:
        """Iceberg's object that commits groups of this table."""
        actions: Any = self.spark._jvm.org.apache.iceberg.actions  # type: ignore[union-attr]
        return actions.RewriteDataFilesCommitManager(self.table, *commit_arguments)
