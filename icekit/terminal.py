"""Write to the terminal from one module, so that no name or message can send it control characters,
and keep other programs' noise away.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from icekit.secrets import own_words

# Control characters but line ends and tabs, halves of characters, and those that turn or break a
# line.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


#: Seconds that a terminal may stay silent before it shows what icekit is waiting for.
PATIENCE = 10.0
_last_written = 0.0
# What is waited for, and since when; the innermost comes last.
_waiting: list[tuple[str, float]] = []


def harmless(text: str) -> str:
    """Replace characters that a terminal would act on, or that XML does not allow."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str, *, is_painted: bool = False, end: str = "\n", error: bool = False) -> None:
    """Print at once, as a log is read while it grows; ``is_painted`` text has colours of icekit's
    own, and nothing else to obey.
    """
    write((text if is_painted else harmless(text)) + end, sys.stderr if error else sys.stdout)


def write(text: str, stream: TextIO | None) -> None:
    """Write harmless text; a stream that cannot show a character gets its escape, and a closed one
    nothing.

    Standard error that cannot be written to is left alone: there is nowhere to report it.
    """
    global _last_written
    if stream is None:
        return
    _last_written = time.monotonic()
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
    """Take the places of standard streams that are closed (``>&-``), before a file or the JVM's
    output does.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


@contextlib.contextmanager
def never_silent(what: str, *, at_once: bool = False, patience: float = PATIENCE) -> Iterator[None]:
    """Print on standard error what icekit is waiting for, whenever nothing was printed for some
    seconds; only at a terminal.

    ``at_once`` also prints it now. Of nested waits the innermost is named.
    """
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    if at_once:
        say(f"icekit: {what}…", error=True)
    waiting = (what, time.monotonic())
    _waiting.append(waiting)
    try:
        if len(_waiting) > 1:
            yield
            return
        # A descriptor of its own: meanwhile standard error may point at a file.
        with os.fdopen(
            os.dup(stream.fileno()), "w", encoding="utf-8", errors="backslashreplace"
        ) as terminal:
            is_over = threading.Event()
            watching = threading.Thread(
                target=_watch, args=(terminal, is_over, patience), daemon=True
            )
            watching.start()
            try:
                yield
            finally:
                is_over.set()
                watching.join()
    finally:
        _waiting.remove(waiting)


def _watch(terminal: TextIO, is_over: threading.Event, patience: float) -> None:
    begun = time.monotonic()
    while not is_over.wait(max(max(_last_written, begun) + patience - time.monotonic(), 0.01)):
        now, waiting = time.monotonic(), _waiting[-1:]
        if waiting and now - max(_last_written, begun) >= patience:
            what, since = waiting[0]
            with contextlib.suppress(OSError):
                write(harmless(f"icekit: {what}… {now - since:.0f} s\n"), terminal)


# --- Keep off the terminal what child processes print while they start, and what PySpark logs about
# a caught error


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
    """Keep PySpark from logging each error of a statement with its whole trace, where it is told in
    a sentence.
    """
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before Spark 4, which logs nothing
        yield
        return
    # Of PySpark's own class, which takes more arguments than Python's.
    loggers = [
        PySparkLogger.getLogger(name)
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]
    before = [one.disabled for one in loggers]
    try:
        for one in loggers:
            one.disabled = True
        yield
    finally:
        for one, was in zip(loggers, before, strict=True):
            one.disabled = was
