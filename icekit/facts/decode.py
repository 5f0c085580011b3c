"""Compile an Avro schema into a function that reads some fields of a record and skips the others.

Nine tenths of a manifest entry are statistics: arrays of numbers and short values, so regularly
encoded that :mod:`re` skips them in C. A library that decodes each value to drop it takes
several times as long. Values are returned as stored (dates as days, timestamps as
microseconds), except decimals and UUIDs, which are strings.

Corrupt bytes cause an exception, of any kind, or a wrong length.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

# From the bytes of a block and a position, to the value at the position and the position after it.
Read = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]
#: The fields to read: each with None for the complete value, with fields of a nested record, or
# with keys of a map, whose values are then a tuple in their order, with None for a key that is
# missing.
Fields = Mapping[str, "Fields | tuple[int, ...] | None"]

# A number has the high bit set in every byte except its last.
_NUMBER = rb"[\x80-\xff]*+."
# Strings and bytes begin with twice their length, in one byte if the length is less than 64.
_SHORT = (
    b"(?>"
    + b"|".join(re.escape(bytes([2 * length])) + b".{%d}" % length for length in range(64))
    + b")"
)
# Longer arrays are skipped item by item; statistics are never that long.
_LONGEST_MATCH = 2000


def record_reader(schema: Any, fields: Fields | None = None) -> Read:
    """Compile a reader of records, which returns a dict in the schema's order.

    Without ``fields``, all are read.
    """
    plan: list[tuple[str | None, Any]] = []
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    wanted = dict.fromkeys(kinds) if fields is None else fields
    for name, kind in kinds.items():
        inner = wanted.get(name)
        if name not in wanted:
            plan.append((None, _compiled(kind)[1]))
        elif isinstance(inner, tuple):
            plan.append((name, _picker(kind, inner)))
        elif inner is not None:
            plan.append((name, record_reader(kind, inner)))
        else:
            plan.append((name, _compiled(kind)[0]))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, step in plan:
            if name is None:
                at = step(data, at)
            else:
                record[name], at = step(data, at)
        return record, at

    return read


def _compiled(schema: Any) -> tuple[Read, Skip]:
    if isinstance(schema, list):
        return _union([_compiled(branch) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    kind = schema["type"]
    if kind == "record":
        skip = record_reader(schema, {})
        return record_reader(schema), lambda data, at: skip(data, at)[1]
    if kind == "array":
        return _array(schema["items"])
    if kind == "fixed" or schema.get("logicalType") == "decimal":
        return _bytes_like(schema)
    return _compiled(kind)


def _union(branches: Sequence[tuple[Read, Skip]]) -> tuple[Read, Skip]:
    # Twice the number of the branch, in one byte; anything else is an error.
    reads = {2 * i: read for i, (read, _) in enumerate(branches)}
    skips = {2 * i: skip for i, (_, skip) in enumerate(branches)}
    return lambda data, at: reads[data[at]](data, at + 1), lambda data, at: skips[data[at]](
        data, at + 1
    )


def _array(items: Any) -> tuple[Read, Skip]:
    read_item, skip_item = _compiled(items)
    pattern = _pattern(items)

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            count, at = _long(data, at)
            if not count:
                return values, at
            if count < 0:
                at = _skip_long(
                    data, at
                )  # the size of the block in bytes, for readers that skip it
            for _ in range(abs(count)):
                item, at = read_item(data, at)
                values.append(item)

    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = _long(data, at)
            if not count:
                return at
            if count < 0:
                at = _skip_bytes(data, at)
                continue
            if (
                pattern is not None
                and count <= _LONGEST_MATCH
                and (match := _whole_array(pattern, count).match(data, at))
            ):
                return match.end()
            for _ in range(count):
                at = skip_item(data, at)
                if at > len(data):
                    raise EOFError("an array goes beyond its block")

    return read, skip


def _picker(schema: Any, keys: tuple[int, ...]) -> Read:
    """Read the values of some keys of a map that is written as an array of pairs.

    One regular expression skips the other pairs as fast as the whole array: it expects the keys
    where the last array of that length had them.
    """
    if isinstance(schema, list):
        none = (None,) * len(keys)
        reads = {
            2 * i: (lambda _, at: (none, at)) if branch == "null" else _picker(branch, keys)
            for i, branch in enumerate(schema)
        }
        return lambda data, at: reads[data[at]](data, at + 1)
    kind = schema["items"]["fields"][1]["type"]
    read_pairs, read_value = _array(schema["items"])[0], _compiled(kind)[0]
    value, is_bytes = _pattern(kind), kind == "bytes"
    wanted = [_number(key) for key in keys]
    any_pair = _NUMBER + (value or b"")
    layouts: dict[int, tuple[re.Pattern[bytes], list[int]]] = {}

    def learn(pairs: Sequence[Any], value: bytes) -> None:
        indexes = {pair["key"]: index for index, pair in enumerate(pairs)}
        groups, parts, at = [0] * len(keys), [], 0
        # No key is there twice, so only one that is missing may be elsewhere next time.
        missing = [re.escape(wanted[i]) for i, key in enumerate(keys) if key not in indexes]
        other = b"(?!%b)%b" % (b"|".join(missing), any_pair) if missing else any_pair
        for group, (index, key) in enumerate(
            sorted((indexes[key], i) for i, key in enumerate(keys) if key in indexes), 1
        ):
            parts.append(b"(?:%b){%d}%b(%b)" % (other, index - at, re.escape(wanted[key]), value))
            groups[key], at = group, index + 1
        parts.append(b"(?:%b){%d}\x00" % (other, len(pairs) - at))
        layouts[len(pairs)] = re.compile(b"".join(parts), re.DOTALL), groups

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, start = _long(data, at)
        if count in layouts:
            pattern, groups = layouts[count]
            if match := pattern.match(data, start):
                values = (
                    [match[group][1:] if group else None for group in groups]
                    if is_bytes  # after a length of one byte
                    else [
                        read_value(data, match.start(group))[0] if group else None
                        for group in groups
                    ]
                )
                return tuple(values), match.end()
        pairs, end = read_pairs(data, at)
        if value is not None and len(pairs) == count <= _LONGEST_MATCH:
            learn(pairs, value)
        held = {pair["key"]: pair["value"] for pair in pairs}
        return tuple([held.get(key) for key in keys]), end

    return read


def _number(value: int) -> bytes:
    """A number as Avro writes it."""
    left, written = (value << 1) ^ (value >> 63), bytearray()
    while left > 127:
        written.append(left & 127 | 128)
        left >>= 7
    return bytes([*written, left])


def _pattern(schema: Any) -> bytes | None:
    """A regular expression that matches a value; None if there is none."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        parts = [_pattern(field["type"]) for field in schema["fields"]]
        return None if None in parts else b"".join(filter(None, parts))
    patterns = {"int": _NUMBER, "long": _NUMBER, "bytes": _SHORT, "string": _SHORT}
    return patterns.get(kind) if isinstance(kind, str) else None


@lru_cache(maxsize=256)
def _whole_array(pattern: bytes, count: int) -> re.Pattern[bytes]:
    """Match ``count`` items in one block and the zero after them, as all writers write arrays."""
    return re.compile(rb"(?:%b){%d}\x00" % (pattern, count), re.DOTALL)


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value, shift = byte & 127, 7
    while byte > 127:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def _skip_long(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    end = at + length
    if not at <= end <= len(data):
        raise EOFError("a value goes beyond its block")
    return data[at:end], end


def _skip_bytes(data: bytes, at: int) -> int:
    length, at = _long(data, at)
    if length < 0:
        raise ValueError("a value has a negative length")
    return at + length


def _string(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _bytes(data, at)
    return raw.decode(), at


def _packed(form: str) -> tuple[Read, Skip]:
    layout = struct.Struct(form)
    size = layout.size
    return lambda data, at: (layout.unpack_from(data, at)[0], at + size), lambda _, at: at + size


_PRIMITIVES: Mapping[str, tuple[Read, Skip]] = {
    "null": (lambda _, at: (None, at), lambda _, at: at),
    "boolean": _packed("?"),
    "int": (_long, _skip_long),
    "long": (_long, _skip_long),
    "float": _packed("<f"),
    "double": _packed("<d"),
    "bytes": (_bytes, _skip_bytes),
    "string": (_string, _skip_bytes),
}


def _bytes_like(schema: Any) -> tuple[Read, Skip]:
    """Bytes that may represent a decimal or a UUID."""
    read, skip = (
        _packed(f"{schema['size']}s") if schema["type"] == "fixed" else _PRIMITIVES["bytes"]
    )
    convert = {"decimal": _decimal(schema), "uuid": _uuid}.get(schema.get("logicalType"))
    if convert is None:
        return read, skip

    def converted(data: bytes, at: int) -> tuple[str, int]:
        raw, at = read(data, at)
        return convert(raw), at

    return converted, skip


def _decimal(schema: Any) -> Callable[[bytes], str]:
    scale, context = schema.get("scale", 0), Context(prec=schema.get("precision", 38))
    return lambda raw: format(
        Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, context), "f"
    )


def _uuid(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))
