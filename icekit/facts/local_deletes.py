"""Find which deletes apply, and which are misplaced, without a JVM."""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from icekit.facts.counts import Rollup
from icekit.facts.files import Kind, Partition
from icekit.facts.integrity import (
    EXAMPLES,
    DeleteState,
    DuplicateFile,
    file_name,
    misplaced_deletes,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, decode, longs
from icekit.facts.manifests import (
    BOUND_FIELDS,
    FILE_FIELDS,
    NULL_FIELDS,
    SIZE_FIELDS,
    FileCounts,
    Record,
    entries,
    files_of,
    is_delete_manifest,
)
from icekit.facts.rollup import kind_of

# Reserved field id of file_path in a position delete file (table spec, "Reserved Field IDs").
PATH_FIELD_ID = 2147483546
# The order of sequence numbers of no data file.
NEVER = 2**63 - 1


@dataclass
class ScopedDeletes:
    """The delete files that name a single data file, column by column: hashes of that file's path,
    and of its partition and name, and the delete's own figures.

    ``oldest`` has the sequence number and partition of the oldest data file at each path that a
    delete names, ``alike`` the sequence number of the oldest one of the same name and partition;
    ``NEVER`` without one.
    """

    paths: array[int] = field(default_factory=longs)
    names: array[int] = field(default_factory=longs)
    partitions: array[int] = field(default_factory=longs)
    sequences: array[int] = field(default_factory=longs)
    files: array[int] = field(default_factory=longs)
    sizes: array[int] = field(default_factory=longs)
    records: array[int] = field(default_factory=longs)
    is_vector: array[int] = field(default_factory=longs)
    oldest: dict[int, tuple[int, int]] = field(default_factory=dict)
    alike: dict[int, int] = field(default_factory=dict)

    def add(self, path: str, partition: int, sequence: int) -> None:
        """Add the data file that a delete names."""
        self.paths.append(hash(path))
        self.names.append(name_hash(partition, path))
        self.partitions.append(partition)
        self.sequences.append(sequence)
        self.oldest[self.paths[-1]] = NEVER, -1
        self.alike[self.names[-1]] = NEVER

    def meet(self, path: str, partition: int, sequence: int) -> None:
        """Note a data file, of which all are met once all deletes are added."""
        if (oldest := self.oldest.get(hash(path))) is not None and sequence < oldest[0]:
            self.oldest[hash(path)] = sequence, partition
        name = name_hash(partition, path)
        if sequence < self.alike.get(name, 0):
            self.alike[name] = sequence

    def states(self) -> Iterator[DeleteState | None]:
        """Why each delete applies to nothing; None if it applies.

        A delete applies to the live data file that has exactly the path it names, is not newer, and
        has its spec and partition (DeleteFileIndex).
        """
        for path, name, partition, sequence in zip(
            self.paths, self.names, self.partitions, self.sequences, strict=True
        ):
            oldest, of = self.oldest[path]
            if oldest == NEVER and self.alike[name] <= sequence:
                yield DeleteState.UNMATCHED
            elif oldest > sequence:
                yield DeleteState.DANGLING
            else:
                yield None if of == partition else DeleteState.MISFILED


def name_hash(partition: int, path: str) -> int:
    """A hash of a file's name in its partition."""
    return hash((partition, file_name(path)))


def named_data_file(file: Record) -> str | None:
    """The path of the only data file that a position delete file or deletion vector names, directly
    or by equal bounds of its path column.

    Source: ContentFileUtil.referencedDataFile. The bounds are those of the path column, if they
    were read, and maybe of others.
    """
    if (path := file.get("referenced_data_file")) is not None:
        return str(path)
    (lower, *_), (upper, *_) = (file.get(f"{end}_bounds") or (None,) for end in ("lower", "upper"))
    return lower.decode(errors="replace") if lower is not None and lower == upper else None


class KeyReader:
    """Reads the bounds and null counts of some columns from the entries of a manifest: those of
    keys, after those of paths if these are wanted.
    """

    def __init__(self, columns: Mapping[int, KeyColumn], names_paths: bool = False) -> None:
        first = (PATH_FIELD_ID,) if names_paths else ()
        self.skipped = len(first)
        self.columns = [
            (each, decode(column.type) or bytes, column.required)
            for each, column in columns.items()
        ]
        self.none = (None,) * (len(first) + len(columns))
        names = (BOUND_FIELDS if self.none else frozenset()) | (
            NULL_FIELDS if any(not c.required for c in columns.values()) else frozenset()
        )
        self.fields = dict.fromkeys(names, (*first, *columns))

    def add(self, file: Record, keyed: Keyed, row: int) -> None:
        """Add a file to a row."""
        none, index, columns = self.none, self.skipped, keyed.columns
        lows, highs = file.get("lower_bounds") or none, file.get("upper_bounds") or none
        nulls, values = file.get("null_value_counts") or none, file.get("value_counts") or none
        for column, read, required in self.columns:
            if column in columns:
                low, high = lows[index], highs[index]
                if low is not None and high is not None:
                    low, high = read(low), read(high)
                columns[column].add(row, low, high, nulls[index], values[index], required)
            index += 1


def delete_columns(raw: bytes, location: str) -> tuple[bool, set[tuple[int, ...]]]:
    """Whether bounds of paths show which data file a position delete file names, and the keys of
    the equality deletes.

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


DATA_FIELDS = SIZE_FIELDS | {"file_path"}
DELETE_FIELDS = FILE_FIELDS | {"file_path", "content_offset"}


def repeated_hashes(hashes: Iterable[int]) -> frozenset[int]:
    """The hashes that are there more than once."""
    known: set[int] = set()
    repeated: set[int] = set()
    for each in hashes:
        (repeated if each in known else known).add(each)
    return frozenset(repeated)


def file_identity(file: Record) -> int:
    """A hash that tells a delete file from others: a Puffin file holds many deletion vectors."""
    return hash((file["file_path"], file.get("content_offset")))


_File = tuple[Kind, str, int | None]


@dataclass
class Naming:
    """A second reading of the ``live`` manifests, to name the files that are listed more than once
    (by their hashes) and the deletes that are misplaced.
    """

    rollup: Rollup
    live: Sequence[Record]
    read: Callable[[str], bytes]
    repeated: frozenset[int]
    misplaced: Mapping[int, DeleteState]

    def add(self) -> None:
        """Add the counts of what is listed more than once, and examples, to the rollup."""
        # By kind, path and offset: for each entry, the snapshot that added it, and the records.
        entries_of: dict[_File, list[tuple[int, int]]] = defaultdict(list)
        partitions: set[Partition] = set()
        misplaced: list[tuple[str, str, DeleteState, Partition, int]] = []
        for manifest in self.live:
            for file, partition, snapshot_id in self._files(manifest):
                is_data = not is_delete_manifest(manifest)
                identity = hash(file["file_path"]) if is_data else file_identity(file)
                if identity in self.repeated:
                    kind = Kind.DATA if is_data else kind_of(file["content"], file["file_format"])
                    key = kind, file["file_path"], file.get("content_offset")
                    entries_of[key].append((snapshot_id or 0, file["record_count"]))
                    partitions.add(partition)
                if not is_data and (state := self.misplaced.get(identity)) is not None:
                    path, named = file["file_path"], named_data_file(file) or ""
                    misplaced.append((path, named, state, partition, snapshot_id or 0))
            misplaced = heapq.nsmallest(EXAMPLES, misplaced, key=lambda each: each[:2])
        files = {key: listed for key, listed in entries_of.items() if len(listed) > 1}
        data = [key for key in files if key[0] is Kind.DATA]
        self.rollup.add_duplicates(
            FileCounts(len(data), len(files) - len(data)),
            sum(sum(records for _, records in files[key][1:]) for key in data),
            partitions,
            (
                DuplicateFile(
                    key[1], key[0], len(files[key]), tuple(sorted({each for each, _ in files[key]}))
                )
                for key in heapq.nsmallest(EXAMPLES, files, key=lambda key: (key[1], key[2] or 0))
            ),
        )
        if misplaced:
            self.rollup.integrity = replace(
                self.rollup.integrity,
                misplaced=misplaced_deletes(misplaced, self._named(misplaced)),
            )

    def _files(self, manifest: Record) -> Iterator[tuple[Record, Partition, int | None]]:
        """The files of a manifest, with their partition and the snapshot that added them."""
        is_deletes = is_delete_manifest(manifest)
        fields, paths = DELETE_FIELDS if is_deletes else DATA_FIELDS, KeyReader({}, is_deletes)
        return files_of(manifest, self.read(manifest["manifest_path"]), fields, paths.fields)

    def _named(self, misplaced: Iterable[tuple[Any, ...]]) -> dict[str, Partition]:
        """The live data files of the same names as those that deletes name."""
        names = {file_name(named) for _, named, *_ in misplaced}
        return {
            file["file_path"]: partition
            for manifest in self.live
            if not is_delete_manifest(manifest)
            for file, partition, _ in self._files(manifest)
            if file_name(file["file_path"]) in names
        }
