"""Forecast the heap that a stock read and a stock ``rewrite_data_files`` need for equality deletes.

Pure: facts in, figures out. Sequence number, partition and spec decide which deletes apply
to which data file. Facts hold no key bounds, which may rule some deletes out, so delete
records and loads are upper bounds.
"""

from __future__ import annotations

import heapq
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from icekit.answer import html
from icekit.answer.grid import BYTES, COUNT, NAME, TEXT, Grid
from icekit.engine.cluster import Executor
from icekit.facts.model import UNPARTITIONED, Column, FileGroup, Kind, Partition, TableFacts, Totals
from icekit.facts.rollup import Applied, equality_deletes_applied
from icekit.secrets import mask
from icekit.sql import display_name
from icekit.units import count, percent, size

__all__ = ["HeapForecast", "PartitionHeap", "Verdict", "forecast_heap", "verdict"]


# --- Count the heap that a reader's set of equality deletes takes, object by object
#
# For every data file Spark reads all delete records that apply into lists, one per delete file,
# and then puts them into one hash set (``BaseDeleteLoader.loadEqualityDeletes``). At the peak
# the heap holds both: list, record and key of each delete record, and the set's entry of each
# distinct key. Sizes are those of a 64-bit JVM of Java 17 to 22.


# From this heap size on, Java uses 64-bit references instead of 32-bit ones ("compressed oops").
WIDE_HEAP_BYTES = 32 * 2**30
_HEADER, _ARRAY_HEADER = 12, 16
# The most that the objects of a value grow with 64-bit references.
_WIDE_VALUES = 4 / 3
# java.util.HashMap: the table doubles when it is three quarters full.
_LOAD_FACTOR = 0.75

#: Bytes of a value as Iceberg's generic reader makes it, for types of a fixed size.
#: LocalDate and LocalTime are 24, LocalDateTime holds both, OffsetDateTime one more.
_FIXED = {
    "boolean": 16,
    "int": 16,
    "float": 16,
    "long": 24,
    "double": 24,
    "date": 24,
    "time": 24,
    "uuid": 32,
    "timestamp": 72,
    "timestamp_ns": 72,
    "timestamptz": 96,
    "timestamptz_ns": 96,
}
#: Digits that a BigDecimal keeps in a long; for more digits it needs a BigInteger and its array.
_COMPACT_DIGITS, _DECIMAL, _LARGE_DECIMAL = 18, 40, 104
#: The object around the bytes: String, or ByteBuffer for binary.
_STRING, _BYTE_BUFFER = 24, 56


@dataclass(frozen=True, slots=True)
class RecordHeap:
    """Heap bytes of one delete record, from the number of key columns and the bytes of their values."""

    columns: int
    values: float
    wide: bool = False

    @property
    def _reference(self) -> int:
        return 8 if self.wide else 4

    @property
    def list_bytes(self) -> float:
        """In the list: its slot, ``InternalRecordWrapper``, ``GenericRecord``, array and values."""
        r = self._reference
        objects = _aligned(_HEADER + 2 * r) + _aligned(_HEADER + 4 + 3 * r) + _aligned(_ARRAY_HEADER + self.columns * r)
        return r + objects + self.values * (_WIDE_VALUES if self.wide else 1)

    @property
    def set_bytes(self) -> float:
        """In the set, without its table: ``StructLikeWrapper``, its hash code, ``HashMap.Node``."""
        r = self._reference
        return _aligned(_HEADER + 4 * r) + 16 + _aligned(_HEADER + 4 + 3 * r)

    def retained(self, distinct: int) -> int:
        """Bytes of the set alone, while the data file is read."""
        return round(distinct * (self.list_bytes - self._reference + self.set_bytes)) + self._table(distinct)

    def peak(self, records: int, distinct: int) -> int:
        """Bytes while the set is built from the lists: the maximum."""
        return round(records * self.list_bytes + distinct * self.set_bytes) + self._table(distinct)

    def _table(self, distinct: int) -> int:
        if not distinct:
            return 0
        return int(2 ** max(4, (int(distinct / _LOAD_FACTOR)).bit_length())) * self._reference


def fixed_bytes(type_name: str) -> int | None:
    """Bytes of a value of an Iceberg type; None for types whose values differ in length."""
    if found := re.fullmatch(r"decimal\((\d+), ?\d+\)", type_name):
        return _DECIMAL if int(found[1]) <= _COMPACT_DIGITS else _LARGE_DECIMAL
    if found := re.fullmatch(r"fixed\[(\d+)\]", type_name):
        return array_bytes(int(found[1]))
    return _FIXED.get(type_name)


def text_bytes(length: int) -> int:
    """Heap bytes of a ``String`` with ``length`` bytes of text (two per character if any is beyond Latin-1)."""
    return _STRING + array_bytes(length)


def binary_bytes(length: int) -> int:
    """Heap bytes of a ``ByteBuffer`` with ``length`` bytes."""
    return _BYTE_BUFFER + array_bytes(length)


def array_bytes(length: int) -> int:
    """Heap bytes of a ``byte[]`` with ``length`` bytes."""
    return _aligned(_ARRAY_HEADER + length)


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


# --- Describe the key of equality deletes: its columns, their heap, how often a key repeats


Basis = Literal["type", "sample", "assumed"]

#: The size assumed for a string without a sample: a key such as a UUID or a URL's path.
ASSUMED_BYTES = text_bytes(40)


@dataclass(frozen=True, slots=True)
class KeyColumnHeap:
    """A column of the key; ``heap_bytes`` is the heap of its mean value, known from its ``type``, from a ``sample``, or ``assumed``."""

    field_id: int
    name: str
    type: str
    heap_bytes: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class KeySample:
    """The keys in a sample of equality delete files.

    ``columns`` are the columns of all equality field ids. ``distinct_share`` is the number of
    distinct keys divided by the number of delete records, within the files of one partition,
    for the partition where it is highest; None if no partition had two files that could be
    read. More files of a partition share more keys, so it is an overestimate for partitions
    of many files.
    """

    columns: tuple[KeyColumnHeap, ...] = ()
    distinct_share: float | None = None
    file_count: int = 0
    record_count: int = 0
    partition_count: int = 0
    skipped_file_count: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """The columns of the key with the most heap, among the keys of the table's equality deletes."""

    columns: tuple[KeyColumnHeap, ...]

    @property
    def value_bytes(self) -> float:
        """Heap of the values of one key."""
        return sum(column.heap_bytes for column in self.columns)

    @property
    def is_known(self) -> bool:
        """Tell whether no size is assumed."""
        return all(column.basis != "assumed" for column in self.columns)


def largest_key(facts: TableFacts, sample: KeySample | None) -> Key:
    """The key with the largest values; if a table has several keys, all count as this one."""
    by_id = key_columns(facts)
    sampled = {column.field_id: column for column in sample.columns} if sample else {}
    found = [Key(tuple(_column(i, by_id, sampled) for i in key.field_ids)) for key in facts.equality_keys]
    return max((key for key in found if key.columns), key=lambda k: (len(k.columns), k.value_bytes), default=_unknown(sample))


def _unknown(sample: KeySample | None) -> Key:
    """The key without field ids, which facts of an earlier version do not have."""
    return Key(sample.columns if sample and sample.columns else (KeyColumnHeap(0, "", "", ASSUMED_BYTES, "assumed"),))


def _column(field_id: int, by_id: dict[int, Column], sampled: dict[int, KeyColumnHeap]) -> KeyColumnHeap:
    if field_id in sampled:
        return sampled[field_id]
    column = by_id.get(field_id)
    size = fixed_bytes(column.type) if column else None
    if column is None or size is None:
        return KeyColumnHeap(field_id, column.name if column else "", column.type if column else "", ASSUMED_BYTES, "assumed")
    return KeyColumnHeap(field_id, column.name, column.type, size, "type")


def key_columns(facts: TableFacts) -> dict[int, Column]:
    """The key columns that the schema still has, by field id."""
    wanted = {field_id for key in facts.equality_keys for field_id in key.field_ids}
    return {column.field_id: column for column in facts.columns if column.field_id in wanted}


# --- Add up the heap of an executor at its peak: Spark, data files, delete sets, and the cache of delete files


MIB = 2**20
#: The heap that Spark, Iceberg and a table's plan hold apart from any task (also Spark's own reserved memory).
BASE_BYTES = 300 * MIB
#: A Parquet reader loads one row group of a data file at a time, and a writer holds one until it is full.
ROW_GROUP_SETTING = "write.parquet.row-group-size-bytes"
ROW_GROUP_BYTES = 128 * MIB
#: Threads per core that read delete files in parallel (``ThreadPools``).
DELETE_READERS_PER_CORE = 4
#: Scans split files into pieces of at least this size (the minimum of ``read.split.adaptive-size``).
MIN_SPLIT_BYTES = 16 * MIB
#: The size of the executor cache (``spark.sql.iceberg.executor-cache.max-total-size``), and its
#: own estimates for the values of a type (``TypeUtil.estimateSize``).
CACHE_BYTES = 128 * MIB
_ESTIMATES = {"string": 128, "binary": 80, "uuid": 16, "int": 4, "date": 4, "float": 4, "boolean": 1}
_ESTIMATE = 8


@dataclass(frozen=True, slots=True)
class Task:
    """The heap of a task on one partition, and how many such tasks there can be.

    ``set_bytes`` is the delete set at its peak, ``list_bytes`` the lists in it, and
    ``previous_bytes`` the set of the previous data file, which a reader may still hold
    (``BaseReader.next`` opens a file before it releases the previous one; measured: sometimes).
    ``reader`` and ``writer`` are row groups of data files; ``delete_files`` are the delete files
    that apply. All but the counts are bytes.
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

    It holds lists of delete records, which are far larger than its own estimate. ``shares`` is
    true if all lists fit, so that tasks share them.
    """

    held_bytes: int
    shares: bool

    @classmethod
    def of(cls, key: Key, record: RecordHeap, records: int) -> Cache:
        """The cache of a table with ``records`` delete records."""
        estimate = sum(_ESTIMATES.get(column.type, _ESTIMATE) for column in key.columns) or 1
        room = CACHE_BYTES // estimate
        # One entry may take half of the cache (max-entry-size, 64 MB): below that size, each file is cached.
        return cls(round(min(records, room) * record.list_bytes), records <= room // 2)


def peak(tasks: Sequence[Task], executor: Executor, slots: int, cache: Cache | None = None, *, writes: bool = False) -> int:
    """The peak of an executor, in bytes, with the largest tasks in all of its slots."""

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
        # Several tasks read a large file, and each has its own set.
        count = applied.data_file_count + group.size_in_bytes // MIN_SPLIT_BYTES
        found.append(
            Task(
                applied=applied,
                count=count,
                distinct=distinct,
                set_bytes=held,
                previous_bytes=previous,
                list_bytes=lists,
                reader=reader,
                writer=writer,
                delete_files=files,
            )
        )
    return found


def _row_group(facts: TableFacts) -> int:
    try:
        return int(facts.setting(ROW_GROUP_SETTING) or ROW_GROUP_BYTES)
    except ValueError:
        return ROW_GROUP_BYTES


def _buffers(group: FileGroup, row_group: int) -> tuple[int, int]:
    """Bytes that a task holds of the data file it reads, and of the data file it writes."""
    return min(row_group, group.max_bytes), min(row_group, group.size_in_bytes)


Verdict = Literal["fits", "tight", "will not fit"]

#: Up to this share of the heap, a peak fits: the old generation is two thirds of the heap (Parallel
#: and Serial GC), and a set lives too long for the young generation.
FITS_SHARE = 0.6
#: Up to this share, some garbage collectors manage, with many collections.
TIGHT_SHARE = 1.0
#: Partitions that a forecast lists; its totals include the others.
MAX_PARTITIONS = 100


@dataclass(frozen=True, slots=True)
class PartitionHeap:
    """The forecast for one partition, as if a job read only its data.

    ``deletes_per_file`` delete records apply to its worst data file, with ``distinct_keys``
    different keys. ``set_bytes`` is the peak of one task's delete set, ``previous_set_bytes`` the
    set of the previous data file, which the task may still hold. ``read_bytes`` and
    ``rewrite_bytes`` are the peak of an executor with ``task_count`` such tasks and everything else
    that it holds. ``loads`` counts each delete record once per data file that loads it.
    """

    partition: Partition
    path: str
    data_file_count: int
    deletes_per_file: int
    distinct_keys: int
    loads: int
    task_count: int
    set_bytes: int
    previous_set_bytes: int
    read_bytes: int
    rewrite_bytes: int
    verdict: Verdict


@dataclass(frozen=True)
class HeapForecast:
    """The heap per executor that a stock read and a stock rewrite need, and whether it fits.

    ``partitions`` are the worst :data:`MAX_PARTITIONS` of ``partition_count`` partitions under
    equality deletes; counts and peaks cover all of them. ``distinct_basis`` says whether the
    number of distinct keys is estimated from a sample or is an upper bound (every delete record
    has its own key). ``cores_that_fit`` is the largest number of cores with which an executor of
    this heap fits both, 0 if none; None if the length of a key column is only assumed.
    """

    catalog: str
    table: tuple[str, ...]
    snapshot_id: int | None
    executor: Executor
    key: tuple[KeyColumnHeap, ...] = ()
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
        """The worse of the two verdicts."""
        return max(self.read_verdict, self.rewrite_verdict, key=_ORDER.index)

    @property
    def worst(self) -> PartitionHeap | None:
        """The partition with the highest peak, and so the worst data file."""
        return self.partitions[0] if self.partitions else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "table": self.name, "verdict": self.verdict}

    def __repr__(self) -> str:
        return forecast_text(self)

    def _repr_html_(self) -> str:
        return forecast_html(self)


_ORDER: tuple[Verdict, ...] = ("fits", "tight", "will not fit")


def forecast_heap(facts: TableFacts, executor: Executor, keys: KeySample | None = None) -> HeapForecast:
    """Forecast the peak heap of reading a table's equality deletes with an executor.

    ``keys`` is the result of :func:`sample_keys`. Without it every delete record counts as a
    different key, and a string in a key as 40 characters; the verdict is then never "fits".
    """
    empty = HeapForecast(facts.catalog, facts.table, facts.snapshot_id, executor)
    key = largest_key(facts, keys)
    record = RecordHeap(len(key.columns), key.value_bytes, executor.heap_bytes >= WIDE_HEAP_BYTES)
    share = keys.distinct_share if keys and keys.distinct_share is not None else None
    tasks = tasks_of(facts, record, 1.0 if share is None else share)
    if not tasks:
        return empty
    deletes = facts.total(Kind.EQUALITY_DELETES)
    cache = Cache.of(key, record, deletes.record_count) if executor.delete_cache else None
    read, rewrite = peak(tasks, executor, executor.tasks, cache), peak(tasks, executor, executor.tasks, writes=True)
    worst = heapq.nlargest(MAX_PARTITIONS, tasks, key=lambda t: (peak([t], executor, executor.tasks, writes=True), t.applied.loads))
    return replace(
        empty,
        key=key.columns,
        distinct_basis="upper bound" if share is None else "sample",
        sample_file_count=keys.file_count if keys else 0,
        list_bytes=record.list_bytes,
        set_bytes=record.set_bytes,
        partitions=tuple(_partition(facts, task, executor, cache, known=key.is_known) for task in worst),
        partition_count=len(tasks),
        data_file_count=sum(t.applied.data_file_count for t in tasks),
        delete_file_count=deletes.file_count,
        delete_record_count=deletes.record_count,
        loads=sum(t.applied.loads for t in tasks),
        read_bytes=read,
        rewrite_bytes=rewrite,
        read_verdict=verdict(read, executor.heap_bytes, known=key.is_known),
        rewrite_verdict=verdict(rewrite, executor.heap_bytes, known=key.is_known),
        cores_that_fit=_cores_that_fit(tasks, executor, cache) if key.is_known else None,
    )


def rewrite_heap(facts: TableFacts, executor: Executor) -> int:
    """The peak heap, in bytes, of a stock rewrite of the data files under equality deletes, as in :func:`forecast_heap` without a sample of keys; 0 without equality deletes."""
    key = largest_key(facts, None)
    tasks = tasks_of(facts, RecordHeap(len(key.columns), key.value_bytes, executor.heap_bytes >= WIDE_HEAP_BYTES), 1.0)
    return peak(tasks, executor, executor.tasks, writes=True) if tasks else 0


def verdict(peak_bytes: int, heap_bytes: int, *, known: bool = True) -> Verdict:
    """Judge a peak by the shares above; a peak that rests on an assumption is tight at best."""
    share = peak_bytes / heap_bytes
    return "will not fit" if share > TIGHT_SHARE else "fits" if share <= FITS_SHARE and known else "tight"


def _cores_that_fit(tasks: Sequence[Task], executor: Executor, cache: Cache | None) -> int:
    for slots in range(executor.tasks, 0, -1):
        worse = max(peak(tasks, executor, slots, cache), peak(tasks, executor, slots, writes=True))
        if verdict(worse, executor.heap_bytes) == "fits":
            # Cores without a task need no heap.
            return executor.cores if slots == executor.tasks else slots * executor.task_cpus
    return 0


def _partition(facts: TableFacts, task: Task, executor: Executor, cache: Cache | None, *, known: bool) -> PartitionHeap:
    applied = task.applied
    read, rewrite = peak([task], executor, executor.tasks, cache), peak([task], executor, executor.tasks, writes=True)
    return PartitionHeap(
        partition=applied.partition,
        path=facts.partition_path(applied.partition),
        data_file_count=applied.data_file_count,
        deletes_per_file=applied.max_deletes_per_file,
        distinct_keys=task.distinct,
        loads=applied.loads,
        task_count=min(task.count, executor.tasks),
        set_bytes=task.set_bytes,
        previous_set_bytes=task.previous_bytes,
        read_bytes=read,
        rewrite_bytes=rewrite,
        verdict=verdict(max(read, rewrite), executor.heap_bytes, known=known),
    )


#: Partitions that text, HTML and the chart show.
SHOWN = 10
_KIND = {"fits": ("fine", "✔"), "tight": ("warning", "▲"), "will not fit": ("critical", "✖")}


def summary(forecast: HeapForecast) -> str:
    """What happens and what to do, in a few sentences."""
    if forecast.is_empty:
        return f"{forecast.name}: no equality delete applies to any data file, so there is nothing to forecast."
    executor = forecast.executor
    said = (
        f"A stock read of {forecast.name} needs about {size(forecast.read_bytes)} per executor of {count(executor.cores, 'core')}; "
        f"the heap is {size(executor.heap_bytes)}: {forecast.read_verdict}. "
        f"A stock rewrite_data_files needs about {size(forecast.rewrite_bytes)}: {forecast.rewrite_verdict}."
    )
    if forecast.verdict == "fits":
        return said
    return (
        f"{said} {_cores(forecast)}. {command(forecast, 'compact')} does not need this memory. "
        f"{command(forecast, 'convert')} does not need it either, and rewrites no data file."
    )


def _cores(forecast: HeapForecast) -> str:
    cores = forecast.cores_that_fit
    if cores is None:
        return "The length of a key column is only assumed: sample the keys to find out what fits"
    if not cores:
        return "With this heap, they do not both fit with any number of cores"
    return f"With this heap, both fit on executors of {count(cores, 'core')}"


def command(forecast: HeapForecast, verb: str) -> str:
    """The command line of ``icekit compact`` or ``icekit convert`` for the table."""
    catalog = "" if forecast.catalog == "lake" else f" --catalog {shlex.quote(forecast.catalog)}"
    return f"icekit {verb} {shlex.quote(forecast.name)}{catalog}"


def basis(forecast: HeapForecast) -> tuple[str, ...]:
    """The basis of the figures, one sentence each."""
    if forecast.is_empty:
        return ()
    key = ", ".join(f"{c.name or 'an unknown column'} ({_forecast_column(c.type, c.basis, c.heap_bytes)})" for c in forecast.key)
    distinct = (
        f"Distinct keys are estimated from a sample of {count(forecast.sample_file_count, 'delete file')}."
        if forecast.distinct_basis == "sample"
        else "Distinct keys are an upper bound: every delete record counts as a different key."
    )
    return (
        f"{count(forecast.delete_record_count, 'equality delete record')} in {count(forecast.delete_file_count, 'file')}, "
        f"with key {key}; a full scan of {count(forecast.data_file_count, 'data file')} loads {count(forecast.loads, 'delete record')}.",
        f"{distinct} The number of delete records that apply is an upper bound: key bounds may rule some out.",
        f"A peak fits if it needs at most {percent(FITS_SHARE)} of the heap; each peak includes {size(BASE_BYTES)} for Spark itself.",
    )


def _forecast_column(type_name: str, known: str, heap_bytes: float) -> str:
    return f"{type_name + ', ' if type_name else ''}{heap_bytes:.0f} bytes" + ({"assumed": " assumed", "sample": " sampled"}.get(known, ""))


def forecast_text(forecast: HeapForecast) -> str:
    """A forecast as lines for a terminal."""
    lines = [summary(forecast)]
    if not forecast.is_empty:
        lines += ["", *grid(forecast, SHOWN).lines(), *_more(forecast), "", *basis(forecast)]
    return mask("\n".join(lines))


def forecast_html(forecast: HeapForecast) -> str:
    """A forecast as a card: a sentence, then a table of the worst partitions."""
    kind, mark = ("fine", "✔") if forecast.is_empty else _KIND[forecast.verdict]
    badge = "nothing to forecast" if forecast.is_empty else forecast.verdict
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{mark} {html.text(badge)}</span> {html.text(forecast.name)}</p>',
        f"<p>{html.prose(summary(forecast))}</p>",
    ]
    if not forecast.is_empty:
        parts.append(grid(forecast, SHOWN).html())
    parts += [f"<p>{html.prose(line)}</p>" for line in (*_more(forecast), *basis(forecast))]
    return mask(html.framed(*parts, "</div>"))


def grid(forecast: HeapForecast, first: int | None = None) -> Grid:
    """The worst partitions (all in the forecast, or the ``first``), one per row; bytes are the peak of one executor."""
    columns = {
        "partition": NAME,
        "data_files": COUNT,
        "deletes_per_file": COUNT("most delete records per data file"),
        "distinct_keys": COUNT,
        "read_bytes": BYTES("peak of a read"),
        "rewrite_bytes": BYTES("peak of a rewrite"),
        "verdict": TEXT,
    }
    rows = [
        (p.path or UNPARTITIONED, p.data_file_count, p.deletes_per_file, p.distinct_keys, p.read_bytes, p.rewrite_bytes, p.verdict)
        for p in forecast.partitions[:first]
    ]
    return Grid("", columns, rows)


def _more(forecast: HeapForecast) -> tuple[str, ...]:
    left = forecast.partition_count - min(SHOWN, len(forecast.partitions))
    return (f"… and {count(left, 'more partition')} with peaks no higher than these.",) if left > 0 else ()
