"""The rooms of the package: imports point down, lazy ones and those for types too, and no module
imports itself in a circle.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.child import python

PACKAGE = Path(__file__).parents[1] / "icekit"
#: From the bottom up; a room imports from itself and from rooms named before it. ``(base)`` are
# the modules beside the rooms.
ROOMS = (
    "(base) answer options engine catalog facts sandbox resolve diagnose prove compact maintain "
    "run history tune show api notebook lab lessons report schedule cli"
).split()
SPARK = {"pyspark", "py4j"}
#: What facts, findings, history and the card may have together, in tokens without comments and
# docstrings.
LOOK_TOKENS = 60_000
#: The most lines of the files that docs/development.md says to read first.
SPINE_LINES = 4_000


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
    parts = name.split(".")[1:]
    if parts in ([], ["__main__"]):
        return ROOMS.index("cli")
    return ROOMS.index(parts[0]) if parts[0] in ROOMS else ROOMS.index("(base)")


def test_every_folder_is_a_room_with_a_place() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= set(ROOMS)


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


def test_no_import_is_hidden_in_a_text() -> None:
    own = re.compile(r"import_module\((?!f?\"pyiceberg)")
    assert [
        name for name, path in MODULES.items() if own.search(path.read_text(encoding="utf-8"))
    ] == []


def test_no_test_imports_from_the_rigs() -> None:
    own = re.compile(r"^\s*(from|import) rigs\b", re.M)
    assert [
        str(path)
        for path in (PACKAGE.parent / "tests").rglob("*.py")
        if own.search(path.read_text(encoding="utf-8"))
    ] == []


LOOK = [
    name
    for name in MODULES
    if name.split(".")[1:2] in (["facts"], ["diagnose"], ["history"])
    and name != "icekit.history.compare"
] + ["icekit.show.card"]
REPORT = [
    name
    for name in MODULES
    if name.split(".")[1:2] in (["report"], ["show"], ["notebook"], ["cli"])
]
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _loaded(names: Iterable[str]) -> set[str]:
    """Every module that an interpreter has loaded once it has imported these."""
    code = (
        f"import importlib, sys\nfor name in {list(names)}:\n    "
        "importlib.import_module(name)\nprint(*sys.modules)"
    )
    loaded = set(python("-c", code, check=True, cwd=PACKAGE.parent).stdout.split())
    assert set(names) <= loaded
    return loaded


def _tokens(path: Path) -> int:
    """The tokens of a module without comments, layout and docstrings."""
    count, is_start = 0, True
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in _LAYOUT:
            is_start = is_start or token.type in {
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
            }
        else:
            count += not (is_start and token.type == tokenize.STRING)
            is_start = False
    return count


def test_looking_at_a_table_imports_nothing_of_spark_and_of_the_rooms_that_change_tables() -> None:
    """All modules of facts, findings and history, and the card."""
    loaded = _loaded(LOOK)

    assert {name.partition(".")[0] for name in loaded} & {*SPARK, "papermill"} == set()
    allowed = "(base) answer options engine catalog facts diagnose history api show".split()
    assert {ROOMS[_room(name)] for name in loaded if name in MODULES and name != "icekit"} <= set(
        allowed
    )


def test_a_look_waits_for_no_heavy_package() -> None:
    """It loads numpy only for equality deletes."""
    heavy = {"numpy", "pandas", "matplotlib", "pyspark", "pyarrow", "pydantic_core"}
    assert _loaded(["icekit.cli.main", "icekit.facts.local", "icekit.show.card"]) & heavy == set()


def test_reporting_on_tables_imports_nothing_of_spark() -> None:
    """All modules of reports, of what notebooks and cards show, and of the command."""
    assert {name.partition(".")[0] for name in _loaded(REPORT)} & SPARK == set()


def test_what_looks_at_a_table_stays_small() -> None:
    """Who raises the limit says why in the commit."""
    assert sum(_tokens(MODULES[name]) for name in LOOK) <= LOOK_TOKENS


def test_the_files_to_read_first_stay_short() -> None:
    page = (PACKAGE.parent / "docs" / "development.md").read_text(encoding="utf-8")
    names = re.findall(r"^\d+\. `(\S+\.py)`", page, re.M)
    lines = [len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in names]

    assert len(names) == 13
    assert sum(lines) <= SPINE_LINES
