"""What the test of the notebooks runs is what they are."""

from __future__ import annotations

import ast

import pytest

from tests.notebooks.joined import CHEAP, NOTEBOOKS, code


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_parameter_is_one_of_its_notebook(name: str) -> None:
    (cell,) = (cell for cell in code(name) if "parameters" in cell.metadata.get("tags", ()))
    declared = {
        line.target.id for line in ast.parse(cell.source).body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }

    assert set(CHEAP[name]) <= declared


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_has_output_that_is_compared(name: str) -> None:
    compared = [cell for cell in code(name) if cell.source.startswith("# NBVAL_CHECK_OUTPUT")]

    assert compared
    assert all(cell.outputs for cell in compared)
