"""Match the columns of two snapshots by field id: a column that was renamed is the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Json = Mapping[str, Any]

# From the narrower to the wider (table spec, "Schema Evolution"); other promotions keep the newer.
_WIDER = {("long", "int"), ("double", "float")}


def shared(before: Json, after: Json) -> tuple[StructType, StructType, tuple[str, ...]]:
    """The columns that two Iceberg schemas share, for :func:`icekit.prove.fingerprint.row_hash`.

    Gives the columns named as in ``before``, the same ones named as in ``after``, in the order
    of field ids and of the wider of their two types, and the dotted names of those that only
    one of them has, which no comparison can reach.
    """
    left_out: list[str] = []
    old, new = _shared_fields(before["fields"], after["fields"], "", left_out)
    return old, new, tuple(left_out)


def _shared_fields(before: Sequence[Json], after: Sequence[Json], prefix: str, left_out: list[str]) -> tuple[StructType, StructType]:
    from pyspark.sql.types import StructField, StructType

    olds, news = ({field["id"]: field for field in fields} for fields in (before, after))
    old_fields, new_fields = [], []
    for field_id in sorted(olds.keys() | news.keys()):
        old, new = olds.get(field_id), news.get(field_id)
        if old is None or new is None:
            left_out.append(prefix + (old or new or {})["name"])
            continue
        old_type, new_type = _shared_types(old["type"], new["type"], f"{prefix}{old['name']}.", left_out)
        old_fields.append(StructField(old["name"], old_type))
        new_fields.append(StructField(new["name"], new_type))
    return StructType(old_fields), StructType(new_fields)


def _shared_types(before: Any, after: Any, prefix: str, left_out: list[str]) -> tuple[DataType, DataType]:
    from pyspark.sql.types import ArrayType, MapType

    if isinstance(before, str) or isinstance(after, str):
        # Only an unknown type, which is always null, can have become a nested one.
        kind = _primitive(_wider(before, after)) if isinstance(before, str) and isinstance(after, str) else _primitive("unknown")
        return kind, kind
    if after["type"] == "struct":
        return _shared_fields(before["fields"], after["fields"], prefix, left_out)
    if after["type"] == "list":
        old, new = _shared_types(before["element"], after["element"], f"{prefix}element.", left_out)
        return ArrayType(old), ArrayType(new)
    old_key, new_key = _shared_types(before["key"], after["key"], f"{prefix}key.", left_out)
    old_value, new_value = _shared_types(before["value"], after["value"], f"{prefix}value.", left_out)
    return MapType(old_key, old_value), MapType(new_key, new_value)


def _wider(before: str, after: str) -> str:
    if (before, after) in _WIDER or after == "unknown":
        return before
    if before.startswith("decimal") and after.startswith("decimal"):
        return max(before, after, key=lambda kind: int(re.findall(r"\d+", kind)[0]))
    return after


def _primitive(kind: str) -> DataType:
    """The Spark type that a primitive Iceberg type is read as (TypeToSparkType)."""
    from pyspark.sql import types as T

    if kind.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", kind))
        return T.DecimalType(precision, scale)
    if kind.startswith("fixed"):
        return T.BinaryType()
    types: dict[str, DataType] = {
        "boolean": T.BooleanType(),
        "int": T.IntegerType(),
        "long": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "date": T.DateType(),
        "timestamptz": T.TimestampType(),
        "timestamp": T.TimestampNTZType(),
        "binary": T.BinaryType(),
        "variant": T.VariantType(),
        "unknown": T.NullType(),
    }
    # Strings and uuids are read as strings; anything newer is hashed as Spark reads it, or refused.
    return types.get(kind, T.StringType())
