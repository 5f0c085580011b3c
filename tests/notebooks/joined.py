"""``python -m tests.notebooks.joined FILE [NAME ...]``: join notebooks in one, so that nbval runs
them all in one kernel and one JVM.

Run by scripts/test-notebooks.sh.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat.v4

from tests.learn.lessons.books import code
from tests.workshop import unpacking

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def joined(names: Iterable[str]) -> Any:
    """The code of some notebooks with what it is stored to print, and before each notebook a cell
    that builds its lab tables.

    No names are left of the notebook before.
    """
    new_code_cell: Any = nbformat.v4.new_code_cell
    cells = [new_code_cell(f"%cd -q {FOLDER}")]
    for name in names:
        cells += [new_code_cell(unpacking(NOTEBOOKS[name].read_text())), new_code_cell("%reset -f")]
        for cell in code(NOTEBOOKS[name]):
            cell.source += f"\n# {name}, cell {cell.execution_count}"
            cells.append(cell)
    new_notebook: Any = nbformat.v4.new_notebook
    return new_notebook(
        cells=cells,
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )


if __name__ == "__main__":
    nbformat.write(joined(sys.argv[2:] or NOTEBOOKS), sys.argv[1])  # type: ignore[no-untyped-call]
