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
    field_steps: list[tuple[str | None, Any]] = []
    for field in schema["fields"]:
        field_name = field["name"]
        field_type = field["type"]
        inner_fields = fields.get(field_name) if fields is not None else None
        if fields is not None and field_name not in fields:
            field_steps.append((None, _compile_schema(field_type)[1]))
        elif isinstance(inner_fields, Mapping):
            field_steps.append((field_name, record_reader(field_type, inner_fields)))
        else:
            field_steps.append((field_name, _compile_schema(field_type, inner_fields)[0]))

    def read(data: bytes, offset: int) -> tuple[dict[str, Any], int]:
        record = {}
        for field_name, read_or_skip in field_steps:
            if field_name is None:
                offset = read_or_skip(data, offset)
            else:
                record[field_name], offset = read_or_skip(data, offset)
        return record, offset

    return read


def _compile_schema(schema: Any, map_keys: Sequence[int] | None = None) -> tuple[Read, Skip]:
    if isinstance(schema, list):
        return _compile_union([_compile_schema(union_branch, map_keys) for union_branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    schema_type = schema["type"]
    if schema_type == "record":
        record_skipper = record_reader(schema, {})
        return record_reader(schema), lambda data, offset: record_skipper(data, offset)[1]
    if schema_type == "array":
        item_schema = schema["items"]
        return (
            _compile_map(item_schema, map_keys)
            if _is_key_value_pair(item_schema)
            else _compile_array(item_schema)
        )
    if schema_type == "fixed" or schema.get("logicalType") == "decimal":
        return _compile_bytes(schema)
    return _compile_schema(schema_type)


def _is_key_value_pair(schema: Any) -> bool:
    record_fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    return [record_field["name"] for record_field in record_fields] == ["key", "value"]


def _compile_union(branch_codecs: Sequence[tuple[Read, Skip]]) -> tuple[Read, Skip]:
    # Twice the number of the branch, in one byte; anything else is an error.
    readers_by_tag = {2 * i: read for i, (read, _) in enumerate(branch_codecs)}
    skippers_by_tag = {2 * i: skip for i, (_, skip) in enumerate(branch_codecs)}
    return lambda data, offset: readers_by_tag[data[offset]](
        data, offset + 1
    ), lambda data, offset: skippers_by_tag[data[offset]](data, offset + 1)


def _compile_array(item_schema: Any) -> tuple[Read, Skip]:
    read_item, skip_item = _compile_schema(item_schema)
    item_pattern = _value_pattern(item_schema)

    def read(data: bytes, offset: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            item_count, offset = _read_long(data, offset)
            if not item_count:
                return items, offset
            if item_count < 0:
                # The size of the block in bytes, for readers that skip it.
                offset = _skip_long(data, offset)
            for _ in range(abs(item_count)):
                item, offset = read_item(data, offset)
                items.append(item)

    def skip(data: bytes, offset: int) -> int:
        while True:
            item_count, offset = _read_long(data, offset)
            if not item_count:
                return offset
            if item_count < 0:
                offset = _skip_bytes(data, offset)
                continue
            if items_match := _array_matcher(item_pattern, item_count)(data, offset):
                return items_match.end()
            for _ in range(item_count):
                offset = skip_item(data, offset)
                if offset > len(data):
                    raise EOFError("an array goes beyond its block")

    return read, skip


def _compile_map(pair_schema: Any, map_keys: Sequence[int] | None) -> tuple[Read, Skip]:
    """A map, which is written as an array of pairs; of ``map_keys``, only those are read."""
    read_pairs, skip_pairs = _compile_array(pair_schema)
    value_schema = pair_schema["fields"][1]["type"]
    pair_pattern = _value_pattern(pair_schema)
    read_value = _compile_schema(value_schema)[0]
    # What precedes the value of a key: the pairs before it, and the key.
    key_patterns = [
        (
            key,
            re.compile(b"(?:%b)*?%b" % (pair_pattern, re.escape(_encoded_number(key))), re.DOTALL),
        )
        for key in map_keys or ()
        if pair_pattern is not None
    ]

    def read(data: bytes, offset: int) -> tuple[dict[int, Any], int]:
        pair_count, first_pair_offset = _read_long(data, offset)
        pairs_match = (
            _array_matcher(pair_pattern, pair_count)(data, first_pair_offset)
            if map_keys is not None
            else None
        )
        if pairs_match is None:
            pairs, offset = read_pairs(data, offset)
            selected_pairs = (pair for pair in pairs if map_keys is None or pair["key"] in map_keys)
            return {pair["key"]: pair["value"] for pair in selected_pairs}, offset
        values_by_key = {}
        for key, key_pattern in key_patterns:
            # Not up to the zero after the pairs, which is like a key.
            if key_match := key_pattern.match(data, first_pair_offset, pairs_match.end() - 1):
                values_by_key[key] = read_value(data, key_match.end())[0]
        return values_by_key, pairs_match.end()

    return read, skip_pairs


def _encoded_number(number: int) -> bytes:
    """A number as Avro writes it."""
    remaining_bits = (number << 1) ^ (number >> 63)
    encoded_bytes = bytearray()
    while remaining_bits > 127:
        encoded_bytes.append(remaining_bits & 127 | 128)
        remaining_bits >>= 7
    return bytes([*encoded_bytes, remaining_bits])


def _value_pattern(schema: Any) -> bytes | None:
    """A regular expression that matches a value; None if there is none."""
    schema_type = schema["type"] if isinstance(schema, dict) else schema
    if schema_type == "record":
        field_patterns = [_value_pattern(record_field["type"]) for record_field in schema["fields"]]
        return None if None in field_patterns else b"".join(filter(None, field_patterns))
    patterns_by_type = {"int": _NUMBER, "long": _NUMBER, "bytes": _SHORT, "string": _SHORT}
    return patterns_by_type.get(schema_type) if isinstance(schema_type, str) else None


@lru_cache(maxsize=256)
def _array_matcher(
    item_pattern: bytes | None, item_count: int
) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Match ``item_count`` items in one block and the zero after them, as all writers write arrays;
    nothing if items have no pattern, or are none or very many.
    """
    if item_pattern is None or not 0 < item_count <= _LONGEST_MATCH:
        return lambda _, __: None
    return re.compile(rb"(?:%b){%d}\x00" % (item_pattern, item_count), re.DOTALL).match


def _read_long(data: bytes, offset: int) -> tuple[int, int]:
    current_byte = data[offset]
    offset += 1
    zigzag_value = current_byte & 127
    bit_shift = 7
    while current_byte > 127:
        current_byte = data[offset]
        offset += 1
        zigzag_value |= (current_byte & 127) << bit_shift
        bit_shift += 7
    return (zigzag_value >> 1) ^ -(zigzag_value & 1), offset


def _skip_long(data: bytes, offset: int) -> int:
    while data[offset] > 127:
        offset += 1
    return offset + 1


def _read_bytes(data: bytes, offset: int) -> tuple[bytes, int]:
    byte_count, offset = _read_long(data, offset)
    end = offset + byte_count
    if not offset <= end <= len(data):
        raise EOFError("a value goes beyond its block")
    return data[offset:end], end


def _skip_bytes(data: bytes, offset: int) -> int:
    byte_count, offset = _read_long(data, offset)
    if byte_count < 0:
        raise ValueError("a value has a negative length")
    return offset + byte_count


def _read_string(data: bytes, offset: int) -> tuple[str, int]:
    raw, offset = _read_bytes(data, offset)
    return raw.decode(), offset


def _compile_struct(struct_format: str) -> tuple[Read, Skip]:
    value_struct = struct.Struct(struct_format)
    size_in_bytes = value_struct.size
    return lambda data, offset: (
        value_struct.unpack_from(data, offset)[0],
        offset + size_in_bytes,
    ), lambda _, offset: offset + size_in_bytes


_PRIMITIVES: Mapping[str, tuple[Read, Skip]] = {
    "null": (lambda _, offset: (None, offset), lambda _, offset: offset),
    "boolean": _compile_struct("?"),
    "int": (_read_long, _skip_long),
    "long": (_read_long, _skip_long),
    "float": _compile_struct("<f"),
    "double": _compile_struct("<d"),
    "bytes": (_read_bytes, _skip_bytes),
    "string": (_read_string, _skip_bytes),
}


def _compile_bytes(schema: Any) -> tuple[Read, Skip]:
    """Bytes that may represent a decimal or a UUID."""
    is_fixed = schema["type"] == "fixed"
    logical_type = schema.get("logicalType")
    read, skip = _compile_struct(f"{schema['size']}s") if is_fixed else _PRIMITIVES["bytes"]
    if logical_type not in {"decimal", "uuid"}:
        return read, skip

    def read_converted(data: bytes, offset: int) -> tuple[str, int]:
        raw, offset = read(data, offset)
        if logical_type == "uuid":
            return str(uuid.UUID(bytes=raw)), offset
        return format(decimal_of(raw, schema.get("scale", 0)), "f"), offset

    return read_converted, skip
