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

from icekit.compact.model import Action, KeySample
from icekit.compact.position_deletes import PositionDeletes
from icekit.engine.bridge import elements, encryption_of, iceberg_version, lent, make_active, metadata_of
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.compat import inheriting, reads_dropped_keys
from icekit.engine.errors import kind_of
from icekit.engine.interrupting import POLL_SECONDS, Stop, Stopped
from icekit.engine.planner import plan_rewrite_at
from icekit.engine.staging import Staging
from icekit.errors import ConversionRefused, DeletesUnmatched, IcekitError, ReadersDisagree
from icekit.facts.metadata import schema_of, specs
from icekit.prove.checked import CHECKED_TAG, SAMPLED_FILES, SAMPLED_KEYS, UNSEEN, CheckedRows, RowsDiffer
from icekit.prove.fingerprint import LINEAGE, Fingerprint, exact_case, row_hash, summed, summed_up
from icekit.prove.readers import most_records
from icekit.resolve.applies import MOST_FILES, by_ruled_out, disagreement, order_sql, scan_of, unless_ruled_out
from icekit.resolve.join import BROADCAST_KEYS, KeyColumn, key_sql, keys_of, path_to, same_value, sampled
from icekit.resolve.join import tasks as tasks_for
from icekit.sql import identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


class NotHere(Exception):
    """Only Iceberg's own action can do this rewrite; says why."""


class ConvertFirst(IcekitError):
    """A rewrite that no reader has the memory for, or can make, before its equality deletes are position deletes."""


# Errors that end a rewrite once the groups at work have finished, also where other groups may be committed.
_ALWAYS_RAISED = (ReadersDisagree, RowsDiffer, DeletesUnmatched, Stopped)
# The share of an executor's heap, and of the driver's, that the broadcast keys of all groups at work may take, and the most that is broadcast
# at once: Spark's driver refuses results of 1 GiB (spark.driver.maxResultSize).
_BROADCAST_SHARE, _BROADCAST_MOST = 0.15, 512 * 2**20
# What Spark's table of long keys takes for a row, in addition to its text: hash, address, sequence number, offsets. And for a row of two hashes alone.
_ROW_BYTES, _HASHED_BYTES = 88, 83
# If Iceberg's own reader takes in at most this many delete records for the files of a small group, added up over the files, it applies them
# faster (in about 1 s of CPU) than the queries of a join start.
_FEW_APPLIED = 1_000_000
_OBSERVED_SECONDS = 120
# Groups without equality deletes of which some whole files are read twice: each group takes a query of its own.
_COMPARED_GROUPS = 8
# A sample of keys before a rewrite: groups, delete records; and of each group the most files and delete records that are read for a plan.
_DRAWN_GROUPS, _DRAWN_KEYS, _DRAWN_FILES, _DRAWN_RECORDS = 3, 10_000, 1_000, 500_000
# A split may grow to this multiple of its size, where most of its rows are deleted.
_MOST_GROWTH = 32
_FILE, _LISTED, _KNOWN, _ORDER, _CHOSEN, _HASH, _DELETED, _SAMPLED, _SALTED, _ROW = (
    f"icekit {name}" for name in ("file", "listed", "known", "order", "chosen", "hash", "deleted", "sampled", "salted", "row")
)


@dataclass(frozen=True, slots=True)
class _Key:
    """The equality deletes of one key in a group, whose files are of one partition: Java's list of the delete files, and the key's columns."""

    number: int
    files: Any
    columns: tuple[KeyColumn, ...]
    records: int

    @property
    def ruled_out(self) -> str:
        """The column with the deletes that a row's file is ruled out for."""
        return f"ruled_out_{self.number}"

    @property
    def sampled(self) -> str:
        """The column with the identity of a row in the sample of this key."""
        return f"{_SAMPLED} {self.number}"

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

    def matches(self, salt: int | None = None, narrow: Callable[[str, str, str], str] | None = None) -> str:
        """SQL for whether a delete deletes a row; written so that Spark looks up the hash and only filters on the rest.

        With a ``salt``, the deletes have a second hash in place of their keys. ``narrow`` is a function of :mod:`icekit.resolve.applies`.
        """
        same = [
            same_value(value, identifier(name), required=column.required)
            for column, value, name in zip(self.columns, self.values, self.names, strict=True)
        ]
        if salt is not None:
            # Not as an equality: with two of them, Spark makes no table of long keys.
            same = [f"coalesce({self.hash(self.values, salt)} = {identifier(_SALTED)}, false)"]
        newer = " AND ".join([f"{identifier(_DELETED)} > {identifier(_ORDER)}", *same])
        if narrow is not None:
            newer = narrow(newer, identifier(_DELETED), self.ruled_out)
        return f"{self.hash(self.values)} = {identifier(_HASH)} AND {newer}"


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest delete of each key, hinted for a join with rows: with its key, or else with two hashes of it."""

    key: _Key
    deletes: DataFrame
    is_hashed: bool = False


@dataclass(frozen=True, slots=True)
class _Sample:
    """The rows with one in ``one_in`` of the keys of a key set: how many there are, and the fingerprint of those that live."""

    one_in: int
    rows: int
    live: Fingerprint


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
        self.deletes = PositionDeletes(self.staging, self.snapshot_id)
        #: What sorts the rows, if they are sorted, and the id of their order; 0 for an order that is none of the table's.
        self.runner: Any = None
        self.order_id = 0

    def run(self) -> list[Exception]:
        """Rewrite, check and commit every group; returns the errors of groups that failed.

        With partial progress the other groups are committed, as Iceberg's own action does; without it, nothing is committed and the first
        error is raised. A conflict, a commit's error, :class:`RowsDiffer` and :class:`~icekit.errors.ReadersDisagree` are always
        raised, once the groups at work have finished. Nothing begins and nothing is committed after a request to stop. Raises
        :class:`NotHere` and :class:`ConvertFirst` before anything is written.
        """
        action, options = self.action, self.action.options
        if self._snapshot is None:
            return []
        plan = plan_rewrite_at(self.spark, action.sql_name, self.table, self._snapshot, options, where=action.where)
        groups = list(elements(plan.groups()))
        if not groups:
            return []
        keys = self._keys_of(groups)
        is_partial = options.get("partial-progress.enabled") == "true"
        at_once = min(int(options.get("max-concurrent-file-group-rewrites", "5")), self.cluster.tasks, len(groups))
        # The first commit after an upgrade gives all rows ids, so that other files that were read without would be a conflict.
        gets_ids = int(self.metadata["format-version"]) >= 3 and self._snapshot.firstRowId() is None
        commits = min(int(options.get("partial-progress.max-commits", "10")), len(groups)) if is_partial and not gets_ids else 1
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
            if self.check:
                for work in random.sample(works, min(_COMPARED_GROUPS, len(works))):
                    work.compare_files()
            futures = {pool.submit(self._in_session(work.run)): work.group for work in works}
            for future in as_completed(futures):
                try:
                    ready.append((futures[future], future.result()))
                except CancelledError:
                    continue
                except Exception as error:
                    always = isinstance(error, _ALWAYS_RAISED) or kind_of(error) in {"conflict", "refused"}
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

    def drawn(self, most_bytes: int) -> KeySample | None:
        """How many rows a sample of delete keys deletes in a few groups of medium size, in files of ``most_bytes``; None if no group is small enough."""
        if self._snapshot is None:
            return None
        plan = plan_rewrite_at(self.spark, self.action.sql_name, self.table, self._snapshot, self.action.options, where=self.action.where)
        groups = sorted(elements(plan.groups()), key=lambda group: int(group.inputFilesSizeInBytes()))
        first = max(0, (len(groups) - _DRAWN_GROUPS) // 2)
        found: list[tuple[Any, list[_Key]]] = []
        for group in groups[first : first + _DRAWN_GROUPS]:
            with contextlib.suppress(NotHere, ConvertFirst):
                keys = self._keys(group)
                files = sum(int(key.files.size()) for key in keys)
                if keys and files <= _DRAWN_FILES and sum(key.records for key in keys) <= _DRAWN_RECORDS:
                    found.append((group, keys))
        records = sum(max(key.records for key in keys) for _, keys in found)
        one_in = max(1, -(-records // _DRAWN_KEYS))
        make_active(self.spark)
        with lent(self.spark, self._settings()):
            drawn = [_Group(self, group, (), 1).drawn(keys, one_in, most_bytes // len(found)) for group, keys in found]
        rows = sum(rows for rows, _ in drawn)
        return KeySample(records // one_in, sum(deleted for _, deleted in drawn), rows) if rows else None

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

        wrapped: Any = inheriting(self.spark, run)  # type: ignore[arg-type]
        return wrapped  # type: ignore[no-any-return]

    def _keys_of(self, groups: Sequence[Any]) -> list[list[_Key]]:
        """The keys of each group; raises if Iceberg's own action must do the rewrite, or if that cannot either."""
        found: list[list[_Key]] = []
        refusals: list[NotHere | ConvertFirst] = []
        for group in groups:
            try:
                found.append(self._keys(group))
            except (NotHere, ConvertFirst) as refusal:
                refusals.append(refusal)
        if not refusals:
            return found
        most = most_records(self.cluster)
        first = next((each for each in refusals if isinstance(each, ConvertFirst)), refusals[0])
        # A conversion is refused where a column of a spec was dropped.
        can_convert = isinstance(first, NotHere) and not any(spec.dropped for spec in specs(self.metadata))
        if can_convert and any(int(self.staging.java.applied(group.fileScanTasks(), most)) < 0 for group in groups):
            raise ConvertFirst(_CONVERT_FIRST.format(f"{first}, and a data file has more deletes than fit in memory"))
        raise first

    def _keys(self, group: Any) -> list[_Key]:
        """The keys of a group's equality deletes.

        Raises :class:`NotHere` for deletes that only Iceberg's reader can apply, and :class:`ConvertFirst` where it cannot either.
        """
        java, tasks = self.staging.java, group.fileScanTasks()
        fields = schema_of(self.metadata)["fields"]
        dropped = {spec.spec_id for spec in specs(self.metadata) if spec.dropped}
        if dropped and not dropped.isdisjoint(int(task.file().specId()) for task in elements(tasks)):
            raise NotHere("a column of their partition spec was dropped, so that they cannot be converted first either")
        found: list[_Key] = []
        for entry in elements(java.deletes(tasks).entrySet()):
            ids, files = sorted(json.loads(str(entry.getKey()))), entry.getValue()
            try:
                keys = keys_of(self.metadata, ids)
            except ConversionRefused as refused:
                raise NotHere(str(refused)) from None
            if not all(path_to(fields, i) for i in ids):
                is_readable = reads_dropped_keys(iceberg_version(self.spark, self.action.catalog))
                raise self._left_to_reader(tasks, "the column of their key was dropped", is_readable=is_readable)
            found.append(_Key(len(found), files, tuple(keys.columns[i] for i in ids), int(java.records(files))))
        if not java.areOf(tasks, int(group.outputSpecId())):
            # Spark would sort rows into the new partitions, and sample them for it: they would be counted twice as they are read.
            raise self._left_to_reader(tasks, "their data files move to another partition spec")
        if found and int(java.paths(tasks)) < int(tasks.size()):
            raise NotHere("a data file is in the table twice")
        return found

    def _left_to_reader(self, tasks: Any, why: str, *, is_readable: bool = True) -> Exception:
        """The error for deletes that are left to Iceberg's own reader; another one if it cannot read them, or has no memory for them."""
        if is_readable and int(self.staging.java.applied(tasks, most_records(self.cluster))) >= 0:
            return NotHere(why)
        return ConvertFirst(_CONVERT_FIRST.format(why))


_CONVERT_FIRST = (
    "A compaction cannot apply these equality deletes: {}. Run `icekit convert` on the table first; it turns them into position deletes. "
    "Nothing was changed."
)


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
        # Whether keys were too many to broadcast.
        self.is_shuffled = False
        # Counts the rows as they are read.
        self.seen: Observation | None = None
        # From format version 3 on, Spark finds no metadata column in the relation of a rewrite.
        self.is_numbered = int(rewrite.metadata["format-version"]) < 3
        most = most_records(self.cluster)
        # A larger group is split by how many of its rows live, which only the sample of a join tells.
        is_small = int(group.inputFilesSizeInBytes()) <= int(group.inputSplitSize())
        are_few = bool(keys) and is_small and 0 <= int(self.java.applied(self.tasks, most)) <= _FEW_APPLIED
        self.keys, self.read_deletes = ((), sum(key.records for key in keys)) if are_few else (keys, 0)
        # Whole files that are read twice; all of a group to which Iceberg's reader applies equality deletes.
        self.chosen = self.tasks if are_few and rewrite.check else self._some(SAMPLED_FILES if self.keys and rewrite.check else 0)
        # By the column of a key: for each task the deletes that Iceberg's scan leaves out.
        found = {key.ruled_out: scan_of(self.spark, rewrite.table).ofTasks(self.tasks, key.files) for key in self.keys}
        self.ruled_out = {column: lists for column, lists in found.items() if lists is not None}

    def _some(self, files: int) -> Any:
        return self.java.some(self.tasks, files, most_records(self.cluster), self.rewrite.salt)

    def compare_files(self) -> None:
        """Read some whole files twice, also in a group without equality deletes."""
        if not int(self.chosen.size()):
            self.chosen = self._some(SAMPLED_FILES)

    def _sample(self, key: _Key, one_in: int) -> str:
        """SQL for whether a row, or a delete, has one of the sampled keys."""
        return sampled(key.values, self.rewrite.salt, one_in)

    def run(self) -> CheckedRows:
        """Write the group's new files and check them; raises if they are not right, after removing them."""
        name = str(uuid.uuid4())
        self.rewrite.stop.check()
        self.rewrite.deletes.check_listed(self.tasks)
        try:
            with contextlib.ExitStack() as stack:
                self.java.stage(self.java.plain(self.tasks, self.is_numbered) if self.keys else self.tasks, name)
                stack.callback(self.java.clear, name)
                # The same rows, to find their columns: how they are split follows from how many of them live.
                first = self.staging.frame(name, {})
                self.hash = self._hash(first)
                columns = [identifier(column) for column in first.columns]
                newest = [deletes for key in self.keys for deletes in self._newest(stack, key)]
                samples = {key: self._sampled(first, key) for key in self.keys} if self.rewrite.check else {}
                share = min((sample.live.row_count / sample.rows for sample in samples.values() if sample.rows), default=1.0)
                share = max(share, 1 / _MOST_GROWTH)
                files = max(1, math.ceil(int(self.group.expectedOutputFiles()) * share))
                # Rows that are shuffled are not written split by split.
                growth = 1 if self.rewrite.runner is not None or self.is_shuffled else 1 / share
                frame = self.staging.frame(name, {"split-size": str(int(self.group.inputSplitSize() * growth))})
                rows = self._live(frame, newest, files)
                # A sort is a second query with a broadcast of its own.
                needed = self.broadcast_bytes * (1 if self.rewrite.runner is None else 2)
                with self.rewrite.memory.holding(needed, self.rewrite.stop), disagreement(lambda: self._disagreeing(first, newest)):
                    self.rewrite.stop.check()
                    # A sort reads the rows twice, so that they cannot be counted on their way into it.
                    unsorted = self._fingerprint(rows) if self.rewrite.check and self.rewrite.runner is not None else None
                    planned = self._write(rows, columns, name, files, samples)
            checked = self._checked(planned, samples, unsorted) if self.rewrite.check else CheckedRows()
            self.rewrite.deletes.check_deleted(self.tasks, self._rows_read(), is_observed=bool(self.keys))
            return checked
        except Exception:
            self.rewrite.take_back(self.group)
            raise

    def _rows_read(self) -> int | None:
        """The rows of the old files without those that are deleted by position; None if that is unknown."""
        if self.keys:
            return int(_observed(self.seen)["rows"]) if self.seen else None
        return None if self.read_deletes else int(self.java.records(self.group.addedFiles()))

    def _path(self, file: str) -> str:
        """The path of a data file by what its rows are marked with: its number, or its path."""
        return str(self.tasks.get(int(file)).file().location()) if self.is_numbered else file

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

    def _write(self, rows: DataFrame, columns: Sequence[str], name: str, files: int, samples: Mapping[_Key, _Sample]) -> Mapping[str, Any]:
        """Write rows, sorted into so many files if they are sorted, and add up their hashes as they are written, unless nothing is checked."""
        from pyspark.sql import Observation

        check, runner = self.rewrite.check, self.rewrite.runner
        of_deletes: list[str] = []
        if _CHOSEN in rows.columns and check:
            of_deletes = [identifier(_CHOSEN)]
        for key, sample in samples.items():
            identity = self._identity(sample.one_in)
            of_deletes.append(f"if({self._sample(key, sample.one_in)}, {identity}, NULL) AS {identifier(key.sampled)}")
        rows = rows.selectExpr(*columns, *of_deletes)
        if runner is not None:
            rows = self.staging.sorted(rows, runner, self.group, files)
        if not check:
            self.group.setOutputFiles(self.staging.write(rows, name, self._options()))
            return {}
        seen = Observation()
        sums = summed(_HASH, "all")
        if of_deletes:
            sums += summed(_HASH, "chosen", identifier(_CHOSEN))
        for key in samples:
            sums += summed(key.sampled, key.sampled, f"{identifier(key.sampled)} IS NOT NULL")
        # After the sort: Spark reads all rows before it, too, to find ranges.
        hashed = rows.selectExpr("*", f"{self.hash} AS {identifier(_HASH)}")
        self.group.setOutputFiles(self.staging.write(hashed.observe(seen, *sums).selectExpr(*columns), name, self._options()))
        return _observed(seen)

    # --- Resolve the equality deletes

    def _numbered(self, rows: DataFrame) -> DataFrame:
        """Rows with the number of their file, or its path."""
        from pyspark.sql import functions as F

        return rows.select("*", (F.col("_spec_id") if self.is_numbered else F.input_file_name()).alias(_FILE))

    def _placed(self, rows: DataFrame, listed: DataFrame, order: str, *more: Column | str) -> DataFrame:
        """Numbered rows with the order of their file (:func:`icekit.resolve.applies.order_of`), which is SQL."""
        from pyspark.sql import functions as F

        listed = listed.select(F.col("file" if self.is_numbered else "path").alias(_LISTED), F.expr(order).alias(_KNOWN), *more)
        # No delete would apply to a row whose file is not listed.
        number = f"coalesce({identifier(_KNOWN)}, raise_error(concat('icekit: not a file of this rewrite: ', {identifier(_FILE)})))"
        joined = rows.join(listed.hint("broadcast"), F.col(_FILE) == F.col(_LISTED), "left")
        return joined.withColumn(_ORDER, F.expr(number)).drop(_LISTED, _KNOWN)

    def _deletes(self, stack: contextlib.ExitStack, key: _Key, where: str = "true", **options: str) -> DataFrame:
        """The deleted keys, each with the order of its delete file."""
        rows = stack.enter_context(self.staging.reading(self.java.asData(key.files), options))
        keys = [f"{value} AS {identifier(name)}" for value, name in zip(key.values, key.names, strict=True)]
        placed = self._placed(self._numbered(rows.where(where)), self.staging.files(key.files), order_sql("sequence", "file"))
        return placed.selectExpr(*keys, identifier(_ORDER))

    def _newest(self, stack: contextlib.ExitStack, key: _Key) -> list[_Newest]:
        """The newest delete of each key, in parts that Spark can broadcast, or in one that it shuffles."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        tasks = max(1, self.cluster.tasks // self.at_once)
        # Groups next to each other keep the cores busy: one task each, and no shuffle.
        deletes = self._deletes(stack, key, **({"split-size": str(2**50)} if tasks == 1 else {}))
        gathered = deletes.coalesce(1) if tasks == 1 else deletes.repartition(tasks, *key.names)
        newest = gathered.groupBy(*key.names).agg(F.max(_ORDER).alias(_DELETED))
        newest = newest.withColumn(_HASH, F.expr(key.hash([identifier(name) for name in key.names]))).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(newest.unpersist)
        texts = [f"coalesce(sum(octet_length(CAST({identifier(name)} AS string))), 0L)" for name in key.names]
        row = newest.selectExpr("count(*) AS keys", f"{' + '.join(texts)} AS text").collect()[0]
        keys = int(row["keys"])
        most = self.rewrite.memory.size_bytes
        exact, hashed = keys * _ROW_BYTES + int(row["text"]), keys * _HASHED_BYTES
        by_hash = self.broadcast_bytes + exact > most and key.can_be_hashed
        needed = hashed if by_hash else exact
        if self.broadcast_bytes + needed > most:
            # As a conversion does: Spark's own shuffle, which spills.
            self.is_shuffled = True
            partitions = max(tasks_for(keys), self.cluster.tasks)
            return [_Newest(key, newest.repartition(partitions, _HASH).hint("shuffle_hash"))]
        self.broadcast_bytes += needed
        if by_hash:
            self.hashed += keys
            salted = key.hash([identifier(name) for name in key.names], self.rewrite.salt)
            newest = newest.selectExpr(identifier(_HASH), f"{salted} AS {identifier(_SALTED)}", identifier(_DELETED))
        parts = max(1, -(-needed // _BROADCAST_MOST))
        some = [newest] if parts == 1 else [newest.where(f"pmod({identifier(_HASH)}, {parts}) = {part}") for part in range(parts)]
        return [_Newest(key, part.hint("broadcast"), by_hash) for part in some]

    def _live(self, rows: DataFrame, newest: Sequence[_Newest], files: int) -> DataFrame:
        """The rows without those that the deletes delete; the chosen files' rows are marked. Shuffled rows are for so many files."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        chosen = [str(task.file().location()) for task in elements(self.chosen)]
        if not self.keys:
            return rows.withColumn(_CHOSEN, F.input_file_name().isin(chosen)) if chosen else rows
        if self.rewrite.check and self.rewrite.runner is None:
            self.seen = Observation()
        listed = self.staging.files(self.tasks, **self.ruled_out)
        numbered = self._numbered(rows)
        if self.seen is not None:
            numbered = numbered.observe(self.seen, F.count(F.lit(1)).alias("rows"))
        # A shuffle does not move the words; see _without.
        words = [] if self.is_shuffled else self.ruled_out
        live = self._placed(numbered, listed, order_sql("sequence"), F.col("path").isin(chosen).alias(_CHOSEN), *words)
        if self.is_shuffled:
            live = live.withColumn(_ROW, F.monotonically_increasing_id())
        for one in newest:
            live = self._without(live, one, listed)
        if self.is_shuffled and self.rewrite.runner is None:
            # The files keep the order of their rows.
            live = live.repartitionByRange(files, _ROW).sortWithinPartitions(_ROW)
        return live

    def _without(self, live: DataFrame, one: _Newest, listed: DataFrame) -> DataFrame:
        """The rows without those that some deletes delete."""
        from pyspark.sql import functions as F

        salt, column = self.rewrite.salt if one.is_hashed else None, one.key.ruled_out
        if column not in self.ruled_out or not self.is_shuffled:
            found = one.key.matches(salt, unless_ruled_out if column in self.ruled_out else None)
            return live.join(one.deletes, F.expr(found), "left_anti")
        # A delete of each key, so that no row is doubled.
        matched = live.join(one.deletes, F.expr(one.key.matches(salt)), "left")
        words = listed.select(F.col("file" if self.is_numbered else "path").alias(_LISTED), column)
        placed = matched.join(words.hint("broadcast"), F.col(_FILE) == F.col(_LISTED), "left")
        is_deleted = unless_ruled_out(f"{identifier(_DELETED)} IS NOT NULL", identifier(_DELETED), column)
        return placed.where(f"NOT {is_deleted}").drop(*one.deletes.columns, _LISTED, column)

    def _disagreeing(self, rows: DataFrame, newest: Sequence[_Newest]) -> list[str]:
        """Some data files that have rows which only the specification deletes."""
        from pyspark.sql import functions as F

        listed = self.staging.files(self.tasks, **self.ruled_out)
        placed = self._placed(self._numbered(rows), listed, order_sql("sequence"), *self.ruled_out)
        files: set[str] = set()
        for one in newest:
            if one.key.ruled_out in self.ruled_out:
                found = one.key.matches(self.rewrite.salt if one.is_hashed else None, by_ruled_out)
                some = placed.join(one.deletes, F.expr(found), "left_semi").select(_FILE).distinct().limit(MOST_FILES)
                files |= {self._path(str(row[0])) for row in some.collect()}
        return sorted(files)

    # --- Check the new files

    def _checked(self, written: Mapping[str, Any], samples: Mapping[_Key, _Sample], unsorted: Fingerprint | None) -> CheckedRows:
        """Compare the new files, read back, with what was to be written and with the samples of the old files."""
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
        for key, sample in samples.items():
            if sample.live != (ours := Fingerprint.of_sums(written, key.sampled)):
                raise _differ(f"for one key in {sample.one_in}, the old files hold {sample.live}, but this rewrite wrote {ours}")
        files, stock = int(self.chosen.size()), Fingerprint()
        if files:
            with self.staging.reading(self.chosen) as rows:
                stock = self._fingerprint(rows)
            if stock != (ours := Fingerprint.of_sums(written, "chosen")):
                raise _differ(f"from {count(files, 'old file')}, Iceberg's own reader reads {stock}, but this rewrite wrote {ours}")
        sampled_rows = sum(sample.rows for sample in samples.values())
        return CheckedRows(
            after,
            sampled=sampled_rows,
            files=files,
            of_files=stock.row_count,
            read=after.row_count + (unsorted.row_count if unsorted else 0) + sampled_rows + stock.row_count,
            resolved=self.read_deletes + sum(key.records for key in self.keys),
            one_in=max((sample.one_in for sample in samples.values()), default=0),
            by_reader=after.row_count if self.read_deletes else 0,
            hashed=self.hashed,
        )

    def _fingerprint(self, rows: DataFrame) -> Fingerprint:
        return summed_up(rows, self.hash)

    def _identity(self, one_in: int) -> str:
        """SQL for the hash that identifies a sampled row: its keys and its file, and all columns where nothing else compares them well.

        That is so if Iceberg's own reader reads no file with deletes, and if the sample is to stand for all rows.
        """
        fields = dict.fromkeys(
            (identifier(*c.names), value) for each in self.keys for c, value in zip(each.columns, each.values, strict=True)
        )
        is_compared = int(self.java.applied(self.chosen, 2**62)) > 0 and one_in > 1
        values = [f"isnull({field}), {value}" for field, value in fields]
        more = [] if is_compared else [self.hash]
        return f"xxhash64({', '.join([*values, identifier(_ORDER), identifier(_FILE), *more])})"

    def _sampled(self, rows: DataFrame, key: _Key) -> _Sample:
        """The rows of one key in :data:`SAMPLED_KEYS`, or of every key if the sample has too few keys to show something."""
        if key.records >= UNSEEN * SAMPLED_KEYS:
            sample, keys = self._looked_up(rows, key, SAMPLED_KEYS)
            if keys >= UNSEEN:
                return sample
        return self._looked_up(rows, key, 1)[0]

    def drawn(self, keys: Sequence[_Key], one_in: int, most_bytes: int) -> tuple[int, int]:
        """The rows with one in ``one_in`` keys, and how many of them are deleted; of some files, or none, if all have too many bytes."""
        most = min(_DRAWN_FILES, int(self.tasks.size()) * most_bytes // max(1, int(self.group.inputFilesSizeInBytes())))
        if not most:
            return 0, 0
        if most < int(self.tasks.size()):
            util: Any = self.spark._jvm.java.util  # type: ignore[union-attr]
            shuffled = util.ArrayList(self.tasks)
            util.Collections.shuffle(shuffled, util.Random(self.rewrite.salt))
            self.tasks = shuffled.subList(0, most)
        self.keys, key = tuple(keys), max(keys, key=lambda one: one.records)
        with self.staging.reading(self.java.plain(self.tasks, self.is_numbered)) as rows, contextlib.ExitStack() as stack:
            self.hash = self._hash(rows)
            found = self._marked(stack, rows, key, one_in).selectExpr("count(*)", f"count_if({identifier(_DELETED)})").collect()[0]
        return int(found[0]), int(found[1])

    def _looked_up(self, rows: DataFrame, key: _Key, one_in: int) -> tuple[_Sample, int]:
        """Look up the rows of some keys in all deletes, by a plain join on the keys themselves; also about how many keys the rows have."""
        from pyspark.sql import functions as F

        with contextlib.ExitStack() as stack:
            sums = self._marked(stack, rows, key, one_in).agg(
                F.count("*").alias("rows"),
                F.approx_count_distinct(_SAMPLED).alias("keys"),
                *summed(_HASH, "live", f"NOT {identifier(_DELETED)}"),
            )
            found = sums.collect()[0].asDict()
        return _Sample(one_in, int(found["rows"]), Fingerprint.of_sums(found, "live")), int(found["keys"])

    def _marked(self, stack: contextlib.ExitStack, rows: DataFrame, key: _Key, one_in: int) -> DataFrame:
        """The rows with some keys, each with its identity and whether a delete of any key deletes it."""
        from pyspark.sql import functions as F

        where = self._sample(key, one_in)
        placed = self._placed(self._numbered(rows.where(where)), self.staging.files(self.tasks), order_sql("sequence"))
        live = placed.selectExpr(
            "*", f"{self._identity(one_in)} AS {identifier(_HASH)}", f"{key.hash(key.values)} AS {identifier(_SAMPLED)}"
        )
        dead = F.lit(False)
        for each in self.keys:
            is_sampled = each.values == key.values
            newest = f"{_DELETED} {each.number}"
            deletes = self._deletes(stack, each, where if is_sampled else "true").groupBy(*each.names).agg(F.max(_ORDER).alias(newest))
            equal = F.col(newest) > F.col(_ORDER)
            for value, name in zip(each.values, each.names, strict=True):
                equal = F.expr(value).eqNullSafe(F.col(name)) & equal
            few = each.records // (one_in if is_sampled else 1) <= BROADCAST_KEYS
            live = live.join(deletes.hint("broadcast" if few else "merge"), equal, "left").drop(*each.names)
            dead = dead | F.col(newest).isNotNull()
        return live.withColumn(_DELETED, dead)


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
