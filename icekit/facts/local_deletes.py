"""Find which deletes apply, and which are misplaced, without a JVM."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind, Partition
from icekit.facts.integrity import (
    EXAMPLES,
    MOST_PARTITIONS,
    DeleteState,
    DuplicateFile,
    Integrity,
    MisplacedDelete,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, decode
from icekit.facts.manifests import (
    BOUND_FIELDS,
    FILE_FIELDS,
    NULL_FIELDS,
    SIZE_FIELDS,
    Record,
    added_by,
    entries,
    is_delete_manifest,
)
from icekit.facts.rollup import kind_of, sort_key
from icekit.facts.values import partition_of

# Reserved field id of file_path in a position delete file (table spec, "Reserved Field IDs").
PATH_FIELD_ID = 2147483546
# The order of sequence numbers of no data file.
NEVER = 2**63 - 1


@dataclass
class DataFiles:
    """The data files, column by column: hashes of their paths, and of their partitions and
    names.
    """

    paths: array[int] = field(default_factory=lambda: array("q"))
    names: array[int] = field(default_factory=lambda: array("q"))
    partitions: array[int] = field(default_factory=lambda: array("i"))
    sequences: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class ScopedDeletes(DataFiles):
    """The delete files that name a single data file, column by column: that file's path and name,
    and the delete's own figures.
    """

    files: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    records: array[int] = field(default_factory=lambda: array("q"))
    is_vector: array[int] = field(default_factory=lambda: array("b"))

    def states(self, data: DataFiles) -> list[DeleteState | None]:
        """Why each delete applies to nothing; None if it applies.

        A delete applies to the live data file that has exactly the path it names, is not newer, and
        has its spec and partition (DeleteFileIndex).
        """
        named, partitions = _oldest(data.paths, data.sequences, data.partitions)(self.paths)
        alike, _ = _oldest(data.names, data.sequences, data.partitions)(self.names)
        sequences = np.frombuffer(self.sequences, np.int64)
        is_live, is_older, is_beside = (
            named != NEVER,
            named <= sequences,
            partitions == np.frombuffer(self.partitions, np.int32),
        )
        code = np.where(
            is_live,
            np.where(is_older, np.where(is_beside, 0, 2), 1),
            np.where(alike <= sequences, 3, 1),
        )
        known = (None, DeleteState.DANGLING, DeleteState.MISFILED, DeleteState.UNMATCHED)
        return [known[each] for each in code]


def _oldest(
    keys: array[int], sequences: array[int], partitions: array[int]
) -> Callable[[array[int]], tuple[Any, Any]]:
    """A function from keys to the lowest sequence number of a file with the key, and that file's
    partition; ``NEVER`` and -1 without one.
    """
    ordered = np.lexsort((np.frombuffer(sequences, np.int64), np.frombuffer(keys, np.int64)))
    sorted_keys = np.frombuffer(keys, np.int64)[ordered]

    def find(wanted: array[int]) -> tuple[Any, Any]:
        asked = np.frombuffer(wanted, np.int64)
        if not len(sorted_keys):
            return np.full(len(asked), NEVER), np.full(len(asked), -1)
        first = np.minimum(np.searchsorted(sorted_keys, asked), len(sorted_keys) - 1)
        is_there, file = sorted_keys[first] == asked, ordered[first]
        return (
            np.where(is_there, np.frombuffer(sequences, np.int64)[file], NEVER),
            np.where(is_there, np.frombuffer(partitions, np.int32)[file], -1),
        )

    return find


def name_hash(partition: int, path: str) -> int:
    """A hash of a file's name in its partition."""
    return hash((partition, path.rpartition("/")[2]))


def file_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


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


def repeated_hashes(hashes: array[int]) -> frozenset[int]:
    """The hashes that are there more than once."""
    ordered = np.sort(np.frombuffer(hashes, np.int64))
    return frozenset(int(each) for each in ordered[1:][ordered[1:] == ordered[:-1]])


def file_identity(file: Record) -> int:
    """A hash that tells a delete file from others: a Puffin file holds many deletion vectors."""
    return hash((file["file_path"], file.get("content_offset")))


@dataclass
class Naming:
    """A second reading of the manifests, to name the files that are listed twice and the deletes
    that are misplaced.
    """

    specs: Mapping[int, PartitionSpec]
    twice: frozenset[int]
    states: Mapping[int, DeleteState]
    #: By kind, path and offset: [entries, records], and the snapshots that added them.
    repeated: dict[tuple[Kind, str, int | None], list[int]] = field(default_factory=dict)
    snapshots: dict[tuple[Kind, str, int | None], set[int]] = field(default_factory=dict)
    partitions: set[Partition] = field(default_factory=set)

    def named(
        self, found: Integrity, live: Sequence[Record], read: Callable[[str], bytes]
    ) -> Integrity:
        """The same, with the counts of what is listed twice, and examples."""
        misplaced: list[MisplacedDelete] = []
        for manifest in live:
            raw, spec = read(manifest["manifest_path"]), self.specs[manifest["partition_spec_id"]]
            is_deletes = is_delete_manifest(manifest)
            own = ("status", "snapshot_id")
            fields = DELETE_FIELDS if is_deletes else DATA_FIELDS
            paths = KeyReader({}, is_deletes).fields
            for entry in entries(raw, manifest["manifest_path"], fields, own, paths):
                file = entry["data_file"]
                snapshot_id = added_by(entry, manifest) or 0
                kind = kind_of(file["content"], file["file_format"]) if is_deletes else Kind.DATA
                identity = file_identity(file) if is_deletes else hash(file["file_path"])
                values = tuple(file["partition"].values())
                if identity in self.twice:
                    self._repeat(
                        (kind, file["file_path"], file.get("content_offset")),
                        file["record_count"],
                        snapshot_id,
                    )
                    self.partitions.add(partition_of(spec.spec_id, values))
                if is_deletes and (state := self.states.get(identity)) is not None:
                    partition, named = (
                        partition_of(spec.spec_id, values),
                        named_data_file(file) or "",
                    )
                    misplaced.append(
                        MisplacedDelete(
                            state,
                            file["file_path"],
                            partition,
                            named,
                            named,
                            partition,
                            snapshot_id,
                        )
                    )
            misplaced = heapq.nsmallest(
                EXAMPLES, misplaced, key=lambda each: (each.path, each.named_path)
            )
        files = {key: counts for key, counts in self.repeated.items() if counts[0] > 1}
        data = [counts for key, counts in files.items() if key[0] is Kind.DATA]
        first = heapq.nsmallest(EXAMPLES, files, key=lambda key: (key[1], key[2] or 0))
        return replace(
            found,
            duplicate_data_file_count=len(data),
            duplicate_delete_file_count=len(files) - len(data),
            duplicate_record_count=sum((n - 1) * records for n, records in data),
            duplicate_partitions=tuple(sorted(self.partitions, key=sort_key))
            if len(self.partitions) <= MOST_PARTITIONS
            else (),
            duplicates=tuple(
                DuplicateFile(key[1], key[0], files[key][0], tuple(sorted(self.snapshots[key])))
                for key in first
            ),
            misplaced=tuple(self._with_data(misplaced, live, read)) if misplaced else (),
        )

    def _repeat(self, key: tuple[Kind, str, int | None], records: int, snapshot_id: int) -> None:
        counts = self.repeated.setdefault(key, [0, records])
        counts[0] += 1
        self.snapshots.setdefault(key, set()).add(snapshot_id)

    def _with_data(
        self,
        misplaced: Sequence[MisplacedDelete],
        live: Sequence[Record],
        read: Callable[[str], bytes],
    ) -> Iterator[MisplacedDelete]:
        """The same deletes, each with the data file that it names, or the one in its place."""
        by_path: dict[str, Partition] = {each.named_path: each.partition for each in misplaced}
        by_name: dict[tuple[Partition, str], str] = {}
        names = {file_name(path) for path in by_path}
        for manifest in live:
            if is_delete_manifest(manifest):
                continue
            spec = self.specs[manifest["partition_spec_id"]]
            for entry in entries(
                read(manifest["manifest_path"]), manifest["manifest_path"], DATA_FIELDS
            ):
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
                yield replace(
                    each,
                    data_path=by_name.get(
                        (each.partition, file_name(each.named_path)), each.named_path
                    ),
                )
