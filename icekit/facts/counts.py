"""Collect the counts of a snapshot's live files, which both collectors add, and freeze them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Bucket, EqualityKey, FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.integrity import (
    MOST_PARTITIONS,
    DeleteState,
    DuplicateFile,
    Integrity,
    UnappliedDeletes,
)
from icekit.facts.key_bounds import KeyColumn
from icekit.facts.manifests import (
    FileCounts,
    Record,
    is_delete_manifest,
    live_count,
    may_have_live,
)
from icekit.facts.rollup import Cut, sequence_width, sort_key

# Sequence counts are lists in the order of SequenceCounts; each kind's counts start at this place.
_FIRST_COUNT = {
    Kind.DATA: 0,
    Kind.EQUALITY_DELETES: 4,
    Kind.POSITION_DELETES: 6,
    Kind.DELETION_VECTORS: 6,
}
_Counts = dict[tuple[Partition, Kind], dict[int, list[int]]]


@dataclass(slots=True)
class Rollup:
    """What a collector counts of the live files of a snapshot: buckets and sequence counts, which
    :meth:`groups` and :meth:`sequences` freeze.

    Given are the ``manifests``, the table's partition specs and columns (by id), how sizes are cut,
    and the last sequence number. A bucket is [files, bytes, records, smallest, largest], by its
    edge. Deletes that apply to nothing are only in ``unapplied``, as [files, bytes, records].
    """

    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, KeyColumn]
    cut: Cut
    last_sequence_number: int = 0
    width: int = 1
    buckets: _Counts = field(default_factory=lambda: defaultdict(dict))
    file_scoped: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    by_sequence: dict[tuple[Partition, int], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0] * 10)
    )
    by_key: dict[tuple[int, ...], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )
    unapplied: dict[tuple[Partition, Kind, DeleteState], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    integrity: Integrity = field(default_factory=Integrity)

    @property
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
        return any(kind is Kind.EQUALITY_DELETES and self.is_global(p) for p, kind in self.buckets)

    def set_width(self, partition_count: int) -> None:
        """Set the width of sequence numbers."""
        files = sum(map(live_count, self.manifests))
        width = sequence_width(files, partition_count, self.last_sequence_number)
        self.width = max(self.width, width)

    def add_bucket(self, partition: Partition, kind: Kind, edge: int, row: Sequence[int]) -> None:
        """Add the counts of files."""
        buckets = self.buckets[partition, kind]
        bucket = buckets.get(edge)
        if bucket is None:
            buckets[edge] = list(row)
            return
        add(bucket, *row[:3])
        bucket[3:] = min(bucket[3], row[3]), max(bucket[4], row[4])

    def add_sequence(
        self,
        partition: Partition,
        sequence_number: int,
        kind: Kind,
        counts: Sequence[int],
        is_well_sized: bool,
    ) -> None:
        """Add [files, bytes, records] to the counts of a partition and (range of) sequence
        number.
        """
        files, size, records = counts
        row, first = self.by_sequence[partition, sequence_number], _FIRST_COUNT[kind]
        row[first] += files
        row[first + 1] += records
        if kind is Kind.DATA and is_well_sized:
            row[2] += files
            row[3] += size

    def add_key(self, field_ids: Iterable[int], files: int, records: int) -> None:
        """Add equality delete files with these key columns."""
        counts = self.by_key[tuple(sorted(field_ids))]
        counts[0] += files
        counts[1] += records

    def add_duplicates(
        self,
        file_counts: FileCounts,
        records: int,
        partitions: Collection[Partition],
        examples: Iterable[DuplicateFile],
    ) -> None:
        """Add the files that are listed more than once."""
        named = sorted(partitions, key=sort_key) if len(partitions) <= MOST_PARTITIONS else ()
        self.integrity = replace(
            self.integrity,
            duplicate_data_file_count=file_counts.data,
            duplicate_delete_file_count=file_counts.deletes,
            duplicate_record_count=records,
            duplicate_partitions=tuple(named),
            duplicates=tuple(examples),
        )

    def equality_keys(self) -> tuple[EqualityKey, ...]:
        """Freeze the keys of the equality deletes; a table has one or a few."""
        return tuple(EqualityKey(ids, *counts) for ids, counts in sorted(self.by_key.items()))

    def file_counts(self) -> FileCounts:
        """The live data files and delete files, each as often as it is listed."""
        data = deletes = 0
        for (_, kind), buckets in self.buckets.items():
            files = sum(row[0] for row in buckets.values())
            data, deletes = (
                (data + files, deletes) if kind is Kind.DATA else (data, deletes + files)
            )
        return FileCounts(data, deletes + sum(files for files, _, _ in self.unapplied.values()))

    def unapplied_deletes(self) -> tuple[UnappliedDeletes, ...]:
        """Freeze the deletes that apply to nothing."""
        return tuple(
            UnappliedDeletes(*key, *self.unapplied[key])
            for key in sorted(self.unapplied, key=_order)
        )

    def groups(self) -> tuple[FileGroup, ...]:
        """Freeze the buckets, ordered by partition and kind."""
        return tuple(
            FileGroup(
                *key,
                tuple(Bucket(edge, *row) for edge, row in sorted(self.buckets[key].items())),
                self._scoped(*key),
            )
            for key in sorted(self.buckets, key=_order)
        )

    def _scoped(self, partition: Partition, kind: Kind) -> int:
        if kind is Kind.POSITION_DELETES:
            return self.file_scoped.get(partition, 0)
        rows = self.buckets[partition, kind].values() if kind is Kind.DELETION_VECTORS else ()
        return sum(row[0] for row in rows)

    def sequences(self) -> tuple[SequenceCounts, ...]:
        """Freeze the sequence counts of the partitions to which deletes may apply."""
        everywhere = self.has_global_deletes
        with_deletes = {p for p, kind in self.buckets if kind is not Kind.DATA}
        kept = [(p, s) for p, s in self.by_sequence if everywhere or p in with_deletes]
        # There are few partitions and their sort keys are slow to compute, so each is computed
        # once.
        ranks = {p: i for i, p in enumerate(sorted({p for p, _ in kept}, key=sort_key))}
        ordered = sorted(kept, key=lambda key: (ranks[key[0]], key[1]))
        return tuple(SequenceCounts(p, s, *self.by_sequence[p, s]) for p, s in ordered)


def add(counts: list[int], files: int, size: int, records: int) -> None:
    """Add to the first three of some counts."""
    counts[0] += files
    counts[1] += size
    counts[2] += records


_RANKS = {name: rank for rank, name in enumerate((*Kind, *DeleteState))}


def _order(key: tuple[Any, ...]) -> tuple[object, ...]:
    """The order of keys of partition, kind, and state."""
    return sort_key(key[0]), *(_RANKS[name] for name in key[1:])
