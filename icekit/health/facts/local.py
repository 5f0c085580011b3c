"""Collect the file rollup without a JVM, manifest by manifest."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from icekit.health.facts.counts import Rollup, add
from icekit.health.facts.integrity import DeleteState, NarrowManifest
from icekit.health.facts.local_deletes import (
    KeyReader,
    ScopedDelete,
    ScopedDeletes,
    file_identity,
    integrity_with_examples,
    name_hash,
    named_data_path,
)
from icekit.health.facts.rollup import kind_of, lower_edge_of
from icekit.health.facts.summaries import field_ranges, manifest_integrity, narrow_summaries
from icekit.iceberg import PATH_FIELD_ID
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyBounds, KeyColumn, comparable_key_columns, long_array
from icekit.iceberg.manifests import (
    DATA_FIELDS,
    DELETE_FIELDS,
    Record,
    content_mismatch_error,
    files_of,
    is_delete_manifest,
    may_have_live_files,
    read_manifests_ahead,
)
from icekit.iceberg.partition import Partition

#: A choice: the most manifests without live files that are opened to see that this is right, and
# their bytes: after a rewrite of a large table, these are all of its old manifests.
MOST_UNREAD = 100
MOST_UNREAD_BYTES = 8 * 2**20


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
    live_manifests = sorted(
        filter(may_have_live_files, rollup.manifests), key=is_delete_manifest, reverse=True
    )
    file_counter = _FileCounter(rollup)
    narrow_manifests: list[NarrowManifest] = []
    live_counts_by_path: dict[str, int] = {}
    for manifest_index, (manifest, manifest_bytes) in enumerate(
        read_manifests_ahead(read, live_manifests)
    ):
        if progress:
            progress(manifest_index, len(live_manifests))
        count_manifest = (
            file_counter.add_deletes if is_delete_manifest(manifest) else file_counter.add_data
        )
        partition_fields = rollup.specs[manifest["partition_spec_id"]].fields
        earlier_file_count = len(file_counter.file_identities)
        manifest_partitions = count_manifest(manifest, manifest_bytes)
        live_counts_by_path[manifest["manifest_path"]] = (
            len(file_counter.file_identities) - earlier_file_count
        )
        narrow_manifests += narrow_summaries(
            manifest, partition_fields, field_ranges(partition_fields, manifest_partitions)
        )
    rollup.file_identities = file_counter.file_identities
    states_by_identity = file_counter.settle_scoped_deletes()
    rollup.set_sequence_width(
        lambda: len({p for p, _, _ in (*rollup.bucket_counts, *rollup.unapplied_counts)})
    )
    rollup.move_dangling_to_unapplied()
    file_counter.rule_out_deletes()
    live_counts_by_path |= counts_in_empty_manifests(rollup.manifests, read)
    rollup.integrity = manifest_integrity(rollup.manifests, narrow_manifests, live_counts_by_path)
    repeated_identities = frozenset(
        identity
        for identity, entry_count in Counter(file_counter.file_identities).items()
        if entry_count > 1
    )
    if repeated_identities or states_by_identity:
        rollup.integrity = integrity_with_examples(
            rollup.integrity, live_manifests, read, repeated_identities, states_by_identity
        )


def add_file_identities(rollup: Rollup, read: Callable[[str], bytes]) -> None:
    """Add the identities of the live files to what Spark has counted; reads every manifest."""
    file_counter = _FileCounter(rollup)
    fields = DATA_FIELDS | {"content_offset", "file_format"}
    live_manifests = filter(may_have_live_files, rollup.manifests)
    for manifest, manifest_bytes in read_manifests_ahead(read, live_manifests):
        for file, *_ in files_of(manifest, manifest_bytes, fields):
            file_counter.add_identity(file)
    rollup.file_identities = file_counter.file_identities


def counts_in_empty_manifests(
    manifests: Sequence[Record], read: Callable[[str], bytes]
) -> dict[str, int]:
    """The number of live files in the newest manifests that have none according to the manifest
    list, by manifest path: no engine opens these, so a wrong number there hides rows. Only of some,
    if they are large.
    """
    empty_manifests = [manifest for manifest in manifests if not may_have_live_files(manifest)]
    newest_manifests = sorted(
        empty_manifests, key=lambda each: -(each.get("sequence_number") or 0)
    )[:MOST_UNREAD]
    manifests_to_read: list[Record] = []
    remaining_bytes = MOST_UNREAD_BYTES
    for manifest in newest_manifests:
        if manifest["manifest_length"] <= remaining_bytes:
            manifests_to_read.append(manifest)
            remaining_bytes -= manifest["manifest_length"]
    return {
        manifest["manifest_path"]: sum(1 for _ in files_of(manifest, manifest_bytes, frozenset()))
        for manifest, manifest_bytes in read_manifests_ahead(read, manifests_to_read)
    }


@dataclass
class _FileCounter:
    """Counts the files of manifests, and gathers what shows which deletes apply."""

    rollup: Rollup
    #: The identity of each file, to find those that are listed twice.
    file_identities: array[int] = field(default_factory=long_array)
    scoped_deletes: ScopedDeletes = field(default_factory=ScopedDeletes)
    partition_numbers: dict[Partition, int] = field(default_factory=dict)
    #: The columns of equality delete keys that are compared.
    key_columns: dict[int, KeyColumn] = field(default_factory=dict)
    data_bounds: KeyBounds | None = None
    delete_bounds_by_key: dict[tuple[int, ...], KeyBounds] = field(default_factory=dict)

    def add_data(self, manifest: Record, manifest_bytes: bytes) -> set[Partition]:
        """Count the data files of a manifest; returns their partitions."""
        bucket_counts = self.rollup.bucket_counts
        bucket_edges = self.rollup.bucket_edges
        scoped_deletes = self.scoped_deletes
        has_deletes = self.rollup.has_deletes
        key_reader = KeyReader(self.key_columns)
        data_bounds = self.data_bounds = self.data_bounds or KeyBounds.of_columns(self.key_columns)
        partitions = set[Partition]()
        for file, partition, sequence_number, _ in files_of(
            manifest, manifest_bytes, DATA_FIELDS, key_reader.fields
        ):
            if file.get("content"):
                raise content_mismatch_error(manifest, "delete files", "data files")
            self.file_identities.append(file_identity(file))
            partitions.add(partition)
            if not has_deletes:
                sequence_number = 0
            if self.key_columns:
                key_reader.add(
                    file, data_bounds, self._bounds_row(data_bounds, partition, sequence_number)
                )
            if scoped_deletes.deletes:
                scoped_deletes.note_data_file(file["file_path"], partition, sequence_number)
            size_in_bytes = file["file_size_in_bytes"]
            record_count = file["record_count"]
            _count_file(
                bucket_counts[partition, Kind.DATA, sequence_number],
                bucket_edges,
                size_in_bytes,
                record_count,
            )
        return partitions

    def add_deletes(self, manifest: Record, manifest_bytes: bytes) -> set[Partition]:
        """Count the delete files of a manifest, except those of a single data file, which are
        settled when all data files are known; returns the partitions.
        """
        # A first pass shows which columns are keys.
        ids = files_of(manifest, manifest_bytes, frozenset({"equality_ids"}))
        equality_keys = [file.get("equality_ids") or () for file, *_ in ids]
        key_columns = comparable_key_columns(self.rollup.columns, equality_keys)
        self.key_columns.update(key_columns)
        key_reader = KeyReader(key_columns, (PATH_FIELD_ID,))
        partitions = set[Partition]()
        for file, partition, sequence_number, _ in files_of(
            manifest, manifest_bytes, DELETE_FIELDS, key_reader.fields
        ):
            kind = kind_of(file["content"], file["file_format"])
            if kind is Kind.DATA:
                raise content_mismatch_error(manifest, "data files", "delete files")
            is_vector = kind is Kind.DELETION_VECTORS
            size_in_bytes = file["content_size_in_bytes" if is_vector else "file_size_in_bytes"]
            record_count = file["record_count"]
            identity = self.add_identity(file)
            partitions.add(partition)
            if kind is Kind.EQUALITY_DELETES:
                self._add_keys(file, key_reader, partition, sequence_number)
            elif (data_path := named_data_path(file)) is not None:
                scoped_delete = ScopedDelete(
                    path_hash=hash(data_path),
                    name_hash=name_hash(partition, data_path),
                    identity=identity,
                    partition=partition,
                    kind=kind,
                    sequence_number=sequence_number,
                    size_in_bytes=size_in_bytes,
                    record_count=record_count,
                )
                self.scoped_deletes.add(scoped_delete)
                continue
            _count_file(
                self.rollup.bucket_counts[partition, kind, sequence_number],
                (0,),
                size_in_bytes,
                record_count,
            )
        return partitions

    def add_identity(self, file: Record) -> int:
        """Remember a file, and the size of a Puffin file, which has many vectors."""
        identity = file_identity(file)
        self.file_identities.append(identity)
        if kind_of(file.get("content") or 0, file["file_format"]) is Kind.DELETION_VECTORS:
            path_hash = hash(file["file_path"])
            self.rollup.vector_file_sizes[path_hash] = file["file_size_in_bytes"]
        return identity

    def _bounds_row(self, key_bounds: KeyBounds, partition: Partition, sequence_number: int) -> int:
        return key_bounds.row(
            self.partition_numbers.setdefault(partition, len(self.partition_numbers)),
            sequence_number,
        )

    def _add_keys(
        self, file: Record, key_reader: KeyReader, partition: Partition, sequence_number: int
    ) -> None:
        """Add what the keys of an equality delete file may be."""
        key = tuple(sorted(file.get("equality_ids") or ()))
        record_count = file["record_count"]
        add(self.rollup.equality_key_counts[key], 1, record_count)
        key_bounds = self.delete_bounds_by_key.get(key)
        if key_bounds is None:
            key_bounds = self.delete_bounds_by_key[key] = KeyBounds.of_columns(
                c for c in key if c in self.key_columns
            )
        bounds_row = self._bounds_row(key_bounds, partition, sequence_number)
        key_bounds.file_counts[bounds_row] += 1
        key_bounds.record_counts[bounds_row] += record_count
        key_reader.add(file, key_bounds, bounds_row)

    def settle_scoped_deletes(self) -> dict[int, DeleteState]:
        """Count the delete files that name a data file, and set those apart that apply to nothing;
        returns the misplaced ones.
        """
        states_by_identity: dict[int, DeleteState] = {}
        for delete in self.scoped_deletes.deletes:
            state = self.scoped_deletes.state(delete)
            key = (delete.partition, delete.kind)
            if state is None:
                self.rollup.file_scoped_counts[key] += 1
                buckets = self.rollup.bucket_counts[(*key, delete.sequence_number)]
                _count_file(buckets, (0,), delete.size_in_bytes, delete.record_count)
                continue
            add(
                self.rollup.unapplied_counts[(*key, state)],
                1,
                delete.size_in_bytes,
                delete.record_count,
            )
            if state is not DeleteState.DANGLING:
                states_by_identity[delete.identity] = state
        return states_by_identity

    def rule_out_deletes(self) -> None:
        """Compare the key bounds of equality deletes with those of data."""
        if not self.key_columns or self.data_bounds is None:
            return
        data_bounds = self.data_bounds
        delete_bounds_by_key = self.delete_bounds_by_key
        sequence_width = self.rollup.sequence_width
        if sequence_width > 1:
            data_bounds = data_bounds.by_sequence_ranges(sequence_width)
            delete_bounds_by_key = {
                key: key_bounds.by_sequence_ranges(sequence_width)
                for key, key_bounds in delete_bounds_by_key.items()
            }
        self.rollup.rule_out_deletes(
            list(self.partition_numbers), data_bounds, delete_bounds_by_key
        )


def _count_file(
    bucket_rows_by_edge: dict[int, list[int]],
    bucket_edges: tuple[int, ...],
    size_in_bytes: int,
    record_count: int,
) -> None:
    lower_edge = lower_edge_of(size_in_bytes, bucket_edges)
    bucket_row = bucket_rows_by_edge.get(lower_edge)
    if bucket_row is None:
        bucket_rows_by_edge[lower_edge] = [
            1,
            size_in_bytes,
            record_count,
            size_in_bytes,
            size_in_bytes,
        ]
        return
    bucket_row[0] += 1
    bucket_row[1] += size_in_bytes
    bucket_row[2] += record_count
    if size_in_bytes < bucket_row[3]:
        bucket_row[3] = size_in_bytes
    elif size_in_bytes > bucket_row[4]:
        bucket_row[4] = size_in_bytes
