"""Read the positions that a delete file deletes in one data file, without a JVM."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from icekit.iceberg.manifests import Record

if TYPE_CHECKING:
    from pyroaring import BitMap64

# Before the bitmap of a deletion vector are its length and a magic number, behind it a checksum
# (Puffin spec, "deletion-vector-v1").
_BEFORE = 8
_MAGIC = 0x64_39_D3_D1
_BEHIND = 4


def vector_positions(read: Callable[[str], bytes], vector: Record) -> BitMap64:
    """The positions in a deletion vector, by its entry in a manifest; raises ValueError if there is
    none at its place.
    """
    from pyroaring import BitMap64

    blob_offset = vector["content_offset"]
    blob = read(vector["file_path"])[blob_offset : blob_offset + vector["content_size_in_bytes"]]
    if len(blob) < _BEFORE + _BEHIND or struct.unpack("<I", blob[4:_BEFORE])[0] != _MAGIC:
        raise ValueError(f"{vector['file_path']} has no deletion vector at byte {blob_offset}")
    return BitMap64.deserialize(blob[_BEFORE:-_BEHIND])


def file_positions(read: Callable[[str], bytes], delete_path: str, data_path: str) -> BitMap64:
    """The positions of one data file in a position delete file, which is Parquet."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    delete_rows = pq.read_table(io.BytesIO(read(delete_path)), columns=["file_path", "pos"])
    data_file_rows = delete_rows.filter(pc.equal(delete_rows.column("file_path"), data_path))
    return BitMap64(data_file_rows.column("pos").to_pylist())
