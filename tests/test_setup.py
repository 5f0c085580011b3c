"""scripts/setup.sh installs once, and settles on a Java that Spark runs on.

A stub stands in for .venv's Python and for each Java, so that nothing is downloaded.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


class Checkout:
    """A copy of what set-up reads, with a stub of .venv that writes down what is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        (folder / "pyproject.toml").write_text("[project]\n")
        (folder / "constraints.txt").write_text("pandas==3.1.1\npyspark==4.1.4\n")
        _script(
            folder / ".venv/bin/python",
            f'case "$*" in *"pip install"*) echo "$@" >>"{folder}/installs" ;; esac',
        )
        _script(folder / ".venv/bin/uv", f'echo "$@" >>"{folder}/installs"')

    def set_up(
        self, *extra: str, java_home: Path, path_java: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = f"{path_java}/bin:{os.environ['PATH']}" if path_java else os.environ["PATH"]
        return subprocess.run(
            [self.folder / "scripts/setup.sh", *extra],
            env=os.environ | {"JAVA_HOME": str(java_home), "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )

    @property
    def installs(self) -> list[str]:
        """What was installed last, each time."""
        lines = (self.folder / "installs").read_text().splitlines()
        return [line.rpartition(" ")[2] for line in lines if "--editable" in line]

    @property
    def java_home(self) -> str:
        return (self.folder / ".venv/java-home").read_text().strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "odd name")


def java(home: Path, version: str) -> Path:
    """A Java that says of itself what a real one says, in the same words."""
    properties = f"    java.home = {home}\\n    java.specification.version = {version}\\n"
    _script(home / "bin/java", f"printf '{properties}' >&2")
    return home


@pytest.fixture
def jdk(tmp_path: Path) -> Path:
    return java(tmp_path / "jdk", "17")


def _script(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_packages_are_installed_again_when_their_versions_may_have_changed(
    checkout: Checkout, jdk: Path, changed: str
) -> None:
    checkout.set_up("report", java_home=jdk)
    checkout.set_up("report", java_home=jdk)
    assert checkout.installs == [".[report]"]
    (checkout.folder / changed).write_text("# another\n")
    checkout.set_up("report", java_home=jdk)
    assert checkout.installs == [".[report]"] * 2


def test_packages_come_at_the_versions_that_are_written_down(checkout: Checkout, jdk: Path) -> None:
    checkout.set_up("notebook,spark", java_home=jdk)
    assert (
        "--constraint constraints.txt --editable .[notebook,spark]"
        in (checkout.folder / "installs").read_text()
    )


@pytest.mark.parametrize("extra", ["test", "dev"])
def test_what_tests_need_includes_what_commands_need(
    checkout: Checkout, jdk: Path, extra: str
) -> None:
    checkout.set_up(extra, java_home=jdk)
    checkout.set_up(java_home=jdk)
    checkout.set_up("notebook,spark", java_home=jdk)
    assert checkout.installs == [f".[{extra}]"]


def test_what_tests_need_is_not_all_that_developing_needs(checkout: Checkout, jdk: Path) -> None:
    checkout.set_up("test", java_home=jdk)
    checkout.set_up("docs,report", java_home=jdk)
    checkout.set_up("dev", java_home=jdk)
    assert checkout.installs == [".[test]", ".[docs,report]", ".[dev]"]


@pytest.mark.parametrize("extras", ["", "report", "notebook", "docs,report"])
def test_what_runs_without_spark_needs_no_java(
    checkout: Checkout, tmp_path: Path, extras: str
) -> None:
    checkout.set_up(*filter(None, [extras]), java_home=tmp_path / "none")
    assert not (checkout.folder / ".venv/java-home").exists()
    run = subprocess.run(
        [checkout.folder / "scripts/run.sh", "echo", "runs"], capture_output=True, check=True
    )
    assert run.stdout == b"runs\n"


@pytest.mark.parametrize("stub", ["exit 1", None], ids=["fails", "is missing"])
def test_pip_installs_what_uv_cannot(checkout: Checkout, jdk: Path, stub: str | None) -> None:
    uv = checkout.folder / ".venv/bin/uv"
    uv.write_text(f"#!/bin/sh\n{stub}\n") if stub else uv.unlink()
    assert (
        "pip, which knows more settings, tries again"
        in checkout.set_up("dev", java_home=jdk).stderr
    )
    assert checkout.installs == [".[dev]"]


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_is_taken_at_its_word(checkout: Checkout, tmp_path: Path, version: str) -> None:
    jdk = java(tmp_path / "jdk", version)
    checkout.set_up("spark", java_home=jdk)
    assert checkout.java_home == str(jdk)


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(
    checkout: Checkout, tmp_path: Path, version: str
) -> None:
    jdk, other = java(tmp_path / "jdk", version), java(tmp_path / "other", "17")
    said = checkout.set_up("spark", java_home=jdk, path_java=other).stderr
    assert checkout.java_home == str(other)
    assert f"JAVA_HOME ({jdk}) is not a Java 17 to 22" in said


def test_a_command_runs_with_the_java_and_the_python_that_were_found(
    checkout: Checkout, jdk: Path
) -> None:
    checkout.set_up("spark", java_home=jdk)
    show = ["sh", "-c", 'echo "$JAVA_HOME" "${SPARK_HOME-none}"; command -v python']
    run = subprocess.run(
        [checkout.folder / "scripts/run.sh", *show],
        env=os.environ | {"SPARK_HOME": "/another"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == [f"{jdk} none", str(checkout.folder / ".venv/bin/python")]
