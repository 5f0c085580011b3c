"""Forecast the heap that equality deletes take: of a stock read, and of a stock ``rewrite_data_files``.

Pure: facts in, figures out. Which deletes apply to which data file is worked out from
sequence number, partition and spec; key bounds, which facts do not hold, may rule some out,
so that delete records and loads are upper bounds.
"""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from icekit.answer import html
from icekit.answer.lines import aligned
from icekit.compact.equality_deletes.heap import WIDE_HEAP_BYTES, RecordHeap
from icekit.compact.equality_deletes.keys import KeyColumn, KeySample, largest_key
from icekit.compact.equality_deletes.peak import BASE_BYTES, Cache, Task, peak, tasks_of
from icekit.engine.cluster import Executor
from icekit.facts.model import Kind, Partition, TableFacts
from icekit.secrets import mask
from icekit.sql import display_name
from icekit.units import count, percent, size

Verdict = Literal["fits", "tight", "will not fit"]

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
    different. ``set_bytes`` is the peak of one task's delete set, ``previous_set_bytes`` what the
    task may still hold of the data file before, ``read_bytes`` and
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
    previous_set_bytes: int
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
        """The worse of both."""
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

    ``keys`` is what :func:`sample_keys` found: without it every delete record counts as a
    key of its own, and text in a key as 40 characters, where nothing is ever said to fit.
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


def verdict(peak_bytes: int, heap_bytes: int, *, known: bool = True) -> Verdict:
    """Judge a peak by the shares above; what rests on an assumption is tight at best."""
    share = peak_bytes / heap_bytes
    return "will not fit" if share > TIGHT_SHARE else "fits" if share <= FITS_SHARE and known else "tight"


def _cores_that_fit(tasks: Sequence[Task], executor: Executor, cache: Cache | None) -> int:
    for slots in range(executor.tasks, 0, -1):
        worse = max(peak(tasks, executor, slots, cache), peak(tasks, executor, slots, writes=True))
        if verdict(worse, executor.heap_bytes) == "fits":
            # Cores beyond those that make a further task do no harm.
            return executor.cores if slots == executor.tasks else slots * executor.task_cpus
    return 0


def _partition(facts: TableFacts, task: Task, executor: Executor, cache: Cache | None, *, known: bool) -> PartitionHeap:
    applied = task.applied
    read, rewrite = peak([task], executor, executor.tasks, cache), peak([task], executor, executor.tasks, writes=True)
    return PartitionHeap(
        applied.partition,
        facts.partition_path(applied.partition),
        applied.data_file_count,
        applied.max_deletes_per_file,
        task.distinct,
        applied.loads,
        min(task.count, executor.tasks),
        task.set_bytes,
        task.previous_bytes,
        read,
        rewrite,
        verdict(max(read, rewrite), executor.heap_bytes, known=known),
    )


__all__ = ["HeapForecast", "PartitionHeap", "Verdict", "forecast_heap", "verdict"]


#: What the only partition of an unpartitioned table is called.
_WHOLE = "(unpartitioned)"
#: Partitions that text, HTML and picture show.
SHOWN = 10
_KIND = {"fits": ("fine", "✔"), "tight": ("warning", "▲"), "will not fit": ("critical", "✖")}
_HEAD = ("partition", "data files", "deletes on the worst file", "distinct keys", "peak of a read", "peak of a rewrite", "verdict")


def summary(forecast: HeapForecast) -> str:
    """What will happen and what to do, in a few sentences."""
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
    return f"{said} {_cores(forecast)}. Converting the deletes needs no such memory: {convert_command(forecast)}"


def _cores(forecast: HeapForecast) -> str:
    cores = forecast.cores_that_fit
    if cores is None:
        return "The length of a key column is only assumed: sample the keys to know what would fit"
    if not cores:
        return "No number of cores would fit"
    return f"Executors of {count(cores, 'core')} with as much heap would fit"


def convert_command(forecast: HeapForecast) -> str:
    """What a person types to turn the equality deletes into position deletes or deletion vectors."""
    catalog = "" if forecast.catalog == "lake" else f" --catalog {shlex.quote(forecast.catalog)}"
    return f"icekit convert {shlex.quote(forecast.name)}{catalog}"


def basis(forecast: HeapForecast) -> tuple[str, ...]:
    """What the figures rest on, a sentence each."""
    if forecast.is_empty:
        return ()
    key = ", ".join(f"{c.name or 'an unknown column'} ({_column(c.type, c.basis, c.heap_bytes)})" for c in forecast.key)
    distinct = (
        f"Distinct keys are estimated from a sample of {count(forecast.sample_file_count, 'delete file')}."
        if forecast.distinct_basis == "sample"
        else "Distinct keys are an upper bound: every delete record counts as a key of its own."
    )
    return (
        f"{count(forecast.delete_record_count, 'equality delete record')} in {count(forecast.delete_file_count, 'file')}, "
        f"by {key}; a full scan loads {forecast.loads:,} of them for {count(forecast.data_file_count, 'data file')}.",
        f"{distinct} Delete records that apply are an upper bound: key bounds may rule some out.",
        f"Fits: at most {percent(FITS_SHARE)} of the heap, of which {size(BASE_BYTES)} are Spark's own.",
    )


def _column(type_name: str, known: str, heap_bytes: float) -> str:
    return f"{type_name + ', ' if type_name else ''}{heap_bytes:.0f} bytes" + ({"assumed": " assumed", "sample": " sampled"}.get(known, ""))


def forecast_text(forecast: HeapForecast) -> str:
    """A forecast as lines for a terminal."""
    lines = [summary(forecast)]
    if not forecast.is_empty:
        rows = [_HEAD, *map(_row, forecast.partitions[:SHOWN])]
        lines += ["", *aligned(rows, left=(0, len(_HEAD) - 1)), *_more(forecast), "", *basis(forecast)]
    return mask("\n".join(lines))


def forecast_html(forecast: HeapForecast) -> str:
    """A forecast as a card: the sentence, then a table of the worst partitions."""
    kind, mark = ("fine", "✔") if forecast.is_empty else _KIND[forecast.verdict]
    badge = "nothing to forecast" if forecast.is_empty else forecast.verdict
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{mark} {html.text(badge)}</span> {html.text(forecast.name)}</p>',
        f"<p>{html.prose(summary(forecast))}</p>",
    ]
    if not forecast.is_empty:
        parts.append(html.table(_HEAD, map(_row, forecast.partitions[:SHOWN]), [False, *[True] * 5, False]))
    parts += [f"<p>{html.prose(line)}</p>" for line in (*_more(forecast), *basis(forecast))]
    return mask(html.framed(*parts, "</div>"))


def _row(p: PartitionHeap) -> tuple[str, ...]:
    return (
        p.path or _WHOLE,
        f"{p.data_file_count:,}",
        f"{p.deletes_per_file:,}",
        f"{p.distinct_keys:,}",
        size(p.read_bytes),
        size(p.rewrite_bytes),
        p.verdict,
    )


def _more(forecast: HeapForecast) -> tuple[str, ...]:
    left = forecast.partition_count - min(SHOWN, len(forecast.partitions))
    return (f"… and {count(left, 'more partition')}, whose peaks are no higher.",) if left > 0 else ()
