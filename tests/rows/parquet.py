"""Parquet files as engines leave them, parts of them for the kernel, and what the kernel should
leave, by the specification, row by row in Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icekit.rows.kernel.current_schema import FIELD_ID
from icekit.rows.kernel.kernel import resolve
from icekit.rows.kernel.kernel_settings import KernelSettings

OPTIONS: Mapping[str, Any] = {
    "compression": "zstd",
    "write_page_index": True,
    "store_schema": False,
    "store_decimal_as_integer": True,
}
Row = Mapping[str, Any]


def column(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    """A column with its id."""
    return pa.field(name, kind, metadata={FIELD_ID: str(field_id).encode()})


def writer(
    schema: pa.Schema, keys: Mapping[int, pa.DataType] | None = None, **more: Any
) -> KernelSettings:
    """How new files of a table are written."""
    values: dict[str, Any] = {
        "schema": schema,
        "key_types": keys or {},
        "writer_options": OPTIONS,
        "row_group_bytes": 128 << 20,
        "memory_bytes": 256 << 20,
    }
    return KernelSettings(**{**values, **more})


class Files:
    """Old files of one partition in a folder, and the deletes that apply to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data: list[dict[str, Any]] = []
        self.deletes: dict[tuple[int, ...], list[tuple[str, int]]] = {}
        self.position_deletes: list[tuple[str, list[int]]] = []
        self.vectors: list[tuple[int, str, int, int]] = []

    def path(self, kind: str) -> str:
        """A new path."""
        return str(self.folder / f"{kind} #{len(list(self.folder.iterdir()))} %20.parquet")

    def add(self, table: pa.Table, sequence: int, **more: Any) -> str:
        """Add a data file."""
        path = self.path("data")
        pq.write_table(table, path, row_group_size=3)
        values = {"path": path, "sequence": sequence, "first_row_id": None, "rows": len(table)}
        self.data.append({**values, "constants": {}, **more})
        return path

    def delete(self, keys: pa.Table, sequence: int, field_ids: Sequence[int]) -> None:
        """Add an equality delete file."""
        path = self.path("deletes")
        pq.write_table(keys, path)
        files = self.deletes.setdefault(tuple(field_ids), [])
        files.append((path, sequence << 32 | len(files)))

    def part(self, **more: Any) -> str:
        """All of them for the kernel."""
        values = {
            "data": self.data,
            "deletes": [
                {"field_ids": ids, "files": files, "ruled_out": []}
                for ids, files in self.deletes.items()
            ],
            "position_deletes": self.position_deletes,
            "vectors": self.vectors,
            "chosen": [],
            "outputs": [str(self.folder / "new" / f"{i}.parquet") for i in range(4)],
            "files": 1,
            "max_file_bytes": 1 << 30,
        }
        return json.dumps({**values, **more})

    def resolved(self, table: KernelSettings, **more: Any) -> dict[str, Any]:
        """What the kernel answers."""
        answer: dict[str, Any] = json.loads(
            resolve(self.part(**more), table, str(self.folder / "spill"), "7")
        )
        return answer

    def live(self, table: KernelSettings, **more: Any) -> list[Row]:
        """The rows that the kernel writes, in their order."""
        files = self.resolved(table, **more)["files"]
        return [row for each in files for row in read(each["path"])]

    def new(self) -> list[Path]:
        """The new files that are there."""
        return sorted((self.folder / "new").glob("*"))


def read(path: str) -> list[Row]:
    """The rows of a file."""
    rows: list[Row] = pq.ParquetFile(path).read().to_pylist()
    return rows
