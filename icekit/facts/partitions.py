"""Filter and sort the partitions of a table; bounded in what comes out, whatever there is."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from icekit.errors import ParameterError, nearest
from icekit.facts.model import Kind, Partition, TableFacts
from icekit.facts.rollup import sort_key


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """One partition: its live data files, and the deletes that were written into it.

    ``path`` is as people read it, empty for the whole of an unpartitioned table. Deletes of an
    unpartitioned spec apply everywhere and are counted where they were written.
    """

    partition: Partition
    path: str
    data_file_count: int = 0
    size_in_bytes: int = 0
    record_count: int = 0
    delete_file_count: int = 0
    delete_record_count: int = 0

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of the data files; None without any."""
        return self.size_in_bytes / self.data_file_count if self.data_file_count else None


@dataclass(frozen=True, slots=True)
class Selection:
    """The first ``rows`` of ``matched`` partitions that a text matches, of ``total``."""

    rows: tuple[PartitionFigures, ...]
    matched: int
    total: int


#: What partitions can be sorted by, what is worst first.
ORDERS: Mapping[str, Callable[[PartitionFigures], float]] = MappingProxyType(
    {
        "most data files": lambda p: -p.data_file_count,
        "most bytes": lambda p: -p.size_in_bytes,
        "smallest mean file size": lambda p: p.mean_bytes if p.mean_bytes is not None else float("inf"),
        "most delete records": lambda p: -p.delete_record_count,
    }
)


def partition_figures(facts: TableFacts) -> tuple[PartitionFigures, ...]:
    """Every partition with a live file, in the order of its values."""
    found: dict[Partition, list[int]] = {}
    for group in facts.groups:
        row = found.setdefault(group.partition, [0] * 5)
        if group.kind is Kind.DATA:
            row[0], row[1], row[2] = row[0] + group.file_count, row[1] + group.size_in_bytes, row[2] + group.record_count
        else:
            row[3], row[4] = row[3] + group.file_count, row[4] + group.record_count
    return tuple(PartitionFigures(p, facts.partition_path(p), *found[p]) for p in sorted(found, key=sort_key))


def select(figures: Sequence[PartitionFigures], text: str = "", by: str = "most data files", limit: int = 20) -> Selection:
    """The worst partitions whose path holds every word of a text, in any case.

    ``by`` is one of :data:`ORDERS`; raises :class:`~icekit.errors.ParameterError` for another.
    """
    if by not in ORDERS:
        raise ParameterError(f"Partitions are not sorted by {by!r}{nearest(by, ORDERS) or '; use ' + ', '.join(ORDERS) + '.'}")
    words = text.casefold().split()
    matched = [p for p in figures if all(word in p.path.casefold() for word in words)] if words else figures
    return Selection(tuple(heapq.nsmallest(max(limit, 0), matched, key=ORDERS[by])), len(matched), len(figures))
