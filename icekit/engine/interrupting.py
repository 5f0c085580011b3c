"""Cancel what Spark does for one piece of work, by a tag on its jobs; the one place that knows how."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two looks at whether somebody asked, and between two requests to cancel.
POLL_SECONDS = 0.2


def new_tag(what: str = "") -> str:
    """A tag for one piece of work; Spark takes no comma in it."""
    return f"icekit-{what or uuid.uuid4().hex}"


@contextlib.contextmanager
def tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Mark the jobs of this thread, and of those the engine starts from it, so that they can be cancelled."""
    target, add, remove, _ = _api(spark)
    getattr(target, add)(tag)
    try:
        yield
    finally:
        # A tag that stays would cancel the thread's next work with this one.
        with contextlib.suppress(Exception):
            getattr(target, remove)(tag)


def cancel(spark: SparkSession, tag: str) -> None:
    """Cancel what runs under a tag now, from whichever thread; raises nothing, and cancels nothing that is begun later."""
    target, _, _, interrupt = _api(spark)
    with contextlib.suppress(Exception):
        getattr(target, interrupt)(tag)


@contextlib.contextmanager
def cancelled_when(asked: Callable[[], bool], spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancel what runs under a tag from the moment that ``asked`` says so until the block ends.

    Again and again: what is asked to stop may start another job before it hears of it.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            if asked():
                cancel(spark, tag)

    threading.Thread(target=watch, name=f"{tag}-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _api(spark: SparkSession) -> tuple[Any, str, str, str]:
    """Whose methods add a tag, remove it, and cancel by it."""
    # The session's own tags are known to the thread that set them; the context's to all. Connect has no context.
    if has_bridge(spark):
        return spark.sparkContext, "addJobTag", "removeJobTag", "cancelJobsWithTag"
    return spark, "addTag", "removeTag", "interruptTag"
