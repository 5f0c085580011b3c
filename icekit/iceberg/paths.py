"""Compare the paths of files and folders however they are spelled: one normal form, in Python and
in SQL.
"""

import os
import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

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


class Normal(NamedTuple):
    """A path in its normal form: kind of storage (empty: not stated), bucket or container, path."""

    family: str
    authority: str
    path: str


@lru_cache(maxsize=65_536)
def normal(location: str) -> Normal:
    """The normal form of a path: without ``//``, ``.`` and ``..``, as Hadoop's ``Path`` has it.

    Nothing is decoded: for Hadoop and for Iceberg, ``%`` is a letter like others.
    """
    scheme, authority, rest = _split(location)
    family = _FAMILIES.get(scheme.lower(), scheme.lower())
    # An HDFS may have a name per host; wasb and abfs use two hosts for one account.
    without = family in {*LOCAL, "hdfs"}
    authority = "" if without else authority.lower().replace(".blob.", ".dfs.")
    return Normal(family, authority, posixpath.normpath(f"/{rest.lstrip('/')}"))


def _split(location: str) -> tuple[str, str, str]:
    parts = _URI.fullmatch(location)
    return (parts[1], parts[2] or "", parts[3]) if parts else ("", "", location)


def local_sql(column: str) -> str:
    """SQL that tells whether a path may be on a disk of this machine."""
    return f"({column} NOT RLIKE '{_SCHEME}' OR lower({column}) LIKE 'file:%')"


def path_sql(column: str) -> str:
    """SQL for the path of :func:`normal`, without kind of storage and bucket."""
    rest = f"regexp_replace({column}, '{_SCHEME}(//[^/]*)?', '')"
    step = (
        "CASE WHEN part IN ('', '.') THEN kept "
        "WHEN part = '..' THEN slice(kept, 1, greatest(size(kept) - 1, 0)) "
        "ELSE concat(kept, array(part)) END"
    )
    # A fold over the parts costs time, and hardly any path needs it.
    parts = f"aggregate(split({rest}, '/'), CAST(array() AS array<string>), (kept, part) -> {step})"
    odd = f"{rest} RLIKE '//|/[.][.]?(/|$)|/$|^[^/]|^$'"
    return f"CASE WHEN {odd} THEN concat('/', array_join({parts}, '/')) ELSE {rest} END"


def folder_of(path: str) -> str:
    """The folder of a path in normal form."""
    return path.rpartition("/")[0] or "/"


def meet(one: Iterable[str], other: Iterable[str]) -> bool:
    """Tell whether a folder of one kind is, contains or lies in one of the other."""
    mine, theirs = set(one), set(other)
    return any(not theirs.isdisjoint(_upwards(path)) for path in mine) or any(
        not mine.isdisjoint(_upwards(path)) for path in theirs
    )


def _upwards(path: str) -> Iterable[str]:
    while path != "/":
        yield path
        path = folder_of(path)
    yield path


def links(folders: Iterable[str]) -> dict[str, str]:
    """Where local folders, and files in them, lie that a symbolic link leads to; paths in normal
    form.

    Links are followed as this machine has them. A folder that does not exist here has none. Raises
    OSError for a folder that cannot be listed.
    """
    leads = {}
    for folder in folders:
        real = os.path.realpath(folder)
        if real != folder:
            leads[folder] = real
        try:
            with os.scandir(real) as entries:
                linked = [entry.name for entry in entries if entry.is_symlink()]
        except (FileNotFoundError, NotADirectoryError):
            continue
        base = "" if folder == "/" else folder
        leads |= {f"{base}/{name}": os.path.realpath(f"{real}/{name}") for name in linked}
    return leads


class Place(NamedTuple):
    """A folder: its kind of storage (empty: not stated), bucket or container, and every way to
    write its path.
    """

    family: str
    authority: str
    paths: frozenset[str]


def place(location: str) -> Place:
    """A folder in every reading: as written, decoded, normalized, with symbolic links followed."""
    family, authority, path = normal(location)
    rest = _split(location)[2]
    spellings = {rest, unquote(rest), path, normal(unquote(rest)).path}
    if family in LOCAL:
        spellings |= {os.path.realpath(re.sub("^/+", "/", spelling)) for spelling in spellings}
    return Place(family, authority, frozenset(each.rstrip("/") or "/" for each in spellings))


def overlapping(one: Place, other: Place) -> bool:
    """Tell whether two folders may be the same, or one may be inside the other; true if in doubt.

    Schemes and authorities are compared as Iceberg does for orphans.
    """
    families, authorities = {one.family, other.family}, {one.authority, other.authority}
    if len(families - {""}) > 1 or len(authorities - {""}) > 1:
        return False
    return meet(one.paths, other.paths)
