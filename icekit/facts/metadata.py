"""Read table metadata JSON: schema, specs, sort order and properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

from icekit.errors import ParameterError
from icekit.facts.definition import (
    Column,
    DistributionMode,
    PartitionField,
    PartitionSpec,
    Setting,
    SortField,
)
from icekit.facts.key_bounds import KeyColumn
from icekit.facts.values import result_type

Json = Mapping[str, Any]

TARGET, ROW_GROUP = "write.target-file-size-bytes", "write.parquet.row-group-size-bytes"
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


def number(properties: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A table property that is a whole number; by default Iceberg's own default, or 0.

    Raises :class:`~icekit.errors.ParameterError` for a value that writers or icekit cannot use:
    Iceberg accepts any Java Long, but a size of 0 gives a file for every thousand rows.
    """
    stated, least = properties.get(name), _NUMBERS.get(name, 1)
    if stated is None:
        return int(DEFAULTS.get(name) or 0) if default is None else default
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stated) and least <= int(stated) < 2**63:
        return int(stated)
    wanted = "a whole number" if least == _ANY else f"a whole number of {least} or more"
    raise ParameterError(
        f"The table property {name} is {stated[:100]!r}, but must be {wanted}; set it, or remove "
        f"it to use the default (ALTER TABLE … UNSET TBLPROPERTIES ('{name}'))."
    )


def schema_of(metadata: Json, schema_id: int | None = None) -> Json:
    """A schema by id; without an id, the current schema."""
    schemas = schemas_of(metadata)
    wanted = metadata.get("current-schema-id", 0) if schema_id is None else schema_id
    return next((s for s in schemas if s.get("schema-id", 0) == wanted), schemas[-1])


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


def children(kind: Json) -> Iterator[Field]:
    """The fields of a schema or struct, the element of a list, the key and the value of a map."""
    for position, field in enumerate(kind.get("fields") or ()):
        required = field.get("required", False)
        yield Field(field["id"], (field["name"],), field["type"], required, position)
    for part in ("element", "key", "value"):
        if part in kind:
            required = kind.get(f"{part}-required", True)
            yield Field(kind[f"{part}-id"], (part,), kind[part], required, is_in_structs=False)


def leaves(schema: Json) -> Iterator[Field]:
    """The columns of a primitive type, however deep."""
    for column in children(schema):
        if isinstance(column.type, str):
            yield column
            continue
        for leaf in leaves(column.type):
            yield leaf._replace(
                names=column.names + leaf.names,
                position=column.position,
                is_in_structs=column.is_in_structs and leaf.is_in_structs,
            )


def schemas_of(metadata: Json) -> Sequence[Json]:
    """All schemas; metadata from before there were several has one."""
    return metadata.get("schemas") or [metadata["schema"]]


def specs(metadata: Json) -> tuple[PartitionSpec, ...]:
    """Every partition spec, by id; source columns have the names of the current schema."""
    raw = metadata.get("partition-specs") or [
        {"spec-id": 0, "fields": metadata.get("partition-spec") or []}
    ]
    types = {leaf.field_id: leaf.type for schema in schemas_of(metadata) for leaf in leaves(schema)}
    current = {leaf.field_id: leaf for leaf in leaves(schema_of(metadata))}
    types |= {field_id: leaf.type for field_id, leaf in current.items()}

    def field_of(index: int, field: Json) -> PartitionField:
        source_id = field.get("source-id") or (field.get("source-ids") or [0])[0]
        return PartitionField(
            field.get("field-id", 1000 + index),
            field["name"],
            field["transform"],
            source_id,
            current[source_id].name if source_id in current else None,
            result_type(field["transform"], types.get(source_id, "string")),
        )

    return tuple(
        PartitionSpec(spec["spec-id"], tuple(map(field_of, count(), spec["fields"])))
        for spec in sorted(raw, key=lambda spec: int(spec["spec-id"]))
    )


def sort_order(metadata: Json) -> tuple[SortField, ...]:
    """The default sort order; empty when unsorted."""
    names = {leaf.field_id: leaf.name for leaf in leaves(schema_of(metadata))}
    wanted = metadata.get("default-sort-order-id", 0)
    order = next(
        (o for o in metadata.get("sort-orders") or () if o["order-id"] == wanted), {"fields": ()}
    )
    return tuple(
        SortField(
            names.get(f.get("source-id"), f"field {f.get('source-id')}"),
            f["transform"],
            f["direction"],
            f["null-order"],
        )
        for f in order["fields"]
    )


def settings(properties: Mapping[str, str]) -> tuple[Setting, ...]:
    """The properties that icekit uses, each marked as set or default.

    Raises :class:`~icekit.errors.ParameterError` for a property that should be a number and is not,
    including those parsed later.
    """
    for name in properties:
        if name in _NUMBERS or name.startswith(_NUMBER_OF_COLUMN):
            number(properties, name)
    return tuple(
        Setting(name, properties[name], "table property")
        if name in properties
        else Setting(name, default, "default")
        for name, default in DEFAULTS.items()
    )


def distribution_modes(
    properties: Mapping[str, str], *, partitioned: bool, is_sorted: bool
) -> tuple[DistributionMode, ...]:
    """The distribution in force for appends and for the three row-level operations.

    Source: SparkWriteConf and SparkWriteUtil. A session's
    ``spark.sql.iceberg.distribution-mode`` and a write option override all of them.
    """
    mode, origin = "none", "default for an unpartitioned, unsorted table"
    if is_sorted:
        mode, origin = "range", "default for a sorted table"
    elif partitioned:
        mode, origin = "hash", "default for a partitioned table"
    if (stated := properties.get("write.distribution-mode")) is not None:
        mode, origin = stated.lower(), "table property write.distribution-mode"
        # Nothing to hash or range by (SparkWriteConf, adjustWriteDistributionMode).
        if not partitioned and (mode == "hash" or (mode == "range" and not is_sorted)):
            origin = f"{origin} is {mode}, which needs a partitioning or an order"
            mode = "none"
    append = DistributionMode("append", mode, origin)
    modes = [append]
    for operation, name in DISTRIBUTIONS.items():
        mode, origin = "hash", f"default of {name}"
        if name in properties:
            mode, origin = properties[name].lower(), f"table property {name}"
        elif (
            operation == "merge"
            and properties.get("write.merge.mode", "copy-on-write") == "copy-on-write"
            and not partitioned
        ):
            mode, origin = append.mode, f"as append: {append.origin}"
        modes.append(DistributionMode(operation, mode, origin))
    return tuple(modes)


def columns(metadata: Json, schema: Json) -> tuple[Column, ...]:
    """The leaf columns with the metrics mode in force for new files (MetricsConfig)."""
    properties = metadata.get("properties") or {}
    default: str | None = properties.get("write.metadata.metrics.default")
    limit = number(properties, _INFERRED)
    # As MetricsConfig does with a negative value.
    inferred = _limited(schema, number({}, _INFERRED) if limit < 0 else limit)
    # Transforms that preserve the order (MetricsConfig: order-preserving sorted columns).
    ordered = {f.source for f in sort_order(metadata) if not f.transform.startswith("bucket")}

    def mode_of(leaf: Field) -> str:
        mode = default or ("truncate(16)" if leaf.field_id in inferred else "none")
        if leaf.name in ordered and mode in {"none", "counts"}:
            mode = "truncate(16)"
        return str(properties.get(f"write.metadata.metrics.column.{leaf.name}", mode))

    return tuple(
        Column(
            field_id=leaf.field_id,
            name=leaf.name,
            type=leaf.type,
            required=leaf.required,
            position=leaf.position,
            metrics_mode=mode_of(leaf),
            path=leaf.names if leaf.is_in_structs and len(leaf.names) > 1 else (),
        )
        for leaf in leaves(schema)
    )


def key_columns(metadata: Json) -> dict[int, KeyColumn]:
    """The leaf columns of the current schema as keys of equality deletes, by field id.

    A scan compares bounds by the type and the nullability in a schema of the table
    (DeleteFileIndex); required is what every schema requires.
    """
    optional = {
        leaf.field_id
        for schema in schemas_of(metadata)
        for leaf in leaves(schema)
        if not leaf.required
    }
    return {
        leaf.field_id: KeyColumn(leaf.type, leaf.field_id not in optional, leaf.name)
        for leaf in leaves(schema_of(metadata))
    }


def _limited(schema: Json, limit: int) -> set[int]:
    """Ids of the leaves that get metrics by default: in each struct, its own leaves before nested
    ones.

    Source: MetricsConfig.limitFieldIds.
    """

    def in_order(kind: Json) -> Iterator[int]:
        fields = list(children(kind))
        yield from (field.field_id for field in fields if isinstance(field.type, str))
        for field in fields:
            if not isinstance(field.type, str):
                yield from in_order(field.type)

    return set(islice(in_order(schema), limit))


def statistics_files(metadata: Json) -> Iterator[Json]:
    """The files with statistics of the table, then those with statistics of partitions."""
    for key in ("statistics", "partition-statistics"):
        yield from metadata.get(key) or ()


def named_files(metadata: Json, metadata_location: str) -> frozenset[str]:
    """A metadata file and the files that it names directly: other metadata files, manifest lists
    and statistics.
    """
    lists = (snapshot.get("manifest-list") for snapshot in metadata.get("snapshots") or ())
    return frozenset(
        (
            metadata_location,
            *(entry["metadata-file"] for entry in metadata.get("metadata-log") or ()),
            *filter(None, lists),
            *(file["statistics-path"] for file in statistics_files(metadata)),
        )
    )
