"""Every notebook from top to bottom, in one kernel and so one JVM, with what it marks as checked as it is stored.

Not collected by itself, as it works on ``build/lake`` and not in a worker's own: scripts/test-notebooks.sh runs it by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat.v4
import pytest
from nbclient import NotebookClient

from tests.workshop import building

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CHECKED = "# NBVAL_CHECK_OUTPUT"
#: What is measured elsewhere need not take its time here.
CHEAP: Mapping[str, Mapping[str, Any]] = {"04_equality_deletes": {"stock_limit": 0}}


@pytest.fixture(scope="module")
def kernel() -> Iterator[NotebookClient]:
    """One kernel for all, in the notebooks' folder."""
    empty = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    client = NotebookClient(empty, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    with client.setup_kernel():
        yield client


def code(path: Path) -> Any:
    """A notebook's code, with cheap parameters after its own, and no names left of the notebook before."""
    book = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    first = (building(path.read_text()), "%reset -f")
    cells = [nbformat.v4.new_code_cell(source) for source in first]  # type: ignore[no-untyped-call]
    for cell in book.cells:
        if cell.cell_type == "code":
            cells.append(cell)
            if "parameters" in cell.metadata.get("tags", ()):
                source = "\n".join(f"{name} = {value!r}" for name, value in CHEAP.get(path.stem, {}).items())
                cells.append(nbformat.v4.new_code_cell(source))  # type: ignore[no-untyped-call]
    book.cells = cells
    return book


def printed(cell: Any) -> str:
    """What a cell has printed."""
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom_and_prints_what_it_shows(kernel: NotebookClient, path: Path) -> None:
    book = code(path)
    stored = {place: printed(cell) for place, cell in enumerate(book.cells) if cell.source.startswith(CHECKED)}
    assert stored

    kernel.nb = book
    kernel.reset_execution_trackers()
    for place, cell in enumerate(book.cells):
        kernel.execute_cell(cell, place)

    assert {place: printed(book.cells[place]) for place in stored} == stored


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_parameter_is_one_of_its_notebook(name: str) -> None:
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    (cell,) = (cell for cell in book.cells if "parameters" in cell.metadata.get("tags", ()))
    declared = {
        line.target.id for line in ast.parse(cell.source).body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }

    assert set(CHEAP[name]) <= declared
