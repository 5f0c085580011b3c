"""``icekit notebook`` opens copies of the notebooks: running them leaves icekit's own alone, and
what a person writes in them stays.
"""

import builtins
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from icekit.common.commands.admin import NotebookOptions
from icekit.common.errors import EXIT_MISCONFIGURED
from icekit.learn import notebooks
from icekit.learn.notebooks import update_copies
from tests.commands import command
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

    def update(self) -> list[str]:
        return update_copies(self.folder)


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
def new_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    made = Copies(tmp_path / "odd name")
    monkeypatch.setattr(notebooks, "notebook_path", lambda: made.notebooks / START)
    return made


@pytest.fixture
def copies(new_copies: Copies) -> Copies:
    assert new_copies.update() == []
    return new_copies


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


def test_a_file_of_ones_own_with_a_notebooks_name_is_never_replaced(new_copies: Copies) -> None:
    new_copies.folder.mkdir()
    (new_copies.folder / START).write_text("mine")

    assert new_copies.update() == [START]
    assert new_copies.update() == [START]
    assert (new_copies.folder / START).read_text() == "mine"


def test_jupyter_trusts_what_a_copy_shows(copies: Copies) -> None:
    for path in copies.folder.rglob("*.ipynb"):
        shown = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
        assert NotebookNotary().check_signature(shown)  # type: ignore[no-untyped-call]

    shown.cells[0].source += " changed"
    assert not NotebookNotary().check_signature(shown)  # type: ignore[no-untyped-call]


@pytest.mark.slow  # starts JupyterLab
def test_the_command_copies_and_becomes_jupyterlab(tmp_path: Path) -> None:
    pytest.importorskip("jupyterlab")
    done = subprocess.run(
        [sys.executable, "-m", "icekit", "notebook", "--folder", "mine", "--", "--version"],
        cwd=tmp_path,
        env={**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "jupyter")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == version("jupyterlab")
    assert (tmp_path / "mine" / "lessons" / "07_writers.ipynb").exists()


def test_a_notebook_finds_the_lake_and_the_profiles_of_the_folder_that_it_was_opened_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jupyterlab")
    monkeypatch.delattr(builtins, "get_ipython", raising=False)
    monkeypatch.chdir(tmp_path)
    for name, value in {"HOME": "none", "JUPYTER_DATA_DIR": "jupyter"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    for name in ("ICEKIT_LAKE", "PYICEBERG_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: {}\n")
    run: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: run.append(words))

    command("notebook", "--", "--port", "8888")

    assert run[0][2:] == [
        "jupyterlab",
        "--allow-root",
        "--port",
        "8888",
        f"{tmp_path}/my-notebooks",
    ]
    assert os.environ["ICEKIT_LAKE"] == str(tmp_path / "lake")
    assert os.environ["PYICEBERG_HOME"] == str(tmp_path)


def test_only_icekits_own_notebooks_are_copied_and_trusted(new_copies: Copies) -> None:
    shutil.copy(new_copies.notebooks / START, new_copies.notebooks / "foreign.ipynb")
    (new_copies.notebooks / "lake").mkdir()
    (new_copies.notebooks / "catalog.db").write_bytes(b"\xff")
    change(new_copies.notebooks / "foreign.ipynb", edit)

    assert new_copies.update() == []
    assert not (new_copies.folder / "foreign.ipynb").exists()
    foreign = nbformat.read(new_copies.notebooks / "foreign.ipynb", 4)  # type: ignore[no-untyped-call]
    assert not NotebookNotary().check_signature(foreign)  # type: ignore[no-untyped-call]


def test_the_command_is_refused_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "get_ipython", object, raising=False)

    status, text = command("notebook")

    assert status == EXIT_MISCONFIGURED
    assert "in a terminal" in text


def test_git_ignores_the_copies_in_a_checkout() -> None:
    assert NotebookOptions.of({}).folder == "my-notebooks"
    assert (
        subprocess.run(
            ["git", "check-ignore", "-q", "my-notebooks/"], cwd=ROOT, check=False
        ).returncode
        == 0
    )
