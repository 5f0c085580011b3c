"""Rewrite data files with Iceberg's own planner, reader, order, writer and commit, and apply many equality deletes by one join per group.

Spark's stock rewrite builds, for each data file, a set of all equality deletes that apply to it, so its work grows with the square of an
upsert stream's commits, and its heap with the deletes of each file. Here the deletes of a group are read once, reduced to the newest delete of each key, and joined to
the group's rows as they are read. Each group is checked before it is committed.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from icekit.compact.model import Action
from icekit.compact.position_deletes import check_deleted
from icekit.engine.bridge import elements, encryption_of, lent, make_active, metadata_of, pinned
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.errors import kind_of
from icekit.engine.interrupting import POLL_SECONDS, Stop, Stopped
from icekit.engine.planner import plan_rewrite_at
from icekit.engine.staging import Staging
from icekit.errors import ConversionRefused, DeletesUnmatched
from icekit.facts.metadata import schema_of
from icekit.prove.commits import most_records
from icekit.prove.fingerprint import LINEAGE, Fingerprint, exact_case, row_hash, summed, summed_up
from icekit.prove.proof import CHECKED_TAG, SAMPLED_FILES, SAMPLED_KEYS, UNSEEN, CheckedRows, RowsDiffer
from icekit.resolve.join import KeyColumn, key_sql, keys_of, path_to, same_value, sampled
from icekit.sql import identifier
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


class NotHere(Exception):
    """Only Iceberg's own action can do this rewrite; says why."""


class MustConvert(Exception):
    """The equality deletes must become position deletes first: they are too many to broadcast, of an old partition spec, or of a dropped column."""


# The share of an executor's heap, and of the driver's, that the broadcast keys of all groups at work may take, and the most that is broadcast
# at once: Spark's driver refuses results of 1 GiB (spark.driver.maxResultSize).
_BROADCAST_SHARE, _BROADCAST_MOST = 0.15, 512 * 2**20
# What Spark's table of long keys takes for a row, in addition to its text: hash, address, sequence number, offsets. And for a row of two hashes alone.
_ROW_BYTES, _HASHED_BYTES = 88, 83
# Deletes that any executor can hold.
_FEW_DELETES = 200_000
# If Iceberg's own reader takes in at most this many delete records for the files of a small group, added up over the files, it applies them
# faster (in about 1 s of CPU) than the queries of a join start.
_FEW_APPLIED = 1_000_000
_OBSERVED_SECONDS = 120
# A split may grow to this multiple of its size, where most of its rows are deleted.
_MOST_GROWTH = 32
_FILE, _LISTED, _KNOWN, _SEQUENCE, _CHOSEN, _HASH, _DELETED, _SAMPLED, _SALTED = (
    f"icekit {name}" for name in ("file", "listed", "known", "sequence", "chosen", "hash", "deleted", "sampled", "salted")
)


@dataclass(frozen=True, slots=True)
class _Key:
    """The equality deletes of one key in a group, whose files are of one partition: Java's list of the delete files, and the key's columns."""

    files: Any
    columns: tuple[KeyColumn, ...]
    records: int

    @property
    def names(self) -> list[str]:
        """The columns of a frame of these deletes."""
        return [f"icekit key {place}" for place in range(len(self.columns))]

    @property
    def values(self) -> list[str]:
        """SQL for the key of a row of the table."""
        return [key_sql(column.names) for column in self.columns]

    @property
    def can_be_hashed(self) -> bool:
        """Whether two hashes can stand for the key: a nested field has nulls of several kinds."""
        return all(len(column.names) == 1 for column in self.columns)

    def hash(self, values: Sequence[str], salt: int | None = None) -> str:
        """SQL for a 64-bit hash of the key in these values; with a ``salt``, for a second one, whose collisions nobody can forge."""
        arguments = []
        for column, value in zip(self.columns, values, strict=True):
            # xxhash64 skips nulls, so it cannot tell which column has one.
            missing = [] if column.required or len(values) == 1 else [f"isnull({value})"]
            is_text = salt is not None and column.type.startswith(("string", "uuid", "binary", "fixed"))
            arguments += [*missing, f"sha2(CAST({value} AS binary), 256)" if is_text else value]
        return f"xxhash64({', '.join([*([] if salt is None else [f'{salt}L']), *arguments])})"

    def matches(self, salt: int | None = None) -> str:
        """SQL for whether a delete deletes a row; written so that Spark looks up the hash and only filters on the rest.

        With a ``salt``, the deletes have a second hash in place of their keys.
        """
        same = [
            same_value(value, identifier(name), required=column.required)
            for column, value, name in zip(self.columns, self.values, self.names, strict=True)
        ]
        if salt is not None:
            # Not as an equality: with two of them, Spark makes no table of long keys.
            same = [f"coalesce({self.hash(self.values, salt)} = {identifier(_SALTED)}, false)"]
        newer = f"{identifier(_DELETED)} > {identifier(_SEQUENCE)}"
        return " AND ".join([f"{self.hash(self.values)} = {identifier(_HASH)}", newer, *same])


class _Memory:
    """Bytes that groups share: each waits until what it needs is free."""

    def __init__(self, size_bytes: float) -> None:
        self.size_bytes = size_bytes
        self._taken = 0
        self._freed = threading.Condition()

    @contextlib.contextmanager
    def holding(self, needed: int, stop: Stop) -> Iterator[None]:
        """Wait for so many bytes, and free them afterwards; raises :class:`Stopped` after a request to stop."""
        with self._freed:
            while not self._freed.wait_for(lambda: not self._taken or self._taken + needed <= self.size_bytes, POLL_SECONDS):
                stop.check()
            self._taken += needed
        try:
            yield
        finally:
            with self._freed:
                self._taken -= needed
                self._freed.notify_all()


class CheckedRewrite:
    """One rewrite of data files, from its plan to its commits; ``table`` is an object of Iceberg's API, ``tags`` go into each commit."""

    def __init__(
        self, spark: SparkSession, action: Action, table: Any, tags: Mapping[str, str], *, stop: Stop | None = None, check: bool = True
    ) -> None:
        self.spark, self.action, self.table, self.tags, self.check = spark, action, table, tags, check
        self.stop = stop or Stop()
        if encryption := encryption_of(table):
            raise NotHere(f"the table's files are encrypted ({encryption})")
        self.metadata = metadata_of(spark, table)
        self.cluster = cluster_of(spark)
        heap = min(self.cluster.heap_bytes, int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory()))  # type: ignore[union-attr]
        self.memory = _Memory(_BROADCAST_SHARE * heap)
        # One for all groups: Spark compiles a query again if a number in it differs.
        self.salt = random.getrandbits(31)
        try:
            self.staging = Staging(spark, table)
        except Exception as error:
            raise NotHere(f"the JVM cannot compile a class for this version of Iceberg: {error}") from None
        jvm: Any = spark._jvm
        self._actions, self._java = jvm.org.apache.iceberg.actions, jvm.java.util
        self._snapshot = table.snapshot(action.branch) if action.branch else table.currentSnapshot()
        self.snapshot_id = 0 if self._snapshot is None else int(self._snapshot.snapshotId())
        #: What sorts the rows, if they are sorted, and the id of their order; 0 for an order that is none of the table's.
        self.runner: Any = None
        self.order_id = 0

    def run(self) -> list[Exception]:
        """Rewrite, check and commit every group; returns the errors of groups that failed.

        With partial progress the other groups are committed, as Iceberg's own action does; without it, nothing is committed and the first
        error is raised. A conflict, a commit's error, :class:`MustConvert` and :class:`RowsDiffer` are always raised, once the
        groups at work have finished. Nothing begins and nothing is committed after a request to stop. Raises :class:`NotHere` before
        anything is written.
        """
        action, options = self.action, self.action.options
        if self._snapshot is None:
            return []
        plan = plan_rewrite_at(self.spark, action.sql_name, self.table, self._snapshot, options, where=action.where)
        groups = list(elements(plan.groups()))
        keys = [self._keys(group) for group in groups]
        if not groups:
            return []
        is_partial = options.get("partial-progress.enabled") == "true"
        at_once = min(int(options.get("max-concurrent-file-group-rewrites", "5")), self.cluster.tasks, len(groups))
        commits = min(int(options.get("partial-progress.max-commits", "10")), len(groups)) if is_partial else 1
        failed: list[Exception] = []
        raised: list[Exception] = []
        ready: list[tuple[Any, CheckedRows]] = []

        def commit() -> None:
            done, ready[:] = list(ready), []
            try:
                self._commit(done)
            except Exception as error:
                raised.append(error)

        with lent(self.spark, self._settings()), ThreadPoolExecutor(at_once) as pool:
            if action.order.is_sorting:
                self.runner, self.order_id = self._runner()
            works = [_Group(self, group, tuple(found), at_once) for group, found in zip(groups, keys, strict=True)]
            futures = {pool.submit(self._in_session(work.run)): work.group for work in works}
            for future in as_completed(futures):
                try:
                    ready.append((futures[future], future.result()))
                except CancelledError:
                    continue
                except Exception as error:
                    always = isinstance(error, (MustConvert, RowsDiffer, DeletesUnmatched, Stopped)) or kind_of(error) == "conflict"
                    (raised if always else failed).append(error)
                    if not is_partial or self.stop.is_set:
                        pool.shutdown(wait=False, cancel_futures=True)
                if is_partial and not self.stop.is_set and len(ready) >= -(-len(groups) // commits):
                    commit()
        if ready and not self.stop.is_set and (is_partial or not (failed or raised)):
            commit()
        for group, _ in ready:
            self.take_back(group)
        if raised or (failed and not is_partial):
            raise (raised or failed)[0]
        return failed

    def _runner(self) -> tuple[Any, int]:
        """What sorts the rows in Iceberg's own action, which works in a session of its own: a copy of this one as it is now."""
        actions = self.spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self.spark._jsparkSession)  # type: ignore[union-attr]
        try:
            runner = self.staging.java.runner(
                ordered(self.spark, actions.rewriteDataFiles(self.table), self.table, self.action), self.action.options
            )
            return runner, int(self.staging.java.sortOrderId(runner))
        except Exception as error:
            raise NotHere(f"this version of Iceberg sorts in another way: {error}") from None

    def _settings(self) -> dict[str, str]:
        """Settings of the session while it rewrites."""
        return {
            **exact_case(schema_of(self.metadata)["fields"]),
            # Iceberg's own action turns it off, too; a cache may hide deletes (apache/iceberg 15039).
            CACHE_KEYS[1]: "false",
            "spark.sql.adaptive.enabled": "true",
            # Its small first map would be full at once.
            "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
            # The cached keys are all distinct, and read twice.
            "spark.sql.inMemoryColumnarStorage.compressed": "false",
        }

    def take_back(self, group: Any) -> None:
        """Remove the files of a group that was not committed."""
        with contextlib.suppress(Exception):
            self._actions.RewriteDataFilesCommitManager(self.table).abortFileGroup(group)

    def _commit(self, done: Sequence[tuple[Any, CheckedRows]]) -> None:
        """Commit some groups as Iceberg's own action does; their files are removed if the commit certainly failed."""
        checked = sum((one for _, one in done), CheckedRows())
        tags, groups = self._java.HashMap(), self._java.HashSet()
        for key, value in {**self.tags, **({CHECKED_TAG: checked.text()} if self.check else {})}.items():
            tags.put(key, value)
        for group, _ in done:
            groups.add(group)
        keeps = self.action.options.get("use-starting-sequence-number") != "false"
        start = self.snapshot_id
        self._actions.RewriteDataFilesCommitManager(self.table, start, keeps, tags, self.action.branch).commitOrClean(groups)

    def _in_session(self, work: Callable[[], CheckedRows]) -> Callable[[], CheckedRows]:
        def run() -> CheckedRows:
            make_active(self.spark)
            return work()

        wrapped: Any = pinned(self.spark, run)  # type: ignore[arg-type]
        return wrapped  # type: ignore[no-any-return]

    def _keys(self, group: Any) -> list[_Key]:
        """The keys of a group's equality deletes; raises :class:`NotHere` for deletes that only Iceberg's reader can apply."""
        java, tasks = self.staging.java, group.fileScanTasks()
        fields = schema_of(self.metadata)["fields"]
        found: list[_Key] = []
        for entry in elements(java.deletes(tasks).entrySet()):
            ids, files = sorted(json.loads(str(entry.getKey()))), entry.getValue()
            try:
                keys = keys_of(self.metadata, ids)
            except ConversionRefused as refused:
                raise NotHere(str(refused)) from None
            if not all(path_to(fields, i) for i in ids):
                # Iceberg's own reader fails at these before 1.12, and on Spark 3.5.
                raise MustConvert("a key column was dropped")
            found.append(_Key(files, tuple(keys.columns[i] for i in ids), int(java.records(files))))
        if not java.areOf(tasks, int(group.outputSpecId())):
            # Spark would sort rows into the new partitions, and sample them for it: they would be counted twice as they are read.
            raise MustConvert("files move to another partition spec") if found else NotHere("files move to another partition spec")
        if found and int(java.paths(tasks)) < int(tasks.size()):
            raise NotHere("a data file is in the table twice")
        return found


def ordered(spark: SparkSession, rewrite: Any, table: Any, action: Action) -> Any:
    """Set the strategy of a rewrite, as the procedure does."""
    order = action.order
    if not order.is_sorting:
        return rewrite.binPack()
    if not order.by:
        return rewrite.sort()
    jvm: Any = spark._jvm
    if order.strategy == "sort":
        builder = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
        nulls = jvm.org.apache.iceberg.NullOrder
        for path, direction in order.by:
            add = builder.desc if direction.startswith("DESC") else builder.asc
            builder = add(".".join(path), nulls.NULLS_LAST if direction.endswith("LAST") else nulls.NULLS_FIRST)
        return rewrite.sort(builder.build())
    gateway: Any = spark.sparkContext._gateway
    columns = gateway.new_array(gateway.jvm.java.lang.String, len(order.by))
    for place, (path, _) in enumerate(order.by):
        columns[place] = ".".join(path)
    return rewrite.hilbert(columns) if order.strategy == "hilbert" else rewrite.zOrder(columns)


class _Group:
    """One group of files: its rows without those that equality deletes delete, written to new files and checked."""

    def __init__(self, rewrite: CheckedRewrite, group: Any, keys: tuple[_Key, ...], at_once: int) -> None:
        self.rewrite, self.group, self.at_once = rewrite, group, at_once
        self.spark, self.staging, self.cluster = rewrite.spark, rewrite.staging, rewrite.cluster
        self.java, self.tasks = self.staging.java, group.fileScanTasks()
        self.hash = ""
        # What is broadcast, and how many keys of it as hashes.
        self.broadcast_bytes = self.hashed = 0
        # From format version 3 on, Spark finds no metadata column in the relation of a rewrite.
        self.is_numbered = int(rewrite.metadata["format-version"]) < 3
        self.one_in = SAMPLED_KEYS
        most = most_records(self.cluster)
        # A larger group is split by how many of its rows live, which only the sample of a join tells.
        is_small = int(group.inputFilesSizeInBytes()) <= int(group.inputSplitSize())
        are_few = bool(keys) and is_small and 0 <= int(self.java.applied(self.tasks, most)) <= _FEW_APPLIED
        self.keys, self.read_deletes = ((), sum(key.records for key in keys)) if are_few else (keys, 0)
        self.chosen = self.java.some(self.tasks, SAMPLED_FILES if self.keys and rewrite.check else 0, most, rewrite.salt)

    @property
    def sample(self) -> str:
        """SQL for whether a row, or a delete, has one of the sampled keys."""
        return sampled(self.keys[0].values, self.rewrite.salt, self.one_in) if self.keys else "false"

    def run(self) -> CheckedRows:
        """Write the group's new files and check them; raises if they are not right, after removing them."""
        name = str(uuid.uuid4())
        self.rewrite.stop.check()
        try:
            with contextlib.ExitStack() as stack:
                self.java.stage(self.java.plain(self.tasks, self.is_numbered) if self.keys else self.tasks, name)
                stack.callback(self.java.clear, name)
                # The same rows, to find their columns: how they are split follows from how many of them live.
                first = self.staging.frame(name, {})
                self.hash = self._hash(first)
                columns = [identifier(column) for column in first.columns]
                newest = [(key, deletes) for key in self.keys for deletes in self._newest(stack, key)]
                before, share = self._sample_before(first) if self.keys and self.rewrite.check else (Fingerprint(), 1.0)
                # Sorted rows are shuffled, so the size of splits does not affect the files.
                growth = min(1 / share, _MOST_GROWTH) if self.rewrite.runner is None else 1
                rows = self._live(self.staging.frame(name, {"split-size": str(int(self.group.inputSplitSize() * growth))}), newest)
                # A sort is a second query with a broadcast of its own.
                needed = self.broadcast_bytes * (1 if self.rewrite.runner is None else 2)
                with self.rewrite.memory.holding(needed, self.rewrite.stop):
                    self.rewrite.stop.check()
                    # A sort reads the rows twice, so that they cannot be counted on their way into it.
                    unsorted = self._fingerprint(rows) if self.rewrite.check and self.rewrite.runner is not None else None
                    files = math.ceil(int(self.group.expectedOutputFiles()) * max(share, 1 / _MOST_GROWTH))
                    planned = self._write(rows, columns, name, max(1, files))
            written = int(self.java.records(self.group.addedFiles()))
            check_deleted(self.staging, self.rewrite.snapshot_id, self.tasks, written)
            if not self.rewrite.check:
                return CheckedRows()
            return self._checked(planned, before, unsorted)
        except Exception:
            self.rewrite.take_back(self.group)
            raise

    def _hash(self, rows: DataFrame) -> str:
        """SQL for the hash of a row, with its lineage if every row has one."""
        from pyspark.sql.types import StructType

        known = self.java.haveRowIds(self.tasks)
        return row_hash(StructType([field for field in rows.schema.fields if known or field.name not in LINEAGE]))

    def _options(self) -> dict[str, str]:
        # As Iceberg's own action does for files of the current spec.
        options = {"target-file-size-bytes": str(self.group.maxOutputFileSize()), "output-spec-id": str(self.group.outputSpecId())}
        if self.rewrite.runner is None:
            return {**options, "distribution-mode": "none"}
        by_order = {"output-sort-order-id": str(self.rewrite.order_id)} if self.rewrite.order_id else {}
        return {**options, **by_order, "use-table-distribution-and-ordering": "false"}

    def _write(self, rows: DataFrame, columns: Sequence[str], name: str, files: int) -> Mapping[str, Any]:
        """Write rows, sorted into so many files if they are sorted, and add up their hashes as they are written, unless nothing is checked."""
        from pyspark.sql import Observation

        check, runner = self.rewrite.check, self.rewrite.runner
        of_deletes: list[str] = []
        if check and self.keys:
            of_deletes = [identifier(_CHOSEN), f"if({self.sample}, {self._identity()}, NULL) AS {identifier(_SAMPLED)}"]
        rows = rows.selectExpr(*columns, *of_deletes)
        if runner is not None:
            rows = self.staging.sorted(rows, runner, self.group, files)
        if not check:
            self.group.setOutputFiles(self.staging.write(rows, name, self._options()))
            return {}
        seen = Observation()
        sums = summed(_HASH, "all")
        if of_deletes:
            sums += [*summed(_HASH, "chosen", identifier(_CHOSEN)), *summed(_SAMPLED, "sampled", f"{identifier(_SAMPLED)} IS NOT NULL")]
        # After the sort: Spark reads all rows before it, too, to find ranges.
        hashed = rows.selectExpr("*", f"{self.hash} AS {identifier(_HASH)}")
        self.group.setOutputFiles(self.staging.write(hashed.observe(seen, *sums).selectExpr(*columns), name, self._options()))
        return _observed(seen)

    # --- Resolve the equality deletes

    def _numbered(self, rows: DataFrame) -> DataFrame:
        """Rows with the number of their file, or its path."""
        from pyspark.sql import functions as F

        return rows.select("*", (F.col("_spec_id") if self.is_numbered else F.input_file_name()).alias(_FILE))

    def _placed(self, rows: DataFrame, files: Any, *more: Column) -> DataFrame:
        """Numbered rows with the sequence number of their file."""
        from pyspark.sql import functions as F

        listed = self.staging.files(files).select(
            F.col("file" if self.is_numbered else "path").alias(_LISTED), F.col("sequence").alias(_KNOWN), *more
        )
        # No delete would apply to a row whose file is not listed.
        number = f"coalesce({identifier(_KNOWN)}, raise_error(concat('icekit: not a file of this rewrite: ', {identifier(_FILE)})))"
        joined = rows.join(listed.hint("broadcast"), F.col(_FILE) == F.col(_LISTED), "left")
        return joined.withColumn(_SEQUENCE, F.expr(number))

    def _deletes(self, stack: contextlib.ExitStack, key: _Key, where: str = "true", **options: str) -> DataFrame:
        """The deleted keys, each with the sequence number of its delete file."""
        rows = stack.enter_context(self.staging.reading(self.java.asData(key.files), options))
        keys = [f"{value} AS {identifier(name)}" for value, name in zip(key.values, key.names, strict=True)]
        return self._placed(self._numbered(rows.where(where)), key.files).selectExpr(*keys, identifier(_SEQUENCE))

    def _newest(self, stack: contextlib.ExitStack, key: _Key) -> list[DataFrame]:
        """The newest delete of each key, in parts that Spark can broadcast: with its key, or else with two hashes of it."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        tasks = max(1, self.cluster.tasks // self.at_once)
        # Groups next to each other keep the cores busy: one task each, and no shuffle.
        deletes = self._deletes(stack, key, **({"split-size": str(2**50)} if tasks == 1 else {}))
        gathered = deletes.coalesce(1) if tasks == 1 else deletes.repartition(tasks, *key.names)
        newest = gathered.groupBy(*key.names).agg(F.max(_SEQUENCE).alias(_DELETED))
        newest = newest.withColumn(_HASH, F.expr(key.hash([identifier(name) for name in key.names]))).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(newest.unpersist)
        texts = [f"coalesce(sum(octet_length(CAST({identifier(name)} AS string))), 0L)" for name in key.names]
        row = newest.selectExpr("count(*) AS keys", f"{' + '.join(texts)} AS text").collect()[0]
        keys = int(row["keys"])
        most = self.rewrite.memory.size_bytes
        exact, hashed = keys * _ROW_BYTES + int(row["text"]), keys * _HASHED_BYTES
        by_hash = self.broadcast_bytes + exact > most and key.can_be_hashed
        self.broadcast_bytes += hashed if by_hash else exact
        if self.broadcast_bytes > most:
            raise MustConvert(f"the distinct keys of a group's equality deletes take {size(self.broadcast_bytes)}")
        if key is self.keys[0] and keys < UNSEEN * SAMPLED_KEYS:
            # A sample of so few would show little, and might be empty.
            self.one_in = 1
        if by_hash:
            self.hashed += keys
            salted = key.hash([identifier(name) for name in key.names], self.rewrite.salt)
            newest = newest.selectExpr(identifier(_HASH), f"{salted} AS {identifier(_SALTED)}", identifier(_DELETED))
        parts = -(-(hashed if by_hash else exact) // _BROADCAST_MOST)
        return [newest.where(f"pmod({identifier(_HASH)}, {parts}) = {part}") for part in range(parts)] if parts > 1 else [newest]

    def _live(self, rows: DataFrame, newest: Sequence[tuple[_Key, DataFrame]]) -> DataFrame:
        """The rows without those that the deletes delete; the chosen files' rows are marked."""
        from pyspark.sql import functions as F

        if not self.keys:
            return rows
        chosen = [str(task.file().location()) for task in elements(self.chosen)]
        live = self._placed(self._numbered(rows), self.tasks, F.col("path").isin(chosen).alias(_CHOSEN))
        for key, deletes in newest:
            salt = self.rewrite.salt if _SALTED in deletes.columns else None
            live = live.join(deletes.hint("broadcast"), F.expr(key.matches(salt)), "left_anti")
        return live

    # --- Check the new files

    def _checked(self, written: Mapping[str, Any], before: Fingerprint, unsorted: Fingerprint | None) -> CheckedRows:
        """Compare the new files, read back, with what was to be written and with the two samples of the old files."""
        planned = Fingerprint.of_sums(written, "all")
        if unsorted not in {None, planned}:
            raise _differ(f"{unsorted} were read from the old files, but {planned} came out of the sort")
        after = Fingerprint()
        # No file is written if no row lives.
        if int(self.group.addedFiles().size()):
            with self.staging.reading(self.java.ofNew(self.group.addedFiles())) as rows:
                after = self._fingerprint(rows)
        if after != planned or after.row_count != int(self.java.records(self.group.addedFiles())):
            raise _differ(f"the new files hold {after}, but {planned} were to be written")
        read = after.row_count + (unsorted.row_count if unsorted else 0)
        if not self.keys:
            by_reader = after.row_count if self.read_deletes else 0
            return CheckedRows(after, read=read, resolved=self.read_deletes, by_reader=by_reader)
        if before != (sample := Fingerprint.of_sums(written, "sampled")):
            raise _differ(f"for one key in {self.one_in}, the old files hold {before}, but this rewrite wrote {sample}")
        files, stock = int(self.chosen.size()), Fingerprint()
        if files:
            with self.staging.reading(self.chosen) as rows:
                stock = self._fingerprint(rows)
            if stock != (ours := Fingerprint.of_sums(written, "chosen")):
                raise _differ(f"from {count(files, 'old file')}, Iceberg's own reader reads {stock}, but this rewrite wrote {ours}")
        read += before.row_count + stock.row_count
        records = sum(key.records for key in self.keys)
        return CheckedRows(
            after,
            sampled=before.row_count,
            files=files,
            of_files=stock.row_count,
            read=read,
            resolved=records,
            one_in=self.one_in,
            hashed=self.hashed,
        )

    def _fingerprint(self, rows: DataFrame) -> Fingerprint:
        return summed_up(rows, self.hash)

    def _identity(self) -> str:
        """SQL for the hash that identifies a sampled row: its keys and its file, and all columns where nothing else compares them well.

        That is so if Iceberg's own reader reads no file with deletes, and if the sample is to stand for all rows.
        """
        fields = dict.fromkeys((identifier(*c.names), value) for key in self.keys for c, value in zip(key.columns, key.values, strict=True))
        is_compared = int(self.java.applied(self.chosen, 2**62)) > 0 and self.one_in > 1
        values = [f"isnull({field}), {value}" for field, value in fields]
        return f"xxhash64({', '.join([*values, identifier(_SEQUENCE), identifier(_FILE), *([] if is_compared else [self.hash])])})"

    def _sample_before(self, rows: DataFrame) -> tuple[Fingerprint, float]:
        """The live rows of the sampled keys, by a plain anti-join on the keys themselves, and roughly what share of the group's rows is live."""
        from pyspark.sql import functions as F

        with contextlib.ExitStack() as stack:
            live = self._placed(self._numbered(rows.where(self.sample)), self.tasks).withColumn(_HASH, F.expr(self._identity()))
            for place, key in enumerate(self.keys):
                is_sampled = key.values == self.keys[0].values
                deletes = self._deletes(stack, key, self.sample if is_sampled else "true").withColumnRenamed(
                    _SEQUENCE, f"{_DELETED} {place}"
                )
                equal = F.col(f"{_DELETED} {place}") > F.col(_SEQUENCE)
                for value, name in zip(key.values, key.names, strict=True):
                    equal = F.expr(value).eqNullSafe(F.col(name)) & equal
                few = key.records // (self.one_in if is_sampled else 1) <= _FEW_DELETES
                live = live.join(deletes.hint("broadcast" if few else "merge"), equal, "left_anti")
            left = summed_up(live, identifier(_HASH))
            return left, min(1.0, max(left.row_count, 1) * self.one_in / max(int(self.java.records(self.tasks)), 1))


def _observed(observation: Observation) -> Mapping[str, Any]:
    """The sums of an observed query that has ended. Spark's own call would wait forever if it lost them."""
    found: Queue[Mapping[str, Any] | Exception] = Queue()

    def wait() -> None:
        try:
            found.put(observation.get)
        except Exception as error:
            found.put(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        sums = found.get(timeout=_OBSERVED_SECONDS)
    except Empty:
        raise RowsDiffer(
            f"Spark did not report within {_OBSERVED_SECONDS} s what it wrote, so these files were discarded. Run it again."
        ) from None
    if isinstance(sums, Exception):
        raise sums
    return sums


def _differ(what: str) -> RowsDiffer:
    return RowsDiffer.of("files", what, "`icekit convert` and a compaction after it do the same work in another way.")
