"""Every notebook that has explorers runs both ways: with controls, and as plain HTML alone; the
others have one way.
"""

import re
from pathlib import Path
from typing import Any

import papermill
import pytest

from icekit.api import Lake
from icekit.show.explorer import SWITCH, WIDGET_VIEW
from tests.learn.lessons.books import book

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
#: What makes a notebook with explorers cheap to run; one that is not here runs by its own
# parameters.
CHEAP: dict[str, dict[str, Any]] = {
    "01_diagnose": {},
    "02_compact": {"trial": False, "prove": "none"},
}
CALL = re.compile(r"^widgets\.[a-z_]+\(", re.M)


def explorers(notebook: Any) -> list[Any]:
    """The cells that end in an explorer."""
    return [
        cell for cell in notebook.cells if cell.cell_type == "code" and CALL.search(cell.source)
    ]


def with_explorers() -> list[Any]:
    """Each with the way to run it; with controls, tests/notebooks runs all of them as well."""
    found = [path for path in sorted(NOTEBOOKS.glob("**/*.ipynb")) if explorers(book(path))]
    return [
        pytest.param(
            path,
            way,
            id=f"{path.stem}-{way}",
            marks=[] if path.stem in CHEAP and way == "off" else [pytest.mark.soak],
        )
        for path in found
        for way in ("on", "off")
    ]


@pytest.mark.spark
@pytest.mark.lab("small_files", "skewed_small_files")
@pytest.mark.parametrize(("path", "way"), with_explorers())
def test_a_notebook_with_explorers_runs_both_ways(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path, way: str
) -> None:
    monkeypatch.setenv(SWITCH, way)
    parameters = {**CHEAP.get(path.stem, {})}
    if path.stem == "02_compact":
        parameters["ledger"] = str(tmp_path / "ledger.db")

    run = papermill.execute_notebook(
        str(path),
        str(tmp_path / "run.ipynb"),
        parameters,
        progress_bar=False,
        kernel_name="python3",
    )

    cells = explorers(run)
    assert len(cells) == len(explorers(book(path)))
    for cell in cells:
        (shown,) = (output.data for output in cell.outputs if "data" in output)
        assert (WIDGET_VIEW in shown) == (way == "on"), cell.source
        assert (
            len(re.sub(r"<style>.*?</style>|<[^>]+>", "", shown["text/html"], flags=re.S)) > 40
        ), cell.source


def test_notebooks_are_kept_as_they_look_without_a_kernel() -> None:
    for path in NOTEBOOKS.glob("**/*.ipynb"):
        kept = book(path)
        shown = [
            output.data
            for cell in kept.cells
            for output in cell.get("outputs", ())
            if "data" in output
        ]
        assert not any(WIDGET_VIEW in data for data in shown), (
            f"{path.name}: run it with {SWITCH}=off"
        )
        assert "widgets" not in kept.metadata, path.name
