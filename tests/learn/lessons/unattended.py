"""Every lesson from top to bottom with its exercises solved, in one kernel, on the lab that the
notebooks' tests use.

Not collected by itself, as it changes lab tables that other tests share: scripts/test-notebooks.sh
runs it by name, after everything else, and each lesson puts its tables back when it begins.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat.v4
import pytest
from nbclient import NotebookClient

from icekit.api import connect
from icekit.learn.lab import unpack_lab
from tests.learn.lessons.books import FOLDER, LESSONS, solved
from tests.workshop import unpacking


@pytest.fixture(scope="module")
def run() -> Iterator[dict[Path, list[Any]]]:
    """The code cells of each lesson with their outputs."""
    cells = {path: solved(path) for path in LESSONS}
    built = unpacking("\n".join(path.read_text() for path in LESSONS))
    together: list[Any] = [nbformat.v4.new_code_cell(built)]  # type: ignore[no-untyped-call]
    for path in LESSONS:
        # Names of one lesson do not help the next one.
        together += [nbformat.v4.new_code_cell("%reset -f"), *cells[path]]  # type: ignore[no-untyped-call]
    joined = nbformat.v4.new_notebook(cells=together)  # type: ignore[no-untyped-call]
    started = time.monotonic()
    NotebookClient(
        joined, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    print(f"{len(LESSONS)} lessons in {time.monotonic() - started:.0f} s")
    yield cells
    unpack_lab(connect(), reset=True)


def said(cell: Any) -> str:
    """What a cell displays and prints, as text."""
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_check_of_a_solved_lesson_passes(run: dict[Path, list[Any]], path: Path) -> None:
    checks = [cell for cell in run[path] if "check." in cell.source]

    assert len(checks) >= 2
    assert [said(cell) for cell in checks if not said(cell).startswith("✔")] == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_what_a_lesson_cures_keeps_its_rows_and_is_proved(
    run: dict[Path, list[Any]], path: Path
) -> None:
    outputs = "\n".join(said(cell) for cell in run[path])

    assert "disproved" not in outputs
    assert "unproved" not in outputs
    assert "The result is not the same" not in outputs
    assert "failed" not in outputs
