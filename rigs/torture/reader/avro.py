"""Rows of Avro files, with the ids that Appendix A has in their schemas."""

from __future__ import annotations

from collections.abc import Mapping
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
        rows: list[Any] = list(reader)
        return struct, rows


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
