"""The rooms of the package: imports point down, lazy ones and those for types too, and no module imports itself in a circle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "icekit"
#: From the bottom up; a room imports from itself and from rooms named before it. ``(base)`` are the modules beside the rooms.
ROOMS = (
    "(base) answer engine catalog facts sandbox resolve diagnose prove compact maintain run history tune api show notebook lab lessons report "
    "schedule cli"
).split()


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
                f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in MODULES else str(node.module) for alias in node.names
            ]
        else:
            continue
        yield from (each for each in named if each in MODULES and each != name)


GRAPH = {name: set(_imports(name)) for name in MODULES}


def _room(name: str) -> int:
    """The place of a module's room; the package's public face and its command line stand on top."""
    parts = name.split(".")[1:]
    if parts in ([], ["__main__"]):
        return ROOMS.index("cli")
    return ROOMS.index(parts[0]) if parts[0] in ROOMS else ROOMS.index("(base)")


def test_every_folder_is_a_room_with_a_place() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= set(ROOMS)


def test_no_import_points_up() -> None:
    assert [f"{a} -> {b}" for a, targets in GRAPH.items() for b in sorted(targets) if _room(b) > _room(a)] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    circle: list[str] = []
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_no_import_is_hidden_in_a_text() -> None:
    own = re.compile(r"import_module\((?!f?\"pyiceberg)")
    assert [name for name, path in MODULES.items() if own.search(path.read_text(encoding="utf-8"))] == []


def test_no_test_imports_from_the_rigs() -> None:
    own = re.compile(r"^\s*(from|import) rigs\b", re.M)
    assert [str(path) for path in (PACKAGE.parent / "tests").rglob("*.py") if own.search(path.read_text(encoding="utf-8"))] == []


def test_looking_at_a_table_imports_nothing_of_spark_and_of_the_rooms_that_change_tables() -> None:
    """All modules of facts, findings and history, and the card."""
    looks = [name for name in MODULES if name.split(".")[1:2] in (["facts"], ["diagnose"], ["history"])] + ["icekit.show.card"]
    code = f"import importlib, sys\nfor name in {looks}:\n    importlib.import_module(name)\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=PACKAGE.parent).stdout.split()

    assert set(looks) <= set(found)
    assert {name.partition(".")[0] for name in found} & {"pyspark", "py4j"} == set()
    allowed = "(base) answer engine catalog facts diagnose history api show".split()
    assert {ROOMS[_room(name)] for name in found if name in MODULES and name != "icekit"} <= set(allowed)
