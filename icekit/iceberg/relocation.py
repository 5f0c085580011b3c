"""Move a table to other folders: every path in its metadata, its position deletes and the footers of
its deletion vectors, and every time.

Data files name no path and stay as they are. A file comes before those that give its length:
deletes, manifests, manifest lists, the metadata file.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from icekit.common import frozen
from icekit.common.errors import FileGone, FormatTooNew, IcekitError, MetadataUnreadable, first_line
from icekit.iceberg import PATH_FIELD_ID, avro, puffin
from icekit.iceberg.moved_paths import MovedPaths, normal_form_of
from icekit.iceberg.paths import Normal, normal

Json = dict[str, Any]

_FORMAT_VERSIONS = (1, 2, 3)
_MAGIC_OF_GZIP = b"\x1f\x8b"
_MAGIC_OF_PARQUET = b"PAR1"
_TIME = "timestamp-ms"
# The value of a property that is a path, such as write.data.path.
_ABSOLUTE = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?/.*", re.DOTALL)


class RelocationRefused(IcekitError):
    """A table that cannot be moved, and why."""


class FileKind(StrEnum):
    """What a file is for its table."""

    DATA = "data"
    EQUALITY_DELETES = "equality deletes"
    POSITION_DELETES = "position deletes"
    STATISTICS = "statistics"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    OLD_METADATA = "old metadata"
    METADATA = "metadata"
    #: In the table's folder, although nothing names it.
    UNREFERENCED = "unreferenced"


@frozen
class MovedFile:
    """A file of the table: where it was, where it goes, and its changed content; without a content,
    the file stays as it is.
    """

    kind: FileKind
    old_path: str
    path: str
    content: bytes | None = None


class Changes:
    """What else may change while a table moves: nothing here."""

    def begin_table(self, metadata: Json) -> None:
        """Read the metadata as it was, before anything changes."""

    def begin_manifest(self, header: avro.Header) -> None:
        """Read the header of the manifest whose entries come next."""

    def change_metadata(self, metadata: Json) -> None:
        """Change the JSON of a metadata file."""

    def change_header(self, header: avro.Header) -> avro.Header:
        """Change the header of a manifest."""
        return header

    def change_manifest(self, manifest: avro.Record) -> None:
        """Change the entry of a manifest in a manifest list."""

    def change_entry(self, entry: avro.Record) -> None:
        """Change the entry of a file in a manifest."""


class _ContentFile(NamedTuple):
    """A file of data or deletes, as a manifest names it."""

    kind: FileKind
    path: str
    file_format: str


_KINDS = (FileKind.DATA, FileKind.POSITION_DELETES, FileKind.EQUALITY_DELETES)


@dataclass
class Relocation:
    """The move of one table. ``read`` gives a file's bytes by its old path, or raises
    :class:`~icekit.common.errors.FileGone`; ``paths`` says where a path leads; ``time_shift_ms`` is
    added to every time.

    Without ``with_content``, only metadata moves: files of data, deletes and statistics stay
    unread, and so do older metadata files.
    """

    read: Callable[[str], bytes]
    paths: MovedPaths
    time_shift_ms: int = 0
    with_content: bool = True
    changes: Changes = field(default_factory=Changes)
    #: The paths of files that the table needs and that are not there.
    missing_paths: list[str] = field(default_factory=list)
    #: The lengths of changed files, by their paths before the move.
    _lengths_by_path: dict[str, int] = field(default_factory=dict)
    #: What each file is that the table names, however it spells its path.
    _kinds_by_path: dict[Normal, FileKind] = field(default_factory=dict)

    @staticmethod
    def location_of(raw: bytes, metadata_location: str) -> str:
        """The table's location, from the bytes of its metadata file."""
        with _corrupt_as_unreadable(metadata_location):
            metadata = _decoded_metadata(raw)
            _check_readable(metadata, metadata_location)
            location = metadata["location"]
            if not isinstance(location, str):
                raise TypeError("the location is not a text")
            return location

    def files(self, metadata_location: str) -> Iterator[MovedFile]:
        """Every file of a table, each once, the metadata file last.

        Raises :class:`RelocationRefused` for a table that cannot be moved,
        :class:`~icekit.iceberg.moved_paths.PathOutside` for a path in another folder, and
        :class:`~icekit.common.errors.MetadataUnreadable` for a corrupt file.
        """
        raw = self.read(metadata_location)
        with _corrupt_as_unreadable(metadata_location):
            metadata = _decoded_metadata(raw)
        _check_readable(metadata, metadata_location)
        self._is_first_mention(FileKind.METADATA, metadata_location)
        with _corrupt_as_unreadable(metadata_location):
            self.changes.begin_table(metadata)
        for snapshot in metadata.get("snapshots") or ():
            yield from self._snapshot_files(snapshot)
        for key in ("statistics", "partition-statistics"):
            for statistics in metadata.get(key) or ():
                yield from self._unchanged_file(FileKind.STATISTICS, statistics["statistics-path"])
        for entry in metadata.get("metadata-log") or ():
            yield from self._old_metadata(entry["metadata-file"])
        content = self._moved_metadata(metadata, raw, metadata_location)
        yield MovedFile(
            FileKind.METADATA, metadata_location, self.paths(metadata_location), content
        )

    def unreferenced_files(self, paths: Iterable[str]) -> Iterator[MovedFile]:
        """Files in the table's folder that nothing names, such as those of failed commits; after
        :meth:`files`.
        """
        manifest_lists: list[str] = []
        for path in paths:
            raw = self.read(path)
            with _corrupt_as_unreadable(path):
                if _avro_field_names(raw) >= {"manifest_path"}:
                    manifest_lists.append(path)
                    continue
                content = self._moved_unreferenced(raw, path)
            yield MovedFile(FileKind.UNREFERENCED, path, self.paths(path), content)
        # Now with the lengths of the manifests.
        for path in manifest_lists:
            with _corrupt_as_unreadable(path):
                content = avro.rewrite(self.read(path), self._move_manifest)
            yield MovedFile(FileKind.UNREFERENCED, path, self.paths(path), content)

    def _moved_unreferenced(self, raw: bytes, path: str) -> bytes | None:
        if field_names := _avro_field_names(raw):
            if "data_file" in field_names:
                content, _ = self._moved_manifest(raw)
                self._lengths_by_path[path] = len(content)
                return content
            return self._moved_deletes(raw, "avro") if "file_path" in field_names else None
        if raw.startswith(puffin.MAGIC):
            return puffin.rewrite_footer(raw, self._move_vectors)
        if raw.startswith(_MAGIC_OF_PARQUET):
            footer = raw[-8 - int.from_bytes(raw[-8:-4], "little") :]
            return self._moved_deletes(raw, "parquet") if b"file_path" in footer else None
        if path.endswith((".metadata.json", ".gz.metadata.json", ".metadata.json.gz")):
            metadata = _decoded_metadata(raw)
            _check_readable(metadata, path)
            return self._moved_metadata(metadata, raw, path)
        return None

    def _snapshot_files(self, snapshot: Json) -> Iterator[MovedFile]:
        list_path = snapshot.get("manifest-list")
        if list_path is None:
            for path in snapshot.get("manifests") or ():
                yield from self._manifest_files(path)
            return
        if (raw := self._read_once(FileKind.MANIFEST_LIST, list_path)) is None:
            return
        with _corrupt_as_unreadable(list_path):
            manifest_paths = [manifest["manifest_path"] for manifest in avro.records_of(raw)]
        for path in manifest_paths:
            yield from self._manifest_files(path)
        with _corrupt_as_unreadable(list_path):
            content = avro.rewrite(raw, self._move_manifest)
        yield MovedFile(FileKind.MANIFEST_LIST, list_path, self.paths(list_path), content)

    def _manifest_files(self, path: str) -> Iterator[MovedFile]:
        if (raw := self._read_once(FileKind.MANIFEST, path)) is None:
            return
        with _corrupt_as_unreadable(path):
            content, files = self._moved_manifest(raw)
        if self.with_content:
            yield from itertools.chain.from_iterable(map(self._content_files, files))
            if any(file.kind is FileKind.POSITION_DELETES for file in files):
                # Now with the lengths of these.
                content, _ = self._moved_manifest(raw)
        self._lengths_by_path[path] = len(content)
        yield MovedFile(FileKind.MANIFEST, path, self.paths(path), content)

    def _content_files(self, file: _ContentFile) -> Iterator[MovedFile]:
        path = file.path
        if file.kind is not FileKind.POSITION_DELETES:
            yield from self._unchanged_file(file.kind, path)
            return
        if (raw := self._read_once(file.kind, path)) is None:
            return
        with _corrupt_as_unreadable(path):
            content = self._moved_deletes(raw, file.file_format)
        self._lengths_by_path[path] = len(content)
        yield MovedFile(file.kind, path, self.paths(path), content)

    def _old_metadata(self, path: str) -> Iterator[MovedFile]:
        if not self.with_content:
            return
        if (raw := self._read_once(FileKind.OLD_METADATA, path)) is None:
            return
        try:
            with _corrupt_as_unreadable(path):
                metadata = _decoded_metadata(raw)
            _check_readable(metadata, path)
            content = self._moved_metadata(metadata, raw, path)
        except MetadataUnreadable:
            # Nothing reads it before somebody goes back to it.
            self.missing_paths.append(path)
            return
        yield MovedFile(FileKind.OLD_METADATA, path, self.paths(path), content)

    def _unchanged_file(self, kind: FileKind, path: str) -> Iterator[MovedFile]:
        if self.with_content and self._is_first_mention(kind, path):
            yield MovedFile(kind, path, self.paths(path))

    def _read_once(self, kind: FileKind, path: str) -> bytes | None:
        """The bytes of a file that the table names; None where it was read before or is not
        there.
        """
        if not self._is_first_mention(kind, path):
            return None
        try:
            return self.read(path)
        except FileGone:
            self.missing_paths.append(path)
            return None

    def _is_first_mention(self, kind: FileKind, path: str) -> bool:
        """Note a file; tells whether it is named for the first time.

        A file that is one thing here and another there would stay as it is where its paths have to
        change.
        """
        normal_path = normal_form_of(path)
        if (earlier_kind := self._kinds_by_path.get(normal_path)) is None:
            self._kinds_by_path[normal_path] = kind
            return True
        if earlier_kind is not kind:
            raise RelocationRefused(
                f"The table names {path} as {earlier_kind} and as {kind}. It is damaged and cannot "
                "be moved."
            )
        return False

    def _moved_manifest(self, raw: bytes) -> tuple[bytes, list[_ContentFile]]:
        files: list[_ContentFile] = []
        self.changes.begin_manifest(avro.header_of(raw))
        content = avro.rewrite(
            raw, lambda entry: files.append(self._moved_entry(entry)), self.changes.change_header
        )
        return content, files

    def _move_manifest(self, manifest: avro.Record) -> None:
        if manifest.get("key_metadata") is not None:
            raise _encrypted_refusal("a manifest")
        path = manifest["manifest_path"]
        manifest["manifest_length"] = self._lengths_by_path.get(path, manifest["manifest_length"])
        manifest["manifest_path"] = self.paths(path)
        self.changes.change_manifest(manifest)

    def _moved_entry(self, entry: avro.Record) -> _ContentFile:
        """Move an entry; returns the file as it was."""
        file = entry["data_file"]
        if file.get("key_metadata") is not None:
            raise _encrypted_refusal("a file")
        path = file["file_path"]
        kind = _KINDS[file.get("content") or 0]
        file["file_path"] = self.paths(path)
        if file.get("referenced_data_file") is not None:
            file["referenced_data_file"] = self.paths(file["referenced_data_file"])
        if kind is FileKind.POSITION_DELETES:
            if path in self._lengths_by_path:
                file["file_size_in_bytes"] = self._lengths_by_path[path]
                # The offsets of row groups, which only readers that split files need.
                if file.get("split_offsets") is not None:
                    file["split_offsets"] = None
            self._move_bounds(file)
        self.changes.change_entry(entry)
        return _ContentFile(kind, path, file["file_format"].lower())

    def _move_bounds(self, file: Json) -> None:
        """Move the bounds of a delete file's paths, or drop them where they would not enclose its
        paths any more: a reader then opens the file more often.
        """
        bound_fields = ("lower_bounds", "upper_bounds")
        path_texts = []
        for name in bound_fields:
            bounds_by_id = {
                one_bound["key"]: one_bound["value"] for one_bound in file.get(name) or ()
            }
            value = bounds_by_id.get(PATH_FIELD_ID)
            path_texts.append(None if value is None else value.decode(errors="replace"))
        low, high = path_texts
        is_moved = low is not None and high is not None and self.paths.moves_together(low, high)
        for name, text in zip(bound_fields, path_texts, strict=True):
            if text is None:
                continue
            other_bounds = [
                one_bound for one_bound in file[name] if one_bound["key"] != PATH_FIELD_ID
            ]
            new_bound = (
                {"key": PATH_FIELD_ID, "value": self.paths(text).encode()} if is_moved else None
            )
            file[name] = [*other_bounds, new_bound] if new_bound else other_bounds

    def _moved_deletes(self, raw: bytes, file_format: str) -> bytes:
        if file_format == "parquet":
            return self._moved_parquet_file(raw)
        if file_format == "avro":
            return avro.rewrite(raw, self._move_deletes)
        if file_format == "puffin":
            return puffin.rewrite_footer(raw, self._move_vectors)
        raise RelocationRefused(
            f"The table has position deletes in {file_format.upper()} files, whose paths icekit "
            "cannot change. Pack it without --data, or rewrite its position deletes first "
            "(rewrite_position_delete_files)."
        )

    def _move_deletes(self, delete: avro.Record) -> None:
        delete["file_path"] = self.paths(delete["file_path"])

    def _move_vectors(self, footer: Json) -> None:
        for blob in footer.get("blobs") or ():
            properties = blob.get("properties") or {}
            if "referenced-data-file" in properties:
                path = self.paths(properties["referenced-data-file"])
                properties["referenced-data-file"] = path

    def _moved_parquet_file(self, raw: bytes) -> bytes:
        import pyarrow.parquet as pq

        parquet_file = pq.ParquetFile(io.BytesIO(raw))
        schema = parquet_file.schema_arrow
        id_text = str(PATH_FIELD_ID).encode()
        path_indexes = [
            index
            for index, arrow_field in enumerate(schema)
            if (arrow_field.metadata or {}).get(b"PARQUET:field_id") == id_text
        ]
        if not path_indexes:
            return raw
        (index,) = path_indexes
        out = io.BytesIO()
        first_row_group = (
            parquet_file.metadata.row_group(0) if parquet_file.num_row_groups else None
        )
        codec = first_row_group.column(0).compression.lower() if first_row_group else "zstd"
        compression = "none" if codec == "uncompressed" else codec
        # The schema of Arrow would say more than the file does.
        with pq.ParquetWriter(out, schema, compression=compression, store_schema=False) as writer:
            for group_number in range(parquet_file.num_row_groups):
                rows = parquet_file.read_row_group(group_number)
                path_column = rows.column(index).combine_chunks().dictionary_encode()
                new_paths = _string_array(
                    [self.paths(path) for path in path_column.dictionary.to_pylist()]
                )
                new_column = new_paths.take(path_column.indices).cast(schema.field(index).type)
                writer.write_table(rows.set_column(index, schema.field(index), new_column))
            file_metadata = parquet_file.metadata.metadata or {}
            writer.add_key_value_metadata(
                {key: value for key, value in file_metadata.items() if key != b"ARROW:schema"}
            )
        return out.getvalue()

    def _moved_metadata(self, metadata: Json, raw: bytes, path: str) -> bytes:
        with _corrupt_as_unreadable(path):
            self._move_metadata(metadata)
            self.changes.change_metadata(metadata)
        content = json.dumps(metadata, separators=(",", ":")).encode()
        return gzip.compress(content, mtime=0) if raw.startswith(_MAGIC_OF_GZIP) else content

    def _move_metadata(self, metadata: Json) -> None:
        moved_text = _TextOfLocation(metadata["location"], self.paths)
        for key in metadata.keys() - _MOVED_KEYS:
            metadata[key] = moved_text(metadata[key])
        metadata["location"] = self.paths.moved_folder_path(metadata["location"])
        metadata["last-updated-ms"] += self.time_shift_ms
        for snapshot in metadata.get("snapshots") or ():
            snapshot[_TIME] += self.time_shift_ms
            if snapshot.get("summary"):
                snapshot["summary"] = moved_text(snapshot["summary"])
            if snapshot.get("manifest-list") is not None:
                snapshot["manifest-list"] = self.paths(snapshot["manifest-list"])
            if snapshot.get("manifests") is not None:
                snapshot["manifests"] = [
                    self.paths(manifest_path) for manifest_path in snapshot["manifests"]
                ]
        for entry in metadata.get("snapshot-log") or ():
            entry[_TIME] += self.time_shift_ms
        for entry in metadata.get("metadata-log") or ():
            entry[_TIME] += self.time_shift_ms
            entry["metadata-file"] = self.paths(entry["metadata-file"])
        for key in ("statistics", "partition-statistics"):
            for statistics in metadata.get(key) or ():
                statistics["statistics-path"] = self.paths(statistics["statistics-path"])
        properties = metadata.get("properties") or {}
        for key, value in properties.items():
            is_path = isinstance(value, str) and _ABSOLUTE.fullmatch(value)
            properties[key] = self.paths.moved_folder_path(value) if is_path else moved_text(value)


# The parts of the metadata in which paths stand at known places.
_MOVED_KEYS = {
    "location",
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "statistics",
    "partition-statistics",
    "properties",
}


class _TextOfLocation:
    """Replaces the location of a table where a person or an engine wrote it into a text, such as a
    comment or the summary of a commit.
    """

    def __init__(self, location: str, paths: MovedPaths) -> None:
        _, authority, path = normal(location)
        path = path.rstrip("/")
        # Looked for first: a search for the pattern alone takes long in a long text.
        self._sought = path or authority
        path_end = r"(?![\w.-])"
        path_pattern = rf"(?<![\w/.-]){re.escape(path)}{path_end}"
        uri_pattern = (
            rf"[a-zA-Z][\w+.-]{{0,20}}:(?://{re.escape(authority)})?{re.escape(path)}{path_end}"
        )
        self._pattern = re.compile(
            f"{uri_pattern}|{path_pattern}" if path else uri_pattern, re.IGNORECASE
        )
        self._new = paths.moved_folder_path(location).rstrip("/")

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            if not self._sought or self._sought not in value:
                return value
            return self._pattern.sub(lambda _: self._new, value)
        if isinstance(value, dict):
            return {key: self(inner_value) for key, inner_value in value.items()}
        if isinstance(value, list):
            return [self(inner_value) for inner_value in value]
        return value


def _string_array(values: Sequence[str]) -> Any:
    """An array of texts; pyarrow.array() would import pandas to see that there is none of its
    own.
    """
    import pyarrow as pa

    encoded_texts = [value.encode() for value in values]
    offsets = array("i", itertools.accumulate(map(len, encoded_texts), initial=0))
    text_buffer = pa.py_buffer(b"".join(encoded_texts))
    return pa.StringArray.from_buffers(
        len(encoded_texts), pa.py_buffer(offsets.tobytes()), text_buffer
    )


def _avro_field_names(raw: bytes) -> set[str]:
    """The fields of the records of an Avro file; none for another file."""
    if not raw.startswith(avro.MAGIC):
        return set()
    schema = json.loads(avro.header_of(raw)[avro.SCHEMA])
    return {avro_field["name"] for avro_field in schema.get("fields", ())}


def _decoded_metadata(raw: bytes) -> Json:
    metadata = json.loads(gzip.decompress(raw) if raw.startswith(_MAGIC_OF_GZIP) else raw)
    if not isinstance(metadata, dict):
        raise TypeError("not a JSON object")
    return metadata


def _check_readable(metadata: Mapping[str, Any], location: str) -> None:
    """Refuse metadata whose paths are not known, or not all readable."""
    version = metadata.get("format-version")
    if version not in _FORMAT_VERSIONS:
        if type(version) is int and version > max(_FORMAT_VERSIONS):
            raise FormatTooNew(location, version)
        raise MetadataUnreadable(f"{location} is no table metadata that icekit can read.")
    if metadata.get("encryption-keys"):
        raise _encrypted_refusal("the table")


def _encrypted_refusal(noun: str) -> RelocationRefused:
    return RelocationRefused(
        f"The table is encrypted ({noun} has a key), so its paths cannot be changed. An encrypted "
        "table cannot be packed."
    )


@contextlib.contextmanager
def _corrupt_as_unreadable(path: str) -> Iterator[None]:
    """Name the file that cannot be decoded. With corrupt bytes a decoder may raise anything."""
    try:
        yield
    except IcekitError:
        raise
    except Exception as error:
        raise MetadataUnreadable(
            f"{path} is corrupt ({type(error).__name__}: {first_line(error)[:120]}), so the table "
            "cannot be moved. Restore the file from a backup, or roll back to a snapshot before it."
        ) from None
