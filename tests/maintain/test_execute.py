"""What kind of failure an engine's exception is, by its whole chain of causes."""

from __future__ import annotations

from typing import Any

import pytest

from icekit.common import secrets
from icekit.common.errors import (
    CatalogUnreachable,
    MetadataUnreadable,
    NotATable,
    PermissionDenied,
    SparkUnavailable,
    TableNotFound,
)
from icekit.engine.causes import causes_of, raise_error_messages
from icekit.engine.errors import CommitConflict, FailureKind, explain, failure_kind, reason
from icekit.engine.interrupting import Stop, Stopped
from icekit.maintain.run.execute import execute


class JavaError:
    """Answers what py4j asks of a Java exception."""

    def __init__(self, name: str, message: str | None, cause: JavaError | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> JavaError:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def getCause(self) -> JavaError | None:  # noqa: N802
        return self._cause


def raised(message: str, *chain: tuple[str, str | None]) -> Exception:
    """A Python exception over a chain of Java ones, outermost first."""
    cause: JavaError | None = None
    for name, text in reversed(chain):
        cause = JavaError(name, text, cause)
    error: Any = RuntimeError(message)
    error.java_exception = cause
    return error  # type: ignore[no-any-return]


def of_engine(*chain: tuple[str, str | None]) -> Exception:
    """The same as an error of PySpark's."""
    from pyspark.errors import PySparkException

    error: Any = PySparkException("An error occurred while calling o99.execute")
    error.java_exception = raised("", *chain).java_exception  # type: ignore[attr-defined]
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ([("org.apache.iceberg.exceptions.CommitFailedException", "Cannot commit: metadata location has changed")], "conflict"),
        ([("org.apache.iceberg.exceptions.CommitStateUnknownException", "Read timed out")], "conflict"),
        ([("org.apache.iceberg.exceptions.ValidationException", "Missing required files to delete: a.parquet")], "refused"),
        ([("org.apache.spark.SparkException", None), ("org.apache.iceberg.exceptions.ValidationException", None)], "refused"),
        ([("java.lang.IllegalStateException", "Cannot commit transaction: CommitConflict, rewrite commits failed")], "other"),
        ([("org.sqlite.SQLiteException", "[SQLITE_CORRUPT] The database disk image is malformed")], "other"),
        ([("java.lang.RuntimeException", None), ("org.sqlite.SQLiteException", "[SQLITE_BUSY] The database file is locked")], "conflict"),
        ([("org.apache.spark.SparkException", "Job aborted"), ("java.lang.OutOfMemoryError", "Java heap space")], "capacity"),
        # Running out of memory outweighs the commit that it broke.
        ([("org.apache.iceberg.exceptions.CommitFailedException", "commit failed"), ("java.lang.OutOfMemoryError", "GC overhead")], "capacity"),
        ([("org.apache.spark.SparkException", "ExecutorLostFailure (executor 3 exited): Container killed by YARN for exceeding " "memory limits")], "capacity"),
        ([("org.apache.spark.shuffle.FetchFailedException", "Connection reset")], "capacity"),
        ([("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 12) (10.0.0.1 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Executor heartbeat timed out after 139 ms")], "capacity"),
        ([("org.apache.spark.SparkException", "Job aborted due to stage failure: Total size of serialized results of 8 tasks (1025.0 MiB) is bigger than spark.driver.maxResultSize")], "capacity"),
        ([("java.io.IOException", "No space left on device")], "full"),
        ([("org.apache.spark.SparkException", "Task failed"), ("java.nio.file.FileSystemException", "/data/t/1.parquet: No space left on device")], "full"),
        ([("org.apache.hadoop.fs.FSError", "java.io.IOException: No space left on device")], "full"),
        ([("org.apache.spark.SparkException", "Job aborted"), ("org.apache.spark.memory.SparkOutOfMemoryError", "error while calling spill() on org.apache.spark.UnsafeExternalSorter@1f : No space left on device")], "full"),
        ([("org.apache.spark.memory.SparkOutOfMemoryError", "[SPILL_OUT_OF_MEMORY] Error while calling spill() on org.apache.spark.UnsafeExternalSorter@1f : No space left on device SQLSTATE: 82003")], "full"),
        # A path or a value may say anything.
        ([("org.apache.iceberg.exceptions.NotFoundException", "File does not exist: /t/OutOfMemoryError No space left on device/1.parquet")], "other"),
        ([("java.io.IOException", "Cannot open /t/No space left on device/1.parquet")], "other"),
        ([("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 1) (a executor driver): java.lang.IllegalArgumentException: ExecutorLostFailure ")], "other"),
        ([("java.net.SocketTimeoutException", "Read timed out")], "unreachable"),
        ([("org.apache.iceberg.exceptions.RESTException", "Error occurred while processing GET request"), ("java.net.SocketException", "Connection reset")], "unreachable"),
        ([("org.apache.iceberg.exceptions.NotFoundException", "File does not exist: /t/data/00000.parquet")], "other"),
        ([("java.lang.IllegalArgumentException", "Cannot use options [x], they are not supported")], "other"),
        ([("org.apache.hadoop.security.AccessControlException", "Permission denied")], "other"),
    ],
)  # fmt: skip
def test_failures_are_distinguished_by_class(
    chain: list[tuple[str, str | None]], kind: FailureKind
) -> None:
    assert failure_kind(raised("An error occurred while calling o99.execute", *chain)) == kind


def test_of_a_failure_over_spark_connect_there_is_only_a_text_that_names_the_class() -> None:
    from pyspark.errors import PySparkException

    said = (
        "(org.apache.iceberg.exceptions.CommitFailedException) Cannot commit to a table whose "
        "name says ValidationException"
    )

    assert failure_kind(PySparkException(said)) == "conflict"
    assert (
        failure_kind(PySparkException("a.b.c is no class, and CommitFailedException no package"))
        == "other"
    )


ANALYSIS = "org.apache.spark.sql.catalyst.ExtendedAnalysisException"
# SQL, paths and names of people, with words that other errors have for their classes.
HOSTILE = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `OutOfMemoryError` cannot be resolved. "
    "Did you mean `ConnectException`, `[TABLE_OR_VIEW_NOT_FOUND] x`?;\n'Project "
    "[raise_error(concat(icekit: ruled out for a file, f))]\n+- SubqueryAlias "
    "lake.AccessDenied.FileNotFoundException\n   +- s3://b/No space left on device/status code: "
    "403/ExecutorLostFailure (executor 1/Mismatched partition specs 1 for delete file a and data "
    "file b: c/spark.sql.x must be/No plan for RefreshTable is not an Iceberg table at all"
)


def test_words_in_the_text_of_an_error_are_not_taken_for_the_error() -> None:
    error = raised(f"An error occurred\n: {HOSTILE}", (ANALYSIS, HOSTILE))

    assert failure_kind(error) == "other"
    assert explain(error, ("lake", "db", "t")) is error
    for name in ("java.lang.IllegalArgumentException", "org.apache.spark.SparkException"):
        error = raised(f"An error occurred\n: {HOSTILE}", (name, f"odd: {HOSTILE}"))
        assert failure_kind(error) == "other"
        assert explain(error, ("lake", "db", "t")) is error
        assert raise_error_messages(error) == []


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (("org.apache.iceberg.exceptions.NoSuchTableException", "Table does not exist: db.t"), TableNotFound),
        ((ANALYSIS, "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found."), TableNotFound),
        (("org.apache.spark.sql.AnalysisException", "[EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE] 'x' expects"), NotATable),
        (("java.lang.AssertionError", "assertion failed: No plan for RefreshTable [], db.v"), NotATable),
        (("java.lang.IllegalArgumentException", "db.v is not an Iceberg table"), NotATable),
        (("java.lang.ClassCastException", "class a.B cannot be cast to class org.apache.iceberg.spark.C (a.B is in)"), NotATable),
        (("org.apache.iceberg.exceptions.ForbiddenException", "Forbidden"), PermissionDenied),
        (("java.nio.file.AccessDeniedException", "/t"), PermissionDenied),
        (("software.amazon.awssdk.services.s3.model.S3Exception", "Access Denied (Service: S3, Status Code: 403, Request ID: 1)"), PermissionDenied),
        (("com.amazonaws.services.s3.model.AmazonS3Exception", "Forbidden (Service: Amazon S3; Status Code: 403; Error Code: 403 Forbidden)"), PermissionDenied),
        (("org.apache.hadoop.fs.UnsupportedFileSystemException", 'No FileSystem for scheme "s3"'), SparkUnavailable),
        (("java.lang.RuntimeException", "java.lang.ClassNotFoundException: Class org.a.S3AFileSystem not found"), SparkUnavailable),
        (("software.amazon.awssdk.core.exception.SdkClientException", "Unable to load region from any"), CatalogUnreachable),
        (("org.apache.hc.client5.http.HttpHostConnectException", "Connect to x failed"), CatalogUnreachable),
        (("java.net.UnknownHostException", "nowhere"), CatalogUnreachable),
        (("org.apache.iceberg.exceptions.NotFoundException", "File does not exist: /t/m.avro"), MetadataUnreadable),
        (("org.apache.avro.AvroRuntimeException", "Malformed data"), MetadataUnreadable),
        (("java.lang.IllegalArgumentException", "Cannot parse missing long: snapshot-id"), MetadataUnreadable),
        (("org.apache.iceberg.exceptions.ValidationException", "Mismatched partition specs 1 and 0 for delete file d and data file f: x"), MetadataUnreadable),
    ],
)  # fmt: skip
def test_an_error_is_recognized_by_its_class_its_kind_or_its_whole_message(
    cause: tuple[str, str], kind: type[Exception]
) -> None:
    for chain in ([cause], [("org.apache.spark.SparkException", "Job aborted."), cause]):
        assert type(explain(raised("odd", *chain), ("lake", "db", "t"))) is kind
    assert type(explain(raised("odd", ("java.lang.Exception", cause[1])), ("lake", "t"))) is (
        RuntimeError
    )


def test_a_missing_file_is_named_by_the_exception_that_misses_it() -> None:
    error = raised(
        "File does not exist: /wrong",
        ("org.apache.spark.SparkException", "File does not exist: /wrong"),
        ("java.io.FileNotFoundException", "File does not exist: /right"),
    )

    assert str(explain(error, ("lake", "db", "t"))).startswith("/right is missing")


def test_what_ended_a_task_is_recognized_where_spark_gives_only_a_text() -> None:
    lost = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
        "Lost task 0.0 in stage 3.0 (TID 7) (host executor driver): "
    )
    spark = "org.apache.spark.SparkException"

    ends: dict[str, FailureKind] = {
        "java.lang.OutOfMemoryError: Java heap space\n\tat x": "capacity",
        "java.io.IOException: No space left on device\n\tat": "full",
        "ExecutorLostFailure (executor 3 exited) Reason: x": "capacity",
    }
    for end, kind in ends.items():
        assert failure_kind(raised("x", (spark, f"{lost}{end}"))) == kind
    odd = f"{lost}java.lang.RuntimeException: OutOfMemoryError: no\n\tat x"
    assert failure_kind(raised("x", (spark, odd))) == "other"


def test_only_what_raise_error_says_is_a_raised_message() -> None:
    assert raise_error_messages(
        raised(
            "x",
            ("org.apache.spark.SparkException", "Job aborted: a"),
            (
                "org.apache.spark.SparkRuntimeException",
                "[USER_RAISED_EXCEPTION] b c SQLSTATE: P0001",
            ),
            ("org.apache.spark.SparkRuntimeException", "[OTHER] d"),
            ("java.lang.RuntimeException", "e"),
        )
    ) == ["b c", "e"]


def test_a_python_exception_is_described_by_itself() -> None:
    odd = ValueError("odd")

    assert reason(odd) == "ValueError: odd"
    assert failure_kind(odd) == "other"
    assert failure_kind(CommitConflict("older equality deletes were added")) == "conflict"


def test_the_innermost_cause_that_says_something_is_the_sentence() -> None:
    error = raised(
        "Py4JJavaError",
        ("org.apache.spark.SparkException", "Job aborted due to stage failure"),
        ("org.apache.iceberg.exceptions.NotFoundException", "File does not exist: /t/1.parquet"),
        ("java.lang.NullPointerException", None),
    )

    assert (
        reason(error)
        == "org.apache.iceberg.exceptions.NotFoundException: File does not exist: /t/1.parquet"
    )


def test_a_chain_without_end_is_cut() -> None:
    loop = JavaError("java.lang.Exception", "again")
    loop._cause = loop
    error: Any = RuntimeError("x")
    error.java_exception = loop

    assert len(causes_of(error)) == 20


def test_secrets_are_not_in_what_is_said_of_a_failure() -> None:
    secrets.remember_secrets({"s3.secret-access-key": "hush-hush-hush"})

    assert "hush" not in str(
        causes_of(raised("x", ("java.io.IOException", "403 for key hush-hush-hush")))
    )


def test_waiting_ends_and_nothing_is_begun_after_somebody_asked_to_stop() -> None:
    stop = Stop()
    stop.check()
    stop.set()
    neither: Any = None  # Spark or the action would fail otherwise than by Stopped

    assert stop.is_set
    with pytest.raises(Stopped):
        stop.sleep(60)
    with pytest.raises(Stopped):
        execute(neither, neither, {}, stop=stop)
