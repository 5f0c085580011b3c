"""Collect the file rollup without a JVM, manifest by manifest."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from icekit.facts.manifests import BOUND_FIELDS, FILE_FIELDS, SIZE_FIELDS, Record, entries, is_delete_manifest, may_have_live
from icekit.facts.model import Bucket, Kind, Partition, PartitionSpec, to_scalar
from icekit.facts.rollup import Cut, Rollup, add_sequence, kind_of, range_end

# Reserved field id of file_path in a position delete file (table spec, "Reserved Field IDs").
PATH_FIELD_ID = 2147483546
#: Manifests that are read at once, and so are in memory: an object store takes tens of milliseconds to begin each answer.
_AT_ONCE = 16


def roll_up(
    manifests: Sequence[Record],
    specs: Mapping[int, PartitionSpec],
    cut: Cut,
    read: Callable[[str], bytes],
    width: Callable[[int], int],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Rollup, int]:
    """Count every live file; returns the rollup and the width of its sequence numbers.

    Memory grows with partitions and sequence numbers, not with files: a few manifests are in
    memory at a time, one decoded and the others read ahead. ``width`` gives the sequence width for a number of partitions; without
    deletes, sequence numbers are not counted.
    """
    live = [m for m in manifests if may_have_live(m)]
    with_deletes = any(map(is_delete_manifest, live))
    counting = _Counting(specs, cut, with_deletes)
    contents = _read_ahead(read, [manifest["manifest_path"] for manifest in live])
    for place, manifest in enumerate(live):
        if progress:
            progress(place, len(live))
        counting.add(manifest, next(contents))
    counted, rollup = counting.counted, counting.rollup
    merged: dict[tuple[Partition, Kind], dict[int, list[int]]] = {}
    for (partition, kind, _), buckets in counted.items():
        into = merged.setdefault((partition, kind), {})
        for edge, row in buckets.items():
            _merge(into.setdefault(edge, [0, 0, 0, row[3], row[4]]), row)
    for (partition, kind), buckets in merged.items():
        for edge, row in buckets.items():
            rollup.add_bucket(partition, kind, Bucket(edge, *row))
    step = width(len({partition for partition, _ in merged})) if with_deletes else 1
    if with_deletes:
        _count_sequences(counted, rollup, cut, step)
    return rollup, step


def _read_ahead(read: Callable[[str], bytes], paths: Sequence[str]) -> Iterator[bytes]:
    """The contents of files, in order; while one is used, the next are read."""
    if len(paths) < 2:
        yield from map(read, paths)
        return
    pool, left = ThreadPoolExecutor(_AT_ONCE), iter(paths)
    try:
        reading = deque(pool.submit(read, path) for path in itertools.islice(left, _AT_ONCE))
        while reading:
            content = reading.popleft().result()
            reading.extend(pool.submit(read, path) for path in itertools.islice(left, 1))
            yield content
    finally:
        # After an error or Ctrl+C nobody waits for the reads that have begun.
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class _Counting:
    """The files of manifests, by (partition, kind, sequence number or 0) and bucket edge: [count, bytes, records, min, max]."""

    specs: Mapping[int, PartitionSpec]
    cut: Cut
    with_deletes: bool
    counted: dict[tuple[Partition, Kind, int], dict[int, list[int]]] = field(default_factory=dict)
    rollup: Rollup = field(default_factory=Rollup)

    def add(self, manifest: Record, raw: bytes) -> None:
        """Count the files of a manifest."""
        location, deletes = manifest["manifest_path"], is_delete_manifest(manifest)
        spec, edges = self.specs[manifest["partition_spec_id"]], self.cut.deletes if deletes else self.cut.data
        inherited, with_deletes, counted = manifest.get("sequence_number") or 0, self.with_deletes, self.counted
        known: dict[tuple[Any, ...], Partition] = {}
        fields = _delete_fields(raw, location) if deletes else SIZE_FIELDS
        for entry in entries(raw, location, fields):
            file = entry["data_file"]
            values = tuple(file["partition"].values())
            partition = known.get(values)
            if partition is None:
                partition = known[values] = Partition(spec.spec_id, tuple(to_scalar(v) for v in values))
            if deletes:
                kind = kind_of(file["content"], file["file_format"])
                if kind is Kind.POSITION_DELETES and _is_file_scoped(file):
                    self.rollup.file_scoped[partition] += 1
                elif kind is Kind.EQUALITY_DELETES:
                    self.rollup.add_key(file.get("equality_ids") or (), 1, file["record_count"])
            else:
                kind = Kind.DATA
            size = file["file_size_in_bytes"]
            if kind is Kind.DELETION_VECTORS:
                size = file["content_size_in_bytes"]
            sequence = 0
            if with_deletes:
                own = entry.get("sequence_number")
                sequence = inherited if own is None else own
            buckets = counted.setdefault((partition, kind, sequence), {})
            edge = edges[bisect_right(edges, size) - 1]
            row = buckets.get(edge)
            records = file["record_count"]
            if row is None:
                buckets[edge] = [1, size, records, size, size]
            else:
                row[0] += 1
                row[1] += size
                row[2] += records
                if size < row[3]:
                    row[3] = size
                elif size > row[4]:
                    row[4] = size


def _delete_fields(raw: bytes, location: str) -> frozenset[str]:
    """The fields to read: bounds only if they show whether a position delete file names a single data file.

    A first pass without bounds costs a fraction of reading the bounds of equality deletes.
    """
    for entry in entries(raw, location, FILE_FIELDS - SIZE_FIELDS):
        file = entry["data_file"]
        if kind_of(file["content"], file["file_format"]) is Kind.POSITION_DELETES and file.get("referenced_data_file") is None:
            return FILE_FIELDS | BOUND_FIELDS
    return FILE_FIELDS


def _is_file_scoped(file: Record) -> bool:
    """Tell whether a delete file names a single data file: directly, or by equal bounds of its path column.

    Source: ContentFileUtil.referencedDataFile.
    """
    if file.get("referenced_data_file") is not None:
        return True
    lower, upper = _bound(file.get("lower_bounds")), _bound(file.get("upper_bounds"))
    return lower is not None and lower == upper


def _bound(pairs: Iterator[Record] | None) -> bytes | None:
    return next((pair["value"] for pair in pairs or () if pair["key"] == PATH_FIELD_ID), None)


def _merge(into: list[int], row: list[int]) -> None:
    into[0] += row[0]
    into[1] += row[1]
    into[2] += row[2]
    into[3] = min(into[3], row[3])
    into[4] = max(into[4], row[4])


def _count_sequences(counted: Mapping[tuple[Partition, Kind, int], dict[int, list[int]]], rollup: Rollup, cut: Cut, width: int) -> None:
    low, high = cut.well_sized
    for (partition, kind, sequence), buckets in counted.items():
        files = records = well_files = well_bytes = 0
        for count, size, rows, smallest, largest in buckets.values():
            files += count
            records += rows
            # Both limits are bucket edges, so no bucket crosses them.
            if low <= smallest and largest <= high:
                well_files += count
                well_bytes += size
        add_sequence(rollup.by_sequence[partition, range_end(sequence, width)], kind, files, records, well_files, well_bytes)
