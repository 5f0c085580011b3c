"""Compile an Avro schema into a function that reads some fields of a record and skips the others.

Nine tenths of a manifest entry are statistics: arrays of numbers and short values, so regularly
encoded that :mod:`re` skips them in C. A library that decodes each value to drop it takes
several times as long. Values are returned as stored (dates as days, timestamps as
microseconds), except decimals and UUIDs, which are strings.

Corrupt bytes cause an exception, of any kind, or a wrong length.
"""

import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from icekit.iceberg.values import decimal_of

# From the bytes of a block and a position, to the value at the position and the position after it.
Read = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]
#: The fields to read: each with None for the complete value, with fields of a nested record, or
# with the keys of a map that are read.
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
    for field in schema["fields"]:
        name = field["name"]
        kind = field["type"]
        inner = fields.get(name) if fields is not None else None
        if fields is not None and name not in fields:
            plan.append((None, _compiled(kind)[1]))
        elif isinstance(inner, Mapping):
            plan.append((name, record_reader(kind, inner)))
        else:
            plan.append((name, _compiled(kind, inner)[0]))

    def read(data: bytes, offset: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, step in plan:
            if name is None:
                offset = step(data, offset)
            else:
                record[name], offset = step(data, offset)
        return record, offset

    return read


def _compiled(schema: Any, keys: Sequence[int] | None = None) -> tuple[Read, Skip]:
    if isinstance(schema, list):
        return _union([_compiled(branch, keys) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    kind = schema["type"]
    if kind == "record":
        skip = record_reader(schema, {})
        return record_reader(schema), lambda data, offset: skip(data, offset)[1]
    if kind == "array":
        items = schema["items"]
        return _map(items, keys) if _is_pair(items) else _array(items)
    if kind == "fixed" or schema.get("logicalType") == "decimal":
        return _bytes_like(schema)
    return _compiled(kind)


def _is_pair(schema: Any) -> bool:
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    return [field["name"] for field in fields] == ["key", "value"]


def _union(branches: Sequence[tuple[Read, Skip]]) -> tuple[Read, Skip]:
    # Twice the number of the branch, in one byte; anything else is an error.
    reads = {2 * i: read for i, (read, _) in enumerate(branches)}
    skips = {2 * i: skip for i, (_, skip) in enumerate(branches)}
    return lambda data, offset: reads[data[offset]](data, offset + 1), lambda data, offset: skips[
        data[offset]
    ](data, offset + 1)


def _array(items: Any) -> tuple[Read, Skip]:
    read_item, skip_item = _compiled(items)
    pattern = _pattern(items)

    def read(data: bytes, offset: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            count, offset = _long(data, offset)
            if not count:
                return values, offset
            if count < 0:
                # The size of the block in bytes, for readers that skip it.
                offset = _skip_long(data, offset)
            for _ in range(abs(count)):
                item, offset = read_item(data, offset)
                values.append(item)

    def skip(data: bytes, offset: int) -> int:
        while True:
            count, offset = _long(data, offset)
            if not count:
                return offset
            if count < 0:
                offset = _skip_bytes(data, offset)
                continue
            if match := _matcher(pattern, count)(data, offset):
                return match.end()
            for _ in range(count):
                offset = skip_item(data, offset)
                if offset > len(data):
                    raise EOFError("an array goes beyond its block")

    return read, skip


def _map(pair: Any, keys: Sequence[int] | None) -> tuple[Read, Skip]:
    """A map, which is written as an array of pairs; of ``keys``, only those are read."""
    read_pairs, skip = _array(pair)
    kind = pair["fields"][1]["type"]
    pattern = _pattern(pair)
    read_value = _compiled(kind)[0]
    # What precedes the value of a key: the pairs before it, and the key.
    before = [
        (key, re.compile(b"(?:%b)*?%b" % (pattern, re.escape(_number(key))), re.DOTALL))
        for key in keys or ()
        if pattern is not None
    ]

    def read(data: bytes, offset: int) -> tuple[dict[int, Any], int]:
        count, start = _long(data, offset)
        match = _matcher(pattern, count)(data, start) if keys is not None else None
        if match is None:
            pairs, offset = read_pairs(data, offset)
            wanted = (each for each in pairs if keys is None or each["key"] in keys)
            return {each["key"]: each["value"] for each in wanted}, offset
        values = {}
        for key, until in before:
            # Not up to the zero after the pairs, which is like a key.
            if preceding := until.match(data, start, match.end() - 1):
                values[key] = read_value(data, preceding.end())[0]
        return values, match.end()

    return read, skip


def _number(value: int) -> bytes:
    """A number as Avro writes it."""
    left = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    return bytes([*encoded, left])


def _pattern(schema: Any) -> bytes | None:
    """A regular expression that matches a value; None if there is none."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        parts = [_pattern(field["type"]) for field in schema["fields"]]
        return None if None in parts else b"".join(filter(None, parts))
    patterns = {"int": _NUMBER, "long": _NUMBER, "bytes": _SHORT, "string": _SHORT}
    return patterns.get(kind) if isinstance(kind, str) else None


@lru_cache(maxsize=256)
def _matcher(pattern: bytes | None, count: int) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Match ``count`` items in one block and the zero after them, as all writers write arrays;
    nothing if items have no pattern, or are none or very many.
    """
    if pattern is None or not 0 < count <= _LONGEST_MATCH:
        return lambda _, __: None
    return re.compile(rb"(?:%b){%d}\x00" % (pattern, count), re.DOTALL).match


def _long(data: bytes, offset: int) -> tuple[int, int]:
    byte = data[offset]
    offset += 1
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), offset


def _skip_long(data: bytes, offset: int) -> int:
    while data[offset] > 127:
        offset += 1
    return offset + 1


def _bytes(data: bytes, offset: int) -> tuple[bytes, int]:
    length, offset = _long(data, offset)
    end = offset + length
    if not offset <= end <= len(data):
        raise EOFError("a value goes beyond its block")
    return data[offset:end], end


def _skip_bytes(data: bytes, offset: int) -> int:
    length, offset = _long(data, offset)
    if length < 0:
        raise ValueError("a value has a negative length")
    return offset + length


def _string(data: bytes, offset: int) -> tuple[str, int]:
    raw, offset = _bytes(data, offset)
    return raw.decode(), offset


def _packed(form: str) -> tuple[Read, Skip]:
    layout = struct.Struct(form)
    size = layout.size
    return lambda data, offset: (
        layout.unpack_from(data, offset)[0],
        offset + size,
    ), lambda _, offset: offset + size


_PRIMITIVES: Mapping[str, tuple[Read, Skip]] = {
    "null": (lambda _, offset: (None, offset), lambda _, offset: offset),
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
    is_fixed = schema["type"] == "fixed"
    logical = schema.get("logicalType")
    read, skip = _packed(f"{schema['size']}s") if is_fixed else _PRIMITIVES["bytes"]
    if logical not in {"decimal", "uuid"}:
        return read, skip

    def converted(data: bytes, offset: int) -> tuple[str, int]:
        raw, offset = read(data, offset)
        if logical == "uuid":
            return str(uuid.UUID(bytes=raw)), offset
        return format(decimal_of(raw, schema.get("scale", 0)), "f"), offset

    return converted, skip
