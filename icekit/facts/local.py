"""Collect the file rollup without a JVM, manifest by manifest."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from icekit.facts.counts import Rollup, add
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind, Partition
from icekit.facts.integrity import DeleteState, NarrowManifest
from icekit.facts.key_bounds import KeyColumn, Keyed, compared, longs
from icekit.facts.local_deletes import (
    DATA_FIELDS,
    DELETE_FIELDS,
    NEVER,
    KeyReader,
    ScopedDeletes,
    delete_columns,
    file_identity,
    name_contradictions,
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
from icekit.facts.rollup import kind_of
from icekit.facts.values import partition_of


def roll_up(
    rollup: Rollup,
    read: Callable[[str], bytes],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Count every live file.

    Memory grows with partitions, sequence numbers and deletes that name a single data file, and by
    8 bytes a file: a few manifests are in memory at a time, one decoded and the others read
    ahead. Manifests are read again only to name what contradicts itself. Without deletes, sequence
    numbers are not counted. Key bounds are read only if there are equality deletes, and only those
    of their keys.
    """
    # Deletes first, to know whether any names a data file.
    live = sorted(filter(may_have_live, rollup.manifests), key=is_delete_manifest, reverse=True)
    counting = _Counting(rollup, rollup.has_deletes)
    contents = read_ahead(read, [manifest["manifest_path"] for manifest in live])
    narrow: list[NarrowManifest] = []
    for index, manifest in enumerate(live):
        if progress:
            progress(index, len(live))
        count = counting.add_deletes if is_delete_manifest(manifest) else counting.add_data
        fields = rollup.specs[manifest["partition_spec_id"]].fields
        partitions = count(manifest, next(contents))
        narrow += narrow_fields(manifest, fields, field_ranges(fields, partitions))
    misplaced = counting.settle()
    if rollup.has_deletes:
        rollup.set_width(len({partition for partition, _, _ in rollup.counted}))
    counting.rule_out()
    rollup.add_up()
    rollup.integrity = of_manifests(rollup.manifests, narrow)
    repeated = repeated_hashes(counting.files)
    if repeated or misplaced:
        rollup.integrity = name_contradictions(rollup.integrity, live, read, repeated, misplaced)


@dataclass
class _Counting:
    """Counts the files of manifests, and gathers what shows which deletes apply."""

    rollup: Rollup
    has_deletes: bool
    #: A hash of each file, to find those that are listed twice.
    files: array[int] = field(default_factory=longs)
    scoped: ScopedDeletes = field(default_factory=ScopedDeletes)
    numbers: dict[Partition, int] = field(default_factory=dict)
    #: The columns of equality delete keys that are compared, and the numbers of the partitions to
    # which the deletes may apply; None for all.
    keyed: dict[int, KeyColumn] = field(default_factory=dict)
    keyed_partitions: set[int] | None = field(default_factory=set)
    keyed_data: Keyed | None = None
    keyed_deletes: dict[tuple[int, ...], Keyed] = field(default_factory=dict)

    def add_data(self, manifest: Record, raw: bytes) -> Iterable[tuple[Any, ...]]:
        """Count the data files of a manifest; returns the values of their partitions."""
        spec, edges = self.rollup.specs[manifest["partition_spec_id"]], self.rollup.cut.edges
        inherited, has_deletes = manifest.get("sequence_number") or 0, self.has_deletes
        counted, files, scoped = self.rollup.counted, self.files, self.scoped
        known: dict[tuple[Any, ...], tuple[Partition, int]] = {}
        reader, keyed_partitions = KeyReader(self.keyed), self.keyed_partitions
        keyed = self.keyed_data = self.keyed_data or Keyed.of(self.keyed)
        for entry in entries(raw, manifest["manifest_path"], DATA_FIELDS, of_columns=reader.fields):
            file = entry["data_file"]
            values = tuple(file["partition"].values())
            partition, number = known.get(values) or self._known(known, spec, values)
            path = file["file_path"]
            files.append(hash(path))
            sequence = 0
            if has_deletes:
                own = entry.get("sequence_number")
                sequence = inherited if own is None else own
                if reader.fields and (keyed_partitions is None or number in keyed_partitions):
                    reader.add(file, keyed, keyed.row(number, sequence))
                if scoped.oldest:
                    scoped.meet(path, number, sequence)
            size, records = file["file_size_in_bytes"], file["record_count"]
            _count(counted[partition, Kind.DATA, sequence], edges, size, records)
        return known

    def add_deletes(self, manifest: Record, raw: bytes) -> Iterable[tuple[Any, ...]]:
        """Count the delete files of a manifest, except those of a single data file, which are
        settled when all data files are known; returns the values of their partitions.
        """
        spec = self.rollup.specs[manifest["partition_spec_id"]]
        inherited, scoped = manifest.get("sequence_number") or 0, self.scoped
        known: dict[tuple[Any, ...], tuple[Partition, int]] = {}
        names_paths, keys = delete_columns(raw, manifest["manifest_path"])
        of_keys = compared(self.rollup.columns, keys)
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
            if kind is Kind.EQUALITY_DELETES:
                self._add_keys(file, reader, partition, sequence)
            elif (named := named_data_file(file)) is not None:
                scoped.add(named, number, sequence)
                scoped.files.append(identity)
                scoped.sizes.append(size)
                scoped.records.append(records)
                scoped.is_vector.append(kind is Kind.DELETION_VECTORS)
                continue
            self._count_deletes((partition, kind, sequence), size, records)
        return known

    def _add_keys(
        self, file: Record, reader: KeyReader, partition: Partition, sequence: int
    ) -> None:
        """Add what the keys of an equality delete file may be."""
        key, number = tuple(sorted(file.get("equality_ids") or ())), self.numbers[partition]
        self.rollup.add_key(key, 1, file["record_count"])
        keyed = self.keyed_deletes.get(key)
        if keyed is None:
            keyed = self.keyed_deletes[key] = Keyed.of(c for c in key if c in self.keyed)
        row = keyed.row(number, sequence)
        if not keyed.files[row]:
            if self.rollup.is_global(partition):
                self.keyed_partitions = None
            elif self.keyed_partitions is not None:
                self.keyed_partitions.add(number)
        keyed.files[row] += 1
        keyed.records[row] += file["record_count"]
        reader.add(file, keyed, row)

    def _count_deletes(self, key: tuple[Partition, Kind, int], size: int, records: int) -> None:
        _count(self.rollup.counted[key], (0,), size, records)

    def settle(self) -> dict[int, DeleteState]:
        """Count the delete files that name a data file, and set those apart that apply to nothing;
        returns the misplaced ones.
        """
        scoped, partitions = self.scoped, list(self.numbers)
        misplaced: dict[int, DeleteState] = {}
        for index, state in enumerate(scoped.states()):
            partition = partitions[scoped.partitions[index]]
            kind = Kind.DELETION_VECTORS if scoped.is_vector[index] else Kind.POSITION_DELETES
            size, records = scoped.sizes[index], scoped.records[index]
            if state is not None:
                add(self.rollup.unapplied[partition, kind, state], 1, size, records)
                if state is not DeleteState.DANGLING:
                    misplaced[scoped.files[index]] = state
                continue
            self.rollup.file_scoped[partition, kind] += 1
            self._count_deletes((partition, kind, scoped.sequences[index]), size, records)
        self._set_older_apart()
        return misplaced

    def rule_out(self) -> None:
        """Compare the key bounds of equality deletes with those of data."""
        if not self.keyed or self.keyed_data is None:
            return
        partitions, width = list(self.numbers), self.rollup.width
        data, deletes = self.keyed_data, self.keyed_deletes
        if width > 1:
            equality = Kind.EQUALITY_DELETES
            data = data.within(width, lambda _, __: True)
            deletes = {
                k: d.within(width, lambda n, s: (partitions[n], equality, s) in self.rollup.counted)
                for k, d in deletes.items()
            }
        self.rollup.rule_out(self.numbers, data, deletes)

    def _set_older_apart(self) -> None:
        """Set the deletes apart that are older than all data they could apply to (table spec, "Scan
        Planning").
        """
        oldest: dict[Partition, int] = {}
        for partition, kind, sequence in self.rollup.counted:
            if kind is Kind.DATA:
                oldest[partition] = min(sequence, oldest.get(partition, NEVER))
        oldest_of_all = min(oldest.values(), default=NEVER)

        def is_older(partition: Partition, kind: Kind, sequence: int) -> bool:
            if kind is Kind.EQUALITY_DELETES:
                is_global = self.rollup.is_global(partition)
                return sequence <= (oldest_of_all if is_global else oldest.get(partition, NEVER))
            return kind is not Kind.DATA and sequence < oldest.get(partition, NEVER)

        self.rollup.set_apart(DeleteState.DANGLING, is_older)

    def _known(
        self,
        known: dict[tuple[Any, ...], tuple[Partition, int]],
        spec: PartitionSpec,
        values: tuple[Any, ...],
    ) -> tuple[Partition, int]:
        partition = partition_of(spec.spec_id, values)
        known[values] = partition, self.numbers.setdefault(partition, len(self.numbers))
        return known[values]


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
