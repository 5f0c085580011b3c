"""Take tables with you as one file, and unpack them somewhere else.

A pack is a zip archive of moved tables: all paths lead to one neutral folder, so no bucket and no
folder of its owner is in it. Without data, it has what findings and plans are made from, and no
row.
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
from typing import IO, Self

from icekit.common import frozen
from icekit.common.errors import FileGone, IcekitError, ParameterError, first_line
from icekit.common.sql import Identifier
from icekit.common.units import size
from icekit.iceberg import WITHOUT_DATA
from icekit.iceberg.moved_paths import MovedPaths
from icekit.iceberg.paths import normal_path_of
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

    file_counts: Counter[FileKind] = field(default_factory=Counter)
    byte_counts: Counter[FileKind] = field(default_factory=Counter)
    missing_paths: list[str] = field(default_factory=list)


class PackWriter:
    """Writes a pack, which appears under its name when it is complete; a name that ends with
    ``.zst`` makes it one stream, whose equal parts are stored once.
    """

    def __init__(self, pack_file: Path) -> None:
        self._file = pack_file
        self._part = pack_file.with_name(f".{pack_file.name}-{os.getpid()}.part")
        self._is_stream = pack_file.suffix == _ZSTD_SUFFIX
        self._tables: list[PackedTable] = []
        self._archive: zipfile.ZipFile

    def __enter__(self) -> Self:
        if self._file.exists():
            raise ParameterError(f"{self._file} exists. Remove it, or name another file.")
        self._archive = zipfile.ZipFile(self._part, "w")
        return self

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        if error is None:
            pack_index = {
                "format": _FORMAT,
                "version": _VERSION,
                "tables": [_index_entry(packed_table) for packed_table in self._tables],
            }
            self._write(_INDEX, json.dumps(pack_index, indent=1).encode())
        self._archive.close()
        if error is None:
            if self._is_stream:
                _compress(self._part)
            self._part.replace(self._file)
        self._part.unlink(missing_ok=True)

    def add(
        self,
        table_name: Identifier,
        metadata_location: str,
        read_file: Read,
        *,
        with_data: bool = False,
        redact: bool = False,
        unreferenced_changed_at_ms: Mapping[str, int] | None = None,
        packed_at_ms: int | None = None,
        report_progress: Callable[[int], None] | None = None,
    ) -> Contents:
        """Pack a table; ``read_file`` gives a file's bytes by its path.

        ``unreferenced_changed_at_ms`` are paths of files in the table's folder that nothing names,
        with the times of their last change. ``packed_at_ms``: the moment that the table's times are
        relative to (default: now). ``report_progress`` gets the number of files so far.

        Raises the errors of :meth:`icekit.iceberg.relocation.Relocation.files`.
        """
        if redact and with_data:
            raise ParameterError(
                "--redact is for metadata: data files hold the rows. Leave out --data or --redact."
            )
        table_location = Relocation.location_of(read_file(metadata_location), metadata_location)

        def new_relocation(changes: Changes) -> Relocation:
            moved_paths = MovedPaths({table_location: _TABLE}, _ELSEWHERE)
            return Relocation(read_file, moved_paths, with_content=with_data, changes=changes)

        changes = Changes()
        if redact:
            survey = Survey(_ROOT)
            for _ in new_relocation(survey).files(metadata_location):
                pass
            changes = Redaction(survey)
        table_relocation = new_relocation(changes)
        contents = Contents()
        changed_at_ms = dict[str, int]()
        files_to_pack = table_relocation.files(metadata_location)
        for moved_file in files_to_pack:
            self._add_file(moved_file, read_file, contents)
            if report_progress:
                report_progress(contents.file_counts.total())
        for moved_file in table_relocation.unreferenced_files(unreferenced_changed_at_ms or {}):
            self._add_file(moved_file, read_file, contents)
            changed_at_ms[self._entry_name(moved_file.new_path)] = (
                unreferenced_changed_at_ms or {}
            )[moved_file.old_path]
        contents.missing_paths += table_relocation.missing_paths
        self._tables.append(
            PackedTable(
                table_name if not redact else ("packed", "table"),
                table_relocation.moved_paths(metadata_location),
                packed_at_ms if packed_at_ms is not None else time.time_ns() // 1_000_000,
                with_data,
                redact,
                changed_at_ms,
            )
        )
        return contents

    def _add_file(self, moved_file: MovedFile, read_file: Read, contents: Contents) -> None:
        try:
            file_bytes = (
                read_file(moved_file.old_path)
                if moved_file.new_content is None
                else moved_file.new_content
            )
        except FileGone:
            contents.missing_paths.append(moved_file.old_path)
            return
        self._write(self._entry_name(moved_file.new_path), file_bytes)
        contents.file_counts[moved_file.kind] += 1
        contents.byte_counts[moved_file.kind] += len(file_bytes)

    def _entry_name(self, path: str) -> str:
        return _archive_entry_name(len(self._tables), path)

    def _write(self, entry_name: str, file_bytes: bytes) -> None:
        zip_info = zipfile.ZipInfo(entry_name, _EPOCH)
        zip_info.external_attr = 0o644 << 16
        compression_method = zipfile.ZIP_STORED if self._is_stream else zipfile.ZIP_DEFLATED
        self._archive.writestr(zip_info, file_bytes, compression_method, 9)


class Pack:
    """A pack, to be unpacked; raises :class:`PackUnusable` for a file that is none, and for one
    that is not safe to unpack.
    """

    def __init__(self, pack_file: Path) -> None:
        self.file = pack_file
        with self._errors_as_unusable():
            self._stream = _open_archive(pack_file)
        try:
            with self._errors_as_unusable():
                self._archive = zipfile.ZipFile(self._stream)
                self._entries = self._safe_entry_names()
                pack_index = json.loads(self._read(_INDEX, _MOST_INDEX_BYTES))
                if pack_index.get("format") != _FORMAT:
                    raise PackUnusable(f"{pack_file} is not a pack of icekit.")
                if pack_index.get("version") != _VERSION:
                    raise PackUnusable(
                        f"{pack_file} was written by another version of icekit. Pack the table "
                        "again."
                    )
                self.tables = tuple(
                    _packed_table(index_entry) for index_entry in pack_index["tables"]
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
            zip_info.file_size
            for zip_info in self._archive.infolist()
            if zip_info.filename.partition("/")[0] in table_numbers
        )
        existing_folder = next(
            candidate_folder
            for candidate_folder in (folder, *folder.parents)
            if candidate_folder.exists()
        )
        free_bytes = shutil.disk_usage(existing_folder).free
        if total_bytes > free_bytes:
            raise PackUnusable(
                f"{self.file} unpacks to {size(total_bytes)}, and the disk of {existing_folder} "
                f"has {size(free_bytes)} free."
            )

    def unpack(
        self,
        table: PackedTable,
        target_folder: Path,
        *,
        replace: bool = False,
        now_ms: int | None = None,
    ) -> str:
        """Unpack one of :attr:`tables` into a folder, and what lies outside of the table's location
        into another one beside it; returns the path of the metadata file.

        The folders appear when all files are there. They must not exist, unless ``replace``.
        """
        elsewhere_folder = target_folder.with_name(f"{target_folder.name}-elsewhere")
        staging_folder = target_folder.with_name(f".{target_folder.name}-unpacked-{os.getpid()}")
        shutil.rmtree(staging_folder, ignore_errors=True)
        staging_by_target = {
            target_folder: staging_folder / "table",
            elsewhere_folder: staging_folder / "elsewhere",
        }
        if not replace and any(map(Path.exists, staging_by_target)):
            raise ParameterError(f"{target_folder} exists. Remove it, or choose another name.")
        try:
            with self._errors_as_unusable():
                metadata_location = self._write_files(
                    table,
                    staging_by_target,
                    time.time_ns() // 1_000_000 if now_ms is None else now_ms,
                )
            for final_folder, staged_subfolder in staging_by_target.items():
                if final_folder.exists():
                    final_folder.rename(staging_folder / f"old-{staged_subfolder.name}")
                if staged_subfolder.exists():
                    staged_subfolder.rename(final_folder)
        finally:
            shutil.rmtree(staging_folder, ignore_errors=True)
        return metadata_location

    def _write_files(
        self, table: PackedTable, staging_by_target: Mapping[Path, Path], now_ms: int
    ) -> str:
        table_number = self.tables.index(table)
        remaining_entry_names = {
            entry_name for entry_name in self._entries if entry_name.startswith(f"{table_number}/")
        }
        target_folder, elsewhere_folder = staging_by_target

        def read_entry(old_path: str) -> bytes:
            return self._read(_archive_entry_name(table_number, old_path), _MOST_BYTES_IN_MEMORY)

        time_shift_ms = now_ms - table.packed_at_ms
        relocation = Relocation(
            read_entry,
            MovedPaths({_TABLE: str(target_folder), _ELSEWHERE: str(elsewhere_folder)}),
            time_shift_ms,
            with_content=table.has_data,
            changes=_Unpacked(is_without_data=not table.has_data),
        )
        created_folders: set[Path] = set()

        def write_file(moved_file: MovedFile) -> None:
            entry_name = _archive_entry_name(table_number, moved_file.old_path)
            if moved_file.new_content is None and entry_name not in self._entries:
                return  # gone before the table was packed
            remaining_entry_names.discard(entry_name)
            staging_path = _staging_path(
                normal_path_of(moved_file.new_path).path, staging_by_target
            )
            if staging_path.parent not in created_folders:
                staging_path.parent.mkdir(parents=True, exist_ok=True)
                created_folders.add(staging_path.parent)
            if moved_file.new_content is not None:
                staging_path.write_bytes(moved_file.new_content)
            else:
                with (
                    self._archive.open(entry_name) as source_stream,
                    staging_path.open("wb") as target_stream,
                ):
                    shutil.copyfileobj(source_stream, target_stream)
            if moved_file.kind is FileKind.UNREFERENCED and entry_name in table.changed_at_ms:
                changed_at_seconds = (table.changed_at_ms[entry_name] + time_shift_ms) / 1000
                os.utime(staging_path, (changed_at_seconds, changed_at_seconds))

        for table_file in relocation.files(table.metadata_location):
            write_file(table_file)
        unreferenced_paths = sorted(
            f"{_ROOT}/{entry_name.partition('/')[2]}" for entry_name in remaining_entry_names
        )
        for table_file in relocation.unreferenced_files(unreferenced_paths):
            write_file(table_file)
        return relocation.moved_paths(table.metadata_location)

    def _safe_entry_names(self) -> frozenset[str]:
        zip_infos = self._archive.infolist()
        total_bytes = sum(zip_info.file_size for zip_info in zip_infos)
        max_total_bytes = _MOST_SHRUNK * self.file.stat().st_size + _SHRUNK_ALLOWANCE
        if len(zip_infos) > _MOST_ENTRIES or total_bytes > max_total_bytes:
            raise PackUnusable(
                f"{self.file} would unpack to {len(zip_infos):,} files of {size(total_bytes)}, far "
                "more than a pack of its size can hold. It is damaged or not from icekit."
            )
        entry_names = [zip_info.filename for zip_info in zip_infos]
        unsafe_name = next(
            (entry_name for entry_name in entry_names if not _is_safe_entry(entry_name)), None
        )
        if unsafe_name is not None or len(
            {entry_name.casefold() for entry_name in entry_names}
        ) < len(entry_names):
            raise PackUnusable(
                f"{self.file} has a file with the path {unsafe_name!r}, which no pack has. It is "
                "damaged or not from icekit."
                if unsafe_name is not None
                else f"{self.file} has two files of the same name. It is damaged."
            )
        return frozenset(entry_names)

    def _read(self, entry_name: str, max_bytes: int) -> bytes:
        if entry_name not in self._entries:
            raise FileGone(f"{entry_name} is not in the pack {self.file}.")
        if self._archive.getinfo(entry_name).file_size > max_bytes:
            raise PackUnusable(f"{entry_name} in {self.file} is larger than {size(max_bytes)}.")
        return self._archive.read(entry_name)

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
        for name in [key for key in properties if key.startswith("icekit.")]:
            if name not in _PROPERTIES_THAT_STAY:
                del properties[name]
        if self._is_without_data:
            properties[WITHOUT_DATA] = "true"


def _compress(pack_file: Path) -> None:
    """Replace a file by the same file as a stream of Zstandard."""
    import zstandard

    compression_parameters = zstandard.ZstdCompressionParameters.from_level(
        _ZSTD_LEVEL, window_log=_ZSTD_WINDOW_LOG, enable_ldm=True
    )
    compressed_file = pack_file.with_name(f"{pack_file.name}.zst")
    with pack_file.open("rb") as source_stream, compressed_file.open("wb") as target_stream:
        zstandard.ZstdCompressor(compression_params=compression_parameters).copy_stream(
            source_stream, target_stream
        )
    compressed_file.replace(pack_file)


def _open_archive(pack_file: Path) -> IO[bytes]:
    """The zip archive of a pack; a compressed stream is read into memory, or on disk if it is
    large.
    """
    pack_stream: IO[bytes] = pack_file.open("rb")
    if pack_stream.read(4) != _MAGIC_OF_ZSTD:
        return pack_stream
    import zstandard

    max_total_bytes = _MOST_SHRUNK * pack_file.stat().st_size + _SHRUNK_ALLOWANCE
    archive_stream = tempfile.SpooledTemporaryFile(_MOST_BYTES_IN_MEMORY // 4)  # noqa: SIM115 - the caller does
    with pack_stream:
        pack_stream.seek(0)
        for chunk in zstandard.ZstdDecompressor().read_to_iter(pack_stream):
            archive_stream.write(chunk)
            if archive_stream.tell() > max_total_bytes:
                raise PackUnusable(
                    f"{pack_file} would unpack to more than {size(max_total_bytes)}."
                )
    return archive_stream


def _is_safe_entry(entry_name: str) -> bool:
    path_parts = entry_name.split("/")
    return entry_name == _INDEX or (
        _ENTRY.fullmatch(entry_name) is not None
        and ".." not in path_parts
        and "." not in path_parts
    )


def _archive_entry_name(table_number: int, path: str) -> str:
    return f"{table_number}{normal_path_of(path).path.removeprefix(_ROOT)}"


def _staging_path(target_path: str, staging_by_target: Mapping[Path, Path]) -> Path:
    """Where a file is written before its folder appears."""
    for target_folder, staging_folder in staging_by_target.items():
        if (target_file := Path(target_path)).is_relative_to(target_folder):
            return staging_folder / target_file.relative_to(target_folder)
    raise PackUnusable(f"A file of the pack leads to {target_path}.")


def _index_entry(packed_table: PackedTable) -> Json:
    return {
        "name": list(packed_table.name),
        "metadata": packed_table.metadata_location,
        "packed-at-ms": packed_table.packed_at_ms,
        "has-data": packed_table.has_data,
        "is-redacted": packed_table.is_redacted,
        "changed-at-ms": dict(packed_table.changed_at_ms),
    }


def _packed_table(index_entry: Json) -> PackedTable:
    table_name = index_entry["name"]
    if (
        not table_name
        or not all(isinstance(name_part, str) and name_part for name_part in table_name)
        or len(table_name) < 2
    ):
        raise ValueError("a table without a name")
    return PackedTable(
        name=tuple(table_name),
        metadata_location=str(index_entry["metadata"]),
        packed_at_ms=int(index_entry["packed-at-ms"]),
        has_data=bool(index_entry["has-data"]),
        is_redacted=bool(index_entry["is-redacted"]),
        changed_at_ms={str(k): int(v) for k, v in index_entry["changed-at-ms"].items()},
    )
