"""The archives of the lab are what its builders build."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import icekit
from icekit.api import Lake
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lab import archive_index, lab_tables
from rigs.lab import TABLES, build, flights
from rigs.lab.__main__ import fingerprint
from tests.elsewhere import settings_of


def test_the_archives_were_built_by_these_builders() -> None:
    assert archive_index()["built-by"] == fingerprint(), (
        "run `make lab-archive`, and commit what it writes"
    )


def test_the_index_says_what_the_builders_say() -> None:
    assert {(each.name, each.illness, each.findings) for each in TABLES.values()} == {
        (each.name, each.illness, each.findings) for each in lab_tables().values()
    }


def test_flights_are_real_and_have_keys(tmp_path: Path) -> None:
    flights.write(tmp_path / "flights.parquet")
    rows = pq.read_table(tmp_path / "flights.parquet")

    assert rows.schema.names == list(flights.COLUMNS)
    assert rows["flight_id"].to_pylist() == list(range(flights.ROWS))
    assert pc.sum(rows["distance"]).as_py() == 350_217_607
    assert rows["dep_time"].null_count == 8_255  # cancelled


@pytest.mark.spark
@pytest.mark.slow
def test_builders_build_what_is_in_the_archives(lake: Lake) -> None:
    """All forty tables, which takes a minute or two."""
    before = settings_of(lake.spark)
    build(lake, rebuild=True, progress=lambda _: None)
    findings_by_table = {}
    for name in TABLES:
        facts = lake.observe(
            f"lab.{name}", size_ratios=icekit.Thresholds().size_ratios, storage=True
        )
        findings_by_table[name] = icekit.diagnose(facts).names

    assert findings_by_table == {name: table.findings for name, table in lab_tables().items()}
    assert settings_of(lake.spark) == before
    assert isinstance(lake.tables, EmbeddedTables)
    assert not (lake.tables.path / "lab-flights.parquet").exists()
