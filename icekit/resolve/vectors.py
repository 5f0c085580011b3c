"""Write deleted positions as Iceberg's files hold them: position delete files, and deletion vectors.

Spark hands positions over as words of 64 bits, so the driver can hold those of many files.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# Positions in one word of Spark's, and in one container of a roaring bitmap.
_WORD, CONTAINER = 64, 65_536
# A container with more values than this is a bitmap, by the roaring format.
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
        """The positions of a data file out of words of 64 bits, each given once: ``words`` says which, ``bits`` are in them."""
        order = np.argsort(words)
        words, bits = words[order], bits[order]
        flags = np.unpackbits(bits.astype("<i8").view(np.uint8).reshape(len(bits), 8), axis=1, bitorder="little")
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
        """These positions and some more."""
        return Positions.at(np.union1d(self.all(), other.all()))

    @property
    def count(self) -> int:
        """How many rows are deleted."""
        return sum(len(values) for values in self.containers.values())

    def all(self) -> npt.NDArray[np.int64]:
        """All positions, sorted."""
        parts = [values.astype(np.int64) + container * CONTAINER for container, values in sorted(self.containers.items())]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def vector_blob(positions: Positions) -> bytes:
    """The positions as a ``deletion-vector-v1`` blob (Iceberg's Puffin specification): length, magic, bitmap, checksum."""
    high: dict[int, dict[int, npt.NDArray[np.uint16]]] = {}
    for container, values in sorted(positions.containers.items()):
        high.setdefault(container >> 16, {})[container & 0xFFFF] = values
    vector = struct.pack("<Q", len(high)) + b"".join(struct.pack("<I", key) + _roaring(low) for key, low in sorted(high.items()))
    body = _MAGIC + vector
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _roaring(containers: Mapping[int, npt.NDArray[np.uint16]]) -> bytes:
    """A 32-bit roaring bitmap in its portable format, without run containers."""
    keys = sorted(containers)
    payloads = [_container(containers[key]) for key in keys]
    header = struct.pack("<II", _NO_RUNS, len(keys))
    header += b"".join(struct.pack("<HH", key, len(containers[key]) - 1) for key in keys)
    place = len(header) + 4 * len(keys)
    offsets = []
    for payload in payloads:
        offsets.append(place)
        place += len(payload)
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

    found = positions.all()
    schema = pa.schema(
        [
            pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
            pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
        ]
    )
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(found), dtype=np.int32), pa.array([path]))
    table = pa.Table.from_arrays([paths, pa.array(found)], schema=schema)
    out = io.BytesIO()
    # Deltas of sorted positions take a bit or so each; a dictionary of them would take more than they do.
    pq.write_table(
        table, out, compression="zstd", use_dictionary=["file_path"], column_encoding={"pos": "DELTA_BINARY_PACKED"}, store_schema=False
    )
    return out.getvalue()
