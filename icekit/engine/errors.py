"""Translate errors of Spark, of its JVM or of Iceberg into a sentence and a kind of failure; and
tell errors that came from outside icekit.
"""

import contextlib
import errno
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from icekit.common.command_line import command_line
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
    missing_extra,
    name_suggestion,
    why,
)
from icekit.common.secrets import scrub
from icekit.common.sql import Identifier, display_name
from icekit.common.units import shorten
from icekit.engine.causes import (
    TASK,
    Cause,
    ExceptionPattern,
    causes_of,
    is_engine_error,
    match_any,
)

#: ``conflict``: the commit lost a race or its result is unknown, and a fresh plan may succeed.
# ``unreachable``: the catalog or the storage did not answer, and the next attempt may succeed.
# ``refused``: Iceberg refused to commit, which a fresh plan helps if something else was in the way.
# ``capacity``: the work was too large for the cluster, and smaller parts may succeed. ``full``: a
# disk has no space left, on which smaller parts fail, too. ``other``: trying again does not help.
FailureKind = Literal["conflict", "unreachable", "refused", "capacity", "full", "other"]

_ICEBERG = "org.apache.iceberg.exceptions."
# A commit whose outcome is not known is a conflict too: what it did is read from the table before
# it is retried.
_CONFLICTS = frozenset(
    {f"{_ICEBERG}CommitFailedException", f"{_ICEBERG}CommitStateUnknownException"}
)
_REFUSED = f"{_ICEBERG}ValidationException"


#: What to do where Iceberg cannot read its metadata tables because the column of a partition field
# was dropped: the ids in them are counted on from the newest field whose column is left.
ADD_A_FIELD = (
    "Add a partition field by a column that is left, and drop it again, which changes no file "
    "(ALTER TABLE … ADD PARTITION FIELD bucket(2, column) AS unused, then ALTER TABLE … DROP "
    "PARTITION FIELD unused)"
)


class CommitConflict(Exception):
    """Another commit has invalidated the basis of work that is about to be committed; it is tried
    again from the current table.
    """


def not_found_error(
    table: Identifier, existing_tables: list[Identifier], catalog: str = ""
) -> TableNotFound:
    """The error for a missing table, with near names, or the command that lists a catalog's."""
    if table in existing_tables:
        return no_metadata_error(table)
    table_name = display_name(table)
    suggestion = name_suggestion(table_name, [display_name(k) for k in existing_tables])
    listing_advice = f"; list the tables with `{command_line('admin tables', catalog, [])}`."
    return TableNotFound(f"There is no table {table_name}{suggestion or listing_advice}")


def no_metadata_error(table: Identifier) -> TableNotFound:
    """The error for a table that the catalog lists and has no metadata file for."""
    return TableNotFound(
        f"The catalog lists {display_name(table)}, but gives no metadata file for it. Drop the "
        "entry and register the table again (register_table); some catalogs also answer like this "
        "to a user who may not read the table."
    )


def view_error(table: Identifier) -> NotATable:
    """The error for a view."""
    return NotATable(
        f"{display_name(table)} is a view. Give one of the tables that the view reads."
    )


_ABORTED = rf"(?:Job aborted due to stage failure: (?:{TASK})?)?"
# The checks of Iceberg and of the JDK have one class for all that is wrong with what they are
# given.
_CHECKS = ("IllegalArgumentException", "IllegalStateException", "ValidationException")
_EXECUTOR_LOST = (
    "ExecutorDeadException",
    "FetchFailedException",
    "MetadataFetchFailedException",
    "MemoryLimitExceeded",
)
_FILE_GONE = (
    f"{_ICEBERG}NotFoundException",
    "FileNotFoundException",
    "NoSuchKeyException",
    "NoSuchFileException",
)
_UNREACHABLE = (
    "ConnectException",
    "UnknownHostException",
    "SocketTimeoutException",
    "RESTException",
    "ServiceUnavailableException",
    "UncheckedSQLException",
)
_NO_ANSWER = ExceptionPattern(
    (
        "ConnectException",
        "ConnectTimeoutException",
        "ConnectionClosedException",
        "NoHttpResponseException",
        "NoRouteToHostException",
        "SocketException",
        "SocketTimeoutException",
        "UnknownHostException",
        "java.net.http.HttpTimeoutException",
        "java.sql.SQLTimeoutException",
        "java.sql.SQLTransientConnectionException",
        "javax.net.ssl.SSLException",
        "org.apache.thrift.transport.TTransportException",
        "software.amazon.awssdk.core.exception.ApiCallAttemptTimeoutException",
        "software.amazon.awssdk.core.exception.ApiCallTimeoutException",
        f"{_ICEBERG}RESTException",
        f"{_ICEBERG}ServiceFailureException",
        f"{_ICEBERG}ServiceUnavailableException",
    )
)
_CORRUPT = (
    "AvroRuntimeException",
    "AvroTypeException",
    "InvalidAvroMagicException",
    "ChecksumException",
    "RuntimeIOException",
    "UncheckedIOException",
    "ZipException",
    "EOFException",
    "JsonParseException",
    "JsonEOFException",
    "JsonMappingException",
)
_BUSY = ExceptionPattern(
    ("org.sqlite.SQLiteException",), message_pattern=r"\[SQLITE_(?:BUSY|LOCKED).*"
)
_NO_SPACE = ExceptionPattern(
    ("IOException", "FSError", "FileSystemException"),
    message_pattern=r"(?:.*: )?(?:No space left on device|Disk quota exceeded)\.?",
)
_NO_MEMORY = ExceptionPattern(("OutOfMemoryError", "SparkOutOfMemoryError"))
# Spark makes an error of memory of one of a disk, without its cause.
_NO_SPACE_TO_SPILL = ExceptionPattern(
    ("SparkOutOfMemoryError",),
    message_pattern=r"(?:\[SPILL_OUT_OF_MEMORY\] )?[Ee]rror while calling spill\(\) on .* : "
    r"(?:No space left on device|Disk quota exceeded).*",
)
_FULL = match_any(
    _NO_SPACE,
    _NO_SPACE_TO_SPILL,
    ExceptionPattern(
        ("DiskOutOfSpaceException", "DSQuotaExceededException", "QuotaExceededException")
    ),
)
_CAPACITY = match_any(
    _NO_MEMORY,
    ExceptionPattern(_EXECUTOR_LOST),
    # Spark has one class for a job's end, and a format for each reason.
    ExceptionPattern(
        ("SparkException",),
        message_pattern=_ABORTED
        + r"(?:ExecutorLostFailure \(executor .*|FetchFailed\(.*|Executor heartbeat timed out .*"
        r"|Total size of serialized results .*)",
    ),
    ExceptionPattern(
        ("SparkException",),
        message_pattern=r"Job \d+ cancelled because SparkContext was shut down unexpectedly.*",
    ),
    ExceptionPattern(
        ("SparkException",),
        message_pattern=r"Job aborted due to stage failure: ShuffleMapStage \d+ .{0,500}? has failed "
        r"the maximum allowable number of times: \d+\..*",
    ),
)
# Iceberg's own check, or the lack of one when the next manifest list is written.
_UNCOUNTED = match_any(
    ExceptionPattern(
        _CHECKS,
        message_pattern=r"(?:No file counts in manifest|.{0,100}data file counts are missing).*",
    ),
    ExceptionPattern(
        ("AppendWriteException",), message_pattern=r"java\.lang\.NullPointerException.*"
    ),
)
# From Iceberg 1.12 on, a scan refuses a delete of one data file that is filed elsewhere.
_MISFILED = ExceptionPattern(
    _CHECKS,
    message_pattern=r"Mismatched partition (?:specs|tuples) .{0,2000}?for delete file (\S+) and "
    r"data file (\S+?):.*",
)
# A metadata table where the id of a field whose column was dropped is now that of another one.
_HIDDEN_FILES = ExceptionPattern(
    _CHECKS, message_pattern=r"Cannot partition by non-primitive source field: struct<.*"
)
_GONE = ExceptionPattern(
    _FILE_GONE,
    ("PATH_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST"),
)
# The meaning of Iceberg's and Spark's exceptions: what they are recognized by; what they are; and
# the sentence, whose numbers are the groups of the format.
_Meanings = tuple[
    tuple[Callable[[Sequence[Cause]], re.Match[str] | None], type[IcekitError], str], ...
]
_OF_TABLE: _Meanings = (
    (
        _MISFILED.first_match,
        MetadataUnreadable,
        "{0} deletes rows of {1}, but is filed under another partition or partition spec, so "
        "Iceberg 1.12 does not read {name}. Nothing was changed. Rewrite the data file with "
        "Iceberg 1.11, which applies the deletes (ICEKIT_ICEBERG=1.11.0).",
    ),
    (
        _HIDDEN_FILES.first_match,
        EngineFailed,
        "Iceberg cannot read the metadata tables of {name}, because the column of a partition "
        f"field was dropped. {ADD_A_FIELD}.",
    ),
    (
        match_any(
            ExceptionPattern(("UnsupportedFileSystemException",)),
            ExceptionPattern(("IOException",), message_pattern="No FileSystem for scheme.*"),
            ExceptionPattern(
                ("RuntimeException", "ClassNotFoundException"),
                message_pattern=r"(?:java\.lang\.ClassNotFoundException: )?Class \S+FileSystem not found",
            ),
        ),
        SparkUnavailable,
        "Spark has no Hadoop file system for the location of {name} ({reason}). Configure a "
        "PyIceberg profile of the catalog under another name, or add hadoop-aws (or the library "
        "for your storage) to the session.",
    ),
    (
        ExceptionPattern(
            ("SdkClientException",), message_pattern="Unable to load region.*"
        ).first_match,
        CatalogUnreachable,
        "Spark has no AWS region for {name}. Set s3.region in the profile, or AWS_REGION.",
    ),
    (
        match_any(
            ExceptionPattern(("NoSuchIcebergTableException",), ("EXPECT_TABLE_NOT_VIEW",)),
            ExceptionPattern(_CHECKS, message_pattern=r".{1,2000} is not an Iceberg table\.?"),
            # Spark cannot even plan REFRESH TABLE of an Iceberg view.
            ExceptionPattern(
                ("AssertionError",), message_pattern="assertion failed: No plan for RefreshTable.*"
            ),
            ExceptionPattern(
                ("ClassCastException",),
                message_pattern=r"class \S+ cannot be cast to class org\.apache\.iceberg.*",
            ),
        ),
        NotATable,
        "{name} is a view or not an Iceberg table. Give an Iceberg table.",
    ),
    (
        ExceptionPattern(
            ("NoSuchTableException", "NoSuchNamespaceException"),
            ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"),
        ).first_match,
        TableNotFound,
        "There is no table {name}; list the tables with `icekit admin tables`.",
    ),
    (
        match_any(
            ExceptionPattern(
                ("ForbiddenException", "NotAuthorizedException", "AccessDeniedException")
            ),
            ExceptionPattern(("AccessControlException",)),
            # The clients of AWS put the number of the answer at the end.
            ExceptionPattern(
                ("S3Exception", "GlueException", "StsException", "ServiceException"),
                message_pattern=r".*\(Service: [^()]{1,50}[,;] Status Code: 403\b[^()]*\).*",
            ),
        ),
        PermissionDenied,
        "Reading {name} is not permitted. Ask for read access to its catalog and location.",
    ),
    (
        _GONE.first_match,
        MetadataUnreadable,
        "{missing} is missing, and {name} cannot be read without it. Restore the file, or roll "
        "back to an earlier snapshot.",
    ),
    (
        ExceptionPattern(_UNREACHABLE).first_match,
        CatalogUnreachable,
        "Spark cannot reach the catalog of {name}. Check the catalog's uri and the network.",
    ),
    (
        ExceptionPattern(
            (*_CHECKS, "UnsupportedOperationException"),
            message_pattern=r"Cannot read unsupported version (\d+).*",
        ).first_match,
        MetadataUnreadable,
        "{name} has format version {0}, which this session's Iceberg does not read. Use a newer "
        "iceberg-spark-runtime (ICEKIT_ICEBERG).",
    ),
    (
        match_any(
            ExceptionPattern(_CORRUPT),
            ExceptionPattern(
                (*_CHECKS, "UnsupportedOperationException"),
                message_pattern=r"Cannot parse (?:missing|metadata|[\w-]+ from non-).*"
                r"|.{1,500}(?:must exist|is required) in format v\d.*",
            ),
        ),
        MetadataUnreadable,
        "A metadata file of {name} is corrupt ({reason}). Restore the file, or roll back to an "
        "earlier snapshot.",
    ),
)
_PATH = re.compile(
    r"(?:File does not exist|No such file|Failed to open|location does not exist)[^:]*: *(\S+)"
)


def explain(error: Exception, table: Identifier) -> Exception:
    """Turn an error from Spark or the JVM into one sentence; unknown errors are returned
    unchanged. The table is named with its catalog.
    """
    if isinstance(error, IcekitError):
        return error
    return _first_meaning(_OF_TABLE, error, display_name(table[1:])) or error


@contextlib.contextmanager
def explain_errors(table: Identifier) -> Iterator[None]:
    """Raise what :func:`explain` makes of an error in the block."""
    try:
        yield
    except Exception as error:
        explained_error = explain(error, table)
        if explained_error is error:
            raise
        raise explained_error from error


def _first_meaning(
    meanings: _Meanings, error: BaseException, table_name: str
) -> IcekitError | None:
    """The first meaning that an engine's error has, of the table that it names; or None."""
    causes = causes_of(error)
    path_matches = (_PATH.search(cause.message) for cause in causes if _GONE.match(cause))
    missing_path = next(
        (path_match[1] for path_match in path_matches if path_match), "a file of its metadata"
    )
    for match_causes, error_class, sentence_format in meanings:
        if format_match := match_causes(causes):
            sentence_values = {"name": table_name, "reason": reason(error), "missing": missing_path}
            return error_class(sentence_format.format(*format_match.groups(), **sentence_values))
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


def reason(error: BaseException) -> str:
    """The cause in one line without secrets: the innermost Java exception with a message, because
    the outer ones say little.
    """
    error_text = scrub(str(error)).strip()
    # py4j's text has the whole chain, of which its own first line says nothing; PySpark's errors
    # say only the outermost.
    cause_lines = re.findall(r"^(?:Caused by: |: )(\S.*)$", error_text, re.M) or [
        *map(str, causes_of(error)[1:])
    ]
    if cause_lines:
        reason_line = next(
            (cause for cause in reversed(cause_lines) if not cause.endswith(": None")),
            cause_lines[-1],
        )
    elif not error_text or isinstance(error, IcekitError) or is_engine_error(error):
        reason_line = error_text or type(error).__name__
    else:
        reason_line = f"{type(error).__name__}: {error_text}"
    if _UNCOUNTED(causes_of(error)):
        return (
            "the snapshot's manifest list does not give the numbers of files of a manifest, and "
            "Iceberg needs them (finding unreadable_metadata)"
        )
    if _HIDDEN_FILES.first_match(causes_of(error)):
        return (
            "Iceberg cannot read the table's metadata tables, because the column of a partition "
            f"field was dropped. {ADD_A_FIELD}"
        )
    return str(reason_line).split("\n", 1)[0].strip()[:300].rstrip(".;")


def complaint(error: BaseException) -> str:
    """Spark's objection to a person's own SQL: the first line of :func:`reason` without Java's
    packages and Spark's codes, and where a syntax error is.
    """
    complaint_line = re.sub(r"^(?:[\w$]+\.)+(\w+(?:Exception|Error))\b", r"\1", reason(error))
    complaint_line = re.split(
        r" SQLSTATE|\(line \d", re.sub(r"^\[[A-Z_.0-9]+\] ", "", complaint_line)
    )[0].rstrip(". ")
    if position_match := re.search(r"\(line (\d+), pos (\d+)\)", str(error)):
        return f"{complaint_line} in line {position_match[1]}, column {int(position_match[2]) + 1}"
    return complaint_line


def failure_kind(error: BaseException) -> FailureKind:
    """What kind of failure an engine's exception is, by its whole chain of causes."""
    causes = causes_of(error)
    class_names = {cause.class_name for cause in causes}
    if _MISFILED.first_match(causes) or _HIDDEN_FILES.first_match(causes):
        return "other"
    if _FULL(causes):
        return "full"
    if _CAPACITY(causes):
        return "capacity"
    if isinstance(error, CommitConflict) or class_names & _CONFLICTS or _BUSY.first_match(causes):
        return "conflict"
    if _REFUSED in class_names:
        return "refused"
    return "unreachable" if _NO_ANSWER.first_match(causes) else "other"


def is_file_gone(error: BaseException) -> bool:
    """Whether an engine's error says that a file does not exist."""
    return _GONE.first_match(causes_of(error)) is not None


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
        _NO_SPACE.first_match,
        EngineFailed,
        "Spark has no space left on a disk: {reason}; free some space, or set spark.local.dir.",
    ),
    (
        ExceptionPattern(
            ("IOException", "FileSystemException", "FileNotFoundException"),
            message_pattern=r"(?:.*[: (])?Read-only file system\)?",
        ).first_match,
        EngineFailed,
        "Spark cannot write to a disk: {reason}; set spark.local.dir, or the table's location, to "
        "one that can be written.",
    ),
    (
        _NO_MEMORY.first_match,
        EngineFailed,
        "Spark ran out of memory: {reason}; give it more memory (spark.driver.memory in "
        "ICEKIT_SPARK_CONF).",
    ),
    (
        match_any(
            ExceptionPattern(
                ("ClassNotFoundException", "NoClassDefFoundError", "NoSuchMethodError")
            ),
            ExceptionPattern(
                ("SparkException",), message_pattern=".{0,100}Cannot find catalog plugin class.*"
            ),
        ),
        EngineFailed,
        "Spark lacks a class of Iceberg or of the storage, or has two versions of it: {reason}; "
        "let Spark fetch the packages (spark.jars.packages), or add the jars to the session.",
    ),
    (
        match_any(
            ExceptionPattern(condition_prefixes=("INVALID_CONF_VALUE", "CANNOT_PARSE_TIME_ZONE")),
            ExceptionPattern(
                _CHECKS,
                message_pattern=r"\S*spark\.\S.*|.{0,500}?\bspark\.[\w.]+'? (?:should|must) .*",
            ),
        ),
        EngineFailed,
        "A setting of Spark is wrong: {reason}; correct it (ICEKIT_SPARK_CONF, or the session's "
        "configuration).",
    ),
    (
        lambda _: re.match("", ""),
        EngineFailed,
        "Spark failed: {reason}. Run again with --debug for details.",
    ),
)


def environment_error(error: BaseException) -> IcekitError | None:
    """What went wrong, in one sentence with the next step; None if only icekit itself can be at
    fault.
    """
    if isinstance(error, IcekitError):
        return error
    if (missing_library_error := missing_extra(error)) is not None:
        return missing_library_error
    if is_engine_error(error):
        return _engine_error(error)
    if _is_client_error(error):
        return CatalogUnreachable(
            "Spark, the catalog, its storage or another server failed, or cannot be reached "
            f"({why(error)}). Check the profile and the network."
        )
    if isinstance(error, OSError):
        return _system_error(error)
    if getattr(error, "sqlite_errorname", "").startswith(_OF_FILE):
        return DiskUnusable(
            f"An SQLite file cannot be used: {first_line(error)}. Check its disk and its "
            "permissions."
        )
    # Of pathlib, which has no class for them.
    if isinstance(error, RuntimeError) and re.fullmatch(
        r"Could not determine home directory\.|Symlink loop from .*", str(error), re.S
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


def _is_client_error(error: BaseException) -> bool:
    """Whether what talks to a catalog or a storage raised it, or the system because of a host."""
    return (
        isinstance(error, (TimeoutError, ConnectionError))
        or any(
            f"{error_class.__module__}.".startswith(f"{client_module}.")
            for error_class in type(error).__mro__
            for client_module in _CLIENTS
        )
        or (isinstance(error, OSError) and error.errno in _OF_NETWORK)
    )


def _system_error(error: OSError) -> IcekitError:
    path_text = "A file or folder" if error.filename is None else shorten(str(error.filename), 200)
    return DiskUnusable(
        f"{path_text} cannot be written or read: {error.strerror or first_line(error)}. Check the "
        "path, its disk and its permissions, or choose another path."
    )


def _engine_error(error: BaseException) -> IcekitError | None:
    class_names = {error_class.__name__ for error_class in type(error).__mro__}
    # A call that does not exist, or SQL that icekit wrote and Spark cannot read, is nobody else's
    # fault: what a person states is read, and refused, where it is stated.
    if (
        not class_names
        & {"Py4JJavaError", "Py4JNetworkError", "CapturedException", "SparkConnectException"}
        or "ParseException" in class_names
    ):
        return None
    if ExceptionPattern(condition_prefixes=("UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE")).first_match(
        causes_of(error)
    ):
        return None
    if "Py4JNetworkError" in class_names:
        return SparkUnavailable(
            "Spark's process has ended, or does not answer. Try again, with more memory if Spark "
            "ran out of memory."
        )
    return _first_meaning(_OF_ENGINE, error, "the table")
