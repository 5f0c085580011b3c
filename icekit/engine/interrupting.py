"""End work on request of a person, a scheduler's signal or the clock, and cancel its Spark jobs by
a tag.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from icekit.engine.bridge import has_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_blocks: list[Ending] = []
_TWICE_SECONDS = 10.0
#: Seconds between checks for a request to stop, and between requests to cancel.
POLL_SECONDS = 0.2


class Ending:
    """Whether the process was asked to end, by Ctrl-C or a scheduler's signal (SIGTERM)."""

    def __init__(self) -> None:
        self.is_requested = False
        self._is_acknowledged = False
        self._request_time: float | None = None

    def request(self) -> None:
        """Note it, and raise KeyboardInterrupt, as Ctrl-C does, unless somebody is at ending
        already.

        Who asks again within some seconds has sent the same wish twice (to the process and to its
        group, say); it must not break into what the first one has begun.
        """
        self.is_requested = True
        _silence_py4j()
        now = time.monotonic()
        previous_request = self._request_time
        self._request_time = now
        if not self._is_acknowledged and (
            previous_request is None or now - previous_request > _TWICE_SECONDS
        ):
            raise KeyboardInterrupt

    def acknowledge(self) -> None:
        """Say that the end has begun: further signals do not break into what is written and told on
        the way out.
        """
        self.is_requested = self._is_acknowledged = True
        _silence_py4j()

    def check(self) -> None:
        """Raise KeyboardInterrupt if it was requested but has not been raised yet.

        Python drops what is raised while it collects garbage, and what is raised in a callback of
        another library may become that library's own error.
        """
        if self.is_requested and not self._is_acknowledged:
            raise KeyboardInterrupt

    def explains(self, error: BaseException) -> bool:
        """Whether an error is part of ending.

        Once the process is asked to end, Spark's JVM may be asked too (a signal to the whole
        group), or a call to it may have been cut short. py4j then raises Py4JNetworkError or
        Py4JError, a plain ConnectionRefusedError or ConnectionResetError, or the TypeError and
        AttributeError of a Spark session that is half gone. So the class does not tell: after the
        signal every error is part of it, but not a verdict on rows, which is a step's result and
        no error.
        """
        return isinstance(error, KeyboardInterrupt) or (
            self.is_requested and isinstance(error, Exception)
        )


def _silence_py4j() -> None:
    """Let py4j say nothing more: it logs the stack of a call that is cut short or meets no JVM, and
    that would be read as a crash.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # Some of it goes to the root logger itself.
    logging.getLogger().addFilter(_is_not_from_py4j)
    # PySpark warns of a crash where the JVM was asked to end with the process.
    warnings.filterwarnings(
        "ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning
    )


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


@contextlib.contextmanager
def stop_on_request(stop_work: Callable[[], None]) -> Iterator[None]:
    """Call ``stop_work`` once the process is asked to end, within the block: what the signal raised
    may have been dropped.
    """
    ending = _blocks[-1] if _blocks else Ending()
    # Not by the signal's handler, which may have come while the lock was held that ``stop_work``
    # needs.
    with act_on_request(lambda: ending.is_requested, stop_work):
        yield


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[Ending]:
    """Treat a scheduler's signal to end as Ctrl-C; only the main thread gets signals. A block
    within another shares its ending.
    """
    if _blocks:
        yield _blocks[-1]
        return
    if threading.current_thread() is not threading.main_thread():
        yield Ending()
        return
    ending = Ending()

    def request_end(_number: int, _frame: FrameType | None) -> None:
        ending.request()

    def interrupt_now(_number: int, _frame: FrameType | None) -> None:
        # A person's second Ctrl-C means it.
        ending.is_requested = True
        _silence_py4j()
        raise KeyboardInterrupt

    previous_handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, request_end)}
    # What ignores Ctrl-C, or has a way of its own with it, goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        previous_handlers[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt_now)
    _blocks.append(ending)
    py4j_log_level = logging.getLogger("py4j").level
    try:
        yield ending
    finally:
        _blocks.pop()
        logging.getLogger("py4j").setLevel(py4j_log_level)
        logging.getLogger().removeFilter(_is_not_from_py4j)
        for signal_number, previous_handler in previous_handlers.items():
            signal.signal(signal_number, previous_handler)


@contextlib.contextmanager
def keep_interrupt_handler() -> Iterator[None]:
    """Keep the handler for Ctrl-C of the block around this one: PySpark's, which comes with its
    context, notes nothing of it.
    """
    if not _blocks or threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupt_handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupt_handler)


def new_job_tag(work_name: str = "") -> str:
    """A tag for one piece of work; Spark takes no comma in it."""
    return f"icekit-{work_name or os.urandom(16).hex()}"


@contextlib.contextmanager
def tag_jobs(spark: SparkSession, tag: str) -> Iterator[None]:
    """Mark the jobs of this thread, and of those the engine starts from it, so that they can be
    cancelled.
    """
    add_tag, remove_tag, _ = _add_remove_cancel_methods(spark)
    add_tag(tag)
    try:
        yield
    finally:
        # A tag that stays would cancel the thread's next work with this one.
        with contextlib.suppress(Exception):
            remove_tag(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel what runs under a tag now, from whichever thread; raises nothing, and cancels nothing
    that is begun later.
    """
    with contextlib.suppress(Exception):
        *_, cancel_by_tag = _add_remove_cancel_methods(spark)
        cancel_by_tag(tag)


@contextlib.contextmanager
def act_on_request(is_requested: Callable[[], bool], act: Callable[[], None]) -> Iterator[None]:
    """Act in another thread, from the moment of the request until the block ends.

    Again and again: what is asked to stop may start another job before it hears of it.
    """
    end_event = threading.Event()

    def watch() -> None:
        while not end_event.wait(POLL_SECONDS):
            if is_requested():
                act()

    threading.Thread(target=watch, name="icekit-watch", daemon=True).start()
    try:
        yield
    finally:
        end_event.set()


#: Who asks work to end: a person, the end of its time, or the loss of its claim on the table.
Reason = Literal["person", "clock", "claim"]


class Stopped(Exception):
    """Work was asked to stop; commits stay."""


class Stop:
    """Asks work to end: on request (the first Ctrl-C, a button), or after some seconds (None: never
    by itself).
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._event = threading.Event()
        self._reason: Reason | None = None
        self._ends = None if seconds is None else time.monotonic() + seconds

    @property
    def reason(self) -> Reason | None:
        """Who asked; None as long as nobody has."""
        return self._reason or ("clock" if self._is_time_up() else None)

    def set(self, reason: Reason = "person") -> None:
        """Ask to stop: running groups are abandoned, commits stay. A person's request overrides the
        others.
        """
        if self.reason is None or reason == "person":
            self._reason = reason
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested, or the time is up."""
        return self._event.is_set() or self._is_time_up()

    def _is_time_up(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def check(self) -> None:
        """Raise :class:`Stopped` if a stop was requested."""
        if self.is_set:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait, but not after a request to stop; raises :class:`Stopped`."""
        wait_seconds = (
            seconds if self._ends is None else min(seconds, self._ends - time.monotonic())
        )
        self._event.wait(max(0.0, wait_seconds))
        self.check()

    @contextlib.contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Turn the first Ctrl-C within the block into a request to stop; the second raises
        KeyboardInterrupt as usual. Only the main thread gets signals.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handler = signal.getsignal(signal.SIGINT)

        def request(_number: int, _frame: FrameType | None) -> None:
            self.set()
            signal.signal(signal.SIGINT, previous_handler)

        signal.signal(signal.SIGINT, request)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous_handler)

    @contextlib.contextmanager
    def cancel_jobs_on_stop(self, spark: SparkSession) -> Iterator[None]:
        """Cancel the Spark jobs that this thread starts within the block, once somebody asks; an
        error is :class:`Stopped` then.
        """
        tag = new_job_tag()
        try:
            with (
                tag_jobs(spark, tag),
                act_on_request(lambda: self.is_set, lambda: cancel_jobs(spark, tag)),
            ):
                yield
        except Exception as error:
            if self.is_set:
                raise Stopped from error
            raise


def _add_remove_cancel_methods(spark: SparkSession) -> tuple[Callable[[str], Any], ...]:
    """The methods that add a tag, remove it, and cancel by it."""
    # The session's own tags are known to the thread that set them; the context's to all. Connect
    # has no context.
    if has_bridge(spark):
        spark_context = spark.sparkContext
        return spark_context.addJobTag, spark_context.removeJobTag, spark_context.cancelJobsWithTag
    return spark.addTag, spark.removeTag, spark.interruptTag
