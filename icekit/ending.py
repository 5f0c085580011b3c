"""End a process as it was asked to: a scheduler's signal is Ctrl-C, and what breaks from then on is part of ending."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_blocks: list[Ending] = []


class Ending:
    """Whether the process was asked to end, by Ctrl-C or a scheduler's signal (SIGTERM)."""

    def __init__(self) -> None:
        self.is_asked = False
        self._is_heard = False

    def ask(self) -> None:
        """Note it, and raise KeyboardInterrupt, as Ctrl-C does, unless somebody is at ending already."""
        self.is_asked = True
        _hush()
        if not self._is_heard:
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
    try:
        yield ending
    finally:
        _blocks.pop()
        for number, handler in before.items():
            signal.signal(number, handler)
