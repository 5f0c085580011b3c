"""The files that say how to install and run icekit agree with each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import icekit

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CONDA: list[Any] = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
CONDA_OWN = {Requirement(entry).name: Requirement(entry) for entry in CONDA if isinstance(entry, str) and not entry.startswith("openjdk")}
BY_PIP: list[str] = next(entry["pip"] for entry in CONDA if isinstance(entry, dict))
SCRIPTS = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci" / "run"]


def pins(requirements: Iterable[str]) -> dict[str, tuple[frozenset[str], str]]:
    """What each requirement asks for: name -> (extras, specifier)."""
    parsed = [Requirement(r) for r in requirements]
    return {canonicalize_name(r.name): (frozenset(r.extras), str(r.specifier)) for r in parsed}


def test_conda_users_get_the_pins_of_pyproject_and_no_others() -> None:
    wanted = pins([*PROJECT["dependencies"], *EXTRAS["notebook"]])
    given = pins(entry for entry in BY_PIP if not entry.startswith("-"))
    assert given == wanted


def test_conda_installs_icekit_itself() -> None:
    assert "--editable ." in BY_PIP


def test_conda_brings_a_python_that_icekit_takes() -> None:
    required = str(PROJECT["requires-python"]).split(",")
    assert set(required) <= {str(s) for s in CONDA_OWN["python"].specifier}


def test_conda_brings_the_java_that_is_tested() -> None:
    assert "openjdk=17" in CONDA


def test_every_requirement_is_pinned() -> None:
    everything = [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]
    loose = [name for name, (_, specifier) in pins(everything).items() if not specifier and name != "icekit"]
    assert loose == []


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == icekit.__version__
    assert f"## [{icekit.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_types_are_announced() -> None:
    assert (ROOT / "icekit" / "py.typed").exists()


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert targets is not None
    assert set(targets[1].split()) == set(re.findall(r"^([\w-]+):.*## \S", makefile, re.M))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_executable_and_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", script], check=True)
