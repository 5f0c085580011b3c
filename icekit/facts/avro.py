"""Read manifest lists and manifests, decoding only the fields that are asked for."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import fastavro

from icekit.errors import MetadataUnreadable, first_line
from icekit.facts.decode import inlined, record_reader

SIZE_FIELDS = frozenset({"partition", "record_count", "file_size_in_bytes"})
FILE_FIELDS = SIZE_FIELDS | {"content", "file_format", "content_size_in_bytes", "referenced_data_file", "equality_ids"}
BOUND_FIELDS = frozenset({"lower_bounds", "upper_bounds"})
COUNT_FIELDS = frozenset({"value_counts"})
# What every manifest has of a file, whatever wrote it.
_OF_FILE = frozenset({"partition", "record_count", "file_size_in_bytes", "file_format"})
# What every manifest list says of each manifest, whatever wrote it.
_OF_MANIFEST = {"manifest_path": str, "manifest_length": int, "partition_spec_id": int}

Record = Mapping[str, Any]


def manifest_list(raw: bytes, location: str) -> list[Record]:
    """Every manifest of a snapshot, as decoded from its manifest list."""
    try:
        found: list[Any] = list(fastavro.reader(io.BytesIO(raw)))
        for manifest in found:
            if not all(isinstance(manifest[field], kind) for field, kind in _OF_MANIFEST.items()):
                raise TypeError("a manifest without a path, a length or a partition spec")
        return found
    except Exception as error:
        raise _corrupt(location, error) from None


def entries(raw: bytes, location: str, file_fields: frozenset[str] = FILE_FIELDS) -> Iterator[Record]:
    """The live entries of a manifest, reduced to the given fields of ``data_file``."""
    try:
        blocks = fastavro.block_reader(io.BytesIO(raw))
        wanted = {"status": None, "sequence_number": None, "data_file": dict.fromkeys(file_fields)}
        schema = inlined(blocks.writer_schema)
        _check_fields(schema, file_fields)
        read = record_reader(schema, wanted)
        for block in blocks:
            data, at = block.bytes_.getvalue(), 0  # type: ignore[attr-defined]
            for _ in range(block.num_records):
                entry, at = read(data, at)
                if entry["status"] != 2:
                    yield entry
            if at != len(data):
                raise ValueError("a block does not end with its last entry")
    except Exception as error:
        raise _corrupt(location, error) from None


def contains(raw: bytes, location: str, texts: Iterable[str]) -> bool:
    """Tell whether one of some texts is anywhere in a manifest's entries; decodes none of them."""
    wanted = [text.encode() for text in texts]
    try:
        blocks = (block.bytes_.getvalue() for block in fastavro.block_reader(io.BytesIO(raw)))  # type: ignore[attr-defined]
        return any(text in block for block in blocks for text in wanted)
    except Exception as error:
        raise _corrupt(location, error) from None


def _check_fields(schema: Any, file_fields: frozenset[str]) -> None:
    """See that a manifest's own schema has what every manifest has; a byte of it may be wrong too."""
    entry = {field["name"]: field["type"] for field in schema["fields"]}
    file = {field["name"]: field["type"] for field in entry["data_file"]["fields"]}
    if missing := {"status"} - entry.keys() | (file_fields & _OF_FILE) - file.keys():
        raise KeyError(*missing)
    for name in file_fields & file.keys() & (BOUND_FIELDS | COUNT_FIELDS):
        branches = file[name] if isinstance(file[name], list) else [file[name]]
        pair = next(branch["items"] for branch in branches if isinstance(branch, dict))
        if {field["name"] for field in pair["fields"]} != {"key", "value"}:
            raise KeyError(name)


def _corrupt(location: str, error: Exception) -> MetadataUnreadable:
    if "need to install" in str(error):
        return MetadataUnreadable(
            f"{location} is compressed in a way that is not installed here: {first_line(error)[:120]}.", detail=repr(error)
        )
    # Corrupt bytes lead a decoder to anything: ValueError, EOFError, KeyError, zlib.error …
    return MetadataUnreadable(
        f"{location} is corrupt ({type(error).__name__}: {first_line(error)[:120]}); restore it from a backup, or roll back to a snapshot before it.",
        detail=repr(error),
    )
