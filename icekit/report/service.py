"""Run the diagnosis notebook unattended on many tables at once: HTML, JSON, an index, an exit
status; finished tables survive an interruption.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import queue
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from icekit.common.commands.observe import ReportOptions
from icekit.common.errors import Status, require_number, trace, why
from icekit.common.saving import slug, write_text
from icekit.common.sql import Identifier, display_name
from icekit.common.terminal import report_waiting, stderr_to_file
from icekit.common.units import count
from icekit.engine.errors import environment_error
from icekit.engine.interrupting import sigterm_as_interrupt
from icekit.engine.lake import Lake
from icekit.health.diagnose.document import save_facts
from icekit.health.diagnose.findings import Thresholds
from icekit.maintain.planning.savings import savings_of
from icekit.report.facts_cache import FactsCache
from icekit.report.history.store import HealthRecord, HistoryFile, health_record
from icekit.report.index import Index, rank, write_index
from icekit.report.page import link_neighbours
from icekit.report.rendering import KERNELS, Kernel, remove_outputs, render_row
from icekit.report.result import (
    ReportRow,
    ReportRun,
    checked_thresholds,
    status_and_error,
    worst_exit_status,
)

#: Seconds that a thread waits before it checks for a request to stop.
_PATIENCE = 0.5
#: Seconds to wait for threads after a request to stop; stuck threads are left behind.
_LEAVE = 5.0
#: The index is written again after this many seconds.
_INDEX_SECONDS = 30.0


class Workers:
    """Threads that report on tables; use it in a ``with`` block, which ends the threads and their
    kernels.

    ``earlier_runs`` has the earlier runs of tables, ``facts_cache`` the facts of tables observed
    before; it stores new ones.
    """

    def __init__(
        self,
        lake: Lake,
        names: Sequence[Identifier],
        options: ReportOptions,
        run_id: str,
        earlier_runs: Mapping[str, Sequence[HealthRecord]],
        facts_cache: FactsCache | None = None,
    ) -> None:
        self._lake = lake
        self._options = options
        self._run_id = run_id
        self._earlier_runs = earlier_runs
        self._facts_cache = facts_cache or FactsCache()
        self._output = Path(options.output).resolve()
        self.count = len(names)
        self._stopped = threading.Event()
        self._todo = deque(names)
        # Rows of observed tables; short, so that facts do not pile up before the notebooks.
        self._ready: queue.Queue[ReportRow] = queue.Queue(maxsize=2 * KERNELS)
        self._done: queue.SimpleQueue[ReportRow] = queue.SimpleQueue()
        self._kernels: list[Kernel] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="icekit-")
        # Daemons: storage that does not answer must not keep the process alive.
        thread_functions = [self._observe_tables] * min(options.jobs, self.count) + [
            self._render_tables
        ] * min(KERNELS, self.count)
        self._threads = [
            threading.Thread(target=thread_function, daemon=True)
            for thread_function in thread_functions
        ]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        self._stopped.set()
        if error_type is not None:
            # A user who interrupts does not want to wait for running notebooks.
            for kernel in self._kernels:
                kernel.kill()
        for thread in self._threads:
            thread.join(timeout=_LEAVE)
        with contextlib.suppress(OSError):  # a thread that was left behind may still write there
            self._scratch.cleanup()

    def rows(self) -> Iterator[ReportRow]:
        """The row of each table, as the table is finished."""
        for _ in range(self.count):
            yield self._done.get()

    def _observe_tables(self) -> None:
        while not self._stopped.is_set():
            try:
                name = self._todo.popleft()
            except IndexError:
                return
            row = self._run_step(display_name(name), partial(self._observe_table, name))
            if row.health is None:
                self._done.put(row)
                continue
            while not self._stopped.is_set():
                with contextlib.suppress(queue.Full):
                    self._ready.put(row, timeout=_PATIENCE)
                    break

    def _observe_table(self, name: Identifier) -> ReportRow:
        start_seconds = time.monotonic()
        table_name = display_name(name)
        remove_outputs(self._output, table_name)
        facts, findings = self._facts_cache.facts_and_findings(self._lake, name, self._options)
        savings = savings_of(facts, findings, Thresholds().with_changes(**self._options.thresholds))
        table_health = health_record(facts, findings, savings, self._run_id)
        save_facts(facts, self._facts_file(table_name))
        seconds = time.monotonic() - start_seconds
        return ReportRow(
            table_name, str(table_health.status), seconds, savings=savings, health=table_health
        )

    def _render_tables(self) -> None:
        with Kernel() as kernel:
            self._kernels.append(kernel)
            while not self._stopped.is_set():
                with contextlib.suppress(queue.Empty):
                    observed_row = self._ready.get(timeout=_PATIENCE)
                    table = observed_row.table
                    row = self._run_step(table, partial(self._render_table, observed_row, kernel))
                    # What was observed is known, whatever became of the notebook.
                    savings = observed_row.savings
                    table_health = observed_row.health
                    self._done.put(replace(row, savings=savings, health=table_health))
                    with contextlib.suppress(OSError):  # its folder goes with the run
                        self._facts_file(table).unlink(missing_ok=True)

    def _render_table(self, row: ReportRow, kernel: Kernel) -> ReportRow:
        # The earlier runs of the table in a file: a notebook's kernel opens no catalog.
        history_path = Path(self._scratch.name, f"{slug(row.table)}.history.db")
        history_argument = (
            str(history_path)
            if HistoryFile(history_path).append(self._earlier_runs.get(row.table, ()))
            else ""
        )
        facts_file = self._facts_file(row.table)
        return render_row(kernel, row, facts_file, self._options, history_path=history_argument)

    def _facts_file(self, table: str) -> Path:
        return Path(self._scratch.name, f"{slug(table)}.facts.json")

    def _run_step(self, table: str, step: Callable[[], ReportRow]) -> ReportRow:
        """Do one step for a table; any failure becomes its row."""
        start_seconds = time.monotonic()
        try:
            return step()
        # A cancelled task is no Exception, and without a row the run would wait forever.
        except BaseException as problem:
            status, known_error = status_and_error(problem)
            if self._stopped.is_set():
                # Nobody waits for the row, and a kernel that was ended is no failure of its table.
                return ReportRow(table, Status.STOPPED, time.monotonic() - start_seconds)
            error_text = str(known_error) if known_error else self._save_trace(table, problem)
            return ReportRow(table, status, time.monotonic() - start_seconds, error=error_text)

    def _save_trace(self, table: str, problem: BaseException) -> str:
        """Save the complete error in a file, and name the file; a full disk must not lose the row
        too.
        """
        error_text = why(problem)
        try:
            trace_file = write_text(self._output / f"{slug(table)}.error.txt", trace(problem))
        except (OSError, ValueError) as write_error:
            return f"{error_text}; its trace could not be kept ({type(write_error).__name__})"
        return f"{error_text}; for details see {trace_file.name}"


def report(
    options: ReportOptions,
    *,
    progress: Callable[[str], None] = print,
    facts_cache: FactsCache | None = None,
) -> ReportRun:
    """Report on ``options.tables``; every report is written before the gate fails.

    Facts are collected for ``options.jobs`` tables at once. A table that cannot be read, or takes
    longer than ``options.timeout``, gets a row that says so and does not stop the others; nor does
    a glob that matches nothing, as long as another table is found, nor a history that cannot be
    written. An interrupted run keeps the reports of finished tables. ``facts_cache`` has the facts
    of tables observed before. Raises the errors of :mod:`icekit.common.errors`.
    """
    require_number("The number of jobs", options.jobs, is_positive=True)
    thresholds = checked_thresholds(options)
    lake = Lake.connect(options.catalog)
    problems: list[str] = []
    table_names = lake.match(options.tables, problems)
    output_folder = Path(options.output).resolve()
    output_folder.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    for problem in problems:
        progress(problem)
    if facts_cache is None:  # a pass over several rules has said so
        progress(f"{count(len(table_names), 'table')} of catalog {lake.name}")
    # The kernel's and papermill's own notes, of which the rows have what matters.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    rows: list[ReportRow] = []
    history_file = HistoryFile(Path(options.history).expanduser()) if options.history else None
    with sigterm_as_interrupt():
        earlier_runs = (
            history_file.newest_runs([display_name(table_name) for table_name in table_names])
            if history_file
            else {}
        )
        index = Index(
            rows=rows,
            made_at=f"{now:%Y-%m-%d %H:%M} UTC",
            catalog=lake.name,
            expected_table_count=len(table_names),
            earlier_runs=earlier_runs,
            thresholds=thresholds,
            problems=problems,
        )
        index_path = output_folder / "index.html"
        workers = Workers(lake, table_names, options, run_id, earlier_runs, facts_cache)
        next_index_seconds = time.monotonic() + _INDEX_SECONDS
        try:
            with report_waiting("working on the reports"), stderr_to_file(), workers:
                for row in workers.rows():
                    rows.append(row)
                    progress(f"[{len(rows)}/{workers.count}] {_row_summary(row)}")
                    if time.monotonic() > next_index_seconds:
                        write_index(index, index_path)
                        next_index_seconds = time.monotonic() + _INDEX_SECONDS
        finally:
            problems += append_to_history(history_file, rows, progress)
            write_index(index, index_path)
            ranked_rows = sorted(rows, key=rank)
            link_neighbours(
                [(row.table, output_folder / row.page_name) for row in ranked_rows if row.page_name]
            )
    run_status = worst_exit_status([row.verdict(options.fail_on) for row in rows], problems)
    return ReportRun(tuple(rows), index_path, run_status, run_id, tuple(problems))


def _row_summary(row: ReportRow) -> str:
    """``db.events: critical, 2 findings, 1.2 s``."""
    findings_text = f", {count(len(row.findings), 'finding')}" if row.findings else ""
    error_text = f": {row.error}" if row.error else ""
    return f"{row.table}: {row.status}{findings_text}, {row.seconds:.1f} s{error_text}"


def append_to_history(
    history_file: HistoryFile | None, rows: Sequence[ReportRow], progress: Callable[[str], None]
) -> list[str]:
    """Append this run's observations in one commit; returns an error sentence if that failed."""
    if history_file is None:
        return []
    try:
        history_file.append([row.health for row in rows if row.health is not None])
    except Exception as error:
        if (known_error := environment_error(error)) is None:
            raise
        # The reports are there: a history that cannot be written must not take them away.
        progress(error_sentence := f"The history was not written: {known_error}")
        return [error_sentence]
    return []
