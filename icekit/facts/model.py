"""Hold what a table is: frozen, bounded in size, units in the names.

:class:`TableFacts` is a rollup. What it holds grows with partitions, never with files.
Both collectors (:mod:`icekit.facts.spark`, :mod:`icekit.facts.local`) give equal facts.
Absent is ``None``, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

#: A partition value as Iceberg stores it: dates as days, timestamps as microseconds since
#: 1970, decimals and uuids as text, binary as hex.
Scalar = int | float | str | bool | None


class Kind(StrEnum):
    """What a file in a manifest is."""

    DATA = "data"
    POSITION_DELETES = "position_deletes"
    EQUALITY_DELETES = "equality_deletes"
    DELETION_VECTORS = "deletion_vectors"


DELETE_KINDS = (Kind.POSITION_DELETES, Kind.EQUALITY_DELETES, Kind.DELETION_VECTORS)


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column of the schema; ``name`` is dotted for nested ones.

    ``position`` is that of its top-level column, from 0; ``metrics_mode`` is the mode in
    force for new files (``none``, ``counts``, ``truncate(16)``, ``full``).
    """

    field_id: int
    name: str
    type: str
    required: bool
    position: int
    metrics_mode: str


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition spec; ``source`` is the dotted column name, or None if dropped."""

    field_id: int
    name: str
    transform: str
    source_id: int
    source: str | None
    result_type: str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition spec, current or left behind."""

    spec_id: int
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of the default sort order."""

    source: str
    transform: str
    direction: str
    null_order: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A table property in force and where it comes from: ``table property`` or ``default``."""

    name: str
    value: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class DistributionMode:
    """How one operation distributes rows before it writes, and why."""

    operation: str
    mode: str
    origin: str


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """Files of one partition and kind whose size is in one bucket.

    ``lower_bytes`` is the bucket's inclusive lower edge, see :func:`icekit.facts.sizes.edges`.
    """

    lower_bytes: int
    file_count: int
    size_in_bytes: int
    record_count: int
    min_bytes: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as (spec, values); values are in the order of the spec's fields."""

    spec_id: int
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files of one kind in one partition, by size bucket.

    ``file_scoped_count`` counts delete files that name a single data file: the only ones
    that ``delete-ratio-threshold`` sees. For deletion vectors, sizes are of the blob.
    """

    partition: Partition
    kind: Kind
    buckets: tuple[Bucket, ...]
    file_scoped_count: int = 0

    @property
    def file_count(self) -> int:
        """Number of files (of deletion vectors: of vectors)."""
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
    def min_bytes(self) -> int:
        """Smallest file, exact."""
        return min(b.min_bytes for b in self.buckets)

    @property
    def max_bytes(self) -> int:
        """Largest file, exact."""
        return max(b.max_bytes for b in self.buckets)

    @property
    def mean_bytes(self) -> float:
        """Mean file size."""
        return self.size_in_bytes / self.file_count

    @property
    def median_bytes(self) -> int:
        """Approximate median: its bucket is exact, the place in it is interpolated."""
        rank = (self.file_count - 1) / 2
        below = 0
        for bucket in self.buckets:
            if rank < below + bucket.file_count:
                share = (rank - below) / max(bucket.file_count - 1, 1)
                return round(bucket.min_bytes + share * (bucket.max_bytes - bucket.min_bytes))
            below += bucket.file_count
        raise ValueError("a file group without files")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over file groups; ``min_bytes`` and ``max_bytes`` are None when there is no file."""

    file_count: int = 0
    size_in_bytes: int = 0
    record_count: int = 0
    min_bytes: int | None = None
    max_bytes: int | None = None

    @classmethod
    def of(cls, groups: Iterable[FileGroup]) -> Totals:
        """Add up groups."""
        files = size = records = 0
        low: int | None = None
        high: int | None = None
        for group in groups:
            for b in group.buckets:
                files, size, records = files + b.file_count, size + b.size_in_bytes, records + b.record_count
                low = b.min_bytes if low is None or b.min_bytes < low else low
                high = b.max_bytes if high is None or b.max_bytes > high else high
        return cls(files, size, records, low, high)

    @property
    def mean_bytes(self) -> float | None:
        """Mean file size, None without files."""
        return self.size_in_bytes / self.file_count if self.file_count else None


@dataclass(frozen=True, slots=True)
class SequenceCounts:
    """Files of one partition that share a data sequence number.

    Kept only for partitions to which delete files may apply. A position delete applies to
    data of its own or a lower sequence number, an equality delete to data of a lower one
    (table spec, "Scan Planning"). ``sequence_number`` is the highest of
    :attr:`TableFacts.sequence_width` consecutive ones; the width is 1 (exact) unless there
    are very many. ``well_sized_*`` are data files that no size rule would rewrite.
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


@dataclass(frozen=True, slots=True)
class RangeOverlap:
    """How much manifests overlap on one partition field.

    ``mean_share`` is the mean over manifests of the share of the other manifests of the
    spec whose range of this field intersects theirs: 0 is perfectly clustered, 1 is not at all.
    """

    spec_id: int
    field: str
    manifest_count: int
    mean_share: float


@dataclass(frozen=True, slots=True)
class ManifestFacts:
    """The manifests of the snapshot, from its manifest list.

    ``*_entry_count`` are live (added and existing) entries; ``deleted_entry_count`` are
    tombstones that readers of data manifests skip over.
    """

    data_count: int = 0
    data_bytes: int = 0
    data_entry_count: int = 0
    delete_count: int = 0
    delete_bytes: int = 0
    delete_entry_count: int = 0
    deleted_entry_count: int = 0
    min_bytes: int | None = None
    max_bytes: int | None = None
    undersized_data_count: int = 0
    overlaps: tuple[RangeOverlap, ...] = ()

    @property
    def bytes_per_data_entry(self) -> float | None:
        """Manifest bytes that one data file costs, compressed."""
        return self.data_bytes / self.data_entry_count if self.data_entry_count else None


@dataclass(frozen=True, slots=True)
class Commit:
    """One snapshot of the lineage, from its summary; None where the writer did not say."""

    snapshot_id: int
    committed_at_ms: int
    operation: str | None
    writer: str | None
    added_data_files: int | None
    added_delete_files: int | None
    added_bytes: int | None
    added_records: int | None
    removed_data_files: int | None
    changed_partitions: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag."""

    name: str
    type: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class History:
    """Snapshots of the table, and the newest commits of the lineage, oldest first.

    ``commits`` holds at most :data:`icekit.facts.metadata.MAX_COMMITS`; ``operations``
    counts the whole lineage.
    """

    snapshot_count: int = 0
    lineage_count: int = 0
    oldest_snapshot_ms: int | None = None
    newest_snapshot_ms: int | None = None
    median_seconds_between_commits: float | None = None
    operations: tuple[tuple[str, int], ...] = ()
    commits: tuple[Commit, ...] = ()
    refs: tuple[Ref, ...] = ()
    metadata_log_count: int = 0


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
class MetricsSample:
    """What statistics a few data files of a few manifests really carry."""

    file_count: int = 0
    manifest_count: int = 0
    columns: tuple[ColumnSample, ...] = ()

    def column(self, name: str) -> ColumnSample | None:
        """The sample of one column, None if it is unknown."""
        return next((c for c in self.columns if c.column == name), None)


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """Files under the table's location that no snapshot references.

    Listed by the dry run of ``remove_orphan_files``; ``examples`` are a few paths.
    """

    older_than_ms: int
    orphan_count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableFacts:
    """Everything icekit knows of a table at one snapshot, without a row per file."""

    catalog: str
    table: tuple[str, ...]
    table_uuid: str | None
    location: str
    format_version: int
    snapshot_id: int | None
    ref: str | None
    snapshot_ms: int | None
    schema_id: int
    columns: tuple[Column, ...]
    top_level_column_count: int
    specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    sort_order: tuple[SortField, ...]
    properties: Mapping[str, str]
    settings: tuple[Setting, ...]
    distribution: tuple[DistributionMode, ...]
    filter_columns: tuple[str, ...]
    data_edges: tuple[int, ...]
    delete_edges: tuple[int, ...]
    groups: tuple[FileGroup, ...]
    sequences: tuple[SequenceCounts, ...]
    sequence_width: int
    manifests: ManifestFacts
    history: History
    metrics_sample: MetricsSample
    storage: StorageFacts | None = None
    collector: str = field(default="", compare=False)
    collected_at_ms: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        from icekit.sql import display_name

        return display_name(self.table)

    @cached_property
    def _by_kind(self) -> Mapping[Kind, tuple[FileGroup, ...]]:
        return {kind: tuple(g for g in self.groups if g.kind is kind) for kind in Kind}

    def of_kind(self, kind: Kind) -> tuple[FileGroup, ...]:
        """The file groups of one kind, ordered by partition."""
        return self._by_kind[kind]

    @cached_property
    def _totals(self) -> Mapping[Kind, Totals]:
        return {kind: Totals.of(groups) for kind, groups in self._by_kind.items()}

    def total(self, kind: Kind) -> Totals:
        """Sums over all partitions."""
        return self._totals[kind]

    @property
    def data(self) -> Totals:
        """Sums over the data files."""
        return self.total(Kind.DATA)

    @property
    def has_deletes(self) -> bool:
        """Tell whether any delete file or deletion vector is live."""
        return any(self.total(kind).file_count for kind in DELETE_KINDS)

    def setting(self, name: str) -> str | None:
        """The value in force of a table property (explicit or default)."""
        for setting in self.settings:
            if setting.name == name:
                return setting.value
        return self.properties.get(name)

    def int_setting(self, name: str) -> int:
        """A whole-number property in force; raises KeyError for one without a value."""
        value = self.setting(name)
        if value is None:
            raise KeyError(name)
        return int(value)

    @property
    def target_bytes(self) -> int:
        """The target size of data files in force."""
        return self.int_setting("write.target-file-size-bytes")

    @cached_property
    def _specs(self) -> Mapping[int, PartitionSpec]:
        return {spec.spec_id: spec for spec in self.specs}

    def spec(self, spec_id: int) -> PartitionSpec:
        """A partition spec by its id."""
        return self._specs[spec_id]

    @property
    def default_spec(self) -> PartitionSpec:
        """The spec that new files are written with."""
        return self.spec(self.default_spec_id)

    def partition_path(self, partition: Partition) -> str:
        """``month=2013-01/carrier=UA``, as Iceberg writes partition values for people."""
        from icekit.facts.values import partition_path

        return partition_path(self.spec(partition.spec_id), partition.values)

    def partitions(self) -> Iterator[Partition]:
        """Every partition with a live file, in order, once."""
        yield from dict.fromkeys(group.partition for group in self.groups)
