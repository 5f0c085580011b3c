"""Schemas of tables and files: fields with ids, and what a value becomes when its type is promoted.

Values are plain, hashable and comparable: an integer for dates, times, timestamps and (unscaled)
decimals, bytes for binary, fixed and UUIDs, text in hexadecimal digits for floating-point numbers,
so that -0.0 is not 0.0 and NaN is NaN. A struct is a tuple of field ids with values in the order of
the ids, a list a tuple, a map a tuple of pairs in an order of their own.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

ROW_ID = 2147483540
LAST_UPDATED = 2147483539
FILE_PATH = 2147483546
POS = 2147483545
#: A field of a file that has no id.
NO_ID = -1

#: Microseconds and nanoseconds of a day.
_DAY = {"timestamp": 86_400_000_000, "timestamp_ns": 86_400_000_000_000}
#: Which types a value may be promoted to (Schema Evolution), and what readers of older files meet:
#: ORC and the INT96 of old Parquet writers have nanoseconds where Iceberg has microseconds.
_IN_NANOSECONDS = {"timestamp": "timestamp_ns", "timestamptz": "timestamptz_ns"}


class NotReadable(Exception):
    """The table or file is not as the specification demands, or has what this reader lacks."""


@dataclass(frozen=True)
class Primitive:
    """A primitive type by its name; ``scale`` is a decimal's, ``size`` its precision or the bytes of
    a fixed.
    """

    name: str
    scale: int = 0
    size: int = dataclasses.field(default=0, compare=False)


@dataclass(frozen=True)
class Struct:
    """Fields in order."""

    fields: tuple[Field, ...]

    def field(self, field_id: int) -> Field | None:
        """The field with this id."""
        return next((each for each in self.fields if each.id == field_id), None)


@dataclass(frozen=True)
class ListOf:
    """A list with its element."""

    element: Field


@dataclass(frozen=True)
class MapOf:
    """A map with its key and value."""

    key: Field
    value: Field


Type = Primitive | Struct | ListOf | MapOf


@dataclass(frozen=True)
class Field:
    """A field. ``initial_default`` is the table's, as JSON has it."""

    id: int
    name: str
    type: Type
    initial_default: Any = None


def type_from_json(document: Any) -> Type:
    """A type as Appendix C writes it."""
    if isinstance(document, str):
        return primitive(document)
    kind = document["type"]
    if kind == "struct":
        return Struct(
            tuple(
                Field(
                    field["id"],
                    field["name"],
                    type_from_json(field["type"]),
                    field.get("initial-default"),
                )
                for field in document["fields"]
            )
        )
    if kind == "list":
        return ListOf(Field(document["element-id"], "element", type_from_json(document["element"])))
    if kind == "map":
        return MapOf(
            Field(document["key-id"], "key", type_from_json(document["key"])),
            Field(document["value-id"], "value", type_from_json(document["value"])),
        )
    raise NotReadable(f"a type {kind}")


def primitive(text: str) -> Primitive:
    """A primitive type by its text in a schema."""
    name, _, parameters = text.replace(" ", "").partition("(")
    if name == "decimal":
        precision, scale = map(int, parameters.rstrip(")").split(","))
        return Primitive("decimal", scale, precision)
    if match := re.fullmatch(r"fixed\[(\d+)\]", name):
        return Primitive("fixed", 0, int(match[1]))
    return Primitive(name)


def path_to(struct: Struct, field_id: int) -> tuple[Field, ...] | None:
    """The fields from the top to the one with this id, through structs alone."""
    for field in struct.fields:
        if field.id == field_id:
            return (field,)
        if isinstance(field.type, Struct):
            rest = path_to(field.type, field_id)
            if rest is not None:
                return (field, *rest)
    return None


def selected(struct: Struct, field_ids: Collection[int]) -> Struct:
    """A schema with some fields, and the structs around them."""
    fields = []
    for each in struct.fields:
        if each.id in field_ids:
            fields.append(each)
        elif isinstance(each.type, Struct):
            inner = selected(each.type, field_ids)
            if inner.fields:
                fields.append(replace(each, type=inner))
    return Struct(tuple(fields))


def only(path: tuple[Field, ...]) -> Struct:
    """A schema that has one field at the end of a path, and the structs around it."""
    field = path[-1]
    for outer in reversed(path[:-1]):
        field = replace(outer, type=Struct((field,)))
    return Struct((field,))


def walk(struct: Struct) -> Iterator[Field]:
    """All fields of a struct at any depth, also elements, keys and values."""
    for field in struct.fields:
        yield from _walk_field(field)


def _walk_field(field: Field) -> Iterator[Field]:
    yield field
    match field.type:
        case Struct():
            yield from walk(field.type)
        case ListOf(element):
            yield from _walk_field(element)
        case MapOf(key, value):
            yield from _walk_field(key)
            yield from _walk_field(value)


def with_mapped_ids(struct: Struct, mapping: list[Mapping[str, Any]]) -> Struct:
    """A file's schema, with the ids of a name mapping where it has none (Column Projection)."""
    return Struct(tuple(_mapped(field, mapping) for field in struct.fields))


def _mapped(field: Field, mapping: list[Mapping[str, Any]]) -> Field:
    entry = next((each for each in mapping if field.name in each["names"]), {})
    inner = entry.get("fields", [])
    mapped_type = field.type
    match field.type:
        case Struct():
            mapped_type = with_mapped_ids(field.type, inner)
        case ListOf(element):
            mapped_type = ListOf(_mapped(replace(element, name="element"), inner))
        case MapOf(key, value):
            mapped_type = MapOf(
                _mapped(replace(key, name="key"), inner),
                _mapped(replace(value, name="value"), inner),
            )
    field_id = entry.get("field-id", NO_ID) if field.id == NO_ID else field.id
    return replace(field, id=field_id, type=mapped_type)


def promoted(value: Any, source: Primitive, target: Primitive) -> Any:
    """A value of a file's type as one of the table's."""
    if value is None or target.name == "unknown":
        return None
    if source == target or source.name == target.name != "decimal":
        return value
    if source.name == "decimal" and target.name == "decimal":
        return value * 10 ** (target.scale - source.scale)
    if source.name == "date" and target.name in _DAY:
        return value * _DAY[target.name]
    if _IN_NANOSECONDS.get(target.name) == source.name:
        return value // 1000
    if (source.name, target.name) in _SAME_VALUES:
        return value
    if (source.name, target.name) == ("string", "uuid"):
        # Engines without a type for it have it as text.
        return uuid.UUID(value).bytes
    raise NotReadable(f"{source} in a file where the table has {target}")


#: Pairs of a type in a file and one of the table that have the same plain values.
_SAME_VALUES = {
    ("int", "long"),
    ("long", "int"),  # ORC and Avro writers of other engines; the value fits
    ("float", "double"),
    ("fixed", "uuid"),
    ("binary", "uuid"),
    ("binary", "fixed"),
    ("fixed", "binary"),
    ("string", "binary"),
    ("long", "time"),
    # Hive's writers and old Parquet files do not say whether a timestamp has a zone.
    ("timestamp", "timestamptz"),
    ("timestamptz", "timestamp"),
}


def plain(value: Any, kind: Primitive) -> Any:
    """A value of a primitive type, as Python's libraries have it, as a plain one."""
    match value:
        case float():
            return number(value)
        case decimal.Decimal():
            return unscaled(value, kind.scale)
        case dt.datetime():
            return microseconds(value) * (1000 if kind.name.endswith("_ns") else 1)
        case dt.date():
            return (value - _EPOCH.date()).days
        case dt.time():
            return microseconds_of_time(value)
        case uuid.UUID():
            return value.bytes
    return value


def in_id_order(values: Iterable[tuple[int, Any]]) -> tuple[tuple[int, Any], ...]:
    """A struct's value."""
    return tuple(sorted(values, key=lambda pair: pair[0]))


def in_order(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    """A map's value, which is the same whatever the order of its entries."""
    return tuple(sorted(pairs, key=repr))


def number(value: float) -> str:
    """A floating-point number as a plain value."""
    return float(value).hex()


def unscaled(value: decimal.Decimal, scale: int) -> int:
    """A decimal as its unscaled integer."""
    with decimal.localcontext() as context:
        context.prec = 100
        return int(value.scaleb(scale))


def default_value(document: Any, field_type: Type) -> Any:
    """A default of Appendix D's JSON as a plain value."""
    if document is None:
        return None
    match field_type:
        case Struct(fields):
            return in_id_order(
                (
                    field.id,
                    default_value(document.get(str(field.id), field.initial_default), field.type),
                )
                for field in fields
            )
        case ListOf(element):
            return tuple(default_value(each, element.type) for each in document)
        case MapOf(key, value):
            return in_order(
                (default_value(one, key.type), default_value(other, value.type))
                for one, other in zip(document["keys"], document["values"], strict=True)
            )
    return _from_json(document, field_type)


_EPOCH = dt.datetime.fromisoformat("1970-01-01")


def _from_json(document: Any, kind: Primitive) -> Any:
    match kind.name:
        case "boolean" | "int" | "long" | "string":
            return document
        case "float" | "double":
            return number(document)
        case "decimal":
            return unscaled(decimal.Decimal(document), kind.scale)
        case "date":
            return (dt.date.fromisoformat(document) - _EPOCH.date()).days
        case "time":
            return microseconds_of_time(dt.time.fromisoformat(document))
        case "timestamp" | "timestamptz":
            return _nanoseconds(document) // 1000
        case "timestamp_ns" | "timestamptz_ns":
            return _nanoseconds(document)
        case "uuid":
            return uuid.UUID(document).bytes
        case "fixed" | "binary":
            return bytes.fromhex(document)
    raise NotReadable(f"a default of type {kind.name}")


def _nanoseconds(text: str) -> int:
    text = text.removesuffix("+00:00").removesuffix("Z")
    seconds, _, fraction = text.partition(".")
    whole = dt.datetime.fromisoformat(seconds) - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * 10**9 + int(fraction.ljust(9, "0") or 0)


def microseconds_of_time(value: dt.time) -> int:
    """Microseconds from midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 10**6 + value.microsecond


def microseconds(value: dt.datetime) -> int:
    """Microseconds from 1970."""
    since = value.replace(tzinfo=None) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
