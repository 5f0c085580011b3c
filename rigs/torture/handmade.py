"""Small tables written by hand: metadata, manifests and files of exactly the rows and numbers that
a test names.
"""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from rigs.torture.reader.schema import FILE_PATH, POS

_EXISTING = 0
_ADDED = 1
_AVRO = {"int": "int", "long": "long", "string": "string", "boolean": "boolean"}


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    """A column of a Parquet file with its id."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


def column(field_id: int, name: str, kind: Any, **more: Any) -> dict[str, Any]:
    """A field of a schema in JSON; ``initial_default`` is its default."""
    defaults = {key.replace("_", "-"): value for key, value in more.items()}
    return {"id": field_id, "name": name, "required": False, "type": kind, **defaults}


def struct_of(*columns: dict[str, Any]) -> dict[str, Any]:
    """A struct type of a schema in JSON."""
    return {"type": "struct", "fields": list(columns)}


@dataclass(frozen=True)
class Entry:
    """A file as a manifest names it."""

    path: str
    records: int
    content: int = 0
    format: str = "parquet"
    partition: Mapping[str, Any] = field(default_factory=dict)
    equality_ids: tuple[int, ...] | None = None
    status: int = _ADDED
    sequence_number: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None


@dataclass
class Table:
    """A table in a folder, to which commits are added; ``write`` gives its metadata file."""

    folder: Path
    schemas: list[dict[str, Any]]
    version: int = 2
    #: Specs by their ids: lists of (source id, field id, name, transform, Avro type).
    specs: Mapping[int, Sequence[tuple[int, int, str, str, str]]] = field(
        default_factory=lambda: {0: ()}
    )
    properties: dict[str, str] = field(default_factory=dict)
    manifests: list[dict[str, Any]] = field(default_factory=list)
    sequence_number: int = 0
    _numbers: Any = field(default_factory=itertools.count)

    def parquet(self, columns: Mapping[Any, Any], **options: Any) -> Entry:
        """Write a Parquet file of these columns; options are those of :class:`Entry`."""
        arrays = [pa.array(values, kind.type) for kind, values in columns.items()]
        table = pa.Table.from_arrays(arrays, schema=pa.schema(list(columns)))
        path = self._path("parquet")
        pq.write_table(table, path)
        return Entry(str(path), table.num_rows, **options)

    def orc(self, table: pa.Table) -> Entry:
        """Write an ORC file, without ids."""
        path = self._path("orc")
        orc.write_table(table, str(path))
        return Entry(str(path), table.num_rows, format="orc")

    def avro(
        self, schema: dict[str, Any], rows: Sequence[Mapping[str, Any]], **options: Any
    ) -> Entry:
        """Write an Avro file of a schema with ids."""
        path = self._path("avro")
        with path.open("wb") as out:
            fastavro.writer(out, schema, rows)
        return Entry(str(path), len(rows), format="avro", **options)

    def positions(self, rows: Sequence[tuple[str, int]], **options: Any) -> Entry:
        """Write a position delete file."""
        columns = {
            with_id("file_path", pa.string(), FILE_PATH): [path for path, _ in rows],
            with_id("pos", pa.int64(), POS): [position for _, position in rows],
        }
        return self.parquet(columns, content=1, **options)

    def vector(self, path: str, positions: Sequence[int], **options: Any) -> Entry:
        """Write a deletion vector of a data file, not at the beginning of its Puffin file."""
        puffin = self._path("puffin")
        blob = vector_blob(positions)
        puffin.write_bytes(b"PFA1" + blob)
        return Entry(
            str(puffin),
            len(positions),
            content=1,
            format="puffin",
            referenced_data_file=path,
            content_offset=4,
            content_size=len(blob),
            **options,
        )

    def commit(self, *entries: Entry, spec: int = 0, first_row_id: int | None = None) -> Table:
        """Add files as one commit, of which data and deletes each have a manifest."""
        self.sequence_number += 1
        for is_delete in (False, True):
            files = [entry for entry in entries if (entry.content > 0) == is_delete]
            if files:
                self._add_manifest(files, spec, is_delete, first_row_id)
        return self

    def _add_manifest(
        self, files: Sequence[Entry], spec: int, is_delete: bool, first_row_id: int | None
    ) -> None:
        path = self._path("avro")
        records = [self._record(entry) for entry in files]
        with path.open("wb") as out:
            metadata = {"partition-spec-id": str(spec)}
            fastavro.writer(out, _entry_schema(self.specs[spec]), records, metadata=metadata)
        self.manifests.append(
            {
                "manifest_path": str(path),
                "partition_spec_id": spec,
                "content": int(is_delete),
                "sequence_number": self.sequence_number if self.version > 1 else None,
                "first_row_id": None if is_delete else first_row_id,
            }
        )

    @staticmethod
    def _record(entry: Entry) -> dict[str, Any]:
        return {
            "status": entry.status,
            "sequence_number": entry.sequence_number,
            "data_file": {
                "content": entry.content,
                "file_path": entry.path,
                "file_format": entry.format.upper(),
                "partition": entry.partition,
                "record_count": entry.records,
                "equality_ids": None if entry.equality_ids is None else [*entry.equality_ids],
                "first_row_id": entry.first_row_id,
                "referenced_data_file": entry.referenced_data_file,
                "content_offset": entry.content_offset,
                "content_size_in_bytes": entry.content_size,
            },
        }

    def write(self) -> str:
        """Write the manifest list and the metadata file; returns the location of the latter."""
        manifest_list = self._path("avro")
        with manifest_list.open("wb") as out:
            fastavro.writer(out, _MANIFEST, self.manifests)
        snapshot = {"snapshot-id": 7, "manifest-list": f"file:{manifest_list}"}
        metadata = {
            "format-version": self.version,
            "current-snapshot-id": 7,
            "snapshots": [snapshot],
            "schemas": [
                {"schema-id": number, **schema} for number, schema in enumerate(self.schemas)
            ],
            "current-schema-id": len(self.schemas) - 1,
            "partition-specs": [
                {
                    "spec-id": number,
                    "fields": [
                        {"source-id": source, "field-id": each, "name": name, "transform": kind}
                        for source, each, name, kind, _ in fields
                    ],
                }
                for number, fields in self.specs.items()
            ],
            "properties": self.properties,
        }
        path = self._path("metadata.json")
        path.write_text(json.dumps(metadata))
        return f"file:{path}"

    def _path(self, suffix: str) -> Path:
        return self.folder / f"{next(self._numbers):03}.{suffix}"


def vector_blob(positions: Sequence[int]) -> bytes:
    """Positions as a ``deletion-vector-v1`` blob."""
    content = bytes.fromhex("D1D33964") + BitMap64(positions).serialize()
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def _field(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    return {**_field(name, ["null", kind], field_id), "default": None}


_MANIFEST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", "string", 500),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _optional("sequence_number", "long", 515),
        _optional("first_row_id", "long", 520),
    ],
}


def _entry_schema(spec: Sequence[tuple[int, int, str, str, str]]) -> dict[str, Any]:
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [_optional(name, _AVRO[kind], each) for _, each, name, _, kind in spec],
    }
    ids = {"type": "array", "items": "int", "element-id": 136}
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", "int", 134),
            _field("file_path", "string", 100),
            _field("file_format", "string", 101),
            _field("partition", partition, 102),
            _field("record_count", "long", 103),
            _optional("equality_ids", ids, 135),
            _optional("first_row_id", "long", 142),
            _optional("referenced_data_file", "string", 143),
            _optional("content_offset", "long", 144),
            _optional("content_size_in_bytes", "long", 145),
        ],
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _optional("sequence_number", "long", 3),
            _field("data_file", data_file, 2),
        ],
    }
