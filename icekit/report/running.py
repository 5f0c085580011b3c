"""Report on many tables and keep what is done, whatever happens next."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from icekit.catalog import connect
from icekit.catalog.lake import embedded_path
from icekit.ending import ended_like_interrupted
from icekit.engine.boundary import outside
from icekit.history.opening import handed_over, opened
from icekit.history.store import Store
from icekit.notebook import limits
from icekit.quiet import stderr_to_file
from icekit.report.index import write_index
from icekit.report.keeping import NAME, Journal, begin
from icekit.report.known import Known
from icekit.report.rows import Options, Row, Run, exit_status
from icekit.sql import display_name
from icekit.units import count

#: The index is written again when so many seconds have gone by,
_INDEX_SECONDS = 2.0
#: and so many times as long as writing it took: of thousands of tables it is not written all the time.
_INDEX_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Part:
    """A report that is part of something larger, which has ``before`` tables done of ``altogether``, and facts of some."""

    before: int
    altogether: int
    known: Known | None = None


def report(tables: Sequence[str], options: Options, *, progress: Callable[[str], None] = print, part: Part | None = None) -> Run:
    """Report on tables (names or globs); every report is written before the gate fails.

    One connection, and one Spark session where one is needed, serve all tables. Facts are collected
    here, of ``options.jobs`` tables at once, and handed to the notebooks, a few of which run at once in
    kernels that are kept. A table that cannot be read, or takes longer than ``options.timeout_seconds``,
    gets a row that says so and does not stop the others; nor does a glob that matches nothing, as long
    as anything is found, nor a history that cannot be written. When the run is interrupted (Ctrl-C, or a
    signal to end) the tables that are done keep their reports, and ``index.html`` lists them. ``part``
    numbers them on from what came before. Raises
    :class:`~icekit.errors.IcekitError` only for what concerns them all: the profile, the catalog, a parameter.
    """
    from icekit.report.crew import Crew  # with papermill; a notebook that reads facts goes without it

    chosen = limits(options.thresholds, options.fail_on)
    lake = connect(options.catalog or None)
    lost: list[str] = []
    names = lake.match(tables, lost)
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    asked = [display_name(name) for name in names]
    begun = begin(asked, options, output / NAME, dt.datetime.now(dt.UTC))
    for problem in lost:
        progress(problem)
    if part is None:
        progress(f"{count(len(names), 'table')} of catalog {lake.name}")
    before, altogether = (part.before, part.altogether) if part else (0, len(names))
    if begun.done:
        progress(f"going on with run {begun.run_id}: {count(len(begun.done), 'table')} done already")
    # The kernel's and papermill's own notes; what matters of them is in the rows.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    there = {row.table for row in begun.done}
    todo = [name for name in names if display_name(name) not in there]
    rows = list(begun.done)
    with opened(options.history, lake) as store, _absolute_lake(), ended_like_interrupted():
        remembered = store.lately(asked, other_than=begun.run_id) if store else {}

        def history_of(table: str, folder: Path) -> str:
            """All that is kept of one table, read when its notebook is next."""
            if store is None or table not in remembered:
                return ""
            return handed_over(store.last([table], other_than=begun.run_id).get(table), table, folder)

        def index() -> Path:
            made_at = f"{dt.datetime.fromtimestamp(begun.started_ms / 1000, dt.UTC):%Y-%m-%d %H:%M} UTC"
            return write_index(
                rows,
                output / "index.html",
                made_at=made_at,
                catalog=lake.name,
                pending=len(names) - len(rows),
                remembered=remembered,
                thresholds=chosen,
                problems=lost,
            )

        try:
            with (
                Journal(begun, asked, options, output / NAME) as journal,
                stderr_to_file(),
                Crew(lake, todo, options, begun.run_id, history_of=history_of, known=part.known if part else None) as crew,
            ):
                due = time.monotonic() + _INDEX_SECONDS
                for row in crew.rows():
                    rows.append(row)
                    journal.add(row)
                    told = f": {row.error}" if row.error else ""
                    progress(f"[{before + len(rows)}/{altogether}] {row.table}: {row.status}, {row.seconds:.1f} s{told}")
                    if (began := time.monotonic()) > due:
                        index()
                        due = next_index(began, time.monotonic())
                journal.end()
        finally:
            lost += remember(store, rows, progress)
            page = index()
    return Run(tuple(rows), page, exit_status(rows, options.fail_on, lost), begun.run_id, tuple(lost))


def next_index(began: float, ended: float) -> float:
    """When the index is written next, by when it was last: a small share of the run's time goes into it."""
    return ended + max(_INDEX_SECONDS, _INDEX_PATIENCE * (ended - began))


def remember(store: Store | None, rows: Sequence[Row], progress: Callable[[str], None]) -> list[str]:
    """Append what this run has observed, in one commit; returns what is to be said where that failed."""
    if store is None:
        return []
    try:
        store.append([row.health for row in rows if row.health is not None])
    except Exception as error:
        if (problem := outside(error)) is None:
            raise
        # The reports are there: a history that cannot be written must not take them away.
        progress(said := f"The history was not written: {problem}")
        return [said]
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
