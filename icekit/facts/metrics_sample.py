"""Hold the column statistics that a few data files have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnSample:
    """One column's statistics in the sampled data files.

    ``stab_share`` is the mean share of sampled files that a point lookup on the column
    must read by its bounds (1.0: bounds never skip); None with fewer than two files.
    """

    column: str
    bounds_file_count: int
    counts_file_count: int
    stab_share: float | None


@dataclass(frozen=True, slots=True)
class SampledWrite:
    """What one commit added, as far as the sample has it: data files, their bytes and partitions, and the tasks that wrote them, by the files' names."""

    file_count: int
    task_count: int
    size_in_bytes: int
    partition_count: int = 1


@dataclass(frozen=True, slots=True)
class RepeatedIdentifiers:
    """A commit that added more records than its files can have identifiers: by the bounds of the identifier fields, at most ``most``."""

    snapshot_id: int
    record_count: int
    most: int


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """The actual statistics of a few data files in a few manifests.

    ``column_bytes`` and ``file_bytes`` are sums over the ``sized_files`` whose entries have the sizes of their columns; for Parquet those of
    column chunks, without bloom filters, indexes and footers. ``writes`` are commits that a sampled manifest has in full, oldest first;
    ``repeated`` those of them that are certain to have an identifier in more than one record, by ``identifiers``, the identifier fields.
    """

    file_count: int = 0
    manifest_count: int = 0
    columns: tuple[ColumnSample, ...] = ()
    sized_files: int = 0
    file_bytes: int = 0
    column_bytes: int = 0
    writes: tuple[SampledWrite, ...] = ()
    identifiers: tuple[str, ...] = ()
    repeated: tuple[RepeatedIdentifiers, ...] = ()

    def column(self, name: str) -> ColumnSample | None:
        """The sample of one column, None if it is unknown."""
        return next((c for c in self.columns if c.column == name), None)
