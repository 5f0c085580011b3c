"""Change the records of an Avro file, and leave everything else in it as it is.

Values keep their stored form: a date is a number of days and a decimal is bytes, because logical
types have values that Python has no type for (a date before year 1, a decimal of 38 digits).
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

Record = dict[str, Any]
#: The header's entries, by their keys; the schema is JSON text.
Header = dict[str, bytes]

MAGIC = b"Obj\x01"
SCHEMA = "avro.schema"
_SYNC_BYTES = 16
# As Iceberg's Java writers have it.
_BLOCK_BYTES = 64_000


def header_of(raw: bytes) -> Header:
    """The header of an Avro file; raises ValueError for another file."""
    return _header_and_block_offset(raw)[0]


def records_of(raw: bytes) -> Iterator[Record]:
    """The records of an Avro file, in their stored form."""
    import fastavro

    header, first_block_offset = _header_and_block_offset(raw)
    header_without_logical_types = {**header, SCHEMA: _plain_schema(header[SCHEMA]).schema_json}
    plain_file_bytes = (
        _encoded_header(
            header_without_logical_types, raw[first_block_offset - _SYNC_BYTES : first_block_offset]
        )
        + raw[first_block_offset:]
    )
    for record in fastavro.reader(io.BytesIO(plain_file_bytes)):
        assert isinstance(record, dict)
        yield record


def rewrite(
    raw: bytes,
    change_record: Callable[[Record], None],
    change_header: Callable[[Header], Header] | None = None,
) -> bytes:
    """The same Avro file after ``change_record`` to each record, and after ``change_header``, which
    must not change how records are stored. The codec stays.

    For corrupt bytes, raises an error of any kind, as decoders do.
    """
    import fastavro

    def changed_records() -> Iterator[Record]:
        for record in records_of(raw):
            change_record(record)
            yield record

    header = header_of(raw)
    out = io.BytesIO()
    sync_marker = hashlib.md5(raw, usedforsecurity=False).digest()
    fastavro.writer(
        out,
        _plain_schema(header[SCHEMA]).parsed_schema,
        changed_records(),
        codec=header.get("avro.codec", b"null").decode(),
        sync_interval=_BLOCK_BYTES,
        sync_marker=sync_marker,
    )
    new_file_bytes = out.getvalue()
    block_bytes = new_file_bytes[_header_and_block_offset(new_file_bytes)[1] :]
    new_header = change_header(header) if change_header else header
    return _encoded_header(new_header, sync_marker) + block_bytes


def _header_and_block_offset(raw: bytes) -> tuple[Header, int]:
    """The header, and where the first block begins."""
    import fastavro

    if not raw.startswith(MAGIC):
        raise ValueError("not an Avro file")
    content_stream = io.BytesIO(raw)
    content_stream.seek(len(MAGIC))
    header_entries = fastavro.schemaless_reader(
        content_stream, {"type": "map", "values": "bytes"}, None
    )
    assert isinstance(header_entries, dict)
    return dict(header_entries), content_stream.tell() + _SYNC_BYTES


def _encoded_header(header: Header, sync_marker: bytes) -> bytes:
    import fastavro

    out = io.BytesIO(MAGIC)
    out.seek(len(MAGIC))
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, header)
    return out.getvalue() + sync_marker


class _PlainSchema(NamedTuple):
    """A schema without its logical types: its JSON, and what fastavro makes of that."""

    schema_json: bytes
    parsed_schema: Any


@lru_cache(maxsize=100)  # the manifests of a table share a few
def _plain_schema(schema_json: bytes) -> _PlainSchema:
    import fastavro

    plain_schema = _without_logical_types(json.loads(schema_json))
    return _PlainSchema(json.dumps(plain_schema).encode(), fastavro.parse_schema(plain_schema))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(union_branch) for union_branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain_schema = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in plain_schema:
            plain_schema[key] = _without_logical_types(plain_schema[key])
    if "fields" in plain_schema:
        plain_schema["fields"] = [
            {**record_field, "type": _without_logical_types(record_field["type"])}
            for record_field in plain_schema["fields"]
        ]
    return plain_schema
