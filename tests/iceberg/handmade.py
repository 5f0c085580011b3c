"""A small table with every kind of file, written by hand as engines write it."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from icekit.iceberg import puffin
from tests.avro import array_type, optional, record_type

NEWEST_MS = 1_700_000_000_000
PATH_ID, POS_ID, ROW_ID = 2147483546, 2147483545, 2147483544
_BYTES_BY_ID = array_type(record_type("k1_v2", key="int", value="bytes"))
_FILE = record_type(
    "r2",
    content="int",
    file_path="string",
    file_format="string",
    partition=record_type(
        "r102", day=optional({"type": "int", "logicalType": "date"}), odd_x20name=optional("string")
    ),
    record_count="long",
    file_size_in_bytes="long",
    lower_bounds=optional({**_BYTES_BY_ID, "logicalType": "map"}),
    upper_bounds=optional({**array_type("k1_v2"), "logicalType": "map"}),
    key_metadata=optional("bytes"),
    split_offsets=optional(array_type("long")),
    equality_ids=optional(array_type("int")),
    referenced_data_file=optional("string"),
    content_offset=optional("long"),
    content_size_in_bytes=optional("long"),
)
_ENTRY = record_type(
    "manifest_entry",
    status="int",
    snapshot_id=optional("long"),
    sequence_number=optional("long"),
    data_file=_FILE,
)
_MANIFEST = record_type(
    "manifest_file",
    manifest_path="string",
    manifest_length="long",
    partition_spec_id="int",
    content="int",
    sequence_number="long",
    added_snapshot_id="long",
    key_metadata=optional("bytes"),
)
COLUMNS = [
    {"id": 1, "name": "id", "required": False, "type": "long", "doc": "a key"},
    {"id": 2, "name": "odd name", "required": False, "type": "string"},
]


class Handmade:
    """Writes files into a folder; ``location`` is how the table spells its folder."""

    def __init__(self, folder: Path, location: str = "", version: int = 3) -> None:
        self.folder = folder
        self.location = location or str(folder)
        self.version = version
        self.data_path = self.path("data/day=0001-01-01/a b.parquet")
        self.entries: list[dict[str, Any]] = []
        self.delete_entries: list[dict[str, Any]] = []
        self.write("data/day=0001-01-01/a b.parquet", b"rows of data")
        self.add(self.data_path)

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def write(self, name: str, content: bytes) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def add(self, path: str, content: int = 0, file_format: str = "PARQUET", **fields: Any) -> None:
        file = {
            "content": content,
            "file_path": path,
            "file_format": file_format,
            "partition": {"day": -719_162, "odd_x20name": "a/b"},
            "record_count": 1,
            "file_size_in_bytes": 10,
            **fields,
        }
        entries = self.delete_entries if content else self.entries
        entries.append({"status": 1, "snapshot_id": 7, "sequence_number": None, "data_file": file})

    def add_positions(
        self, name: str, paths: Sequence[str], bounds: tuple[str, str] | None = None
    ) -> None:
        """A position delete file in Parquet, with the deleted rows, which old writers store."""
        fields = [
            pa.field("file_path", pa.string(), nullable=False, metadata=_id(PATH_ID)),
            pa.field("pos", pa.int64(), nullable=False, metadata=_id(POS_ID)),
            pa.field(
                "row",
                pa.struct([pa.field("id", pa.int64(), metadata=_id(1))]),
                metadata=_id(ROW_ID),
            ),
        ]
        columns = {
            "file_path": list(paths),
            "pos": list(range(len(paths))),
            "row": [{"id": number} for number in range(len(paths))],
        }
        schema = pa.schema(fields, metadata={"delete-type": "position"})
        out = io.BytesIO()
        pq.write_table(pa.table(columns, schema=schema), out, compression="gzip")
        self.write(name, out.getvalue())
        low, high = bounds or (min(paths), max(paths))
        self.add(
            self.path(name),
            1,
            file_size_in_bytes=len(out.getvalue()),
            lower_bounds=_bounds(low),
            upper_bounds=_bounds(high),
            split_offsets=[4],
        )

    def add_avro_positions(self, name: str, paths: Sequence[str]) -> None:
        out = io.BytesIO()
        schema = record_type("delete", file_path="string", pos="long")
        fastavro.writer(out, schema, [{"file_path": path, "pos": 0} for path in paths])
        self.write(name, out.getvalue())
        self.add(self.path(name), 1, "AVRO", file_size_in_bytes=len(out.getvalue()))

    def add_vector(self, name: str, path: str) -> None:
        footer = {"blobs": [{"offset": 4, "properties": {"referenced-data-file": path}}]}
        payload = json.dumps(footer).encode()
        ends = len(payload).to_bytes(4, "little") + bytes(4) + puffin.MAGIC
        raw = puffin.MAGIC + b"a vector" + puffin.MAGIC + payload + ends
        self.write(name, raw)
        self.add(
            self.path(name),
            1,
            "PUFFIN",
            file_size_in_bytes=len(raw),
            referenced_data_file=path,
            content_offset=4,
            content_size_in_bytes=8,
        )

    def commit(self, **changes: Any) -> str:
        """Write manifests, their list and two metadata files; returns the path of the newer one.

        ``changes`` are of its JSON, with ``_`` for ``-``.
        """
        manifests = []
        for name, entries in (("m0", self.entries), ("m1", self.delete_entries)):
            raw = _avro(_ENTRY, entries, schema=json.dumps(COLUMNS), content="data")
            self.write(f"metadata/{name}.avro", raw)
            manifests.append(
                {
                    "manifest_path": self.path(f"metadata/{name}.avro"),
                    "manifest_length": len(raw),
                    "partition_spec_id": 0,
                    "content": int(name == "m1"),
                    "sequence_number": 1,
                    "added_snapshot_id": 7,
                }
            )
        self.write("metadata/snap-7.avro", _avro(_MANIFEST, manifests))
        self.write("metadata/stats.puffin", b"PFA1 of no interest PFA1")
        snapshot: dict[str, Any] = {
            "snapshot-id": 7,
            "sequence-number": 1,
            "timestamp-ms": NEWEST_MS - 1000,
            "manifest-list": self.path("metadata/snap-7.avro"),
            "summary": {"operation": "append", "job": f"wrote to {self.location}/data twice"},
            "schema-id": 0,
        }
        if self.version == 1:
            del snapshot["manifest-list"]
            snapshot["manifests"] = [each["manifest_path"] for each in manifests]
        metadata = {
            "format-version": self.version,
            "table-uuid": "00000000-0000-0000-0000-000000000000",
            "location": self.location,
            "last-updated-ms": NEWEST_MS,
            "last-column-id": 2,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": COLUMNS}],
            "properties": {
                "write.data.path": f"{self.location}/data",
                "write.metadata.path": "s3://other-bucket/metadata/",
                "comment": f"lies in {self.location}, or did",
            },
            "current-snapshot-id": 7,
            "snapshots": [snapshot],
            "snapshot-log": [{"timestamp-ms": NEWEST_MS - 1000, "snapshot-id": 7}],
            "metadata-log": [
                {"timestamp-ms": NEWEST_MS - 1000, "metadata-file": self.path("metadata/v1.json")}
            ],
            "statistics": [
                {"snapshot-id": 7, "statistics-path": self.path("metadata/stats.puffin")}
            ],
            "partition-statistics": [
                {"snapshot-id": 7, "statistics-path": self.path("metadata/gone.parquet")}
            ],
        }
        self.write("metadata/v1.json", json.dumps({**metadata, "metadata-log": []}).encode())
        metadata |= {key.replace("_", "-"): value for key, value in changes.items()}
        self.write("metadata/v2.gz.metadata.json", gzip.compress(json.dumps(metadata).encode()))
        return str(self.folder / "metadata/v2.gz.metadata.json")

    def read(self, path: str) -> bytes:
        """Read a file by how the table spells it."""
        from tests.iceberg.moving import read_local

        return read_local(path.replace(self.location, str(self.folder)))


def _id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def _bounds(path: str) -> list[dict[str, Any]]:
    return [
        {"key": PATH_ID, "value": path.encode()},
        {"key": POS_ID, "value": (0).to_bytes(8, "little")},
    ]


def _avro(kind: Any, records: Sequence[dict[str, Any]], **header: str) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, kind, records, codec="deflate", metadata=header)
    return out.getvalue()
