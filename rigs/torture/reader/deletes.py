"""Which rows deletes delete: vectors, positions and keys (Scan Planning, Delete Formats)."""

from __future__ import annotations

import struct as binary
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from rigs.torture.reader.metadata import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    File,
    Metadata,
    local,
)
from rigs.torture.reader.projection import Constants, project
from rigs.torture.reader.schema import (
    FILE_PATH,
    POS,
    Field,
    NotReadable,
    Struct,
    only,
    path_to,
)

#: Reads a file: its schema, and its rows by name.
Read = Callable[[File], tuple[Struct, list[dict[str, Any]]]]

_MAGIC = bytes.fromhex("D1D33964")


def vector_positions(file: File) -> BitMap64:
    """The positions of a ``deletion-vector-v1`` blob."""
    if file.content_offset is None or file.content_size is None:
        raise NotReadable(f"the vector in {file.path} has no offset and size")
    with local(file.path).open("rb") as stream:
        stream.seek(file.content_offset)
        blob = stream.read(file.content_size)
    (length,) = binary.unpack(">I", blob[:4])
    content = blob[4 : 4 + length]
    (checksum,) = binary.unpack(">I", blob[4 + length : 8 + length])
    if content[:4] != _MAGIC or zlib.crc32(content) != checksum or len(blob) != length + 8:
        raise NotReadable(f"the blob at {file.content_offset} of {file.path} is no vector")
    return BitMap64.deserialize(content[4:])


def in_same_partition(one: File, other: File) -> bool:
    """Whether both files are in one partition of one spec."""
    return one.spec_id == other.spec_id and one.partition == other.partition


class PositionDeletes:
    """Deletes by position, of a snapshot."""

    def __init__(self, files: Iterable[File], read: Read) -> None:
        deletes = [file for file in files if file.content == POSITION_DELETES]
        self._vectors = [file for file in deletes if file.is_vector]
        self._files = [file for file in deletes if not file.is_vector]
        self._positions: dict[File, Mapping[str, set[int]]] = {}
        self._read = read

    def of(self, data: File) -> set[int]:
        """The positions that are deleted in a data file."""
        vectors = [
            vector
            for vector in self._vectors
            if vector.referenced_data_file == data.path
            and data.sequence_number <= vector.sequence_number
            and in_same_partition(data, vector)
        ]
        if len(vectors) > 1:
            raise NotReadable(f"{data.path} has {len(vectors)} deletion vectors")
        if vectors:
            return set(vector_positions(vectors[0]))
        positions: set[int] = set()
        for file in self._files:
            if (
                file.referenced_data_file in {None, data.path}
                and data.sequence_number <= file.sequence_number
                and in_same_partition(data, file)
            ):
                positions |= self._positions_in(file).get(data.path, set())
        return positions

    def _positions_in(self, file: File) -> Mapping[str, set[int]]:
        if file not in self._positions:
            schema, rows = self._read(file)
            path = schema.field(FILE_PATH)
            position = schema.field(POS)
            if path is None or position is None:
                raise NotReadable(f"{file.path} has no field {FILE_PATH} or {POS}")
            positions = defaultdict(set)
            for row in rows:
                positions[row[path.name]].add(row[position.name])
            self._positions[file] = positions
        return self._positions[file]


@dataclass(frozen=True)
class KeySet:
    """The keys of one equality delete file, and where their columns are in a schema of the table."""

    schemas: tuple[tuple[Struct, tuple[Field, ...]], ...]
    keys: frozenset[tuple[Any, ...]]

    def has(self, row: Mapping[str, Any], schema: Struct, constants: Constants) -> bool:
        """Whether a row of a data file has one of the keys."""
        return _key(self.schemas, row, schema, constants) in self.keys


class EqualityDeletes:
    """Deletes by key, of a snapshot."""

    def __init__(self, metadata: Metadata, files: Iterable[File], read: Read) -> None:
        self._metadata = metadata
        self._read = read
        self._files = [file for file in files if file.content == EQUALITY_DELETES]
        self._key_sets: dict[File, KeySet] = {}

    def of(self, data: File) -> list[KeySet]:
        """The keys that apply to a data file."""
        return [
            self._key_set(file)
            for file in self._files
            if data.sequence_number < file.sequence_number
            and (not self._metadata.specs[file.spec_id] or in_same_partition(data, file))
        ]

    def _key_set(self, file: File) -> KeySet:
        if file not in self._key_sets:
            schema, rows = self._read(file)
            schemas = []
            for field_id in file.equality_ids:
                stored = path_to(schema, field_id)
                if stored is None:
                    raise NotReadable(f"{file.path} lacks the field {field_id} of its key")
                # The type of the key is the table's, of when it last had the column.
                struct = self._metadata.latest_struct_with(field_id)
                path = path_to(struct, field_id) if struct is not None else stored
                assert path is not None
                schemas.append((only(path), path))
            keys = frozenset(_key(tuple(schemas), row, schema, {}) for row in rows)
            self._key_sets[file] = KeySet(tuple(schemas), keys)
        return self._key_sets[file]


def _key(
    schemas: tuple[tuple[Struct, tuple[Field, ...]], ...],
    row: Mapping[str, Any],
    schema: Struct,
    constants: Constants,
) -> tuple[Any, ...]:
    """The key of a row; a column in a struct that is null is null."""
    key = []
    for wanted, path in schemas:
        value: Any = project(row, schema, wanted, constants)
        for step in path:
            value = None if value is None else dict(value)[step.id]
        key.append(value)
    return tuple(key)
