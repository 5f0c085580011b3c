"""Forecast the heap that equality deletes take: of a stock read, and of a stock ``rewrite_data_files``.

Pure: facts in, figures out. Which deletes apply to which data file is worked out from
sequence number, partition and spec; key bounds, which facts do not hold, may rule some out,
so that delete records and loads are upper bounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from icekit.compact.equality_deletes.executor import Executor
from icekit.compact.equality_deletes.heap import WIDE_HEAP_BYTES, RecordHeap
from icekit.compact.equality_deletes.keys import KeyColumn, KeySample, largest_key
from icekit.facts.measures import Applied, equality_deletes_applied
from icekit.facts.model import FileGroup, Kind, Partition, TableFacts, Totals
from icekit.sql import display_name

MIB = 2**20
Verdict = Literal["fits", "tight", "will not fit"]

#: What Spark, Iceberg and a table's plan hold apart from any task (also Spark's own reserved memory).
BASE_BYTES = 300 * MIB
#: Parquet reads a row group of a data file at once, and a writer holds one until it is full
#: (``write.parquet.row-group-size-bytes``, 128 MiB unless set).
ROW_GROUP_SETTING = "write.parquet.row-group-size-bytes"
ROW_GROUP_BYTES = 128 * MIB
#: Threads of an executor that read delete files side by side, for each core (``ThreadPools``).
DELETE_READERS_PER_CORE = 4
#: Scans split files into pieces no smaller (``read.split.adaptive-size``, its least).
MIN_SPLIT_BYTES = 16 * MIB
#: Up to this share of the heap it fits: the old generation is two thirds of it (Parallel and
#: Serial GC), and a set lives too long for the young one.
FITS_SHARE = 0.6
#: Up to this share some garbage collectors manage, at the cost of much collecting.
TIGHT_SHARE = 1.0
#: Partitions that a forecast holds; the others are in its totals.
MAX_PARTITIONS = 100


@dataclass(frozen=True, slots=True)
class PartitionHeap:
    """The forecast for one partition, as if nothing but its data were read.

    ``deletes_per_file`` apply to its worst data file, ``distinct_keys`` of them are
    different. ``set_bytes`` is the peak of one task's delete set, ``read_bytes`` and
    ``rewrite_bytes`` the peak of an executor with ``task_count`` such tasks and all else
    that it holds. ``loads`` are delete records by data files that load them.
    """

    partition: Partition
    path: str
    data_file_count: int
    deletes_per_file: int
    distinct_keys: int
    loads: int
    task_count: int
    set_bytes: int
    read_bytes: int
    rewrite_bytes: int
    verdict: Verdict


@dataclass(frozen=True)
class HeapForecast:
    """What a stock read and a stock rewrite will take of an executor's heap, and whether it fits.

    ``partitions`` are the worst :data:`MAX_PARTITIONS` of ``partition_count`` under equality
    deletes; counts and peaks are of all. ``distinct_basis`` tells whether distinct keys were
    estimated from a sample or are the upper bound, all of them. ``cores_that_fit`` is the
    largest number of cores an executor of this heap may have for both, 0 if none; None where
    it cannot be told, as the length of a key column is only assumed.
    """

    catalog: str
    table: tuple[str, ...]
    snapshot_id: int | None
    executor: Executor
    key: tuple[KeyColumn, ...] = ()
    distinct_basis: Literal["sample", "upper bound"] = "upper bound"
    sample_file_count: int = 0
    list_bytes: float = 0.0
    set_bytes: float = 0.0
    partitions: tuple[PartitionHeap, ...] = ()
    partition_count: int = 0
    data_file_count: int = 0
    delete_file_count: int = 0
    delete_record_count: int = 0
    loads: int = 0
    read_bytes: int = 0
    rewrite_bytes: int = 0
    read_verdict: Verdict = "fits"
    rewrite_verdict: Verdict = "fits"
    cores_that_fit: int | None = None

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return display_name(self.table)

    @property
    def is_empty(self) -> bool:
        """Tell whether no equality delete applies to any data file."""
        return not self.partition_count

    @property
    def verdict(self) -> Verdict:
        """The worse of both: a rewrite takes all that a read takes."""
        return max(self.read_verdict, self.rewrite_verdict, key=_ORDER.index)

    @property
    def worst(self) -> PartitionHeap | None:
        """The partition with the highest peak, and so the worst data file."""
        return self.partitions[0] if self.partitions else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "table": self.name, "verdict": self.verdict}

    def __repr__(self) -> str:
        from icekit.show.forecast import forecast_text

        return forecast_text(self)

    def _repr_html_(self) -> str:
        from icekit.show.forecast import forecast_html

        return forecast_html(self)


_ORDER: tuple[Verdict, ...] = ("fits", "tight", "will not fit")


@dataclass(frozen=True, slots=True)
class _Task:
    """What the tasks on one partition hold: each, and all together for the delete files they read."""

    applied: Applied
    count: int
    distinct: int
    set_bytes: int
    reader: int
    writer: int
    delete_files: Totals

    def heap(self, *, writes: bool) -> int:
        return self.set_bytes + self.reader + (self.writer if writes else 0)


def forecast_heap(facts: TableFacts, executor: Executor, keys: KeySample | None = None) -> HeapForecast:
    """Forecast the peak heap of reading a table's equality deletes with an executor.

    ``keys`` is what :func:`sample_keys` found: without it every delete record counts as a
    key of its own, and text in a key as 40 characters, where nothing is ever said to fit.
    """
    empty = HeapForecast(facts.catalog, facts.table, facts.snapshot_id, executor)
    key = largest_key(facts, keys)
    record = RecordHeap(len(key.columns), key.value_bytes, executor.heap_bytes >= WIDE_HEAP_BYTES)
    share = keys.distinct_share if keys and keys.distinct_share is not None else None
    tasks = _tasks(facts, record, 1.0 if share is None else share)
    if not tasks:
        return empty
    read, rewrite = (_peak(tasks, executor, executor.tasks, writes=writes) for writes in (False, True))
    worst = heapq.nlargest(MAX_PARTITIONS, tasks, key=lambda t: (_peak([t], executor, executor.tasks, writes=True), t.applied.loads))
    deletes = facts.total(Kind.EQUALITY_DELETES)
    return replace(
        empty,
        key=key.columns,
        distinct_basis="upper bound" if share is None else "sample",
        sample_file_count=keys.file_count if keys else 0,
        list_bytes=record.list_bytes,
        set_bytes=record.set_bytes,
        partitions=tuple(_partition(facts, task, executor, known=key.is_known) for task in worst),
        partition_count=len(tasks),
        data_file_count=sum(t.applied.data_file_count for t in tasks),
        delete_file_count=deletes.file_count,
        delete_record_count=deletes.record_count,
        loads=sum(t.applied.loads for t in tasks),
        read_bytes=read,
        rewrite_bytes=rewrite,
        read_verdict=verdict(read, executor.heap_bytes, known=key.is_known),
        rewrite_verdict=verdict(rewrite, executor.heap_bytes, known=key.is_known),
        cores_that_fit=_cores_that_fit(tasks, executor) if key.is_known else None,
    )


def verdict(peak_bytes: int, heap_bytes: int, *, known: bool = True) -> Verdict:
    """Judge a peak by the shares above; what rests on an assumption is tight at best."""
    share = peak_bytes / heap_bytes
    return "will not fit" if share > TIGHT_SHARE else "fits" if share <= FITS_SHARE and known else "tight"


def _tasks(facts: TableFacts, record: RecordHeap, distinct_share: float) -> list[_Task]:
    row_group = _row_group(facts)
    data = {g.partition: g for g in facts.of_kind(Kind.DATA)}
    deletes = {g.partition: g for g in facts.of_kind(Kind.EQUALITY_DELETES)}
    everywhere = [g for g in deletes.values() if facts.spec(g.partition.spec_id).is_unpartitioned]
    by_rows = reads_row_by_row(facts)
    found = []
    for applied in equality_deletes_applied(facts):
        distinct = max(1, round(applied.max_deletes_per_file * distinct_share))
        held = record.peak(applied.max_deletes_per_file, distinct)
        if by_rows and applied.data_file_count > 1:
            held += record.retained(distinct)
        group = data[applied.partition]
        reader, writer = _buffers(group, row_group)
        own = deletes.get(applied.partition)
        files = Totals.of({g.partition: g for g in (*everywhere, *([own] if own else []))}.values())
        # A large file is read by several tasks, and each has a set of its own.
        count = applied.data_file_count + group.size_in_bytes // MIN_SPLIT_BYTES
        found.append(_Task(applied, count, distinct, held, reader, writer, files))
    return found


def reads_row_by_row(facts: TableFacts) -> bool:
    """Tell whether Spark reads rows rather than batches, and so still holds the last file's set while it makes the next.

    ``BaseReader.next`` opens the next file before it lets go of the last. A batch reader
    loads deletes at its first batch, and a row reader as it opens. Nested columns and other
    formats than Parquet are read by rows (``SparkBatch``).
    """
    vectorized = (facts.setting("read.parquet.vectorization.enabled") or "true").lower() == "true"
    parquet = (facts.setting("write.format.default") or "parquet").lower() == "parquet"
    return not vectorized or not parquet or any(len(column.names) > 1 for column in facts.columns)


def _row_group(facts: TableFacts) -> int:
    try:
        return int(facts.setting(ROW_GROUP_SETTING) or ROW_GROUP_BYTES)
    except ValueError:
        return ROW_GROUP_BYTES


def _buffers(group: FileGroup, row_group: int) -> tuple[int, int]:
    """What a task holds of the data file it reads, and of the one it writes."""
    return min(row_group, group.max_bytes), min(row_group, group.size_in_bytes)


def _peak(tasks: Sequence[_Task], executor: Executor, slots: int, *, writes: bool) -> int:
    """The peak of an executor whose slots are all taken by the tasks that hold most."""
    readers = DELETE_READERS_PER_CORE * executor.cores
    reading = max(min(t.delete_files.size_in_bytes, readers * (t.delete_files.max_bytes or 0)) for t in tasks)
    held, left = 0, slots
    for task in heapq.nlargest(slots, tasks, key=lambda t: t.heap(writes=writes)):
        taken = min(left, task.count)
        held, left = held + taken * task.heap(writes=writes), left - taken
        if not left:
            break
    return BASE_BYTES + reading + held


def _cores_that_fit(tasks: Sequence[_Task], executor: Executor) -> int:
    for slots in range(executor.tasks, 0, -1):
        if verdict(_peak(tasks, executor, slots, writes=True), executor.heap_bytes) == "fits":
            # Of all cores, those that make no further task do no harm.
            return executor.cores if slots == executor.tasks else slots * executor.task_cpus
    return 0


def _partition(facts: TableFacts, task: _Task, executor: Executor, *, known: bool) -> PartitionHeap:
    applied = task.applied
    rewrite = _peak([task], executor, executor.tasks, writes=True)
    return PartitionHeap(
        applied.partition,
        facts.partition_path(applied.partition),
        applied.data_file_count,
        applied.max_deletes_per_file,
        task.distinct,
        applied.loads,
        min(task.count, executor.tasks),
        task.set_bytes,
        _peak([task], executor, executor.tasks, writes=False),
        rewrite,
        verdict(rewrite, executor.heap_bytes, known=known),
    )


__all__ = ["HeapForecast", "PartitionHeap", "Verdict", "forecast_heap", "reads_row_by_row", "verdict"]
