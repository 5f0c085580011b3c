"""Rows of Avro files, with the ids that Appendix A has in their schemas."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro

from rigs.torture.reader.schema import (
    NO_ID,
    Field,
    ListOf,
    MapOf,
    NotReadable,
    Primitive,
    Struct,
    Type,
    microseconds,
    microseconds_of_time,
    number,
    unscaled,
)

Row = dict[str, Any]


def read_avro(path: Path) -> tuple[Struct, list[Row]]:
    """An Avro file's schema and its rows by field name, in order."""
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        names: dict[str, Any] = {}
        struct = _type(reader.writer_schema, names)
        if not isinstance(struct, Struct):
            raise NotReadable(f"{path} has no records")
        return struct, [_value(row, struct) for row in reader]


def metadata_of(path: Path) -> Mapping[str, str]:
    """The key-value metadata of an Avro file."""
    with path.open("rb") as stream:
        return dict(fastavro.reader(stream).metadata)


def _type(schema: Any, names: dict[str, Any]) -> Type:
    if isinstance(schema, list):
        return _type(next(each for each in schema if each != "null"), names)
    if isinstance(schema, str):
        return _type(names[schema], names) if schema in names else Primitive(_PLAIN[schema])
    kind = schema["type"]
    if not isinstance(kind, str) or kind in names:
        return _type(kind, names)
    if "name" in schema:
        names[schema["name"]] = schema
        names[f"{schema.get('namespace', '')}.{schema['name']}".lstrip(".")] = schema
    if kind in {"record", "error"}:
        return Struct(
            tuple(
                Field(field.get("field-id", NO_ID), field["name"], _type(field["type"], names))
                for field in schema["fields"]
            )
        )
    if kind == "array" and schema.get("logicalType") == "map":
        pair = _type(schema["items"], names)
        assert isinstance(pair, Struct)
        return MapOf(*pair.fields)
    if kind == "array":
        return ListOf(
            Field(schema.get("element-id", NO_ID), "element", _type(schema["items"], names))
        )
    if kind == "map":
        return MapOf(
            Field(schema.get("key-id", NO_ID), "key", Primitive("string")),
            Field(schema.get("value-id", NO_ID), "value", _type(schema["values"], names)),
        )
    return _primitive(kind, schema)


_PLAIN = {
    "null": "unknown",
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "fixed": "fixed",
}


def _primitive(kind: str, schema: Mapping[str, Any]) -> Primitive:
    zone = "tz" if schema.get("adjust-to-utc") else ""
    match schema.get("logicalType"):
        case "decimal":
            return Primitive("decimal", schema.get("scale", 0))
        case "date":
            return Primitive("date")
        case "time-micros":
            return Primitive("time")
        case "timestamp-micros" | "timestamp-millis":
            return Primitive(f"timestamp{zone}")
        case "timestamp-nanos":
            return Primitive(f"timestamp{zone}_ns")
        case "uuid":
            return Primitive("uuid")
    return Primitive(_PLAIN[kind])


def _value(value: Any, kind: Type) -> Any:
    """A value as fastavro gives it, as a plain one."""
    if value is None:
        return None
    match kind:
        case Struct(fields):
            return {field.name: _value(value[field.name], field.type) for field in fields}
        case ListOf(element):
            return tuple(_value(each, element.type) for each in value)
        case MapOf(key, mapped):
            pairs = (
                value.items()
                if isinstance(value, dict)
                else [(pair[key.name], pair[mapped.name]) for pair in value]
            )
            return tuple(
                (_value(one, key.type), _value(other, mapped.type)) for one, other in pairs
            )
    convert = _CONVERTED.get(kind.name)
    return convert(value, kind) if convert is not None else value


def _instant(value: Any, kind: Primitive) -> Any:
    if isinstance(value, int):
        return value
    factor = 1000 if kind.name.endswith("_ns") else 1
    return microseconds(value) * factor


def _days(value: dt.date, kind: Primitive) -> int:
    return (value - dt.date(1970, 1, 1)).days


def _decimal(value: decimal.Decimal, kind: Primitive) -> int:
    return unscaled(value, kind.scale)


_CONVERTED: Mapping[str, Callable[[Any, Primitive], Any]] = {
    "float": lambda value, _: number(value),
    "double": lambda value, _: number(value),
    "decimal": _decimal,
    "date": _days,
    "time": lambda value, _: microseconds_of_time(value),
    "timestamp": _instant,
    "timestamptz": _instant,
    "timestamp_ns": _instant,
    "timestamptz_ns": _instant,
    "uuid": lambda value, _: value.bytes if isinstance(value, uuid.UUID) else value,
}
