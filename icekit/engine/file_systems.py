"""List folders and look files up without a JVM: a disk of this machine by the standard library,
other storage by the file system that pyiceberg makes from the catalog's properties.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from icekit.iceberg.paths import is_local, local_path

if TYPE_CHECKING:
    import pyarrow.fs

#: A choice: files that are looked up, and folders that are listed, at once.
_AT_ONCE = 16
#: A choice: a folder of an object store with more subfolders than this is listed with all that is
# below it in one go: a thousand names a request, where each subfolder needs a request of its own.
_MANY_FOLDERS = 64
#: A choice: the look-ups that wait for a thread.
_BEGUN = 1_000
#: Storage whose locations name a path without the authority.
_WITHOUT_AUTHORITY = ("hdfs", "viewfs")


class ListedFile(NamedTuple):
    """A file below a listed folder: its path from there, and what the listing says of it.

    ``linked_folder`` is the path, from there too, of the linked folder through which it was
    reached; empty without one. A linked folder with ``is_repeated_link`` is no file: its files are
    listed under another path.
    """

    path: str
    size: int
    modified_ms: int
    linked_folder: str = ""
    is_repeated_link: bool = False


#: Whether a subfolder is listed, by its path from the listed folder.
Enters = Callable[[str], bool]


class FileSystem(Protocol):
    """What lists folders and looks files up."""

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files of a folder and of the subfolders that it ``enters``, some at a time; none if
        there is no such folder. A file that vanishes meanwhile is left out.

        Raises OSError or ValueError for a folder that cannot be listed.
        """

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of each file, None for one that does not exist.

        Raises OSError or ValueError for a file that cannot be looked up.
        """


class LocalFiles(FileSystem):
    """The disks of this machine. Symbolic links are followed, as Hadoop does."""

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files below a folder; see :meth:`FileSystem.walk`."""
        top_folder = local_path(location).rstrip("/")
        real_top_folder = os.path.realpath(top_folder or "/")
        # Folders by their paths from the top, each with the linked folder that it lies in.
        pending_folders = [("", "")]
        linked_real_paths: set[str] = set()
        while pending_folders:
            folder, linked_folder = pending_folders.pop()
            folder_files: list[ListedFile] = []
            try:
                folder_entries = os.scandir(f"{top_folder}/{folder}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            with folder_entries:
                for folder_entry in folder_entries:
                    entry_status = _entry_status(folder_entry)
                    entry_path = f"{folder}{folder_entry.name}"
                    if entry_status is None:
                        continue
                    if not stat.S_ISDIR(entry_status.st_mode):
                        modified_ms = entry_status.st_mtime_ns // 1_000_000
                        folder_files.append(
                            ListedFile(entry_path, entry_status.st_size, modified_ms, linked_folder)
                        )
                    elif not enters(entry_path):
                        continue
                    elif not (linked_folder or folder_entry.is_symlink()):
                        pending_folders.append((f"{entry_path}/", ""))
                    else:
                        real_path = os.path.realpath(folder_entry.path)
                        is_repeated_link = (
                            f"{real_path}/".startswith(f"{real_top_folder}/")
                            or real_path in linked_real_paths
                        )
                        if is_repeated_link:
                            folder_files.append(
                                ListedFile(
                                    entry_path, 0, 0, linked_folder or entry_path, is_repeated_link
                                )
                            )
                        else:
                            linked_real_paths.add(real_path)
                            pending_folders.append((f"{entry_path}/", linked_folder or entry_path))
            yield folder_files

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""
        for location in locations:
            try:
                yield location, Path(local_path(location)).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                yield location, None


def _entry_status(folder_entry: os.DirEntry[str]) -> os.stat_result | None:
    """What an entry or its link is; None for one that is gone, a link to nothing, and a name that
    is no text, for which Java finds no file.
    """
    try:
        folder_entry.name.encode()
        return folder_entry.stat()
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


class ArrowFiles(FileSystem):
    """A storage that pyiceberg reads by pyarrow; ``file_system_of`` gives that of a scheme and an
    authority.
    """

    def __init__(self, file_system_of: Callable[[str, str], pyarrow.fs.FileSystem]) -> None:
        self.file_system_of = file_system_of

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files below a folder; see :meth:`FileSystem.walk`."""
        import pyarrow.fs

        scheme, authority, top_path = _uri_parts(location)
        file_system = self.file_system_of(scheme, authority)

        def list_folder(folder: str, is_recursive: bool) -> _FolderListing:
            selector = pyarrow.fs.FileSelector(
                f"{top_path}/{folder}".rstrip("/"), allow_not_found=True, recursive=is_recursive
            )
            file_infos = file_system.get_file_info(selector)
            return _FolderListing(
                [
                    ListedFile(
                        _relative_path(top_path, file_info.path),
                        file_info.size,
                        _arrow_modified_ms(file_info),
                    )
                    for file_info in file_infos
                    if file_info.type != pyarrow.fs.FileType.Directory
                ],
                [
                    _relative_path(top_path, file_info.path.rstrip("/"))
                    for file_info in file_infos
                    if file_info.type == pyarrow.fs.FileType.Directory
                ],
            )

        yield from _walk_folders(list_folder, enters)

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""
        import pyarrow.fs

        def size_of(location: str) -> int | None:
            scheme, authority, path = _uri_parts(location)
            (file_info,) = self.file_system_of(scheme, authority).get_file_info([path])
            return None if file_info.type == pyarrow.fs.FileType.NotFound else file_info.size or 0

        yield from _sizes_in_threads(locations, size_of)


class FsspecFiles(FileSystem):
    """A storage that pyiceberg reads by fsspec; ``file_system_of`` gives that of a location."""

    def __init__(self, file_system_of: Callable[[str], Any]) -> None:
        self.file_system_of = file_system_of

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files below a folder; see :meth:`FileSystem.walk`."""
        file_system = self.file_system_of(location)
        top_folder = str(file_system._strip_protocol(location)).rstrip("/")
        # What it listed before may have changed.
        file_system.invalidate_cache()

        def list_folder(folder: str, is_recursive: bool) -> _FolderListing:
            folder_path = f"{top_folder}/{folder}".rstrip("/")
            try:
                if is_recursive:
                    entries = list(file_system.find(folder_path, detail=True).values())
                else:
                    entries = file_system.ls(folder_path, detail=True)
            except FileNotFoundError:
                entries = []
            named_entries = [
                (_relative_path(top_folder, str(entry["name"]).rstrip("/")), entry)
                for entry in entries
            ]
            return _FolderListing(
                [
                    ListedFile(relative_path, int(entry["size"] or 0), _fsspec_modified_ms(entry))
                    for relative_path, entry in named_entries
                    if relative_path and entry["type"] != "directory"
                ],
                [
                    relative_path
                    for relative_path, entry in named_entries
                    if entry["type"] == "directory" and relative_path != folder.rstrip("/")
                ],
            )

        yield from _walk_folders(list_folder, enters)

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""

        def size_of(location: str) -> int | None:
            try:
                return int(self.file_system_of(location).info(location)["size"] or 0)
            except FileNotFoundError:
                return None

        yield from _sizes_in_threads(locations, size_of)


class CatalogFiles(FileSystem):
    """The files of a catalog: on this machine's disks, or in its storage."""

    def __init__(self, storage: FileSystem) -> None:
        self.storage = storage
        self.local = LocalFiles()

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files below a folder; see :meth:`FileSystem.walk`."""
        return self._file_system_of(location).walk(location, enters)

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""
        local_locations = list(filter(is_local, locations))
        yield from self.local.sizes(local_locations)
        yield from self.storage.sizes(
            [location for location in locations if not is_local(location)]
        )

    def _file_system_of(self, location: str) -> FileSystem:
        return self.local if is_local(location) else self.storage


def file_system_of_io(io: Any) -> FileSystem | None:
    """The files that a pyiceberg FileIO reaches; None for one that is neither pyarrow's nor
    fsspec's.
    """
    if hasattr(io, "fs_by_scheme"):
        return CatalogFiles(ArrowFiles(io.fs_by_scheme))
    if hasattr(io, "get_fs"):
        return CatalogFiles(
            FsspecFiles(lambda location: io._get_fs_from_uri(urlsplit(location), location))
        )
    return None


class _FolderListing(NamedTuple):
    """The files and the folders of a folder, by their paths from the listed one."""

    files: list[ListedFile]
    folders: list[str]


def _walk_folders(
    list_folder: Callable[[str, bool], _FolderListing], enters: Enters
) -> Iterator[list[ListedFile]]:
    """Walk folder by folder, several at once; below one with many subfolders, all in one go."""
    pending_folders = [""]
    with _thread_pool() as thread_pool:
        while pending_folders:
            next_folders: list[str] = []
            for listing in thread_pool.map(
                lambda folder: list_folder(folder, False), pending_folders
            ):
                subfolders = list(filter(enters, listing.folders))
                if len(subfolders) <= _MANY_FOLDERS:
                    next_folders += subfolders
                    yield listing.files
                else:
                    yield list_folder(subfolders[0].rpartition("/")[0], True).files
            pending_folders = next_folders


def _sizes_in_threads(
    locations: Sequence[str], size_of: Callable[[str], int | None]
) -> Iterator[tuple[str, int | None]]:
    with _thread_pool() as thread_pool:
        for chunk_start in range(0, len(locations), _BEGUN):
            location_chunk = locations[chunk_start : chunk_start + _BEGUN]
            yield from zip(location_chunk, thread_pool.map(size_of, location_chunk), strict=True)


@contextlib.contextmanager
def _thread_pool() -> Iterator[ThreadPoolExecutor]:
    thread_pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield thread_pool
    finally:
        # After an error or Ctrl+C nobody waits for what has begun.
        thread_pool.shutdown(wait=False, cancel_futures=True)


def _uri_parts(location: str) -> tuple[str, str, str]:
    """The scheme, the authority and the path that pyarrow gets for a location: pyiceberg would take
    what follows # or ? away.
    """
    scheme, _, authority_and_path = location.partition("://")
    authority, _, path = authority_and_path.partition("/")
    path_prefix = "" if scheme in _WITHOUT_AUTHORITY else authority
    return scheme, authority, f"{path_prefix}/{path}".rstrip("/")


def _relative_path(top_folder: str, path: str) -> str:
    """A listed path from the listed folder; empty for that folder."""
    if path != top_folder and not path.startswith(f"{top_folder}/"):
        raise ValueError(f"the storage lists {path} in {top_folder}")
    return path[len(top_folder) + 1 :]


def _arrow_modified_ms(file_info: Any) -> int:
    if file_info.mtime_ns is None:
        raise ValueError(f"the storage does not say when {file_info.path} was written")
    return int(file_info.mtime_ns) // 1_000_000


def _fsspec_modified_ms(entry: Any) -> int:
    """When a file was written; each file system has its own name for that."""
    for key in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        modified_time = entry.get(key)
        if isinstance(modified_time, str):
            modified_time = dt.datetime.fromisoformat(modified_time)
        if isinstance(modified_time, dt.datetime):
            return int(modified_time.timestamp() * 1000)
        if isinstance(modified_time, int | float):
            return int(modified_time * 1000)
    raise ValueError(f"the storage does not say when {entry['name']} was written")
