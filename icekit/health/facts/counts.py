"""Collect the counts of a snapshot's live files, which both collectors add, and freeze them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from icekit.health.facts.files import Bucket, EqualityKey, FileGroup, SequenceCounts
from icekit.health.facts.integrity import DeleteState, Integrity, UnappliedDeletes
from icekit.health.facts.rollup import max_file_size, min_file_size, sort_key
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyColumn, Keyed, range_end
from icekit.iceberg.manifests import (
    FileCounts,
    Record,
    is_delete_manifest,
    live_count,
    may_have_live,
)
from icekit.iceberg.partition import Partition
from icekit.iceberg.ruled_out import rule_out

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

    Given are the ``manifests``, the table's partition specs and columns (by id), the ``edges`` of
    size buckets, the target size of data files, and the last sequence number. ``counted`` has
    buckets by partition, kind, and (range of) sequence number, 0 where no deletes are. A bucket is
    [files, bytes, records, smallest, largest], by its edge. Deletes that apply to nothing are only
    in ``unapplied``, as [files, bytes, records]. ``ruled_out`` has the files and records of later
    equality deletes that do not apply to the data of a partition and range, by their key bounds.
    """

    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, KeyColumn]
    edges: tuple[int, ...]
    target_bytes: int
    last_sequence_number: int = 0
    width: int = 1
    counted: dict[tuple[Partition, Kind, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    file_scoped: Counter[tuple[Partition, Kind]] = field(default_factory=Counter)
    by_key: dict[tuple[int, ...], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )
    unapplied: dict[tuple[Partition, Kind, DeleteState], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    ruled_out: dict[tuple[Partition, int], tuple[int, int]] = field(default_factory=dict)
    integrity: Integrity = field(default_factory=Integrity)

    @cached_property
    def has_deletes(self) -> bool:
        """Tell whether any manifest may have live delete files."""
        return any(is_delete_manifest(m) and may_have_live(m) for m in self.manifests)

    def is_global(self, partition: Partition) -> bool:
        """Tell whether equality deletes of a partition may apply to every partition: those of an
        unpartitioned spec (table spec, "Scan Planning").
        """
        return self.specs[partition.spec_id].is_unpartitioned

    @property
    def has_global_deletes(self) -> bool:
        """Tell whether equality deletes that apply to data are global."""
        return any(
            kind is Kind.EQUALITY_DELETES and self.is_global(p) for p, kind, _ in self.counted
        )

    def set_width(self, partition_count: Callable[[], int]) -> None:
        """Set how many consecutive sequence numbers count as one: 1 unless there are very many.

        There cannot be more rows than files, nor more than partitions times sequence numbers.
        Without deletes, sequence numbers are not counted.
        """
        if self.has_deletes and sum(map(live_count, self.manifests)) > MAX_SEQUENCE_ROWS:
            most_groups = partition_count() * self.last_sequence_number
            self.width = max(self.width, -(-most_groups // MAX_SEQUENCE_ROWS))

    def set_apart(
        self, state: DeleteState, is_apart: Callable[[Partition, Kind, int], bool]
    ) -> None:
        """Count deletes among those that apply to nothing."""
        for key in [key for key in self.counted if is_apart(*key)]:
            for row in self.counted.pop(key).values():
                add(self.unapplied[(*key[:2], state)], *row[:3])

    def set_older_apart(self) -> None:
        """Set the deletes apart that are older than all data they could apply to (table spec, "Scan
        Planning"). Within a range of sequence numbers the order is not known, so deletes count as
        later.
        """
        oldest: dict[Partition, int] = {}
        for partition, kind, sequence in self.counted:
            if kind is Kind.DATA:
                end = range_end(sequence, self.width)
                oldest[partition] = min(end, oldest.get(partition, NEVER))
        oldest_of_all = min(oldest.values(), default=NEVER)

        def is_older(partition: Partition, kind: Kind, sequence: int) -> bool:
            end = range_end(sequence, self.width)
            first = oldest.get(partition, NEVER)
            if kind is not Kind.EQUALITY_DELETES:
                return kind is not Kind.DATA and end < first
            if self.is_global(partition):
                first = oldest_of_all
            return end <= first if self.width == 1 else end < first

        self.set_apart(DeleteState.DANGLING, is_older)

    def rule_out(
        self,
        partitions: Sequence[Partition],
        data: Keyed,
        deletes: Mapping[tuple[int, ...], Keyed],
    ) -> None:
        """Set the equality deletes apart whose keys are in no older data file by their bounds, and
        count what bounds rule out of other data; files are keyed by the places of ``partitions``.
        """
        everywhere = {index for index, each in enumerate(partitions) if self.is_global(each)}
        exclusions = rule_out(data, deletes, everywhere, self.width == 1)
        self.ruled_out = {
            (partitions[n], end): counts for (n, end), counts in exclusions.data.items()
        }
        new_keys = {(partitions[index], end) for index, end in exclusions.deletes}
        self.set_apart(
            DeleteState.NEW_KEYS,
            lambda partition, kind, sequence: (
                kind is Kind.EQUALITY_DELETES
                and (partition, range_end(sequence, self.width)) in new_keys
            ),
        )

    def equality_keys(self) -> tuple[EqualityKey, ...]:
        """Freeze the keys of the equality deletes; a table has one or a few."""
        return tuple(EqualityKey(ids, *counts) for ids, counts in sorted(self.by_key.items()))

    def file_counts(self) -> FileCounts:
        """The live data files and delete files, each as often as it is listed."""
        files: Counter[bool] = Counter()
        for (_, kind, _), buckets in self.counted.items():
            files[kind is Kind.DATA] += sum(row[0] for row in buckets.values())
        unapplied = sum(count for count, _, _ in self.unapplied.values())
        return FileCounts(files[True], files[False] + unapplied)

    def unapplied_deletes(self) -> tuple[UnappliedDeletes, ...]:
        """Freeze the deletes that apply to nothing."""
        return tuple(
            UnappliedDeletes(*key, *self.unapplied[key])
            for key in sorted(self.unapplied, key=_order)
        )

    def groups(self) -> tuple[FileGroup, ...]:
        """Freeze the buckets, ordered by partition and kind."""
        groups: dict[tuple[Partition, Kind], dict[int, list[list[int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (partition, kind, _), buckets in self.counted.items():
            for edge, row in buckets.items():
                groups[partition, kind][edge].append(row)
        return tuple(
            FileGroup(
                *key,
                tuple(_bucket(edge, rows) for edge, rows in sorted(groups[key].items())),
                self.file_scoped[key],
            )
            for key in sorted(groups, key=_order)
        )

    def sequences(self) -> tuple[SequenceCounts, ...]:
        """Freeze the sequence counts of the partitions to which deletes may apply."""
        with_deletes = {p for p, kind, _ in self.counted if kind is not Kind.DATA}
        everywhere = self.has_global_deletes
        low = min_file_size(self.target_bytes)
        high = max_file_size(self.target_bytes)
        sequences: dict[Partition, dict[int, Counter[str]]] = {}
        for (partition, kind, sequence), buckets in self.counted.items():
            if not (everywhere or partition in with_deletes):
                continue
            of_partition = sequences.setdefault(partition, defaultdict(Counter))
            counts = of_partition[range_end(sequence, self.width)]
            for files, size, records, smallest, largest in buckets.values():
                counts[f"{_COUNTED_AS[kind]}_file_count"] += files
                counts[f"{_COUNTED_AS[kind]}_record_count"] += records
                # Both limits are bucket edges, so no bucket crosses them.
                if kind is Kind.DATA and low <= smallest and largest <= high:
                    counts["well_sized_file_count"] += files
                    counts["well_sized_bytes"] += size
        for (partition, end), (files, records) in self.ruled_out.items():
            counts = sequences[partition][end]
            counts.update(ruled_out_file_count=files, ruled_out_record_count=records)
        return tuple(
            SequenceCounts(partition, end, **counts)
            for partition in sorted(sequences, key=sort_key)
            for end, counts in sorted(sequences[partition].items())
        )


def add(counts: list[int], *amounts: int) -> None:
    """Add to the first of some counts."""
    for index, amount in enumerate(amounts):
        counts[index] += amount


def _bucket(edge: int, rows: Iterable[Sequence[int]]) -> Bucket:
    files, size, records, smallest, largest = zip(*rows, strict=True)
    return Bucket(edge, sum(files), sum(size), sum(records), min(smallest), max(largest))


_RANKS = {name: rank for rank, name in enumerate((*Kind, *DeleteState))}


def _order(key: tuple[Any, ...]) -> tuple[object, ...]:
    """The order of keys of partition, kind, and state."""
    return sort_key(key[0]), *(_RANKS[name] for name in key[1:])
