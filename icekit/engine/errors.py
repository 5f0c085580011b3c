"""Translate errors of Spark, of its JVM or of Iceberg into a sentence and a kind of failure; and
recognize errors that came from outside icekit.
"""

import contextlib
import errno
import re
from collections.abc import Iterator
from typing import Any, Literal

from icekit.common.commands import command_line
from icekit.common.errors import (
    CatalogUnreachable,
    DiskUnusable,
    EngineFailed,
    IcekitError,
    MetadataUnreadable,
    NotATable,
    PermissionDenied,
    SparkUnavailable,
    TableNotFound,
    first_line,
    nearest,
    why,
)
from icekit.common.secrets import scrub
from icekit.common.sql import Identifier, display_name
from icekit.common.units import shorten

#: ``conflict``: the commit lost a race or its result is unknown, and a fresh plan may succeed.
# ``refused``: Iceberg refused to commit, which a fresh plan helps only if another commit was in
# the way. ``capacity``: the work was too large for the cluster, and smaller parts may succeed.
# ``other``: trying again does not help.
FailureKind = Literal["conflict", "refused", "capacity", "other"]

# Iceberg's own check, or the lack of one when the next manifest list is written.
_UNCOUNTED = re.compile(
    r"No file counts in manifest|data file counts are missing|AppendWriteException: "
    r"java\.lang\.NullPointerException"
)
# Java's classes, anywhere in the chain of causes. A commit whose outcome is not known is a conflict
# too: what it did is read from the table before it is retried. SQLite has one class for all its
# errors, and the code of each stands in the message.
_ICEBERG = "org.apache.iceberg.exceptions."
_CONFLICTS = frozenset(
    {f"{_ICEBERG}CommitFailedException", f"{_ICEBERG}CommitStateUnknownException"}
)
_REFUSED = f"{_ICEBERG}ValidationException"
_BUSY = re.compile(r"^org\.sqlite\.SQLiteException: \[SQLITE_(?:BUSY|LOCKED)", re.M)
# Spark has no class for most of these, so they are matched against the whole chain, with messages.
_CAPACITY = re.compile(
    r"OutOfMemoryError|SparkOutOfMemoryError|ExecutorLostFailure|ExecutorDeadException|Executor "
    r"heartbeat timed out|"
    r"Container killed|exceeding memory limits|FetchFailedException|No space left on "
    r"device|MemoryLimitExceeded|"
    r"cancelled because SparkContext was shut down unexpectedly|Total size of serialized results"
)


class CommitConflict(Exception):
    """Another commit has invalidated the basis of work that is about to be committed; it is tried
    again from the current table.
    """


def not_found(table: Identifier, known: list[Identifier], catalog: str = "") -> TableNotFound:
    """The error for a missing table, with near names, or the command that lists a catalog's."""
    if table in known:
        return without_metadata(table)
    name = display_name(table)
    near = nearest(name, [display_name(k) for k in known])
    listing = f"; list the tables with `{command_line('admin tables', catalog, [])}`."
    return TableNotFound(f"There is no table {name}{near or listing}")


def without_metadata(table: Identifier) -> TableNotFound:
    """The error for a table that the catalog lists and has no metadata file for."""
    return TableNotFound(
        f"The catalog lists {display_name(table)}, but gives no metadata file for it. Drop the "
        "entry and register the table again (register_table); some catalogs also answer like this "
        "to a user who may not read the table."
    )


def view_given(table: Identifier) -> NotATable:
    """The error for a view."""
    return NotATable(
        f"{display_name(table)} is a view. Give one of the tables that the view reads."
    )


# From Iceberg 1.12 on, a scan refuses a delete of one data file that is filed elsewhere.
_MISFILED = re.compile(
    r"Mismatched partition (?:specs|tuples) .{0,2000}?for delete file (\S+) and data file (\S+?):",
    re.S,
)
# The meaning of Iceberg's and Spark's exceptions: a pattern for class names, and for messages only
# if the class is not enough; what it is, and the sentence, whose numbers are the pattern's groups.
_Meanings = tuple[tuple[str | re.Pattern[str], type[IcekitError], str], ...]
_OF_TABLE: _Meanings = (
    (
        _MISFILED,
        MetadataUnreadable,
        "{0} deletes rows of {1}, but is filed under another partition or partition spec, so "
        "Iceberg 1.12 does not read {name}. Nothing was changed. Rewrite the data file with "
        "Iceberg 1.11, which applies the deletes (ICEKIT_ICEBERG=1.11.0).",
    ),
    (
        r"No FileSystem for scheme|UnsupportedFileSystemException|Class \S+FileSystem not found",
        SparkUnavailable,
        "Spark has no Hadoop file system for the location of {name} ({reason}). Configure a "
        "PyIceberg profile of the catalog under another name, or add hadoop-aws (or the library "
        "for your storage) to the session.",
    ),
    (
        r"Unable to load region",
        CatalogUnreachable,
        "Spark has no AWS region for {name}. Set s3.region in the profile, or AWS_REGION.",
    ),
    (
        # Spark cannot even plan REFRESH TABLE of an Iceberg view.
        r"is not an Iceberg table|No plan for RefreshTable|EXPECT_TABLE_NOT_VIEW|cannot be cast "
        r"to class org\.apache\.iceberg",
        NotATable,
        "{name} is a view or not an Iceberg table. Give an Iceberg table.",
    ),
    (
        r"NoSuchTableException|NoSuchNamespaceException|TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND",
        TableNotFound,
        "There is no table {name}; list the tables with `icekit admin tables`.",
    ),
    (
        r"ForbiddenException|NotAuthorizedException|AccessDenied|AccessControlException|status "
        r"code: 403|\(Service: S3, Status Code: 403",
        PermissionDenied,
        "Reading {name} is not permitted. Ask for read access to its catalog and location.",
    ),
    (
        r"iceberg\.exceptions\.NotFoundException|FileNotFoundException|NoSuchKeyException"
        r"|PATH_NOT_FOUND",
        MetadataUnreadable,
        "{missing} is missing, and {name} cannot be read without it. Restore the file, or roll "
        "back to an earlier snapshot.",
    ),
    (
        r"ConnectException|UnknownHostException|SocketTimeoutException|RESTException"
        r"|ServiceUnavailableException|UncheckedSQLException",
        CatalogUnreachable,
        "Spark cannot reach the catalog of {name}. Check the catalog's uri and the network.",
    ),
    (
        r"AvroRuntimeException|ChecksumException|InvalidAvroMagicException|RuntimeIOException"
        r"|UncheckedIOException|ZipException|EOFException|AvroTypeException|JsonParseException"
        r"|JsonEOFException|JsonMappingException|Cannot read unsupported version|Cannot parse "
        r"(?:missing|metadata|[\w-]+ from non-)|(?:must exist|is required) in format v\d",
        MetadataUnreadable,
        "A metadata file of {name} is corrupt ({reason}). Restore the file, or roll back to an "
        "earlier snapshot.",
    ),
)
_GONE = re.compile(
    r"(?:File does not exist|No such file|Failed to open|location does not exist)[^:]*: *(\S+)"
)


def explain(error: Exception, table: Identifier) -> Exception:
    """Turn an error from Spark or the JVM into one sentence; unknown errors are returned
    unchanged. The table is named with its catalog.
    """
    if isinstance(error, IcekitError):
        return error
    return _explained(_OF_TABLE, error, display_name(table[1:])) or error


@contextlib.contextmanager
def explaining(table: Identifier) -> Iterator[None]:
    """Raise what :func:`explain` makes of an error in the block."""
    try:
        yield
    except Exception as error:
        explained = explain(error, table)
        if explained is error:
            raise
        raise explained from error


def _explained(meanings: _Meanings, error: BaseException, name: str) -> IcekitError | None:
    """The first meaning that an engine's error has, of the table that it names; or None."""
    text = scrub(str(error))
    gone = _GONE.search(text)
    missing = gone[1] if gone else "a file of its metadata"
    for pattern, kind, sentence in meanings:
        if match := re.search(pattern, text):
            words = {"name": name, "reason": reason(error), "missing": missing}
            return kind(sentence.format(*match.groups(), **words))
    return None


def engine_errors() -> tuple[type[Exception], ...]:
    """The errors that Spark and the JVM raise, for an ``except`` that then uses :func:`reason`;
    none without PySpark.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    return PySparkException, Py4JError


def is_of_engine(error: BaseException) -> bool:
    """Whether Spark or the bridge to its JVM raised it; imports neither."""
    return any(
        kind.__module__.partition(".")[0] in {"py4j", "pyspark"} for kind in type(error).__mro__
    )


def reason(error: BaseException) -> str:
    """The cause in one line without secrets: the innermost Java exception with a message, because
    the outer ones say little.
    """
    text = scrub(str(error)).strip()
    # py4j's text has the whole chain, of which its own first line says nothing; PySpark's errors
    # say only the outermost.
    causes = re.findall(r"^(?:Caused by: |: )(\S.*)$", text, re.M) or _causes(error)[1:]
    if causes:
        line = next(
            (cause for cause in reversed(causes) if not cause.endswith(": None")), causes[-1]
        )
    elif not text or isinstance(error, IcekitError) or is_of_engine(error):
        line = text or type(error).__name__
    else:
        line = f"{type(error).__name__}: {text}"
    if _UNCOUNTED.search("\n".join([*causes, line])):
        return (
            "the snapshot's manifest list does not give the numbers of files of a manifest, and "
            "Iceberg needs them (finding unreadable_metadata)"
        )
    return line.split("\n", 1)[0].strip()[:300].rstrip(".;")


def complaint(error: BaseException) -> str:
    """Spark's objection to a person's own SQL: the first line of :func:`reason` without Java's
    packages and Spark's codes, and where a syntax error is.
    """
    line = re.sub(r"^(?:[\w$]+\.)+(\w+(?:Exception|Error))\b", r"\1", reason(error))
    line = re.split(r" SQLSTATE|\(line \d", re.sub(r"^\[[A-Z_.0-9]+\] ", "", line))[0].rstrip(". ")
    if position := re.search(r"\(line (\d+), pos (\d+)\)", str(error)):
        return f"{line} in line {position[1]}, column {int(position[2]) + 1}"
    return line


def kind_of(error: BaseException) -> FailureKind:
    """What kind of failure an engine's exception is, by its whole chain of causes."""
    text, classes = described(error), set(java_classes(error))
    if _MISFILED.search(text):
        return "other"
    if _CAPACITY.search(text):
        return "capacity"
    if isinstance(error, CommitConflict) or classes & _CONFLICTS or _BUSY.search(text):
        return "conflict"
    return "refused" if _REFUSED in classes else "other"


def java_classes(error: BaseException) -> tuple[str, ...]:
    """The class names of each of Java's exceptions, outermost first; of Spark Connect, which sends
    only a text, those that it names.
    """
    causes = _causes(error)
    if not causes and is_of_engine(error):
        return tuple(re.findall(r"\b(?:[a-z]\w*\.){2,}[A-Z]\w*(?:Exception|Error)\b", str(error)))
    return tuple(cause.split(":", 1)[0] for cause in causes)


def described(error: BaseException) -> str:
    """Class and message of every cause, one a line, without secrets."""
    return "\n".join(
        [scrub(f"{type(error).__name__}: {error}".split("\n\tat ", 1)[0]), *_causes(error)]
    )


def _causes(error: BaseException) -> list[str]:
    """Class and message of each of Java's exceptions, outermost first, without secrets."""
    causes: list[str] = []
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):  # the JVM is gone, or the origin is no Java exception
        while cause is not None and len(causes) < 20:
            causes.append(scrub(f"{cause.getClass().getName()}: {cause.getMessage()}"))
            cause = cause.getCause()
    return causes


# What SQLite says of a file, its disk and its other users (https://sqlite.org/rescode.html); all
# else is a wrong statement.
_OF_FILE = tuple(
    f"SQLITE_{name}"
    for name in ("CANTOPEN", "IOERR", "FULL", "READONLY", "CORRUPT", "NOTADB", "BUSY")
)
# What a system says of another machine; the errors of Python's own clients carry none of these.
_OF_NETWORK = {
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ENETDOWN,
    errno.EADDRNOTAVAIL,
}
# Modules by which catalogs and storages are reached; what they raise is said in their own words.
_CLIENTS = (
    "pyiceberg sqlalchemy requests urllib3 botocore s3fs gcsfs adlfs google azure aiohttp thrift "
    "socket ssl urllib.error"
).split()
# What of the engine's errors is about the session or the machine.
_OF_ENGINE: _Meanings = (
    _OF_TABLE[0],
    (
        r"No space left on device|DiskSpaceExceeded|Disk quota exceeded",
        EngineFailed,
        "Spark has no space left on a disk: {reason}; free some space, or set spark.local.dir.",
    ),
    (
        r"Read-only file system",
        EngineFailed,
        "Spark cannot write to a disk: {reason}; set spark.local.dir, or the table's location, to "
        "one that can be written.",
    ),
    (
        r"OutOfMemoryError|SparkOutOfMemory",
        EngineFailed,
        "Spark ran out of memory: {reason}; give it more memory (spark.driver.memory in "
        "ICEKIT_SPARK_CONF).",
    ),
    (
        r"Cannot find catalog plugin class|ClassNotFoundException|NoClassDefFoundError"
        r"|NoSuchMethodError",
        EngineFailed,
        "Spark lacks a class of Iceberg or of the storage, or has two versions of it: {reason}; "
        "let Spark fetch the packages (spark.jars.packages), or add the jars to the session.",
    ),
    (
        r"INVALID_CONF_VALUE|CANNOT_PARSE_TIME_ZONE|spark\.[\w.]+ (?:should|must)"
        r"|IllegalArgumentException: \S*spark\.",
        EngineFailed,
        "A setting of Spark is wrong: {reason}; correct it (ICEKIT_SPARK_CONF, or the session's "
        "configuration).",
    ),
    (r"", EngineFailed, "Spark failed: {reason}. Run again with --debug for details."),
)


def outside(error: BaseException) -> IcekitError | None:
    """What went wrong, in one sentence with the next step; None if only icekit itself can be at
    fault.
    """
    if isinstance(error, IcekitError):
        return error
    if is_of_engine(error):
        return _of_engine(error)
    if _is_of_client(error):
        return CatalogUnreachable(
            "Spark, the catalog, its storage or another server failed, or cannot be reached "
            f"({why(error)}). Check the profile and the network."
        )
    if isinstance(error, OSError):
        return _of_system(error)
    if getattr(error, "sqlite_errorname", "").startswith(_OF_FILE):
        return DiskUnusable(
            f"An SQLite file cannot be used: {first_line(error)}. Check its disk and its "
            "permissions."
        )
    if isinstance(error, RuntimeError) and re.match(
        "Could not determine home directory|Symlink loop", str(error)
    ):
        return DiskUnusable(
            f"A given path is invalid: {first_line(error)}. Check the path (the name after ~, and "
            "links)."
        )
    if isinstance(error, MemoryError):
        return DiskUnusable(
            "This machine does not have enough memory. Free some, or process fewer tables at once "
            "(--jobs)."
        )
    return None


def _is_of_client(error: BaseException) -> bool:
    """Whether what talks to a catalog or a storage raised it, or the system because of a host."""
    return (
        isinstance(error, (TimeoutError, ConnectionError))
        or any(
            f"{kind.__module__}.".startswith(f"{client}.")
            for kind in type(error).__mro__
            for client in _CLIENTS
        )
        or (isinstance(error, OSError) and error.errno in _OF_NETWORK)
    )


def _of_system(error: OSError) -> IcekitError:
    name = "A file or folder" if error.filename is None else shorten(str(error.filename), 200)
    return DiskUnusable(
        f"{name} cannot be written or read: {error.strerror or first_line(error)}. Check the path, "
        "its disk and its permissions, or choose another path."
    )


def _of_engine(error: BaseException) -> IcekitError | None:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # A call that does not exist, or SQL that icekit wrote and Spark cannot read, is nobody else's
    # fault: what a person states is read, and refused, where it is stated.
    if (
        not kinds
        & {"Py4JJavaError", "Py4JNetworkError", "CapturedException", "SparkConnectException"}
        or "ParseException" in kinds
    ):
        return None
    if re.match(r"\[UNRESOLVED_(?:COLUMN|ROUTINE)", str(error)):
        return None
    if "Py4JNetworkError" in kinds:
        return SparkUnavailable(
            "Spark's process has ended, or does not answer. Try again, with more memory if Spark "
            "ran out of memory."
        )
    return _explained(_OF_ENGINE, error, "the table")
