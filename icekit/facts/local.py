"""Collect the file rollup without a JVM, manifest by manifest."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Bucket, Kind, Partition
from icekit.facts.integrity import EXAMPLES, MOST_PARTITIONS, DeleteState, DuplicateFile, Integrity, MisplacedDelete, NarrowManifest
from icekit.facts.key_bounds import KeyColumn, Keyed, Spans, compared, decode, range_end, rule_out
from icekit.facts.manifests import (
    BOUND_FIELDS,
    FILE_FIELDS,
    NULL_FIELDS,
    SIZE_FIELDS,
    Record,
    added_by,
    entries,
    field_ranges,
    is_delete_manifest,
    may_have_live,
    narrow_fields,
    of_manifests,
    read_ahead,
)
from icekit.facts.rollup import Cut, Rollup, add_sequence, kind_of, sort_key
from icekit.facts.values import partition_of

# Reserved field id of file_path in a position delete file (table spec, "Reserved Field IDs").
PATH_FIELD_ID = 2147483546
_DATA_FIELDS = SIZE_FIELDS | {"file_path"}
_DELETE_FIELDS = FILE_FIELDS | {"file_path", "content_offset"}
# The order of sequence numbers of no data file.
_NEVER = 2**63 - 1


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

    Memory grows with partitions and sequence numbers, and by 8 bytes a file (36 where deletes name a single data file): a few manifests
    are in memory at a time, one decoded and the others read ahead. Manifests are read again only to name what contradicts itself.
    ``width`` gives the sequence width for a number of partitions; without deletes, sequence numbers are not counted. Key bounds are read
    only if there are equality deletes, and only those of their keys; ``columns`` are the table's, by field id.
    """
    # Deletes first, to know whether any names a data file.
    live = sorted((m for m in manifests if may_have_live(m)), key=is_delete_manifest, reverse=True)
    with_deletes = any(map(is_delete_manifest, live))
    counting = _Counting(specs, cut, with_deletes, columns)
    contents = read_ahead(read, [manifest["manifest_path"] for manifest in live])
    for place, manifest in enumerate(live):
        if progress:
            progress(place, len(live))
        (counting.add_deletes if is_delete_manifest(manifest) else counting.add_data)(manifest, next(contents))
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
    twice = _repeated(counting.files)
    if twice or states:
        rollup.integrity = _Naming(specs, twice, states).named(rollup.integrity, live, read)
    return rollup, step


@dataclass
class _DataFiles:
    """The data files, column by column: hashes of their paths, and of their partitions and names."""

    paths: array[int] = field(default_factory=lambda: array("q"))
    names: array[int] = field(default_factory=lambda: array("q"))
    partitions: array[int] = field(default_factory=lambda: array("i"))
    sequences: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class _Scoped(_DataFiles):
    """The delete files that name a single data file, column by column: that file's path and name, and the delete's own figures."""

    files: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    records: array[int] = field(default_factory=lambda: array("q"))
    is_vector: array[int] = field(default_factory=lambda: array("b"))

    def states(self, data: _DataFiles) -> list[DeleteState | None]:
        """Why each delete applies to nothing; None if it applies.

        A delete applies to the live data file that has exactly the path it names, is not newer, and has its spec and partition
        (DeleteFileIndex).
        """
        named, partitions = _oldest(data.paths, data.sequences, data.partitions)(self.paths)
        alike, _ = _oldest(data.names, data.sequences, data.partitions)(self.names)
        sequences = np.frombuffer(self.sequences, np.int64)
        is_live, is_older, is_beside = named != _NEVER, named <= sequences, partitions == np.frombuffer(self.partitions, np.int32)
        code = np.where(is_live, np.where(is_older, np.where(is_beside, 0, 2), 1), np.where(alike <= sequences, 3, 1))
        known = (None, DeleteState.DANGLING, DeleteState.MISFILED, DeleteState.UNMATCHED)
        return [known[each] for each in code]


def _oldest(keys: array[int], sequences: array[int], partitions: array[int]) -> Callable[[array[int]], tuple[Any, Any]]:
    """A function from keys to the lowest sequence number of a file with the key, and that file's partition; ``_NEVER`` and -1 without one."""
    ordered = np.lexsort((np.frombuffer(sequences, np.int64), np.frombuffer(keys, np.int64)))
    sorted_keys = np.frombuffer(keys, np.int64)[ordered]

    def find(wanted: array[int]) -> tuple[Any, Any]:
        asked = np.frombuffer(wanted, np.int64)
        if not len(sorted_keys):
            return np.full(len(asked), _NEVER), np.full(len(asked), -1)
        first = np.minimum(np.searchsorted(sorted_keys, asked), len(sorted_keys) - 1)
        is_there, file = sorted_keys[first] == asked, ordered[first]
        return (
            np.where(is_there, np.frombuffer(sequences, np.int64)[file], _NEVER),
            np.where(is_there, np.frombuffer(partitions, np.int32)[file], -1),
        )

    return find


def _repeated(hashes: array[int]) -> frozenset[int]:
    """The hashes that are there more than once."""
    ordered = np.sort(np.frombuffer(hashes, np.int64))
    return frozenset(int(each) for each in ordered[1:][ordered[1:] == ordered[:-1]])


@dataclass
class _Counting:
    """The files of manifests, by (partition, kind, sequence number or 0) and bucket edge: [count, bytes, records, min, max]."""

    specs: Mapping[int, PartitionSpec]
    cut: Cut
    with_deletes: bool
    columns: Mapping[int, KeyColumn]
    counted: dict[tuple[Partition, Kind, int], dict[int, list[int]]] = field(default_factory=dict)
    rollup: Rollup = field(default_factory=Rollup)
    #: A hash of each file, to find those that are listed twice.
    files: array[int] = field(default_factory=lambda: array("q"))
    data: _DataFiles = field(default_factory=_DataFiles)
    scoped: _Scoped = field(default_factory=_Scoped)
    numbers: dict[Partition, int] = field(default_factory=dict)
    narrow: list[NarrowManifest] = field(default_factory=list)
    #: The columns of equality delete keys that are compared, and the numbers of the partitions to which the deletes may apply; None for all.
    keyed: dict[int, KeyColumn] = field(default_factory=dict)
    keyed_partitions: set[int] | None = field(default_factory=set)
    keyed_data: Keyed | None = None
    keyed_deletes: dict[tuple[int, ...], Keyed] = field(default_factory=dict)

    def add_data(self, manifest: Record, raw: bytes) -> None:
        """Count the data files of a manifest."""
        spec, edges, files = self.specs[manifest["partition_spec_id"]], self.cut.data, self.files
        inherited, with_deletes, counted = manifest.get("sequence_number") or 0, self.with_deletes, self.counted
        data, is_named = self.data, len(self.scoped.files) > 0
        known: dict[tuple[Any, ...], tuple[Partition, int]] = {}
        reader, keyed_partitions = _KeyReader(self.keyed), self.keyed_partitions
        keyed = self.keyed_data = self.keyed_data or Keyed({column: Spans() for column in self.keyed})
        for entry in entries(raw, manifest["manifest_path"], _DATA_FIELDS, of_columns=reader.fields):
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
                    data.names.append(_name_hash(number, path))
                    data.partitions.append(number)
                    data.sequences.append(sequence)
            size, records = file["file_size_in_bytes"], file["record_count"]
            _count(counted.setdefault((partition, Kind.DATA, sequence), {}), edges, size, records)
        self._check_summary(manifest, spec, known)

    def add_deletes(self, manifest: Record, raw: bytes) -> None:
        """Count the delete files of a manifest, except those of a single data file, which are settled when all data files are known."""
        spec, inherited, scoped = self.specs[manifest["partition_spec_id"]], manifest.get("sequence_number") or 0, self.scoped
        known: dict[tuple[Any, ...], tuple[Partition, int]] = {}
        names_paths, keys = _delete_columns(raw, manifest["manifest_path"])
        of_keys = compared(self.columns, keys)
        self.keyed.update(of_keys)
        reader = _KeyReader(of_keys, names_paths)
        for entry in entries(raw, manifest["manifest_path"], _DELETE_FIELDS, of_columns=reader.fields):
            file = entry["data_file"]
            values = tuple(file["partition"].values())
            partition, number = known.get(values) or self._known(known, spec, values)
            kind = kind_of(file["content"], file["file_format"])
            own, records = entry.get("sequence_number"), file["record_count"]
            sequence = inherited if own is None else own
            size = file["content_size_in_bytes" if kind is Kind.DELETION_VECTORS else "file_size_in_bytes"]
            identity = _identity(file)
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
                        keyed = self.keyed_deletes[key] = Keyed({column: Spans() for column in key if column in of_keys})
                    row = keyed.row(number, sequence)
                    keyed.files[row] += 1
                    keyed.records[row] += records
                    reader.add(file, keyed, row)
                _count(self.counted.setdefault((partition, kind, sequence), {}), self.cut.deletes, size, records)
                continue
            scoped.files.append(identity)
            scoped.paths.append(hash(named))
            scoped.names.append(_name_hash(number, named))
            scoped.partitions.append(number)
            scoped.sequences.append(sequence)
            scoped.sizes.append(size)
            scoped.records.append(records)
            scoped.is_vector.append(kind is Kind.DELETION_VECTORS)
        self._check_summary(manifest, spec, known)

    def settle(self) -> dict[int, DeleteState]:
        """Count the delete files that name a data file, and set those apart that apply to nothing; returns the misplaced ones."""
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
            _count(self.counted.setdefault((partition, kind, scoped.sequences[place]), {}), self.cut.deletes, size, records)
        self._set_older_apart()
        return misplaced

    def rule_out(self, width: int) -> None:
        """Set the equality deletes apart whose keys are in no older data file by their bounds, and count what bounds rule out of other data."""
        if not self.keyed or self.keyed_data is None:
            return
        partitions = list(self.numbers)
        everywhere = {number for partition, number in self.numbers.items() if self.specs[partition.spec_id].is_unpartitioned}
        data, deletes = self.keyed_data, self.keyed_deletes
        if width > 1:
            equality = Kind.EQUALITY_DELETES
            data = data.within(width, lambda _, __: True)
            deletes = {k: d.within(width, lambda n, s: (partitions[n], equality, s) in self.counted) for k, d in deletes.items()}
        found = rule_out(data, deletes, everywhere, width == 1)
        for (number, end), counts in found.data.items():
            self.rollup.add_ruled_out(partitions[number], end, *counts)
        for key in [key for key in self.counted if key[1] is Kind.EQUALITY_DELETES]:
            partition, kind, sequence = key
            if (self.numbers[partition], range_end(sequence, width)) in found.deletes:
                for row in self.counted.pop(key).values():
                    _add(self.rollup.unapplied[partition, kind, DeleteState.NEW_KEYS], *row[:3])

    def _set_older_apart(self) -> None:
        """Set the deletes apart that are older than all data they could apply to (table spec, "Scan Planning")."""
        oldest: dict[Partition, int] = {}
        for partition, kind, sequence in self.counted:
            if kind is Kind.DATA:
                oldest[partition] = min(sequence, oldest.get(partition, _NEVER))
        oldest_of_all = min(oldest.values(), default=_NEVER)
        for key in [key for key in self.counted if key[1] is not Kind.DATA]:
            partition, kind, sequence = key
            is_equality = kind is Kind.EQUALITY_DELETES
            lowest = oldest_of_all if is_equality and self.specs[partition.spec_id].is_unpartitioned else oldest.get(partition, _NEVER)
            if sequence < lowest or (is_equality and sequence == lowest):
                for row in self.counted.pop(key).values():
                    _add(self.rollup.unapplied[partition, kind, DeleteState.DANGLING], *row[:3])

    def _known(
        self, known: dict[tuple[Any, ...], tuple[Partition, int]], spec: PartitionSpec, values: tuple[Any, ...]
    ) -> tuple[Partition, int]:
        partition = partition_of(spec.spec_id, values)
        known[values] = partition, self.numbers.setdefault(partition, len(self.numbers))
        return known[values]

    def _check_summary(self, manifest: Record, spec: PartitionSpec, known: Collection[tuple[Any, ...]]) -> None:
        fields = [(f.name, f.result_type) for f in spec.fields]
        self.narrow += narrow_fields(manifest, fields, field_ranges([result for _, result in fields], known))


class _KeyReader:
    """Reads the bounds and null counts of some columns from the entries of a manifest: those of keys, after those of paths if these are wanted."""

    def __init__(self, columns: Mapping[int, KeyColumn], names_paths: bool = False) -> None:
        first = (PATH_FIELD_ID,) if names_paths else ()
        self.skipped = len(first)
        self.columns = [(each, decode(column.type) or bytes, column.required) for each, column in columns.items()]
        self.none = (None,) * (len(first) + len(columns))
        names = (BOUND_FIELDS if self.none else frozenset()) | (
            NULL_FIELDS if any(not c.required for c in columns.values()) else frozenset()
        )
        self.fields = dict.fromkeys(names, (*first, *columns))

    def add(self, file: Record, keyed: Keyed, row: int) -> None:
        """Add a file to a row."""
        none, place, columns = self.none, self.skipped, keyed.columns
        lows, highs = file.get("lower_bounds") or none, file.get("upper_bounds") or none
        nulls, values = file.get("null_value_counts") or none, file.get("value_counts") or none
        for column, read, required in self.columns:
            if column in columns:
                low, high = lows[place], highs[place]
                if low is not None and high is not None:
                    low, high = read(low), read(high)
                columns[column].add(row, low, high, nulls[place], values[place], required)
            place += 1


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


def _name_hash(partition: int, path: str) -> int:
    return hash((partition, path.rpartition("/")[2]))


def _identity(file: Record) -> int:
    """A hash that tells a delete file from others: a Puffin file holds many deletion vectors."""
    return hash((file["file_path"], file.get("content_offset")))


@dataclass
class _Naming:
    """A second reading of the manifests, to name the files that are listed twice and the deletes that are misplaced."""

    specs: Mapping[int, PartitionSpec]
    twice: frozenset[int]
    states: Mapping[int, DeleteState]
    #: By kind, path and offset: [entries, records], and the snapshots that added them.
    repeated: dict[tuple[Kind, str, int | None], list[int]] = field(default_factory=dict)
    snapshots: dict[tuple[Kind, str, int | None], set[int]] = field(default_factory=dict)
    partitions: set[Partition] = field(default_factory=set)

    def named(self, found: Integrity, live: Sequence[Record], read: Callable[[str], bytes]) -> Integrity:
        """The same, with the counts of what is listed twice, and examples."""
        misplaced: list[MisplacedDelete] = []
        for manifest in live:
            raw, spec = read(manifest["manifest_path"]), self.specs[manifest["partition_spec_id"]]
            is_deletes = is_delete_manifest(manifest)
            own = ("status", "snapshot_id")
            fields = _DELETE_FIELDS if is_deletes else _DATA_FIELDS
            paths = _KeyReader({}, is_deletes).fields
            for entry in entries(raw, manifest["manifest_path"], fields, own, paths):
                file = entry["data_file"]
                snapshot_id = added_by(entry, manifest) or 0
                kind = kind_of(file["content"], file["file_format"]) if is_deletes else Kind.DATA
                identity = _identity(file) if is_deletes else hash(file["file_path"])
                values = tuple(file["partition"].values())
                if identity in self.twice:
                    self._repeat((kind, file["file_path"], file.get("content_offset")), file["record_count"], snapshot_id)
                    self.partitions.add(partition_of(spec.spec_id, values))
                if is_deletes and (state := self.states.get(identity)) is not None:
                    partition, named = partition_of(spec.spec_id, values), named_data_file(file) or ""
                    misplaced.append(MisplacedDelete(state, file["file_path"], partition, named, named, partition, snapshot_id))
            misplaced = heapq.nsmallest(EXAMPLES, misplaced, key=lambda each: (each.path, each.named_path))
        files = {key: counts for key, counts in self.repeated.items() if counts[0] > 1}
        data = [counts for key, counts in files.items() if key[0] is Kind.DATA]
        first = heapq.nsmallest(EXAMPLES, files, key=lambda key: (key[1], key[2] or 0))
        return replace(
            found,
            duplicate_data_file_count=len(data),
            duplicate_delete_file_count=len(files) - len(data),
            duplicate_record_count=sum((n - 1) * records for n, records in data),
            duplicate_partitions=tuple(sorted(self.partitions, key=sort_key)) if len(self.partitions) <= MOST_PARTITIONS else (),
            duplicates=tuple(DuplicateFile(key[1], key[0], files[key][0], tuple(sorted(self.snapshots[key]))) for key in first),
            misplaced=tuple(self._with_data(misplaced, live, read)) if misplaced else (),
        )

    def _repeat(self, key: tuple[Kind, str, int | None], records: int, snapshot_id: int) -> None:
        counts = self.repeated.setdefault(key, [0, records])
        counts[0] += 1
        self.snapshots.setdefault(key, set()).add(snapshot_id)

    def _with_data(
        self, misplaced: Sequence[MisplacedDelete], live: Sequence[Record], read: Callable[[str], bytes]
    ) -> Iterator[MisplacedDelete]:
        """The same deletes, each with the data file that it names, or the one in its place."""
        by_path: dict[str, Partition] = {each.named_path: each.partition for each in misplaced}
        by_name: dict[tuple[Partition, str], str] = {}
        names = {file_name(path) for path in by_path}
        for manifest in live:
            if is_delete_manifest(manifest):
                continue
            spec = self.specs[manifest["partition_spec_id"]]
            for entry in entries(read(manifest["manifest_path"]), manifest["manifest_path"], _DATA_FIELDS):
                path = entry["data_file"]["file_path"]
                if file_name(path) not in names:
                    continue
                partition = partition_of(spec.spec_id, entry["data_file"]["partition"].values())
                if path in by_path:
                    by_path[path] = partition
                key = partition, file_name(path)
                by_name[key] = min(path, by_name.get(key, path))
        for each in misplaced:
            if each.state is DeleteState.MISFILED:
                yield replace(each, data_partition=by_path[each.named_path])
            else:
                yield replace(each, data_path=by_name.get((each.partition, file_name(each.named_path)), each.named_path))


def file_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


def _delete_columns(raw: bytes, location: str) -> tuple[bool, set[tuple[int, ...]]]:
    """Whether bounds of paths show which data file a position delete file names, and the keys of the equality deletes.

    A first pass without statistics costs a fraction of reading them.
    """
    names_paths, keys = False, set()
    for entry in entries(raw, location, FILE_FIELDS - SIZE_FIELDS):
        file = entry["data_file"]
        kind = kind_of(file["content"], file["file_format"])
        if kind is Kind.EQUALITY_DELETES:
            keys.add(tuple(file.get("equality_ids") or ()))
        elif file.get("referenced_data_file") is None:
            names_paths = True
    return names_paths, keys


def named_data_file(file: Record) -> str | None:
    """The path of the only data file that a position delete file or deletion vector names, directly or by equal bounds of its path column.

    Source: ContentFileUtil.referencedDataFile. The bounds are those of the path column, if they were read, and maybe of others.
    """
    if (path := file.get("referenced_data_file")) is not None:
        return str(path)
    (lower, *_), (upper, *_) = (file.get(f"{end}_bounds") or (None,) for end in ("lower", "upper"))
    return lower.decode(errors="replace") if lower is not None and lower == upper else None


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
