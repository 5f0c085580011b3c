"""Derive what people ask for from facts: size histogram, delete ratios, worst partitions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from icekit.facts.model import FileGroup, Kind, Partition, SequenceCounts, TableFacts, Totals
from icekit.facts.rollup import sort_key
from icekit.facts.sizes import bucket_of


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """Files with ``lower_bytes <= size < upper_bytes``; the last bar is open (None).

    ``min_bytes`` and ``max_bytes`` are the smallest and the largest file of it; None without files.
    """

    lower_bytes: int
    upper_bytes: int | None
    file_count: int
    size_in_bytes: int
    min_bytes: int | None = None
    max_bytes: int | None = None


def file_size_histogram(
    facts: TableFacts, kind: Kind = Kind.DATA, edges: tuple[int, ...] | None = None, *, reach: tuple[int, int] | None = None
) -> tuple[HistogramBar, ...]:
    """Files by size, from the smallest bar in use to the largest; empty without files.

    ``edges`` are the facts' own, or others that no bucket crosses; ``reach`` are sizes to which empty bars go on.
    """
    if edges is None:
        edges = facts.data_edges if kind is Kind.DATA else facts.delete_edges
    counted: dict[int, list[int]] = {}
    for group in facts.of_kind(kind):
        for bucket in group.buckets:
            row = counted.setdefault(bucket_of(bucket.min_bytes, edges), [0, 0, bucket.min_bytes, bucket.max_bytes])
            row[0] += bucket.file_count
            row[1] += bucket.size_in_bytes
            row[2:] = min(row[2], bucket.min_bytes), max(row[3], bucket.max_bytes)
    if not counted:
        return ()
    sizes = (*counted, *(reach or ()))
    first, last = bisect_right(edges, min(sizes)) - 1, bisect_right(edges, max(sizes)) - 1
    uppers: tuple[int | None, ...] = (*edges[1:], None)
    return tuple(HistogramBar(edges[i], uppers[i], *counted.get(edges[i], (0, 0))) for i in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class DeleteRatio:
    """Deletes against data in one partition (None: the whole table).

    Ratios are delete files per data file and delete records per data record; None where
    there is no data.
    """

    partition: Partition | None
    data_file_count: int
    data_record_count: int
    position_delete_file_count: int
    position_delete_record_count: int
    equality_delete_file_count: int
    equality_delete_record_count: int
    deletion_vector_count: int
    deletion_vector_record_count: int

    @property
    def delete_record_count(self) -> int:
        """Delete records of all three kinds."""
        return self.position_delete_record_count + self.equality_delete_record_count + self.deletion_vector_record_count

    @property
    def delete_file_count(self) -> int:
        """Delete files and deletion vectors."""
        return self.position_delete_file_count + self.equality_delete_file_count + self.deletion_vector_count

    @property
    def by_files(self) -> float | None:
        """Delete files per data file."""
        return self.delete_file_count / self.data_file_count if self.data_file_count else None

    @property
    def by_records(self) -> float | None:
        """Delete records per data record."""
        return self.delete_record_count / self.data_record_count if self.data_record_count else None


def _ratio(partition: Partition | None, totals: Mapping[Kind, Totals]) -> DeleteRatio:
    data, position, equality, vectors = (totals.get(kind, Totals()) for kind in Kind)
    return DeleteRatio(
        partition,
        data.file_count,
        data.record_count,
        position.file_count,
        position.record_count,
        equality.file_count,
        equality.record_count,
        vectors.file_count,
        vectors.record_count,
    )


def delete_ratio(facts: TableFacts) -> DeleteRatio:
    """Deletes against data of the whole table."""
    return _ratio(None, {kind: facts.total(kind) for kind in Kind})


def delete_ratios(facts: TableFacts) -> tuple[DeleteRatio, ...]:
    """Deletes against data of each partition that has any deletes, highest ratio by records first."""
    groups: dict[Partition, dict[Kind, Totals]] = {}
    for group in facts.groups:
        groups.setdefault(group.partition, {})[group.kind] = Totals.of((group,))
    found = [_ratio(partition, kinds) for partition, kinds in groups.items() if any(kind is not Kind.DATA for kind in kinds)]
    return tuple(
        sorted(
            found, key=lambda r: (-(r.by_records if r.by_records is not None else float("inf")), sort_key(r.partition or Partition(0, ())))
        )
    )


def worst_partitions(facts: TableFacts, limit: int = 20) -> tuple[FileGroup, ...]:
    """Partitions with the most data files beyond what the target size would take."""

    def excess(group: FileGroup) -> int:
        return group.file_count - -(-group.size_in_bytes // facts.target_bytes)

    return tuple(sorted(facts.of_kind(Kind.DATA), key=lambda g: (-excess(g), -g.file_count, sort_key(g.partition)))[:limit])


@dataclass(frozen=True, slots=True)
class Applied:
    """Which equality deletes apply to the data of one partition, and to how much of it.

    ``data_files`` have at least one delete that applies; ``loads`` are delete records times
    the data files that must load them, which is what readers really pay.
    """

    partition: Partition
    data_file_count: int
    data_record_count: int
    well_sized_file_count: int
    well_sized_bytes: int
    max_deletes_per_file: int
    loads: int


def equality_deletes_applied(facts: TableFacts) -> Iterator[Applied]:
    """Work out per partition which equality deletes apply: those of a higher sequence number.

    Deletes written under an unpartitioned spec apply to every partition (table spec,
    "Scan Planning"). Key bounds are not looked at, so this is an upper bound.
    """
    by_partition = sequences_by_partition(facts)
    # Within a range of sequence numbers the order is not known: there deletes count as later.
    exact = 1 if facts.sequence_width == 1 else 0
    everywhere = [
        (s.sequence_number, s.equality_delete_record_count)
        for p, rows in by_partition.items()
        if facts.spec(p.spec_id).is_unpartitioned
        for s in rows
    ]
    for partition, rows in by_partition.items():
        own = [(s.sequence_number, s.equality_delete_record_count) for s in rows]
        deletes = everywhere if facts.spec(partition.spec_id).is_unpartitioned else own + everywhere
        deletes = sorted((d for d in deletes if d[1]), reverse=True)
        pending, place = 0, 0
        files = records = well_files = well_bytes = loads = most = 0
        for row in sorted(rows, key=lambda s: -s.sequence_number):
            while place < len(deletes) and deletes[place][0] >= row.sequence_number + exact:
                pending += deletes[place][1]
                place += 1
            if pending and row.data_file_count:
                files += row.data_file_count
                records += row.data_record_count
                well_files += row.well_sized_file_count
                well_bytes += row.well_sized_bytes
                loads += pending * row.data_file_count
                most = max(most, pending)
        if files:
            yield Applied(partition, files, records, well_files, well_bytes, most, loads)


def sequences_by_partition(facts: TableFacts) -> dict[Partition, list[SequenceCounts]]:
    """The sequence counts, by partition."""
    found: dict[Partition, list[SequenceCounts]] = {}
    for row in facts.sequences:
        found.setdefault(row.partition, []).append(row)
    return found
