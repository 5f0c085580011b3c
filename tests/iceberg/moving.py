"""Move tables as a pack does: to a neutral folder, and from there to another one."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from icekit.common.errors import FileGone
from icekit.iceberg import avro, puffin
from icekit.iceberg.moved_paths import MovedPaths
from icekit.iceberg.paths import normal_path_of
from icekit.iceberg.relocation import FileKind, Relocation

NEUTRAL = "/neutral/table"
ELSEWHERE = "/neutral/elsewhere"
Read = Callable[[str], bytes]


def read_local(path: str) -> bytes:
    try:
        return Path(path.removeprefix("file://").removeprefix("file:")).read_bytes()
    except FileNotFoundError:
        raise FileGone(path) from None


class Moved(NamedTuple):
    """The files of a table under their new paths, and the path of its metadata."""

    files: dict[str, bytes]
    kinds: dict[str, FileKind]
    metadata_location: str
    relocation: Relocation

    def read(self, path: str) -> bytes:
        if (plain := normal_path_of(path).path) not in self.files:
            raise FileGone(path)
        return self.files[plain]

    @property
    def metadata(self) -> dict[str, Any]:
        raw = self.read(self.metadata_location)
        return dict(json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw))

    def write(self) -> str:
        """Write all files where their paths lead; returns the path of the metadata."""
        for path, content in self.files.items():
            file = Path(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return self.metadata_location


def move(
    metadata_location: str,
    read: Read,
    folders: Mapping[str, str],
    elsewhere: str | None = None,
    **options: Any,
) -> Moved:
    relocation = Relocation(read, MovedPaths(folders, elsewhere), **options)
    files: dict[str, bytes] = {}
    kinds: dict[str, FileKind] = {}
    for file in relocation.files(metadata_location):
        path = normal_path_of(file.new_path).path
        assert path not in files
        try:
            files[path] = read(file.old_path) if file.new_content is None else file.new_content
        except FileGone:
            continue
        kinds[path] = file.kind
    return Moved(files, kinds, relocation.moved_paths(metadata_location), relocation)


def packed(metadata_location: str, read: Read = read_local, **options: Any) -> Moved:
    """A table under the neutral folder."""
    location = json.loads(_unzipped(read(metadata_location)))["location"]
    return move(metadata_location, read, {location: NEUTRAL}, ELSEWHERE, **options)


def unpacked(pack: Moved, folder: Path, **options: Any) -> Moved:
    """A packed table in a folder."""
    folders = {NEUTRAL: str(folder), ELSEWHERE: f"{folder}-elsewhere"}
    return move(pack.metadata_location, pack.read, folders, **options)


def readable(content: bytes) -> bytes:
    """All that a file says, without its compression."""
    if content.startswith(avro.MAGIC):
        header = b"".join(avro.header_of(content).values())
        return header + repr(list(avro.records_of(content))).encode()
    if content.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        file = pq.ParquetFile(io.BytesIO(content))
        return content + repr(file.schema_arrow).encode() + repr(file.read().to_pydict()).encode()
    return content if content.startswith(puffin.MAGIC) else _unzipped(content)


def _unzipped(raw: bytes) -> bytes:
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
