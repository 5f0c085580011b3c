"""Find which deletes apply, and which are misplaced, without a JVM."""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from icekit.facts.files import Kind, Partition
from icekit.facts.integrity import (
    EXAMPLES,
    MOST_PARTITIONS,
    DeleteState,
    DuplicateFile,
    Integrity,
    MisplacedDelete,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, decode, longs
from icekit.facts.manifests import (
    BOUND_FIELDS,
    FILE_FIELDS,
    NULL_FIELDS,
    SIZE_FIELDS,
    Record,
    entries,
    files_of,
    is_delete_manifest,
)
from icekit.facts.rollup import kind_of, sort_key

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


def file_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


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


def name_contradictions(
    integrity: Integrity,
    live: Sequence[Record],
    read: Callable[[str], bytes],
    repeated: frozenset[int],
    misplaced: Mapping[int, DeleteState],
) -> Integrity:
    """Add the files that are listed more than once (``repeated`` hashes), and a few of the
    misplaced deletes (by their hashes), from a second reading of the ``live`` manifests.
    """
    # By path, offset and kind: for each entry, the snapshot that added it, and the records.
    listed: dict[tuple[str, int, Kind], list[tuple[int, int]]] = defaultdict(list)
    partitions: set[Partition] = set()
    deletes: list[tuple[str, str, DeleteState, Partition, int]] = []
    for manifest in live:
        is_data = not is_delete_manifest(manifest)
        for file, partition, snapshot_id in _files(manifest, read):
            path, added_by = file["file_path"], snapshot_id or 0
            identity = hash(path) if is_data else file_identity(file)
            if identity in repeated:
                kind = Kind.DATA if is_data else kind_of(file["content"], file["file_format"])
                key = path, file.get("content_offset") or 0, kind
                listed[key].append((added_by, file["record_count"]))
                partitions.add(partition)
            if not is_data and (state := misplaced.get(identity)) is not None:
                deletes.append((path, named_data_file(file) or "", state, partition, added_by))
        deletes = heapq.nsmallest(EXAMPLES, deletes, key=lambda each: each[:2])
    files = {key: entries for key, entries in listed.items() if len(entries) > 1}
    of_data = [entries for (_, _, kind), entries in files.items() if kind is Kind.DATA]
    is_bounded = len(partitions) <= MOST_PARTITIONS
    return replace(
        integrity,
        duplicate_data_file_count=len(of_data),
        duplicate_delete_file_count=len(files) - len(of_data),
        duplicate_record_count=sum(records for entries in of_data for _, records in entries[1:]),
        duplicate_partitions=tuple(sorted(partitions, key=sort_key)) if is_bounded else (),
        duplicates=tuple(
            DuplicateFile(path, kind, len(entries), tuple(sorted({each for each, _ in entries})))
            for (path, _, kind), entries in heapq.nsmallest(EXAMPLES, files.items())
        ),
        misplaced=tuple(_located(deletes, live, read)),
    )


def _files(
    manifest: Record, read: Callable[[str], bytes]
) -> Iterator[tuple[Record, Partition, int | None]]:
    """The files of a manifest, with their partition and the snapshot that added them."""
    is_deletes = is_delete_manifest(manifest)
    fields, paths = DELETE_FIELDS if is_deletes else DATA_FIELDS, KeyReader({}, is_deletes)
    return files_of(manifest, read(manifest["manifest_path"]), fields, paths.fields)


def _located(
    deletes: Sequence[tuple[str, str, DeleteState, Partition, int]],
    live: Sequence[Record],
    read: Callable[[str], bytes],
) -> Iterator[MisplacedDelete]:
    """Deletes (path, path of the data file that it names, state, partition, snapshot id), each with
    that live data file, or the one in its place.
    """
    names = {file_name(named) for _, named, *_ in deletes}
    # Live data files of the same names.
    data = {
        file["file_path"]: partition
        for manifest in live
        if names and not is_delete_manifest(manifest)
        for file, partition, _ in _files(manifest, read)
        if file_name(file["file_path"]) in names
    }
    for path, named, state, partition, snapshot_id in deletes:
        data_path = named
        if state is DeleteState.UNMATCHED:
            alike = (p for p in data if data[p] == partition and file_name(p) == file_name(named))
            data_path = min(alike, default=named)
        data_partition = data.get(data_path, partition)
        yield MisplacedDelete(state, path, partition, named, data_path, data_partition, snapshot_id)
