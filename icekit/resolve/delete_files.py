"""Write the position delete files and deletion vectors of a conversion, through the table's own
FileIO.
"""

from __future__ import annotations

import contextlib
import io
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from icekit.engine.bridge import compiled, elements, java_list
from icekit.resolve.listing import File, joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Positions in one word from Spark, and in one container of a roaring bitmap.
_WORD, CONTAINER = 64, 65_536
# A container with more values than this is a bitmap, according to the roaring format.
_ARRAY_MAX = 4_096
_NO_RUNS = 12_346
_MAGIC = bytes.fromhex("d1d33964")
#: The field ids of position delete files (Iceberg's specification, reserved field ids).
PATH_ID, POSITION_ID = 2_147_483_546, 2_147_483_545


@dataclass
class Positions:
    """The deleted positions of one data file: per container of 65,536 the values in it, sorted."""

    containers: dict[int, npt.NDArray[np.uint16]] = field(default_factory=dict)

    @classmethod
    def of(cls, words: npt.NDArray[np.int64], bits: npt.NDArray[np.int64]) -> Positions:
        """The positions of a data file from words of 64 bits, each given once: ``words`` are the
        word numbers, ``bits`` their bits.
        """
        order = np.argsort(words)
        words, bits = words[order], bits[order]
        flags = np.unpackbits(
            bits.astype("<i8").view(np.uint8).reshape(len(bits), 8), axis=1, bitorder="little"
        )
        rows, places = np.nonzero(flags)
        return cls.at(words[rows] * _WORD + places)

    @classmethod
    def at(cls, positions: npt.NDArray[np.int64]) -> Positions:
        """Positions that are given one by one, sorted."""
        if not len(positions):
            return cls()
        containers, starts = np.unique(positions // CONTAINER, return_index=True)
        values = (positions % CONTAINER).astype(np.uint16)
        return cls(dict(zip(containers.tolist(), np.split(values, starts[1:]), strict=True)))

    def with_more(self, other: Positions) -> Positions:
        """These positions and the given ones."""
        if not other.containers:
            return self
        return Positions.at(np.union1d(self.all(), other.all()))

    @property
    def count(self) -> int:
        """How many rows are deleted."""
        return sum(len(values) for values in self.containers.values())

    def all(self) -> npt.NDArray[np.int64]:
        """All positions, sorted."""
        parts = [
            values.astype(np.int64) + container * CONTAINER
            for container, values in sorted(self.containers.items())
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def vector_blob(positions: Positions) -> bytes:
    """The positions as a ``deletion-vector-v1`` blob (Iceberg's Puffin specification): length,
    magic, bitmap, checksum.
    """
    high: dict[int, dict[int, npt.NDArray[np.uint16]]] = {}
    for container, values in sorted(positions.containers.items()):
        high.setdefault(container >> 16, {})[container & 0xFFFF] = values
    vector = struct.pack("<Q", len(high)) + b"".join(
        struct.pack("<I", key) + _roaring(low) for key, low in sorted(high.items())
    )
    body = _MAGIC + vector
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _roaring(containers: Mapping[int, npt.NDArray[np.uint16]]) -> bytes:
    """A 32-bit roaring bitmap in its portable format, without run containers."""
    keys = sorted(containers)
    payloads = [_container(containers[key]) for key in keys]
    header = struct.pack("<II", _NO_RUNS, len(keys))
    header += b"".join(struct.pack("<HH", key, len(containers[key]) - 1) for key in keys)
    offset = len(header) + 4 * len(keys)
    offsets = []
    for payload in payloads:
        offsets.append(offset)
        offset += len(payload)
    return header + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(payloads)


def _container(values: npt.NDArray[np.uint16]) -> bytes:
    if len(values) <= _ARRAY_MAX:
        return values.astype("<u2").tobytes()
    bits = np.zeros(CONTAINER, dtype=np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def position_file(path: str, positions: Positions) -> bytes:
    """The positions in one data file as a Parquet position delete file of format version 2."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    every = positions.all()
    schema = pa.schema(
        [
            pa.field(
                "file_path",
                pa.dictionary(pa.int32(), pa.string()),
                nullable=False,
                metadata={"PARQUET:field_id": str(PATH_ID)},
            ),
            pa.field(
                "pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}
            ),
        ]
    )
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(every), dtype=np.int32), pa.array([path]))
    table = pa.Table.from_arrays([paths, pa.array(every)], schema=schema)
    out = io.BytesIO()
    # Deltas of sorted positions take about one bit each; a dictionary would take more.
    pq.write_table(
        table,
        out,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        store_schema=False,
    )
    return out.getvalue()


_AT_ONCE = 4
#: Most deletion vectors in one Puffin file.
VECTORS_PER_FILE = 1_000


def position_deletes(
    listing: Any, paths: Iterable[str]
) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """The position delete files and deletion vectors of some data files, by data file; and of those
    that cover several data files how many rows each has, by path. ``listing`` is Java's.
    """
    own, shared = elements(listing.positionDeletes(joined(paths)))
    return (
        {path: list(elements(own.get(path))) for path in elements(own.keySet())},
        {path: int(shared.get(path)) for path in elements(shared.keySet())},
    )


class Writer:
    """Writes what a conversion adds to a table, and can remove it as long as no commit names it;
    ``listing`` is Java's listing of the data files.
    """

    def __init__(self, spark: SparkSession, table: Any, listing: Any, format_version: int) -> None:
        self._io, self._version = table.io(), format_version
        self._java = compiled(spark._jvm, table, "PositionWriter", table, listing)
        self.written: list[str] = []
        self.bytes_written = 0

    def write(self, found: Sequence[tuple[int, File, Positions]]) -> list[Any]:
        """Position delete files, or deletion vectors from format version 3 on, for the positions in
        data files, which have their places in the listing.
        """
        if self._version < 3:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return list(pool.map(lambda one: self._position_file(*one), found))
        chunks = range(0, len(found), VECTORS_PER_FILE)
        return [
            each
            for start in chunks
            for each in self._vectors(found[start : start + VECTORS_PER_FILE])
        ]

    def _position_file(self, number: int, file: File, positions: Positions) -> Any:
        content, every = position_file(file.path, positions), positions.all()
        location = self._location(number, "parquet")
        self.bytes_written += len(content)
        return self._java.write(
            number, location, content, len(every), int(every[0]), int(every[-1])
        )

    def _vectors(self, found: Sequence[tuple[int, File, Positions]]) -> list[Any]:
        location = self._location(found[0][0], "puffin")
        blobs = [vector_blob(positions) for _, _, positions in found]
        given = (
            value
            for (number, _, positions), blob in zip(found, blobs, strict=True)
            for value in (number, len(blob), positions.count)
        )
        files = list(elements(self._java.vectors(location, b"".join(blobs), joined(given))))
        self.bytes_written += int(files[0].fileSizeInBytes())
        return files

    def _location(self, number: int, suffix: str) -> str:
        """Where a new file for a data file belongs; noted before it is written."""
        location = str(self._java.location(number, f"icekit-{uuid.uuid4()}-deletes.{suffix}"))
        self.written.append(location)
        return location

    def take_back(self) -> None:
        """Remove what was written; only if it is certain that no commit names it."""
        for location in self.written:
            with contextlib.suppress(Exception):
                self._io.deleteFile(location)
        self.written = []


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The delete files that one commit adds and removes; ``touched`` are the data files that
    ``added`` refers to.

    The commit is based on the snapshot ``start``, and its summary has ``tags``.
    """

    start: int
    branch: str | None
    added: Sequence[Any]
    removed: Sequence[Any]
    touched: Sequence[str]
    tags: Mapping[str, str]


def commit(spark: SparkSession, table: Any, delta: Delta) -> None:
    """Replace equality deletes with position deletes in one commit, which fails if another commit
    interferes.

    The touched data files, and the files to be removed, must still exist. Deletes
    committed since the start stay, and apply.
    """
    row_delta = table.newRowDelta().validateFromSnapshot(delta.start).validateDeletedFiles()
    if delta.touched:
        row_delta = row_delta.validateDataFilesExist(java_list(spark, delta.touched))
    for file in delta.added:
        row_delta.addDeletes(file)
    for file in delta.removed:
        row_delta.removeDeletes(file)
    for key, value in delta.tags.items():
        row_delta.set(key, value)
    if delta.branch:
        row_delta = row_delta.toBranch(delta.branch)
    row_delta.commit()
