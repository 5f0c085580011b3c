"""Compare the paths of files and folders however they are spelled: one normal form, in Python and
in SQL.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

# DeleteOrphanFiles treats s3, s3a and s3n as one; wasb and abfs are two schemes for one account;
# an HDFS has several names.
_FAMILIES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azure"),
    **dict.fromkeys(("hdfs", "webhdfs", "swebhdfs", "viewfs"), "hdfs"),
}
_SCHEME = "^[a-zA-Z][a-zA-Z0-9+.-]*:"
_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
#: Kinds of storage that may be a disk of this machine: without a scheme, that is for Hadoop to say.
LOCAL = ("", "file")


class NormalPath(NamedTuple):
    """A path in its normal form: kind of storage (empty: not stated), bucket or container, path."""

    storage_kind: str
    authority: str
    path: str


@lru_cache(maxsize=65_536)
def normal_path_of(location: str) -> NormalPath:
    """The normal form of a path: without ``//``, ``.`` and ``..``, as Hadoop's ``Path`` has it.

    Nothing is decoded: for Hadoop and for Iceberg, ``%`` is a letter like others.
    """
    scheme, authority, path = _uri_parts(location)
    storage_kind = _FAMILIES.get(scheme.lower(), scheme.lower())
    # An HDFS may have a name per host; wasb and abfs use two hosts for one account.
    has_no_authority = storage_kind in {*LOCAL, "hdfs"}
    authority = "" if has_no_authority else authority.lower().replace(".blob.", ".dfs.")
    return NormalPath(storage_kind, authority, posixpath.normpath(f"/{path.lstrip('/')}"))


def _uri_parts(location: str) -> tuple[str, str, str]:
    uri_match = _URI.fullmatch(location)
    return (uri_match[1], uri_match[2] or "", uri_match[3]) if uri_match else ("", "", location)


def local_path(location: str) -> str:
    """The path of a ``file:`` URI, as both engines read it: nothing is decoded, and # and ? are
    letters like others.
    """
    if not location.startswith("file:"):
        return location
    path = location.removeprefix("file:")
    return "/" + path[2:].partition("/")[2] if path.startswith("//") else path


def is_local(location: str) -> bool:
    """Tell whether a location is a path or a ``file:`` URI."""
    return urlsplit(location).scheme in {"", "file"}


class FileUri(NamedTuple):
    """A file as ``remove_orphan_files`` compares it: scheme, bucket or host, and path."""

    scheme: str
    authority: str
    path: str

    @property
    def is_on_disk(self) -> bool:
        """Tell whether it may be on a disk of this machine."""
        return self.scheme.lower() in LOCAL

    def names_file(self, listed_uri: FileUri) -> bool:
        """Tell whether metadata with this spelling names a listed file of the same path.

        Otherwise Iceberg does not decide whether that file is an orphan (FileURI,
        PrefixMismatchMode.ERROR). What the metadata leaves out may be anything.
        """
        return self.scheme.lower() in (
            "",
            listed_uri.scheme.lower(),
        ) and self.authority.lower() in (
            "",
            listed_uri.authority.lower(),
        )


# DeleteOrphanFilesSparkAction.EQUAL_SCHEMES_DEFAULT.
_EQUAL_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def file_uri(location: str) -> FileUri:
    """A location as Iceberg compares orphan files: by the path that Hadoop's ``Path`` has, in which
    nothing is decoded, and with one name for s3, s3a and s3n.
    """
    scheme, authority, raw_path = (
        ("", "", location) if location[:1] == "/" else _uri_parts(location)
    )
    is_normal_path = (
        raw_path[:1] == "/"
        and raw_path[-1:] != "/"
        and "//" not in raw_path
        and "/." not in raw_path
    )
    path = raw_path if is_normal_path else normal_path_of(location).path
    return FileUri(_EQUAL_SCHEMES.get(scheme, scheme), authority, path)


def listing_uri(location: str) -> FileUri:
    """The folder of a listing as :func:`file_uri`: without a scheme, it is on this machine's
    disks.
    """
    uri = file_uri(location)
    return uri._replace(scheme=uri.scheme or "file", authority="") if is_local(location) else uri


def is_local_sql(column: str) -> str:
    """SQL that tells whether a path may be on a disk of this machine."""
    return f"({column} NOT RLIKE '{_SCHEME}' OR lower({column}) LIKE 'file:%')"


def normal_path_sql(column: str) -> str:
    """SQL for the path of :func:`normal_path_of`, without kind of storage and bucket."""
    without_authority_sql = f"regexp_replace({column}, '{_SCHEME}(//[^/]*)?', '')"
    fold_step_sql = (
        "CASE WHEN part IN ('', '.') THEN kept WHEN part = '..' THEN slice(kept, 1, "
        "greatest(size(kept) - 1, 0)) ELSE concat(kept, array(part)) END"
    )
    # A fold over the parts costs time, and hardly any path needs it.
    folded_parts_sql = (
        f"aggregate(split({without_authority_sql}, '/'), CAST(array() AS array<string>), (kept, "
        f"part) -> {fold_step_sql})"
    )
    needs_folding_sql = f"{without_authority_sql} RLIKE '//|/[.][.]?(/|$)|/$|^[^/]|^$'"
    return (
        f"CASE WHEN {needs_folding_sql} THEN concat('/', array_join({folded_parts_sql}, '/')) ELSE "
        f"{without_authority_sql} END"
    )


def folder_of(path: str) -> str:
    """The folder of a path in normal form."""
    return path.rpartition("/")[0] or "/"


def has_common_folder(folders: Iterable[str], other_folders: Iterable[str]) -> bool:
    """Tell whether a folder of one kind is, contains or lies in one of the other."""
    folder_set = set(folders)
    other_set = set(other_folders)
    return any(not other_set.isdisjoint(_folder_and_parents(path)) for path in folder_set) or any(
        not folder_set.isdisjoint(_folder_and_parents(path)) for path in other_set
    )


def _folder_and_parents(path: str) -> Iterable[str]:
    while path != "/":
        yield path
        path = folder_of(path)
    yield path


def symbolic_link_targets(folders: Iterable[str]) -> dict[str, str]:
    """Where local folders, and files in them, lie that a symbolic link leads to; paths in normal
    form.

    Links are followed as this machine has them. A folder that does not exist here has none. Raises
    OSError for a folder that cannot be listed.
    """
    link_targets = {}
    for folder in folders:
        real_path = os.path.realpath(folder)
        if real_path != folder:
            link_targets[folder] = real_path
        try:
            with os.scandir(real_path) as folder_entries:
                link_names = [
                    folder_entry.name
                    for folder_entry in folder_entries
                    if folder_entry.is_symlink()
                ]
        except (FileNotFoundError, NotADirectoryError):
            continue
        path_prefix = "" if folder == "/" else folder
        link_targets |= {
            f"{path_prefix}/{link_name}": os.path.realpath(f"{real_path}/{link_name}")
            for link_name in link_names
        }
    return link_targets


class FolderSpellings(NamedTuple):
    """A folder: its kind of storage (empty: not stated), bucket or container, and every way to
    write its path.
    """

    storage_kind: str
    authority: str
    paths: frozenset[str]


def folder_spellings(location: str) -> FolderSpellings:
    """A folder in every reading: as written, decoded, normalized, with symbolic links followed."""
    storage_kind, authority, path = normal_path_of(location)
    raw_path = _uri_parts(location)[2]
    spellings = {raw_path, unquote(raw_path), path, normal_path_of(unquote(raw_path)).path}
    if storage_kind in LOCAL:
        spellings |= {os.path.realpath(re.sub("^/+", "/", spelling)) for spelling in spellings}
    return FolderSpellings(
        storage_kind,
        authority,
        frozenset(spelling.rstrip("/") or "/" for spelling in spellings),
    )


def may_overlap(folder: FolderSpellings, other_folder: FolderSpellings) -> bool:
    """Tell whether two folders may be the same, or one may be inside the other; true if in doubt.

    Schemes and authorities are compared as Iceberg does for orphans.
    """
    storage_kinds = {folder.storage_kind, other_folder.storage_kind}
    authorities = {folder.authority, other_folder.authority}
    if len(storage_kinds - {""}) > 1 or len(authorities - {""}) > 1:
        return False
    return has_common_folder(folder.paths, other_folder.paths)
