"""What the test of the notebooks runs is what they are."""

import ast
from typing import Any

import pytest

from icekit.common.commands.notebooks import NOTEBOOKS as KINDS
from tests.learn.lessons.books import code
from tests.notebooks.joined import NOTEBOOKS


def tagged(name: str) -> str:
    (cell,) = (
        cell for cell in code(NOTEBOOKS[name]) if "parameters" in cell.metadata.get("tags", ())
    )
    return str(cell.source)


def annotated(source: str) -> list[str]:
    """The names that a cell declares with their types."""
    return [
        ast.unparse(line.target)
        for line in ast.parse(source).body
        if isinstance(line, ast.AnnAssign)
    ]


def bound(source: str) -> set[str]:
    """The names that a cell gives a value to."""
    nodes = [*ast.walk(ast.parse(source))]
    names = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return names | {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def test_every_notebook_has_its_settings() -> None:
    assert set(KINDS) == set(NOTEBOOKS)


#: What a notebook is about, by default its example from the lab.
EXAMPLES = ("table", "sql")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_five_parameters_at_most_with_the_defaults_of_its_command(
    name: str,
) -> None:
    cell: dict[str, Any] = {}
    exec(tagged(name), cell)
    shown = [parameter for parameter in annotated(tagged(name)) if parameter != "more"]

    assert len(shown) <= 5
    assert (
        KINDS[name]
        .of({parameter: cell[parameter] for parameter in shown if parameter not in EXAMPLES})
        .changed()
        == {}
    )
    assert name == "00_start_here" or tagged(name).splitlines()[-1] == (
        "more: dict = {}  # rarely changed settings by their names; `settings` shows them all"
    )


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_begins_with_its_own_settings_and_gives_their_names_to_nothing_else(
    name: str,
) -> None:
    sources = [cell.source for cell in code(NOTEBOOKS[name])]

    assert "\n".join(sources).count(f'notebook.begin(globals(), "{name}"') == 1
    assert not set(annotated(tagged(name))) & {
        bound_name for source in sources if source != tagged(name) for bound_name in bound(source)
    }
    assert [source for source in sources if annotated(source)] == [tagged(name)]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_has_output_that_is_compared(name: str) -> None:
    compared = [
        c for c in code(NOTEBOOKS[name]) if "nbval-check-output" in c.metadata.get("tags", ())
    ]

    assert compared
    assert all(cell.outputs for cell in compared)
