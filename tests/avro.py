"""Avro schemas and manifests of a test's own."""

import io
from collections.abc import Sequence
from typing import Any

import fastavro


def record_type(name: str, **fields: Any) -> dict[str, Any]:
    """A record of these fields."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def array_type(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


PAIR = record_type("pair", key="int", value="bytes")


def manifest(
    partition: dict[str, Any],
    records: Sequence[dict[str, Any]],
    codec: str = "deflate",
    **of_file: Any,
) -> bytes:
    """A manifest; ``partition`` and ``of_file`` are the types of fields of its files."""
    file = record_type(
        "r2",
        content="int",
        file_path="string",
        file_format="string",
        record_count="long",
        file_size_in_bytes="long",
        partition=record_type("r102", **partition),
        **of_file,
    )
    schema = record_type(
        "manifest_entry",
        status="int",
        snapshot_id=optional("long"),
        sequence_number=optional("long"),
        data_file=file,
    )
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()
