"""Work on many tables at once: threads that observe, threads that draw, and a row for each table as it is done."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from icekit.catalog import Lake
from icekit.compact.wins import Wins, wins
from icekit.engine.boundary import outside
from icekit.errors import IcekitError, first_line, trace
from icekit.facts.model import TableFacts
from icekit.history.records import Health, health
from icekit.notebook import limits
from icekit.report.kernels import Kernel, Kernels, limited
from icekit.report.known import Known
from icekit.report.observing import TimedOut, clear, kept, observed
from icekit.report.rendering import imports, rendered
from icekit.report.rows import KERNELS, Options, Row
from icekit.saving import slug, write_text
from icekit.sql import Identifier, display_name

T = TypeVar("T")

#: How long a thread waits, in seconds, before it looks whether it was told to stop.
_PATIENCE = 0.5
#: How long it is waited for, in seconds, when it was told; what is stuck is left behind.
_LEAVE = 5.0
# That a kernel is given to start and import what notebooks do.
_START = 120.0


@dataclass(frozen=True, slots=True)
class _Observed:
    """A table whose facts are there and whose notebook is to be run."""

    name: Identifier
    facts_file: Path
    seconds: float
    wins: Wins
    health: Health


class Crew:
    """Threads that report on tables; use it in a ``with`` block, which ends them and their kernels.

    ``history_of`` gives the file of what is remembered of a table, or an empty text; it is asked by one thread at a time.
    ``known`` gives the facts of tables that were observed before, and keeps those that are now.
    """

    def __init__(
        self,
        lake: Lake,
        names: Sequence[Identifier],
        options: Options,
        run_id: str,
        *,
        history_of: Callable[[str, Path], str],
        known: Known | None = None,
    ) -> None:
        self._lake, self._options, self._run_id, self._history_of = lake, options, run_id, history_of
        self._known = known or Known()
        self._output = options.output.resolve()
        self._count = len(names)
        self._stopped = threading.Event()
        self._remembering = threading.Lock()
        self._todo: queue.SimpleQueue[Identifier] = queue.SimpleQueue()
        for name in names:
            self._todo.put(name)
        # Short, so that facts do not pile up before the notebooks.
        self._ready: queue.Queue[_Observed] = queue.Queue(maxsize=2 * KERNELS)
        self._done: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self._kernels = Kernels(reuse=not options.fresh_kernels)
        self._scratch = tempfile.TemporaryDirectory(prefix="icekit-")
        # Daemons: a storage that does not answer must not keep the process.
        workers = [self._observe] * min(options.jobs, self._count) + [self._render] * min(KERNELS, self._count)
        self._threads = [threading.Thread(target=work, daemon=True) for work in workers]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        if kind is not None:
            # Whoever interrupts does not want to wait for the notebooks at work.
            self._kernels.kill()
        for thread in self._threads:
            thread.join(timeout=_LEAVE)
        with contextlib.suppress(OSError):  # a thread that was left behind may still write there
            self._scratch.cleanup()

    def rows(self) -> Iterator[Row]:
        """The row of each table, as it is done."""
        for _ in range(self._count):
            yield self._done.get()

    def _observe(self) -> None:
        while not self._stopped.is_set():
            try:
                name = self._todo.get_nowait()
            except queue.Empty:
                return
            made = self._guarded(name, self._observe_one)
            if isinstance(made, Row):
                self._done.put(made)
                continue
            while not self._stopped.is_set():
                with contextlib.suppress(queue.Full):
                    self._ready.put(made, timeout=_PATIENCE)
                    break

    def _observe_one(self, name: Identifier) -> _Observed:
        started = time.monotonic()
        clear(self._output, name)
        facts, findings, waited = observed(self._lake, name, self._options, self._options.timeout_seconds, collect=self._collect)
        chosen = limits(self._options.thresholds)
        won = wins(facts, findings, chosen)
        known = health(facts, findings, won, self._run_id, chosen)
        return _Observed(name, kept(facts, Path(self._scratch.name)), time.monotonic() - started - waited, won, known)

    def _collect(self, lake: Lake, name: Identifier, **asked: Any) -> TableFacts:
        from icekit.facts import observe

        return self._known.facts(lake, name, lambda: observe(lake, name, **asked), storage=bool(asked.get("storage")))

    def _render(self) -> None:
        with self._kernels.own() as kernel:
            while not self._stopped.is_set():
                with contextlib.suppress(queue.Empty):
                    item = self._ready.get(timeout=_PATIENCE)
                    _start(kernel)
                    row = self._guarded(item.name, lambda _, item=item: self._render_one(item, kernel))  # type: ignore[misc]
                    # What was observed is known, whatever became of the notebook.
                    self._done.put(replace(row, wins=item.wins, health=item.health))
                    with contextlib.suppress(OSError):  # its folder goes with the run
                        item.facts_file.unlink(missing_ok=True)

    def _render_one(self, item: _Observed, kernel: Kernel) -> Row:
        table, limit = display_name(item.name), self._options.timeout_seconds
        left = None if limit is None else limit - item.seconds
        with self._remembering:
            started = time.monotonic()
            history = self._history_of(table, Path(self._scratch.name))
        page, outcome, error, stages = rendered(kernel, item.name, item.facts_file, self._options, left, history=history)
        return Row(
            table,
            outcome.status if outcome else "crashed",
            item.seconds + time.monotonic() - started,
            outcome,
            page.name,
            error,
            stages={"observe": item.seconds, **stages},
        )

    def _guarded(self, name: Identifier, step: Callable[[Identifier], T]) -> T | Row:
        """Take a step for one table; whatever goes wrong becomes its row."""
        table, started = display_name(name), time.monotonic()
        try:
            return step(name)
        except TimedOut as problem:
            return Row(table, "timed out", time.monotonic() - started, error=str(problem))
        except IcekitError as problem:
            return Row(table, "misconfigured", time.monotonic() - started, error=str(problem))
        except Exception as problem:
            known = outside(problem)
            if known is None:
                return Row(table, "crashed", time.monotonic() - started, error=self._traced(table, problem))
            return Row(table, "misconfigured", time.monotonic() - started, error=str(known))
        except BaseException as problem:  # a cancelled task is no Exception, and without a row the run would wait for ever
            return Row(table, "crashed", time.monotonic() - started, error=self._traced(table, problem))

    def _traced(self, table: str, problem: BaseException) -> str:
        """Keep the whole of an error in a file, and say where; a disk that is full must not take the row too."""
        first = f"{type(problem).__name__}: {first_line(problem)}"
        try:
            kept_in = write_text(self._output / f"{slug(table)}.error.txt", trace(problem))
        except (OSError, ValueError) as refused:
            return f"{first}; its trace could not be kept ({type(refused).__name__})"
        return f"{first}; for details see {kept_in.name}"


def _start(kernel: Kernel) -> None:
    """Start a kernel if it has not; what does not start fails again with its first notebook, where it becomes a row."""
    # A cancelled task is no Exception.
    with contextlib.suppress(Exception, asyncio.CancelledError), limited(kernel, _START):
        kernel.ready(imports())
