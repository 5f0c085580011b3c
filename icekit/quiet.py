"""Keep off the terminal what child processes print while they start, and what PySpark logs of an error that is caught."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


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
