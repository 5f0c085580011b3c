"""End a process as it was asked to: a scheduler's signal is Ctrl-C, and what breaks from then on is part of ending."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_blocks: list[Ending] = []
_TWICE_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class Ending:
    """Whether the process was asked to end, by Ctrl-C or a scheduler's signal (SIGTERM)."""

    def __init__(self) -> None:
        self.is_asked = False
        self._is_heard = False
        self._asked_at: float | None = None

    def ask(self) -> None:
        """Note it, and raise KeyboardInterrupt, as Ctrl-C does, unless somebody is at ending already.

        Who asks again within some seconds has sent the same wish twice (to the process and to its group, say); it must
        not break into what the first one has begun.
        """
        self.is_asked = True
        _hush()
        now, before = time.monotonic(), self._asked_at
        self._asked_at = now
        if not self._is_heard and (before is None or now - before > _TWICE_SECONDS):
            raise KeyboardInterrupt

    def hear(self) -> None:
        """Say that the end has begun: further signals do not break into what is written and told on the way out."""
        self.is_asked = self._is_heard = True
        _hush()

    def check(self) -> None:
        """Raise KeyboardInterrupt where it was asked and has not come through.

        Python drops what is raised while it collects garbage, and what is raised in a callback of another library
        may become that library's own error.
        """
        if self.is_asked and not self._is_heard:
            raise KeyboardInterrupt

    def takes(self, error: BaseException) -> bool:
        """Tell whether an error is part of ending.

        Once the process is asked to end, Spark's JVM may be asked too (a signal to the whole group), or a call to it
        may have been cut short. py4j then raises Py4JNetworkError or Py4JError, a plain
        ConnectionRefusedError or ConnectionResetError, or the TypeError and AttributeError of a Spark session that
        is half gone. So it is not told by class: after the signal every error is, but one that is a verdict on rows,
        which is a step's result and not an error.
        """
        return isinstance(error, KeyboardInterrupt) or (self.is_asked and isinstance(error, Exception))


def _hush() -> None:
    """Let py4j say nothing more: it logs the stack of a call that is cut short or meets no JVM, and that would be read as a crash."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # Some of it goes to the root logger itself.
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


@contextlib.contextmanager
def heeded(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` once the process is asked to end, within the block: what the signal raised may have been dropped."""
    ending, done = _blocks[-1] if _blocks else None, threading.Event()

    def watch(ending: Ending) -> None:
        # Not by the signal's handler, which may have come while the lock was held that ``stop`` needs.
        while not done.wait(_LOOK_SECONDS):
            if ending.is_asked:
                stop()
                return

    if ending is not None:
        threading.Thread(target=watch, args=(ending,), name="icekit-ending", daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextlib.contextmanager
def ended_like_interrupted() -> Iterator[Ending]:
    """Treat a scheduler's signal to end as Ctrl-C; only the main thread gets signals. A block within another shares its ending."""
    if _blocks:
        yield _blocks[-1]
        return
    if threading.current_thread() is not threading.main_thread():
        yield Ending()
        return
    ending = Ending()

    def stop(_number: int, _frame: FrameType | None) -> None:
        ending.ask()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # A person's second Ctrl-C means it.
        ending.is_asked = True
        _hush()
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    # What ignores Ctrl-C, or has a way of its own with it, goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    _blocks.append(ending)
    level = logging.getLogger("py4j").level
    try:
        yield ending
    finally:
        _blocks.pop()
        logging.getLogger("py4j").setLevel(level)
        logging.getLogger().removeFilter(_not_of_py4j)
        for number, handler in before.items():
            signal.signal(number, handler)
