"""List the catalogs there are, work on one within a deadline (Spark's part can be cancelled, the rest only left behind), and let go of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from icekit.catalog import session
from icekit.catalog.lake import EMBEDDED
from icekit.catalog.tables import within
from icekit.engine import interrupting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog.lake import Lake


T = TypeVar("T")

_CANCELLING_SECONDS = 60.0


class DeadlineExceeded(TimeoutError):
    """Work that has not ended within its time."""


class Cancelled(Exception):
    """Nobody waits for this work any more; raised where it asks for Spark again."""


class Waited:
    """Seconds that a piece of work waited for Spark to start, which serves all that comes after it, too."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """So far, also while it goes on."""
        since = self._since
        return self._seconds + (0.0 if since is None else time.monotonic() - since)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the block's seconds."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._seconds, self._since = self.seconds, None


class _Tagged:
    """A lake whose Spark work in this thread carries a tag, by which another thread cancels it."""

    def __init__(self, lake: Lake, tag: str, tags: contextlib.ExitStack, waited: Waited, is_given_up: Callable[[], bool]) -> None:
        self._lake, self._tag, self._tags = lake, tag, tags
        self._waited, self._is_given_up = waited, is_given_up
        self._is_tagged = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    @property
    def spark(self) -> SparkSession:
        """The lake's session, with the tag on whatever this thread starts in it."""
        if self._is_given_up():
            # It would start Spark again for nobody, once the lake is closed.
            raise Cancelled
        is_running = getattr(self._lake, "spark_is_running", True)
        with contextlib.nullcontext() if is_running else self._waited.waiting():
            spark = self._lake.spark
        if not self._is_tagged:
            self._is_tagged = True
            self._tags.enter_context(interrupting.tagged(spark, self._tag))
        return spark


@contextlib.contextmanager
def tagged(lake: Lake, tag: str, waited: Waited | None = None, is_given_up: Callable[[], bool] = lambda: False) -> Iterator[Lake]:
    """The same lake; what this thread runs in Spark through it, within the block, ends with :func:`cancel`. Starts no Spark."""
    with contextlib.ExitStack() as tags:
        yield cast("Lake", _Tagged(lake, tag, tags, waited or Waited(), is_given_up))


def cancel(lake: Lake, tag: str, ended: threading.Event) -> None:
    """Cancel what Spark does under a tag, again and again until the work has ended: it may be between two jobs. Starts no Spark."""

    def work() -> None:
        until = time.monotonic() + _CANCELLING_SECONDS
        spark = None
        while not ended.wait(interrupting.POLL_SECONDS) and time.monotonic() < until:
            if spark is None and lake.spark_is_running:
                # Once: the lake may be closed meanwhile, and would start another session.
                spark = lake.spark
            if spark is not None:
                interrupting.cancel(spark, tag)

    threading.Thread(target=work, daemon=True).start()


def in_time(lake: Lake, seconds: float | None, work: Callable[[Lake], T], *, waited: Waited | None = None) -> T:
    """Do work on the lake in a thread of its own; raises :class:`DeadlineExceeded` after so many seconds (None: no limit).

    The time in which Spark starts is not the work's, and does not count.

    Who stops waiting, by then or by Ctrl-C, has its Spark work cancelled by a tag on its jobs; it gets no Spark any
    more, and what does without cannot be stopped: its thread is left behind, and ends with what it was waiting for or
    with the process.
    """
    tag, waited = interrupting.new_tag(), waited or Waited()
    ended, given_up = threading.Event(), threading.Event()

    def tagged_work() -> T:
        try:
            with tagged(lake, tag, waited, given_up.is_set) as taken:
                return work(taken)
        finally:
            ended.set()

    try:
        return within(seconds, tagged_work, not_counted=lambda: waited.seconds)
    except (TimeoutError, KeyboardInterrupt) as stopped:
        given_up.set()
        if ended.is_set():
            raise  # the work's own: a host that did not answer
        cancel(lake, tag, ended)
        if isinstance(stopped, TimeoutError):
            raise DeadlineExceeded from None
        raise


# --- Close a lake when the process is asked to end: Spark goes without a word


#: Seconds that Spark is given to stop when the process was asked to end; its JVM goes with the process in any case.
_GOING_SECONDS = 20.0


def let_go(lake: Lake, ending: interrupting.Ending) -> None:
    """Close the lake; ``ending`` has then heard it, if the process was asked to end by then or meanwhile.

    The JVM may be gone, or not answer, or still be at work on the call that a signal has cut short. So a process
    that ends stops Spark from another thread, which has a connection of its own, and does not wait for it forever.
    """
    try:
        if not ending.is_asked:
            lake.close()
            return
    except BaseException as error:
        if not ending.takes(error):
            raise
    ending.hear()
    try:
        within(_GOING_SECONDS, lake.close)
    except BaseException as error:
        if not ending.takes(error):
            raise


# --- Say which catalogs a person can choose from, without contacting any


_PREFIX = "spark.sql.catalog."


def known_catalogs(spark: SparkSession | None = None) -> tuple[str, ...]:
    """The embedded lake, the profiles of pyiceberg's configuration, and Iceberg catalogs of the session given or running.

    Each is a name that :func:`icekit.connect` takes. A configuration that cannot be read adds
    none: connecting to a profile says what is wrong with it.
    """
    from pyiceberg.utils.config import Config

    found = {EMBEDDED: None}
    try:
        found.update(dict.fromkeys(sorted(Config().get_known_catalogs())))
    except Exception:
        # pyiceberg raises whatever its YAML reader meets.
        found.setdefault(EMBEDDED)
    running = spark or session.running_session()
    if running is not None:
        found.update(dict.fromkeys(session_catalogs(running)))
    return tuple(found)


def session_catalogs(spark: SparkSession) -> list[str]:
    """Names of the Iceberg catalogs that a Spark session is configured with."""
    conf = dict(spark.conf.getAll)
    return sorted(
        name
        for key, kind in conf.items()
        if key.startswith(_PREFIX) and "." not in (name := key.removeprefix(_PREFIX)) and "iceberg" in str(kind)
    )
