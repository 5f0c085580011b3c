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
from icekit.rows.deletes.conversion_inputs import SnapshotDeletes
from icekit.rows.deletes.listing import File, zero_joined

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


def positions_of_words(
    word_numbers: npt.NDArray[np.int64], word_bits: npt.NDArray[np.int64]
) -> BitMap64:
    """The deleted positions of a data file from words of 64 bits, each given once: ``word_numbers``
    are the word numbers, ``word_bits`` their bits.
    """
    import numpy as np

    bit_flags = np.unpackbits(
        word_bits.astype("<i8").view(np.uint8).reshape(len(word_bits), 8), axis=1, bitorder="little"
    )
    word_indexes, bit_indexes = np.nonzero(bit_flags)
    positions = word_numbers[word_indexes] * _WORD + bit_indexes
    return BitMap64(array("Q", positions.tobytes()))


def sorted_array(positions: BitMap64) -> npt.NDArray[np.int64]:
    """All positions, sorted."""
    import numpy as np

    return np.array(positions.to_array()).astype(np.int64)


def vector_blob(positions: BitMap64) -> bytes:
    """The positions as a ``deletion-vector-v1`` blob (Iceberg's Puffin specification): length,
    magic, bitmap (the portable roaring format), checksum.
    """
    blob_body = _MAGIC + positions.serialize()
    return struct.pack(">I", len(blob_body)) + blob_body + struct.pack(">I", zlib.crc32(blob_body))


def vector_positions(blob: bytes) -> BitMap64:
    """The positions in a blob as :func:`vector_blob` makes it."""
    return BitMap64.deserialize(blob[8:-4])


def position_file_bytes(data_path: str, positions: BitMap64) -> bytes:
    """The positions in one data file as a Parquet position delete file of format version 2."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    sorted_positions = sorted_array(positions)
    file_schema = pa.schema(
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
    path_column = pa.DictionaryArray.from_arrays(
        np.zeros(len(sorted_positions), dtype=np.int32), pa.array([data_path])
    )
    file_table = pa.Table.from_arrays([path_column, pa.array(sorted_positions)], schema=file_schema)
    out = io.BytesIO()
    # Deltas of sorted positions take about one bit each; a dictionary would take more.
    pq.write_table(
        file_table,
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
    listing: Any, data_paths: Iterable[str]
) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """The position delete files and deletion vectors of some data files, by data file; and of those
    that cover several data files how many rows each has, by path. ``listing`` is Java's.
    """
    deletes_by_path, rows_by_shared_path = elements(
        listing.positionDeletes(zero_joined(data_paths))
    )
    return (
        {
            file_path: list(elements(deletes_by_path.get(file_path)))
            for file_path in elements(deletes_by_path.keySet())
        },
        {
            file_path: int(rows_by_shared_path.get(file_path))
            for file_path in elements(rows_by_shared_path.keySet())
        },
    )


class DeleteFileWriter:
    """Writes what a conversion adds to a table, and can remove it as long as no commit names it."""

    def __init__(self, spark: SparkSession, snapshot_deletes: SnapshotDeletes) -> None:
        table = snapshot_deletes.table
        self._io = table.io()
        self._version = snapshot_deletes.format_version
        self._java = java_object(
            spark, table, "PositionWriter", table, snapshot_deletes.listing.java
        )
        self.written: list[str] = []

    def write(self, new_positions: Sequence[tuple[int, File, BitMap64]]) -> list[Any]:
        """Position delete files, or deletion vectors from format version 3 on, for the positions in
        data files, which have their places in the listing.
        """
        if self._version < 3:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return list(pool.map(lambda one: self._write_position_file(*one), new_positions))
        chunk_starts = range(0, len(new_positions), VECTORS_PER_FILE)
        return [
            vector
            for chunk_start in chunk_starts
            for vector in self._write_vectors(
                new_positions[chunk_start : chunk_start + VECTORS_PER_FILE]
            )
        ]

    def _write_position_file(self, file_number: int, data_file: File, positions: BitMap64) -> Any:
        content_bytes = position_file_bytes(data_file.path, positions)
        location = self._new_location(file_number, "parquet")
        position_range = positions.min(), positions.max()
        return self._java.write(
            file_number, location, content_bytes, len(positions), *position_range
        )

    def _write_vectors(self, new_positions: Sequence[tuple[int, File, BitMap64]]) -> list[Any]:
        location = self._new_location(new_positions[0][0], "puffin")
        blobs = [vector_blob(positions) for _, _, positions in new_positions]
        figures = (
            figure
            for (file_number, _, positions), blob in zip(new_positions, blobs, strict=True)
            for figure in (file_number, len(blob), len(positions))
        )
        return list(elements(self._java.vectors(location, b"".join(blobs), zero_joined(figures))))

    def _new_location(self, file_number: int, suffix: str) -> str:
        """Where a new file for a data file belongs; noted before it is written."""
        location = str(self._java.location(file_number, f"icekit-{uuid.uuid4()}-deletes.{suffix}"))
        self.written.append(location)
        return location

    def take_back(self) -> None:
        """Remove what was written; only if it is certain that no commit names it."""
        for location in self.written:
            with contextlib.suppress(Exception):
                self._io.deleteFile(location)
        self.written = []
