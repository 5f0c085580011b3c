"""What a table's metadata, manifest lists and manifests say of a snapshot's files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rigs.torture.reader.avro import metadata_of, read_avro
from rigs.torture.reader.projection import project
from rigs.torture.reader.schema import NotReadable, Struct, path_to, type_from_json

_DELETED = 2
#: The kinds of content of a file.
DATA = 0
POSITION_DELETES = 1
EQUALITY_DELETES = 2


def local(location: str) -> Path:
    """Where a location is on this machine's disk."""
    parts = urlsplit(location)
    return Path(parts.path if parts.scheme == "file" else location)


@dataclass(frozen=True)
class File:
    """A data or delete file of a snapshot, with what it inherits."""

    path: str
    format: str
    content: int
    spec_id: int
    #: Values by partition field id, in a form that can be compared.
    partition: tuple[tuple[int, Any], ...]
    sequence_number: int
    record_count: int
    equality_ids: tuple[int, ...] = ()
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None

    @property
    def is_vector(self) -> bool:
        """Whether this is a deletion vector."""
        return self.content == POSITION_DELETES and self.format == "puffin"


@dataclass(frozen=True)
class PartitionField:
    """A field of a partition spec."""

    id: int
    source_id: int | None
    transform: str


@dataclass(frozen=True)
class Metadata:
    """A table's metadata."""

    document: Mapping[str, Any]
    schemas: Mapping[int, Struct]
    specs: Mapping[int, tuple[PartitionField, ...]]
    name_mapping: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def version(self) -> int:
        """The format version."""
        return int(self.document["format-version"])

    @property
    def current_schema(self) -> Struct:
        """The schema of today."""
        return self.schemas[int(self.document.get("current-schema-id", -1))]

    @property
    def current_snapshot_id(self) -> int | None:
        """The current snapshot, if there is one."""
        snapshot_id = self.document.get("current-snapshot-id")
        return None if snapshot_id in {None, -1} else int(snapshot_id)

    @property
    def snapshots(self) -> Mapping[int, Mapping[str, Any]]:
        """The snapshots by their ids."""
        return {int(each["snapshot-id"]): each for each in self.document.get("snapshots") or ()}

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.document.get("properties") or {}

    def latest_struct_with(self, field_id: int) -> Struct | None:
        """The newest schema that has a field, today's first."""
        newest_first = sorted(self.schemas.items(), key=lambda item: -item[0])
        structs = [self.current_schema, *(struct for _, struct in newest_first)]
        return next((struct for struct in structs if path_to(struct, field_id) is not None), None)


def read_metadata(location: str) -> Metadata:
    """Read a metadata file."""
    content = local(location).read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    document = json.loads(content)
    schemas = {int(each["schema-id"]): _struct(each) for each in document.get("schemas") or ()}
    if not schemas:
        schemas[-1] = _struct(document["schema"])
    specs = {
        int(each["spec-id"]): _fields(each["fields"])
        for each in document.get("partition-specs") or ()
    }
    if not specs:
        specs[0] = _fields(document["partition-spec"])
    properties = document.get("properties") or {}
    mapping = json.loads(properties.get("schema.name-mapping.default", "[]"))
    return Metadata(document, schemas, specs, mapping)


def _struct(document: Mapping[str, Any]) -> Struct:
    struct = type_from_json({"type": "struct", **document})
    assert isinstance(struct, Struct)
    return struct


def _fields(fields: list[Mapping[str, Any]]) -> tuple[PartitionField, ...]:
    return tuple(
        PartitionField(
            # Version 1 numbered them by their place.
            int(each.get("field-id", 1000 + place)),
            _source_id(each),
            each["transform"],
        )
        for place, each in enumerate(fields)
    )


def _source_id(partition_field: Mapping[str, Any]) -> int | None:
    if "source-id" in partition_field:
        return int(partition_field["source-id"])
    ids = partition_field["source-ids"]
    return int(ids[0]) if len(ids) == 1 else None


def files_of(metadata: Metadata, snapshot_id: int) -> list[File]:
    """The live data and delete files of a snapshot."""
    snapshot = metadata.snapshots[snapshot_id]
    if "manifest-list" not in snapshot:
        manifests = [{500: path} for path in snapshot["manifests"]]
    else:
        manifests = _records(local(snapshot["manifest-list"]))
    files = [file for manifest in manifests for file in _files_in(manifest)]
    paths = [file.path for file in files if file.content == DATA]
    if len(set(paths)) < len(paths):
        raise NotReadable("a data file is in the snapshot twice: its rows are undefined")
    return files


def _records(path: Path) -> list[dict[int, Any]]:
    """The records of an Avro file by field id; a field without an id is left out."""
    struct, rows = read_avro(path)
    return [dict(project(row, struct, struct, {})) for row in rows]


def _files_in(manifest: Mapping[int, Any]) -> list[File]:
    path = local(manifest[500])
    spec_id = manifest.get(502)
    if spec_id is None:
        spec_id = int(metadata_of(path).get("partition-spec-id", 0))
    next_row_id = manifest.get(520)
    files = []
    for entry in _records(path):
        if entry[0] == _DELETED:
            continue
        data = dict(entry[2])
        first_row_id = data.get(142)
        content = data.get(134) or DATA
        if content == DATA and first_row_id is None and next_row_id is not None:
            first_row_id = next_row_id
            next_row_id += data[103]
        files.append(
            File(
                path=data[100],
                format=data[101].lower(),
                content=content,
                spec_id=spec_id,
                partition=data[102],
                sequence_number=_sequence_number(entry, manifest),
                record_count=data[103],
                equality_ids=tuple(data.get(135) or ()),
                first_row_id=first_row_id if content == DATA else None,
                referenced_data_file=data.get(143),
                content_offset=data.get(144),
                content_size=data.get(145),
            )
        )
    return files


def _sequence_number(entry: Mapping[int, Any], manifest: Mapping[int, Any]) -> int:
    """An entry's own data sequence number, or its manifest's; version 1 has none, which is 0."""
    number = entry.get(3)
    if number is None and entry[0] == 1:
        number = manifest.get(515)
    return number or 0
