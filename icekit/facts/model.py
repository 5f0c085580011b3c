"""Hold the facts of a table: frozen, bounded in size, with units in the names and values as in the Iceberg spec.

:class:`TableFacts` is a rollup. Its size grows with partitions, never with files.
Both collectors (:mod:`icekit.facts.spark`, :mod:`icekit.facts.local`) give equal facts.
A missing value is ``None``, never zero.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Literal
from urllib.parse import quote_plus

from icekit.facts.files import DELETE_KINDS, Bucket, EqualityKey, FileGroup, Kind, Partition, Scalar, SequenceCounts, Totals
from icekit.facts.integrity import Contradiction, DeleteState, DuplicateFile, Integrity, MisplacedDelete, NarrowManifest, UnappliedDeletes
from icekit.sql import identifier
from icekit.units import about, count

__all__ = [
    "DELETE_KINDS",
    "Bucket",
    "Column",
    "ColumnSample",
    "Commit",
    "Contradiction",
    "DeleteState",
    "DistributionMode",
    "DuplicateFile",
    "EqualityKey",
    "FileGroup",
    "History",
    "Integrity",
    "Kind",
    "ManifestFacts",
    "MetadataFlaw",
    "MetricsSample",
    "MisplacedDelete",
    "MissingCount",
    "MissingFile",
    "MissingFiles",
    "NarrowManifest",
    "Partition",
    "PartitionField",
    "PartitionSpec",
    "RangeOverlap",
    "Ref",
    "RepeatedIdentifiers",
    "SampledWrite",
    "Scalar",
    "SequenceCounts",
    "Setting",
    "SharedPlace",
    "Sharing",
    "SortField",
    "StorageFacts",
    "TableFacts",
    "Totals",
    "UnappliedDeletes",
]


# --- Hold the parts of a table that are not its files: definition, manifests, history, samples


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column of the schema; ``name`` is dotted for nested ones.

    ``position`` is the position of its top-level column, from 0; ``metrics_mode`` is the mode in
    force for new files (``none``, ``counts``, ``truncate(16)``, ``full``). ``path`` has the
    names from the top down, because a name may contain dots; empty means ``(name,)``.
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
    """A partition spec, current or old."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    @property
    def is_unpartitioned(self) -> bool:
        """Tell whether no field is left; version 1 tables keep dropped fields as ``void``."""
        return all(field.transform == "void" for field in self.fields)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The fields whose column was dropped from the table."""
        return tuple(f.name for f in self.fields if f.source is None and f.transform != "void")


def fragile(fields: Iterable[str]) -> str:
    """Why deletes of partitions by a dropped column are at risk, as a sentence.

    Iceberg (1.12) writes a null for such a field when it writes a manifest again, as most commits do with some manifests, and
    applies deletes only to data files with equal values: with the next append, deleted rows may come back.
    """
    names = ", ".join(map(identifier, fields))
    return (
        f"The column of partition field {names} was dropped while deletes apply to files of these partitions. Any commit of any writer may "
        "change which rows they delete, because Iceberg writes nulls for such partitions; only a rewrite of all data files in one commit ends this."
    )


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of the default sort order."""

    source: str
    transform: str
    direction: str
    null_order: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A table property in force and its origin: ``table property`` or ``default``."""

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
class SpecManifests:
    """The manifests of one partition spec: data and delete manifests, which are never combined."""

    spec_id: int
    data_count: int = 0
    data_bytes: int = 0
    delete_count: int = 0
    delete_bytes: int = 0

    @property
    def size_in_bytes(self) -> int:
        """The bytes of both kinds."""
        return self.data_bytes + self.delete_bytes

    def files_in(self, target_bytes: int) -> int:
        """How many ``rewrite_manifests`` rewrites: a single manifest that fits the target stays as it is."""
        return sum(n for n, total in self._kinds if not _stays(n, total, target_bytes))

    def files_out(self, target_bytes: int) -> int:
        """How many replace them."""
        return sum(expected_manifests(total, target_bytes) for n, total in self._kinds if not _stays(n, total, target_bytes))

    def is_fragmented(self, target_bytes: int) -> bool:
        """Whether there are more than twice as many as needed, of either kind."""
        return any(n > 2 * expected_manifests(total, target_bytes) for n, total in self._kinds)

    @property
    def _kinds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.data_count, self.data_bytes), (self.delete_count, self.delete_bytes)


def expected_manifests(size_in_bytes: int, target_bytes: int) -> int:
    """The number of manifests for ``size_in_bytes``: the bytes divided by the target, rounded up (RewriteManifestsSparkAction)."""
    return max(1, -(-size_in_bytes // target_bytes))


def _stays(number: int, total: int, target_bytes: int) -> bool:
    return number == 0 or (number == 1 and total <= target_bytes)


@dataclass(frozen=True, slots=True)
class ManifestFacts:
    """The manifests of the snapshot, from its manifest list.

    ``*_entry_count`` are live (added and existing) entries; ``deleted_entry_count`` are
    tombstones that readers of data manifests skip over. ``undersized_data_manifest_count`` are data manifests smaller than half
    of ``commit.manifest.target-size-bytes``. ``by_spec`` counts the manifests by partition spec, as they are rewritten.
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
    undersized_data_manifest_count: int = 0
    overlaps: tuple[RangeOverlap, ...] = ()
    by_spec: tuple[SpecManifests, ...] = ()

    @property
    def bytes_per_data_entry(self) -> float | None:
        """Compressed manifest bytes per data file."""
        return self.data_bytes / self.data_entry_count if self.data_entry_count else None


@dataclass(frozen=True, slots=True)
class Commit:
    """One snapshot of the lineage, from its summary; None for a value that the writer left out."""

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

    ``commits`` holds at most :data:`icekit.facts.metadata.MAX_COMMITS`; ``operations``
    counts the whole lineage. ``expirable_count`` are the snapshots that ``icekit maintain`` would expire now without a stated
    retention; None if that is not known. ``schema_count`` is the number of schemas that the metadata keeps.
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
    expirable_count: int | None = field(default=None, compare=False)
    schema_count: int = 1


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


@dataclass(frozen=True, slots=True)
class OtherOptimizer:
    """A service that compacts and expires tables by itself, and the property or the location that shows it."""

    name: str
    evidence: str

    @property
    def note(self) -> str:
        """What to know before a plan of icekit runs."""
        return (
            f"Another optimizer may manage this table: {self.evidence}. Turn its maintenance off for this table, or leave the work to it, before "
            "this plan runs: each makes the other's commits fail."
        )


# Properties that only one service sets, by their beginnings, and the buckets of S3 Tables.
_MANAGED = (("self-optimizing.", "Apache Amoro"), ("delta.", "Databricks"), ("databricks.", "Databricks"), ("snowflake.", "Snowflake"))
_S3_TABLES = re.compile(r"^s3[an]?://[^/]*--table-s3(?:/|$)")


def other_optimizer(properties: Mapping[str, str], location: str) -> OtherOptimizer | None:
    """The service that maintains a table of these properties at this location by itself; None if nothing shows one."""
    if _S3_TABLES.match(location):
        return OtherOptimizer(
            "Amazon S3 Tables", f"the table is in a table bucket of Amazon S3 Tables ({location}), which compacts and expires it"
        )
    if properties.get("self-optimizing.enabled", "").lower() == "false":
        return None
    for beginning, name in _MANAGED:
        if keys := sorted(key for key in properties if key.startswith(beginning)):
            return OtherOptimizer(name, f"the table property {keys[0]} is of {name}, which may compact and expire the table")
    return None


#: The number of tables that a sentence names; it counts the others.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """Another table, and its path that equals, contains or lies inside a path of this table."""

    table: str
    path: str


@dataclass(frozen=True, slots=True)
class Sharing:
    """The tables of the same catalog that keep files in this table's location: one entry per table.

    ``unchecked`` says why some tables could not be compared; None if all were. Tables of other catalogs are not known.
    """

    shared: tuple[SharedPlace, ...] = ()
    unchecked: str | None = None

    @property
    def told(self) -> str:
        """``shared location with db.a_old (s3://bucket/db/a)``; empty if no location is shared."""
        if not self.shared:
            return ""
        named = ", ".join(f"{place.table} ({place.path})" for place in self.shared[:_NAMED])
        more = len(self.shared) - _NAMED
        return f"shared location with {named}" + (f" and {count(more, 'more table')}" if more > 0 else "")

    @property
    def refusal(self) -> str | None:
        """Why orphan files must not be removed, and what to do; None if they may be."""
        if self.shared:
            return (
                f"Orphan files are not removed: {self.told}, so a file that this table does not reference may belong to another table. "
                "Copy one of the tables to its own location (CREATE TABLE … AS SELECT) first; "
                "`icekit admin clones` lists clones that were left behind."
            )
        if self.unchecked:
            return (
                f"Orphan files are not removed: another table may keep files in this location ({self.unchecked}). "
                "Fix that and try again, or list the files with the dry run of remove_orphan_files and remove them by hand."
            )
        return None


@dataclass(frozen=True, slots=True)
class SnapshotStatistics:
    """Statistics that a snapshot has in a file of their own: of the table (Puffin) or of its partitions.

    ``columns`` are those with table statistics; empty for all top-level columns of a primitive type.
    """

    kind: Literal["table", "partition"]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatisticsAge:
    """How far statistics are behind the observed snapshot: in commits, and in records that these added and deleted (compactions do not count).

    ``record_count`` are the table's records, before deletes, at the snapshot of the statistics; None if its writer did not count them.
    """

    statistics: SnapshotStatistics
    snapshot_id: int
    commit_count: int
    changed_count: int
    record_count: int | None


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """Files under the table's location that no snapshot references.

    Those that the dry run of ``remove_orphan_files`` lists; ``examples`` are a few.
    ``orphan_bytes`` is their total size, from the sizes of ``weighed_count`` of them; None if not known.
    If another table shares the location (``sharing``), nothing is listed: a file that no snapshot of this table references may belong to the other table.
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
        """The number and size of the orphan files, as the start of a sentence: ``15 files, 167 KiB,``."""
        held = "" if self.orphan_bytes is None else f", {about(self.orphan_bytes, is_estimate=self.is_estimated)},"
        return f"{count(self.orphan_count, 'file')}{held}"


class Flaw(StrEnum):
    """What Iceberg's Java refuses in metadata, not always but where it needs it."""

    #: Manifests in the manifest list of the snapshot without their numbers of files.
    UNCOUNTED_MANIFESTS = "uncounted manifests"
    #: The schema of the observed snapshot, or of others, is not in the metadata.
    SCHEMA_GONE = "schema gone"
    OLD_SCHEMA_GONE = "schema of another snapshot gone"
    #: An order that is no longer the default sorts by a column that was dropped.
    ORDER_BY_DROPPED = "order by a dropped column"


@dataclass(frozen=True, slots=True)
class MetadataFlaw:
    """A flaw, how many there are, and the ids (or paths, of manifests) of a few."""

    flaw: Flaw
    count: int
    examples: tuple[str, ...]


class Role(StrEnum):
    """What a file is to its table, most important first."""

    DATA = "data file"
    DELETES = "delete file"
    VECTOR = "deletion vector"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    STATISTICS = "statistics file"


#: Without such a file, scans of the snapshot fail.
_NEEDED_BY_SCANS = (Role.DATA, Role.DELETES, Role.VECTOR, Role.MANIFEST)


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A referenced file that is gone (``actual_bytes`` is None) or has another size than ``size_in_bytes``, which its entry says.

    ``snapshot_id`` is the snapshot that added it; for a manifest list and statistics, the one that they belong to.
    """

    role: Role
    path: str
    partition: Partition | None
    record_count: int
    snapshot_id: int | None
    size_in_bytes: int | None
    actual_bytes: int | None


@dataclass(frozen=True, slots=True)
class MissingCount:
    """How many files of one role are gone or have another size, and the records of both."""

    role: Role
    gone_count: int
    resized_count: int
    record_count: int


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """The referenced files that are gone from storage or have another size than their entries say; empty if all are there.

    Checked are the data files, delete files and manifests of the observed snapshot, the manifest lists of all snapshots, and the newest
    statistics files. ``examples`` are a few, most important first. ``partitions`` counts the data files that are gone by partition, most first, of at most a
    thousand partitions. ``before_id`` is the newest snapshot of the lineage from before the first of them was added.
    ``unchecked`` says why nothing is known; None if the files were checked.
    """

    counts: tuple[MissingCount, ...] = ()
    examples: tuple[MissingFile, ...] = ()
    partitions: tuple[tuple[Partition, int], ...] = ()
    before_id: int | None = None
    unchecked: str | None = None

    def count(self, role: Role) -> MissingCount:
        """The count of one role."""
        return next((each for each in self.counts if each.role is role), MissingCount(role, 0, 0, 0))

    @property
    def fails_scans(self) -> bool:
        """Tell whether a scan of the observed snapshot fails."""
        return any(each.role in _NEEDED_BY_SCANS for each in self.counts)


# --- Read and write single values as the Iceberg spec does


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_FORMATS = {"int": "<i", "date": "<i", "long": "<q", "time": "<q", "float": "<f", "double": "<d"}


def result_type(transform: str, source_type: str) -> str:
    """The type of a partition field (table spec, "Partition Transforms")."""
    name = transform.partition("[")[0]
    if name in {"bucket", "year", "month", "hour"}:
        return "int"
    return "date" if name == "day" else source_type


def partition_of(spec_id: int, values: Iterable[object]) -> Partition:
    """The partition of values decoded from Avro or Spark, in the order of the spec's fields."""
    return Partition(spec_id, tuple(to_scalar(value) for value in values))


def to_scalar(value: object) -> Scalar:
    """Convert a value decoded from Avro or Spark to the form that facts keep."""
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // _MICROSECOND
    if isinstance(value, dt.date):
        return value.toordinal() - _EPOCH_DAY
    if isinstance(value, dt.time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, (Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # NaN is not equal to itself, and JSON has neither NaN nor infinity
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"no partition value of type {type(value).__name__}")


def from_bytes(type_name: str, raw: bytes) -> Scalar | Decimal:
    """Decode a bound (table spec, "Binary single-value serialization") into a value that can be compared.

    Raises ValueError for a type without an order here (variant, geometry …).
    """
    name = type_name.partition("(")[0].partition("[")[0]
    if name in _FORMATS:
        # Bounds written before a type promotion (int to long, float to double) keep their old width.
        if name in {"long", "double"} and len(raw) == 4:
            name = {"long": "int", "double": "float"}[name]
        return struct.unpack(_FORMATS[name], raw)[0]  # type: ignore[no-any-return]
    if name.startswith("timestamp"):
        return int.from_bytes(raw, "little", signed=True)
    if name == "boolean":
        return raw != b"\x00"
    if name == "string":
        return raw.decode("utf-8", errors="replace")
    if name in {"uuid", "fixed", "binary"}:
        return raw.hex()
    if name == "decimal":
        scale = int(type_name.rpartition(",")[2].strip(" )"))
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale)
    raise ValueError(f"bounds of type {type_name} have no order here")


def human(transform: str, result: str, value: Scalar) -> str:
    """Write a partition value as Iceberg does in a partition path (before URL encoding)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        if transform == "year":
            return str(1970 + value)
        if transform == "month":
            return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
        if transform == "hour":
            return (_EPOCH + dt.timedelta(hours=value)).strftime("%Y-%m-%d-%H")
        if result == "date":
            return dt.date.fromordinal(_EPOCH_DAY + value).isoformat()
        if result.startswith("timestamp"):
            moment = _EPOCH + dt.timedelta(microseconds=value // 1000 if "_ns" in result or "tz_ns" in result else value)
            text = moment.replace(tzinfo=None).isoformat()
            return f"{text}+00:00" if "tz" in result else text
        if result == "time":
            return (_EPOCH + dt.timedelta(microseconds=value)).time().isoformat()
    return str(value)


def partition_path(spec: PartitionSpec, values: Sequence[Scalar]) -> str:
    """``name=value`` for each field of the spec, joined by slashes; empty when unpartitioned."""
    return "/".join(
        f"{field.name}={_path_safe(human(field.transform, field.result_type, value))}"
        for field, value in zip(spec.fields, values, strict=True)
    )


def _path_safe(text: str) -> str:
    # People read this path, so only characters that would make it ambiguous are escaped.
    return re.sub(r"[/=%]", lambda match: quote_plus(match[0]), text)


#: The name of the single partition of an unpartitioned table.
UNPARTITIONED = "(unpartitioned)"


@dataclass(frozen=True)
class TableFacts:
    """Everything icekit knows about a table at one snapshot, without a row per file.

    ``recent`` are the partitions written within :data:`icekit.facts.recent.RECENT_MINUTES` of the observation. ``groups`` and ``sequences`` have the live files without ``unapplied`` deletes, so that ratios, savings and predictions count only
    deletes that a scan may apply. ``storage`` and ``missing`` are None unless storage was searched; ``unlisted`` says why orphan
    files were not, although they were asked for. ``metadata_bytes`` is the size of the table's metadata file.
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
    missing: MissingFiles | None = None
    statistics: tuple[StatisticsAge, ...] = ()
    flaws: tuple[MetadataFlaw, ...] = ()
    unlisted: str | None = None
    equality_keys: tuple[EqualityKey, ...] = ()
    unapplied: tuple[UnappliedDeletes, ...] = ()
    integrity: Integrity = field(default_factory=Integrity)
    recent: tuple[Partition, ...] = field(default=(), compare=False)
    metadata_bytes: int | None = None
    collector: str = field(default="", compare=False)
    iceberg_version: str | None = field(default=None, compare=False)
    collected_at_ms: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def sql_name(self) -> tuple[str, ...]:
        """The table's name, with its catalog."""
        return (self.catalog, *self.table)

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
        """Tell whether any delete file or deletion vector is live, even if it applies to nothing."""
        return bool(self.unapplied) or any(self.total(kind).file_count for kind in DELETE_KINDS)

    @property
    def equality_delete_partitions(self) -> frozenset[Partition]:
        """The partitions with equality deletes that are later than some data, also those that key bounds rule out now."""
        of_new_keys = {each.partition for each in self.unapplied_in(DeleteState.NEW_KEYS)}
        return frozenset({g.partition for g in self.of_kind(Kind.EQUALITY_DELETES)} | of_new_keys)

    def unapplied_in(self, state: DeleteState) -> tuple[UnappliedDeletes, ...]:
        """The deletes that apply to nothing for one reason."""
        return tuple(each for each in self.unapplied if each.state is state)

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What no rewrite of this snapshot's files may build on."""
        found = self.integrity
        there = (
            (Contradiction.DUPLICATE_FILES, found.duplicate_data_file_count or found.duplicate_delete_file_count),
            (Contradiction.MISFILED_DELETES, self.unapplied_in(DeleteState.MISFILED)),
            (Contradiction.MANIFEST_BOUNDS, found.narrow_manifest_count),
        )
        return tuple(each for each, is_there in there if is_there)

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

    @property
    def default_spec(self) -> PartitionSpec:
        """The spec that new files are written with."""
        return self.spec(self.default_spec_id)

    @property
    def other_optimizer(self) -> OtherOptimizer | None:
        """The service that maintains the table by itself, as its properties and its location show; None if nothing shows one."""
        return other_optimizer(self.properties, self.location)

    @property
    def fragile_fields(self) -> tuple[str, ...]:
        """Partition fields whose column was dropped, while deletes apply to data files of their spec; see :func:`fragile`.

        Deletes of an unpartitioned spec apply to these files whatever happens to their partition; but no filter
        selects such a partition, and no position deletes can be written for it.
        """
        data, deletes = ({g.partition.spec_id for k in kinds for g in self.of_kind(k)} for kinds in ((Kind.DATA,), DELETE_KINDS))
        # With nulls instead of their values, deletes that apply to nothing may apply to other files.
        deletes |= {each.partition.spec_id for each in self.unapplied}
        are_global = any(self.spec(partition.spec_id).is_unpartitioned for partition in self.equality_delete_partitions)
        under = data if are_global else data & deletes
        return tuple(dict.fromkeys(name for spec_id in sorted(under) for name in self.spec(spec_id).dropped))

    def partition_path(self, partition: Partition) -> str:
        """``month=2013-01/carrier=UA``, as Iceberg writes partition values for people."""
        return partition_path(self.spec(partition.spec_id), partition.values)

    def partition_name(self, partition: Partition | None) -> str:
        """The same, or the name for the single partition of an unpartitioned table."""
        return (self.partition_path(partition) if partition is not None else "") or UNPARTITIONED

    def partitions(self) -> Iterator[Partition]:
        """Every partition with a live file, in order, once."""
        yield from dict.fromkeys(group.partition for group in self.groups)
