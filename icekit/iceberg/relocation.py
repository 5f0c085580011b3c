"""Move a table to other folders: every path in its metadata, its position deletes and the footers
of its deletion vectors, and every time.

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
from icekit.iceberg.moved_paths import MovedPaths, local_normal_path
from icekit.iceberg.paths import NormalPath, normal_path_of

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
    new_path: str
    new_content: bytes | None = None


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
    :class:`~icekit.common.errors.FileGone`; ``moved_paths`` says where a path leads;
    ``time_shift_ms`` is added to every time.

    Without ``with_content``, only metadata moves: files of data, deletes and statistics stay
    unread, and so do older metadata files.
    """

    read: Callable[[str], bytes]
    moved_paths: MovedPaths
    time_shift_ms: int = 0
    with_content: bool = True
    changes: Changes = field(default_factory=Changes)
    #: The paths of files that the table needs and that are not there.
    missing_paths: list[str] = field(default_factory=list)
    #: The lengths of changed files, by their paths before the move.
    _lengths_by_path: dict[str, int] = field(default_factory=dict)
    #: What each file is that the table names, however it spells its path.
    _kinds_by_path: dict[NormalPath, FileKind] = field(default_factory=dict)

    @staticmethod
    def location_of(raw: bytes, metadata_location: str) -> str:
        """The table's location, from the bytes of its metadata file."""
        with _corrupt_as_unreadable(metadata_location):
            metadata = _decoded_metadata(raw)
            _check_readable(metadata, metadata_location)
            table_location = metadata["location"]
            if not isinstance(table_location, str):
                raise TypeError("the location is not a text")
            return table_location

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
            for statistics_entry in metadata.get(key) or ():
                yield from self._unchanged_file(
                    FileKind.STATISTICS, statistics_entry["statistics-path"]
                )
        for log_entry in metadata.get("metadata-log") or ():
            yield from self._old_metadata_files(log_entry["metadata-file"])
        metadata_content = self._moved_metadata(metadata, raw, metadata_location)
        yield MovedFile(
            FileKind.METADATA,
            metadata_location,
            self.moved_paths(metadata_location),
            metadata_content,
        )

    def unreferenced_files(self, paths: Iterable[str]) -> Iterator[MovedFile]:
        """Files in the table's folder that nothing names, such as those of failed commits; after
        :meth:`files`.
        """
        manifest_list_paths: list[str] = []
        for path in paths:
            raw = self.read(path)
            with _corrupt_as_unreadable(path):
                if _avro_field_names(raw) >= {"manifest_path"}:
                    manifest_list_paths.append(path)
                    continue
                new_content = self._moved_unreferenced_file(raw, path)
            yield MovedFile(FileKind.UNREFERENCED, path, self.moved_paths(path), new_content)
        # Now with the lengths of the manifests.
        for path in manifest_list_paths:
            with _corrupt_as_unreadable(path):
                new_content = avro.rewrite(self.read(path), self._move_manifest)
            yield MovedFile(FileKind.UNREFERENCED, path, self.moved_paths(path), new_content)

    def _moved_unreferenced_file(self, raw: bytes, old_path: str) -> bytes | None:
        if field_names := _avro_field_names(raw):
            if "data_file" in field_names:
                manifest_content, _ = self._moved_manifest(raw)
                self._lengths_by_path[old_path] = len(manifest_content)
                return manifest_content
            return self._moved_deletes(raw, "avro") if "file_path" in field_names else None
        if raw.startswith(puffin.MAGIC):
            return puffin.rewrite_footer(raw, self._move_vectors)
        if raw.startswith(_MAGIC_OF_PARQUET):
            parquet_footer = raw[-8 - int.from_bytes(raw[-8:-4], "little") :]
            return self._moved_deletes(raw, "parquet") if b"file_path" in parquet_footer else None
        if old_path.endswith((".metadata.json", ".gz.metadata.json", ".metadata.json.gz")):
            metadata = _decoded_metadata(raw)
            _check_readable(metadata, old_path)
            return self._moved_metadata(metadata, raw, old_path)
        return None

    def _snapshot_files(self, snapshot: Json) -> Iterator[MovedFile]:
        manifest_list_path = snapshot.get("manifest-list")
        if manifest_list_path is None:
            for manifest_path in snapshot.get("manifests") or ():
                yield from self._manifest_files(manifest_path)
            return
        if (raw := self._read_once(FileKind.MANIFEST_LIST, manifest_list_path)) is None:
            return
        with _corrupt_as_unreadable(manifest_list_path):
            manifest_paths = [manifest["manifest_path"] for manifest in avro.records_of(raw)]
        for manifest_path in manifest_paths:
            yield from self._manifest_files(manifest_path)
        with _corrupt_as_unreadable(manifest_list_path):
            list_content = avro.rewrite(raw, self._move_manifest)
        yield MovedFile(
            FileKind.MANIFEST_LIST,
            manifest_list_path,
            self.moved_paths(manifest_list_path),
            list_content,
        )

    def _manifest_files(self, manifest_path: str) -> Iterator[MovedFile]:
        if (raw := self._read_once(FileKind.MANIFEST, manifest_path)) is None:
            return
        with _corrupt_as_unreadable(manifest_path):
            manifest_content, content_files = self._moved_manifest(raw)
        if self.with_content:
            yield from itertools.chain.from_iterable(map(self._content_files, content_files))
            if any(file.kind is FileKind.POSITION_DELETES for file in content_files):
                # Now with the lengths of these.
                manifest_content, _ = self._moved_manifest(raw)
        self._lengths_by_path[manifest_path] = len(manifest_content)
        yield MovedFile(
            FileKind.MANIFEST, manifest_path, self.moved_paths(manifest_path), manifest_content
        )

    def _content_files(self, content_file: _ContentFile) -> Iterator[MovedFile]:
        old_path = content_file.path
        if content_file.kind is not FileKind.POSITION_DELETES:
            yield from self._unchanged_file(content_file.kind, old_path)
            return
        if (raw := self._read_once(content_file.kind, old_path)) is None:
            return
        with _corrupt_as_unreadable(old_path):
            deletes_content = self._moved_deletes(raw, content_file.file_format)
        self._lengths_by_path[old_path] = len(deletes_content)
        yield MovedFile(content_file.kind, old_path, self.moved_paths(old_path), deletes_content)

    def _old_metadata_files(self, metadata_path: str) -> Iterator[MovedFile]:
        if not self.with_content:
            return
        if (raw := self._read_once(FileKind.OLD_METADATA, metadata_path)) is None:
            return
        try:
            with _corrupt_as_unreadable(metadata_path):
                metadata = _decoded_metadata(raw)
            _check_readable(metadata, metadata_path)
            metadata_content = self._moved_metadata(metadata, raw, metadata_path)
        except MetadataUnreadable:
            # Nothing reads it before somebody goes back to it.
            self.missing_paths.append(metadata_path)
            return
        yield MovedFile(
            FileKind.OLD_METADATA, metadata_path, self.moved_paths(metadata_path), metadata_content
        )

    def _unchanged_file(self, kind: FileKind, path: str) -> Iterator[MovedFile]:
        if self.with_content and self._is_first_mention(kind, path):
            yield MovedFile(kind, path, self.moved_paths(path))

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
        normal_path = local_normal_path(path)
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
        content_files: list[_ContentFile] = []
        self.changes.begin_manifest(avro.header_of(raw))
        manifest_content = avro.rewrite(
            raw,
            lambda entry: content_files.append(self._moved_entry(entry)),
            self.changes.change_header,
        )
        return manifest_content, content_files

    def _move_manifest(self, manifest: avro.Record) -> None:
        if manifest.get("key_metadata") is not None:
            raise _encrypted_refusal("a manifest")
        old_path = manifest["manifest_path"]
        manifest["manifest_length"] = self._lengths_by_path.get(
            old_path, manifest["manifest_length"]
        )
        manifest["manifest_path"] = self.moved_paths(old_path)
        self.changes.change_manifest(manifest)

    def _moved_entry(self, entry: avro.Record) -> _ContentFile:
        """Move an entry; returns the file as it was."""
        data_file = entry["data_file"]
        if data_file.get("key_metadata") is not None:
            raise _encrypted_refusal("a file")
        old_path = data_file["file_path"]
        file_kind = _KINDS[data_file.get("content") or 0]
        data_file["file_path"] = self.moved_paths(old_path)
        if data_file.get("referenced_data_file") is not None:
            data_file["referenced_data_file"] = self.moved_paths(data_file["referenced_data_file"])
        if file_kind is FileKind.POSITION_DELETES:
            if old_path in self._lengths_by_path:
                data_file["file_size_in_bytes"] = self._lengths_by_path[old_path]
                # The offsets of row groups, which only readers that split files need.
                if data_file.get("split_offsets") is not None:
                    data_file["split_offsets"] = None
            self._move_bounds(data_file)
        self.changes.change_entry(entry)
        return _ContentFile(file_kind, old_path, data_file["file_format"].lower())

    def _move_bounds(self, delete_file: Json) -> None:
        """Move the bounds of a delete file's paths, or drop them where they would not enclose its
        paths any more: a reader then opens the file more often.
        """
        bound_fields = ("lower_bounds", "upper_bounds")
        bound_paths = []
        for bounds_field in bound_fields:
            bounds_by_id = {
                bound["key"]: bound["value"] for bound in delete_file.get(bounds_field) or ()
            }
            path_bound = bounds_by_id.get(PATH_FIELD_ID)
            bound_paths.append(None if path_bound is None else path_bound.decode(errors="replace"))
        low_path, high_path = bound_paths
        stays_in_order = (
            low_path is not None
            and high_path is not None
            and self.moved_paths.moves_together(low_path, high_path)
        )
        for bounds_field, bound_path in zip(bound_fields, bound_paths, strict=True):
            if bound_path is None:
                continue
            other_bounds = [
                bound for bound in delete_file[bounds_field] if bound["key"] != PATH_FIELD_ID
            ]
            new_bound = (
                {"key": PATH_FIELD_ID, "value": self.moved_paths(bound_path).encode()}
                if stays_in_order
                else None
            )
            delete_file[bounds_field] = [*other_bounds, new_bound] if new_bound else other_bounds

    def _moved_deletes(self, raw: bytes, file_format: str) -> bytes:
        if file_format == "parquet":
            return self._moved_parquet_file(raw)
        if file_format == "avro":
            return avro.rewrite(raw, self._move_delete)
        if file_format == "puffin":
            return puffin.rewrite_footer(raw, self._move_vectors)
        raise RelocationRefused(
            f"The table has position deletes in {file_format.upper()} files, whose paths icekit "
            "cannot change. Pack it without --data, or rewrite its position deletes first "
            "(rewrite_position_delete_files)."
        )

    def _move_delete(self, delete: avro.Record) -> None:
        delete["file_path"] = self.moved_paths(delete["file_path"])

    def _move_vectors(self, footer: Json) -> None:
        for blob in footer.get("blobs") or ():
            blob_properties = blob.get("properties") or {}
            if "referenced-data-file" in blob_properties:
                new_path = self.moved_paths(blob_properties["referenced-data-file"])
                blob_properties["referenced-data-file"] = new_path

    def _moved_parquet_file(self, raw: bytes) -> bytes:
        import pyarrow.parquet as pq

        parquet_file = pq.ParquetFile(io.BytesIO(raw))
        arrow_schema = parquet_file.schema_arrow
        path_id_bytes = str(PATH_FIELD_ID).encode()
        path_indexes = [
            path_index
            for path_index, arrow_field in enumerate(arrow_schema)
            if (arrow_field.metadata or {}).get(b"PARQUET:field_id") == path_id_bytes
        ]
        if not path_indexes:
            return raw
        (path_index,) = path_indexes
        out = io.BytesIO()
        first_row_group = (
            parquet_file.metadata.row_group(0) if parquet_file.num_row_groups else None
        )
        codec = first_row_group.column(0).compression.lower() if first_row_group else "zstd"
        compression = "none" if codec == "uncompressed" else codec
        # The schema of Arrow would say more than the file does.
        with pq.ParquetWriter(
            out, arrow_schema, compression=compression, store_schema=False
        ) as writer:
            for group_number in range(parquet_file.num_row_groups):
                group_rows = parquet_file.read_row_group(group_number)
                path_column = group_rows.column(path_index).combine_chunks().dictionary_encode()
                new_paths = _string_array(
                    [self.moved_paths(path) for path in path_column.dictionary.to_pylist()]
                )
                new_column = new_paths.take(path_column.indices).cast(
                    arrow_schema.field(path_index).type
                )
                writer.write_table(
                    group_rows.set_column(path_index, arrow_schema.field(path_index), new_column)
                )
            key_value_metadata = parquet_file.metadata.metadata or {}
            writer.add_key_value_metadata(
                {key: value for key, value in key_value_metadata.items() if key != b"ARROW:schema"}
            )
        return out.getvalue()

    def _moved_metadata(self, metadata: Json, raw: bytes, metadata_path: str) -> bytes:
        with _corrupt_as_unreadable(metadata_path):
            self._move_metadata(metadata)
            self.changes.change_metadata(metadata)
        json_content = json.dumps(metadata, separators=(",", ":")).encode()
        return (
            gzip.compress(json_content, mtime=0) if raw.startswith(_MAGIC_OF_GZIP) else json_content
        )

    def _move_metadata(self, metadata: Json) -> None:
        moved_text = _TextOfLocation(metadata["location"], self.moved_paths)
        for key in metadata.keys() - _MOVED_KEYS:
            metadata[key] = moved_text(metadata[key])
        metadata["location"] = self.moved_paths.moved_folder_path(metadata["location"])
        metadata["last-updated-ms"] += self.time_shift_ms
        for snapshot in metadata.get("snapshots") or ():
            snapshot[_TIME] += self.time_shift_ms
            if snapshot.get("summary"):
                snapshot["summary"] = moved_text(snapshot["summary"])
            if snapshot.get("manifest-list") is not None:
                snapshot["manifest-list"] = self.moved_paths(snapshot["manifest-list"])
            if snapshot.get("manifests") is not None:
                snapshot["manifests"] = [
                    self.moved_paths(manifest_path) for manifest_path in snapshot["manifests"]
                ]
        for log_entry in metadata.get("snapshot-log") or ():
            log_entry[_TIME] += self.time_shift_ms
        for log_entry in metadata.get("metadata-log") or ():
            log_entry[_TIME] += self.time_shift_ms
            log_entry["metadata-file"] = self.moved_paths(log_entry["metadata-file"])
        for key in ("statistics", "partition-statistics"):
            for statistics_entry in metadata.get(key) or ():
                statistics_entry["statistics-path"] = self.moved_paths(
                    statistics_entry["statistics-path"]
                )
        properties = metadata.get("properties") or {}
        for key, property_value in properties.items():
            is_path = isinstance(property_value, str) and _ABSOLUTE.fullmatch(property_value)
            properties[key] = (
                self.moved_paths.moved_folder_path(property_value)
                if is_path
                else moved_text(property_value)
            )


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

    def __init__(self, location: str, moved_paths: MovedPaths) -> None:
        _, authority, location_path = normal_path_of(location)
        location_path = location_path.rstrip("/")
        # Looked for first: a search for the pattern alone takes long in a long text.
        self._search_text = location_path or authority
        end_pattern = r"(?![\w.-])"
        escaped_path = re.escape(location_path)
        path_pattern = rf"(?<![\w/.-]){escaped_path}{end_pattern}"
        authority_pattern = rf"(?://{re.escape(authority)})?"
        uri_pattern = rf"[a-zA-Z][\w+.-]{{0,20}}:{authority_pattern}{escaped_path}{end_pattern}"
        self._pattern = re.compile(
            f"{uri_pattern}|{path_pattern}" if location_path else uri_pattern, re.IGNORECASE
        )
        self._new_location = moved_paths.moved_folder_path(location).rstrip("/")

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            if not self._search_text or self._search_text not in value:
                return value
            return self._pattern.sub(lambda _: self._new_location, value)
        if isinstance(value, dict):
            return {key: self(inner_value) for key, inner_value in value.items()}
        if isinstance(value, list):
            return [self(inner_value) for inner_value in value]
        return value


def _string_array(texts: Sequence[str]) -> Any:
    """An array of texts; pyarrow.array() would import pandas to see that there is none of its
    own.
    """
    import pyarrow as pa

    encoded_texts = [text.encode() for text in texts]
    offsets = array("i", itertools.accumulate(map(len, encoded_texts), initial=0))
    text_buffer = pa.py_buffer(b"".join(encoded_texts))
    return pa.StringArray.from_buffers(
        len(encoded_texts), pa.py_buffer(offsets.tobytes()), text_buffer
    )


def _avro_field_names(raw: bytes) -> set[str]:
    """The fields of the records of an Avro file; none for another file."""
    if not raw.startswith(avro.MAGIC):
        return set()
    avro_schema = json.loads(avro.header_of(raw)[avro.SCHEMA])
    return {avro_field["name"] for avro_field in avro_schema.get("fields", ())}


def _decoded_metadata(raw: bytes) -> Json:
    metadata = json.loads(gzip.decompress(raw) if raw.startswith(_MAGIC_OF_GZIP) else raw)
    if not isinstance(metadata, dict):
        raise TypeError("not a JSON object")
    return metadata


def _check_readable(metadata: Mapping[str, Any], metadata_location: str) -> None:
    """Refuse metadata whose paths are not known, or not all readable."""
    format_version = metadata.get("format-version")
    if format_version not in _FORMAT_VERSIONS:
        if type(format_version) is int and format_version > max(_FORMAT_VERSIONS):
            raise FormatTooNew(metadata_location, format_version)
        raise MetadataUnreadable(f"{metadata_location} is no table metadata that icekit can read.")
    if metadata.get("encryption-keys"):
        raise _encrypted_refusal("the table")


def _encrypted_refusal(noun: str) -> RelocationRefused:
    return RelocationRefused(
        f"The table is encrypted ({noun} has a key), so its paths cannot be changed. An encrypted "
        "table cannot be packed."
    )


@contextlib.contextmanager
def _corrupt_as_unreadable(file_path: str) -> Iterator[None]:
    """Name the file that cannot be decoded. With corrupt bytes a decoder may raise anything."""
    try:
        yield
    except IcekitError:
        raise
    except Exception as error:
        raise MetadataUnreadable(
            f"{file_path} is corrupt ({type(error).__name__}: {first_line(error)[:120]}), so the "
            "table cannot be moved. Restore the file from a backup, or roll back to a snapshot "
            "before it."
        ) from None
