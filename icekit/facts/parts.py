"""Hold the parts of a table that are not its files: definition, manifests, history, samples."""

from __future__ import annotations

from dataclasses import dataclass

from icekit.units import about, count


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column of the schema; ``name`` is dotted for nested ones.

    ``position`` is that of its top-level column, from 0; ``metrics_mode`` is the mode in
    force for new files (``none``, ``counts``, ``truncate(16)``, ``full``). ``path`` are the
    names from the top down, as names may hold dots; empty stands for ``(name,)``.
    """

    field_id: int
    name: str
    type: str
    required: bool
    position: int
    metrics_mode: str
    path: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names from the top-level column down."""
        return self.path or (self.name,)


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

    @property
    def is_unpartitioned(self) -> bool:
        """Tell whether no field is left; version 1 tables keep dropped ones as ``void``."""
        return all(field.transform == "void" for field in self.fields)


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
    removed_delete_files: int | None = None
    removed_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag."""

    name: str
    type: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class History:
    """Snapshots of the table, and the newest commits of the lineage, oldest first.

    ``commits`` holds at most :data:`icekit.facts.snapshots.MAX_COMMITS`; ``operations``
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


#: Tables that a sentence names; the others are counted.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """Another table, and its path that equals, contains or lies inside a path of this table."""

    table: str
    path: str


@dataclass(frozen=True, slots=True)
class Sharing:
    """The tables of the same catalog that keep files where this one does: one entry a table.

    ``unchecked`` says why some tables could not be compared; None where all were. Tables of other catalogs are not known.
    """

    shared: tuple[SharedPlace, ...] = ()
    unchecked: str | None = None

    @property
    def told(self) -> str:
        """``shared location with db.a_old (s3://bucket/db/a)``; empty where nothing is shared."""
        if not self.shared:
            return ""
        named = ", ".join(f"{place.table} ({place.path})" for place in self.shared[:_NAMED])
        more = len(self.shared) - _NAMED
        return f"shared location with {named}" + (f" and {count(more, 'more table')}" if more > 0 else "")

    @property
    def refusal(self) -> str | None:
        """Why no orphan file may be removed, and what to do; None where nothing speaks against it."""
        if self.shared:
            return (
                f"Orphan files are not removed: {self.told}, so a file that this table does not name may be one of theirs. "
                "Copy one of the tables to a location of its own (CREATE TABLE … AS SELECT) first; "
                "`icekit clones` lists clones that were left behind."
            )
        if self.unchecked:
            return (
                f"Orphan files are not removed: whether another table keeps files in this location is not known ({self.unchecked}). "
                "Fix that and try again, or list the files with the dry run of remove_orphan_files and remove them by hand."
            )
        return None


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """Files under the table's location that no snapshot references.

    Listed by the dry run of ``remove_orphan_files``, which gives paths and no sizes; ``examples`` are a few.
    ``orphan_bytes`` is what they hold, by the sizes of ``weighed_count`` of them; None if not known.
    Where another table shares the location (``sharing``) nothing is listed: what no snapshot of this table names may be that table's.
    """

    older_than_ms: int
    orphan_count: int
    examples: tuple[str, ...] = ()
    orphan_bytes: int | None = None
    weighed_count: int = 0
    sharing: Sharing = Sharing()

    @property
    def is_estimated(self) -> bool:
        """Tell whether the bytes are estimated from some of the files."""
        return self.weighed_count < self.orphan_count

    @property
    def told(self) -> str:
        """How many they are and what they hold, to go on from: ``15 files, 167 KiB,``."""
        held = "" if self.orphan_bytes is None else f", {about(self.orphan_bytes, is_estimate=self.is_estimated)},"
        return f"{count(self.orphan_count, 'file')}{held}"
