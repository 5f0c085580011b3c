"""Forecast the heap that Spark's own read or rewrite of a table under equality deletes needs:
records × (overhead + key) × tasks. Pure.
"""

import re
from dataclasses import dataclass
from typing import Literal

from icekit.common.command_line import command_line
from icekit.common.sql import display_name
from icekit.common.units import count, percent, size
from icekit.common.view import Badge, Block, Sentence, Shown
from icekit.engine.cluster import Executor
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import equality_deletes_applied
from icekit.iceberg.file_kind import Kind

#: Bytes that a delete record takes besides the bytes of its key. For every data file, Spark reads
# all delete records that apply into lists, and then into a hash set
# (``BaseDeleteLoader.loadEqualityDeletes``), while it may still hold the set of the file before
# (``BaseReader.next``). Counted object by object in a 64-bit JVM with heaps below 32 GiB, that is
# 383 bytes for a key of one long, 399 of a UUID, 479 of a timestamp, 501 of a text of 36 letters,
# 549 of a long and such a text: with this overhead, the forecast is 1.0 to 1.35 times as much.
# Larger heaps have longer references, and take up to a quarter more than forecast.
RECORD_BYTES = 500
#: What Spark, Iceberg and a table's plan hold apart from any task.
BASE_BYTES = 300 * 2**20
#: Up to this share of the heap, a peak fits: the old generation is two thirds of the heap (Parallel
#: and Serial GC), and a set lives too long for the young generation.
FITS_SHARE = 0.6
#: Up to this share, some garbage collectors manage, with many collections.
TIGHT_SHARE = 1.0
#: The bytes of a text or binary value, whose length the metadata does not say: a UUID as text, or
# a short path.
ASSUMED_BYTES = 40
_BYTES = {"boolean": 1, "int": 4, "float": 4, "date": 4, "uuid": 16}
_KIND = {"fits": ("fine", "✔"), "tight": ("warning", "▲"), "will not fit": ("critical", "✖")}

Verdict = Literal["fits", "tight", "will not fit"]


def verdict(peak_bytes: int, heap_bytes: int) -> Verdict:
    """Judge a peak by the shares above."""
    heap_share = peak_bytes / heap_bytes
    return (
        "will not fit"
        if heap_share > TIGHT_SHARE
        else "fits"
        if heap_share <= FITS_SHARE
        else "tight"
    )


@dataclass(frozen=True, repr=False)
class HeapForecast(Shown):
    """The heap per executor that a read or a rewrite by Spark itself needs, and whether it fits: an
    upper bound.

    ``max_deletes_per_file`` delete records apply to the worst data file, which is in the partition
    ``partition_name``; each has a key of ``key_bytes``, counted as different from all others.
    ``record_loads`` counts each delete record once per data file that loads it.
    """

    catalog: str
    table: tuple[str, ...]
    executor: Executor
    max_deletes_per_file: int = 0
    key_bytes: int = 0
    partition_name: str = ""
    data_file_count: int = 0
    delete_file_count: int = 0
    delete_record_count: int = 0
    record_loads: int = 0

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return display_name(self.table)

    @property
    def is_empty(self) -> bool:
        """Tell whether no equality delete applies to any data file."""
        return not self.max_deletes_per_file

    @property
    def needed_bytes(self) -> int:
        """The peak of an executor whose tasks all work on the worst data files; 0 if no delete
        applies.
        """
        task_bytes = self.max_deletes_per_file * (RECORD_BYTES + self.key_bytes)
        return 0 if self.is_empty else BASE_BYTES + self.executor.cores * task_bytes

    @property
    def verdict(self) -> Verdict:
        """Whether the peak fits the executor's heap."""
        return verdict(self.needed_bytes, self.executor.heap_bytes)

    def blocks(self) -> list[Block]:
        """The verdict, and what it rests on."""
        if self.is_empty:
            return [
                Badge("fine", "✔ nothing to forecast", self.name),
                Sentence("No equality delete applies to any data file."),
            ]
        badge_kind, badge_mark = _KIND[self.verdict]
        need_text = (
            f"To read or rewrite {self.name}, Spark itself needs about {size(self.needed_bytes)} "
            f"per executor of {count(self.executor.cores, 'core')}; the heap is "
            f"{size(self.executor.heap_bytes)}: {self.verdict}."
        )
        compact_command = command_line("compact", self.catalog, self.name)
        convert_command = command_line("convert", self.catalog, self.name)
        remedy_text = (
            f"{compact_command} does not need this memory. {convert_command} does not need it "
            "either, and rewrites "
            "no data file."
        )
        return [
            Badge(badge_kind, f"{badge_mark} {self.verdict}", self.name),
            Sentence(need_text if self.verdict == "fits" else f"{need_text} {remedy_text}"),
            Sentence(
                f"{count(self.delete_record_count, 'equality delete record')} in "
                f"{count(self.delete_file_count, 'file')}; a full scan of "
                f"{count(self.data_file_count, 'data file')} loads "
                f"{count(self.record_loads, 'delete record')}."
            ),
            Sentence(
                f"One data file in {self.partition_name} needs up to "
                f"{count(self.max_deletes_per_file, 'delete record')}: "
                f"{self.max_deletes_per_file:,} × ({RECORD_BYTES} + {self.key_bytes} bytes of the "
                f"key) × {count(self.executor.cores, 'task')}, and "
                f"{size(BASE_BYTES)} for Spark itself. A peak fits if it needs at most "
                f"{percent(FITS_SHARE)} of the heap."
            ),
        ]


def forecast_heap(facts: TableFacts, executor: Executor) -> HeapForecast:
    """Forecast the peak heap of reading a table's equality deletes with an executor.

    Sequence number, partition and spec decide which deletes apply. Facts hold no key bounds, which
    may rule some deletes out.
    """
    applied_deletes = list(equality_deletes_applied(facts))
    if not applied_deletes:
        return HeapForecast(facts.catalog, facts.table, executor)
    worst_deletes = max(applied_deletes, key=lambda a: (a.max_deletes_per_file, a.record_loads))
    equality_delete_totals = facts.total(Kind.EQUALITY_DELETES)
    return HeapForecast(
        facts.catalog,
        facts.table,
        executor,
        max_deletes_per_file=worst_deletes.max_deletes_per_file,
        key_bytes=key_bytes(facts),
        partition_name=facts.partition_name(worst_deletes.partition),
        data_file_count=sum(a.data_file_count for a in applied_deletes),
        delete_file_count=equality_delete_totals.file_count,
        delete_record_count=equality_delete_totals.record_count,
        record_loads=sum(a.record_loads for a in applied_deletes),
    )


def key_bytes(facts: TableFacts) -> int:
    """The bytes of the largest key among those of the table's equality deletes."""
    types_by_id = {column.field_id: column.type for column in facts.columns}
    key_sizes = [
        sum(value_bytes(types_by_id.get(i, "string")) for i in key.field_ids)
        for key in facts.equality_keys
    ]
    return max(key_sizes, default=0) or ASSUMED_BYTES


def value_bytes(type_name: str) -> int:
    """The bytes of a value of an Iceberg type: assumed for texts and binaries."""
    if fixed_type_match := re.fullmatch(r"fixed\[(\d+)\]", type_name):
        return int(fixed_type_match[1])
    if type_name.startswith("decimal"):
        return 16
    return ASSUMED_BYTES if type_name in {"string", "binary"} else _BYTES.get(type_name, 8)
