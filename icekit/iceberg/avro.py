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
    return _header_and_start(raw)[0]


def records_of(raw: bytes) -> Iterator[Record]:
    """The records of an Avro file, in their stored form."""
    import fastavro

    header, first_block = _header_and_start(raw)
    plain_header = {**header, SCHEMA: _plain_schema(header[SCHEMA]).json_text}
    plain_file = (
        _encoded_header(plain_header, raw[first_block - _SYNC_BYTES : first_block])
        + raw[first_block:]
    )
    for record in fastavro.reader(io.BytesIO(plain_file)):
        assert isinstance(record, dict)
        yield record


def rewrite(
    raw: bytes,
    change: Callable[[Record], None],
    change_header: Callable[[Header], Header] | None = None,
) -> bytes:
    """The same Avro file after ``change`` to each record, and after ``change_header``, which must
    not change how records are stored. The codec stays.

    For corrupt bytes, raises an error of any kind, as decoders do.
    """
    import fastavro

    def changed_records() -> Iterator[Record]:
        for record in records_of(raw):
            change(record)
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
    new_file = out.getvalue()
    blocks = new_file[_header_and_start(new_file)[1] :]
    new_header = change_header(header) if change_header else header
    return _encoded_header(new_header, sync_marker) + blocks


def _header_and_start(raw: bytes) -> tuple[Header, int]:
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

    json_text: bytes
    parsed_schema: Any


@lru_cache(maxsize=100)  # the manifests of a table share a few
def _plain_schema(text: bytes) -> _PlainSchema:
    import fastavro

    schema = _without_logical_types(json.loads(text))
    return _PlainSchema(json.dumps(schema).encode(), fastavro.parse_schema(schema))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain_schema = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in plain_schema:
            plain_schema[key] = _without_logical_types(plain_schema[key])
    if "fields" in plain_schema:
        plain_schema["fields"] = [
            {**field, "type": _without_logical_types(field["type"])}
            for field in plain_schema["fields"]
        ]
    return plain_schema
