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
    return _split(raw)[0]


def records_of(raw: bytes) -> Iterator[Record]:
    """The records of an Avro file, in their stored form."""
    import fastavro

    header, start = _split(raw)
    plain_header = {**header, SCHEMA: _plain_schema(header[SCHEMA]).text}
    plain = _encoded(plain_header, raw[start - _SYNC_BYTES : start]) + raw[start:]
    for record in fastavro.reader(io.BytesIO(plain)):
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
    sync = hashlib.md5(raw, usedforsecurity=False).digest()
    fastavro.writer(
        out,
        _plain_schema(header[SCHEMA]).parsed,
        changed_records(),
        codec=header.get("avro.codec", b"null").decode(),
        sync_interval=_BLOCK_BYTES,
        sync_marker=sync,
    )
    block_bytes = out.getvalue()
    blocks = block_bytes[_split(block_bytes)[1] :]
    new_header = change_header(header) if change_header else header
    return _encoded(new_header, sync) + blocks


def _split(raw: bytes) -> tuple[Header, int]:
    """The header, and where the first block begins."""
    import fastavro

    if not raw.startswith(MAGIC):
        raise ValueError("not an Avro file")
    stream = io.BytesIO(raw)
    stream.seek(len(MAGIC))
    entries = fastavro.schemaless_reader(stream, {"type": "map", "values": "bytes"}, None)
    assert isinstance(entries, dict)
    return dict(entries), stream.tell() + _SYNC_BYTES


def _encoded(header: Header, sync: bytes) -> bytes:
    import fastavro

    out = io.BytesIO(MAGIC)
    out.seek(len(MAGIC))
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, header)
    return out.getvalue() + sync


class _PlainSchema(NamedTuple):
    """A schema without its logical types: its JSON, and what fastavro makes of that."""

    text: bytes
    parsed: Any


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
    plain = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = _without_logical_types(plain[key])
    if "fields" in plain:
        plain["fields"] = [
            {**field, "type": _without_logical_types(field["type"])} for field in plain["fields"]
        ]
    return plain
