"""Find which deletes apply, and which are misplaced, without a JVM."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from icekit.health.facts.counts import NEVER
from icekit.health.facts.integrity import (
    EXAMPLES,
    MOST_PARTITIONS,
    DeleteState,
    DuplicateFile,
    Integrity,
    MisplacedDelete,
)
from icekit.health.facts.rollup import kind_of, sort_key
from icekit.iceberg import PATH_FIELD_ID
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyColumn, Keyed
from icekit.iceberg.manifests import (
    BOUND_FIELDS,
    DELETE_FIELDS,
    NULL_FIELDS,
    Record,
    files_of,
    is_delete_manifest,
)
from icekit.iceberg.partition import Partition
from icekit.iceberg.positions import file_positions, vector_positions
from icekit.iceberg.values import range_of

#: The statistics of a delete file that show which data file it names.
PATH_BOUNDS = dict.fromkeys(BOUND_FIELDS, (PATH_FIELD_ID,))


class ScopedDelete(NamedTuple):
    """A delete file that names a single data file: hashes of that file's path, of its partition and
    name, and of the delete itself.
    """

    path: int
    name: int
    identity: int
    partition: Partition
    kind: Kind
    sequence: int
    size: int
    records: int


@dataclass
class ScopedDeletes:
    """The delete files that name a single data file.

    ``oldest`` has the sequence number and partition of the oldest data file at each path that a
    delete names, ``alike`` the sequence number of the oldest one of the same name and partition;
    ``NEVER`` without one. ``vectors`` has the deletion vectors of each path.
    """

    deletes: list[ScopedDelete] = field(default_factory=list)
    oldest: dict[int, tuple[int, Partition | None]] = field(default_factory=dict)
    alike: dict[int, int] = field(default_factory=dict)
    vectors: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, delete: ScopedDelete) -> None:
        """Add a delete."""
        self.deletes.append(delete)
        if delete.kind is Kind.DELETION_VECTORS:
            self.vectors[delete.path].add(delete.identity)
        self.oldest[delete.path] = NEVER, None
        self.alike[delete.name] = NEVER

    def meet(self, path: str, partition: Partition, sequence: int) -> None:
        """Note a data file, of which all are met once all deletes are added."""
        oldest = self.oldest.get(hash(path))
        if oldest is not None and sequence < oldest[0]:
            self.oldest[hash(path)] = sequence, partition
        name = name_hash(partition, path)
        if sequence < self.alike.get(name, 0):
            self.alike[name] = sequence

    def state(self, delete: ScopedDelete) -> DeleteState | None:
        """Why a delete applies to nothing; None if it applies.

        A delete applies to the live data file that has exactly the path it names, is not newer, and
        has its spec and partition, and a file with a deletion vector has no other deletes by
        position (DeleteFileIndex).
        """
        oldest, partition = self.oldest[delete.path]
        if oldest == NEVER and self.alike[delete.name] <= delete.sequence:
            return DeleteState.UNMATCHED
        if oldest > delete.sequence:
            return DeleteState.DANGLING
        vector_count = len(self.vectors.get(delete.path, ()))
        if delete.kind is Kind.DELETION_VECTORS and vector_count > 1:
            return DeleteState.SEVERAL_VECTORS
        if delete.kind is Kind.POSITION_DELETES and vector_count:
            return DeleteState.REPLACED
        return None if partition == delete.partition else DeleteState.MISFILED


def _file_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


def name_hash(partition: Partition, path: str) -> int:
    """A hash of a file's name in its partition."""
    return hash((partition, _file_name(path)))


def named_data_file(file: Record) -> str | None:
    """The path of the only data file that a position delete file or deletion vector names, directly
    or by equal bounds of its path column.

    Source: ContentFileUtil.referencedDataFile.
    """
    if (path := file.get("referenced_data_file")) is not None:
        return str(path)
    lower, upper = ((file.get(end) or {}).get(PATH_FIELD_ID) for end in BOUND_FIELDS)
    return lower.decode(errors="replace") if lower is not None and lower == upper else None


class KeyReader:
    """Reads the bounds and null counts of keys from the entries of a manifest; ``fields`` are what
    to read of these, the bounds of ``other`` columns included.
    """

    def __init__(self, columns: Mapping[int, KeyColumn], other: tuple[int, ...] = ()) -> None:
        ids = (*other, *columns)
        is_optional = any(not c.required for c in columns.values())
        names = BOUND_FIELDS | NULL_FIELDS if is_optional else BOUND_FIELDS
        self.fields = dict.fromkeys(names, ids) if ids else {}
        self.columns = columns

    def add(self, file: Record, keyed: Keyed, row: int) -> None:
        """Add a file to a row."""
        lows = file.get("lower_bounds") or {}
        highs = file.get("upper_bounds") or {}
        nulls = file.get("null_value_counts") or {}
        values = file.get("value_counts") or {}
        for field_id, column in self.columns.items():
            if field_id in keyed.columns:
                ends = lows.get(field_id), highs.get(field_id)
                low, high = range_of(column.type, *ends) or (None, None)
                counts = nulls.get(field_id), values.get(field_id)
                keyed.columns[field_id].add(row, low, high, *counts, column.required)


def file_identity(file: Record) -> int:
    """A hash that tells a file from others: a Puffin file holds many deletion vectors."""
    return hash((file["file_path"], file.get("content_offset")))


def name_contradictions(
    integrity: Integrity,
    live: Sequence[Record],
    read: Callable[[str], bytes],
    repeated: frozenset[int],
    misplaced: Mapping[int, DeleteState],
) -> Integrity:
    """Add the files that are listed more than once (``repeated`` identities), and a few of the
    misplaced deletes (by their identities), from a second reading of the ``live`` manifests, of
    which those of deletes come first.
    """
    # By path, offset and kind: for each entry, the snapshot that added it, and the records.
    files_by_path: dict[tuple[str, int, Kind], list[tuple[int, int]]] = defaultdict(list)
    partitions: set[Partition] = set()
    deletes: list[MisplacedDelete] = []
    # Live data files with the name of one that a misplaced delete names.
    data: dict[str, Partition] = {}
    for manifest in live:
        names = {_file_name(delete.named_path) for delete in deletes}
        raw = read(manifest["manifest_path"])
        for file, partition, _, snapshot_id in files_of(manifest, raw, DELETE_FIELDS, PATH_BOUNDS):
            path = file["file_path"]
            identity = file_identity(file)
            added_by = snapshot_id or 0
            kind = kind_of(file.get("content") or 0, file["file_format"])
            if identity in repeated:
                key = path, file.get("content_offset") or 0, kind
                files_by_path[key].append((added_by, file["record_count"]))
                partitions.add(partition)
            if identity in misplaced:
                state = misplaced[identity]
                data_path = named_data_file(file) or ""
                deletes.append(
                    MisplacedDelete(
                        state, path, partition, data_path, data_path, partition, added_by
                    )
                )
            if kind is Kind.DATA and _file_name(path) in names:
                data[path] = partition
        deletes = heapq.nsmallest(EXAMPLES, deletes, key=lambda each: (each.path, each.named_path))
    repetitions = {key: entries for key, entries in files_by_path.items() if len(entries) > 1}
    of_data = [entries for (_, _, kind), entries in repetitions.items() if kind is Kind.DATA]
    is_bounded = len(partitions) <= MOST_PARTITIONS
    return replace(
        integrity,
        duplicate_data_file_count=len(of_data),
        duplicate_delete_file_count=len(repetitions) - len(of_data),
        duplicate_record_count=sum(records for entries in of_data for _, records in entries[1:]),
        duplicate_partitions=tuple(sorted(partitions, key=sort_key)) if is_bounded else (),
        duplicates=tuple(
            DuplicateFile(path, kind, len(entries), tuple(sorted({each for each, _ in entries})))
            for (path, _, kind), entries in heapq.nsmallest(EXAMPLES, repetitions.items())
        ),
        misplaced=tuple(_located(each, data) for each in _with_revived_counts(deletes, live, read)),
    )


def _with_revived_counts(
    deletes: Sequence[MisplacedDelete], live: Sequence[Record], read: Callable[[str], bytes]
) -> list[MisplacedDelete]:
    """The deletes, the replaced ones with the number of rows that they delete and the vector of
    their data file does not.
    """
    replaced_paths = {each.named_path for each in deletes if each.state is DeleteState.REPLACED}
    vectors: dict[str, Record] = {}
    for manifest in live:
        if not replaced_paths or not is_delete_manifest(manifest):
            continue
        raw = read(manifest["manifest_path"])
        for file, *_ in files_of(manifest, raw, DELETE_FIELDS, PATH_BOUNDS):
            path = named_data_file(file)
            if path in replaced_paths and file.get("content_offset") is not None:
                vectors[path] = file
    return [
        replace(each, revived_count=_revived_count(each, vectors[each.named_path], read))
        if each.state is DeleteState.REPLACED
        else each
        for each in deletes
    ]


def _revived_count(
    delete: MisplacedDelete, vector: Record, read: Callable[[str], bytes]
) -> int | None:
    """The rows that a replaced delete deletes and the vector does not; None if they cannot be
    read.
    """
    try:
        positions = file_positions(read, delete.path, delete.named_path)
        return len(positions - vector_positions(read, vector))
    except Exception:
        # A file that is gone, or of another format than Parquet: `--storage` and a scan say so.
        return None


def _located(delete: MisplacedDelete, data: Mapping[str, Partition]) -> MisplacedDelete:
    """A delete with the live data file that it names, or the one in its place."""
    path = delete.named_path
    if delete.state is DeleteState.UNMATCHED:
        alike = (
            p for p in data if data[p] == delete.partition and _file_name(p) == _file_name(path)
        )
        path = min(alike, default=path)
    return replace(delete, data_path=path, data_partition=data.get(path, delete.partition))
