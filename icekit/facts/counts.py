"""Collect the counts of a snapshot's live files, which both collectors add, and freeze them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Bucket, EqualityKey, FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.integrity import DeleteState, Integrity, UnappliedDeletes
from icekit.facts.key_bounds import KeyColumn, Keyed, range_end
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
    """What a collector counts of the live files of a snapshot, which :meth:`add_up` adds to buckets
    and sequence counts; :meth:`groups` and :meth:`sequences` freeze these.

    Given are the ``manifests``, the table's partition specs and columns (by id), how sizes are cut,
    and the last sequence number. ``counted`` has buckets by partition, kind, and (range of)
    sequence number, 0 where no deletes are. A bucket is [files, bytes, records, smallest,
    largest], by its edge. Deletes that apply to nothing are only in ``unapplied``, as [files,
    bytes, records].
    """

    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, KeyColumn]
    cut: Cut
    last_sequence_number: int = 0
    width: int = 1
    counted: dict[tuple[Partition, Kind, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    buckets: _Counts = field(default_factory=lambda: defaultdict(dict))
    file_scoped: Counter[tuple[Partition, Kind]] = field(default_factory=Counter)
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
        return any(
            kind is Kind.EQUALITY_DELETES and self.is_global(p) for p, kind, _ in self.counted
        )

    def set_width(self, partition_count: int) -> None:
        """Set the width of sequence numbers."""
        files = sum(map(live_count, self.manifests))
        width = sequence_width(files, partition_count, self.last_sequence_number)
        self.width = max(self.width, width)

    def set_apart(
        self, state: DeleteState, is_apart: Callable[[Partition, Kind, int], bool]
    ) -> None:
        """Count deletes among those that apply to nothing."""
        for key in [key for key in self.counted if is_apart(*key)]:
            for row in self.counted.pop(key).values():
                add(self.unapplied[(*key[:2], state)], *row[:3])

    def rule_out(
        self,
        numbers: Mapping[Partition, int],
        data: Keyed,
        deletes: Mapping[tuple[int, ...], Keyed],
    ) -> None:
        """Set the equality deletes apart whose keys are in no older data file by their bounds, and
        count what bounds rule out of other data; ``numbers`` are those of the partitions.
        """
        from icekit.facts.ruled_out import rule_out  # numpy is loaded only for equality deletes

        everywhere = {number for partition, number in numbers.items() if self.is_global(partition)}
        partitions = list(numbers)
        ruled_out = rule_out(data, deletes, everywhere, self.width == 1)
        for (number, end), counts in ruled_out.data.items():
            self.by_sequence[partitions[number], end][8:] = counts
        new_keys = {(partitions[number], end) for number, end in ruled_out.deletes}
        self.set_apart(
            DeleteState.NEW_KEYS,
            lambda partition, kind, sequence: (
                kind is Kind.EQUALITY_DELETES
                and (partition, range_end(sequence, self.width)) in new_keys
            ),
        )

    def add_up(self) -> None:
        """Add the files that are counted, and left, to the buckets and the sequence counts."""
        has_deletes, (low, high) = self.has_deletes, self.cut.well_sized
        for (partition, kind, sequence), buckets in self.counted.items():
            end, first = range_end(sequence, self.width), _FIRST_COUNT[kind]
            for edge, row in buckets.items():
                self._add_bucket(partition, kind, edge, row)
                if has_deletes:
                    counts = self.by_sequence[partition, end]
                    counts[first] += row[0]
                    counts[first + 1] += row[2]
                    # Both limits are bucket edges, so no bucket crosses them.
                    if kind is Kind.DATA and low <= row[3] and row[4] <= high:
                        counts[2] += row[0]
                        counts[3] += row[1]

    def _add_bucket(self, partition: Partition, kind: Kind, edge: int, row: Sequence[int]) -> None:
        buckets = self.buckets[partition, kind]
        bucket = buckets.get(edge)
        if bucket is None:
            buckets[edge] = list(row)
            return
        add(bucket, *row[:3])
        bucket[3:] = min(bucket[3], row[3]), max(bucket[4], row[4])

    def add_key(self, field_ids: Iterable[int], files: int, records: int) -> None:
        """Add equality delete files with these key columns, in order."""
        counts = self.by_key[tuple(field_ids)]
        counts[0] += files
        counts[1] += records

    def equality_keys(self) -> tuple[EqualityKey, ...]:
        """Freeze the keys of the equality deletes; a table has one or a few."""
        return tuple(EqualityKey(ids, *counts) for ids, counts in sorted(self.by_key.items()))

    def file_counts(self) -> FileCounts:
        """The live data files and delete files, each as often as it is listed."""
        files: Counter[bool] = Counter()
        for (_, kind), buckets in self.buckets.items():
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
        return tuple(
            FileGroup(
                *key,
                tuple(Bucket(edge, *row) for edge, row in sorted(self.buckets[key].items())),
                self.file_scoped.get(key, 0),
            )
            for key in sorted(self.buckets, key=_order)
        )

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
