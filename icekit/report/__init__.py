"""Run the diagnosis notebook unattended on many tables at once: HTML, JSON, an index, an exit
status; finished tables survive an interruption.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import queue
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from icekit.catalog import Lake, connect
from icekit.catalog.lake import embedded_path
from icekit.diagnose.document import save_facts
from icekit.diagnose.findings import Thresholds
from icekit.diagnose.gate import check_gate, limits
from icekit.engine.errors import outside
from icekit.engine.interrupting import ended_like_interrupted
from icekit.errors import ParameterError, first_line, trace
from icekit.history.iceberg import store
from icekit.history.store import Health, SqliteStore, Store, health
from icekit.maintain.savings import Savings, wins
from icekit.options.commands import ReportOptions
from icekit.report.index import Index, rank, write_index
from icekit.report.observing import FactsCache, TimedOut, observed
from icekit.report.page import link_neighbours
from icekit.report.rendering import (
    Kernel,
    clear,
    limited,
    rendered,
)
from icekit.report.result import KERNELS, ReportRun, Row, check, exit_status
from icekit.saving import slug, write_text
from icekit.sql import Identifier, display_name
from icekit.status import Status
from icekit.terminal import never_silent, stderr_to_file
from icekit.units import count

T = TypeVar("T")

#: Seconds that a thread waits before it checks for a request to stop.
_PATIENCE = 0.5
#: Seconds to wait for threads after a request to stop; stuck threads are left behind.
_LEAVE = 5.0
# Seconds that a kernel gets to start and import what notebooks need.
_START = 120.0


@dataclass(frozen=True, slots=True)
class _Observed:
    """A table whose facts are collected and whose notebook has to run."""

    name: Identifier
    facts_file: Path
    seconds: float
    savings: Savings
    health: Health


class Workers:
    """Threads that report on tables; use it in a ``with`` block, which ends the threads and their
    kernels.

    ``history_of`` returns the file with a table's history, or an empty string. ``known`` has the
    facts of tables observed before, and stores new ones.
    """

    def __init__(
        self,
        lake: Lake,
        names: Sequence[Identifier],
        options: ReportOptions,
        run_id: str,
        *,
        history_of: Callable[[str, Path], str],
        known: FactsCache | None = None,
    ) -> None:
        self._lake, self._options = lake, options
        self._run_id, self._history_of = run_id, history_of
        self._known = known or FactsCache()
        self._output = Path(options.output).resolve()
        self.count = len(names)
        self._stopped = threading.Event()
        self._todo: queue.SimpleQueue[Identifier] = queue.SimpleQueue()
        for name in names:
            self._todo.put(name)
        # Short, so that facts do not pile up before the notebooks.
        self._ready: queue.Queue[_Observed] = queue.Queue(maxsize=2 * KERNELS)
        self._done: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self._kernels: list[Kernel] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="icekit-")
        # Daemons: storage that does not answer must not keep the process alive.
        workers = [self._observe] * min(options.jobs, self.count) + [self._render] * min(
            KERNELS, self.count
        )
        self._threads = [threading.Thread(target=work, daemon=True) for work in workers]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stopped.set()
        if kind is not None:
            # A user who interrupts does not want to wait for running notebooks.
            for kernel in self._kernels:
                kernel.kill()
        for thread in self._threads:
            thread.join(timeout=_LEAVE)
        with contextlib.suppress(OSError):  # a thread that was left behind may still write there
            self._scratch.cleanup()

    def rows(self) -> Iterator[Row]:
        """The row of each table, as the table is finished."""
        for _ in range(self.count):
            yield self._done.get()

    def _observe(self) -> None:
        while not self._stopped.is_set():
            try:
                name = self._todo.get_nowait()
            except queue.Empty:
                return
            observed_table = self._guarded(name, partial(self._observe_one, name))
            if isinstance(observed_table, Row):
                self._done.put(observed_table)
                continue
            while not self._stopped.is_set():
                with contextlib.suppress(queue.Full):
                    self._ready.put(observed_table, timeout=_PATIENCE)
                    break

    def _observe_one(self, name: Identifier) -> _Observed:
        started = time.monotonic()
        clear(self._output, name)
        facts, findings, waited = observed(
            self._lake,
            name,
            self._options,
            collect=self._known.observe,
        )
        savings = wins(facts, findings, limits(self._options.thresholds))
        known = health(facts, findings, savings, self._run_id)
        path = save_facts(facts, Path(self._scratch.name, f"{slug(facts.name)}.facts.json"))
        return _Observed(name, path, time.monotonic() - started - waited, savings, known)

    def _render(self) -> None:
        with Kernel() as kernel:
            self._kernels.append(kernel)
            while not self._stopped.is_set():
                with contextlib.suppress(queue.Empty):
                    item = self._ready.get(timeout=_PATIENCE)
                    _start(kernel)
                    row = self._guarded(item.name, partial(self._render_one, item, kernel))
                    # What was observed is known, whatever became of the notebook.
                    self._done.put(replace(row, savings=item.savings, health=item.health))
                    with contextlib.suppress(OSError):  # its folder goes with the run
                        item.facts_file.unlink(missing_ok=True)

    def _render_one(self, item: _Observed, kernel: Kernel) -> Row:
        table, limit = display_name(item.name), self._options.timeout
        left = None if limit is None else limit - item.seconds
        started = time.monotonic()
        history = self._history_of(table, Path(self._scratch.name))
        page, outcome, error = rendered(
            kernel, item.name, item.facts_file, self._options, left, history=history
        )
        return Row(
            table,
            outcome.status if outcome else Status.CRASHED,
            item.seconds + time.monotonic() - started,
            outcome,
            page.name,
            error,
        )

    def _guarded(self, name: Identifier, step: Callable[[], T]) -> T | Row:
        """Do one step for a table; any failure becomes its row."""
        table, started = display_name(name), time.monotonic()
        try:
            return step()
        # A cancelled task is no Exception, and without a row the run would wait forever.
        except BaseException as problem:
            known = outside(problem)
            status = Status.MISCONFIGURED if known else Status.CRASHED
            if isinstance(problem, TimedOut):
                status = Status.TIMED_OUT
            error = str(known) if known else self._traced(table, problem)
            return Row(table, status, time.monotonic() - started, error=error)

    def _traced(self, table: str, problem: BaseException) -> str:
        """Save the complete error in a file, and name the file; a full disk must not lose the row
        too.
        """
        first = f"{type(problem).__name__}: {first_line(problem)}"
        try:
            kept_in = write_text(self._output / f"{slug(table)}.error.txt", trace(problem))
        except (OSError, ValueError) as refused:
            return f"{first}; its trace could not be kept ({type(refused).__name__})"
        return f"{first}; for details see {kept_in.name}"


def _start(kernel: Kernel) -> None:
    """Start the kernel if it is not running; if it does not start, its first notebook fails and
    becomes a row.
    """
    # A cancelled task is no Exception.
    with contextlib.suppress(Exception, asyncio.CancelledError), limited(kernel, _START):
        kernel.ready()


#: The index is written again after this many seconds,
_INDEX_SECONDS = 2.0
#: and after this many times the seconds that writing it took, so that thousands of tables do not
# make it dominate.
_INDEX_PATIENCE = 20.0


def report(
    options: ReportOptions,
    *,
    progress: Callable[[str], None] = print,
    known: FactsCache | None = None,
) -> ReportRun:
    """Report on ``options.tables``; every report is written before the gate fails.

    One connection, and one Spark session if needed, serve all tables. Facts are collected here, for
    ``options.jobs`` tables at once, and passed to the notebooks, a few of which run at once in warm
    kernels. A table that cannot be read, or takes longer than ``options.timeout``, gets a
    row that says so and does not stop the others; nor does a glob that matches nothing, as long as
    another table is found, nor a history that cannot be written. When the run is interrupted
    (Ctrl-C, or a signal), finished tables keep their reports, and the index lists them. ``known``
    has the facts of tables observed before. Raises the errors of :mod:`icekit.errors` for all
    tables.
    """
    thresholds = _checked(options)
    lake = connect(options.catalog or None)
    problems: list[str] = []
    names = lake.match(options.tables, problems)
    output = Path(options.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    for problem in problems:
        progress(problem)
    if known is None:  # a pass over several rules has said so
        progress(f"{count(len(names), 'table')} of catalog {lake.name}")
    # The kernel's and papermill's own notes, of which the rows have what matters.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    rows: list[Row] = []
    kept_in = store(options.history, lake)
    with _absolute_lake(), ended_like_interrupted():
        earlier = kept_in.last([display_name(name) for name in names]) if kept_in else {}

        def index() -> Path:
            shown = Index(
                rows=rows,
                made_at=f"{now:%Y-%m-%d %H:%M} UTC",
                catalog=lake.name,
                pending=len(names) - len(rows),
                remembered=earlier,
                thresholds=thresholds,
                problems=problems,
            )
            return write_index(shown, output / "index.html")

        history = partial(_history_of, earlier)
        workers = Workers(lake, names, options, run_id, history_of=history, known=known)
        try:
            with never_silent("working on the reports"), stderr_to_file(), workers:
                _follow(workers, rows, progress, index)
        finally:
            problems += remember(kept_in, rows, progress)
            page = index()
            ranked = [(row.table, output / row.page) for row in sorted(rows, key=rank) if row.page]
            link_neighbours(ranked)
    status = exit_status(rows, options.fail_on, problems)
    return ReportRun(tuple(rows), page, status, run_id, tuple(problems))


def _checked(options: ReportOptions) -> Thresholds:
    """The thresholds of a report, if all its options are possible."""
    check_gate(options.fail_on)
    if options.jobs < 1:
        raise ParameterError(f"The number of jobs must be 1 or more, not {options.jobs}.")
    return check(options)


def _history_of(remembered: Mapping[str, Sequence[Health]], table: str, folder: Path) -> str:
    """A file with the earlier runs of one table for its notebook, empty without any: a notebook's
    kernel opens no catalog.
    """
    path = folder / f"{slug(table)}.history.db"
    return str(path) if SqliteStore(path).append(remembered.get(table, ())) else ""


def _follow(
    workers: Workers,
    rows: list[Row],
    progress: Callable[[str], None],
    index: Callable[[], object],
) -> None:
    """Collect the rows of finished tables, report each, and write the index now and then."""
    due = time.monotonic() + _INDEX_SECONDS
    for row in workers.rows():
        rows.append(row)
        error = f": {row.error}" if row.error else ""
        progress(f"[{len(rows)}/{workers.count}] {row.summary}, {row.seconds:.1f} s{error}")
        if (began := time.monotonic()) > due:
            index()
            due = next_index(began, time.monotonic())


def next_index(began: float, ended: float) -> float:
    """When to write the index next, given the last time: writing it takes a small share of the
    run.
    """
    return ended + max(_INDEX_SECONDS, _INDEX_PATIENCE * (ended - began))


def remember(
    kept_in: Store | None, rows: Sequence[Row], progress: Callable[[str], None]
) -> list[str]:
    """Append this run's observations in one commit; returns an error sentence if that failed."""
    if kept_in is None:
        return []
    try:
        kept_in.append([row.health for row in rows if row.health is not None])
    except Exception as error:
        if (problem := outside(error)) is None:
            raise
        # The reports are there: a history that cannot be written must not take them away.
        progress(message := f"The history was not written: {problem}")
        return [message]
    return []


@contextlib.contextmanager
def _absolute_lake() -> Iterator[None]:
    """Let kernels find the same embedded lake whatever folder they run in."""
    before = os.environ.get("ICEKIT_LAKE")
    os.environ["ICEKIT_LAKE"] = str(embedded_path())
    try:
        yield
    finally:
        if before is None:
            del os.environ["ICEKIT_LAKE"]
        else:
            os.environ["ICEKIT_LAKE"] = before
