"""The rooms of the package: imports point down, lazy ones and those for types too, and no module
imports itself in a circle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.child import python

PACKAGE = Path(__file__).parents[1] / "icekit"
#: From the bottom up; a room imports from itself and from rooms named before it. A module belongs
# to the room with the longest name that its own begins with.
ROOMS = (
    "common iceberg engine health.facts health.storage health.diagnose health sandbox rows.kernel rows.deletes rows.proof rows.rewrite rows maintain maintain.record maintain.planning maintain.run tune "
    "report.history report report.schedule show api notebook learn learn.lab learn.lessons cli"
).split()
SPARK = {"pyspark", "py4j"}
#: The most lines of facts, findings and the card together.
LOOK_LINES = 15_800
#: The most lines of the files that docs/development.md says to read first.
SPINE_LINES = 2_800


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(name: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports by a relative name"
            named = [
                f"{node.module}.{alias.name}"
                if f"{node.module}.{alias.name}" in MODULES
                else str(node.module)
                for alias in node.names
            ]
        else:
            continue
        yield from (each for each in named if each in MODULES and each != name)


GRAPH = {name: set(_imports(name)) for name in MODULES}


def _room(name: str) -> int:
    """The place of a module's room; the package's public face and its command line stand on top."""
    own = name.removeprefix("icekit").removeprefix(".")
    if own in ("", "__main__"):
        return ROOMS.index("cli")
    return ROOMS.index(max((r for r in ROOMS if f"{own}.".startswith(f"{r}.")), key=len))


def _wing(name: str) -> str:
    return ROOMS[_room(name)].partition(".")[0]


def test_every_folder_is_a_wing_with_one_sentence() -> None:
    wings = {path.parent.name: path for path in PACKAGE.glob("*/__init__.py")}

    assert {room.partition(".")[0] for room in ROOMS} - {"api", "notebook"} == set(wings)
    for name, path in wings.items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert about, name
        assert len(about.partition("\n\n")[0].split()) < 30, name


def test_no_wings_import_each_other_in_a_circle() -> None:
    wings: dict[str, set[str]] = {}
    for a, targets in GRAPH.items():
        wings.setdefault(_wing(a), set()).update(
            _wing(b) for b in targets if b != "icekit" and _wing(b) != _wing(a)
        )
    TopologicalSorter(wings).prepare()


def test_no_import_points_up() -> None:
    assert [
        f"{a} -> {b}"
        for a, targets in GRAPH.items()
        for b in sorted(targets)
        if _room(b) > _room(a)
    ] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    circle: list[str] = []
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [("icekit", r"import_module\((?!f?\"pyiceberg)"), ("tests", r"^\s*(from|import) rigs\b")],
)
def test_no_import_is_hidden_in_a_text_and_no_test_imports_from_the_rigs(
    folder: str, pattern: str
) -> None:
    files = (PACKAGE.parent / folder).rglob("*.py")
    assert [str(path) for path in files if re.search(pattern, path.read_text(), re.M)] == []


#: What moves tables and packs them: a look needs none of it.
MOVING = {"avro", "moved_paths", "pack", "puffin", "redaction", "relocation"}
LOOK = [
    name
    for name in MODULES
    if _wing(name) == "health"
    or ROOMS[_room(name)] == "report.history"
    or (_wing(name) == "iceberg" and name.rpartition(".")[2] not in MOVING)
] + ["icekit.show.card"]
REPORT = [
    name
    for name in MODULES
    if name.split(".")[1:2] in (["report"], ["show"], ["notebook"], ["cli"])
]


def _loaded(names: Iterable[str]) -> set[str]:
    """Every module that an interpreter has loaded once it has imported these."""
    code = (
        f"import importlib, sys\nfor name in {list(names)}:\n    "
        "importlib.import_module(name)\nprint(*sys.modules)"
    )
    loaded = set(python("-c", code, check=True, cwd=PACKAGE.parent).stdout.split())
    assert set(names) <= loaded
    return loaded


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_looking_at_a_table_imports_nothing_of_spark_and_of_the_rooms_that_change_tables() -> None:
    """All modules of facts and findings, and the card."""
    loaded = _loaded(LOOK)

    assert {name.partition(".")[0] for name in loaded} & {*SPARK, "papermill"} == set()
    allowed = {"common", "iceberg", "engine", "health", "report", "api", "show"}
    assert {_wing(name) for name in loaded if name in MODULES and name != "icekit"} <= allowed


def test_a_look_waits_for_no_heavy_package() -> None:
    """It loads numpy only for equality deletes."""
    heavy = {"numpy", "pandas", "matplotlib", "pyspark", "pyarrow", "pydantic_core"}
    assert (
        _loaded(["icekit.cli.main", "icekit.health.facts.local", "icekit.show.card"]) & heavy
        == set()
    )


def test_reporting_on_tables_imports_nothing_of_spark() -> None:
    """All modules of reports, of what notebooks and cards show, and of the command."""
    assert {name.partition(".")[0] for name in _loaded(REPORT)} & SPARK == set()


def test_what_looks_at_a_table_stays_small() -> None:
    """Who raises the limit says why in the commit."""
    assert _lines(MODULES[name] for name in LOOK) <= LOOK_LINES


def test_the_files_to_read_first_stay_short() -> None:
    page = (PACKAGE.parent / "docs" / "development.md").read_text(encoding="utf-8")
    names = re.findall(r"^\d+\. `(\S+\.py)`", page, re.M)

    assert len(names) == 12
    section = page.partition("## Read the code")[2].partition("\n## ")[0]
    walked_names = re.findall(r"`(\w+/\S+\.py)`", section)
    assert [name for name in walked_names if not (PACKAGE / name).exists()] == []
    assert _lines(PACKAGE / name for name in names) <= SPINE_LINES
