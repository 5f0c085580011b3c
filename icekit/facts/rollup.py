"""Turn aggregated rows into file groups and sequence counts; both collectors end here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from icekit.facts.manifests import FileCounts
from icekit.facts.model import Bucket, EqualityKey, FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.sizes import max_file_size, min_file_size

#: Rows of sequence counts that the driver holds at most; above it, sequence numbers are
#: counted in ranges.
MAX_SEQUENCE_ROWS = 200_000

# Sequence counts are lists in the order of SequenceCounts, in which a kind's counts start here.
_FIRST_COUNT = {Kind.DATA: 0, Kind.EQUALITY_DELETES: 4, Kind.POSITION_DELETES: 6, Kind.DELETION_VECTORS: 6}


@dataclass(frozen=True, slots=True)
class Cut:
    """How sizes are cut: bucket edges for data and for delete files, and what is well-sized."""

    data: tuple[int, ...]
    deletes: tuple[int, ...]
    target_bytes: int

    @property
    def well_sized(self) -> tuple[int, int]:
        """Smallest and largest data file that no size rule of rewrite_data_files selects."""
        return min_file_size(self.target_bytes), max_file_size(self.target_bytes)


def kind_of(content: int, file_format: str) -> Kind:
    """What a file is, from its content and format (deletion vectors are Puffin blobs)."""
    if content == 0:
        return Kind.DATA
    if content == 2:
        return Kind.EQUALITY_DELETES
    return Kind.DELETION_VECTORS if file_format.upper() == "PUFFIN" else Kind.POSITION_DELETES


def sequence_width(file_count: int, partition_count: int, last_sequence_number: int) -> int:
    """How many consecutive sequence numbers are counted as one: 1 unless there are very many.

    There cannot be more rows than files, nor more than partitions times sequence numbers.
    """
    if file_count <= MAX_SEQUENCE_ROWS:
        return 1
    return max(1, -(-partition_count * last_sequence_number // MAX_SEQUENCE_ROWS))


def sort_key(partition: Partition) -> tuple[int, tuple[tuple[bool, str, float, str], ...]]:
    """A total order over partitions whose values may be null, not a number, or of different types."""

    def one(value: object) -> tuple[bool, str, float, str]:
        if isinstance(value, (int, float)) and not math.isnan(value):
            return True, "", float(value), ""
        return value is not None, "s", 0.0, str(value)

    return partition.spec_id, tuple(one(value) for value in partition.values)


@dataclass(slots=True)
class Rollup:
    """Collects buckets and sequence counts; :meth:`groups` and :meth:`sequences` freeze them."""

    buckets: dict[tuple[Partition, Kind], list[Bucket]] = field(default_factory=lambda: defaultdict(list))
    file_scoped: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    by_sequence: dict[tuple[Partition, int], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0] * 8))
    by_key: dict[tuple[int, ...], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def add_bucket(self, partition: Partition, kind: Kind, bucket: Bucket) -> None:
        """Add the counts of one (partition, kind, bucket); each comes once."""
        self.buckets[partition, kind].append(bucket)

    def add_key(self, field_ids: Iterable[int], files: int, records: int) -> None:
        """Add equality delete files that delete by these columns."""
        counts = self.by_key[tuple(sorted(field_ids))]
        counts[0] += files
        counts[1] += records

    def equality_keys(self) -> tuple[EqualityKey, ...]:
        """Freeze the keys of the equality deletes; a table has one or a few."""
        return tuple(EqualityKey(ids, *counts) for ids, counts in sorted(self.by_key.items()))

    def file_counts(self) -> FileCounts:
        """The live data files and delete files."""
        data = sum(b.file_count for (_, kind), buckets in self.buckets.items() if kind is Kind.DATA for b in buckets)
        return FileCounts(data, sum(b.file_count for buckets in self.buckets.values() for b in buckets) - data)

    def groups(self) -> tuple[FileGroup, ...]:
        """Freeze the buckets, ordered by partition and kind."""
        kinds = list(Kind)
        ordered = sorted(self.buckets, key=lambda key: (sort_key(key[0]), kinds.index(key[1])))
        return tuple(FileGroup(p, k, tuple(sorted(self.buckets[p, k])), self._scoped(p, k)) for p, k in ordered)

    def _scoped(self, partition: Partition, kind: Kind) -> int:
        if kind is Kind.DELETION_VECTORS:
            return sum(b.file_count for b in self.buckets[partition, kind])
        return self.file_scoped.get(partition, 0) if kind is Kind.POSITION_DELETES else 0

    def sequences(self, is_global: Callable[[int], bool]) -> tuple[SequenceCounts, ...]:
        """Freeze the sequence counts of the partitions to which deletes may apply.

        Deletes of an unpartitioned spec are global: with equality deletes among them, every
        partition counts (table spec, "Scan Planning").
        """
        with_deletes = {p for p, kind in self.buckets if kind is not Kind.DATA}
        everywhere = any(is_global(p.spec_id) for p, kind in self.buckets if kind is Kind.EQUALITY_DELETES)
        kept = [(p, s) for p, s in self.by_sequence if everywhere or p in with_deletes]
        # Partitions are few and their keys slow to make, so each is made once.
        place = {p: i for i, p in enumerate(sorted({p for p, _ in kept}, key=sort_key))}
        ordered = sorted(kept, key=lambda key: (place[key[0]], key[1]))
        return tuple(SequenceCounts(p, s, *self.by_sequence[p, s]) for p, s in ordered)


def add_sequence(counts: list[int], kind: Kind, files: int, records: int, well_files: int, well_bytes: int) -> None:
    """Add files of one kind to the counts of one (partition, sequence number)."""
    first = _FIRST_COUNT[kind]
    counts[first] += files
    counts[first + 1] += records
    if kind is Kind.DATA:
        counts[2] += well_files
        counts[3] += well_bytes


def range_end(sequence_number: int, width: int) -> int:
    """The highest sequence number of the range that one falls into."""
    return -(-sequence_number // width) * width
