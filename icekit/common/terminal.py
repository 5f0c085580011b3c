"""Write to the terminal from one module, so that no name or message can send it control characters,
and keep other programs' noise away.
"""

import contextlib
import contextvars
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from icekit.common.errors import require_known
from icekit.common.secrets import own_text_stream

# Control characters but line ends and tabs, halves of characters, and those that turn or break a
# line.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


#: Seconds that a terminal may stay silent before it shows what icekit is waiting for.
PATIENCE = 10.0
#: Seconds after which a counter is shown, and after which it is shown again.
COUNTING_SECONDS = 0.5
# Held by the counter that is shown.
_counter_line = threading.Lock()
#: Returns to the start of a terminal's line, and empties it.
_EMPTY_LINE = "\r\x1b[K"
_last_written = 0.0
# What is waited for, and since when; the innermost comes last.
_waiting: list[tuple[str, float]] = []


def harmless_text(text: str) -> str:
    """Replace characters that a terminal would act on, or that XML does not allow."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str, *, is_painted: bool = False, end: str = "\n", is_error: bool = False) -> None:
    """Print at once, as a log is read while it grows; ``is_painted`` text has colours of icekit's
    own, and nothing else to obey.
    """
    write(
        (text if is_painted else harmless_text(text)) + end, sys.stderr if is_error else sys.stdout
    )


def write(text: str, stream: TextIO | None) -> None:
    """Write harmless text; a stream that cannot show a character gets its escape, and a closed one
    nothing.

    Standard error that cannot be written to is left alone: there is nowhere to report it.
    """
    global _last_written
    if stream is None:
        return
    _last_written = time.monotonic()
    is_stderr = stream is sys.stderr
    stream = own_text_stream(stream)
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError as problem:
            stream.write(text.encode(problem.encoding, "backslashreplace").decode(problem.encoding))
        stream.flush()
    except BrokenPipeError:
        if not is_stderr:
            raise
    except OSError as error:
        # What could not be written would be tried again, and fail again, as the process ends.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        error.filename = error.filename or "Standard output"
        if not is_stderr:
            raise


def open_closed_streams() -> None:
    """Take the places of standard streams that are closed (``>&-``), before a file or the JVM's
    output does.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


#: ``no``: nobody reads a plan before it runs, as in a run by papermill, which sets it for itself.
ATTENDED = "ICEKIT_ATTENDED"


def is_attended() -> bool:
    """Tell whether somebody may read a plan before it runs: unless ``ICEKIT_ATTENDED=no``.

    Raises :class:`~icekit.common.errors.ParameterError` for a value other than yes and no.
    """
    environment_value = os.environ.get(ATTENDED) or "yes"
    require_known(environment_value, ("yes", "no"), f"{ATTENDED} value")
    return environment_value == "yes"


def is_command_attended() -> bool:
    """Tell whether somebody may read what a command prints: at a terminal, unless
    ``ICEKIT_ATTENDED`` says otherwise. A cell of a notebook counts as :func:`is_attended` says.
    """
    if os.environ.get(ATTENDED) or is_kernel():
        return is_attended()
    return any(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.stdin, sys.stdout, sys.stderr)
    )


def is_kernel() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "get_parent")


def has_front_end() -> bool:
    """Tell whether a front end such as JupyterLab sent the running cell: it sends the cell's id,
    papermill does not.
    """
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    ipython_shell: Any = get_ipython()
    cell_request = ipython_shell.get_parent() if hasattr(ipython_shell, "get_parent") else None
    return bool(((cell_request or {}).get("metadata") or {}).get("cellId"))


@contextlib.contextmanager
def report_waiting(work_name: str, *, at_once: bool = False) -> Iterator[None]:
    """Say what icekit is waiting for, whenever nothing was printed for some seconds: on a
    terminal's standard error, or in an output of the running cell, which is empty afterwards.

    ``at_once`` also says it now. Of nested waits the innermost is named. Where nobody looks on,
    nothing is said.
    """
    with contextlib.ExitStack() as cleanup_stack:
        wait_entry = (work_name, time.monotonic())
        _waiting.append(wait_entry)
        cleanup_stack.callback(_waiting.remove, wait_entry)
        show_line = _line_writer(cleanup_stack)
        if at_once and show_line is not None:
            show_line(f"icekit: {work_name}…")
        if show_line is not None and len(_waiting) == 1:
            _run_in_thread(cleanup_stack, partial(_show_waiting, show_line))
        yield


def _run_in_thread(
    cleanup_stack: contextlib.ExitStack, work: Callable[[threading.Event], None]
) -> None:
    """Let a thread work until the stack ends, which sets the event and waits for the thread."""
    end_event = threading.Event()
    # In the same context: a kernel knows by it which cell an output belongs to.
    run = partial(contextvars.copy_context().run, work, end_event)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    cleanup_stack.callback(thread.join)
    cleanup_stack.callback(end_event.set)


@contextlib.contextmanager
def show_progress(progress_text: Callable[[], str]) -> Iterator[None]:
    """Show what icekit is doing and how far it is, in one line that is written again and again, and
    is empty afterwards; nothing for what is done at once, inside of another counter, and where
    nobody looks on.
    """
    with contextlib.ExitStack() as cleanup_stack:
        show_line = None
        if _counter_line.acquire(blocking=False):
            cleanup_stack.callback(_counter_line.release)
            show_line = _line_writer(cleanup_stack, is_replaced=True)
        if show_line is not None:
            _run_in_thread(cleanup_stack, partial(_show_count, show_line, progress_text))
        yield


def _show_count(
    show_line: Callable[[str], None], progress_text: Callable[[], str], end_event: threading.Event
) -> None:
    while not end_event.wait(COUNTING_SECONDS):
        with contextlib.suppress(OSError):
            show_line(f"icekit: {progress_text()}")


@contextlib.contextmanager
def counter(noun: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many are done, ``icekit: reading tables: 12 of 40``; threads may share what it
    yields.
    """
    done_count = 0

    def count_to(number: int) -> None:
        nonlocal done_count
        done_count = number

    with show_progress(lambda: f"{noun}: {done_count:,} of {total:,}"):
        yield count_to


def _line_writer(
    cleanup_stack: contextlib.ExitStack, *, is_replaced: bool = False
) -> Callable[[str], None] | None:
    """What shows a line to a person who waits; None if nobody does. A line ``is_replaced`` by the
    next one, and is empty in the end.
    """
    stream = sys.stderr
    if stream is not None and stream.isatty():
        # A descriptor of its own: meanwhile standard error may point at a file.
        terminal = cleanup_stack.enter_context(
            os.fdopen(os.dup(stream.fileno()), "w", encoding="utf-8", errors="backslashreplace")
        )
        if not is_replaced:
            return lambda line: write(harmless_text(line) + "\n", terminal)
        line_width = shutil.get_terminal_size().columns - 1
        shown_lines: list[str] = []
        cleanup_stack.callback(lambda: write(_EMPTY_LINE, terminal) if shown_lines else None)

        def show_again(line: str) -> None:
            shown_lines[:] = [line]
            write(_EMPTY_LINE + harmless_text(line)[:line_width], terminal)

        return show_again
    if not has_front_end():
        return None
    from IPython.display import display

    display_handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    cleanup_stack.callback(display_handle.update, {"text/plain": ""}, raw=True)
    return lambda line: display_handle.update({"text/plain": harmless_text(line)}, raw=True)


def _show_waiting(show_line: Callable[[str], None], end_event: threading.Event) -> None:
    start_seconds = last_message_seconds = time.monotonic()
    while not end_event.wait(
        max(max(_last_written, last_message_seconds) + PATIENCE - time.monotonic(), 0.01)
    ):
        now = time.monotonic()
        innermost_wait = _waiting[-1:]
        if innermost_wait and now - max(_last_written, last_message_seconds) >= PATIENCE:
            work_name, wait_start_seconds = innermost_wait[0]
            last_message_seconds = now
            with contextlib.suppress(OSError):
                show_line(
                    f"icekit: {work_name}… {now - max(wait_start_seconds, start_seconds):.0f} s"
                )


@contextlib.contextmanager
def stderr_to_file() -> Iterator[Path]:
    """Point file descriptor 2 at a file for a while; yields its path.

    A child inherits the descriptor when it is launched and keeps writing there for its whole
    life. The file is unlinked on the way out, and goes with the last process that has it.
    """
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="icekit-", suffix=".log", delete=False) as log:
        log_path = Path(log.name)
        stderr_copy = os.dup(2)
        os.dup2(log.fileno(), 2)
    try:
        yield log_path
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        log_path.unlink(missing_ok=True)


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
        PySparkLogger.getLogger(logger_name)
        for logger_name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]
    disabled_before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was_disabled in zip(loggers, disabled_before, strict=True):
            logger.disabled = was_disabled
