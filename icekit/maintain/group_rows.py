"""Read the rows of a group of files without those that equality deletes delete, by one join for
each key.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.common.errors import ReadersDisagree
from icekit.common.sql import identifier
from icekit.deletes.applies import order_sql, scan_of, unless_ruled_out
from icekit.deletes.join import tasks as tasks_for
from icekit.deletes.key_table import WITHOUT_SNAPSHOTS, KeyTable
from icekit.deletes.keys import DeleteKeys, restored_fields, with_fields
from icekit.engine.bridge import compiled, elements, encryption_of, head_of, metadata_of
from icekit.engine.cluster import cluster_of
from icekit.engine.interrupting import Stop
from icekit.engine.staging import Staging
from icekit.health.definition import SortField
from icekit.health.metadata import Json, schema_of, sort_order
from icekit.maintain.key import Key, RowColumns
from icekit.maintain.position_deletes import PositionDeletes
from icekit.prove.checked import SAMPLED_FILES
from icekit.prove.fingerprint import LINEAGE, Fingerprint, prints, row_hash, summed_up
from icekit.prove.readers import disagreement_of, most_records
from icekit.rows.kernel import TableWriter
from icekit.rows.table_writer import KernelUnavailable, table_writer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

    from icekit.maintain.model import Action


class NotHere(Exception):
    """Only Iceberg's own action can do this rewrite; says why."""


# If Iceberg's own reader takes in at most this many delete records for the files of a group,
# added up over the files, it applies them faster (in about 1 s of CPU) than the queries of a join
# start. The check reads all files of the group by it once more, so it is small, too: it has so many
# bytes, or becomes one file.
_FEW_APPLIED, SMALL_BYTES = 1_000_000, 64 << 20


class RewriteSession:
    """What the groups of one rewrite share; ``table`` is an object of Iceberg's API."""

    def __init__(
        self, spark: SparkSession, table: Any, action: Action, stop: Stop, check: bool
    ) -> None:
        self.spark, self.table, self.stop, self.check = spark, table, stop, check
        self.action = action
        #: How the kernel writes new files; None where it cannot.
        self.writer: TableWriter | None = None
        #: Why Spark writes groups instead, and how many.
        self.kernel_refusals: Counter[str] = Counter()
        self.encryption = encryption_of(table)
        self.metadata = metadata_of(spark, table)
        self.cluster = cluster_of(spark)
        self.most_applied = _FEW_APPLIED
        # One for all groups: Spark compiles a query again if a number in it differs.
        self.salt = random.getrandbits(31)
        self.staging = Staging(spark, table)
        #: Reads rows and deletes with the fields of all keys, see :meth:`read_fields`.
        self.key_staging = self.staging
        self.key_metadata: Json = self.metadata
        #: The fields that these rows have more, inside structs and outside.
        self.restored_fields: tuple[tuple[str, ...], ...] = ()
        self._delete_stagings: dict[tuple[int, ...], Staging] = {}
        self.snapshot = head_of(table, action.branch)
        self.snapshot_id = 0 if self.snapshot is None else int(self.snapshot.snapshotId())
        self.deletes = PositionDeletes(self.staging, self.snapshot_id)
        #: How groups are split into tasks: also the prediction's answer.
        self.rewrites = compiled(spark, table, "Rewrites", table)
        #: What sorts the rows, if they are sorted, and the id of their order; 0 for an order that
        # is none of the table's.
        self.runner: Any = None
        self.order_id = 0

    def read_fields(self, field_ids: Iterable[int]) -> None:
        """Read rows with these fields too, some of which were dropped from the table: it is read
        as a table of the same files whose schema still has them.
        """
        self.key_metadata = with_fields(self.metadata, field_ids)
        if self.key_metadata is self.metadata:
            return
        current = schema_of(self.metadata)["fields"]
        self.restored_fields = tuple(
            restored_fields(current, schema_of(self.key_metadata)["fields"])
        )
        metadata = {**self.key_metadata, **WITHOUT_SNAPSHOTS}
        self.key_staging = KeyTable(self.spark, self.table, metadata).staging

    def find_kernel(self, keys: Sequence[Sequence[Key]]) -> None:
        """Find out whether the kernel can write the new files of groups, each with its keys."""
        columns = [column for each in keys for key in each for column in key.columns]
        try:
            if not all(column.is_current for column in columns):
                raise KernelUnavailable("a column of a key was dropped")
            key_types = {column.field_id: column.type_name for column in columns}
            order = self._order()
            self.writer = table_writer(self.spark, self.table, self.metadata, key_types, order)
        except KernelUnavailable as refusal:
            self.kernel_refusals[str(refusal)] = len(keys)

    def _order(self) -> Sequence[SortField] | None:
        """How rows are sorted; None if they are not."""
        order = self.action.order
        if not order.is_sorting:
            return None
        if order.strategy != "sort":
            raise KernelUnavailable(f"its rows are sorted by {order.strategy}")
        if not order.by:
            return sort_order(self.metadata)
        return [SortField(".".join(path), "identity", "asc", "nulls-first") for path in order.by]

    def delete_staging(self, keys: DeleteKeys) -> Staging:
        """What reads only the columns of some keys, and from delete files."""
        field_ids = tuple(keys.columns)
        if field_ids not in self._delete_stagings:
            only_keys = KeyTable.of_fields(self.spark, self.table, self.metadata, keys.fields)
            self._delete_stagings[field_ids] = only_keys.staging
        return self._delete_stagings[field_ids]

    @cached_property
    def added(self) -> RowColumns:
        """The names of the columns that are added to rows, after :meth:`read_fields`."""
        return RowColumns(str(field["name"]) for field in schema_of(self.key_metadata)["fields"])

    def applied(self, group: Any, keys: Sequence[Key]) -> int | None:
        """The records of equality deletes that Iceberg's own reader takes in for the files of a
        group, added up over the files; None if a join applies them faster, they do not fit, or that
        reader misreads one of their keys.
        """
        if not all(key.is_read_right for key in keys):
            return None
        is_small = int(group.inputFilesSizeInBytes()) <= max(
            SMALL_BYTES, int(group.inputSplitSize())
        )
        applied = int(
            self.staging.java.applied(group.fileScanTasks(), most_records(self.cluster.executor))
        )
        return applied if is_small and 0 <= applied <= self.most_applied else None

    def take_back(self, group: Any) -> None:
        """Remove the files of a group that was not committed."""
        with contextlib.suppress(Exception):
            self.commit_manager().abortFileGroup(group)

    def commit_manager(self, *more: Any) -> Any:
        """Iceberg's object that commits groups of this table."""
        actions: Any = self.spark._jvm.org.apache.iceberg.actions  # type: ignore[union-attr]
        return actions.RewriteDataFilesCommitManager(self.table, *more)


class GroupRows:
    """The rows of one group of files, as the specification says that they are read."""

    def __init__(self, rewrite: RewriteSession, group: Any, keys: Sequence[Key]) -> None:
        self.rewrite, self.group = rewrite, group
        self.spark, self.staging, self.cluster = rewrite.spark, rewrite.staging, rewrite.cluster
        self.java, self.tasks = self.staging.java, group.fileScanTasks()
        self.added = rewrite.added
        self.hash = ""
        # Whether one task writes the rows of several partitions, each of which gets a file.
        self.is_one_file_each = False
        #: Whether some keys are looked up, or whole files read, by other means.
        self.is_looked_up = True
        #: About one group in so many is, by their rows.
        self.one_group_in = 1
        # Counts the rows as they are read.
        self.seen: Observation | None = None
        # From format version 3 on, Spark finds no metadata column in the relation of a rewrite.
        self.is_numbered = int(rewrite.metadata["format-version"]) < 3
        # Whether Iceberg's own reader applies the equality deletes.
        are_read_right = all(key.is_read_right for key in keys)
        self.by_reader = bool(keys) and rewrite.applied(group, keys) is not None
        self.keys: Sequence[Key] = () if self.by_reader else keys
        self.read_deletes = sum(key.records for key in keys) if self.by_reader else 0
        if self.keys and not self.java.areOf(self.tasks, int(group.outputSpecId())):
            raise ValueError("a join with the deletes of one partition, for rows of several")
        # Whole files that are read twice; all of a group to which Iceberg's reader applies equality
        # deletes. It reads none where its answer depends on the query.
        self.chosen = (
            self.tasks
            if self.by_reader and rewrite.check
            else self._some(SAMPLED_FILES if self.keys and rewrite.check and are_read_right else 0)
        )
        #: Files of which the outcome says what Iceberg's own reader shows of them.
        self.misread = self._some(0 if are_read_right or not rewrite.check else SAMPLED_FILES)
        # By the column of a key: for each task the deletes that Iceberg's scan leaves out.
        lists_by_column = {
            key.ruled_out: scan_of(self.spark, rewrite.table).ofTasks(self.tasks, key.files)
            for key in self.keys
        }
        self.ruled_out = {
            column: lists for column, lists in lists_by_column.items() if lists is not None
        }

    def _some(self, files: int, tasks: Any = None) -> Any:
        tasks = self.tasks if tasks is None else tasks
        return self.java.some(tasks, files, most_records(self.cluster.executor), self.rewrite.salt)

    def _path(self, file: str) -> str:
        """The path of a data file by what its rows are marked with: its number, or its path."""
        return str(self.tasks.get(int(file)).file().location()) if self.is_numbered else file

    def _hash(self, rows: DataFrame) -> str:
        """SQL for the hash of a row, with its lineage if every row has one."""
        from pyspark.sql.types import StructType

        known = self.java.haveRowIds(self.tasks)
        return row_hash(
            StructType(
                [field for field in rows.schema.fields if known or field.name not in LINEAGE]
            )
        )

    def _fingerprint(self, rows: DataFrame) -> Fingerprint:
        return summed_up(rows, self.hash)

    def _stock(self) -> Fingerprint:
        """The rows of the chosen files, as Iceberg's own reader reads them."""
        if not int(self.chosen.size()):
            return Fingerprint()
        return read_by_iceberg(self.staging, self.chosen, self.hash, asks_twice=self.by_reader)

    def _split_size(self, tasks: Any, share: float) -> int:
        """About the bytes of a split of some tasks whose rows become one file, if such a share of
        them lives.
        """
        # Rows that are shuffled are not written split by split.
        if self.rewrite.runner is not None or self.keys:
            return int(self.group.inputSplitSize())
        return int(self.rewrite.rewrites.splitSize(self.group, tasks, share))

    def _placed(
        self, rows: DataFrame, listed: DataFrame, order: str, *more: Column | str
    ) -> DataFrame:
        """Rows with the number of their file, or its path, and the file's order, which is SQL
        (:func:`icekit.deletes.applies.order_of`).
        """
        from pyspark.sql import functions as F

        added = self.added
        file = F.col("_spec_id") if self.is_numbered else F.input_file_name()
        rows = rows.select("*", file.alias(added.file))
        listed = listed.select(
            F.col("file" if self.is_numbered else "path").alias(added.listed_file),
            F.expr(order).alias(added.listed_order),
            *more,
        )
        # No delete would apply to a row whose file is not listed.
        number = (
            f"coalesce({identifier(added.listed_order)}, raise_error(concat('icekit: not a file of this "
            f"rewrite: ', {identifier(added.file)})))"
        )
        joined = rows.join(
            listed.hint("broadcast"), F.col(added.file) == F.col(added.listed_file), "left"
        )
        return joined.withColumn(added.order, F.expr(number)).drop(
            added.listed_file, added.listed_order
        )

    def _deletes(self, stack: contextlib.ExitStack, key: Key, where: str = "true") -> DataFrame:
        """The deleted keys, each with the order of its delete file."""
        tasks = key.staging.java.asData(key.files)
        rows = stack.enter_context(key.staging.reading(tasks))
        keys = [
            f"{value} AS {identifier(name)}"
            for value, name in zip(key.deleted_values, key.names, strict=True)
        ]
        placed = self._placed(
            rows.where(where),
            self.staging.files(key.files),
            order_sql("sequence", "file"),
        )
        return placed.selectExpr(*keys, identifier(self.added.order))

    def _newest(self, stack: contextlib.ExitStack, key: Key) -> DataFrame:
        """The newest delete of each key, spread over tasks by the key's hash: Spark's own shuffle,
        which spills.
        """
        from pyspark.sql import functions as F

        added = self.added
        deletes = self._deletes(stack, key)
        newest = deletes.groupBy(*key.names).agg(F.max(added.order).alias(added.deleted))
        hashed = key.hash([identifier(name) for name in key.names])
        newest = newest.withColumn(added.hash, F.expr(hashed))
        partitions = max(tasks_for(key.records), self.cluster.cores)
        return newest.repartition(partitions, added.hash).hint("shuffle_hash")

    def _live(self, rows: DataFrame, newest: Mapping[Key, DataFrame], files: int) -> DataFrame:
        """The rows without those that the deletes delete, for so many files; the chosen files' rows
        are marked.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        added = self.added
        chosen = [
            str(task.file().location())
            for task in (*elements(self.chosen), *elements(self.misread))
        ]
        if not self.keys:
            return (
                rows.withColumn(added.is_compared, F.input_file_name().isin(chosen))
                if chosen
                else rows
            )
        if self.rewrite.check and self.rewrite.runner is None:
            self.seen = Observation()
            rows = rows.observe(self.seen, F.count(F.lit(1)).alias("rows"))
        listed = self.staging.files(self.tasks, **self.ruled_out)
        is_compared = F.col("path").isin(chosen).alias(added.is_compared)
        live = self._placed(rows, listed, order_sql("sequence"), is_compared)
        live = live.withColumn(added.position, F.monotonically_increasing_id())
        for key, deletes in newest.items():
            live = self._without(live, key, deletes, listed)
        if self.rewrite.runner is None:
            # The files keep the order of their rows.
            live = live.repartitionByRange(files, added.position).sortWithinPartitions(
                added.position
            )
        return live

    def _without(
        self, live: DataFrame, key: Key, deletes: DataFrame, listed: DataFrame
    ) -> DataFrame:
        """The rows without those that some deletes delete."""
        from pyspark.sql import functions as F

        added = self.added
        column = key.ruled_out
        if column not in self.ruled_out:
            return live.join(deletes, F.expr(key.matches()), "left_anti")
        # A delete of each key, so that no row is doubled. A shuffle does not move the words.
        matched = live.join(deletes, F.expr(key.matches()), "left")
        words = listed.select(
            F.col("file" if self.is_numbered else "path").alias(added.listed_file), column
        )
        placed = matched.join(
            words.hint("broadcast"), F.col(added.file) == F.col(added.listed_file), "left"
        )
        is_deleted = unless_ruled_out(
            f"{identifier(added.deleted)} IS NOT NULL",
            identifier(added.deleted),
            column,
            identifier(added.file),
        )
        return placed.where(f"NOT {is_deleted}").drop(*deletes.columns, added.listed_file, column)


def read_by_iceberg(
    staging: Staging, tasks: Any, hash_sql: str, *, asks_twice: bool
) -> Fingerprint:
    """The rows of some scan tasks, as Iceberg's own reader reads them; ``asks_twice`` raises
    :class:`ReadersDisagree` for a reader whose answer depends on the query, which proves nothing.
    """
    with staging.reading(tasks) as rows:
        if not asks_twice:
            return summed_up(rows, hash_sql)
        whole_rows = rows.selectExpr("true AS k0", f"{hash_sql} AS h")
        no_column = rows.selectExpr("false AS k0", "0L AS h")
        by_query = prints(whole_rows.unionAll(no_column))
    read = by_query.get((True,), Fingerprint())
    counted = by_query.get((False,), Fingerprint()).row_count
    if read.row_count != counted:
        raise ReadersDisagree(disagreement_of(int(tasks.size()), read.row_count, counted))
    return read
