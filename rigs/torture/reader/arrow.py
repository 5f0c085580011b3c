"""Rows of Arrow tables, and of the Parquet and ORC files that Arrow reads, with the fields' ids."""

from __future__ import annotations

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
    number,
    unscaled,
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
    """The schema of an Arrow table, and its rows as mappings from names to plain values."""
    struct = Struct(tuple(_field(field, id_key) for field in table.schema))
    columns = [_values(column.combine_chunks()) for column in table.columns]
    names = table.column_names
    rows = [
        {name: column[index] for name, column in zip(names, columns, strict=True)}
        for index in range(table.num_rows)
    ]
    return struct, rows


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


def _values(array: Any) -> list[Any]:
    """An array's values; structs are mappings from names."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _values(array.storage)
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        columns = [_values(array.field(i)) for i in range(kind.num_fields)]
        return [
            {name: column[index] for name, column in zip(names, columns, strict=True)}
            if is_valid
            else None
            for index, is_valid in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_map(kind):
        pairs = list(zip(_values(array.keys), _values(array.items), strict=True))
        return _parts(array, pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _parts(array, _values(array.values))
    return _leaves(array)


def _parts(array: Any, values: list[Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    return [
        tuple(values[offsets[index] : offsets[index + 1]]) if is_valid else None
        for index, is_valid in enumerate(array.is_valid().to_pylist())
    ]


def _leaves(array: Any) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        factor = {"s": 10**6, "ms": 1000, "us": 1, "ns": 1}[kind.unit]
        return [_times(value, factor) for value in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_time64(kind):
        factor = 1 if kind.unit == "us" else 1000
        values = array.cast(pa.int64()).to_pylist()
        return [None if value is None else value // factor for value in values]
    if pa.types.is_time32(kind):
        factor = 10**6 if kind.unit == "s" else 1000
        return [_times(value, factor) for value in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_date32(kind):
        return list(array.cast(pa.int32()).to_pylist())
    values = array.to_pylist()
    if pa.types.is_floating(kind):
        return [None if value is None else number(value) for value in values]
    if pa.types.is_decimal(kind):
        return [None if value is None else unscaled(value, kind.scale) for value in values]
    return list(values)


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor
