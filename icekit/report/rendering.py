"""Observe a table within its time limit, execute the notebook on its facts in a kernel, and write
its page.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop, run_sync
from nbclient import NotebookClient
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines

from icekit.catalog import Lake
from icekit.catalog.lake import in_time
from icekit.diagnose import diagnose
from icekit.diagnose.document import ReportedHealth, load_facts, read, save_facts
from icekit.diagnose.findings import Findings
from icekit.errors import EXIT_CRASHED, IcekitError, MetadataUnreadable
from icekit.facts.model import TableFacts
from icekit.notebook import limits
from icekit.report.page import write_page
from icekit.report.result import Options
from icekit.saving import slug, write_text
from icekit.secrets import mask_data, scrub
from icekit.sql import Identifier, display_name
from icekit.waiting import DeadlineExceeded

# --- Keep the facts of observed tables, each until its table changes


class FactsCache:
    """Facts in files of a folder, for later requests for the same tables; only their names are in
    memory.

    Facts are valid while the table's metadata file is the one they were collected from: every
    commit, and every change of a property, writes a new file. Storage changes without a new one
    (``remove_orphan_files`` commits nothing), so call :meth:`forget` after any action on a table.
    Without a folder nothing is saved. Threads may share it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._at: dict[Identifier, tuple[str, bool]] = {}

    def forget(self, name: Identifier) -> None:
        """Make the next call collect the table's facts again."""
        self._at.pop(name, None)

    def observe(
        self, lake: Lake, name: Identifier, *, storage: bool = False, **asked: Any
    ) -> TableFacts:
        """As :func:`icekit.facts.observe`; the facts are collected if they are unknown, or the
        table has changed.

        ``storage`` asks for facts about the table's storage; the result may include them anyway.
        """
        from icekit.facts import observe

        collect = functools.partial(observe, lake, name, storage=storage, **asked)
        if self._folder is None:
            return collect()
        kept = self._folder / f"{slug(display_name(name))}.facts.json"
        # Read before the facts are collected, because changes during the collection are not seen.
        at = lake.tables.source(name).metadata_location
        if self._at.get(name) in ((at, True), (at, storage)):
            return load_facts(kept)
        facts = collect()
        # With a full disk, facts are not kept but collected again.
        with contextlib.suppress(OSError):
            save_facts(facts, kept)
            self._at[name] = (at, storage)
        return facts


# --- Collect the facts of one table for its notebook within its time limit


class TimedOut(IcekitError):
    """A table took longer than its time limit."""

    exit_status = EXIT_CRASHED


class Observed(NamedTuple):
    """Facts and findings of one table; ``waited`` are seconds spent starting Spark, for all
    tables.
    """

    facts: TableFacts
    findings: Findings
    waited: float = 0.0


def observed(
    lake: Lake,
    name: Identifier,
    options: Options,
    seconds: float | None = None,
    *,
    collect: Callable[..., TableFacts],
) -> Observed:
    """A table's facts and findings; cancels its Spark work and raises :class:`TimedOut` after the
    time limit.

    Reading without Spark cannot be stopped (:func:`icekit.catalog.lake.in_time`). ``collect`` is
    :meth:`FactsCache.observe`, or takes the same arguments.
    """
    chosen = limits(options.thresholds)

    def work(taken: Any) -> tuple[TableFacts, float]:
        facts = collect(
            taken,
            name,
            ref=options.ref or None,
            collector=options.collector,
            size_ratios=chosen.size_ratios,
            filter_columns=list(options.filter_columns) or None,
            storage=options.storage,
        )
        return facts, taken.waited_seconds

    try:
        facts, waited = in_time(lake, seconds, work)
    except DeadlineExceeded:
        raise timed_out(name, seconds or 0.0) from None
    findings = diagnose(facts, chosen, session_conf=lake.session_conf())
    return Observed(facts, findings, waited)


def timed_out(name: Identifier, seconds: float) -> TimedOut:
    """The error message for a table that took too long."""
    return TimedOut(
        f"{display_name(name)} was not finished within {seconds:,.0f} s. Raise --timeout "
        "(`timeout` under `report` in a policy), or report on this table alone, with --collector "
        "spark if it is large."
    )


def clear(output: Path, name: Identifier) -> None:
    """Remove what an earlier run left of a table."""
    base = slug(display_name(name))
    for suffix in (".html", ".json", ".ipynb", ".error.txt"):
        (output / f"{base}{suffix}").unlink(missing_ok=True)


def kept(facts: TableFacts, scratch: Path) -> Path:
    """Facts in a file, for the notebook."""
    return save_facts(facts, scratch / f"{slug(facts.name)}.facts.json")


# --- Keep kernels warm: one notebook after another in one process, each as if in a new kernel
#
# Starting a kernel and importing what the notebook imports takes longer than running it. A kernel
# that has run one notebook has all of that; before the next its namespace, history and counter are
# reset (``InteractiveShell.reset``), so that the same cells give the same outputs and numbers.
# What would be left is what a notebook changes in modules, and the diagnosis changes nothing there.


ENGINE = "icekit"
_NAME = "python3"
#: The number of notebooks that a kernel runs before it is replaced, so that leaks stay small.
NOTEBOOKS = 50
_RESET = "get_ipython().reset(new_session=True)"


class Kernel:
    """One process that runs notebooks, one at a time; started on first use, and again after it
    died.

    It belongs to the thread that uses it; any thread may call :meth:`kill`.
    """

    def __init__(self, *, reuse: bool = True) -> None:
        self._reuse = reuse
        self._used = 0
        self._is_clean = True
        self.manager: Any = None

    def ready(self, imports: str) -> None:
        """Start the process if there is none, and import what notebooks import; this time counts
        for no table.
        """
        if self.manager is not None:
            return
        blank = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
        with self._client(NotebookClient, blank, _NAME) as client:
            client.start_new_kernel()
            client.start_new_kernel_client()
            client.wait_for_reply(client.kc.execute(imports, silent=True))
        self._is_clean = False

    def execute(self, notebook: Any, kernel_name: str) -> Any:
        """Run what papermill passes to an engine; any failure ends the process, because its state
        is then unknown.
        """
        with self._client(PapermillNotebookClient, notebook, kernel_name) as client:
            if not self._is_clean:
                client.start_new_kernel_client()
                client.wait_for_reply(client.kc.execute(_RESET, silent=True))
            done = client.execute()
        self._is_clean = False
        self._used += 1
        if not self._reuse or self._used >= NOTEBOOKS:
            self.end()
        return done

    @contextlib.contextmanager
    def _client(self, of: type[Any], notebook: Any, kernel_name: str) -> Iterator[Any]:
        if self.manager is None:
            self.manager = AsyncKernelManager(kernel_name=kernel_name)
        client = of(
            notebook, km=self.manager, kernel_name=kernel_name, startup_timeout=60, timeout=None
        )
        try:
            yield client
        except BaseException:
            self.end()
            raise
        finally:
            if client.kc is not None:
                client.kc.stop_channels()

    def kill(self) -> None:
        """End the process at once; its running notebook fails."""
        provisioner = getattr(self.manager, "provisioner", None)
        pid = getattr(provisioner, "pid", None)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Release the process, whether it is alive or not."""
        manager, self.manager, self._used, self._is_clean = self.manager, None, 0, True
        if manager is not None:
            with contextlib.suppress(Exception):
                run_sync(manager.shutdown_kernel)(now=True)


class Kernels:
    """A kernel for each thread, and a way to kill them all."""

    def __init__(self, *, reuse: bool = True) -> None:
        self._reuse = reuse
        self._every: list[Kernel] = []

    @contextlib.contextmanager
    def own(self) -> Iterator[Kernel]:
        """A kernel for this thread, which ends with the block; so does the thread's event loop."""
        kernel = Kernel(reuse=self._reuse)
        self._every.append(kernel)
        try:
            yield kernel
        finally:
            kernel.end()
            ensure_event_loop().close()

    def kill(self) -> None:
        """End every process at once, also those at work."""
        for kernel in self._every:
            kernel.kill()


class _Engine(NBClientEngine):  # type: ignore[misc]
    """papermill's own engine, in a given kernel."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, *, kernel: Kernel, **_: Any
    ) -> Any:
        """Run the notebook's cells as papermill does."""
        return kernel.execute(nb_man, kernel_name)


papermill_engines.register(ENGINE, _Engine)


@contextlib.contextmanager
def limited(kernel: Kernel, seconds: float | None) -> Iterator[threading.Event]:
    """Kill the kernel when the time is over; the yielded event is set if that happened."""
    over = threading.Event()
    if seconds is None:
        yield over
        return

    done = threading.Event()

    def stop() -> None:
        over.set()
        # Repeatedly, because a kernel that is just being started has no process yet.
        while not done.is_set():
            kernel.kill()
            done.wait(0.2)

    timer = threading.Timer(max(seconds, 0.0), stop)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        done.set()
        timer.cancel()


NOTEBOOK = "01_diagnose.ipynb"
#: Imported by charts when they are drawn.
_LATER = "import matplotlib.pyplot, pandas"


def rendered(
    kernel: Kernel,
    name: Identifier,
    facts_file: Path,
    options: Options,
    seconds: float | None = None,
    *,
    history: str = "",
) -> tuple[Path, ReportedHealth | None, str | None, Mapping[str, float]]:
    """A table's page, its document (None if a cell failed) with the reason, and the seconds of both
    steps.

    Kills the kernel and raises :class:`~icekit.report.rendering.TimedOut` after the time limit.
    """
    table, output = display_name(name), options.output.resolve()
    base = slug(table)
    started = time.monotonic()
    with limited(kernel, seconds) as over:
        try:
            notebook, error = _executed(
                kernel, _parameters(options, table, facts_file, history), output / f"{base}.ipynb"
            )
        except Exception:
            if over.is_set():
                raise timed_out(name, options.timeout_seconds or 0.0) from None
            raise
    ran = time.monotonic()
    said = None if error else read(output / f"{base}.json")
    page = write_page(
        notebook,
        f"{table}: {said.status if said else 'crashed'}",
        output / f"{base}.html",
        failed=said is None,
    )
    stages = {"notebook": ran - started, "page": time.monotonic() - ran}
    return page, said, error, stages


def _parameters(options: Options, table: str, facts_file: Path, history: str) -> dict[str, Any]:
    return {
        "catalog": options.catalog,
        "table": table,
        "ref": options.ref,
        "thresholds": dict(options.thresholds),
        "filter_columns": list(options.filter_columns),
        "collector": options.collector,
        "storage": options.storage,
        "output": str(options.output.resolve()),
        "facts_file": str(facts_file),
        "history": history,
    }


@functools.cache
def imports() -> str:
    """The notebook's imports as code, to prepare a kernel."""
    cells = json.loads(notebook_path().read_text(encoding="utf-8"))["cells"]
    lines = [
        line.rstrip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]
    ]
    return "\n".join([*(line for line in lines if line.startswith(("import ", "from "))), _LATER])


def _executed(kernel: Kernel, parameters: dict[str, Any], executed: Path) -> tuple[Any, str | None]:
    """Run the notebook through papermill; returns it and, if a cell failed, why."""
    import papermill

    error = None
    try:
        notebook = papermill.execute_notebook(
            str(notebook_path()),
            str(executed),
            parameters,
            engine_name=ENGINE,
            kernel=kernel,
            progress_bar=False,
            kernel_name="python3",
            # It is written once, at the end, because a table's notebook has half a megabyte of
            # pictures.
            request_save_on_cell_execute=False,
        )
    except OSError as problem:
        # With a full disk, papermill names no file, and leaves an incomplete one.
        problem.filename = problem.filename or str(executed)
        with contextlib.suppress(OSError):
            executed.unlink(missing_ok=True)
        raise
    except papermill.PapermillExecutionError as problem:
        error = scrub(f"{problem.ename}: {problem.evalue}").splitlines()[0][:300]
        notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    # papermill wrote it while it ran; secrets must not stay in it. The file has lines one by one,
    # so a key of several lines is not recognised there.
    notebook = nbformat.from_dict(mask_data(_scrubbed(notebook)))  # type: ignore[no-untyped-call]
    write_text(executed, nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    return notebook, error


def _scrubbed(notebook: Any) -> Any:
    """The notebook without secrets in logged messages and in stack traces."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if output.output_type == "error":
            output.evalue, output.traceback = (
                scrub(output.evalue),
                [scrub(frame) for frame in output.traceback],
            )
        elif output.output_type == "stream" and output.name == "stderr":
            output.text = scrub(output.text)
    return notebook


def notebook_path() -> Path:
    """Where the notebook is: next to the package in a checkout, under share/ when installed."""
    for folder in (
        Path(__file__).parents[2] / "notebooks",
        Path(sys.prefix) / "share" / "icekit" / "notebooks",
    ):
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    raise MetadataUnreadable(
        f"The notebook {NOTEBOOK} is not installed. Run icekit from a checkout, or reinstall it."
    )
