"""Rows of Arrow tables, and of the Parquet and ORC files that Arrow reads, with the fields' ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from rigs.torture.reader.schema import (
    NO_ID,
    Field,
    ListOf,
    MapOf,
    NotReadable,
    Primitive,
    Struct,
    Type,
)

#: How the id of a field of a file is marked in Arrow's schema.
PARQUET_ID = b"PARQUET:field_id"
ORC_ID = b"iceberg.id"


def read_parquet(path: Path) -> tuple[Struct, list[dict[str, Any]]]:
    """A Parquet file's schema and its rows by field name, in order."""
    with pq.ParquetFile(path) as file:
        return rows_of(file.read(), PARQUET_ID)


def read_orc(path: Path) -> tuple[Struct, list[dict[str, Any]]]:
    """An ORC file's schema and its rows by field name, in order."""
    with path.open("rb") as stream:
        return rows_of(orc.ORCFile(stream).read(), ORC_ID)


def rows_of(table: pa.Table, id_key: bytes | None = None) -> tuple[Struct, list[dict[str, Any]]]:
    """The schema of an Arrow table, and its rows as mappings from names."""
    struct = Struct(tuple(_field(field, id_key) for field in table.schema))
    for change in (_in_iceberg_units, _as_integer):
        fields = [field.with_type(_with_leaves(field.type, change)) for field in table.schema]
        table = table.cast(pa.schema(fields), safe=False)
    return struct, table.to_pylist()


def _in_iceberg_units(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else kind


def _as_integer(kind: pa.DataType) -> pa.DataType:
    """An integer for the dates and times of which Python has only some."""
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def _with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with its primitive types changed, at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        return _with_leaves(kind.storage_type, change)
    if pa.types.is_dictionary(kind):
        return _with_leaves(kind.value_type, change)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_leaves(field.type, change)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_leaves(kind.key_type, change), _with_leaves(kind.item_type, change))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_with_leaves(kind.value_type, change))
    return change(kind)


def _field(field: pa.Field, id_key: bytes | None) -> Field:
    metadata = field.metadata or {}
    field_id = int(metadata[id_key]) if id_key in metadata else NO_ID
    return Field(field_id, field.name, _type(field.type, id_key))


def _type(kind: pa.DataType, id_key: bytes | None) -> Type:
    if isinstance(kind, pa.BaseExtensionType):
        return _type(kind.storage_type, id_key)
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type, id_key)
    if pa.types.is_struct(kind):
        return Struct(tuple(_field(kind.field(i), id_key) for i in range(kind.num_fields)))
    if pa.types.is_map(kind):
        return MapOf(_field(kind.key_field, id_key), _field(kind.item_field, id_key))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ListOf(_field(kind.value_field, id_key))
    return _primitive(kind)


def _primitive(kind: pa.DataType) -> Primitive:
    if pa.types.is_timestamp(kind):
        name = "timestamptz" if kind.tz else "timestamp"
        return Primitive(f"{name}_ns" if kind.unit == "ns" else name)
    if pa.types.is_decimal(kind):
        return Primitive("decimal", kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return Primitive("fixed")
    if pa.types.is_time(kind):
        return Primitive("time")
    for matches, name in _PRIMITIVES:
        if matches(kind):
            return Primitive(name)
    raise NotReadable(f"a column of type {kind}")


_PRIMITIVES = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float64, "double"),
    (pa.types.is_floating, "float"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_null, "unknown"),
)
