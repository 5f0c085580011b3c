"""Write to the terminal from one place, where no name or message can command it, and keep other programs' noise away from it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from icekit.secrets import own_words

# Control characters but line ends and tabs, halves of characters, and those that turn or break a line.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def harmless(text: str) -> str:
    """Replace what a terminal would obey, or XML has no place for."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str, *, is_painted: bool = False, end: str = "\n", error: bool = False) -> None:
    """Print at once, as a log is read while it grows; ``is_painted`` text has colours of icekit's own, and nothing else to obey."""
    write((text if is_painted else harmless(text)) + end, sys.stderr if error else sys.stdout)


def write(text: str, stream: TextIO | None) -> None:
    """Write harmless text; a stream that cannot show a character gets its escape, and a closed one nothing.

    Standard error that cannot be written to is left alone: there is nowhere to report it.
    """
    if stream is None:
        return
    is_error, stream = stream is sys.stderr, own_words(stream)
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError as problem:
            stream.write(text.encode(problem.encoding, "backslashreplace").decode(problem.encoding))
        stream.flush()
    except BrokenPipeError:
        if not is_error:
            raise
    except OSError as error:
        # What could not be written would be tried again, and fail again, as the process ends.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        error.filename = error.filename or "Standard output"
        if not is_error:
            raise


def open_closed_streams() -> None:
    """Take the places of standard streams that are closed (``>&-``), before a file or the JVM's output does."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


# --- Keep off the terminal what child processes print while they start, and what PySpark logs of an error that is caught


@contextlib.contextmanager
def stderr_to_file() -> Iterator[Path]:
    """Point file descriptor 2 at a file for a while; yields its path.

    A child inherits the descriptor when it is launched and keeps writing there for its whole
    life. The file is unlinked on the way out, and goes with the last process that has it.
    """
    with tempfile.NamedTemporaryFile(prefix="icekit-", suffix=".log", delete=False) as log:
        path = Path(log.name)
        saved = os.dup(2)
        os.dup2(log.fileno(), 2)
    try:
        yield path
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def quiet_errors() -> Iterator[None]:
    """Keep PySpark from logging each error of a statement with its whole trace, where it is told in a sentence."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before Spark 4, which logs nothing
        yield
        return
    # Of PySpark's own class, which takes more arguments than Python's.
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [one.disabled for one in loggers]
    try:
        for one in loggers:
            one.disabled = True
        yield
    finally:
        for one, was in zip(loggers, before, strict=True):
            one.disabled = was
