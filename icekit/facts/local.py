"""Collect the file rollup without a JVM, manifest by manifest."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Bucket, Kind, Partition
from icekit.facts.integrity import DeleteState, NarrowManifest
from icekit.facts.key_bounds import KeyColumn, Keyed, Spans, compared, range_end, rule_out
from icekit.facts.local_deletes import (
    DATA_FIELDS,
    DELETE_FIELDS,
    NEVER,
    DataFiles,
    KeyReader,
    Naming,
    ScopedDeletes,
    delete_columns,
    file_identity,
    name_hash,
    named_data_file,
    repeated_hashes,
)
from icekit.facts.manifests import (
    Record,
    entries,
    field_ranges,
    is_delete_manifest,
    may_have_live,
    narrow_fields,
    of_manifests,
    read_ahead,
)
from icekit.facts.rollup import Cut, Rollup, add_sequence, kind_of
from icekit.facts.values import partition_of


def roll_up(
    manifests: Sequence[Record],
    specs: Mapping[int, PartitionSpec],
    cut: Cut,
    read: Callable[[str], bytes],
    width: Callable[[int], int],
    progress: Callable[[int, int], None] | None = None,
    columns: Mapping[int, KeyColumn] = MappingProxyType({}),
) -> tuple[Rollup, int]:
    """Count every live file; returns the rollup and the width of its sequence numbers.

    Memory grows with partitions and sequence numbers, and by 8 bytes a file (36 where deletes name
    a single data file): a few manifests are in memory at a time, one decoded and the others read
    ahead. Manifests are read again only to name what contradicts itself. ``width`` gives the
    sequence width for a number of partitions; without deletes, sequence numbers are not counted.
    Key bounds are read only if there are equality deletes, and only those of their keys;
    ``columns`` are the table's, by field id.
    """
    # Deletes first, to know whether any names a data file.
    live = sorted((m for m in manifests if may_have_live(m)), key=is_delete_manifest, reverse=True)
    with_deletes = any(map(is_delete_manifest, live))
    counting = _Counting(specs, cut, with_deletes, columns)
    contents = read_ahead(read, [manifest["manifest_path"] for manifest in live])
    for place, manifest in enumerate(live):
        if progress:
            progress(place, len(live))
        (counting.add_deletes if is_delete_manifest(manifest) else counting.add_data)(
            manifest, next(contents)
        )
    states = counting.settle()
    counted, rollup = counting.counted, counting.rollup
    step = width(len({partition for partition, _, _ in counted})) if with_deletes else 1
    counting.rule_out(step)
    merged: dict[tuple[Partition, Kind], dict[int, list[int]]] = {}
    for (partition, kind, _), buckets in counted.items():
        into = merged.setdefault((partition, kind), {})
        for edge, row in buckets.items():
            _merge(into.setdefault(edge, [0, 0, 0, row[3], row[4]]), row)
    for (partition, kind), buckets in merged.items():
        for edge, row in buckets.items():
            rollup.add_bucket(partition, kind, Bucket(edge, *row))
    if with_deletes:
        _count_sequences(counted, rollup, cut, step)
    rollup.integrity = of_manifests(manifests, counting.narrow)
    twice = repeated_hashes(counting.files)
    if twice or states:
        rollup.integrity = Naming(specs, twice, states).named(rollup.integrity, live, read)
    return rollup, step


@dataclass
class _Counting:
    """The files of manifests, by (partition, kind, sequence number or 0) and bucket edge: [count,
    bytes, records, min, max].
    """

    specs: Mapping[int, PartitionSpec]
    cut: Cut
    with_deletes: bool
    columns: Mapping[int, KeyColumn]
    counted: dict[tuple[Partition, Kind, int], dict[int, list[int]]] = field(default_factory=dict)
    rollup: Rollup = field(default_factory=Rollup)
    #: A hash of each file, to find those that are listed twice.
    files: array[int] = field(default_factory=lambda: array("q"))
    data: DataFiles = field(default_factory=DataFiles)
    scoped: ScopedDeletes = field(default_factory=ScopedDeletes)
    numbers: dict[Partition, int] = field(default_factory=dict)
    narrow: list[NarrowManifest] = field(default_factory=list)
    # : The columns of equality delete keys that are compared, and the numbers of the partitions to
    # which the deletes may apply; None for all.
    keyed: dict[int, KeyColumn] = field(default_factory=dict)
    keyed_partitions: set[int] | None = field(default_factory=set)
    keyed_data: Keyed | None = None
    keyed_deletes: dict[tuple[int, ...], Keyed] = field(default_factory=dict)

    def add_data(self, manifest: Record, raw: bytes) -> None:
        """Count the data files of a manifest."""
        spec, edges, files = self.specs[manifest["partition_spec_id"]], self.cut.data, self.files
        inherited, with_deletes, counted = (
            manifest.get("sequence_number") or 0,
            self.with_deletes,
            self.counted,
        )
        data, is_named = self.data, len(self.scoped.files) > 0
        known: dict[tuple[Any, ...], tuple[Partition, int]] = {}
        reader, keyed_partitions = KeyReader(self.keyed), self.keyed_partitions
        keyed = self.keyed_data = self.keyed_data or Keyed(
            {column: Spans() for column in self.keyed}
        )
        for entry in entries(raw, manifest["manifest_path"], DATA_FIELDS, of_columns=reader.fields):
            file = entry["data_file"]
            values = tuple(file["partition"].values())
            partition, number = known.get(values) or self._known(known, spec, values)
            path = file["file_path"]
            files.append(hash(path))
            sequence = 0
            if with_deletes:
                own = entry.get("sequence_number")
                sequence = inherited if own is None else own
                if reader.fields and (keyed_partitions is None or number in keyed_partitions):
                    reader.add(file, keyed, keyed.row(number, sequence))
                if is_named:
                    data.paths.append(hash(path))
                    data.names.append(name_hash(number, path))
                    data.partitions.append(number)
                    data.sequences.append(sequence)
            size, records = file["file_size_in_bytes"], file["record_count"]
            _count(counted.setdefault((partition, Kind.DATA, sequence), {}), edges, size, records)
        self._check_summary(manifest, spec, known)

    def add_deletes(self, manifest: Record, raw: bytes) -> None:
        """Count the delete files of a manifest, except those of a single data file, which are
        settled when all data files are known.
        """
        spec, inherited, scoped = (
            self.specs[manifest["partition_spec_id"]],
            manifest.get("sequence_number") or 0,
            self.scoped,
        )
        known: dict[tuple[Any, ...], tuple[Partition, int]] = {}
        names_paths, keys = delete_columns(raw, manifest["manifest_path"])
        of_keys = compared(self.columns, keys)
        self.keyed.update(of_keys)
        reader = KeyReader(of_keys, names_paths)
        for entry in entries(
            raw, manifest["manifest_path"], DELETE_FIELDS, of_columns=reader.fields
        ):
            file = entry["data_file"]
            values = tuple(file["partition"].values())
            partition, number = known.get(values) or self._known(known, spec, values)
            kind = kind_of(file["content"], file["file_format"])
            own, records = entry.get("sequence_number"), file["record_count"]
            sequence = inherited if own is None else own
            size = file[
                "content_size_in_bytes" if kind is Kind.DELETION_VECTORS else "file_size_in_bytes"
            ]
            identity = file_identity(file)
            self.files.append(identity)
            named = named_data_file(file) if kind is not Kind.EQUALITY_DELETES else None
            if named is None:
                if kind is Kind.EQUALITY_DELETES:
                    key = tuple(sorted(file.get("equality_ids") or ()))
                    self.rollup.add_key(key, 1, records)
                    if spec.is_unpartitioned:
                        self.keyed_partitions = None
                    elif self.keyed_partitions is not None:
                        self.keyed_partitions.add(number)
                    keyed = self.keyed_deletes.get(key)
                    if keyed is None:
                        keyed = self.keyed_deletes[key] = Keyed(
                            {column: Spans() for column in key if column in of_keys}
                        )
                    row = keyed.row(number, sequence)
                    keyed.files[row] += 1
                    keyed.records[row] += records
                    reader.add(file, keyed, row)
                _count(
                    self.counted.setdefault((partition, kind, sequence), {}),
                    self.cut.deletes,
                    size,
                    records,
                )
                continue
            scoped.files.append(identity)
            scoped.paths.append(hash(named))
            scoped.names.append(name_hash(number, named))
            scoped.partitions.append(number)
            scoped.sequences.append(sequence)
            scoped.sizes.append(size)
            scoped.records.append(records)
            scoped.is_vector.append(kind is Kind.DELETION_VECTORS)
        self._check_summary(manifest, spec, known)

    def settle(self) -> dict[int, DeleteState]:
        """Count the delete files that name a data file, and set those apart that apply to nothing;
        returns the misplaced ones.
        """
        scoped, partitions = self.scoped, list(self.numbers)
        misplaced: dict[int, DeleteState] = {}
        states = scoped.states(self.data) if scoped.files else []
        for place, state in enumerate(states):
            partition = partitions[scoped.partitions[place]]
            kind = Kind.DELETION_VECTORS if scoped.is_vector[place] else Kind.POSITION_DELETES
            size, records = scoped.sizes[place], scoped.records[place]
            if state is not None:
                _add(self.rollup.unapplied[partition, kind, state], 1, size, records)
                if state is not DeleteState.DANGLING:
                    misplaced[scoped.files[place]] = state
                continue
            if kind is Kind.POSITION_DELETES:
                self.rollup.file_scoped[partition] += 1
            _count(
                self.counted.setdefault((partition, kind, scoped.sequences[place]), {}),
                self.cut.deletes,
                size,
                records,
            )
        self._set_older_apart()
        return misplaced

    def rule_out(self, width: int) -> None:
        """Set the equality deletes apart whose keys are in no older data file by their bounds, and
        count what bounds rule out of other data.
        """
        if not self.keyed or self.keyed_data is None:
            return
        partitions = list(self.numbers)
        everywhere = {
            number
            for partition, number in self.numbers.items()
            if self.specs[partition.spec_id].is_unpartitioned
        }
        data, deletes = self.keyed_data, self.keyed_deletes
        if width > 1:
            equality = Kind.EQUALITY_DELETES
            data = data.within(width, lambda _, __: True)
            deletes = {
                k: d.within(width, lambda n, s: (partitions[n], equality, s) in self.counted)
                for k, d in deletes.items()
            }
        found = rule_out(data, deletes, everywhere, width == 1)
        for (number, end), counts in found.data.items():
            self.rollup.add_ruled_out(partitions[number], end, *counts)
        for key in [key for key in self.counted if key[1] is Kind.EQUALITY_DELETES]:
            partition, kind, sequence = key
            if (self.numbers[partition], range_end(sequence, width)) in found.deletes:
                for row in self.counted.pop(key).values():
                    _add(self.rollup.unapplied[partition, kind, DeleteState.NEW_KEYS], *row[:3])

    def _set_older_apart(self) -> None:
        """Set the deletes apart that are older than all data they could apply to (table spec, "Scan
        Planning").
        """
        oldest: dict[Partition, int] = {}
        for partition, kind, sequence in self.counted:
            if kind is Kind.DATA:
                oldest[partition] = min(sequence, oldest.get(partition, NEVER))
        oldest_of_all = min(oldest.values(), default=NEVER)
        for key in [key for key in self.counted if key[1] is not Kind.DATA]:
            partition, kind, sequence = key
            is_equality = kind is Kind.EQUALITY_DELETES
            lowest = (
                oldest_of_all
                if is_equality and self.specs[partition.spec_id].is_unpartitioned
                else oldest.get(partition, NEVER)
            )
            if sequence < lowest or (is_equality and sequence == lowest):
                for row in self.counted.pop(key).values():
                    _add(self.rollup.unapplied[partition, kind, DeleteState.DANGLING], *row[:3])

    def _known(
        self,
        known: dict[tuple[Any, ...], tuple[Partition, int]],
        spec: PartitionSpec,
        values: tuple[Any, ...],
    ) -> tuple[Partition, int]:
        partition = partition_of(spec.spec_id, values)
        known[values] = partition, self.numbers.setdefault(partition, len(self.numbers))
        return known[values]

    def _check_summary(
        self, manifest: Record, spec: PartitionSpec, known: Collection[tuple[Any, ...]]
    ) -> None:
        fields = [(f.name, f.result_type) for f in spec.fields]
        self.narrow += narrow_fields(
            manifest, fields, field_ranges([result for _, result in fields], known)
        )


def _count(buckets: dict[int, list[int]], edges: Sequence[int], size: int, records: int) -> None:
    edge = edges[bisect_right(edges, size) - 1]
    row = buckets.get(edge)
    if row is None:
        buckets[edge] = [1, size, records, size, size]
        return
    row[0] += 1
    row[1] += size
    row[2] += records
    if size < row[3]:
        row[3] = size
    elif size > row[4]:
        row[4] = size


def _add(counts: list[int], files: int, size: int, records: int) -> None:
    counts[0] += files
    counts[1] += size
    counts[2] += records


def _merge(into: list[int], row: list[int]) -> None:
    into[0] += row[0]
    into[1] += row[1]
    into[2] += row[2]
    into[3] = min(into[3], row[3])
    into[4] = max(into[4], row[4])


def _count_sequences(
    counted: Mapping[tuple[Partition, Kind, int], dict[int, list[int]]],
    rollup: Rollup,
    cut: Cut,
    width: int,
) -> None:
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
        add_sequence(
            rollup.by_sequence[partition, range_end(sequence, width)],
            kind,
            files,
            records,
            well_files,
            well_bytes,
        )
