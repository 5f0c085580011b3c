"""Collect the facts of one table for its notebook, within its time; Spark's work on it can be cancelled."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from icekit.catalog import Lake, interrupting
from icekit.catalog.source import within
from icekit.diagnose import diagnose
from icekit.errors import IcekitError
from icekit.facts.model import TableFacts
from icekit.findings import Findings
from icekit.notebook import limits
from icekit.report.document import save_facts
from icekit.report.rows import Options
from icekit.saving import slug
from icekit.sql import Identifier, display_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CANCELLING_SECONDS = 60.0


class TimedOut(IcekitError):
    """A table that took longer than it was given."""


class _Tagged:
    """A lake whose Spark work in this thread carries a tag, by which another thread cancels it."""

    def __init__(self, lake: Lake, tag: str, tags: contextlib.ExitStack) -> None:
        self._lake = lake
        self._tag = tag
        self._tags = tags
        self._is_tagged = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    @property
    def spark(self) -> SparkSession:
        """The lake's session, with the tag on whatever this thread starts in it."""
        spark = self._lake.spark
        if not self._is_tagged:
            self._is_tagged = True
            self._tags.enter_context(interrupting.tagged(spark, self._tag))
        return spark


@contextlib.contextmanager
def tagged(lake: Lake, tag: str) -> Iterator[Lake]:
    """The same lake; what this thread runs in Spark through it, within the block, ends with :func:`cancel`. Starts no Spark."""
    with contextlib.ExitStack() as tags:
        yield cast("Lake", _Tagged(lake, tag, tags))


def cancel(lake: Lake, tag: str, ended: threading.Event) -> None:
    """Cancel what Spark does under a tag, again and again until the work has ended: it may be between two jobs. Starts no Spark."""

    def work() -> None:
        until = time.monotonic() + _CANCELLING_SECONDS
        while not ended.wait(interrupting.POLL_SECONDS) and time.monotonic() < until:
            if lake.spark_is_running:
                interrupting.cancel(lake.spark, tag)

    threading.Thread(target=work, daemon=True).start()


def observed(
    lake: Lake,
    name: Identifier,
    options: Options,
    seconds: float | None = None,
    *,
    collect: Callable[..., TableFacts] | None = None,
) -> tuple[TableFacts, Findings]:
    """A table's facts and findings; raises :class:`TimedOut` after so many seconds, its Spark work cancelled.

    Reading without Spark cannot be stopped: its thread is left behind, and ends with what it was
    waiting for or with the process. ``collect`` stands for :meth:`icekit.catalog.Lake.observe`.
    """
    chosen = limits(options.thresholds)
    tag = interrupting.new_tag()
    ended = threading.Event()

    def work() -> TableFacts:
        from icekit.facts import observe

        with tagged(lake, tag) as taken:
            return (collect or observe)(
                taken,
                name,
                ref=options.ref or None,
                collector=options.collector,
                size_ratios=chosen.size_ratios,
                filter_columns=list(options.filter_columns) or None,
                storage=options.storage,
            )

    def ending() -> TableFacts:
        try:
            return work()
        finally:
            ended.set()

    if seconds is None:
        facts = work()
    else:
        try:
            facts = within(seconds, ending)
        except concurrent.futures.TimeoutError:
            cancel(lake, tag, ended)
            raise timed_out(name, seconds) from None
    return facts, diagnose(facts, chosen, session_conf=lake.session_conf())


def timed_out(name: Identifier, seconds: float) -> TimedOut:
    """What is said of a table that took too long, and what to do."""
    return TimedOut(
        f"{display_name(name)} was not done within {seconds:,.0f} s; give it more with --timeout, or report on it alone, with --collector spark if it is large."
    )


def clear(output: Path, name: Identifier) -> None:
    """Remove what an earlier run left of a table."""
    base = slug(display_name(name))
    for suffix in (".html", ".json", ".ipynb", ".error.txt"):
        (output / f"{base}{suffix}").unlink(missing_ok=True)


def kept(facts: TableFacts, scratch: Path) -> Path:
    """Facts in a file, for the notebook."""
    return save_facts(facts, scratch / f"{slug(facts.name)}.facts.json")
