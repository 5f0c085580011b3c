"""The lab's archives, and what is put into the lake from them."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import icekit
from icekit.api import Lake
from icekit.common.errors import ParameterError
from icekit.engine.tables import EmbeddedTables, ProfileTables
from icekit.health.diagnose import SYMPTOMS
from icekit.health.facts.metadata_file import load_metadata
from icekit.learn import lab
from icekit.learn.lab import ARCHIVE, OTHER_ARCHIVE, lab_tables, unpack_lab
from tests.child import python
from tests.commands import command
from tests.offline import catalog_of

SHIPPED = [table.name for table in lab_tables().values() if table.is_shipped]
MIB = 1 << 20


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake("lake", None, EmbeddedTables(tmp_path / "lake"))


def _unpacked(lake: Lake, *names: str, **options: Any) -> list[str]:
    return unpack_lab(lake, names, progress=lambda _: None, **options)


def _files(lake: Lake, name: str) -> dict[str, int]:
    assert isinstance(lake.tables, EmbeddedTables)
    folder = lake.tables.path / "warehouse" / "lab" / name
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", lab_tables())
def test_each_table_says_in_a_sentence_what_is_wrong_with_it(name: str) -> None:
    assert lab_tables()[name].name == name
    assert re.fullmatch(r"[A-Z].{30,}\.", lab_tables()[name].illness)


def test_every_finding_has_a_table_that_suffers_from_it() -> None:
    elsewhere = {
        # It takes two tables to share a location: tests/maintain/test_sharing.py has them.
        "shared_location",
        # Spark makes no table that it cannot read: tests/engine/test_column_types.py has some.
        "unsupported_columns",
        # No engine of the lab writes these: tests/maintain/test_key_fields.py and
        # test_replaced_deletes.py make them.
        "misread_equality_deletes",
        "replaced_deletes",
        "several_vectors",
        # It belongs to a session: tests/maintain/test_writer_states.py has one.
        "staged_writes",
    }
    assert {name for table in lab_tables().values() for name in table.findings} == set(
        SYMPTOMS
    ) - elsewhere


def test_most_findings_are_in_the_package_and_some_of_its_tables_are_healthy() -> None:
    of_all = {name for table in lab_tables().values() for name in table.findings}
    of_shipped = {name for table in SHIPPED for name in lab_tables()[table].findings}

    assert len(of_shipped) > len(of_all) / 2
    assert any(not lab_tables()[name].findings for name in SHIPPED)
    assert ARCHIVE.stat().st_size < 8 * MIB


def test_the_archives_are_those_of_the_index() -> None:
    """Who builds them anew commits both archives and the index together."""
    for archive in (ARCHIVE, OTHER_ARCHIVE):
        content = archive.read_bytes()
        assert hashlib.sha256(content).hexdigest() == lab.archive_index()["archives"][archive.name]


@pytest.mark.parametrize("name", lab_tables())
def test_a_table_has_exactly_its_findings_without_any_engine(lake: Lake, name: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    _unpacked(lake, name)
    facts = lake.observe(f"lab.{name}", size_ratios=icekit.Thresholds().size_ratios, storage=True)

    assert icekit.diagnose(facts).names == lab_tables()[name].findings
    assert not lake.spark_is_running
    updated_ms = load_metadata(lake.tables.source(("lab", name)))["last-updated-ms"]
    assert 60_000 <= before_ms + 60_000 - updated_ms <= 240_000


def test_tables_that_are_there_are_left_alone(lake: Lake) -> None:
    said: list[str] = []
    assert _unpacked(lake, "merge_on_read_on_v1") == ["merge_on_read_on_v1"]
    before = _files(lake, "merge_on_read_on_v1")

    assert unpack_lab(lake, ["merge_on_read_on_v1"], progress=said.append) == []
    assert [line.split() for line in said] == [["lab.merge_on_read_on_v1", "exists"]]
    assert _files(lake, "merge_on_read_on_v1") == before


def _change(lake: Lake, path: Path) -> None:
    with catalog_of(path) as catalog:
        table = catalog.load_table("lab.repeated_identifiers")
        table.transaction().set_properties(owner="another").commit_transaction()


def _drop(_: Lake, path: Path) -> None:
    with catalog_of(path) as catalog:
        catalog.drop_table("lab.repeated_identifiers")


def _lose(_: Lake, path: Path) -> None:
    shutil.rmtree(path / "warehouse" / "lab" / "repeated_identifiers")


def _replace(lake: Lake, path: Path) -> None:
    _drop(lake, path)
    _lose(lake, path)
    with catalog_of(path) as catalog:
        location = str(path / "warehouse" / "lab" / "repeated_identifiers")
        schema = pa.schema([("other", pa.string())])
        catalog.create_table("lab.repeated_identifiers", schema, location=location)


@pytest.mark.parametrize("what", [_change, _drop, _lose, _replace])
def test_a_table_comes_back_with_exactly_its_files(
    lake: Lake, what: Callable[[Lake, Path], None]
) -> None:
    assert isinstance(lake.tables, EmbeddedTables)
    _unpacked(lake, "repeated_identifiers")
    before = _files(lake, "repeated_identifiers")
    what(lake, lake.tables.path)

    assert _unpacked(lake, "repeated_identifiers", reset=True) == ["repeated_identifiers"]
    # Times change, and with them the sizes of metadata files by a digit or two.
    assert _files(lake, "repeated_identifiers").keys() == before.keys()
    assert icekit.diagnose(lake.observe("lab.repeated_identifiers")).names == {
        "identifiers_not_unique"
    }
    folder = lake.tables.path / "warehouse" / "lab"
    assert [path.name for path in folder.iterdir()] == ["repeated_identifiers"]


def test_files_of_failed_writers_are_as_old_as_they_were(lake: Lake) -> None:
    assert isinstance(lake.tables, EmbeddedTables)
    _unpacked(lake, "orphan_files")
    folder = lake.tables.path / "warehouse" / "lab" / "orphan_files"
    ages = [time.time() - path.stat().st_mtime for path in folder.rglob("*") if path.is_file()]

    old = [age for age in ages if age > 9 * 86_400]
    assert 0 < len(old) < len(ages)
    assert all(age > 9 * 86_400 or age < 3600 for age in ages)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smal_file", r"no lab table 'smal_file'; did you mean small_files"),
        ("zzz", r"use one of small_files, "),
    ],
)
def test_an_unknown_table_is_refused(lake: Lake, name: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        _unpacked(lake, name)


def test_the_lab_is_not_put_into_somebodys_catalog() -> None:
    with pytest.raises(ParameterError, match="embedded lake, not for catalog 'prod'"):
        unpack_lab(Lake("prod", None, ProfileTables("prod", {})))


def test_without_the_other_archive_it_says_where_its_tables_are(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "OTHER_ARCHIVE", tmp_path / "none.zst")

    with pytest.raises(ParameterError, match="Run `icekit lab urls` in a clone of icekit"):
        _unpacked(lake, "urls")
    assert _unpacked(lake, "managed_elsewhere") == ["managed_elsewhere"]


def test_the_command_unpacks_without_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code = (
        "import sys\nfrom icekit.cli.main import main\nstatus = main(['lab'])\n"
        "heavy = {'pyspark', 'py4j', 'pandas', 'pyiceberg', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'{status} {heavy}' if status or heavy else 0)"
    )
    run = python("-c", code)

    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == len(SHIPPED) + 1
    status, printed = command("lab", "--reset", "small_files")
    assert status == 0
    assert "lab.small_files" in printed
    status, printed = command("lab", "--list")
    assert len(printed.splitlines()) == len(lab_tables())
