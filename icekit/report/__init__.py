"""Run the diagnosis notebook unattended: HTML, JSON, an index, an exit status."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime as dt
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from icekit.catalog import Lake, connect
from icekit.errors import EXIT_CRASHED, EXIT_HEALTHY, EXIT_MISCONFIGURED, EXIT_UNHEALTHY, IcekitError, MetadataUnreadable
from icekit.facts.collect import Collector
from icekit.notebook import gated, limits
from icekit.quiet import stderr_to_file
from icekit.report.document import read, save_facts
from icekit.report.page import Row, write_index, write_page
from icekit.saving import slug, write_text
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name
from icekit.units import count

T = TypeVar("T")

NOTEBOOK = "01_diagnose.ipynb"
# Notebooks at once: each is a Python process that mostly imports and draws on one core.
KERNELS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Options:
    """How a report is made; the defaults are the notebook's."""

    catalog: str = ""
    ref: str = ""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    filter_columns: Sequence[str] = ()
    collector: Collector = "auto"
    storage: bool = False
    fail_on: str = "never"
    output: Path = Path("reports")


@dataclass(frozen=True, slots=True)
class Run:
    """What a report run left: a row per table, the index, the exit status."""

    rows: tuple[Row, ...]
    index: Path
    exit_status: int


def report(tables: Sequence[str], options: Options, *, progress: Callable[[str], None] = print) -> Run:
    """Report on tables (names or globs); every report is written before the gate fails.

    One connection, and one Spark session where one is needed, serve all tables: facts are
    collected here and handed to the notebooks, a few of which run at once. A table that cannot be read gets a row that
    says so and does not stop the others. Raises :class:`~icekit.errors.IcekitError` only
    for what concerns them all: the profile, the catalog, a parameter.
    """
    limits(options.thresholds, options.fail_on)
    lake = connect(options.catalog or None)
    names = lake.match(tables)
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    progress(f"{count(len(names), 'table')} of catalog {lake.name}")

    def told(row: Row) -> None:
        rows.append(row)
        progress(f"[{len(rows)}/{len(names)}] {row.table}: {row.status}, {row.seconds:.1f} s{': ' + row.error if row.error else ''}")

    # The kernel's and papermill's own notes; what matters of them is in the rows.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="icekit-") as scratch,
        _absolute_lake(),
        stderr_to_file(),
        concurrent.futures.ThreadPoolExecutor(KERNELS) as pool,
    ):
        running: set[concurrent.futures.Future[Row]] = set()
        try:
            for name in names:
                started = time.monotonic()
                observed = _guarded(name, output, partial(_observe, lake, name, options, output, Path(scratch)))
                if isinstance(observed, Row):
                    told(observed)
                else:
                    spent = time.monotonic() - started
                    running.add(pool.submit(_guarded, name, output, partial(_render, observed, name, options, output, spent)))
                done = {future for future in running if future.done()}
                running -= done
                for future in done:
                    told(future.result())
            for future in concurrent.futures.as_completed(running):
                told(future.result())
        except BaseException:
            # Whoever interrupts does not want to wait for the tables that have not begun.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    made_at = f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
    index = write_index(rows, output / "index.html", made_at=made_at, catalog=lake.name)
    return Run(tuple(rows), index, exit_status(rows, options.fail_on))


def exit_status(rows: Sequence[Row], fail_on: str) -> int:
    """The gravest of: crashed 3, misconfigured 2, unhealthy by the gate 1, healthy 0."""
    found = {EXIT_HEALTHY}
    for row in rows:
        if row.status == "crashed":
            found.add(EXIT_CRASHED)
        elif row.status == "misconfigured":
            found.add(EXIT_MISCONFIGURED)
        elif row.outcome and gated(row.outcome.worst, fail_on):
            found.add(EXIT_UNHEALTHY)
    return max(found)


def _guarded(name: Identifier, output: Path, step: Callable[[], T]) -> T | Row:
    """Take a step for one table; whatever goes wrong becomes its row."""
    table, started = display_name(name), time.monotonic()
    try:
        return step()
    except IcekitError as problem:
        return Row(table, "misconfigured", time.monotonic() - started, error=scrub(str(problem)))
    except Exception as problem:
        trace = write_text(output / f"{slug(table)}.error.txt", traceback.format_exc())
        first = scrub(f"{type(problem).__name__}: {problem}").splitlines()[0][:200]
        return Row(table, "crashed", time.monotonic() - started, error=f"{first}; the whole of it is in {trace.name}")


def _observe(lake: Lake, name: Identifier, options: Options, output: Path, scratch: Path) -> Path:
    """Collect a table's facts into a file for its notebook; removes what an earlier run left of it."""
    base = slug(display_name(name))
    for suffix in (".html", ".json", ".ipynb", ".error.txt"):
        (output / f"{base}{suffix}").unlink(missing_ok=True)
    facts = lake.observe(
        name,
        ref=options.ref or None,
        collector=options.collector,
        size_ratios=limits(options.thresholds).size_ratios,
        filter_columns=list(options.filter_columns) or None,
        storage=options.storage,
    )
    return save_facts(facts, scratch / f"{base}.facts.json")


def _render(facts_file: Path, name: Identifier, options: Options, output: Path, spent: float) -> Row:
    """Run the notebook on a table's facts and export its page; ``spent`` seconds went before."""
    started = time.monotonic() - spent
    table = display_name(name)
    base = slug(table)
    notebook, error = _execute(facts_file, table, options, output, output / f"{base}.ipynb")
    page = write_page(notebook, f"{table}: table health", output / f"{base}.html")
    if error:
        return Row(table, "crashed", time.monotonic() - started, page=page.name, error=error)
    outcome = read(output / f"{base}.json")
    return Row(table, outcome.status, time.monotonic() - started, outcome, page.name)


def _execute(facts_file: Path, table: str, options: Options, output: Path, executed: Path) -> tuple[Any, str | None]:
    """Run the notebook through papermill; returns it and, if a cell failed, why."""
    import nbformat
    import papermill

    parameters = {
        "catalog": options.catalog,
        "table": table,
        "ref": options.ref,
        "thresholds": dict(options.thresholds),
        "filter_columns": list(options.filter_columns),
        "collector": options.collector,
        "storage": options.storage,
        "output": str(output),
        "facts_file": str(facts_file),
    }
    error = None
    try:
        papermill.execute_notebook(
            str(notebook_path()), str(executed), parameters, progress_bar=False, cwd=str(Path.cwd()), kernel_name="python3"
        )
    except papermill.PapermillExecutionError as problem:
        error = scrub(f"{problem.ename}: {problem.evalue}").splitlines()[0][:300]
    notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    # papermill wrote it as it ran; secrets must not stay in it.
    write_text(executed, executed.read_text(encoding="utf-8"))
    return notebook, error


def notebook_path() -> Path:
    """Where the notebook is: beside the package in a checkout, under share/ when installed."""
    for folder in (Path(__file__).parents[2] / "notebooks", Path(sys.prefix) / "share" / "icekit" / "notebooks"):
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    raise MetadataUnreadable(f"The notebook {NOTEBOOK} is not installed; run from a checkout, or install icekit again.")


@contextlib.contextmanager
def _absolute_lake() -> Iterator[None]:
    """Let kernels find the same embedded lake whatever folder they run in."""
    from icekit.catalog.lake import embedded_path

    before = os.environ.get("ICEKIT_LAKE")
    os.environ["ICEKIT_LAKE"] = str(embedded_path())
    try:
        yield
    finally:
        if before is None:
            del os.environ["ICEKIT_LAKE"]
        else:
            os.environ["ICEKIT_LAKE"] = before
