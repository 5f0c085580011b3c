"""Positions of deleted rows: out of Spark's words, into the bytes of Iceberg's files."""

import io
import struct
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest

from icekit.resolve.delete_files import Positions, position_file, vector_blob


def positions(*given: int) -> Positions:
    return Positions.at(np.array(sorted(given), dtype=np.int64))


def decoded(blob: bytes) -> list[int]:
    """The positions in a blob, read as Iceberg's Puffin specification words it."""
    (length,) = struct.unpack(">I", blob[:4])
    body, (checksum,) = blob[4:-4], struct.unpack(">I", blob[-4:])
    assert length == len(body)
    assert checksum == zlib.crc32(body)
    assert body[:4] == bytes.fromhex("d1d33964")
    (bitmaps,) = struct.unpack("<Q", body[4:12])
    found, at = [], 12
    for _ in range(bitmaps):
        (high,) = struct.unpack("<I", body[at : at + 4])
        start = at + 4
        cookie, count = struct.unpack("<II", body[start : start + 8])
        assert cookie == 12_346
        at = start + 8
        heads = [struct.unpack("<HH", body[at + 4 * i : at + 4 * i + 4]) for i in range(count)]
        offsets = struct.unpack(f"<{count}I", body[at + 4 * count : at + 8 * count])
        for (key, less_one), offset in zip(heads, offsets, strict=True):
            size = less_one + 1
            place = start + offset
            if size <= 4096:
                values = np.frombuffer(body[place : place + 2 * size], "<u2")
                at = place + 2 * size
            else:
                values = np.flatnonzero(
                    np.unpackbits(
                        np.frombuffer(body[place : place + 8192], np.uint8), bitorder="little"
                    )
                )
                at = place + 8192
            assert len(values) == size
            found += [(high << 32) + (key << 16) + int(v) for v in values]
    assert at == len(body)
    return found


@pytest.mark.parametrize(
    "given",
    [
        [0],
        [63, 64, 65],
        [65_535, 65_536, 131_072],
        list(range(0, 8192, 2)),  # as many as an array holds
        list(range(0, 8194, 2)),  # one more
        [1, 2**32 + 5, 3 * 2**32 + 70_000],  # beyond one bitmap of 32 bits
    ],
)
def test_a_vector_holds_the_positions_it_was_given(given: list[int]) -> None:
    assert decoded(vector_blob(positions(*given))) == sorted(given)
    assert positions(*given).count == len(given)


def test_words_of_bits_in_any_order_become_positions() -> None:
    """The highest bit makes a word negative, as Java's numbers are."""
    words, bits = np.array([1025, 0, 1]), np.array([1, 5, -(2**63)])

    assert Positions.of(words, bits).all().tolist() == [0, 2, 127, 65_600]


def test_positions_of_two_deletes_are_united() -> None:
    assert positions(1, 5, 70_000).with_more(positions(5, 9)).all().tolist() == [1, 5, 9, 70_000]


def test_no_words_are_no_positions() -> None:
    none = Positions.of(np.array([], dtype=np.int64), np.array([], dtype=np.int64))

    assert none.count == 0
    assert none.all().tolist() == []


def test_a_position_delete_file_has_the_reserved_fields_and_sorted_positions() -> None:
    file = pq.ParquetFile(
        io.BytesIO(position_file("s3://b/data/ü 1.parquet", positions(9, 3, 70_000)))
    )

    ids = [
        file.schema_arrow.field(name).metadata[b"PARQUET:field_id"] for name in ("file_path", "pos")
    ]
    assert ids == [b"2147483546", b"2147483545"]
    assert [f.nullable for f in file.schema_arrow] == [False, False]
    rows = file.read().to_pydict()
    assert rows == {"file_path": ["s3://b/data/ü 1.parquet"] * 3, "pos": [3, 9, 70_000]}
