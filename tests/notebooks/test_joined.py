"""What the test of the notebooks runs is what they are."""

from __future__ import annotations

import ast

import pytest

from icekit.notebook import MORE, SETTINGS
from tests.notebooks.joined import NOTEBOOKS, code


def tagged(name: str) -> str:
    (cell,) = (cell for cell in code(name) if "parameters" in cell.metadata.get("tags", ()))
    return str(cell.source)


def annotated(source: str) -> list[str]:
    """The names that a cell declares with their types."""
    return [ast.unparse(line.target) for line in ast.parse(source).body if isinstance(line, ast.AnnAssign)]


def bound(source: str) -> set[str]:
    """The names that a cell gives a value to."""
    nodes = [*ast.walk(ast.parse(source))]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_five_parameters_at_most_and_names_the_others(name: str) -> None:
    declared = annotated(tagged(name))
    (line,) = [line for line in tagged(name).splitlines() if line.startswith("more:")] or [""]
    rare = MORE.get(name, ())

    assert len([parameter for parameter in declared if parameter != "more"]) <= 5
    assert line == (f"more: dict = {{}}  # rarely changed: {', '.join(rare)}; `settings` explains them" if rare else "")
    assert not set(declared) & set(rare)


@pytest.mark.parametrize("name", MORE)
def test_a_notebook_begins_with_its_own_settings_and_gives_their_names_to_nothing_else(name: str) -> None:
    """``begin`` takes a variable of a setting's name for what papermill was given."""
    sources = [cell.source for cell in code(name)]
    call = f'notebook.begin(globals(), "{name}")' if MORE[name] else "notebook.begin(globals())"

    assert "\n".join(sources).count(call) == 1
    assert not set(MORE[name]) & {bound_name for source in sources for bound_name in bound(source)}
    assert [source for source in sources if annotated(source)] == [tagged(name)]


def test_every_setting_is_of_a_notebook() -> None:
    assert set(SETTINGS) == {name for names in MORE.values() for name in names}
    assert set(MORE) | {"00_start_here"} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_has_output_that_is_compared(name: str) -> None:
    compared = [cell for cell in code(name) if cell.source.startswith("# NBVAL_CHECK_OUTPUT")]

    assert compared
    assert all(cell.outputs for cell in compared)
