"""The lessons hold together: exercises and solutions, checks, links, and the map."""

import ast
import re
from pathlib import Path

import pytest

from icekit.learn.lab import lab_tables
from tests.learn.lessons.books import FOLDER, LESSONS, book, code, is_exercise, solution

NOTEBOOKS = FOLDER.parent
EVERY = [NOTEBOOKS / "00_start_here.ipynb", *LESSONS]
PAGES = [NOTEBOOKS / "README.md", *sorted(FOLDER.glob("*.md"))]

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
each_book = pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)


@each_lesson
def test_each_exercise_is_followed_by_its_solution_and_a_check(path: Path) -> None:
    cells = book(path).cells
    places = [place for place, cell in enumerate(cells) if is_exercise(cell)]

    assert 2 <= len(places) <= 3
    for place in places:
        found = solution(cells[place + 1])
        assert found is not None, cells[place].source
        ast.parse(found)
        after = [cell for cell in cells[place + 2 :] if cell.cell_type == "code"]
        assert "check." in after[0].source


@each_lesson
def test_a_learner_sees_no_solution_without_opening_it(path: Path) -> None:
    for cell in book(path).cells:
        if is_exercise(cell):
            values = [line for line in cell.source.splitlines() if not line.startswith("#")]
            assert all(re.fullmatch(r"\w+ = None  # .+", line) for line in values), cell.source
            assert cell.outputs == []
        shown = str(cell.get("outputs", ""))
        if cell.cell_type == "code" and "check." in cell.source and "import" not in cell.source:
            assert "✔" not in shown, cell.source
            assert "… " in shown, "the lesson was saved without having been run"


@each_lesson
def test_a_lesson_begins_with_its_own_tables_of_the_lab_as_they_were_built(path: Path) -> None:
    named = re.findall(r"lessons\.begin\((.*)\)", code(path)[0].source)

    assert len(named) == 1
    assert set(re.findall(r'"(\w+)"', named[0])) <= set(lab_tables())
    assert "put" in book(path).cells[0].source
    assert "back" in book(path).cells[0].source


@each_lesson
def test_a_lesson_names_no_table_but_those_that_it_has_put_back(path: Path) -> None:
    begun = set(re.findall(r'"(\w+)"', code(path)[0].source))
    text = "\n".join(
        [cell.source for cell in code(path)] + [solution(cell) or "" for cell in book(path).cells]
    )

    assert set(re.findall(r"\blab\.(\w+)", text)) <= begun


@each_book
def test_cells_are_short_and_have_no_loops_or_definitions(path: Path) -> None:
    for cell in code(path):
        assert len(cell.source.splitlines()) <= 10
        nodes = {type(node) for node in ast.walk(ast.parse(cell.source))}
        if "nbval-check-output" not in cell.metadata.get("tags", ()):
            assert not nodes & {ast.For, ast.While, ast.FunctionDef, ast.ClassDef, ast.Try}, (
                cell.source
            )


def links(text: str) -> list[str]:
    return [
        target
        for target in re.findall(r"\]\(([^)#]+)\)", re.sub(r"```.*?```", "", text, flags=re.S))
        if "://" not in target
    ]


@pytest.mark.parametrize("path", [*EVERY, *PAGES], ids=lambda path: path.name)
def test_each_link_of_a_notebook_or_a_page_leads_somewhere(path: Path) -> None:
    texts = (
        [cell.source for cell in book(path).cells if cell.cell_type == "markdown"]
        if path in EVERY
        else [path.read_text()]
    )
    targets = [target for text in texts for target in links(text)]

    assert targets or path in PAGES
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_map_names_every_notebook() -> None:
    said = set(links((NOTEBOOKS / "README.md").read_text()))

    assert {
        str(path.relative_to(NOTEBOOKS))
        for path in NOTEBOOKS.rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    } <= said
