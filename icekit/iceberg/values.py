"""Read and write single values as the Iceberg spec does."""

import datetime as dt
import math
import re
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.partition import Partition, Scalar

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_NUMBERS = ("int", "date", "long", "time", "float", "double")


def result_type(transform: str, source_type: str) -> str:
    """The type of a partition field (table spec, "Partition Transforms")."""
    transform_name = transform.partition("[")[0]
    if transform_name in {"bucket", "year", "month", "hour"}:
        return "int"
    return "date" if transform_name == "day" else source_type


def partition_of(spec_id: int, values: Iterable[object]) -> Partition:
    """The partition of values decoded from Avro or Spark, in the order of the spec's fields."""
    return Partition(spec_id, tuple(to_scalar(value) for value in values))


def to_scalar(value: object) -> Scalar:
    """Convert a value decoded from Avro or Spark to the form that facts keep."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        return format(value, "f")  # 0.0000001, not 1E-7
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # NaN is not equal to itself, and JSON has neither NaN nor infinity
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"no partition value of type {type(value).__name__}")


def from_bytes(type_name: str, raw: bytes) -> Scalar | Decimal:
    """Decode a bound (table spec, "Binary single-value serialization") into a value that can be
    compared.

    Raises ValueError for a type without an order here (variant, geometry …), and for other bytes
    than a value of the type has.
    """
    base_type_name = base_type(type_name)
    if base_type_name in _NUMBERS and len(raw) not in (4, 8):
        raise ValueError(f"a bound of type {type_name} has {len(raw)} bytes")
    # Bounds written before a type promotion (int to long, float to double) keep their old width.
    if base_type_name in {"float", "double"}:
        return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]  # type: ignore[no-any-return]
    if base_type_name in _NUMBERS or base_type_name.startswith("timestamp"):
        return int.from_bytes(raw, "little", signed=True)
    if base_type_name == "boolean":
        return raw != b"\x00"
    if base_type_name == "string":
        return raw.decode()
    if base_type_name in {"uuid", "fixed", "binary"}:
        return raw.hex()
    if base_type_name == "decimal":
        return decimal_of(raw, int(type_name.rpartition(",")[2].strip(" )")))
    raise ValueError(f"bounds of type {type_name} have no order here")


def decimal_of(raw: bytes, scale: int) -> Decimal:
    """Decode a decimal exactly; arithmetic would round it to 28 digits."""
    return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E-{scale}")


def range_of(type_name: str, low: bytes | None, high: bytes | None) -> tuple[Any, Any] | None:
    """Two bounds as values that compare; None without one of them, or without an order."""
    if low is None or high is None:
        return None
    try:
        return from_bytes(type_name, low), from_bytes(type_name, high)
    except ValueError:
        return None


def base_type(type_name: str) -> str:
    """A type without its length, or its precision and scale."""
    return type_name.partition("(")[0].partition("[")[0]


def sort_key(value: object) -> tuple[bool, str, float, str]:
    """The order of values that may be null, NaN, or of different types: nulls, numbers, strings."""
    if isinstance(value, (int, float)) and not math.isnan(value):
        return True, "", float(value), ""
    return value is not None, "s", 0.0, str(value)


def partition_value_text(transform: str, type_name: str, value: Scalar) -> str:
    """Write a partition value as Iceberg does in a partition path (before URL encoding)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        if transform == "year":
            return str(1970 + value)
        if transform == "month":
            return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
        if transform == "hour":
            return (_EPOCH + dt.timedelta(hours=value)).strftime("%Y-%m-%d-%H")
        if type_name == "date":
            return dt.date.fromordinal(_EPOCH_DAY + value).isoformat()
        if type_name.startswith("timestamp"):
            timestamp_text = moment_of(type_name, value).replace(tzinfo=None).isoformat()
            return f"{timestamp_text}+00:00" if "tz" in type_name else timestamp_text
        if type_name == "time":
            return (_EPOCH + dt.timedelta(microseconds=value)).time().isoformat()
    return str(value)


def moment_of(type_name: str, timestamp_value: int) -> dt.datetime:
    """The moment of a timestamp of any type, in UTC and to the microsecond."""
    microseconds = timestamp_value // 1000 if "_ns" in type_name else timestamp_value
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def partition_path(spec: PartitionSpec, values: Sequence[Scalar]) -> str:
    """``name=value`` for each field of the spec, joined by slashes; empty when unpartitioned."""
    value_texts = (
        partition_value_text(field.transform, field.result_type, value)
        for field, value in zip(spec.fields, values, strict=True)
    )
    return "/".join(
        f"{field.name}={_escaped_text(value_text)}"
        for field, value_text in zip(spec.fields, value_texts, strict=True)
    )


def _escaped_text(text: str) -> str:
    # People read this path, so only characters that would make it ambiguous are escaped.
    return re.sub(r"[/=%]", lambda match: quote_plus(match[0]), text)
