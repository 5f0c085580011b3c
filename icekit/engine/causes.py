"""Read which of Java's exceptions caused an error of Spark, and recognize them by their classes,
their kinds and their whole messages.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from icekit.common import frozen
from icekit.common.secrets import scrub


@frozen
class Cause:
    """One of Java's exceptions: the name of its class, what it says, and Spark's name for its kind,
    which is empty for others.
    """

    class_name: str
    message: str
    error_condition: str = ""

    def __str__(self) -> str:
        return f"{self.class_name}: {self.message}"


@frozen
class ExceptionPattern:
    """What an exception is recognized by: the end of its class name, or the beginning of Spark's
    name for its kind.

    Where a class stands for several faults, ``message_pattern`` is the pattern of the whole
    message. Messages repeat names, paths and SQL of people, so a word somewhere in them shows
    nothing.
    """

    class_endings: tuple[str, ...] = ()
    condition_prefixes: tuple[str, ...] = ()
    message_pattern: str = ".*"

    def match(self, cause: Cause) -> re.Match[str] | None:
        """The match of the message, or None for another exception."""
        if cause.class_name.endswith(self.class_endings) or (
            self.condition_prefixes and cause.error_condition.startswith(self.condition_prefixes)
        ):
            return re.fullmatch(self.message_pattern, cause.message, re.S)
        return None

    def first_match(self, causes: Iterable[Cause]) -> re.Match[str] | None:
        """The match of the first of some exceptions that has one."""
        return next(filter(None, map(self.match, causes)), None)


def match_any(*patterns: ExceptionPattern) -> Callable[[Sequence[Cause]], re.Match[str] | None]:
    """The match of the first sign that has one."""
    return lambda causes: next(
        filter(None, (pattern.first_match(causes) for pattern in patterns)), None
    )


# As Spark begins the reason of a job's end.
TASK = r".{0,500}?: Lost task \S+ in stage \S+ \(TID \d+\) \([^()]*\): "


def is_engine_error(error: BaseException) -> bool:
    """Whether Spark or the bridge to its JVM raised it; imports neither."""
    return any(
        error_class.__module__.partition(".")[0] in {"py4j", "pyspark"}
        for error_class in type(error).__mro__
    )


# Of a stack trace: what writes for a shuffle, a spill or a cache, and what writes files of a table.
_SPARKS_OWN = tuple(
    f"org.apache.spark.{name}." for name in ("storage", "shuffle", "util.collection", "io")
)
_OF_FILES = tuple(f"org.apache.{name}." for name in ("iceberg", "parquet", "orc", "avro"))
_MOST_CAUSES = 20


def was_writing_for_spark(error: BaseException) -> bool:
    """Whether the innermost of Java's exceptions was raised where Spark writes to its local
    directories, and not where a file of a table is written.
    """
    java_exception: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):  # the JVM is gone, or the origin is no Java exception
        for _ in range(_MOST_CAUSES):
            if java_exception.getCause() is None:
                break
            java_exception = java_exception.getCause()
        for stack_frame in java_exception.getStackTrace():
            frame_class_name = str(stack_frame.getClassName())
            if frame_class_name.startswith(_SPARKS_OWN):
                return True
            if frame_class_name.startswith(_OF_FILES):
                return False
    return False


def java_classes(error: BaseException) -> tuple[str, ...]:
    """The class names of each of Java's exceptions, outermost first."""
    return tuple(cause.class_name for cause in causes_of(error))


# A class of Java and its message, as py4j writes a stack trace, and as Spark Connect begins a text.
_IN_TRACE = re.compile(r"^(?:Caused by: |: )((?:[\w$]+\.)+[\w$]+)(?:: (.*))?$", re.M)
_IN_CONNECT = re.compile(r"\(((?:[\w$]+\.)+[\w$]+)\) (.*)", re.S)
# What ended a task, where Spark ends its job without a cause; and a kind, as Spark writes it.
_IN_TASK = re.compile(
    rf"Job aborted due to stage failure: {TASK}((?:[\w$]+\.)+[\w$]+)(?:: ([^\n]*))?.*", re.S
)
_KIND = re.compile(r"\[([A-Z][A-Z0-9_.]*)\]")


def causes_of(error: BaseException) -> list[Cause]:
    """Each of Java's exceptions, outermost first, without secrets; where there are only texts,
    those that they name in the form of the engine.
    """
    causes = _java_causes(error)
    if not causes:
        error_text = scrub(str(error))
        if error_text.startswith("An error occurred while calling"):
            class_messages = _IN_TRACE.findall(error_text)
        else:
            class_messages = (
                [connect_match.groups()] if (connect_match := _IN_CONNECT.match(error_text)) else []
            )
        causes = [_cause(class_name, message or "") for class_name, message in class_messages]
        if not causes and is_engine_error(error):
            # PySpark 3.5 has the older name.
            read_condition = getattr(error, "getCondition", None) or getattr(
                error, "getErrorClass", None
            )
            causes = [
                Cause(
                    type(error).__name__,
                    error_text,
                    str(read_condition() or "") if read_condition else "",
                )
            ]
    task_causes = [
        _cause(connect_match[1], connect_match[2] or "")
        for cause in causes
        if cause.class_name == "org.apache.spark.SparkException"
        and (connect_match := _IN_TASK.fullmatch(cause.message))
    ]
    return [*causes, *task_causes]


def _cause(class_name: str, message: str, exception: Any = None) -> Cause:
    # Only Spark's own classes have kinds.
    if not class_name.startswith("org.apache.spark."):
        return Cause(class_name, message)
    with contextlib.suppress(Exception):
        # Its name before Spark 4, which later versions have too.
        return Cause(class_name, message, str(exception.getErrorClass() or ""))
    # Where there is only a text, it begins with the kind.
    condition_match = _KIND.match(message)
    return Cause(class_name, message, condition_match[1] if condition_match else "")


def _java_causes(error: BaseException) -> list[Cause]:
    causes: list[Cause] = []
    java_exception: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):  # the JVM is gone, or the origin is no Java exception
        while java_exception is not None and len(causes) < _MOST_CAUSES:
            class_name = str(java_exception.getClass().getName())
            causes.append(
                _cause(class_name, scrub(str(java_exception.getMessage())), java_exception)
            )
            java_exception = java_exception.getCause()
    return causes


# Of an exception of raise_error, in Spark 3.5 and later.
_RAISED = (
    ExceptionPattern(("java.lang.RuntimeException",), message_pattern="(.*)"),
    ExceptionPattern(
        ("org.apache.spark.SparkRuntimeException",),
        ("USER_RAISED_EXCEPTION",),
        r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w{5})?",
    ),
)


def raise_error_messages(error: BaseException) -> list[str]:
    """What SQL's ``raise_error`` was given, of each cause that comes from it; not the SQL itself,
    which other errors repeat.
    """
    message_matches = (pattern.match(cause) for cause in causes_of(error) for pattern in _RAISED)
    return [message_match[1] for message_match in message_matches if message_match]
