"""Collect the counts of a snapshot's live files, which both collectors add, and freeze them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from icekit.health.facts.files import Bucket, EqualityKey, FileGroup, SequenceCounts
from icekit.health.facts.integrity import DeleteState, Integrity, UnappliedDeletes
from icekit.health.facts.rollup import max_file_size, min_file_size, sort_key
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyBounds, KeyColumn, range_end
from icekit.iceberg.manifests import (
    FileCounts,
    Record,
    is_delete_manifest,
    live_count,
    may_have_live_files,
)
from icekit.iceberg.partition import Partition
from icekit.iceberg.ruled_out import rule_out_by_bounds

#: The most rows of sequence counts that the driver holds; with more, sequence numbers are
#: counted in ranges.
MAX_SEQUENCE_ROWS = 200_000
# The order of sequence numbers of no data file.
NEVER = 2**63 - 1
# How the counts of a kind begin in SequenceCounts.
_COUNTED_AS = {
    Kind.DATA: "data",
    Kind.EQUALITY_DELETES: "equality_delete",
    Kind.POSITION_DELETES: "position_delete",
    Kind.DELETION_VECTORS: "position_delete",
}


@dataclass
class Rollup:
    """What a collector counts of the live files of a snapshot.

    Given are the ``manifests``, the table's partition specs and columns (by id), the
    ``bucket_edges`` of size buckets, the target size of data files, and the last sequence number.
    ``bucket_counts`` has buckets by partition, kind, and (range of) sequence number, 0 where no
    deletes are. A bucket is [files, bytes, records, smallest, largest], by its edge. Deletes that
    apply to nothing are only in ``unapplied_counts``, as [files, bytes, records].
    ``ruled_out_counts`` has the files and records of later equality deletes that do not apply to
    the data of a partition and range, by their key bounds.
    """

    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, KeyColumn]
    bucket_edges: tuple[int, ...]
    target_bytes: int
    last_sequence_number: int = 0
    sequence_width: int = 1
    bucket_counts: dict[tuple[Partition, Kind, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    file_scoped_counts: Counter[tuple[Partition, Kind]] = field(default_factory=Counter)
    equality_key_counts: dict[tuple[int, ...], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )
    unapplied_counts: dict[tuple[Partition, Kind, DeleteState], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    ruled_out_counts: dict[tuple[Partition, int], tuple[int, int]] = field(default_factory=dict)
    integrity: Integrity = field(default_factory=Integrity)
    #: The identities of the live files (:func:`icekit.health.facts.local_deletes.file_identity`), and
    #: the sizes of the Puffin files of vectors by the hashes of their paths; None and none if Spark
    #: counts.
    file_identities: Collection[int] | None = None
    vector_file_sizes: dict[int, int] = field(default_factory=dict)

    @cached_property
    def has_deletes(self) -> bool:
        """Tell whether any manifest may have live delete files."""
        return any(is_delete_manifest(m) and may_have_live_files(m) for m in self.manifests)

    def are_deletes_global(self, partition: Partition) -> bool:
        """Tell whether equality deletes of a partition may apply to every partition: those of an
        unpartitioned spec (table spec, "Scan Planning").
        """
        return self.specs[partition.spec_id].is_unpartitioned

    @property
    def has_global_deletes(self) -> bool:
        """Tell whether equality deletes that apply to data are global."""
        return any(
            kind is Kind.EQUALITY_DELETES and self.are_deletes_global(p)
            for p, kind, _ in self.bucket_counts
        )

    def set_sequence_width(self, count_partitions: Callable[[], int]) -> None:
        """Set how many consecutive sequence numbers count as one: 1 unless there are very many.

        There cannot be more rows than files, nor more than partitions times sequence numbers.
        Without deletes, sequence numbers are not counted.
        """
        if self.has_deletes and sum(map(live_count, self.manifests)) > MAX_SEQUENCE_ROWS:
            max_row_count = count_partitions() * self.last_sequence_number
            self.sequence_width = max(self.sequence_width, -(-max_row_count // MAX_SEQUENCE_ROWS))

    def move_to_unapplied(
        self, state: DeleteState, is_unapplied: Callable[[Partition, Kind, int], bool]
    ) -> None:
        """Count deletes among those that apply to nothing."""
        for key in [key for key in self.bucket_counts if is_unapplied(*key)]:
            for row in self.bucket_counts.pop(key).values():
                add(self.unapplied_counts[(*key[:2], state)], *row[:3])

    def move_dangling_to_unapplied(self) -> None:
        """Set the deletes apart that are older than all data they could apply to (table spec, "Scan
        Planning"). Within a range of sequence numbers the order is not known, so deletes count as
        later.
        """
        oldest_by_partition: dict[Partition, int] = {}
        for partition, kind, sequence_number in self.bucket_counts:
            if kind is Kind.DATA:
                end = range_end(sequence_number, self.sequence_width)
                oldest_by_partition[partition] = min(end, oldest_by_partition.get(partition, NEVER))
        oldest_data_sequence = min(oldest_by_partition.values(), default=NEVER)

        def is_dangling(partition: Partition, kind: Kind, sequence_number: int) -> bool:
            end = range_end(sequence_number, self.sequence_width)
            oldest_sequence = oldest_by_partition.get(partition, NEVER)
            if kind is not Kind.EQUALITY_DELETES:
                return kind is not Kind.DATA and end < oldest_sequence
            if self.are_deletes_global(partition):
                oldest_sequence = oldest_data_sequence
            return end <= oldest_sequence if self.sequence_width == 1 else end < oldest_sequence

        self.move_to_unapplied(DeleteState.DANGLING, is_dangling)

    def rule_out_deletes(
        self,
        partitions: Sequence[Partition],
        data_bounds: KeyBounds,
        delete_bounds_by_key: Mapping[tuple[int, ...], KeyBounds],
    ) -> None:
        """Set the equality deletes apart whose keys are in no older data file by their bounds, and
        count what bounds rule out of other data; files are keyed by the indexes of ``partitions``.
        """
        global_indexes = {
            partition_index
            for partition_index, one_partition in enumerate(partitions)
            if self.are_deletes_global(one_partition)
        }
        exclusions = rule_out_by_bounds(
            data_bounds, delete_bounds_by_key, global_indexes, self.sequence_width == 1
        )
        self.ruled_out_counts = {
            (partitions[n], end): count_pair
            for (n, end), count_pair in exclusions.counts_by_data_key.items()
        }
        new_key_ranges = {
            (partitions[partition_index], end) for partition_index, end in exclusions.delete_keys
        }
        self.move_to_unapplied(
            DeleteState.NEW_KEYS,
            lambda partition, kind, sequence_number: (
                kind is Kind.EQUALITY_DELETES
                and (partition, range_end(sequence_number, self.sequence_width)) in new_key_ranges
            ),
        )

    def equality_keys(self) -> tuple[EqualityKey, ...]:
        """Freeze the keys of the equality deletes; a table has one or a few."""
        return tuple(
            EqualityKey(ids, *count_pair)
            for ids, count_pair in sorted(self.equality_key_counts.items())
        )

    def file_counts(self) -> FileCounts:
        """The live data files and delete files, each as often as it is listed."""
        counts_by_kind: Counter[Kind] = Counter()
        for (_, kind, _), buckets in self.bucket_counts.items():
            counts_by_kind[kind] += sum(row[0] for row in buckets.values())
        data_file_count = counts_by_kind[Kind.DATA]
        applied_delete_count = counts_by_kind.total() - data_file_count
        unapplied_delete_count = sum(
            file_count for file_count, _, _ in self.unapplied_counts.values()
        )
        return FileCounts(data_file_count, applied_delete_count + unapplied_delete_count)

    def unapplied_deletes(self) -> tuple[UnappliedDeletes, ...]:
        """Freeze the deletes that apply to nothing."""
        return tuple(
            UnappliedDeletes(*key, *self.unapplied_counts[key])
            for key in sorted(self.unapplied_counts, key=_key_order)
        )

    def groups(self) -> tuple[FileGroup, ...]:
        """Freeze the buckets, ordered by partition and kind."""
        rows_by_group: dict[tuple[Partition, Kind], dict[int, list[list[int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (partition, kind, _), buckets in self.bucket_counts.items():
            for lower_edge, bucket_row in buckets.items():
                rows_by_group[partition, kind][lower_edge].append(bucket_row)
        return tuple(
            FileGroup(
                *key,
                tuple(
                    _bucket(lower_edge, bucket_rows)
                    for lower_edge, bucket_rows in sorted(rows_by_group[key].items())
                ),
                self.file_scoped_counts[key],
            )
            for key in sorted(rows_by_group, key=_key_order)
        )

    def sequences(self) -> tuple[SequenceCounts, ...]:
        """Freeze the sequence counts of the partitions to which deletes may apply."""
        partitions_with_deletes = {p for p, kind, _ in self.bucket_counts if kind is not Kind.DATA}
        has_global_deletes = self.has_global_deletes
        well_sized_min = min_file_size(self.target_bytes)
        well_sized_max = max_file_size(self.target_bytes)
        counts_by_partition: dict[Partition, dict[int, Counter[str]]] = {}
        for (partition, kind, sequence_number), buckets in self.bucket_counts.items():
            if not (has_global_deletes or partition in partitions_with_deletes):
                continue
            counts_by_sequence = counts_by_partition.setdefault(partition, defaultdict(Counter))
            sequence_counts = counts_by_sequence[range_end(sequence_number, self.sequence_width)]
            for file_count, size_in_bytes, record_count, min_bytes, max_bytes in buckets.values():
                sequence_counts[f"{_COUNTED_AS[kind]}_file_count"] += file_count
                sequence_counts[f"{_COUNTED_AS[kind]}_record_count"] += record_count
                # Both limits are bucket edges, so no bucket crosses them.
                if (
                    kind is Kind.DATA
                    and well_sized_min <= min_bytes
                    and max_bytes <= well_sized_max
                ):
                    sequence_counts["well_sized_file_count"] += file_count
                    sequence_counts["well_sized_bytes"] += size_in_bytes
        for (partition, end), (file_count, record_count) in self.ruled_out_counts.items():
            sequence_counts = counts_by_partition[partition][end]
            sequence_counts.update(
                ruled_out_file_count=file_count, ruled_out_record_count=record_count
            )
        return tuple(
            SequenceCounts(partition, end, **sequence_counts)
            for partition in sorted(counts_by_partition, key=sort_key)
            for end, sequence_counts in sorted(counts_by_partition[partition].items())
        )


def add(counts: list[int], *amounts: int) -> None:
    """Add to the first of some counts."""
    for index, amount in enumerate(amounts):
        counts[index] += amount


def _bucket(lower_edge: int, bucket_rows: Iterable[Sequence[int]]) -> Bucket:
    file_counts, byte_counts, record_counts, min_sizes, max_sizes = zip(*bucket_rows, strict=True)
    return Bucket(
        lower_edge,
        sum(file_counts),
        sum(byte_counts),
        sum(record_counts),
        min(min_sizes),
        max(max_sizes),
    )


_RANKS = {name: rank for rank, name in enumerate((*Kind, *DeleteState))}


def _key_order(key: tuple[Any, ...]) -> tuple[object, ...]:
    """The order of keys of partition, kind, and state."""
    return sort_key(key[0]), *(_RANKS[kind_or_state] for kind_or_state in key[1:])
