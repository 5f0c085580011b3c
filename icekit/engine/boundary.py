"""Tell what went wrong outside icekit (disk, memory, catalog, engine) from its own bugs, and name it."""

from __future__ import annotations

import errno
import re
import socket
import sqlite3
import ssl
import urllib.error
from pathlib import Path
from typing import Any

from icekit.engine.errors import is_of_engine, reason
from icekit.errors import CatalogUnreachable, DiskUnusable, EngineFailed, IcekitError, SparkUnavailable, first_line, trace

_ANOTHER = "choose another place"
# What a disk answers, and what to do about it; the others are said in the system's own words.
_DISK = {
    errno.ENOSPC: ("cannot be written: no space is left on its disk", f"free some, or {_ANOTHER}"),
    errno.EDQUOT: ("cannot be written: the disk quota is used up", f"free some, or {_ANOTHER}"),
    errno.EFBIG: ("cannot be written: it would be larger than is allowed here", f"raise the limit (ulimit -f), or {_ANOTHER}"),
    errno.EROFS: ("cannot be written: its disk is read-only", _ANOTHER),
    errno.EACCES: ("may not be written or read", f"{_ANOTHER}, or ask for access"),
    errno.EPERM: ("may not be written or read", f"{_ANOTHER}, or ask for access"),
    errno.ENOENT: ("does not exist, or cannot be made there", f"check the name, or {_ANOTHER}"),
    errno.ENOTDIR: ("is not a folder", _ANOTHER),
    errno.EEXIST: ("is not a folder", _ANOTHER),
    errno.EISDIR: ("is a folder, where a file is needed", "give another name"),
    errno.ENAMETOOLONG: ("is too long a name for a file", "give a shorter one"),
}
_LONGEST = 200
_PACKAGE = Path(__file__).parents[1]
# What SQLite says of a file, its disk and its other users (https://sqlite.org/rescode.html); all else is a wrong statement.
_OF_FILE = tuple(f"SQLITE_{name}" for name in ("CANTOPEN", "IOERR", "FULL", "READONLY", "CORRUPT", "NOTADB", "BUSY"))
# What a system says of another machine; the errors of Python's own clients carry none of these.
_OF_NETWORK = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT, errno.EADDRNOTAVAIL}
_CLIENTS = (socket.gaierror, socket.herror, ssl.SSLError, urllib.error.URLError, TimeoutError)
# Libraries that catalogs and storages are reached by; what they raise is said in their own words.
_REACHING = ("pyiceberg", "sqlalchemy", "requests", "urllib3", "botocore", "s3fs", "gcsfs", "adlfs", "google", "azure", "aiohttp", "thrift")
# What of the engine's errors is about the session or the machine; matched against the whole chain of Java's exceptions.
_OF_ENGINE = (
    (
        r"No space left on device|DiskSpaceExceeded|Disk quota exceeded",
        "Spark has no space left on a disk",
        "free some, or set spark.local.dir",
    ),
    (r"Read-only file system", "Spark cannot write to a disk", "set spark.local.dir, or the table's location, to one that can be written"),
    (r"OutOfMemoryError|SparkOutOfMemory", "Spark ran out of memory", "give it more (spark.driver.memory in ICEKIT_SPARK_CONF)"),
    (
        r"Cannot find catalog plugin class|ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError",
        "Spark lacks a class of Iceberg or of the storage, or has two versions of it",
        "let it fetch the packages (spark.jars.packages), or add the jars to the session",
    ),
    (
        r"INVALID_CONF_VALUE|CANNOT_PARSE_TIME_ZONE|spark\.[\w.]+ (?:should|must)|IllegalArgumentException: \S*spark\.",
        "a setting of Spark is wrong",
        "correct it (ICEKIT_SPARK_CONF, or the session's configuration)",
    ),
)


def outside(error: BaseException) -> IcekitError | None:
    """What went wrong, in one sentence with the next step; None where only icekit itself can be at fault."""
    if isinstance(error, IcekitError):
        return error
    modules = [kind.__module__.partition(".")[0] for kind in type(error).__mro__]
    if is_of_engine(error):
        return _of_engine(error)
    if any(module in _REACHING for module in modules):
        return CatalogUnreachable(
            f"The catalog or its storage failed ({type(error).__name__}: {first_line(error)}); check the profile and the network.",
            detail=trace(error),
        )
    if isinstance(error, _CLIENTS) or (isinstance(error, OSError) and error.errno in _OF_NETWORK):
        return CatalogUnreachable(
            f"The catalog, its storage or another server cannot be reached ({type(error).__name__}: {first_line(error)}); check the profile and the network.",
            detail=trace(error),
        )
    if isinstance(error, OSError):
        return None if _is_packaged(error) else _of_system(error)
    if isinstance(error, sqlite3.DatabaseError) and getattr(error, "sqlite_errorname", "").startswith(_OF_FILE):
        return DiskUnusable(f"An SQLite file cannot be used: {first_line(error)}; check its disk and its rights.", detail=trace(error))
    if isinstance(error, RuntimeError) and re.match("Could not determine home directory|Symlink loop", str(error)):
        return DiskUnusable(f"A path that was given leads nowhere: {first_line(error)}; check it (the name after ~, and links).")
    if isinstance(error, MemoryError):
        return DiskUnusable("There is not enough memory on this machine; free some, or look at fewer tables at once (--jobs).")
    return None


def _is_packaged(error: OSError) -> bool:
    """Whether it is one of icekit's own files that is missing."""
    return isinstance(error, FileNotFoundError) and error.filename is not None and _PACKAGE in Path(str(error.filename)).parents


def _of_system(error: OSError) -> IcekitError:
    detail = trace(error)
    if isinstance(error, ConnectionError):
        return SparkUnavailable(
            f"A connection broke ({type(error).__name__}: {first_line(error)}): Spark's process or the catalog is gone; try again.",
            detail=detail,
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return DiskUnusable(
            "Too many files are open at once; raise the limit (ulimit -n), or look at fewer tables at once (--jobs).", detail=detail
        )
    name = "A file or folder" if error.filename is None else str(error.filename)
    name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
    said = f"cannot be written or read: {error.strerror or first_line(error)}"
    what, then = _DISK.get(error.errno or 0, (said, f"check its disk, or {_ANOTHER}"))
    return DiskUnusable(f"{name} {what}; {then}.", detail=detail)


def _of_engine(error: BaseException) -> IcekitError | None:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    # A call that does not exist, or SQL that icekit wrote and Spark cannot read, is nobody else's fault: what a person states is
    # read, and refused, where it is stated.
    if not kinds & {"Py4JJavaError", "Py4JNetworkError", "CapturedException", "SparkConnectException"} or "ParseException" in kinds:
        return None
    if "AnalysisException" in kinds and _condition(error).startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE")):
        return None
    if "Py4JNetworkError" in kinds:
        return SparkUnavailable(
            "Spark's process has ended, or does not answer; try again, with more memory if it ran out of it.", detail=trace(error)
        )
    said = reason(error)
    for pattern, what, then in _OF_ENGINE:
        if re.search(pattern, text):
            return EngineFailed(f"{what[0].upper()}{what[1:]}: {said}; {then}.", detail=trace(error))
    return EngineFailed(f"Spark failed: {said}. Run again with --debug for details.", detail=trace(error))


def _condition(error: Any) -> str:
    """The name that Spark gives an error; its method has another name before Spark 4."""
    return str((error.getCondition if hasattr(error, "getCondition") else error.getErrorClass)() or "")
