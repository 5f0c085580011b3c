"""Read table metadata JSON: schema, specs, sort order, properties and lineage of snapshots."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice, pairwise
from typing import Any, NamedTuple

from icekit.common.errors import (
    MetadataUnreadable,
    ParameterError,
    SnapshotNotFound,
    TableContradicted,
    name_suggestion,
)
from icekit.common.parsing import parse_time
from icekit.common.units import time_text
from icekit.iceberg.definition import (
    Column,
    DistributionMode,
    PartitionField,
    PartitionSpec,
    Setting,
    SortField,
)
from icekit.iceberg.key_bounds import KeyColumn
from icekit.iceberg.snapshots import Commit, History, Ref
from icekit.iceberg.values import result_type

Json = Mapping[str, Any]

TARGET = "write.target-file-size-bytes"
ROW_GROUP = "write.parquet.row-group-size-bytes"
_OPERATIONS = ("delete", "update", "merge")
MODES = tuple(f"write.{operation}.mode" for operation in _OPERATIONS)
#: The properties that distribute rows before a write, by operation.
DISTRIBUTIONS = {operation: f"write.{operation}.distribution-mode" for operation in _OPERATIONS}

# Table properties that findings and advice use, with Iceberg's defaults (TableProperties).
DEFAULTS: Mapping[str, str | None] = {
    "write.format.default": "parquet",
    TARGET: "536870912",
    "write.delete.target-file-size-bytes": "67108864",
    # Tables created since Iceberg 1.4 have zstd in their properties; without the property writers
    # use gzip.
    "write.parquet.compression-codec": "gzip",
    ROW_GROUP: "134217728",
    "write.distribution-mode": None,
    **dict.fromkeys(DISTRIBUTIONS.values()),
    "write.spark.advisory-partition-size-bytes": None,
    "write.spark.fanout.enabled": "false",
    **dict.fromkeys(MODES, "copy-on-write"),
    "write.delete.granularity": "partition",
    "write.metadata.metrics.default": "truncate(16)",
    "write.metadata.metrics.max-inferred-column-defaults": "100",
    "write.metadata.previous-versions-max": "100",
    "write.metadata.delete-after-commit.enabled": "false",
    "commit.manifest.target-size-bytes": "8388608",
    "commit.manifest.min-count-to-merge": "100",
    "commit.manifest-merge.enabled": "true",
    "history.expire.max-snapshot-age-ms": "432000000",
    "history.expire.min-snapshots-to-keep": "1",
    "gc.enabled": "true",
}

# Properties parsed as whole numbers here, each with the smallest usable value.
_ANY = -(2**63)
_NUMBERS: Mapping[str, int] = {
    TARGET: 1,
    "write.delete.target-file-size-bytes": 1,
    ROW_GROUP: 1,
    "write.parquet.page-size-bytes": 1,
    "write.parquet.dict-size-bytes": 0,
    "write.parquet.bloom-filter-max-bytes": 1,
    "write.spark.advisory-partition-size-bytes": 1,
    "write.metadata.metrics.max-inferred-column-defaults": _ANY,
    "write.metadata.previous-versions-max": _ANY,
    "commit.manifest.target-size-bytes": 1,
    "commit.manifest.min-count-to-merge": _ANY,
    "read.split.target-size": 1,
    "read.split.open-file-cost": 0,
    "history.expire.max-snapshot-age-ms": _ANY,
    "history.expire.max-ref-age-ms": _ANY,
    "history.expire.min-snapshots-to-keep": _ANY,
}
_INFERRED = "write.metadata.metrics.max-inferred-column-defaults"
_NUMBER_OF_COLUMN = "write.parquet.bloom-filter-ndv.column."


def number_property(
    properties: Mapping[str, str], property_name: str, default_value: int | None = None
) -> int:
    """A table property that is a whole number; by default Iceberg's own default, or 0.

    Raises :class:`~icekit.common.errors.ParameterError` for a value that writers or icekit cannot
    use: Iceberg accepts any Java Long, but a size of 0 gives a file for every thousand rows.
    """
    property_text = properties.get(property_name)
    min_value = _NUMBERS.get(property_name, 1)
    if property_text is None:
        return int(DEFAULTS.get(property_name) or 0) if default_value is None else default_value
    if re.fullmatch(r"[+-]?[0-9]{1,19}", property_text) and min_value <= int(property_text) < 2**63:
        return int(property_text)
    requirement = (
        "a whole number" if min_value == _ANY else f"a whole number of {min_value} or more"
    )
    raise ParameterError(
        f"The table property {property_name} is {property_text[:100]!r}, but must be "
        f"{requirement}; set it, or remove it to use the default (ALTER TABLE … UNSET "
        f"TBLPROPERTIES ('{property_name}'))."
    )


def properties_of(metadata: Json) -> dict[str, str]:
    """The table properties."""
    return metadata.get("properties") or {}


def summary_of(snapshot: Json) -> dict[str, str]:
    """A snapshot's summary; empty where a writer gave none."""
    return snapshot.get("summary") or {}


def schema_of(metadata: Json, schema_id: int | None = None) -> Json:
    """A schema by id; without an id, the current schema."""
    schemas = schemas_of(metadata)
    target_id = metadata.get("current-schema-id", 0) if schema_id is None else schema_id
    return next((s for s in schemas if s.get("schema-id", 0) == target_id), schemas[-1])


class Field(NamedTuple):
    """A field of a schema or of a nested type; ``names`` are those from the top-level column down,
    ``position`` is that column's.
    """

    field_id: int
    names: tuple[str, ...]
    type: Any
    required: bool
    position: int = 0
    is_in_structs: bool = True

    @property
    def name(self) -> str:
        """The dotted name."""
        return ".".join(self.names)


def child_fields(nested_type: Json) -> Iterator[Field]:
    """The fields of a schema or struct, the element of a list, the key and the value of a map."""
    for field_position, field in enumerate(nested_type.get("fields") or ()):
        is_required = field.get("required", False)
        yield Field(field["id"], (field["name"],), field["type"], is_required, field_position)
    for part_name in ("element", "key", "value"):
        if part_name in nested_type:
            is_required = nested_type.get(f"{part_name}-required", True)
            yield Field(
                nested_type[f"{part_name}-id"],
                (part_name,),
                nested_type[part_name],
                is_required,
                is_in_structs=False,
            )


def leaves(schema: Json) -> Iterator[Field]:
    """The columns of a primitive type, however deep."""
    for child in child_fields(schema):
        if isinstance(child.type, str):
            yield child
            continue
        for leaf in leaves(child.type):
            yield leaf._replace(
                names=child.names + leaf.names,
                position=child.position,
                is_in_structs=child.is_in_structs and leaf.is_in_structs,
            )


def schemas_of(metadata: Json) -> Sequence[Json]:
    """All schemas; metadata from before there were several has one."""
    return metadata.get("schemas") or [metadata["schema"]]


def specs(metadata: Json) -> tuple[PartitionSpec, ...]:
    """Every partition spec, by id; source columns have the names of the current schema."""
    raw = metadata.get("partition-specs") or [
        {"spec-id": 0, "fields": metadata.get("partition-spec") or []}
    ]
    types_by_id = {
        leaf.field_id: leaf.type for schema in schemas_of(metadata) for leaf in leaves(schema)
    }
    current_leaves_by_id = {leaf.field_id: leaf for leaf in leaves(schema_of(metadata))}
    types_by_id |= {field_id: leaf.type for field_id, leaf in current_leaves_by_id.items()}

    def partition_field(field_index: int, field: Json) -> PartitionField:
        source_id = field.get("source-id") or (field.get("source-ids") or [0])[0]
        return PartitionField(
            field.get("field-id", 1000 + field_index),
            field["name"],
            field["transform"],
            source_id,
            current_leaves_by_id[source_id].name if source_id in current_leaves_by_id else None,
            result_type(field["transform"], types_by_id.get(source_id, "string")),
        )

    return tuple(
        PartitionSpec(spec["spec-id"], tuple(map(partition_field, count(), spec["fields"])))
        for spec in sorted(raw, key=lambda spec: int(spec["spec-id"]))
    )


def sort_order(metadata: Json) -> tuple[SortField, ...]:
    """The default sort order; empty when unsorted."""
    names_by_id = {leaf.field_id: leaf.name for leaf in leaves(schema_of(metadata))}
    order_id = metadata.get("default-sort-order-id", 0)
    default_order = next(
        (o for o in metadata.get("sort-orders") or () if o["order-id"] == order_id), {"fields": ()}
    )
    return tuple(
        SortField(
            names_by_id.get(f.get("source-id"), f"field {f.get('source-id')}"),
            f["transform"],
            f["direction"],
            f["null-order"],
        )
        for f in default_order["fields"]
    )


def settings(properties: Mapping[str, str]) -> tuple[Setting, ...]:
    """The properties that icekit uses, each marked as set or default.

    Raises :class:`~icekit.common.errors.ParameterError` for a property that should be a number and
    is not, including those parsed later.
    """
    for property_name in properties:
        if property_name in _NUMBERS or property_name.startswith(_NUMBER_OF_COLUMN):
            number_property(properties, property_name)
    return tuple(
        Setting(
            property_name,
            properties.get(property_name, default_value),
            "table property" if property_name in properties else "default",
        )
        for property_name, default_value in DEFAULTS.items()
    )


def distribution_modes(
    properties: Mapping[str, str], *, is_partitioned: bool, is_sorted: bool
) -> tuple[DistributionMode, ...]:
    """The distribution in force for appends and for the three row-level operations.

    Source: SparkWriteConf and SparkWriteUtil. A session's
    ``spark.sql.iceberg.distribution-mode`` and a write option override all of them.
    """
    mode = "none"
    origin = "Spark's default for an unpartitioned, unsorted table"
    if is_sorted:
        mode = "range"
        origin = "Spark's default for a sorted table"
    elif is_partitioned:
        mode = "hash"
        origin = "Spark's default for a partitioned table"
    if (mode_property := properties.get("write.distribution-mode")) is not None:
        mode = mode_property.lower()
        origin = "table property write.distribution-mode"
        # Nothing to hash or range by (SparkWriteConf, adjustWriteDistributionMode).
        if not is_partitioned and (mode == "hash" or (mode == "range" and not is_sorted)):
            origin = f"{origin} is {mode}, which needs a partitioning or an order"
            mode = "none"
    append_distribution = DistributionMode("append", mode, origin)
    modes = [append_distribution]
    for operation, property_name in DISTRIBUTIONS.items():
        mode = "hash"
        origin = f"default of {property_name}"
        if property_name in properties:
            mode = properties[property_name].lower()
            origin = f"table property {property_name}"
        elif (
            operation == "merge"
            and properties.get("write.merge.mode", "copy-on-write") == "copy-on-write"
            and not is_partitioned
        ):
            mode = append_distribution.mode
            origin = f"as append: {append_distribution.origin}"
        modes.append(DistributionMode(operation, mode, origin))
    return tuple(modes)


def columns(metadata: Json, schema: Json) -> tuple[Column, ...]:
    """The leaf columns with the metrics mode in force for new files (MetricsConfig)."""
    properties = properties_of(metadata)
    default_metrics_mode: str | None = properties.get("write.metadata.metrics.default")
    metrics_column_limit = number_property(properties, _INFERRED)
    # As MetricsConfig does with a negative value.
    default_metrics_ids = _ids_with_metrics(
        schema, number_property({}, _INFERRED) if metrics_column_limit < 0 else metrics_column_limit
    )
    # Transforms that preserve the order (MetricsConfig: order-preserving sorted columns).
    sort_column_names = {
        f.source for f in sort_order(metadata) if not f.transform.startswith("bucket")
    }

    def metrics_mode_of(leaf: Field) -> str:
        metrics_mode = default_metrics_mode or (
            "truncate(16)" if leaf.field_id in default_metrics_ids else "none"
        )
        if leaf.name in sort_column_names and metrics_mode in {"none", "counts"}:
            metrics_mode = "truncate(16)"
        return str(properties.get(f"write.metadata.metrics.column.{leaf.name}", metrics_mode))

    return tuple(
        Column(
            field_id=leaf.field_id,
            name=leaf.name,
            type=leaf.type,
            required=leaf.required,
            position=leaf.position,
            metrics_mode=metrics_mode_of(leaf),
            path=leaf.names if leaf.is_in_structs and len(leaf.names) > 1 else (),
            is_in_structs=leaf.is_in_structs,
        )
        for leaf in leaves(schema)
    )


def key_columns(metadata: Json) -> dict[int, KeyColumn]:
    """The leaf columns of the current schema as keys of equality deletes, by field id.

    A scan compares bounds by the type and the nullability in a schema of the table
    (DeleteFileIndex); required is what every schema requires.
    """
    optional_ids = {
        leaf.field_id
        for schema in schemas_of(metadata)
        for leaf in leaves(schema)
        if not leaf.required
    }
    return {
        leaf.field_id: KeyColumn(leaf.type, leaf.field_id not in optional_ids, leaf.name)
        for leaf in leaves(schema_of(metadata))
    }


def _ids_with_metrics(schema: Json, max_count: int) -> set[int]:
    """Ids of the leaves that get metrics by default: in each struct, its own leaves before nested
    ones.

    Source: MetricsConfig.limitFieldIds.
    """

    def leaf_ids_in_order(nested_type: Json) -> Iterator[int]:
        fields = list(child_fields(nested_type))
        yield from (field.field_id for field in fields if isinstance(field.type, str))
        for field in fields:
            if not isinstance(field.type, str):
                yield from leaf_ids_in_order(field.type)

    return set(islice(leaf_ids_in_order(schema), max_count))


def statistics_files(metadata: Json) -> Iterator[Json]:
    """The files with statistics of the table, then those with statistics of partitions."""
    for key in ("statistics", "partition-statistics"):
        yield from metadata.get(key) or ()


def directly_named_files(metadata: Json, metadata_location: str) -> frozenset[str]:
    """A metadata file and the files that it names directly: other metadata files, manifest lists
    and statistics.
    """
    manifest_lists = (snapshot.get("manifest-list") for snapshot in metadata.get("snapshots") or ())
    return frozenset(
        (
            metadata_location,
            *(log_entry["metadata-file"] for log_entry in metadata.get("metadata-log") or ()),
            *filter(None, manifest_lists),
            *(statistics_file["statistics-path"] for statistics_file in statistics_files(metadata)),
        )
    )


#: How far Iceberg lets the clocks of two writers differ (TableMetadata.ONE_MINUTE).
CLOCK_SKEW_MS = 60_000


def future_times(metadata: Json, now_ms: int) -> list[int]:
    """The times in the metadata that are in the future, earliest first, by more than clocks may
    differ: Iceberg refuses every commit until the last of them.

    A commit must not be older than the newest entry of the snapshot log and of the metadata log, to
    which it adds the last update (TableMetadata).
    """
    logs = (metadata.get("snapshot-log") or (), metadata.get("metadata-log") or ())
    entry_times_ms: list[int] = [log_entry["timestamp-ms"] for log in logs for log_entry in log]
    entry_times_ms.append(metadata["last-updated-ms"])
    return sorted({time_ms for time_ms in entry_times_ms if time_ms - CLOCK_SKEW_MS > now_ms})


def check_clock(metadata: Json, table_name: str, now_ms: int) -> None:
    """Raise :class:`~icekit.common.errors.TableContradicted` if no commit to a table can succeed
    now, because times in its metadata are in the future.
    """
    if future_times_ms := future_times(metadata, now_ms):
        raise TableContradicted(
            f"The metadata of {table_name} has times up to {time_text(future_times_ms[-1])}, "
            "which is in the future by the clock of this machine: Iceberg refuses every commit "
            "until then, so nothing is run. icekit look says what to do.",
            ("unreadable_metadata",),
        )


MAX_COMMITS = 1000


class Damaged(MetadataUnreadable):
    """A table's metadata is wrong; the message says where."""


def choose_snapshot(metadata: Json, ref: str | int | None) -> tuple[Json | None, str | None]:
    """The chosen snapshot, and the name of its branch or tag if ``ref`` is one.

    ``ref`` is a branch, a tag, a snapshot id, a date or time (UTC; what was current then), or None
    for the current snapshot. Raises :class:`~icekit.common.errors.SnapshotNotFound`.
    """
    snapshots = snapshots_by_id(metadata)
    refs = metadata.get("refs") or {}
    if ref is None or ref == "":
        current_id = metadata.get("current-snapshot-id")
        return snapshots.get(current_id), None
    if str(ref) in refs:
        return snapshots[refs[str(ref)]["snapshot-id"]], str(ref)
    if str(ref).lstrip("-").isdigit():
        if int(ref) in snapshots:
            return snapshots[int(ref)], None
        raise SnapshotNotFound(f"Snapshot {ref} does not exist, or has expired.")
    if re.match(r"\d{4}-\d\d-\d\d", str(ref)):
        moment_ms = parse_time(ref).timestamp() * 1000
        earlier_log_entries = [
            e for e in metadata.get("snapshot-log") or () if e["timestamp-ms"] <= moment_ms
        ]
        if earlier_log_entries and earlier_log_entries[-1]["snapshot-id"] in snapshots:
            return snapshots[earlier_log_entries[-1]["snapshot-id"]], None
        raise SnapshotNotFound(f"The table has no snapshot that was current at {ref}.")
    refs_hint = f"; known refs: {', '.join(sorted(refs)) or 'none'}."
    raise SnapshotNotFound(
        f"There is no branch or tag {str(ref)!r}{name_suggestion(str(ref), refs) or refs_hint}"
    )


def snapshots_by_id(metadata: Json) -> Mapping[int | None, Json]:
    """The existing snapshots by id; None, the parent of a first snapshot, finds none."""
    return {s["snapshot-id"]: s for s in metadata.get("snapshots") or ()}


def lineage(snapshots: Mapping[int | None, Json], snapshot: Json | None) -> Iterator[Json]:
    """A snapshot and its existing ancestors, newest first; ``snapshots`` are all snapshots by id.

    Raises :class:`Damaged` if a snapshot is its own ancestor.
    """
    seen_ids: set[object] = set()
    while snapshot is not None:
        if snapshot["snapshot-id"] in seen_ids:
            raise Damaged(
                f"parent-snapshot-id forms a circle around {snapshot['snapshot-id']}, so the "
                "history of the table is not known"
            )
        seen_ids.add(snapshot["snapshot-id"])
        yield snapshot
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))


def history(metadata: Json, snapshot: Json | None) -> History:
    """Cadence, writers and refs, of all snapshots and of the lineage of ``snapshot``."""
    snapshots = snapshots_by_id(metadata)
    lineage_snapshots = list(lineage(snapshots, snapshot))[::-1]
    lineage_times_ms = [s["timestamp-ms"] for s in lineage_snapshots]
    commit_gap_seconds = [(b - a) / 1000 for a, b in pairwise(lineage_times_ms)]
    snapshot_times_ms = [s["timestamp-ms"] for s in snapshots.values()]
    return History(
        snapshot_count=len(snapshots),
        oldest_snapshot_ms=min(snapshot_times_ms, default=None),
        newest_snapshot_ms=max(snapshot_times_ms, default=None),
        median_seconds_between_commits=statistics.median(commit_gap_seconds)
        if commit_gap_seconds
        else None,
        commits=tuple(_commit(s) for s in lineage_snapshots[-MAX_COMMITS:]),
        refs=tuple(
            Ref(ref_name, ref["type"], ref["snapshot-id"])
            for ref_name, ref in sorted((metadata.get("refs") or {}).items())
        ),
        metadata_log_count=len(metadata.get("metadata-log") or ()),
        schema_count=len(metadata.get("schemas") or ()) or 1,
    )


def _commit(snapshot: Json) -> Commit:
    summary = summary_of(snapshot)

    def summary_number(key: str) -> int | None:
        return int(summary[key]) if key in summary else None

    return Commit(
        snapshot_id=snapshot["snapshot-id"],
        committed_at_ms=snapshot["timestamp-ms"],
        operation=summary.get("operation"),
        writer=writer_of(summary),
        added_data_files=summary_number("added-data-files"),
        added_delete_files=summary_number("added-delete-files"),
        added_bytes=summary_number("added-files-size"),
        added_records=summary_number("added-records"),
        removed_data_files=summary_number("deleted-data-files"),
        changed_partitions=summary_number("changed-partition-count"),
        removed_delete_files=summary_number("removed-delete-files"),
    )


def writer_of(summary: Mapping[str, str]) -> str | None:
    """The engine that made a commit, and the id of its job; None if the summary says neither."""
    if "engine-name" in summary:
        engine_details = (summary.get(key) for key in ("engine-name", "engine-version", "app-id"))
        return " ".join(filter(None, engine_details))
    for engine, key in (("flink", "flink.job-id"), ("spark", "spark.app.id")):
        if key in summary:
            return f"{engine} {summary[key]}"
    return summary.get("iceberg-version")
