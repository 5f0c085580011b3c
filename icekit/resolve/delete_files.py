"""Write the position delete files and deletion vectors of a conversion, through the table's own
FileIO.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from icekit.engine.bridge import elements, java_list, write_bytes
from icekit.resolve.listing import File

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
# Iceberg's specification: the blob type of a deletion vector, and the field that it refers to.
_VECTOR, _ROW_POSITION_ID = "deletion-vector-v1", 2_147_483_645
#: Most deletion vectors in one Puffin file.
VECTORS_PER_FILE = 1_000


def position_deletes(
    listing: Any, paths: Iterable[str]
) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """The position delete files and deletion vectors of some data files, by data file; and of those
    that cover several data files how many rows each has, by path. ``listing`` is Java's.
    """
    own, shared = elements(listing.positionDeletes("\0".join(paths)))
    return (
        {path: list(elements(own.get(path))) for path in elements(own.keySet())},
        {path: int(shared.get(path)) for path in elements(shared.keySet())},
    )


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partition for Iceberg's API, and as JSON."""

    value: Any
    json: Mapping[str, Any]


#: None for a file of an unpartitioned spec.
Placed = Partitioned | None


def placed(jvm: Any, table: Any, file: Any) -> Placed:
    """The partition of a data or delete file of Iceberg's API."""
    spec = table.specs()[file.specId()]
    if spec.isUnpartitioned():
        return None
    parsed = json.loads(jvm.org.apache.iceberg.ContentFileParser.toJson(file, spec))
    return Partitioned(file.partition(), parsed["partition"])


class Writer:
    """Writes what a conversion adds to a table, and can remove it as long as no commit names it."""

    def __init__(self, spark: SparkSession, table: Any, format_version: int) -> None:
        jvm: Any = spark._jvm
        self._spark, self._jvm = spark, jvm
        self._version = format_version
        self._io, self._provider, self._specs = table.io(), table.locationProvider(), table.specs()
        self._mapper = jvm.org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        self.written: list[str] = []
        self.bytes_written = 0

    def write(self, found: Sequence[tuple[File, Positions, Placed]]) -> list[Any]:
        """Position delete files, or deletion vectors from format version 3 on, for (data file,
        positions, partition).
        """
        if not found:
            return []
        if self._version >= 3:
            return self._vectors(found)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda one: self._position_file(*one), found))

    def _position_file(self, file: File, positions: Positions, partition: Placed) -> Any:
        content = position_file(file.path, positions)
        location = self._location(file.spec_id, partition, "parquet")
        self._put(location, content)
        every = positions.all()
        bounds = [
            {PATH_ID: file.path.encode(), POSITION_ID: int(p).to_bytes(8, "little")}
            for p in (every[0], every[-1])
        ]
        # The full path: it shows readers that ignore the referenced data file that this covers one
        # file.
        lower, upper = (
            {"keys": list(b), "values": [value.hex().upper() for value in b.values()]}
            for b in bounds
        )
        more = {
            "record-count": len(every),
            "file-format": "PARQUET",
            "lower-bounds": lower,
            "upper-bounds": upper,
        }
        return self._made(file, partition, location, len(content), more)

    def _vectors(self, found: Sequence[tuple[File, Positions, Placed]]) -> list[Any]:
        jvm, files = self._jvm, []
        puffin = jvm.org.apache.iceberg.puffin
        for start in range(0, len(found), VECTORS_PER_FILE):
            chunk = found[start : start + VECTORS_PER_FILE]
            location = self._location(chunk[0][0].spec_id, chunk[0][2], "puffin")
            self.written.append(location)
            writer = (
                puffin.Puffin.write(self._io.newOutputFile(location)).createdBy("icekit").build()
            )
            blobs = []
            try:
                fields = java_list(self._spark, [_ROW_POSITION_ID])
                for file, positions, partition in chunk:
                    content, count = vector_blob(positions), positions.count
                    properties = {"referenced-data-file": file.path, "cardinality": str(count)}
                    wrapped = jvm.java.nio.ByteBuffer.wrap(content)
                    blob = puffin.Blob(
                        _VECTOR,
                        fields,
                        -1,
                        -1,
                        wrapped,
                        puffin.PuffinCompressionCodec.NONE,
                        properties,
                    )
                    blobs.append((file, count, partition, writer.write(blob)))
            finally:
                writer.close()
            size = writer.fileSize()
            self.bytes_written += size
            for file, count, partition, blob in blobs:
                more = {
                    "file-format": "PUFFIN",
                    "content-offset": blob.offset(),
                    "content-size-in-bytes": blob.length(),
                }
                files.append(
                    self._made(file, partition, location, size, {"record-count": count, **more})
                )
        return files

    def _made(
        self, file: File, partition: Placed, location: str, size: int, more: Mapping[str, Any]
    ) -> Any:
        """A delete file for Iceberg's API; from JSON, which takes a few calls where a builder takes
        dozens.
        """
        content = {
            "spec-id": file.spec_id,
            "content": "POSITION_DELETES",
            "file-path": location,
            **({"partition": partition.json} if partition else {}),
            "file-size-in-bytes": size,
            "referenced-data-file": file.path,
            **more,
        }
        iceberg = self._jvm.org.apache.iceberg
        return iceberg.ContentFileParser.fromJson(
            self._mapper.readTree(json.dumps(content)), self._specs[file.spec_id]
        )

    def _location(self, spec_id: int, partition: Placed, suffix: str) -> str:
        name = f"icekit-{uuid.uuid4()}-deletes.{suffix}"
        if partition is None:
            return str(self._provider.newDataLocation(name))
        return str(self._provider.newDataLocation(self._specs[spec_id], partition.value, name))

    def _put(self, location: str, content: bytes) -> None:
        self.written.append(location)
        write_bytes(self._io, location, content)
        self.bytes_written += len(content)

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
