"""What ``pip install .`` brings: in a process of its own, block every other library."""

import importlib.machinery
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def _requirements() -> list[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def brought() -> set[str]:
    """The names of all packages that the base requires, and these require."""
    todo = [(Requirement(line), "") for line in _requirements()]
    names: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        extras = frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            requires = distribution(name).requires or ()
        except PackageNotFoundError:
            continue
        names.add(name)
        todo += [(Requirement(line), each) for line in requires for each in ("", *extras)]
    return names


class _Only:
    """Finds modules and packages of the base only."""

    def __init__(self, allowed: set[str]) -> None:
        self._allowed = allowed
        self._modules = {
            module
            for each in importlib.machinery.PathFinder.find_distributions()
            for module in _modules_of(each)
            if canonicalize_name(each.metadata["Name"]) not in allowed
        } - {
            module
            for each in importlib.machinery.PathFinder.find_distributions()
            for module in _modules_of(each)
            if canonicalize_name(each.metadata["Name"]) in allowed
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Any:
        if path is None and name in self._modules:
            return None
        return importlib.machinery.PathFinder.find_spec(name, path, target)

    def find_distributions(self, *context: Any) -> Iterator[Distribution]:
        for each in importlib.machinery.PathFinder.find_distributions(*context):
            if canonicalize_name(each.metadata["Name"]) in self._allowed:
                yield each


def _modules_of(each: Distribution) -> set[str]:
    """The top-level modules of a distribution."""
    listed = (each.read_text("top_level.txt") or "").split()
    files = [file.parts[0] for file in each.files or ()]
    return {re.sub(r"\..*", "", name) for name in [*listed, *files] if "-" not in name}


def block() -> None:
    """Block, in this process, what the base does not bring."""
    only = _Only(brought() | {"icekit"})
    place = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path[place] = only


def run(lines: Sequence[str], cwd: Path) -> list[tuple[str, int, str]]:
    """Run commands in a folder and on its lake, with the base alone and in one process: each with
    its status and its output.
    """
    code = (
        "import json, shlex, sys\nfrom tests.base_install import block\nblock()\n"
        "from tests.commands import command\n"
        "print(json.dumps([[line, *command(*shlex.split(line))] for line in sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *lines],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "ICEKIT_LAKE": str(cwd / "lake")},
    )
    assert done.returncode == 0, done.stderr
    return [(line, status, printed) for line, status, printed in json.loads(done.stdout)]
