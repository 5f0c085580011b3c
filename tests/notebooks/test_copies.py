"""JupyterLab opens copies of the notebooks: running them leaves git's files alone, and what a
person writes in them stays.
"""

import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.learn.lessons.books import book

ROOT = Path(__file__).parents[2]
START = "00_start_here.ipynb"
COMPACT = "02_compact.ipynb"


class Copies:
    """A project with its notebooks, and the folder of their copies."""

    def __init__(self, project: Path) -> None:
        self.notebooks, self.folder = project / "notebooks", project / "my-notebooks"
        shutil.copytree(
            ROOT / "notebooks", self.notebooks, ignore=shutil.ignore_patterns(".ipynb_checkpoints")
        )
        (project / "scripts").mkdir()
        script = shutil.copy(ROOT / "scripts" / "copy-notebooks.py", project / "scripts")
        self._copied: Callable[[Path], list[str]] = runpy.run_path(str(script))["copied"]

    def update(self) -> list[str]:
        return self._copied(self.folder)


def change(path: Path, act: Callable[[Any], None]) -> None:
    changed = book(path)
    act(changed)
    nbformat.write(changed, path)  # type: ignore[no-untyped-call]


def run(notebook: Any) -> None:
    """What a run leaves."""
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text="run by a person")]  # type: ignore[no-untyped-call]


def edit(notebook: Any) -> None:
    notebook.cells[1].source = notebook.cells[1].source.replace("lab.", "db.")


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    made = Copies(tmp_path / "odd name")
    assert made.update() == []
    return made


def test_every_notebook_and_page_is_there_under_its_own_name(copies: Copies) -> None:
    named = {path.relative_to(copies.notebooks) for path in copies.notebooks.rglob("*.*")}

    assert {path.relative_to(copies.folder) for path in copies.folder.rglob("[!.]*.*")} == named


def test_a_copy_that_was_run_keeps_its_results_until_its_notebook_changes(copies: Copies) -> None:
    change(copies.folder / START, run)
    copies.update()
    assert "run by a person" in (copies.folder / START).read_text()

    change(copies.notebooks / START, edit)

    assert copies.update() == []
    assert (copies.folder / START).read_bytes() == (copies.notebooks / START).read_bytes()


def test_a_copy_with_a_persons_own_cells_stays_and_is_named_once_its_notebook_changes(
    copies: Copies,
) -> None:
    change(copies.folder / COMPACT, edit)
    mine = (copies.folder / COMPACT).read_bytes()
    assert copies.update() == []

    change(copies.notebooks / COMPACT, lambda notebook: notebook.cells.pop())

    assert copies.update() == [COMPACT]
    assert (copies.folder / COMPACT).read_bytes() == mine
    (copies.folder / COMPACT).unlink()
    assert copies.update() == []
    assert (copies.folder / COMPACT).read_bytes() == (copies.notebooks / COMPACT).read_bytes()


def test_a_file_of_ones_own_with_a_notebooks_name_is_never_replaced(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    copies.folder.mkdir()
    (copies.folder / START).write_text("mine")

    assert copies.update() == [START]
    assert copies.update() == [START]
    assert (copies.folder / START).read_text() == "mine"


def test_make_notebook_opens_a_folder_that_git_ignores() -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert "NOTEBOOKS ?= my-notebooks\n" in makefile
    assert makefile.count('"$(NOTEBOOKS)"') == 3
    assert (
        subprocess.run(
            ["git", "check-ignore", "-q", "my-notebooks/"], cwd=ROOT, check=False
        ).returncode
        == 0
    )
