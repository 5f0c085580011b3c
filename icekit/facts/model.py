"""Hold what a table is: frozen, bounded in size, units in the names.

:class:`TableFacts` is a rollup. What it holds grows with partitions, never with files.
Both collectors (:mod:`icekit.facts.spark`, :mod:`icekit.facts.local`) give equal facts.
Absent is ``None``, never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from icekit.facts import values
from icekit.facts.files import DELETE_KINDS, Bucket, EqualityKey, FileGroup, Kind, Partition, Scalar, SequenceCounts, Totals
from icekit.facts.parts import (
    Column,
    ColumnSample,
    Commit,
    DistributionMode,
    History,
    ManifestFacts,
    MetricsSample,
    PartitionField,
    PartitionSpec,
    RangeOverlap,
    Ref,
    Setting,
    SharedPlace,
    Sharing,
    SortField,
    StorageFacts,
)

__all__ = [
    "DELETE_KINDS",
    "Bucket",
    "Column",
    "ColumnSample",
    "Commit",
    "DistributionMode",
    "EqualityKey",
    "FileGroup",
    "History",
    "Kind",
    "ManifestFacts",
    "MetricsSample",
    "Partition",
    "PartitionField",
    "PartitionSpec",
    "RangeOverlap",
    "Ref",
    "Scalar",
    "SequenceCounts",
    "Setting",
    "SharedPlace",
    "Sharing",
    "SortField",
    "StorageFacts",
    "TableFacts",
    "Totals",
]


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
    equality_keys: tuple[EqualityKey, ...] = ()
    collector: str = field(default="", compare=False)
    iceberg_version: str | None = field(default=None, compare=False)
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
        return values.partition_path(self.spec(partition.spec_id), partition.values)

    def partitions(self) -> Iterator[Partition]:
        """Every partition with a live file, in order, once."""
        yield from dict.fromkeys(group.partition for group in self.groups)
