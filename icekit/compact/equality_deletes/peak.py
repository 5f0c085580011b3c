"""Add up what an executor holds at its peak: Spark, data files, delete sets, and the cache of delete files."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from icekit.compact.equality_deletes.heap import RecordHeap
from icekit.compact.equality_deletes.keys import Key
from icekit.engine.cluster import Executor
from icekit.facts.measures import Applied, equality_deletes_applied
from icekit.facts.model import FileGroup, Kind, TableFacts, Totals

MIB = 2**20
#: What Spark, Iceberg and a table's plan hold apart from any task (also Spark's own reserved memory).
BASE_BYTES = 300 * MIB
#: Parquet reads a row group of a data file at once, and a writer holds one until it is full.
ROW_GROUP_SETTING = "write.parquet.row-group-size-bytes"
ROW_GROUP_BYTES = 128 * MIB
#: Threads of an executor that read delete files side by side, for each core (``ThreadPools``).
DELETE_READERS_PER_CORE = 4
#: Scans split files into pieces no smaller (``read.split.adaptive-size``, its least).
MIN_SPLIT_BYTES = 16 * MIB
#: The executor cache (``spark.sql.iceberg.executor-cache.max-total-size``) and what it takes the
#: values of a type for (``TypeUtil.estimateSize``).
CACHE_BYTES = 128 * MIB
_ESTIMATES = {"string": 128, "binary": 80, "uuid": 16, "int": 4, "date": 4, "float": 4, "boolean": 1}
_ESTIMATE = 8


@dataclass(frozen=True, slots=True)
class Task:
    """What a task on one partition holds, and how many such tasks there can be.

    ``set_bytes`` is the delete set at its peak, ``list_bytes`` the lists in it, and
    ``previous_bytes`` the set of the data file before, which a reader may still hold
    (``BaseReader.next`` opens a file before it lets go of the last; measured: now and then).
    ``reader`` and ``writer`` are row groups of data files; ``delete_files`` those that apply.
    """

    applied: Applied
    count: int
    distinct: int
    set_bytes: int
    previous_bytes: int
    list_bytes: int
    reader: int
    writer: int
    delete_files: Totals


@dataclass(frozen=True, slots=True)
class Cache:
    """The executor cache of delete files, which a stock read uses and a stock rewrite does not.

    It holds lists of delete records, far larger than it takes them for. Where all of them
    find room, tasks share its lists; ``shares`` tells so.
    """

    held_bytes: int
    shares: bool

    @classmethod
    def of(cls, key: Key, record: RecordHeap, records: int) -> Cache:
        """The cache of a table with so many delete records."""
        estimate = sum(_ESTIMATES.get(column.type, _ESTIMATE) for column in key.columns) or 1
        room = CACHE_BYTES // estimate
        # One entry takes no more than half (max-entry-size, 64 MB): below that, each file is cached.
        return cls(round(min(records, room) * record.list_bytes), records <= room // 2)


def peak(tasks: Sequence[Task], executor: Executor, slots: int, cache: Cache | None = None, *, writes: bool = False) -> int:
    """The peak of an executor whose slots are all taken by the tasks that hold most."""

    def held_by(task: Task) -> int:
        shared = task.list_bytes if cache and cache.shares else 0
        return task.set_bytes + task.previous_bytes - shared + task.reader + (task.writer if writes else 0)

    readers = DELETE_READERS_PER_CORE * executor.cores
    reading = max(min(t.delete_files.size_in_bytes, readers * (t.delete_files.max_bytes or 0)) for t in tasks)
    held, left = cache.held_bytes if cache else 0, slots
    for task in heapq.nlargest(slots, tasks, key=held_by):
        taken = min(left, task.count)
        held, left = held + taken * held_by(task), left - taken
        if not left:
            break
    return BASE_BYTES + reading + held


def tasks_of(facts: TableFacts, record: RecordHeap, distinct_share: float) -> list[Task]:
    """The tasks on each partition under equality deletes."""
    row_group = _row_group(facts)
    data = {g.partition: g for g in facts.of_kind(Kind.DATA)}
    deletes = {g.partition: g for g in facts.of_kind(Kind.EQUALITY_DELETES)}
    everywhere = [g for g in deletes.values() if facts.spec(g.partition.spec_id).is_unpartitioned]
    found = []
    for applied in equality_deletes_applied(facts):
        distinct = max(1, round(applied.max_deletes_per_file * distinct_share))
        held = record.peak(applied.max_deletes_per_file, distinct)
        lists = round(applied.max_deletes_per_file * record.list_bytes)
        previous = record.retained(distinct) if applied.data_file_count > 1 else 0
        group = data[applied.partition]
        reader, writer = _buffers(group, row_group)
        own = deletes.get(applied.partition)
        files = Totals.of({g.partition: g for g in (*everywhere, *([own] if own else []))}.values())
        # A large file is read by several tasks, and each has a set of its own.
        count = applied.data_file_count + group.size_in_bytes // MIN_SPLIT_BYTES
        found.append(Task(applied, count, distinct, held, previous, lists, reader, writer, files))
    return found


def _row_group(facts: TableFacts) -> int:
    try:
        return int(facts.setting(ROW_GROUP_SETTING) or ROW_GROUP_BYTES)
    except ValueError:
        return ROW_GROUP_BYTES


def _buffers(group: FileGroup, row_group: int) -> tuple[int, int]:
    """What a task holds of the data file it reads, and of the one it writes."""
    return min(row_group, group.max_bytes), min(row_group, group.size_in_bytes)
