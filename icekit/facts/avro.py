"""Read manifest lists and manifests, decoding only the fields that are asked for.

fastavro skips the statistics maps in C, which is where a manifest's bytes are; pyiceberg's
reader builds them in Python first.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro

from icekit.errors import MetadataUnreadable

ENTRY_FIELDS = frozenset({"status", "sequence_number", "data_file"})
FILE_FIELDS = frozenset(
    {"content", "file_format", "partition", "record_count", "file_size_in_bytes", "content_size_in_bytes", "referenced_data_file"}
)
BOUND_FIELDS = frozenset({"lower_bounds", "upper_bounds"})
COUNT_FIELDS = frozenset({"value_counts"})

Record = Mapping[str, Any]


def manifest_list(raw: bytes, location: str) -> list[Record]:
    """Every manifest of a snapshot, as decoded from its manifest list."""
    return list(_read(raw, location, None))


def entries(raw: bytes, location: str, file_fields: frozenset[str] = FILE_FIELDS) -> Iterator[Record]:
    """The live entries of a manifest, reduced to the given fields of ``data_file``."""
    for record in _read(raw, location, file_fields):
        if record["status"] != 2:
            yield record


def _read(raw: bytes, location: str, file_fields: frozenset[str] | None) -> Iterator[Record]:
    try:
        reader = fastavro.reader(io.BytesIO(raw))
        if file_fields is not None:
            reader = fastavro.reader(io.BytesIO(raw), reader_schema=_projected(reader.writer_schema, file_fields))
        yield from reader  # type: ignore[misc]
    except Exception as error:
        # fastavro raises whatever the bytes led it to: ValueError, EOFError, KeyError, zlib.error …
        raise MetadataUnreadable(
            f"{location} is corrupt ({type(error).__name__}: {str(error)[:120]}); restore it from a backup, or roll back to a snapshot before it.",
            detail=repr(error),
        ) from None


def _projected(schema: Any, file_fields: frozenset[str]) -> Any:
    """The writer's schema with fewer fields; names and types stay the writer's."""
    fields = []
    for field in schema["fields"]:
        if field["name"] == "data_file":
            inner = field["type"]
            kept = [f for f in inner["fields"] if f["name"] in file_fields]
            fields.append({**field, "type": {**inner, "fields": kept}})
        elif field["name"] in ENTRY_FIELDS:
            fields.append(field)
    return {**schema, "fields": fields}
