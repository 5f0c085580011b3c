"""Hold the facts of a table: frozen, bounded in size, with units in the names and values as in the
Iceberg spec.

:class:`TableFacts` is a rollup. Its size grows with partitions, never with files.
Both collectors (:mod:`icekit.health.facts.spark`, :mod:`icekit.health.facts.local`) give equal
facts. A missing value is ``None``, never zero.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from icekit.common import frozen
from icekit.common.sql import display_name
from icekit.common.units import count, size
from icekit.engine.column_types import Ability, Engine
from icekit.health.facts.files import EqualityKey, FileGroup, SequenceCounts, Totals
from icekit.health.facts.integrity import Contradiction, DeleteState, Integrity, UnappliedDeletes
from icekit.health.facts.metadata_sections import MetadataSection
from icekit.health.facts.storage import MissingFiles, StorageFacts
from icekit.health.facts.storage_use import StorageUse
from icekit.iceberg.definition import (
    STOPPING_FLAWS,
    Column,
    DistributionMode,
    MetadataFlaw,
    OtherOptimizer,
    PartitionSpec,
    Setting,
    SortField,
    other_optimizer,
    position_deletes_name_clashes,
)
from icekit.iceberg.file_kind import DELETE_KINDS, Kind
from icekit.iceberg.manifest_counts import ManifestFacts, MetricsSample
from icekit.iceberg.partition import Partition
from icekit.iceberg.snapshots import History, StatisticsAge
from icekit.iceberg.values import partition_path
from icekit.iceberg.where import is_filterable, where

#: The name of the single partition of an unpartitioned table.
UNPARTITIONED = "(unpartitioned)"


@frozen
class UnsupportedColumn:
    """A column that the engine lacks an ability for, ``read`` or ``write``, because of its type;
    ``names`` are those from the top-level column down.
    """

    names: tuple[str, ...]
    type: str
    ability: Ability


@dataclass(frozen=True, repr=False)
class TableFacts:
    """Everything icekit knows about a table at one snapshot, without a row per file.

    ``recent`` are the partitions written within :data:`icekit.health.facts.head.RECENT_MINUTES` of
    the observation. ``groups`` and ``sequences`` have the live files without ``unapplied`` deletes,
    so that ratios, savings and predictions count only deletes that a scan may apply. ``storage``
    and ``missing`` are None unless storage was searched; ``unlisted`` says why orphan files were
    not listed, although they were asked for. ``misread_keys`` are the key columns of equality
    deletes that Spark misreads. ``metadata_bytes`` is the size of the table's metadata file,
    ``metadata_sections`` its largest parts. ``engine`` would work on the table, and
    ``unsupported_columns`` are those of the current schema that it cannot read or write.
    """

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
    specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    sort_order: tuple[SortField, ...]
    properties: Mapping[str, str]
    settings: tuple[Setting, ...]
    distribution: tuple[DistributionMode, ...]
    filter_columns: tuple[str, ...]
    data_edges: tuple[int, ...]
    groups: tuple[FileGroup, ...]
    sequences: tuple[SequenceCounts, ...]
    sequence_width: int
    manifests: ManifestFacts
    history: History
    metrics_sample: MetricsSample
    storage: StorageFacts | None = None
    missing: MissingFiles | None = None
    statistics: tuple[StatisticsAge, ...] = ()
    flaws: tuple[MetadataFlaw, ...] = ()
    unlisted: str | None = None
    equality_keys: tuple[EqualityKey, ...] = ()
    misread_keys: tuple[str, ...] = ()
    unapplied: tuple[UnappliedDeletes, ...] = ()
    integrity: Integrity = field(default_factory=Integrity)
    unsupported_columns: tuple[UnsupportedColumn, ...] = ()
    engine: Engine = field(default_factory=Engine, compare=False)
    recent: tuple[Partition, ...] = field(default=(), compare=False)
    metadata_bytes: int | None = None
    metadata_sections: tuple[MetadataSection, ...] = ()
    storage_use: StorageUse | None = field(default=None, compare=False)
    collector: str = field(default="", compare=False)
    iceberg_version: str | None = field(default=None, compare=False)
    collected_at_ms: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)

    def __repr__(self) -> str:
        file_count_text = count(self.data.file_count, "data file")
        size_text = size(self.data.size_in_bytes)
        return f"<TableFacts of {self.name}: {file_count_text}, {size_text}>"

    @property
    def sql_name(self) -> tuple[str, ...]:
        """The table's name, with its catalog."""
        return (self.catalog, *self.table)

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return display_name(self.table)

    @cached_property
    def _groups_by_kind(self) -> Mapping[Kind, tuple[FileGroup, ...]]:
        return {kind: tuple(g for g in self.groups if g.kind is kind) for kind in Kind}

    def of_kind(self, kind: Kind) -> tuple[FileGroup, ...]:
        """The file groups of one kind, ordered by partition."""
        return self._groups_by_kind[kind]

    @cached_property
    def _totals(self) -> Mapping[Kind, Totals]:
        return {kind: Totals.of_groups(groups) for kind, groups in self._groups_by_kind.items()}

    def total(self, kind: Kind) -> Totals:
        """Sums over all partitions."""
        return self._totals[kind]

    @property
    def data(self) -> Totals:
        """Sums over the data files."""
        return self.total(Kind.DATA)

    @property
    def has_deletes(self) -> bool:
        """Tell whether any delete file or deletion vector is live, even if it applies to
        nothing.
        """
        return bool(self.unapplied) or any(self.total(kind).file_count for kind in DELETE_KINDS)

    @property
    def are_positions_scoped(self) -> bool:
        """Tell whether every position delete file names a single data file."""
        return all(
            group.file_scoped_count == group.file_count
            for group in self.of_kind(Kind.POSITION_DELETES)
        )

    @property
    def equality_delete_partitions(self) -> frozenset[Partition]:
        """The partitions with equality deletes that are later than some data, also those that key
        bounds rule out now.
        """
        partitions_of_new_keys = {
            unapplied_deletes.partition
            for unapplied_deletes in self.unapplied_in(DeleteState.NEW_KEYS)
        }
        return frozenset(
            {g.partition for g in self.of_kind(Kind.EQUALITY_DELETES)} | partitions_of_new_keys
        )

    def unapplied_in(self, state: DeleteState) -> tuple[UnappliedDeletes, ...]:
        """The deletes that apply to nothing for one reason."""
        return tuple(
            unapplied_deletes
            for unapplied_deletes in self.unapplied
            if unapplied_deletes.state is state
        )

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What no rewrite of this snapshot's files may build on."""
        integrity = self.integrity
        evidence_by_contradiction = {
            Contradiction.DUPLICATE_FILES: integrity.duplicate_data_file_count
            or integrity.duplicate_delete_file_count,
            Contradiction.MISFILED_DELETES: self.unapplied_in(DeleteState.MISFILED),
            Contradiction.MANIFEST_BOUNDS: integrity.narrow_manifest_count,
            Contradiction.SEVERAL_VECTORS: self.unapplied_in(DeleteState.SEVERAL_VECTORS),
            Contradiction.UNREADABLE_METADATA: any(
                metadata_flaw.flaw in STOPPING_FLAWS for metadata_flaw in self.flaws
            ),
        }
        return tuple(
            contradiction
            for contradiction, has_evidence in evidence_by_contradiction.items()
            if has_evidence
        )

    @property
    def has_unreadable_columns(self) -> bool:
        """Whether the engine cannot read a column, so that it does nothing with the table but list
        orphan files.
        """
        return any(column.ability is Ability.READ for column in self.unsupported_columns)

    @cached_property
    def _settings_in_force(self) -> Mapping[str, str | None]:
        return {
            **self.properties,
            **{table_setting.name: table_setting.value for table_setting in self.settings},
        }

    def setting(self, name: str) -> str | None:
        """The value in force of a table property (explicit or default)."""
        return self._settings_in_force.get(name)

    @property
    def columns_needing_bounds(self) -> list[str]:
        """The columns whose bounds the table itself needs: of its sort order, its partition spec,
        and the keys of its equality deletes, as a data file without bounds of a key loads every
        equality delete file of its partition (``DeleteFileIndex``).
        """
        key_field_ids = {field_id for key in self.equality_keys for field_id in key.field_ids}
        return [
            *(f.source for f in self.sort_order),
            *(f.source for f in self.default_spec.active_fields if f.source),
            *(c.name for c in self.columns if c.field_id in key_field_ids),
        ]

    def int_setting(self, name: str) -> int:
        """A whole-number property in force; raises KeyError for one without a value."""
        setting_value = self.setting(name)
        if setting_value is None:
            raise KeyError(name)
        return int(setting_value)

    def is_setting_true(self, name: str) -> bool:
        """Tell whether a property in force is true, as Java reads it."""
        return (self.setting(name) or "").lower() == "true"

    @property
    def target_bytes(self) -> int:
        """The target size of data files in force."""
        return self.int_setting("write.target-file-size-bytes")

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The leaf columns by their dotted names."""
        return {column.name: column for column in self.columns}

    @property
    def mean_partition_bytes(self) -> float:
        """Mean bytes of data files per partition, over the partitions with a live file."""
        return self.data.size_in_bytes / max(1, len({group.partition for group in self.groups}))

    @cached_property
    def specs_by_id(self) -> Mapping[int, PartitionSpec]:
        """The partition specs by their ids."""
        return {spec.spec_id: spec for spec in self.specs}

    def spec(self, spec_id: int) -> PartitionSpec:
        """A partition spec by its id."""
        return self.specs_by_id[spec_id]

    def where(self, partitions: Iterable[Partition], *, is_for_query: bool = False) -> str | None:
        """A predicate for partitions, see :func:`icekit.iceberg.where.where`."""
        return where(
            self.catalog, self.specs_by_id, self.columns, partitions, is_for_query=is_for_query
        )

    def is_filterable(self, partition: Partition) -> bool:
        """Tell whether a procedure can take a predicate for a partition."""
        return is_filterable(self.spec(partition.spec_id), partition)

    @property
    def default_spec(self) -> PartitionSpec:
        """The spec that new files are written with."""
        return self.spec(self.default_spec_id)

    @property
    def other_optimizer(self) -> OtherOptimizer | None:
        """The service that maintains the table by itself, as its properties and its location show;
        None if nothing shows one.
        """
        return other_optimizer(self.properties, self.location)

    @property
    def dropped_fields_under_deletes(self) -> tuple[str, ...]:
        """Partition fields whose column was dropped, while deletes apply to data files of their
        spec; see :func:`~icekit.iceberg.definition.dropped_field_warning`.

        Deletes of an unpartitioned spec apply to these files whatever happens to their partition;
        but no filter selects such a partition, and no position deletes can be written for it.
        """
        data_spec_ids = {data_group.partition.spec_id for data_group in self.of_kind(Kind.DATA)}
        delete_spec_ids = {g.partition.spec_id for k in DELETE_KINDS for g in self.of_kind(k)}
        # With nulls instead of their values, deletes that apply to nothing may apply to other
        # files.
        delete_spec_ids |= {
            unapplied_deletes.partition.spec_id for unapplied_deletes in self.unapplied
        }
        are_deletes_global = any(
            self.spec(partition.spec_id).is_unpartitioned
            for partition in self.equality_delete_partitions
        )
        affected_spec_ids = data_spec_ids if are_deletes_global else data_spec_ids & delete_spec_ids
        return tuple(
            dict.fromkeys(
                field_name
                for spec_id in sorted(affected_spec_ids)
                for field_name in self.spec(spec_id).dropped_column_fields
            )
        )

    @property
    def fields_named_as_columns_of_position_deletes(self) -> tuple[str, ...]:
        """See :func:`icekit.iceberg.definition.position_deletes_name_clashes`."""
        return position_deletes_name_clashes(self.specs, self.format_version)

    def partition_name(self, partition: Partition | None) -> str:
        """``month=2013-01/carrier=UA``, as Iceberg writes partition values for people, or the name
        for the single partition of an unpartitioned table.
        """
        if partition is None:
            return UNPARTITIONED
        return partition_path(self.spec(partition.spec_id), partition.values) or UNPARTITIONED

    def partitions(self) -> Iterator[Partition]:
        """Every partition with a live file, in order, once."""
        yield from dict.fromkeys(group.partition for group in self.groups)
