"""Random schemas and values, and values as Arrow writes them."""

from __future__ import annotations

import decimal
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rigs.torture.reader.schema import Field, ListOf, MapOf, Primitive, Struct, Type, number

#: Types of Spark's SQL that a column may have; a struct's fields may be keys of equality deletes.
SQL_TYPES = (
    "boolean",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(18,0)",
    "decimal(38,10)",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
    "binary",
    "struct<k: int, x: string>",
    "struct<deep: struct<k: bigint, d: decimal(12,3), b: binary>, x: double>",
    "struct<u: date, list: array<int>>",
    "array<int>",
    "array<struct<a: int, b: string>>",
    "map<string, int>",
    "map<int, struct<a: float, b: timestamp>>",
    "array<array<string>>",
)
#: Names that are hard on whoever quotes, splits or looks up names.
NAMES = (
    "name",
    "amount",
    "two words",
    "Größe",
    "it's",
    "select",
    "UPPER",
    "file",
    "pos",
    "partition",
    "content",
    "row",
    "back`tick",
    "100%",
    "with.dot",
    "_hidden",
    "key",
    "value",
    # Names that icekit gives to columns of its own.
    "icekit order",
    "icekit file",
    "icekit part",
    "file_path",
    "dead",
)
#: Not to be keys of equality deletes (Equality Delete Files, Identifier Field IDs).
NO_KEYS = frozenset({"float", "double", "variant", "unknown"})

_TEXTS = ("", "a", "b", "ß", "ss", "x" * 40, "x" * 39 + "y", "\U0001f600", "a\x00b", "NULL")
_DAY_LIMITS = (-40_000, 40_000)


def random_value(kind: Type, chance: random.Random, *, null: float = 0.15) -> Any:
    """A plain value of a type, a null now and then, from so few that values meet again."""
    if chance.random() < null:
        return None
    match kind:
        case Struct(fields):
            return {field.id: random_value(field.type, chance, null=null) for field in fields}
        case ListOf(element):
            return tuple(random_value(element.type, chance) for _ in range(chance.randrange(4)))
        case MapOf(key, value):
            keys = {random_value(key.type, chance, null=0) for _ in range(chance.randrange(3))}
            return tuple((each, random_value(value.type, chance)) for each in sorted(keys))
    return _random_primitive(kind, chance)


def _random_primitive(kind: Primitive, chance: random.Random) -> Any:
    match kind.name:
        case "boolean":
            return chance.random() < 0.5
        case "int":
            return chance.choice((chance.randrange(-3, 4), -(2**31), 2**31 - 1, 0))
        case "long":
            return chance.choice((chance.randrange(-3, 4), -(2**63), 2**63 - 1, 2**31))
        case "float" | "double":
            return number(chance.choice((0.0, -0.0, 1.5, float("nan"), float("inf"), -2.25)))
        case "decimal":
            limit = 10**kind.size - 1
            return chance.choice((chance.randrange(-3, 4), limit, -limit, 150))
        case "date":
            return chance.choice((chance.randrange(-3, 4), *_DAY_LIMITS))
        case "time":
            return chance.randrange(5) * 21_600_000_000 % 86_400_000_000
        case "timestamp" | "timestamptz":
            return _instant(chance)
        case "timestamp_ns" | "timestamptz_ns":
            return _instant(chance) * 1000 + chance.randrange(2)
        case "string":
            return chance.choice(_TEXTS)
        case "uuid":
            return uuid.UUID(int=chance.randrange(3) << 124 | chance.randrange(2)).bytes
        case "fixed":
            return bytes(chance.choice((0, 127, 128, 255)) for _ in range(kind.size))
        case "binary":
            return bytes(chance.choice((0, 127, 128, 255)) for _ in range(chance.randrange(4)))
    raise AssertionError(f"no values of {kind}")


def _instant(chance: random.Random) -> int:
    """Microseconds, in UTC whole days and others, before 1970 too."""
    day = chance.choice((chance.randrange(-2, 3), 19_000, -30_000))
    # Not in the last second before 1970, of which Spark's ORC writer loses the fraction.
    return day * 86_400_000_000 + chance.choice((0, 1, 43_200_000_000, 86_000_000_000))


def arrow_type(kind: Type, *, with_ids: bool) -> pa.DataType:
    """A type as Arrow writes it into Parquet, with the fields' ids or without.

    Without them it is for Spark, which has no UUID.
    """
    match kind:
        case Struct(fields):
            return pa.struct([arrow_field(field, with_ids=with_ids) for field in fields])
        case ListOf(element):
            return pa.list_(arrow_field(element, with_ids=with_ids))
        case MapOf(key, value):
            key_field = arrow_field(key, with_ids=with_ids).with_nullable(False)
            return pa.map_(key_field, arrow_field(value, with_ids=with_ids))
    return _arrow_primitive(kind, with_ids=with_ids)


def arrow_field(field: Field, *, with_ids: bool) -> pa.Field:
    """A field as :func:`arrow_type` has it."""
    metadata = {"PARQUET:field_id": str(field.id)} if with_ids else None
    return pa.field(field.name, arrow_type(field.type, with_ids=with_ids), metadata=metadata)


_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "unknown": pa.null(),
}


def _arrow_primitive(kind: Primitive, *, with_ids: bool) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(kind.size, kind.scale)
    if kind.name == "uuid":
        return pa.binary(16) if with_ids else pa.string()
    if kind.name == "fixed":
        return pa.binary(kind.size) if with_ids else pa.binary()
    return _ARROW[kind.name]


def arrow_table(
    rows: Sequence[Mapping[int, Any]], schema: Struct, *, with_ids: bool, top_names: bool = True
) -> pa.Table:
    """Rows by field id as an Arrow table; without ``top_names`` the columns are numbered."""
    columns = []
    fields = []
    for place, field in enumerate(schema.fields):
        kind = arrow_type(field.type, with_ids=with_ids)
        values = [_arrow_value(row.get(field.id), field.type, with_ids=with_ids) for row in rows]
        columns.append(pa.array(values, kind))
        named = arrow_field(field, with_ids=with_ids)
        fields.append(named if top_names else named.with_name(f"c{place}"))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _arrow_value(value: Any, kind: Type, *, with_ids: bool) -> Any:
    if value is None:
        return None
    match kind:
        case Struct(fields):
            return {
                field.name: _arrow_value(value[field.id], field.type, with_ids=with_ids)
                for field in fields
            }
        case ListOf(element):
            return [_arrow_value(each, element.type, with_ids=with_ids) for each in value]
        case MapOf(key, mapped):
            return [
                (
                    _arrow_value(one, key.type, with_ids=with_ids),
                    _arrow_value(other, mapped.type, with_ids=with_ids),
                )
                for one, other in value
            ]
    if kind.name in {"float", "double"}:
        return float.fromhex(value)
    if kind.name == "decimal":
        with decimal.localcontext() as context:
            context.prec = 100
            return decimal.Decimal(value).scaleb(-kind.scale)
    if kind.name == "uuid" and not with_ids:
        return str(uuid.UUID(bytes=value))
    return value
