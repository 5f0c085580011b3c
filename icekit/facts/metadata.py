"""Read table metadata JSON: schema, specs, sort order and properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")

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
    "write.delete.distribution-mode": None,
    "write.update.distribution-mode": None,
    "write.merge.distribution-mode": None,
    "write.spark.advisory-partition-size-bytes": None,
    "write.spark.fanout.enabled": "false",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
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
    "history.expire.max-snapshot-age-ms": _ANY,
    "history.expire.max-ref-age-ms": _ANY,
    "history.expire.min-snapshots-to-keep": _ANY,
}
_INFERRED = "write.metadata.metrics.max-inferred-column-defaults"
_NUMBER_OF_COLUMN = "write.parquet.bloom-filter-ndv.column."


def number(properties: Mapping[str, str], name: str, default: int) -> int:
    """A table property that is a whole number.

    Raises :class:`~icekit.errors.ParameterError` for a value that writers or icekit cannot use:
    Iceberg accepts any Java Long, but a size of 0 gives a file for every thousand rows.
    """
    stated, least = properties.get(name), _NUMBERS.get(name, 1)
    if stated is None:
        return default
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stated) and least <= int(stated) < 2**63:
        return int(stated)
    wanted = "a whole number" if least == _ANY else f"a whole number of {least} or more"
    raise ParameterError(
        f"The table property {name} is {stated[:100]!r}, but must be {wanted}; set it, or remove "
        f"it to use the default (ALTER TABLE … UNSET TBLPROPERTIES ('{name}'))."
    )


def schema_of(metadata: Json, schema_id: int | None = None) -> Json:
    """A schema by id; without an id, the current schema."""
    schemas = metadata.get("schemas") or [metadata["schema"]]
    wanted = metadata.get("current-schema-id", 0) if schema_id is None else schema_id
    return next((s for s in schemas if s.get("schema-id", 0) == wanted), schemas[-1])


def leaves(
    fields: Sequence[Json], prefix: str = "", top: int | None = None
) -> Iterator[tuple[int, str, str, bool, int]]:
    """Every leaf as (field id, dotted name, type, required, top-level position)."""
    for place, column in enumerate(fields):
        name = prefix + column["name"]
        position = place if top is None else top
        yield from _leaf(
            column["id"], name, column["type"], column.get("required", False), position
        )


def _leaf(
    field_id: int, name: str, kind: Any, required: bool, position: int
) -> Iterator[tuple[int, str, str, bool, int]]:
    if isinstance(kind, str):
        yield field_id, name, kind, required, position
    elif kind["type"] == "struct":
        yield from leaves(kind["fields"], f"{name}.", position)
    elif kind["type"] == "list":
        yield from _leaf(
            kind["element-id"],
            f"{name}.element",
            kind["element"],
            kind["element-required"],
            position,
        )
    elif kind["type"] == "map":
        yield from _leaf(kind["key-id"], f"{name}.key", kind["key"], True, position)
        yield from _leaf(
            kind["value-id"], f"{name}.value", kind["value"], kind["value-required"], position
        )


def _nested_paths(
    fields: Sequence[Json], above: tuple[str, ...] = ()
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Field id and names from the top down, for fields inside structs; the path of other fields is
    their name.
    """
    for column in fields:
        path = (*above, column["name"])
        if above:
            yield column["id"], path
        if isinstance(column["type"], dict) and column["type"]["type"] == "struct":
            yield from _nested_paths(column["type"]["fields"], path)


def specs(metadata: Json) -> tuple[PartitionSpec, ...]:
    """Every partition spec, by id; source columns have the names of the current schema."""
    raw = metadata.get("partition-specs") or [
        {"spec-id": 0, "fields": metadata.get("partition-spec") or []}
    ]
    types: dict[int, tuple[str | None, str]] = {}
    for schema in metadata.get("schemas") or [metadata["schema"]]:
        types.update({i: (None, kind) for i, _, kind, _, _ in leaves(schema["fields"])})
    types.update({i: (name, kind) for i, name, kind, _, _ in leaves(schema_of(metadata)["fields"])})
    found = []
    for spec in sorted(raw, key=lambda s: s["spec-id"]):
        fields = []
        for place, field in enumerate(spec["fields"]):
            source_id = field.get("source-id") or (field.get("source-ids") or [0])[0]
            source, kind = types.get(source_id, (None, "string"))
            fields.append(
                PartitionField(
                    field.get("field-id", 1000 + place),
                    field["name"],
                    field["transform"],
                    source_id,
                    source,
                    result_type(field["transform"], kind),
                )
            )
        found.append(PartitionSpec(spec["spec-id"], tuple(fields)))
    return tuple(found)


def sort_order(metadata: Json) -> tuple[SortField, ...]:
    """The default sort order; empty when unsorted."""
    names = {i: name for i, name, _, _, _ in leaves(schema_of(metadata)["fields"])}
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
            number(properties, name, 0)
    return tuple(
        Setting(name, properties[name], "table property")
        if name in properties
        else Setting(name, default, "default")
        for name, default in DEFAULTS.items()
    )


def int_setting(in_force: Iterable[Setting], name: str) -> int:
    """A whole number from :func:`settings`, which has validated it; 0 without a value."""
    return int(next(s.value for s in in_force if s.name == name) or 0)


def distribution_modes(
    properties: Mapping[str, str], *, partitioned: bool, is_sorted: bool
) -> tuple[DistributionMode, ...]:
    """The distribution in force for appends and for the three row-level operations.

    Source: SparkWriteConf and SparkWriteUtil. A session's
    ``spark.sql.iceberg.distribution-mode`` and a write option override all of them.
    """
    if is_sorted:
        append = DistributionMode("append", "range", "default for a sorted table")
    elif partitioned:
        append = DistributionMode("append", "hash", "default for a partitioned table")
    else:
        append = DistributionMode("append", "none", "default for an unpartitioned, unsorted table")
    if (stated := properties.get("write.distribution-mode")) is not None:
        mode = stated.lower()
        # Nothing to hash or range by (SparkWriteConf, adjustWriteDistributionMode).
        void = (mode == "hash" and not partitioned) or (
            mode == "range" and not partitioned and not is_sorted
        )
        origin = (
            f"table property write.distribution-mode is {mode}, which needs a partitioning or an "
            "order"
            if void
            else "table property write.distribution-mode"
        )
        append = DistributionMode("append", "none" if void else mode, origin)
    found = [append]
    for operation in ("delete", "update", "merge"):
        name = f"write.{operation}.distribution-mode"
        if name in properties:
            found.append(
                DistributionMode(operation, properties[name].lower(), f"table property {name}")
            )
        elif (
            operation == "merge"
            and properties.get("write.merge.mode", "copy-on-write") == "copy-on-write"
            and not partitioned
        ):
            found.append(DistributionMode(operation, append.mode, f"as append: {append.origin}"))
        else:
            found.append(DistributionMode(operation, "hash", f"default of {name}"))
    return tuple(found)


def columns(metadata: Json, schema: Json) -> tuple[Column, ...]:
    """The leaf columns with the metrics mode in force for new files (MetricsConfig)."""
    properties = metadata.get("properties") or {}
    fields = schema["fields"]
    default = properties.get("write.metadata.metrics.default")
    inferred_default = int(DEFAULTS[_INFERRED] or 0)
    limit = number(properties, _INFERRED, inferred_default)
    # As MetricsConfig does with a negative value.
    limit = inferred_default if limit < 0 else limit
    # Transforms that preserve the order (MetricsConfig: order-preserving sorted columns).
    ordered = {f.source for f in sort_order(metadata) if not f.transform.startswith("bucket")}
    inferred = _limited(fields, limit)
    paths = dict(_nested_paths(fields))
    found = []
    for field_id, name, kind, required, position in leaves(fields):
        mode = default or ("truncate(16)" if field_id in inferred else "none")
        if name in ordered and mode in {"none", "counts"}:
            mode = "truncate(16)"
        mode = properties.get(f"write.metadata.metrics.column.{name}", mode)
        found.append(
            Column(
                field_id=field_id,
                name=name,
                type=kind,
                required=required,
                position=position,
                metrics_mode=mode,
                path=paths.get(field_id, ()),
            )
        )
    return tuple(found)


def key_columns(metadata: Json) -> dict[int, KeyColumn]:
    """The leaf columns of the current schema as keys of equality deletes, by field id.

    A scan compares bounds by the type and the nullability in a schema of the table
    (DeleteFileIndex); required is what every schema requires.
    """
    required: dict[int, bool] = {}
    for schema in metadata.get("schemas") or [metadata["schema"]]:
        for field_id, _, _, is_required, _ in leaves(schema["fields"]):
            required[field_id] = is_required and required.get(field_id, True)
    return {
        field_id: KeyColumn(kind, required[field_id])
        for field_id, _, kind, _, _ in leaves(schema_of(metadata)["fields"])
    }


def _limited(fields: Sequence[Json], limit: int) -> set[int]:
    """Ids of the leaves that get metrics by default: in each struct, its own leaves before nested
    ones.

    Source: MetricsConfig.limitFieldIds.
    """
    found: set[int] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, str) or len(found) >= limit:
            return
        if kind["type"] == "struct":
            children = [(f["id"], f["type"]) for f in kind["fields"]]
        elif kind["type"] == "list":
            children = [(kind["element-id"], kind["element"])]
        else:
            children = [(kind["key-id"], kind["key"]), (kind["value-id"], kind["value"])]
        for field_id, child in children:
            if isinstance(child, str) and len(found) < limit:
                found.add(field_id)
        for _, child in children:
            visit(child)

    visit({"type": "struct", "fields": fields})
    return found


def named_files(metadata: Json, metadata_location: str) -> frozenset[str]:
    """A metadata file and the files that it names directly: other metadata files, manifest lists
    and statistics.
    """
    found = [
        metadata_location,
        *(entry["metadata-file"] for entry in metadata.get("metadata-log") or ()),
    ]
    found += [s["manifest-list"] for s in metadata.get("snapshots") or () if s.get("manifest-list")]
    found += [
        s["statistics-path"]
        for key in ("statistics", "partition-statistics")
        for s in metadata.get(key) or ()
    ]
    return frozenset(found)
