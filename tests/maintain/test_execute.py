"""What kind of failure an engine's exception is, by its whole chain of causes."""

from __future__ import annotations

from typing import Any

import pytest

from icekit.common import secrets
from icekit.engine.errors import CommitConflict, FailureKind, described, kind_of, reason
from icekit.engine.interrupting import Stop, Stopped
from icekit.maintain.execute import execute


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
        ([("java.io.IOException", "No space left on device")], "capacity"),
        ([("org.apache.iceberg.exceptions.NotFoundException", "File does not exist: /t/data/00000.parquet")], "other"),
        ([("java.lang.IllegalArgumentException", "Cannot use options [x], they are not supported")], "other"),
        ([("org.apache.hadoop.security.AccessControlException", "Permission denied")], "other"),
    ],
)  # fmt: skip
def test_failures_are_distinguished_by_class(
    chain: list[tuple[str, str | None]], kind: FailureKind
) -> None:
    assert kind_of(raised("An error occurred while calling o99.execute", *chain)) == kind


def test_of_a_failure_over_spark_connect_there_is_only_a_text_that_names_the_class() -> None:
    from pyspark.errors import PySparkException

    said = (
        "(org.apache.iceberg.exceptions.CommitFailedException) Cannot commit to a table whose "
        "name says ValidationException"
    )

    assert kind_of(PySparkException(said)) == "conflict"
    assert (
        kind_of(PySparkException("a.b.c is no class, and CommitFailedException no package"))
        == "other"
    )


def test_a_python_exception_is_described_by_itself() -> None:
    odd = ValueError("odd")

    assert described(odd) == reason(odd) == "ValueError: odd"
    assert kind_of(odd) == "other"
    assert kind_of(CommitConflict("older equality deletes were added")) == "conflict"


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

    assert described(error).count("again") == 20


def test_secrets_are_not_in_what_is_said_of_a_failure() -> None:
    secrets.remember({"s3.secret-access-key": "hush-hush-hush"})

    assert "hush" not in described(
        raised("x", ("java.io.IOException", "403 for key hush-hush-hush"))
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
        execute(neither, neither, {}, stop=stop, tick=lambda _: None)
