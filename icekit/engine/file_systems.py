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

    ``link`` is the linked folder, a path from there too, through which it was reached; empty
    without one. A linked folder with ``is_repeated_link`` is no file: its files are listed under
    another path.
    """

    path: str
    size: int
    modified_ms: int
    link: str = ""
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
        real_top = os.path.realpath(top_folder or "/")
        # Folders by their paths from the top, each with the linked folder that it lies in.
        folders = [("", "")]
        real_paths: set[str] = set()
        while folders:
            folder, linked_folder = folders.pop()
            files: list[ListedFile] = []
            try:
                entries = os.scandir(f"{top_folder}/{folder}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            with entries:
                for entry in entries:
                    status = _status(entry)
                    path = f"{folder}{entry.name}"
                    if status is None:
                        continue
                    if not stat.S_ISDIR(status.st_mode):
                        modified_ms = status.st_mtime_ns // 1_000_000
                        files.append(ListedFile(path, status.st_size, modified_ms, linked_folder))
                    elif not enters(path):
                        continue
                    elif not (linked_folder or entry.is_symlink()):
                        folders.append((f"{path}/", ""))
                    else:
                        real_path = os.path.realpath(entry.path)
                        is_repeated_link = (
                            f"{real_path}/".startswith(f"{real_top}/") or real_path in real_paths
                        )
                        if is_repeated_link:
                            files.append(
                                ListedFile(path, 0, 0, linked_folder or path, is_repeated_link)
                            )
                        else:
                            real_paths.add(real_path)
                            folders.append((f"{path}/", linked_folder or path))
            yield files

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""
        for location in locations:
            try:
                yield location, Path(local_path(location)).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                yield location, None


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What an entry or its link is; None for one that is gone, a link to nothing, and a name that
    is no text, for which Java finds no file.
    """
    try:
        entry.name.encode()
        return entry.stat()
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


class ArrowFiles(FileSystem):
    """A storage that pyiceberg reads by pyarrow; ``file_system`` gives that of a scheme and an
    authority.
    """

    def __init__(self, file_system: Callable[[str, str], pyarrow.fs.FileSystem]) -> None:
        self.file_system = file_system

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files below a folder; see :meth:`FileSystem.walk`."""
        import pyarrow.fs

        scheme, authority, path = _uri_parts(location)
        file_system = self.file_system(scheme, authority)

        def list_folder(folder: str, recursive: bool) -> _Listed:
            selector = pyarrow.fs.FileSelector(
                f"{path}/{folder}".rstrip("/"), allow_not_found=True, recursive=recursive
            )
            entries = file_system.get_file_info(selector)
            return _Listed(
                [
                    ListedFile(_relative_path(path, each.path), each.size, _arrow_modified_ms(each))
                    for each in entries
                    if each.type != pyarrow.fs.FileType.Directory
                ],
                [
                    _relative_path(path, each.path.rstrip("/"))
                    for each in entries
                    if each.type == pyarrow.fs.FileType.Directory
                ],
            )

        yield from _walk_folders(list_folder, enters)

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""
        import pyarrow.fs

        def size(location: str) -> int | None:
            scheme, authority, path = _uri_parts(location)
            (info,) = self.file_system(scheme, authority).get_file_info([path])
            return None if info.type == pyarrow.fs.FileType.NotFound else info.size or 0

        yield from _sizes_in_threads(locations, size)


class FsspecFiles(FileSystem):
    """A storage that pyiceberg reads by fsspec; ``file_system`` gives that of a location."""

    def __init__(self, file_system: Callable[[str], Any]) -> None:
        self.file_system = file_system

    def walk(self, location: str, enters: Enters) -> Iterator[list[ListedFile]]:
        """The files below a folder; see :meth:`FileSystem.walk`."""
        file_system = self.file_system(location)
        top_folder = str(file_system._strip_protocol(location)).rstrip("/")
        # What it listed before may have changed.
        file_system.invalidate_cache()

        def list_folder(folder: str, recursive: bool) -> _Listed:
            path = f"{top_folder}/{folder}".rstrip("/")
            try:
                if recursive:
                    entries = list(file_system.find(path, detail=True).values())
                else:
                    entries = file_system.ls(path, detail=True)
            except FileNotFoundError:
                entries = []
            named_entries = [
                (_relative_path(top_folder, str(each["name"]).rstrip("/")), each)
                for each in entries
            ]
            return _Listed(
                [
                    ListedFile(name, int(each["size"] or 0), _fsspec_modified_ms(each))
                    for name, each in named_entries
                    if name and each["type"] != "directory"
                ],
                [
                    name
                    for name, each in named_entries
                    if each["type"] == "directory" and name != folder.rstrip("/")
                ],
            )

        yield from _walk_folders(list_folder, enters)

    def sizes(self, locations: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The bytes of files; see :meth:`FileSystem.sizes`."""

        def size(location: str) -> int | None:
            try:
                return int(self.file_system(location).info(location)["size"] or 0)
            except FileNotFoundError:
                return None

        yield from _sizes_in_threads(locations, size)


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
        yield from self.storage.sizes([each for each in locations if not is_local(each)])

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


class _Listed(NamedTuple):
    """The files and the folders of a folder, by their paths from the listed one."""

    files: list[ListedFile]
    folders: list[str]


def _walk_folders(
    list_folder: Callable[[str, bool], _Listed], enters: Enters
) -> Iterator[list[ListedFile]]:
    """Walk folder by folder, several at once; below one with many subfolders, all in one go."""
    folders = [""]
    with _pool() as pool:
        while folders:
            next_folders: list[str] = []
            for result in pool.map(lambda folder: list_folder(folder, False), folders):
                subfolders = list(filter(enters, result.folders))
                if len(subfolders) <= _MANY_FOLDERS:
                    next_folders += subfolders
                    yield result.files
                else:
                    yield list_folder(subfolders[0].rpartition("/")[0], True).files
            folders = next_folders


def _sizes_in_threads(
    locations: Sequence[str], size_of: Callable[[str], int | None]
) -> Iterator[tuple[str, int | None]]:
    with _pool() as pool:
        for start in range(0, len(locations), _BEGUN):
            chunk = locations[start : start + _BEGUN]
            yield from zip(chunk, pool.map(size_of, chunk), strict=True)


@contextlib.contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield pool
    finally:
        # After an error or Ctrl+C nobody waits for what has begun.
        pool.shutdown(wait=False, cancel_futures=True)


def _uri_parts(location: str) -> tuple[str, str, str]:
    """The scheme, the authority and the path that pyarrow gets for a location: pyiceberg would take
    what follows # or ? away.
    """
    scheme, _, authority_and_path = location.partition("://")
    authority, _, path = authority_and_path.partition("/")
    path_start = "" if scheme in _WITHOUT_AUTHORITY else authority
    return scheme, authority, f"{path_start}/{path}".rstrip("/")


def _relative_path(top_folder: str, path: str) -> str:
    """A listed path from the listed folder; empty for that folder."""
    if path != top_folder and not path.startswith(f"{top_folder}/"):
        raise ValueError(f"the storage lists {path} in {top_folder}")
    return path[len(top_folder) + 1 :]


def _arrow_modified_ms(info: Any) -> int:
    if info.mtime_ns is None:
        raise ValueError(f"the storage does not say when {info.path} was written")
    return int(info.mtime_ns) // 1_000_000


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
