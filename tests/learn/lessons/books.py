"""Read the lessons as a learner meets them, and as one who has solved every exercise."""

import re
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[3] / "notebooks" / "lessons"
LESSONS = sorted(FOLDER.glob("*.ipynb"))
_SOLUTION = re.compile(
    r"<details>.*?<summary>Solution</summary>.*?```python\n(.*?)\n```.*?</details>", re.S
)


def book(path: Path) -> Any:
    """A notebook."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def code(path: Path) -> list[Any]:
    """The code cells of a notebook."""
    return [cell for cell in book(path).cells if cell.cell_type == "code"]


def is_exercise(cell: Any) -> bool:
    """Tell whether a cell is for the learner to fill in."""
    return cell.cell_type == "code" and "exercise" in cell.metadata.get("tags", ())


def solution(cell: Any) -> str | None:
    """The code in a cell's collapsed solution."""
    found = _SOLUTION.search(cell.source) if cell.cell_type == "markdown" else None
    return found[1] if found else None


def solved(path: Path) -> list[Any]:
    """The code cells of a lesson, each exercise with the solution that follows it in its place."""
    cells = book(path).cells
    made = []
    for place, cell in enumerate(cells):
        if is_exercise(cell):
            cell.source = solution(cells[place + 1])
        if cell.cell_type == "code":
            made.append(cell)
    return made
