"""What a notebook takes from icekit's modules is there."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.learn.lessons.books import code

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("**/*.ipynb")), ids=lambda path: path.stem)
def test_every_name_that_a_notebook_takes_from_a_module_exists(path: Path) -> None:
    tree = ast.parse("\n".join(cell.source for cell in code(path)))
    names: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            exec(ast.unparse(node), names)

    asked = [
        (names[node.value.id], node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and isinstance(names.get(node.value.id), ModuleType)
    ]
    assert asked
    assert [attribute for module, attribute in asked if not hasattr(module, attribute)] == []
