"""Wait for work in other threads no longer than some seconds; threads that hang are left behind."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")


class DeadlineExceeded(TimeoutError):
    """Work that has not ended within its time."""


def run_within(seconds: float | None, work: Callable[[], T]) -> T:
    """Do the work in a thread that may be left behind; raises
    :class:`DeadlineExceeded` after ``seconds`` (None: never).

    A daemon thread, and not an executor's: the process must be able to end while a dead
    host is still being waited for.
    """
    end_event = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        end_event.set()

    threading.Thread(target=run, daemon=True).start()
    if not end_event.wait(seconds):
        raise DeadlineExceeded
    if errors:
        raise errors.pop()
    return results[0]


def run_each_within(
    seconds: float,
    items: Iterable[K],
    work: Callable[[K], object],
    *,
    thread_count: int,
    may_continue: Callable[[], bool] = lambda: True,
) -> None:
    """Do work for each item in several threads, as far as ``seconds`` reach and ``may_continue``,
    which is asked several times a second, is true.

    ``work`` must not raise. Daemon threads: a thread pool would keep the process alive while a host
    does not answer.
    """
    remaining_items = iter(items)
    end_event = threading.Event()
    next_item_lock = threading.Lock()

    def run() -> None:
        while not end_event.is_set():
            with next_item_lock:
                item = next(remaining_items, end_event)
            if item is end_event:
                return
            work(item)  # type: ignore[arg-type]

    threads = [threading.Thread(target=run, daemon=True) for _ in range(thread_count)]
    deadline = time.monotonic() + seconds
    try:
        for thread in threads:
            thread.start()
        while (
            (living_threads := [thread for thread in threads if thread.is_alive()])
            and time.monotonic() < deadline
            and may_continue()
        ):
            living_threads[0].join(min(0.2, max(0.0, deadline - time.monotonic())))
    finally:
        end_event.set()
