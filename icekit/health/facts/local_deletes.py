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
from icekit.iceberg.key_bounds import KeyBounds, KeyColumn
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

    path_hash: int
    name_hash: int
    identity: int
    partition: Partition
    kind: Kind
    sequence_number: int
    size_in_bytes: int
    record_count: int


@dataclass
class ScopedDeletes:
    """The delete files that name a single data file.

    ``oldest_data_by_path`` has the sequence number and partition of the oldest data file at each
    path that a delete names, ``oldest_data_by_name`` the sequence number of the oldest one of the
    same name and partition; ``NEVER`` without one. ``vectors_by_path`` has the deletion vectors of
    each path. Paths, names and vectors are known by their hashes.
    """

    deletes: list[ScopedDelete] = field(default_factory=list)
    oldest_data_by_path: dict[int, tuple[int, Partition | None]] = field(default_factory=dict)
    oldest_data_by_name: dict[int, int] = field(default_factory=dict)
    vectors_by_path: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, delete: ScopedDelete) -> None:
        """Add a delete."""
        self.deletes.append(delete)
        if delete.kind is Kind.DELETION_VECTORS:
            self.vectors_by_path[delete.path_hash].add(delete.identity)
        self.oldest_data_by_path[delete.path_hash] = NEVER, None
        self.oldest_data_by_name[delete.name_hash] = NEVER

    def note_data_file(self, path: str, partition: Partition, sequence_number: int) -> None:
        """Note a data file, of which all are met once all deletes are added."""
        oldest_at_path = self.oldest_data_by_path.get(hash(path))
        if oldest_at_path is not None and sequence_number < oldest_at_path[0]:
            self.oldest_data_by_path[hash(path)] = sequence_number, partition
        hash_of_name = name_hash(partition, path)
        if sequence_number < self.oldest_data_by_name.get(hash_of_name, 0):
            self.oldest_data_by_name[hash_of_name] = sequence_number

    def state(self, delete: ScopedDelete) -> DeleteState | None:
        """Why a delete applies to nothing; None if it applies.

        A delete applies to the live data file that has exactly the path it names, is not newer, and
        has its spec and partition, and a file with a deletion vector has no other deletes by
        position (DeleteFileIndex).
        """
        oldest_sequence, data_partition = self.oldest_data_by_path[delete.path_hash]
        if (
            oldest_sequence == NEVER
            and self.oldest_data_by_name[delete.name_hash] <= delete.sequence_number
        ):
            return DeleteState.UNMATCHED
        if oldest_sequence > delete.sequence_number:
            return DeleteState.DANGLING
        vector_count = len(self.vectors_by_path.get(delete.path_hash, ()))
        if delete.kind is Kind.DELETION_VECTORS and vector_count > 1:
            return DeleteState.SEVERAL_VECTORS
        if delete.kind is Kind.POSITION_DELETES and vector_count:
            return DeleteState.REPLACED
        return None if data_partition == delete.partition else DeleteState.MISFILED


def _file_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


def name_hash(partition: Partition, path: str) -> int:
    """A hash of a file's name in its partition."""
    return hash((partition, _file_name(path)))


def named_data_path(delete_file: Record) -> str | None:
    """The path of the only data file that a position delete file or deletion vector names, directly
    or by equal bounds of its path column.

    Source: ContentFileUtil.referencedDataFile.
    """
    if (data_path := delete_file.get("referenced_data_file")) is not None:
        return str(data_path)
    lower_bound, upper_bound = (
        (delete_file.get(end) or {}).get(PATH_FIELD_ID) for end in BOUND_FIELDS
    )
    return (
        lower_bound.decode(errors="replace")
        if lower_bound is not None and lower_bound == upper_bound
        else None
    )


class KeyReader:
    """Reads the bounds and null counts of keys from the entries of a manifest; ``fields`` are what
    to read of these, the bounds of the columns ``other_column_ids`` included.
    """

    def __init__(
        self, key_columns: Mapping[int, KeyColumn], other_column_ids: tuple[int, ...] = ()
    ) -> None:
        column_ids = (*other_column_ids, *key_columns)
        has_optional_keys = any(not c.required for c in key_columns.values())
        metric_fields = BOUND_FIELDS | NULL_FIELDS if has_optional_keys else BOUND_FIELDS
        self.fields = dict.fromkeys(metric_fields, column_ids) if column_ids else {}
        self.columns = key_columns

    def add(self, content_file: Record, key_bounds: KeyBounds, bounds_row: int) -> None:
        """Add a file to a row."""
        lower_bounds = content_file.get("lower_bounds") or {}
        upper_bounds = content_file.get("upper_bounds") or {}
        null_counts = content_file.get("null_value_counts") or {}
        value_counts = content_file.get("value_counts") or {}
        for field_id, column in self.columns.items():
            if field_id in key_bounds.spans_by_column:
                raw_bounds = lower_bounds.get(field_id), upper_bounds.get(field_id)
                lower_bound, upper_bound = range_of(column.type, *raw_bounds) or (None, None)
                null_and_value_count = null_counts.get(field_id), value_counts.get(field_id)
                key_bounds.spans_by_column[field_id].add_file(
                    bounds_row, lower_bound, upper_bound, *null_and_value_count, column.required
                )


def file_identity(file: Record) -> int:
    """A hash that tells a file from others: a Puffin file holds many deletion vectors."""
    return hash((file["file_path"], file.get("content_offset")))


def integrity_with_examples(
    integrity: Integrity,
    manifests: Sequence[Record],
    read: Callable[[str], bytes],
    repeated_identities: frozenset[int],
    states_by_identity: Mapping[int, DeleteState],
) -> Integrity:
    """Add the files that are listed more than once (those with the ``repeated_identities``), and a
    few of the misplaced deletes (whose states are by identity), from a second reading of the live
    ``manifests``, of which those of deletes come first.
    """
    # By path, offset and kind: for each entry, the snapshot that added it, and the records.
    entries_by_file: dict[tuple[str, int, Kind], list[tuple[int, int]]] = defaultdict(list)
    repeated_partitions: set[Partition] = set()
    misplaced_deletes: list[MisplacedDelete] = []
    # Live data files with the name of one that a misplaced delete names.
    partitions_by_data_path: dict[str, Partition] = {}
    for manifest in manifests:
        named_file_names = {_file_name(delete.named_path) for delete in misplaced_deletes}
        manifest_bytes = read(manifest["manifest_path"])
        for file, partition, _, snapshot_id in files_of(
            manifest, manifest_bytes, DELETE_FIELDS, PATH_BOUNDS
        ):
            path = file["file_path"]
            file_hash = file_identity(file)
            adding_snapshot_id = snapshot_id or 0
            kind = kind_of(file.get("content") or 0, file["file_format"])
            if file_hash in repeated_identities:
                key = path, file.get("content_offset") or 0, kind
                entries_by_file[key].append((adding_snapshot_id, file["record_count"]))
                repeated_partitions.add(partition)
            if file_hash in states_by_identity:
                state = states_by_identity[file_hash]
                named_path = named_data_path(file) or ""
                misplaced_deletes.append(
                    MisplacedDelete(
                        state,
                        path,
                        partition,
                        named_path,
                        named_path,
                        partition,
                        adding_snapshot_id,
                    )
                )
            if kind is Kind.DATA and _file_name(path) in named_file_names:
                partitions_by_data_path[path] = partition
        misplaced_deletes = heapq.nsmallest(
            EXAMPLES, misplaced_deletes, key=lambda each: (each.path, each.named_path)
        )
    entries_by_repeated_file = {
        key: entries for key, entries in entries_by_file.items() if len(entries) > 1
    }
    data_entries = [
        entries for (_, _, kind), entries in entries_by_repeated_file.items() if kind is Kind.DATA
    ]
    has_few_partitions = len(repeated_partitions) <= MOST_PARTITIONS
    return replace(
        integrity,
        duplicate_data_file_count=len(data_entries),
        duplicate_delete_file_count=len(entries_by_repeated_file) - len(data_entries),
        duplicate_record_count=sum(
            record_count for entries in data_entries for _, record_count in entries[1:]
        ),
        duplicate_partitions=tuple(sorted(repeated_partitions, key=sort_key))
        if has_few_partitions
        else (),
        duplicates=tuple(
            DuplicateFile(
                path,
                kind,
                len(entries),
                tuple(sorted({adding_snapshot_id for adding_snapshot_id, _ in entries})),
            )
            for (path, _, kind), entries in heapq.nsmallest(
                EXAMPLES, entries_by_repeated_file.items()
            )
        ),
        misplaced=tuple(
            _with_data_file(delete, partitions_by_data_path)
            for delete in _with_revived_counts(misplaced_deletes, manifests, read)
        ),
    )


def _with_revived_counts(
    deletes: Sequence[MisplacedDelete], manifests: Sequence[Record], read: Callable[[str], bytes]
) -> list[MisplacedDelete]:
    """The deletes, the replaced ones with the number of rows that they delete and the vector of
    their data file does not.
    """
    replaced_paths = {
        misplaced_delete.named_path
        for misplaced_delete in deletes
        if misplaced_delete.state is DeleteState.REPLACED
    }
    vectors_by_path: dict[str, Record] = {}
    for manifest in manifests:
        if not replaced_paths or not is_delete_manifest(manifest):
            continue
        manifest_bytes = read(manifest["manifest_path"])
        for delete_file, *_ in files_of(manifest, manifest_bytes, DELETE_FIELDS, PATH_BOUNDS):
            named_path = named_data_path(delete_file)
            if named_path in replaced_paths and delete_file.get("content_offset") is not None:
                vectors_by_path[named_path] = delete_file
    return [
        replace(
            misplaced_delete,
            revived_count=_revived_count(
                misplaced_delete, vectors_by_path[misplaced_delete.named_path], read
            ),
        )
        if misplaced_delete.state is DeleteState.REPLACED
        else misplaced_delete
        for misplaced_delete in deletes
    ]


def _revived_count(
    delete: MisplacedDelete, vector_file: Record, read: Callable[[str], bytes]
) -> int | None:
    """The rows that a replaced delete deletes and the vector does not; None if they cannot be
    read.
    """
    try:
        deleted_positions = file_positions(read, delete.path, delete.named_path)
        return len(deleted_positions - vector_positions(read, vector_file))
    except Exception:
        # A file that is gone, or of another format than Parquet: `--storage` and a scan say so.
        return None


def _with_data_file(
    delete: MisplacedDelete, partitions_by_data_path: Mapping[str, Partition]
) -> MisplacedDelete:
    """A delete with the live data file that it names, or the one in its place."""
    data_path = delete.named_path
    if delete.state is DeleteState.UNMATCHED:
        same_named_paths = (
            p
            for p in partitions_by_data_path
            if partitions_by_data_path[p] == delete.partition
            and _file_name(p) == _file_name(data_path)
        )
        data_path = min(same_named_paths, default=data_path)
    return replace(
        delete,
        data_path=data_path,
        data_partition=partitions_by_data_path.get(data_path, delete.partition),
    )
