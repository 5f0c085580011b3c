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
    name_contradictions,
    name_hash,
    named_data_file,
)
from icekit.health.facts.rollup import bucket_of, kind_of
from icekit.health.facts.summaries import field_ranges, narrow_fields, of_manifests
from icekit.iceberg import PATH_FIELD_ID
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyColumn, Keyed, compared, longs
from icekit.iceberg.manifests import (
    DATA_FIELDS,
    DELETE_FIELDS,
    Record,
    files_of,
    is_delete_manifest,
    listed_as_other,
    may_have_live,
    read_ahead,
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
        filter(may_have_live, rollup.manifests), key=is_delete_manifest, reverse=True
    )
    counting = _Counting(rollup)
    narrow: list[NarrowManifest] = []
    live_counts: dict[str, int] = {}
    for index, (manifest, content) in enumerate(read_ahead(read, live_manifests)):
        if progress:
            progress(index, len(live_manifests))
        count = counting.add_deletes if is_delete_manifest(manifest) else counting.add_data
        fields = rollup.specs[manifest["partition_spec_id"]].fields
        counted_before = len(counting.files)
        partitions = count(manifest, content)
        live_counts[manifest["manifest_path"]] = len(counting.files) - counted_before
        narrow += narrow_fields(manifest, fields, field_ranges(fields, partitions))
    misplaced = counting.settle()
    rollup.set_width(lambda: len({p for p, _, _ in (*rollup.counted, *rollup.unapplied)}))
    rollup.set_older_apart()
    counting.rule_out()
    live_counts |= live_in_unread(rollup.manifests, read)
    rollup.integrity = of_manifests(rollup.manifests, narrow, live_counts)
    repeated = frozenset(each for each, times in Counter(counting.files).items() if times > 1)
    if repeated or misplaced:
        rollup.integrity = name_contradictions(
            rollup.integrity, live_manifests, read, repeated, misplaced
        )


def live_in_unread(manifests: Sequence[Record], read: Callable[[str], bytes]) -> dict[str, int]:
    """The live files of the newest manifests that have none by the manifest list, by path: no
    engine opens these, so a wrong number there hides rows. Only of some, if they are large.
    """
    unread = [manifest for manifest in manifests if not may_have_live(manifest)]
    newest = sorted(unread, key=lambda each: -(each.get("sequence_number") or 0))[:MOST_UNREAD]
    unread_manifests: list[Record] = []
    bytes_left = MOST_UNREAD_BYTES
    for manifest in newest:
        if manifest["manifest_length"] <= bytes_left:
            unread_manifests.append(manifest)
            bytes_left -= manifest["manifest_length"]
    return {
        manifest["manifest_path"]: sum(1 for _ in files_of(manifest, raw, frozenset()))
        for manifest, raw in read_ahead(read, unread_manifests)
    }


@dataclass
class _Counting:
    """Counts the files of manifests, and gathers what shows which deletes apply."""

    rollup: Rollup
    #: The identity of each file, to find those that are listed twice.
    files: array[int] = field(default_factory=longs)
    scoped: ScopedDeletes = field(default_factory=ScopedDeletes)
    numbers: dict[Partition, int] = field(default_factory=dict)
    #: The columns of equality delete keys that are compared.
    keyed: dict[int, KeyColumn] = field(default_factory=dict)
    keyed_data: Keyed | None = None
    keyed_deletes: dict[tuple[int, ...], Keyed] = field(default_factory=dict)

    def add_data(self, manifest: Record, raw: bytes) -> set[Partition]:
        """Count the data files of a manifest; returns their partitions."""
        counted_files = self.rollup.counted
        edges = self.rollup.edges
        scoped = self.scoped
        has_deletes = self.rollup.has_deletes
        reader = KeyReader(self.keyed)
        keyed = self.keyed_data = self.keyed_data or Keyed.of(self.keyed)
        partitions = set[Partition]()
        for file, partition, sequence, _ in files_of(manifest, raw, DATA_FIELDS, reader.fields):
            if file.get("content"):
                raise listed_as_other(manifest, "delete files", "data files")
            self.files.append(file_identity(file))
            partitions.add(partition)
            if not has_deletes:
                sequence = 0
            if self.keyed:
                reader.add(file, keyed, self._row(keyed, partition, sequence))
            if scoped.deletes:
                scoped.meet(file["file_path"], partition, sequence)
            size = file["file_size_in_bytes"]
            records = file["record_count"]
            _count(counted_files[partition, Kind.DATA, sequence], edges, size, records)
        return partitions

    def add_deletes(self, manifest: Record, raw: bytes) -> set[Partition]:
        """Count the delete files of a manifest, except those of a single data file, which are
        settled when all data files are known; returns the partitions.
        """
        # A first pass shows which columns are keys.
        ids = files_of(manifest, raw, frozenset({"equality_ids"}))
        keys = [file.get("equality_ids") or () for file, *_ in ids]
        of_keys = compared(self.rollup.columns, keys)
        self.keyed.update(of_keys)
        reader = KeyReader(of_keys, (PATH_FIELD_ID,))
        partitions = set[Partition]()
        for file, partition, sequence, _ in files_of(manifest, raw, DELETE_FIELDS, reader.fields):
            kind = kind_of(file["content"], file["file_format"])
            if kind is Kind.DATA:
                raise listed_as_other(manifest, "data files", "delete files")
            is_vector = kind is Kind.DELETION_VECTORS
            size = file["content_size_in_bytes" if is_vector else "file_size_in_bytes"]
            records = file["record_count"]
            identity = file_identity(file)
            self.files.append(identity)
            partitions.add(partition)
            if kind is Kind.EQUALITY_DELETES:
                self._add_keys(file, reader, partition, sequence)
            elif (path := named_data_file(file)) is not None:
                hashes = hash(path), name_hash(partition, path), identity
                self.scoped.add(ScopedDelete(*hashes, partition, kind, sequence, size, records))
                continue
            _count(self.rollup.counted[partition, kind, sequence], (0,), size, records)
        return partitions

    def _row(self, keyed: Keyed, partition: Partition, sequence: int) -> int:
        return keyed.row(self.numbers.setdefault(partition, len(self.numbers)), sequence)

    def _add_keys(
        self, file: Record, reader: KeyReader, partition: Partition, sequence: int
    ) -> None:
        """Add what the keys of an equality delete file may be."""
        key = tuple(sorted(file.get("equality_ids") or ()))
        records = file["record_count"]
        add(self.rollup.by_key[key], 1, records)
        keyed = self.keyed_deletes.get(key)
        if keyed is None:
            keyed = self.keyed_deletes[key] = Keyed.of(c for c in key if c in self.keyed)
        row = self._row(keyed, partition, sequence)
        keyed.files[row] += 1
        keyed.records[row] += records
        reader.add(file, keyed, row)

    def settle(self) -> dict[int, DeleteState]:
        """Count the delete files that name a data file, and set those apart that apply to nothing;
        returns the misplaced ones.
        """
        misplaced: dict[int, DeleteState] = {}
        for delete in self.scoped.deletes:
            state = self.scoped.state(delete)
            key = (delete.partition, delete.kind)
            if state is None:
                self.rollup.file_scoped[key] += 1
                counts = self.rollup.counted[(*key, delete.sequence)]
                _count(counts, (0,), delete.size, delete.records)
                continue
            add(self.rollup.unapplied[(*key, state)], 1, delete.size, delete.records)
            if state is not DeleteState.DANGLING:
                misplaced[delete.identity] = state
        return misplaced

    def rule_out(self) -> None:
        """Compare the key bounds of equality deletes with those of data."""
        if not self.keyed or self.keyed_data is None:
            return
        data = self.keyed_data
        deletes = self.keyed_deletes
        width = self.rollup.width
        if width > 1:
            data = data.within(width)
            deletes = {key: keyed.within(width) for key, keyed in deletes.items()}
        self.rollup.rule_out(list(self.numbers), data, deletes)


def _count(buckets: dict[int, list[int]], edges: tuple[int, ...], size: int, records: int) -> None:
    edge = bucket_of(size, edges)
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
