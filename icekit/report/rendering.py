"""Execute the notebook on the facts of a table in a warm kernel, within the table's time limit, and
write its page.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop, run_sync
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines

from icekit.common.commands.observe import ReportOptions
from icekit.common.errors import Status
from icekit.common.saving import slug, write_text
from icekit.common.secrets import mask_data, scrub
from icekit.engine.interrupting import Stop, act_on_request
from icekit.report.facts_cache import TimedOut
from icekit.report.notebook_file import notebook_path
from icekit.report.page import write_page
from icekit.report.result import ReportRow

# Starting a kernel and importing what the notebook imports takes longer than running it. A kernel
# that has run one notebook has all of that; before the next its namespace, history and counter are
# reset (``InteractiveShell.reset``), so that the same cells give the same outputs and numbers.
# What would be left is what a notebook changes in modules, and the diagnosis changes nothing there.


ENGINE = "icekit"
#: Notebooks at once: each is a Python process that uses one core.
KERNELS = min(4, os.cpu_count() or 1)
_NAME = "python3"
#: The number of notebooks that a kernel runs before it is replaced, so that leaks stay small.
NOTEBOOKS = 50
# A reset looks for garbage among all objects, most of which imports have made: these are left out.
_RESET = "import gc; get_ipython().reset(new_session=True); gc.get_freeze_count() or gc.freeze()"


class Kernel:
    """One process that runs notebooks, one at a time; started on first use, and again after it
    died.

    It belongs to the thread that uses it in a ``with`` block, which ends the process and the
    thread's event loop; any thread may call :meth:`kill`.
    """

    def __init__(self) -> None:
        self._used = 0
        self.manager: Any = None

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        ensure_event_loop().close()

    def execute(self, notebook: Any) -> Any:
        """Run what papermill passes to an engine; any failure ends the process, because its state
        is then unknown.
        """
        if self.manager is None:
            self.manager = AsyncKernelManager(kernel_name=_NAME)
        notebook_client = PapermillNotebookClient(
            notebook, km=self.manager, kernel_name=_NAME, startup_timeout=60, timeout=None
        )
        try:
            if self._used:
                notebook_client.start_new_kernel_client()
                notebook_client.wait_for_reply(notebook_client.kc.execute(_RESET, silent=True))
            executed_notebook = notebook_client.execute()
        except BaseException:
            self.end()
            raise
        finally:
            if notebook_client.kc is not None:
                notebook_client.kc.stop_channels()
        self._used += 1
        if self._used >= NOTEBOOKS:
            self.end()
        return executed_notebook

    def kill(self) -> None:
        """End the process at once; its running notebook fails."""
        provisioner = getattr(self.manager, "provisioner", None)
        pid = getattr(provisioner, "pid", None)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Release the process, whether it is alive or not."""
        manager = self.manager
        self.manager = None
        self._used = 0
        if manager is not None:
            with contextlib.suppress(Exception):
                run_sync(manager.shutdown_kernel)(now=True)


class _Engine(NBClientEngine):  # type: ignore[misc]
    """papermill's own engine, in a given kernel."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, _kernel_name: str, *, kernel: Kernel, **_: Any
    ) -> Any:
        """Run the notebook's cells as papermill does."""
        return kernel.execute(nb_man)


papermill_engines.register(ENGINE, _Engine)


@contextlib.contextmanager
def kill_after(kernel: Kernel, seconds: float | None) -> Iterator[Stop]:
    """Kill the kernel when the time is over (None: never); the yielded stop is set from then on."""
    timeout_stop = Stop(seconds)
    # Again and again, because a kernel that is just being started has no process yet.
    with act_on_request(lambda: timeout_stop.is_set, kernel.kill):
        yield timeout_stop


def remove_outputs(output_folder: Path, table: str) -> None:
    """Remove what an earlier run left of a table."""
    base_name = slug(table)
    for suffix in (".html", ".json", ".ipynb", ".error.txt"):
        (output_folder / f"{base_name}{suffix}").unlink(missing_ok=True)


def render_row(
    kernel: Kernel,
    row: ReportRow,
    facts_file: Path,
    options: ReportOptions,
    *,
    history_path: str,
) -> ReportRow:
    """The row of an observed table with its page; ``crashed`` if a cell failed.

    Kills the kernel and raises :class:`~icekit.report.facts_cache.TimedOut` after the time limit.
    """
    output_folder = Path(options.output).resolve()
    base_name = slug(row.table)
    notebook_parameters = {
        "table": row.table,
        "thresholds": dict(options.thresholds),
        "filter_columns": list(options.filter_columns),
        "output": str(output_folder),
        "facts_file": str(facts_file),
        "history": history_path,
        **options.only("catalog", "ref", "collector", "storage"),
    }
    timeout_seconds = options.timeout
    start_seconds = time.monotonic()
    with kill_after(
        kernel, None if timeout_seconds is None else timeout_seconds - row.seconds
    ) as timeout_stop:
        try:
            notebook, error_text = _execute_notebook(
                kernel, notebook_parameters, output_folder / f"{base_name}.ipynb"
            )
        except Exception:
            if timeout_stop.is_set:
                raise TimedOut(row.table, timeout_seconds) from None
            raise
    status = Status.CRASHED if error_text else row.status
    title = f"{row.table}: {status}"
    page_path = output_folder / f"{base_name}.html"
    write_page(notebook, title, page_path, has_failed=error_text is not None)
    seconds = row.seconds + time.monotonic() - start_seconds
    return replace(row, status=status, seconds=seconds, page_name=page_path.name, error=error_text)


def _execute_notebook(
    kernel: Kernel, parameters: dict[str, Any], notebook_file: Path
) -> tuple[Any, str | None]:
    """Run the notebook through papermill; returns it and, if a cell failed, why."""
    import papermill

    error_text = None
    try:
        notebook = papermill.execute_notebook(
            str(notebook_path()),
            str(notebook_file),
            parameters,
            engine_name=ENGINE,
            kernel=kernel,
            progress_bar=False,
            kernel_name=_NAME,
            # It is written once, at the end, because a table's notebook has half a megabyte of
            # pictures.
            request_save_on_cell_execute=False,
        )
    except OSError as problem:
        # With a full disk, papermill names no file, and leaves an incomplete one.
        problem.filename = problem.filename or str(notebook_file)
        with contextlib.suppress(OSError):
            notebook_file.unlink(missing_ok=True)
        raise
    except papermill.PapermillExecutionError as problem:
        error_text = scrub(f"{problem.ename}: {problem.evalue}").splitlines()[0][:300]
        notebook = nbformat.read(notebook_file, as_version=4)  # type: ignore[no-untyped-call]
    # papermill wrote it while it ran; secrets must not stay in it. The file has lines one by one,
    # so a key of several lines is not recognised there.
    notebook = nbformat.from_dict(mask_data(_scrub_secrets(notebook)))  # type: ignore[no-untyped-call]
    write_text(notebook_file, nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    return notebook, error_text


def _scrub_secrets(notebook: Any) -> Any:
    """The notebook without secrets in logged messages and in stack traces."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if output.output_type == "error":
            output.evalue = scrub(output.evalue)
            output.traceback = [scrub(trace_frame) for trace_frame in output.traceback]
        elif output.output_type == "stream" and output.name == "stderr":
            output.text = scrub(output.text)
    return notebook
