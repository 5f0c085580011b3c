"""Rewrite data files with Iceberg's own planner, reader, writer and commit, and apply many equality deletes by one join per group.

Spark's stock rewrite builds, for each data file, a set of all equality deletes that apply to it, so its work grows with the square of an
upsert stream's commits, and its heap with the deletes of each file. Here the deletes of a group are read once, reduced to the newest delete of each key, and joined to
the group's rows as they are read. Each group is checked before it is committed.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from icekit.compact.model import Action
from icekit.engine.bridge import elements, encryption_of, lent, make_active, metadata_of, pinned
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.errors import kind_of
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.planner import plan_rewrite_at
from icekit.engine.staging import Staging
from icekit.errors import ConversionRefused, IcekitError
from icekit.facts.metadata import schema_of
from icekit.prove.commits import HEAP_SHARE, RECORD_HEAP_BYTES
from icekit.prove.fingerprint import LINEAGE, Fingerprint, row_hash, summed
from icekit.prove.proof import CHECKED_TAG, SAMPLED_KEYS, UNSEEN, CheckedRows
from icekit.resolve.join import KeyColumn, key_sql, keys_of, path_to, same_value
from icekit.sql import identifier
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


class NotHere(Exception):
    """Only Iceberg's own action can do this rewrite; says why."""


class MustConvert(Exception):
    """The equality deletes must become position deletes first: they are too many to broadcast, of an old partition spec, or of a dropped column."""


class RowsDiffer(IcekitError):
    """The new files of a rewrite are not right, so nothing was committed."""


#: Data files of each group, chosen at random, that Iceberg reads with its own application of deletes.
SAMPLED_FILES = 2
# The share of an executor's heap, and of the driver's, that the broadcast keys of all groups at work may take, and the most that one
# group's may: Spark's driver refuses results of 1 GiB (spark.driver.maxResultSize).
_BROADCAST_SHARE, _BROADCAST_MOST = 0.15, 512 * 2**20
# What Spark's table of long keys takes for a row, beside its text: hash, address, sequence number, offsets.
_ROW_BYTES = 88
# Deletes that any executor can hold.
_FEW_DELETES = 200_000
# If Iceberg's own reader takes in at most this many delete records for the files of a small group, added up over the files, it applies them
# faster (in about 1 s of CPU) than the queries of a join start.
_FEW_APPLIED = 1_000_000
_OBSERVED_SECONDS = 120
# A split may grow to this multiple of its size, where most of its rows are deleted.
_MOST_GROWTH = 32
_FILE, _LISTED, _KNOWN, _SEQUENCE, _CHOSEN, _HASH, _DELETED = (
    f"icekit {name}" for name in ("file", "listed", "known", "sequence", "chosen", "hash", "deleted")
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

    def matches(self) -> str:
        """SQL for whether a delete deletes a row; written so that Spark looks up the hash and only filters on the rest."""
        same = [
            same_value(value, identifier(name), required=column.required)
            for column, value, name in zip(self.columns, self.values, self.names, strict=True)
        ]
        newer = f"{identifier(_DELETED)} > {identifier(_SEQUENCE)}"
        return " AND ".join([f"{_hash_sql(self.values)} = {identifier(_HASH)}", newer, *same])


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
        try:
            self.staging = Staging(spark, table)
        except Exception as error:
            raise NotHere(f"the JVM cannot compile a class for this version of Iceberg: {error}") from None
        jvm: Any = spark._jvm
        self._actions, self._java = jvm.org.apache.iceberg.actions, jvm.java.util
        self._snapshot = table.snapshot(action.branch) if action.branch else table.currentSnapshot()

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
            works = [_Group(self, group, tuple(found), at_once) for group, found in zip(groups, keys, strict=True)]
            futures = {pool.submit(self._in_session(work.run)): work.group for work in works}
            for future in as_completed(futures):
                try:
                    ready.append((futures[future], future.result()))
                except CancelledError:
                    continue
                except Exception as error:
                    always = isinstance(error, (MustConvert, RowsDiffer, Stopped)) or kind_of(error) == "conflict"
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

    def _settings(self) -> dict[str, str]:
        """Settings of the session while it rewrites."""
        names = [str(field["name"]) for field in schema_of(self.metadata)["fields"]]
        exact = {"spark.sql.caseSensitive": "true"} if len({name.lower() for name in names}) < len(names) else {}
        return {
            **exact,
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
        start = int(self._snapshot.snapshotId())
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


class _Group:
    """One group of files: its rows without those that equality deletes delete, written to new files and checked."""

    def __init__(self, rewrite: CheckedRewrite, group: Any, keys: tuple[_Key, ...], at_once: int) -> None:
        self.rewrite, self.group, self.at_once = rewrite, group, at_once
        self.spark, self.staging, self.cluster = rewrite.spark, rewrite.staging, rewrite.cluster
        self.java, self.tasks = self.staging.java, group.fileScanTasks()
        self.salt = random.getrandbits(31)
        self.hash = ""
        # From format version 3 on, Spark finds no metadata column in the relation of a rewrite.
        self.is_numbered = int(rewrite.metadata["format-version"]) < 3
        self.one_in = SAMPLED_KEYS
        most = self._most_records()
        # A larger group is split by how many of its rows live, which only the sample of a join tells.
        is_small = int(group.inputFilesSizeInBytes()) <= int(group.inputSplitSize())
        are_few = bool(keys) and is_small and 0 <= int(self.java.applied(self.tasks, most)) <= _FEW_APPLIED
        self.keys, self.read_deletes = ((), sum(key.records for key in keys)) if are_few else (keys, 0)
        self.chosen = self.java.some(self.tasks, SAMPLED_FILES if self.keys and rewrite.check else 0, most, self.salt)

    @property
    def sample(self) -> str:
        """SQL for whether a row, or a delete, has one of the sampled keys."""
        return f"pmod(xxhash64({self.salt}, {', '.join(self.keys[0].values)}), {self.one_in}) = 0" if self.keys else "false"

    def _most_records(self) -> int:
        """Deletes of a data file that Iceberg's own reader holds with ease, in each task."""
        return int(HEAP_SHARE * self.cluster.heap_bytes / (RECORD_HEAP_BYTES * self.cluster.tasks_per_executor))

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
                newest = [self._newest(stack, key) for key in self.keys]
                before, share = self._sample_before(first) if self.keys and self.rewrite.check else (Fingerprint(), 1.0)
                split = int(self.group.inputSplitSize()) * min(1 / share, _MOST_GROWTH)
                rows = self._live(self.staging.frame(name, {"split-size": str(int(split))}), newest)
                if not self.rewrite.check:
                    self.group.setOutputFiles(self.staging.write(rows.selectExpr(*columns), name, self._options()))
                    return CheckedRows()
                planned = self._write(rows, columns, name)
            return self._checked(planned, before)
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
        size_bytes, spec_id = str(self.group.maxOutputFileSize()), str(self.group.outputSpecId())
        return {"target-file-size-bytes": size_bytes, "distribution-mode": "none", "output-spec-id": spec_id}

    def _write(self, rows: DataFrame, columns: Sequence[str], name: str) -> Mapping[str, Any]:
        """Write rows, and add up their hashes as they are written."""
        from pyspark.sql import Observation

        seen = Observation()
        hashed = rows.selectExpr(*columns, *([identifier(_CHOSEN)] if self.keys else []), f"{self.hash} AS {identifier(_HASH)}")
        sums = [*summed(_HASH, "all"), *(summed(_HASH, "chosen", identifier(_CHOSEN)) if self.keys else [])]
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

    def _newest(self, stack: contextlib.ExitStack, key: _Key) -> DataFrame:
        """The newest delete of each key, once it is known to be small enough to broadcast."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        tasks = max(1, self.cluster.tasks // self.at_once)
        # Groups next to each other keep the cores busy: one task each, and no shuffle.
        deletes = self._deletes(stack, key, **({"split-size": str(2**50)} if tasks == 1 else {}))
        gathered = deletes.coalesce(1) if tasks == 1 else deletes.repartition(tasks, *key.names)
        newest = gathered.groupBy(*key.names).agg(F.max(_SEQUENCE).alias(_DELETED))
        newest = newest.withColumn(_HASH, F.expr(_hash_sql([identifier(name) for name in key.names]))).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(newest.unpersist)
        texts = [f"coalesce(sum(octet_length(CAST({identifier(name)} AS string))), 0L)" for name in key.names]
        row = newest.selectExpr("count(*) AS keys", f"{' + '.join(texts)} AS text").collect()[0]
        broadcast_bytes = int(row["keys"]) * _ROW_BYTES + int(row["text"])
        heap = min(self.cluster.heap_bytes, int(self.spark._jvm.java.lang.Runtime.getRuntime().maxMemory()))  # type: ignore[union-attr]
        if broadcast_bytes * self.at_once > _BROADCAST_SHARE * heap or broadcast_bytes > _BROADCAST_MOST:
            raise MustConvert(f"the distinct keys of a group's equality deletes take {size(broadcast_bytes)}")
        if key is self.keys[0] and int(row["keys"]) < UNSEEN * SAMPLED_KEYS:
            # A sample of so few would show little, and might be empty.
            self.one_in = 1
        return newest

    def _live(self, rows: DataFrame, newest: Sequence[DataFrame]) -> DataFrame:
        """The rows without those that the deletes delete; the chosen files' rows are marked."""
        from pyspark.sql import functions as F

        if not self.keys:
            return rows
        chosen = [str(task.file().location()) for task in elements(self.chosen)]
        live = self._placed(self._numbered(rows), self.tasks, F.col("path").isin(chosen).alias(_CHOSEN))
        for key, deletes in zip(self.keys, newest, strict=True):
            live = live.join(deletes.hint("broadcast"), F.expr(key.matches()), "left_anti")
        return live

    # --- Check the new files

    def _checked(self, written: Mapping[str, Any], before: Fingerprint) -> CheckedRows:
        """Compare the new files, read back, with what was to be written and with the two samples of the old files."""
        planned = Fingerprint.of_sums(written, "all")
        after = sample = Fingerprint()
        # No file is written if no row lives.
        if int(self.group.addedFiles().size()):
            with self.staging.reading(self.java.ofNew(self.group.addedFiles())) as rows:
                hashed = rows.selectExpr(f"{self.hash} AS h", f"{self.sample} AS sampled")
                sums = _collected(hashed, *summed("h", "all"), *summed("h", "sample", "sampled"))
            after, sample = Fingerprint.of_sums(sums, "all"), Fingerprint.of_sums(sums, "sample")
        if after != planned or after.row_count != int(self.java.records(self.group.addedFiles())):
            raise _differ(f"the new files hold {after}, but {planned} were to be written")
        if not self.keys:
            by_reader = after.row_count if self.read_deletes else 0
            return CheckedRows(after, read=after.row_count, resolved=self.read_deletes, by_reader=by_reader)
        if before != sample:
            raise _differ(f"for one key in {self.one_in}, the old files hold {before}, but the new files hold {sample}")
        files, stock = int(self.chosen.size()), Fingerprint()
        if files:
            with self.staging.reading(self.chosen) as rows:
                stock = Fingerprint.of_sums(_collected(rows.selectExpr(f"{self.hash} AS h"), *summed("h", "all")), "all")
            if stock != (ours := Fingerprint.of_sums(written, "chosen")):
                raise _differ(f"from {count(files, 'old file')}, Iceberg's own reader reads {stock}, but this rewrite wrote {ours}")
        read = after.row_count + before.row_count + stock.row_count
        records = sum(key.records for key in self.keys)
        return CheckedRows(
            after, sampled=before.row_count, files=files, of_files=stock.row_count, read=read, resolved=records, one_in=self.one_in
        )

    def _sample_before(self, rows: DataFrame) -> tuple[Fingerprint, float]:
        """The live rows of the sampled keys, by a plain anti-join on the keys themselves, and roughly what share of the group's rows is live."""
        from pyspark.sql import functions as F

        with contextlib.ExitStack() as stack:
            live = self._placed(self._numbered(rows.where(self.sample).select("*", F.expr(self.hash).alias(_HASH))), self.tasks)
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
            left = Fingerprint.of_sums(_collected(live, *summed(_HASH, "all")), "all")
            return left, min(1.0, max(left.row_count, 1) * self.one_in / max(int(self.java.records(self.tasks)), 1))


def _hash_sql(key: Sequence[str]) -> str:
    """SQL for the 64-bit hash of a key by which rows find their deletes."""
    return f"xxhash64({', '.join(key)})"


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


def _collected(frame: DataFrame, *sums: Column) -> Mapping[str, Any]:
    return frame.agg(*sums).collect()[0].asDict()


def _differ(what: str) -> RowsDiffer:
    return RowsDiffer(
        f"The check before the commit failed, so these files were not committed: {what}. This is a bug in icekit; please report it. "
        "`icekit convert` and a compaction after it do the same work in another way."
    )
