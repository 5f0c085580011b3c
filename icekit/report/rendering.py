"""Run the notebook on a table's facts, and export its page."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.diagnose.document import Outcome, read
from icekit.errors import MetadataUnreadable
from icekit.report.observing import timed_out
from icekit.report.page import write_page
from icekit.report.rows import Options
from icekit.saving import slug, write_text
from icekit.secrets import mask_data, scrub
from icekit.sql import Identifier, display_name

if TYPE_CHECKING:
    from icekit.report.kernels import Kernel

NOTEBOOK = "01_diagnose.ipynb"
#: Imported by charts when they are drawn.
_LATER = "import matplotlib.pyplot, pandas"


def rendered(
    kernel: Kernel, name: Identifier, facts_file: Path, options: Options, seconds: float | None = None, *, history: str = ""
) -> tuple[Path, Outcome | None, str | None, Mapping[str, float]]:
    """A table's page, what its document says (None if a cell failed) and why, and the seconds of both steps.

    Raises :class:`~icekit.report.observing.TimedOut`, the kernel killed, after so many seconds.
    """
    from icekit.report.kernels import limited

    table, output = display_name(name), options.output.resolve()
    base = slug(table)
    started = time.monotonic()
    with limited(kernel, seconds) as over:
        try:
            notebook, error = _executed(
                kernel, {**_parameters(options, table, facts_file), **_known("history", history)}, output / f"{base}.ipynb"
            )
        except Exception:
            if over.is_set():
                raise timed_out(name, options.timeout_seconds or 0.0) from None
            raise
    ran = time.monotonic()
    page = write_page(notebook, f"{table}: table health", output / f"{base}.html")
    stages = {"notebook": ran - started, "page": time.monotonic() - ran}
    return page, None if error else read(output / f"{base}.json"), error, stages


def _parameters(options: Options, table: str, facts_file: Path) -> dict[str, Any]:
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
    }


def _known(name: str, value: str) -> dict[str, str]:
    """A parameter that is given only where the notebook has it."""
    return {name: value} if value and name in _declared(notebook_path()) else {}


@functools.cache
def imports() -> str:
    """What the notebook imports, as code, for a kernel that is got ready for it."""
    cells = json.loads(notebook_path().read_text(encoding="utf-8"))["cells"]
    lines = [line.rstrip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]]
    return "\n".join([*(line for line in lines if line.startswith(("import ", "from "))), _LATER])


@functools.cache
def _declared(notebook: Path) -> frozenset[str]:
    """The names of a notebook's parameters, one a line."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    tagged = [line for cell in cells if "parameters" in cell["metadata"].get("tags", ()) for line in cell["source"]]
    return frozenset(line.partition(":")[0] for line in tagged)


def _executed(kernel: Kernel, parameters: dict[str, Any], executed: Path) -> tuple[Any, str | None]:
    """Run the notebook through papermill; returns it and, if a cell failed, why."""
    import nbformat
    import papermill

    from icekit.report.kernels import ENGINE

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
            # It is written once, at its end: a table's notebook holds half a megabyte of pictures.
            request_save_on_cell_execute=False,
        )
    except OSError as problem:
        # papermill names no file where the disk is full, and leaves half of it.
        problem.filename = problem.filename or str(executed)
        with contextlib.suppress(OSError):
            executed.unlink(missing_ok=True)
        raise
    except papermill.PapermillExecutionError as problem:
        error = scrub(f"{problem.ename}: {problem.evalue}").splitlines()[0][:300]
        notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    # papermill wrote it as it ran; secrets must not stay in it. A file has a text's lines one by one, where a key of several is not seen.
    notebook = nbformat.from_dict(mask_data(_scrubbed(notebook)))  # type: ignore[no-untyped-call]
    write_text(executed, nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    return notebook, error


def _scrubbed(notebook: Any) -> Any:
    """The notebook without secrets in what libraries logged, and in the traces of what failed."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if output.output_type == "error":
            output.evalue, output.traceback = scrub(output.evalue), [scrub(frame) for frame in output.traceback]
        elif output.output_type == "stream" and output.name == "stderr":
            output.text = scrub(output.text)
    return notebook


def notebook_path() -> Path:
    """Where the notebook is: beside the package in a checkout, under share/ when installed."""
    for folder in (Path(__file__).parents[2] / "notebooks", Path(sys.prefix) / "share" / "icekit" / "notebooks"):
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    raise MetadataUnreadable(f"The notebook {NOTEBOOK} is not installed; run from a checkout, or install icekit again.")
