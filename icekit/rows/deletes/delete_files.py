"""Write the position delete files and deletion vectors of a conversion, through the table's own
FileIO.
"""

from __future__ import annotations

import contextlib
import io
import struct
import uuid
import zlib
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from icekit.engine.bridge import elements, java_object
from icekit.rows.deletes.find import SnapshotDeletes
from icekit.rows.deletes.listing import File, joined

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyspark.sql import SparkSession


# Positions in one word from Spark.
_WORD = 64
_MAGIC = bytes.fromhex("d1d33964")
#: The field ids of position delete files (Iceberg's specification, reserved field ids).
PATH_ID = 2_147_483_546
POSITION_ID = 2_147_483_545


def positions_of(words: npt.NDArray[np.int64], bits: npt.NDArray[np.int64]) -> BitMap64:
    """The deleted positions of a data file from words of 64 bits, each given once: ``words`` are
    the word numbers, ``bits`` their bits.
    """
    import numpy as np

    flags = np.unpackbits(
        bits.astype("<i8").view(np.uint8).reshape(len(bits), 8), axis=1, bitorder="little"
    )
    rows, places = np.nonzero(flags)
    positions = words[rows] * _WORD + places
    return BitMap64(array("Q", positions.tobytes()))


def listed(positions: BitMap64) -> npt.NDArray[np.int64]:
    """All positions, sorted."""
    import numpy as np

    return np.array(positions.to_array()).astype(np.int64)


def vector_blob(positions: BitMap64) -> bytes:
    """The positions as a ``deletion-vector-v1`` blob (Iceberg's Puffin specification): length,
    magic, bitmap (the portable roaring format), checksum.
    """
    body = _MAGIC + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def vector_positions(blob: bytes) -> BitMap64:
    """The positions in a blob as :func:`vector_blob` makes it."""
    return BitMap64.deserialize(blob[8:-4])


def position_file(path: str, positions: BitMap64) -> bytes:
    """The positions in one data file as a Parquet position delete file of format version 2."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    sorted_positions = listed(positions)
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
    paths = pa.DictionaryArray.from_arrays(
        np.zeros(len(sorted_positions), dtype=np.int32), pa.array([path])
    )
    table = pa.Table.from_arrays([paths, pa.array(sorted_positions)], schema=schema)
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
    own_deletes, shared_records = elements(listing.positionDeletes(joined(paths)))
    return (
        {path: list(elements(own_deletes.get(path))) for path in elements(own_deletes.keySet())},
        {path: int(shared_records.get(path)) for path in elements(shared_records.keySet())},
    )


class Writer:
    """Writes what a conversion adds to a table, and can remove it as long as no commit names it."""

    def __init__(self, spark: SparkSession, snapshot_deletes: SnapshotDeletes) -> None:
        table = snapshot_deletes.table
        self._io = table.io()
        self._version = snapshot_deletes.format_version
        self._java = java_object(
            spark, table, "PositionWriter", table, snapshot_deletes.listing.java
        )
        self.written: list[str] = []

    def write(self, positions_by_file: Sequence[tuple[int, File, BitMap64]]) -> list[Any]:
        """Position delete files, or deletion vectors from format version 3 on, for the positions in
        data files, which have their places in the listing.
        """
        if self._version < 3:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return list(pool.map(lambda one: self._position_file(*one), positions_by_file))
        chunks = range(0, len(positions_by_file), VECTORS_PER_FILE)
        return [
            each
            for start in chunks
            for each in self._vectors(positions_by_file[start : start + VECTORS_PER_FILE])
        ]

    def _position_file(self, number: int, file: File, positions: BitMap64) -> Any:
        content = position_file(file.path, positions)
        location = self._location(number, "parquet")
        ends = positions.min(), positions.max()
        return self._java.write(number, location, content, len(positions), *ends)

    def _vectors(self, positions_by_file: Sequence[tuple[int, File, BitMap64]]) -> list[Any]:
        location = self._location(positions_by_file[0][0], "puffin")
        blobs = [vector_blob(positions) for _, _, positions in positions_by_file]
        figures = (
            value
            for (number, _, positions), blob in zip(positions_by_file, blobs, strict=True)
            for value in (number, len(blob), len(positions))
        )
        return list(elements(self._java.vectors(location, b"".join(blobs), joined(figures))))

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
