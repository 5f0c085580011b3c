"""Say what an error of Spark, of its JVM or of Iceberg means: for a person in a sentence, for a run as a kind of failure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Literal

from icekit.errors import (
    CatalogUnreachable,
    IcekitError,
    MetadataUnreadable,
    NotATable,
    PermissionDenied,
    SparkUnavailable,
    TableNotFound,
    nearest,
)
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name

#: ``conflict``: another commit was in the way, and a fresh plan may succeed. ``capacity``: it
#: was too large for the cluster, and a smaller one may succeed. ``other``: trying again is no use.
FailureKind = Literal["conflict", "capacity", "other"]

# What Iceberg's and Spark's exceptions mean to a person; matched against class names, and
# against messages only where no class tells.
_MISSING_TABLE = re.compile(r"NoSuchTableException|NoSuchNamespaceException|TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND")
_MISSING_FILE = re.compile(r"iceberg\.exceptions\.NotFoundException|FileNotFoundException|NoSuchKeyException|PATH_NOT_FOUND")
_FORBIDDEN = re.compile(
    r"ForbiddenException|NotAuthorizedException|AccessDenied|AccessControlException|status code: 403|\(Service: S3, Status Code: 403"
)
_CORRUPT = re.compile(
    r"AvroRuntimeException|ChecksumException|InvalidAvroMagicException|RuntimeIOException|UncheckedIOException|ZipException|EOFException|AvroTypeException"
    r"|JsonParseException|JsonEOFException|JsonMappingException|Cannot read unsupported version|Cannot parse (?:missing|metadata|[\w-]+ from non-)"
)
_UNREACHABLE = re.compile(
    r"ConnectException|UnknownHostException|SocketTimeoutException|RESTException|ServiceUnavailableException|UncheckedSQLException"
)
# Spark cannot even plan REFRESH TABLE of an Iceberg view.
_NOT_ICEBERG = re.compile(
    r"is not an Iceberg table|No plan for RefreshTable|EXPECT_TABLE_NOT_VIEW|cannot be cast to class org\.apache\.iceberg"
)


_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|UnsupportedFileSystemException|Class \S+FileSystem not found")
# Matched against the class names and messages of the whole chain of causes. A commit whose
# outcome is not known is a conflict too: what it did is read from the table before it is retried.
_CONFLICT = re.compile(
    r"CommitFailedException|CommitStateUnknownException|iceberg\.exceptions\.ValidationException|"
    r"rewrite commits failed|SQLITE_BUSY|CommitConflict|Cannot commit|Snapshot \d+ is not an ancestor of"
)
_CAPACITY = re.compile(
    r"OutOfMemoryError|SparkOutOfMemoryError|ExecutorLostFailure|ExecutorDeadException|Executor heartbeat timed out|"
    r"Container killed|exceeding memory limits|FetchFailedException|No space left on device|MemoryLimitExceeded|"
    r"cancelled because SparkContext was shut down unexpectedly|Total size of serialized results"
)


def not_found(table: Identifier, known: list[Identifier]) -> TableNotFound:
    """The error for a missing table, with near names."""
    name = display_name(table)
    near = nearest(name, [display_name(k) for k in known])
    if not near and (siblings := [display_name(k) for k in known if k[:-1] == table[:-1]]):
        near = f"; {display_name(table[:-1])} holds {', '.join(siblings[:8])}{', …' if len(siblings) > 8 else ''}."
    return TableNotFound(f"There is no table {name}{near or '; list them with `icekit tables`.'}")


def view_given(table: Identifier) -> NotATable:
    """The error for a view."""
    return NotATable(f"{display_name(table)} is a view; give one of the tables that it reads.")


def explain(error: Exception, table: Identifier, names: Callable[[], list[Identifier]] | None = None) -> Exception:
    """Turn what Spark or the JVM raised into one sentence; unknown errors come back as they are."""
    text = scrub(str(error))
    name = display_name(table[1:])
    first = reason(error)
    if isinstance(error, IcekitError):
        return error
    if _NO_FILE_SYSTEM.search(text):
        return SparkUnavailable(
            f"Spark has no Hadoop file system for the location of {name} ({first}); "
            "configure a pyiceberg profile of the catalog under another name, or add hadoop-aws (or its like) to the session.",
            detail=text,
        )
    if "Unable to load region" in text:
        return CatalogUnreachable(f"Spark knows no AWS region for {name}; set s3.region in the profile, or AWS_REGION.", detail=text)
    if _NOT_ICEBERG.search(text):
        return NotATable(f"{name} is a view or not an Iceberg table; give an Iceberg table.", detail=text)
    if _MISSING_TABLE.search(text):
        known: list[Identifier] = []
        with contextlib.suppress(Exception):
            known = names() if names else []
        return not_found(table[1:], known)
    if _FORBIDDEN.search(text):
        return PermissionDenied(f"Reading {name} is not permitted; ask for read access to its catalog and location.", detail=text)
    if _MISSING_FILE.search(text):
        gone = re.search(r"(?:File does not exist|No such file|Failed to open|location does not exist)[^:]*: *(\S+)", text)
        what = gone[1] if gone else "a file of its metadata"
        return MetadataUnreadable(
            f"{what} is gone, and {name} cannot be read without it; restore it, or roll back to a snapshot before it.", detail=text
        )
    if _UNREACHABLE.search(text):
        return CatalogUnreachable(f"The catalog of {name} cannot be reached by Spark; check its uri and the network.", detail=text)
    if _CORRUPT.search(text):
        return MetadataUnreadable(
            f"A metadata file of {name} is corrupt ({first}); restore it, or roll back to a snapshot before it.", detail=text
        )
    return error


def engine_errors() -> tuple[type[Exception], ...]:
    """What Spark and the JVM raise, for an ``except`` that goes on with :func:`reason`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def is_of_engine(error: BaseException) -> bool:
    """Tell whether Spark or the bridge to its JVM raised it; imports neither."""
    return any(kind.__module__.partition(".")[0] in {"py4j", "pyspark"} for kind in type(error).__mro__)


def reason(error: BaseException) -> str:
    """What went wrong, in a line without secrets: the innermost of Java's exceptions that says something, as the outer ones seldom do."""
    text = scrub(str(error)).strip()
    # py4j's text has the whole chain, of which its own first line says nothing; PySpark's errors say only the outermost.
    causes = re.findall(r"^(?:Caused by: |: )(\S.*)$", text, re.M) or _causes(error)[1:]
    if causes:
        line = next((cause for cause in reversed(causes) if not cause.endswith(": None")), causes[-1])
    elif not text or isinstance(error, IcekitError) or is_of_engine(error):
        line = text or type(error).__name__
    else:
        line = f"{type(error).__name__}: {text}"
    return line.split("\n", 1)[0].strip()[:300].rstrip(".;")


def first_sentence(error: BaseException) -> str:
    """The first sentence of :func:`reason`, without Java's packages and Spark's codes."""
    line = re.sub(r"^(?:[\w$]+\.)+(\w+(?:Exception|Error))\b", r"\1", reason(error))
    return re.sub(r"^\[[A-Z_.0-9]+\] ", "", line).split(" SQLSTATE")[0].split(". ")[0].rstrip(". ")


def kind_of(error: BaseException) -> FailureKind:
    """What kind of failure an engine's exception is, by its whole chain of causes."""
    text = described(error)
    if _CAPACITY.search(text):
        return "capacity"
    return "conflict" if _CONFLICT.search(text) else "other"


def described(error: BaseException) -> str:
    """Class and message of every cause, one a line, without secrets."""
    return "\n".join([scrub(f"{type(error).__name__}: {error}".split("\n\tat ", 1)[0]), *_causes(error)])


def _causes(error: BaseException) -> list[str]:
    """Class and message of each of Java's exceptions, outermost first, without secrets."""
    found: list[str] = []
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):  # the JVM is gone, or the origin is no Java exception
        while cause is not None and len(found) < 20:
            found.append(scrub(f"{cause.getClass().getName()}: {cause.getMessage()}"))
            cause = cause.getCause()
    return found
