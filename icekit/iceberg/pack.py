"""Take tables with you as one file, and unpack them somewhere else.

A pack is a zip archive of moved tables: all paths lead to one neutral folder, so no bucket and no
folder of its owner is in it. Without data, it has what findings and plans are made from, and no row.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from icekit.common import frozen
from icekit.common.errors import FileGone, IcekitError, ParameterError, first_line
from icekit.common.sql import Identifier
from icekit.common.units import size
from icekit.iceberg import WITHOUT_DATA
from icekit.iceberg.moved_paths import MovedPaths
from icekit.iceberg.paths import normal
from icekit.iceberg.redaction import Redaction, Survey
from icekit.iceberg.relocation import Changes, FileKind, Json, MovedFile, Relocation

# A pack as one stream of Zstandard: equal parts of its files are stored once.
_ZSTD_SUFFIX = ".zst"
_MAGIC_OF_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 19
_ZSTD_WINDOW_LOG = 27

_FORMAT = "icekit-pack"
_VERSION = 1
_INDEX = "icekit-pack.json"
_ROOT = "/icekit-pack"
_TABLE = f"{_ROOT}/table"
_ELSEWHERE = f"{_ROOT}/elsewhere"
_ENTRY = re.compile(r"[0-9]{1,9}/(?:table|elsewhere/[0-9]+)(?:/[^/\\\x00-\x1f]+)+")
_EPOCH = (1980, 1, 1, 0, 0, 0)
# An archive may come from a stranger.
_MOST_ENTRIES = 2_000_000
_MOST_INDEX_BYTES = 64 << 20
_MOST_BYTES_IN_MEMORY = 1 << 30
# Metadata repeats itself, and so shrinks well; nothing honest shrinks further.
_MOST_SHRUNK = 250
_SHRUNK_ALLOWANCE = 16 << 20
# icekit's own properties that say something about the table, not about a run or a clone.
_PROPERTIES_THAT_STAY = ("icekit.filter-columns",)

Read = Callable[[str], bytes]


class PackUnusable(IcekitError):
    """A file that is no pack, or a damaged or unsafe one."""


@frozen
class PackedTable:
    """A table of a pack, as the pack's index has it; ``metadata_location`` is its path in there.

    ``packed_at_ms`` is the moment that times are relative to: unpacked later, a commit is as old as
    it was then. ``changed_at_ms`` has the times of files that nothing names, by their entries.
    """

    name: Identifier
    metadata_location: str
    packed_at_ms: int
    has_data: bool
    is_redacted: bool = False
    changed_at_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Contents:
    """What of a table went into a pack: files and bytes by kind, and the files that are gone."""

    files: Counter[FileKind] = field(default_factory=Counter)
    bytes: Counter[FileKind] = field(default_factory=Counter)
    missing_paths: list[str] = field(default_factory=list)


class PackWriter:
    """Writes a pack, which appears under its name when it is complete; a name that ends with
    ``.zst`` makes it one stream, whose equal parts are stored once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._part = file.with_name(f".{file.name}-{os.getpid()}.part")
        self._is_stream = file.suffix == _ZSTD_SUFFIX
        self._tables: list[PackedTable] = []
        self._archive: zipfile.ZipFile

    def __enter__(self) -> Self:
        if self._file.exists():
            raise ParameterError(f"{self._file} exists. Remove it, or name another file.")
        self._archive = zipfile.ZipFile(self._part, "w")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            index = {
                "format": _FORMAT,
                "version": _VERSION,
                "tables": [_index_entry(table) for table in self._tables],
            }
            self._write(_INDEX, json.dumps(index, indent=1).encode())
        self._archive.close()
        if error is None:
            if self._is_stream:
                _compress(self._part)
            self._part.replace(self._file)
        self._part.unlink(missing_ok=True)

    def add(
        self,
        name: Identifier,
        metadata_location: str,
        read: Read,
        *,
        with_data: bool = False,
        redact: bool = False,
        unreferenced: Mapping[str, int] | None = None,
        packed_at_ms: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Contents:
        """Pack a table; ``read`` gives a file's bytes by its path.

        ``unreferenced`` are paths of files in the table's folder that nothing names, with the times
        of their last change. ``packed_at_ms``: the moment that the table's times are relative to
        (default: now). ``progress`` gets the number of files so far.

        Raises the errors of :meth:`icekit.iceberg.relocation.Relocation.files`.
        """
        if redact and with_data:
            raise ParameterError(
                "--redact is for metadata: data files hold the rows. Leave out --data or --redact."
            )
        location = Relocation.location_of(read(metadata_location), metadata_location)

        def relocation(changes: Changes) -> Relocation:
            paths = MovedPaths({location: _TABLE}, _ELSEWHERE)
            return Relocation(read, paths, with_content=with_data, changes=changes)

        changes = Changes()
        if redact:
            survey = Survey(_ROOT)
            for _ in relocation(survey).files(metadata_location):
                pass
            changes = Redaction(survey)
        table_relocation = relocation(changes)
        contents = Contents()
        changed_at_ms = dict[str, int]()
        moved_files = table_relocation.files(metadata_location)
        for file in moved_files:
            self._add_file(file, read, contents)
            if progress:
                progress(contents.files.total())
        for file in table_relocation.unreferenced_files(unreferenced or {}):
            self._add_file(file, read, contents)
            changed_at_ms[self._entry(file.path)] = (unreferenced or {})[file.old_path]
        contents.missing_paths += table_relocation.missing_paths
        self._tables.append(
            PackedTable(
                name if not redact else ("packed", "table"),
                table_relocation.paths(metadata_location),
                packed_at_ms if packed_at_ms is not None else time.time_ns() // 1_000_000,
                with_data,
                redact,
                changed_at_ms,
            )
        )
        return contents

    def _add_file(self, file: MovedFile, read: Read, contents: Contents) -> None:
        try:
            content = read(file.old_path) if file.content is None else file.content
        except FileGone:
            contents.missing_paths.append(file.old_path)
            return
        self._write(self._entry(file.path), content)
        contents.files[file.kind] += 1
        contents.bytes[file.kind] += len(content)

    def _entry(self, path: str) -> str:
        return _archive_entry(len(self._tables), path)

    def _write(self, entry: str, content: bytes) -> None:
        zip_info = zipfile.ZipInfo(entry, _EPOCH)
        zip_info.external_attr = 0o644 << 16
        method = zipfile.ZIP_STORED if self._is_stream else zipfile.ZIP_DEFLATED
        self._archive.writestr(zip_info, content, method, 9)


class Pack:
    """A pack, to be unpacked; raises :class:`PackUnusable` for a file that is none, and for one
    that is not safe to unpack.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with self._errors_as_unusable():
            self._stream = _open_archive(file)
        try:
            with self._errors_as_unusable():
                self._archive = zipfile.ZipFile(self._stream)
                self._entries = self._safe_entry_names()
                index = json.loads(self._read(_INDEX, _MOST_INDEX_BYTES))
                if index.get("format") != _FORMAT:
                    raise PackUnusable(f"{file} is not a pack of icekit.")
                if index.get("version") != _VERSION:
                    raise PackUnusable(
                        f"{file} was written by another version of icekit. Pack the table again."
                    )
                self.tables = tuple(
                    PackedTable(**_table_arguments(table)) for table in index["tables"]
                )
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._stream.close()

    def check_space(self, tables: Collection[PackedTable], folder: Path) -> None:
        """Raise :class:`PackUnusable` if some of :attr:`tables` do not fit on the disk of a folder,
        which need not exist.
        """
        table_numbers = {f"{self.tables.index(table)}" for table in tables}
        total_bytes = sum(
            info.file_size
            for info in self._archive.infolist()
            if info.filename.partition("/")[0] in table_numbers
        )
        disk_folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free_bytes = shutil.disk_usage(disk_folder).free
        if total_bytes > free_bytes:
            raise PackUnusable(
                f"{self.file} unpacks to {size(total_bytes)}, and the disk of {disk_folder} has "
                f"{size(free_bytes)} free."
            )

    def unpack(
        self, table: PackedTable, folder: Path, *, replace: bool = False, now_ms: int | None = None
    ) -> str:
        """Unpack one of :attr:`tables` into a folder, and what lies outside of the table's location
        into another one beside it; returns the path of the metadata file.

        The folders appear when all files are there. They must not exist, unless ``replace``.
        """
        outside_folder = folder.with_name(f"{folder.name}-elsewhere")
        staging_folder = folder.with_name(f".{folder.name}-unpacked-{os.getpid()}")
        shutil.rmtree(staging_folder, ignore_errors=True)
        staged_by_target = {
            folder: staging_folder / "table",
            outside_folder: staging_folder / "elsewhere",
        }
        if not replace and any(map(Path.exists, staged_by_target)):
            raise ParameterError(f"{folder} exists. Remove it, or choose another name.")
        try:
            with self._errors_as_unusable():
                metadata_location = self._write_files(
                    table,
                    staged_by_target,
                    time.time_ns() // 1_000_000 if now_ms is None else now_ms,
                )
            for target, source in staged_by_target.items():
                if target.exists():
                    target.rename(staging_folder / f"old-{source.name}")
                if source.exists():
                    source.rename(target)
        finally:
            shutil.rmtree(staging_folder, ignore_errors=True)
        return metadata_location

    def _write_files(
        self, table: PackedTable, staged_by_target: Mapping[Path, Path], now_ms: int
    ) -> str:
        table_number = self.tables.index(table)
        remaining_entries = {
            entry for entry in self._entries if entry.startswith(f"{table_number}/")
        }
        folder, outside_folder = staged_by_target

        def read(path: str) -> bytes:
            return self._read(_archive_entry(table_number, path), _MOST_BYTES_IN_MEMORY)

        time_shift_ms = now_ms - table.packed_at_ms
        relocation = Relocation(
            read,
            MovedPaths({_TABLE: str(folder), _ELSEWHERE: str(outside_folder)}),
            time_shift_ms,
            with_content=table.has_data,
            changes=_Unpacked(is_without_data=not table.has_data),
        )
        created_folders: set[Path] = set()

        def write(file: MovedFile) -> None:
            entry = _archive_entry(table_number, file.old_path)
            if file.content is None and entry not in self._entries:
                return  # gone before the table was packed
            remaining_entries.discard(entry)
            path = _staged_path(normal(file.path).path, staged_by_target)
            if path.parent not in created_folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                created_folders.add(path.parent)
            if file.content is not None:
                path.write_bytes(file.content)
            else:
                with self._archive.open(entry) as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
            if file.kind is FileKind.UNREFERENCED and entry in table.changed_at_ms:
                seconds = (table.changed_at_ms[entry] + time_shift_ms) / 1000
                os.utime(path, (seconds, seconds))

        for file in relocation.files(table.metadata_location):
            write(file)
        paths = sorted(f"{_ROOT}/{entry.partition('/')[2]}" for entry in remaining_entries)
        for file in relocation.unreferenced_files(paths):
            write(file)
        return relocation.paths(table.metadata_location)

    def _safe_entry_names(self) -> frozenset[str]:
        zip_infos = self._archive.infolist()
        total_bytes = sum(info.file_size for info in zip_infos)
        max_bytes = _MOST_SHRUNK * self.file.stat().st_size + _SHRUNK_ALLOWANCE
        if len(zip_infos) > _MOST_ENTRIES or total_bytes > max_bytes:
            raise PackUnusable(
                f"{self.file} would unpack to {len(zip_infos):,} files of {size(total_bytes)}, far "
                "more than "
                "a pack of its size can hold. It is damaged or not from icekit."
            )
        entry_names = [info.filename for info in zip_infos]
        unsafe_name = next((name for name in entry_names if not _is_safe_entry(name)), None)
        if unsafe_name is not None or len({name.casefold() for name in entry_names}) < len(
            entry_names
        ):
            raise PackUnusable(
                f"{self.file} has a file with the path {unsafe_name!r}, which no pack has. It is "
                "damaged or not from icekit."
                if unsafe_name is not None
                else f"{self.file} has two files of the same name. It is damaged."
            )
        return frozenset(entry_names)

    def _read(self, entry: str, max_bytes: int) -> bytes:
        if entry not in self._entries:
            raise FileGone(f"{entry} is not in the pack {self.file}.")
        if self._archive.getinfo(entry).file_size > max_bytes:
            raise PackUnusable(f"{entry} in {self.file} is larger than {size(max_bytes)}.")
        return self._archive.read(entry)

    @contextlib.contextmanager
    def _errors_as_unusable(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise PackUnusable(f"There is no file {error.filename or self.file}.") from None
        except (IcekitError, OSError):
            raise
        except Exception as error:
            # A damaged archive may raise anything: BadZipFile, zlib.error, KeyError …
            raise PackUnusable(
                f"{self.file} is not a pack of icekit, or damaged ({first_line(error)})."
            ) from None


class _Unpacked(Changes):
    """Leaves out what icekit noted on the table for itself: a clone, a run."""

    def __init__(self, *, is_without_data: bool) -> None:
        self._is_without_data = is_without_data

    def change_metadata(self, metadata: Json) -> None:
        properties = metadata.setdefault("properties", {})
        for key in [
            property_name for property_name in properties if property_name.startswith("icekit.")
        ]:
            if key not in _PROPERTIES_THAT_STAY:
                del properties[key]
        if self._is_without_data:
            properties[WITHOUT_DATA] = "true"


def _compress(file: Path) -> None:
    """Replace a file by the same file as a stream of Zstandard."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        _ZSTD_LEVEL, window_log=_ZSTD_WINDOW_LOG, enable_ldm=True
    )
    compressed_file = file.with_name(f"{file.name}.zst")
    with file.open("rb") as source_stream, compressed_file.open("wb") as target_stream:
        zstandard.ZstdCompressor(compression_params=parameters).copy_stream(
            source_stream, target_stream
        )
    compressed_file.replace(file)


def _open_archive(file: Path) -> IO[bytes]:
    """The zip archive of a pack; a compressed stream is read into memory, or on disk if it is
    large.
    """
    stream: IO[bytes] = file.open("rb")
    if stream.read(4) != _MAGIC_OF_ZSTD:
        return stream
    import zstandard

    max_bytes = _MOST_SHRUNK * file.stat().st_size + _SHRUNK_ALLOWANCE
    archive = tempfile.SpooledTemporaryFile(_MOST_BYTES_IN_MEMORY // 4)  # noqa: SIM115 - the caller does
    with stream:
        stream.seek(0)
        for chunk in zstandard.ZstdDecompressor().read_to_iter(stream):
            archive.write(chunk)
            if archive.tell() > max_bytes:
                raise PackUnusable(f"{file} would unpack to more than {size(max_bytes)}.")
    return archive


def _is_safe_entry(entry: str) -> bool:
    path_parts = entry.split("/")
    return entry == _INDEX or (
        _ENTRY.fullmatch(entry) is not None and ".." not in path_parts and "." not in path_parts
    )


def _archive_entry(table_number: int, path: str) -> str:
    return f"{table_number}{normal(path).path.removeprefix(_ROOT)}"


def _staged_path(path: str, staged_by_target: Mapping[Path, Path]) -> Path:
    """Where a file is written before its folder appears."""
    for target_folder, staging_folder in staged_by_target.items():
        if (file_path := Path(path)).is_relative_to(target_folder):
            return staging_folder / file_path.relative_to(target_folder)
    raise PackUnusable(f"A file of the pack leads to {path}.")


def _index_entry(table: PackedTable) -> Json:
    return {
        "name": list(table.name),
        "metadata": table.metadata_location,
        "packed-at-ms": table.packed_at_ms,
        "has-data": table.has_data,
        "is-redacted": table.is_redacted,
        "changed-at-ms": dict(table.changed_at_ms),
    }


def _table_arguments(index_entry: Json) -> dict[str, Any]:
    name = index_entry["name"]
    if not name or not all(isinstance(part, str) and part for part in name) or len(name) < 2:
        raise ValueError("a table without a name")
    return {
        "name": tuple(name),
        "metadata_location": str(index_entry["metadata"]),
        "packed_at_ms": int(index_entry["packed-at-ms"]),
        "has_data": bool(index_entry["has-data"]),
        "is_redacted": bool(index_entry["is-redacted"]),
        "changed_at_ms": {str(k): int(v) for k, v in index_entry["changed-at-ms"].items()},
    }
