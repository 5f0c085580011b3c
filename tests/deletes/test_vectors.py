"""Positions of deleted rows: out of Spark's words, into the bytes of Iceberg's files."""

import io
import struct
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.deletion_vector import DeletionVector
from pyroaring import BitMap64

from icekit.rows.deletes.delete_files import (
    position_file_bytes,
    positions_of_words,
    sorted_array,
    vector_blob,
)


def decoded(blob: bytes) -> list[int]:
    """The positions in a blob, read as Iceberg's Puffin specification words it."""
    (length,) = struct.unpack(">I", blob[:4])
    body, (checksum,) = blob[4:-4], struct.unpack(">I", blob[-4:])
    assert length == len(body)
    assert checksum == zlib.crc32(body)
    assert body[:4] == bytes.fromhex("d1d33964")
    bitmaps = DeletionVector._deserialize_bitmap(body[4:])
    return [(high << 32) + low for high, bitmap in enumerate(bitmaps) for low in bitmap]


@pytest.mark.parametrize(
    "given",
    [
        [0],
        [63, 64, 65],
        [65_535, 65_536, 131_072],
        list(range(0, 8192, 2)),  # as many as an array holds
        list(range(0, 8194, 2)),  # one more
        list(range(100_000)),  # one run
        [1, 2**32 + 5, 3 * 2**32 + 70_000],  # beyond one bitmap of 32 bits
    ],
)
def test_a_vector_holds_the_positions_it_was_given(given: list[int]) -> None:
    assert decoded(vector_blob(BitMap64(given))) == given


def test_words_of_bits_in_any_order_become_positions() -> None:
    """The highest bit makes a word negative, as Java's numbers are."""
    words, bits = np.array([1025, 0, 1]), np.array([1, 5, -(2**63)])

    assert sorted_array(positions_of_words(words, bits)).tolist() == [0, 2, 127, 65_600]
    assert sorted_array(positions_of_words(words[:0], bits[:0])).tolist() == []


def test_a_position_delete_file_has_the_reserved_fields_and_sorted_positions() -> None:
    file = pq.ParquetFile(
        io.BytesIO(position_file_bytes("s3://b/data/ü 1.parquet", BitMap64([9, 3, 70_000])))
    )

    ids = [
        file.schema_arrow.field(name).metadata[b"PARQUET:field_id"] for name in ("file_path", "pos")
    ]
    assert ids == [b"2147483546", b"2147483545"]
    assert [f.nullable for f in file.schema_arrow] == [False, False]
    rows = file.read().to_pydict()
    assert rows == {"file_path": ["s3://b/data/ü 1.parquet"] * 3, "pos": [3, 9, 70_000]}
