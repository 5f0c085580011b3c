"""Do long work in a thread, so that the kernel goes on hearing the Cancel button; no ipywidgets here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from icekit.compact.execute import Stop, Stopped
from icekit.engine.interrupting import cancelled_when, new_tag, tagged
from icekit.engine.session import make_active
from icekit.errors import IcekitError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Say = Callable[[str], None]


class Work:
    """One piece of work at a time, with a voice and a stop.

    ``said`` is called with each line of progress, from the thread. Afterwards exactly one of a
    job's ``done`` and ``ended`` is called: ``ended`` with a sentence that says why there is no result.
    """

    def __init__(self, said: Say) -> None:
        self._said = said
        self._thread: threading.Thread | None = None
        self.stop = Stop()

    @property
    def is_running(self) -> bool:
        """Tell whether a job is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[Say, Stop], T], done: Callable[[T], None], ended: Say) -> bool:
        """Begin a job, unless one is under way; tell whether it was begun.

        A job that raises :class:`~icekit.compact.execute.Stopped`, or anything once it was asked
        to stop, was cancelled.
        """
        if self.is_running:
            return False
        stop = self.stop = Stop()

        def work() -> None:
            try:
                result = job(self._said, stop)
            except BaseException as error:
                ended(why(error, stop))
                return
            try:
                done(result)
            except Exception as error:
                ended(why(error, Stop()))

        self._thread = threading.Thread(target=work, name="icekit-work", daemon=True)
        self._thread.start()
        return True

    def cancel(self) -> None:
        """Ask the job to stop; it says itself when it has."""
        self.stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the job; tell whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_running


def why(error: BaseException, stop: Stop) -> str:
    """Why a job has no result, in one sentence."""
    if isinstance(error, Stopped) or stop.is_set:
        return "Cancelled."
    if isinstance(error, IcekitError):
        return str(error)
    return f"{type(error).__name__}: {first_line(error)}"


@contextlib.contextmanager
def interruptible(spark: SparkSession, stop: Stop) -> Iterator[None]:
    """Cancel the Spark jobs that this thread starts, once somebody asks to stop.

    Also makes the session the active one of this thread, which is new to the JVM.
    """
    make_active(spark)
    tag = new_tag()
    with tagged(spark, tag), cancelled_when(lambda: stop.is_set, spark, tag):
        yield
    stop.sleep(0)  # raises Stopped where nothing else did
