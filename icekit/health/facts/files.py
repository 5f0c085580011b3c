"""Count the files of a table by partition, kind, size bucket and sequence number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from icekit.common import frozen
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """Files of one partition and kind whose size is in one bucket; delete files have only one.

    ``lower_bytes`` is the bucket's inclusive lower edge, see
    :func:`icekit.health.facts.rollup.bucket_edges`.
    """

    lower_bytes: int
    file_count: int
    size_in_bytes: int
    record_count: int
    min_bytes: int
    max_bytes: int


@frozen
class FileGroup:
    """The files of one kind in one partition, by size bucket.

    ``file_scoped_count`` counts delete files that name a single data file: the only ones
    that ``delete-ratio-threshold`` counts. For deletion vectors, sizes are sizes of the blob.
    """

    partition: Partition
    kind: Kind
    buckets: tuple[Bucket, ...]
    file_scoped_count: int = 0

    @property
    def file_count(self) -> int:
        """Number of files (for deletion vectors: number of vectors)."""
        return sum(b.file_count for b in self.buckets)

    @property
    def size_in_bytes(self) -> int:
        """Total size."""
        return sum(b.size_in_bytes for b in self.buckets)

    @property
    def record_count(self) -> int:
        """Rows of data files before deletes; delete records of delete files."""
        return sum(b.record_count for b in self.buckets)

    @property
    def mean_bytes(self) -> float:
        """Mean file size."""
        return self.size_in_bytes / self.file_count


@frozen
class Totals:
    """Sums over file groups; ``min_bytes`` and ``max_bytes`` are None without files."""

    file_count: int = 0
    size_in_bytes: int = 0
    record_count: int = 0
    min_bytes: int | None = None
    max_bytes: int | None = None

    @classmethod
    def of_groups(cls, groups: Iterable[FileGroup]) -> Totals:
        """Add up groups."""
        return cls.of_buckets([bucket for group in groups for bucket in group.buckets])

    @classmethod
    def of_buckets(cls, buckets: Sequence[Bucket]) -> Totals:
        """Add up buckets."""
        return cls(
            sum(b.file_count for b in buckets),
            sum(b.size_in_bytes for b in buckets),
            sum(b.record_count for b in buckets),
            min((b.min_bytes for b in buckets), default=None),
            max((b.max_bytes for b in buckets), default=None),
        )

    @property
    def mean_bytes(self) -> float | None:
        """Mean file size, None without files."""
        return self.size_in_bytes / self.file_count if self.file_count else None


@frozen
class SequenceCounts:
    """Files of one partition that share a data sequence number.

    Kept only for partitions to which delete files may apply. A position delete applies to
    data of the same or a lower sequence number, an equality delete to data of a lower one
    (table spec, "Scan Planning"). ``sequence_number`` is the highest of
    :attr:`TableFacts.sequence_width` consecutive ones; the width is 1 (exact) unless there are very
    many. ``well_sized_*`` are data files that no size rule would rewrite. ``ruled_out_*`` are the
    later equality deletes whose key bounds rule out that they apply to this data, see
    :mod:`icekit.iceberg.key_bounds`.
    """

    partition: Partition
    sequence_number: int
    data_file_count: int = 0
    data_record_count: int = 0
    well_sized_file_count: int = 0
    well_sized_bytes: int = 0
    equality_delete_file_count: int = 0
    equality_delete_record_count: int = 0
    position_delete_file_count: int = 0
    position_delete_record_count: int = 0
    ruled_out_file_count: int = 0
    ruled_out_record_count: int = 0


@frozen
class EqualityKey:
    """Equality delete files with the same key columns; ``field_ids`` are ascending."""

    field_ids: tuple[int, ...]
    file_count: int
    record_count: int
