"""A table with a column that Spark cannot read is observed and reported, and nothing else."""

import contextlib
import json
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.errors import EXIT_HEALTHY, EXIT_UNHEALTHY, ConversionRefused
from icekit.health.diagnose import diagnose
from icekit.maintain.planning.conversion import plan_conversion
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.planning.proposals import propose
from tests.commands import command
from tests.versions import ENGINE

pytestmark = pytest.mark.spark
NOW = ("--leave-alone", "0 minutes")


def said(*arguments: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints, in one line."""
    status, printed = command(*arguments)
    return status, " ".join(printed.split())


def add_column(lake: Lake, name: str, column: str, kind: str, field_id: int = 9) -> None:
    """Add a column of a type of Iceberg, as another engine does."""
    iceberg: Any = lake.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    table = iceberg.spark.Spark3Util.loadIcebergTable(lake.spark._jsparkSession, name)
    field = {"id": field_id, "name": column, "required": False, "type": kind}
    schema = {"type": "struct", "schema-id": 0, "fields": [field]}
    added = iceberg.SchemaParser.fromJson(json.dumps(schema))
    table.updateSchema().unionByNameWith(added).commit()
    lake.spark.sql(f"REFRESH TABLE {name}")


@pytest.fixture
def table(lake: Lake, scratch: str) -> str:
    name = f"{scratch}.clocks"
    lake.spark.sql(
        f"CREATE TABLE lake.{name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='3')"
    )
    for n in range(6):
        lake.spark.sql(f"INSERT INTO lake.{name} VALUES ({n})")
    return name


def test_a_table_that_spark_cannot_read_is_observed_and_nothing_is_run(
    lake: Lake, table: str
) -> None:
    with contextlib.suppress(Exception):  # Spark cannot even refresh it
        add_column(lake, f"lake.{table}", "c", "timestamp_ns")
    limits = f"{ENGINE} cannot read column c (timestamp_ns)"

    for collector in ("auto", "local", "spark"):
        status, card = said("look", table, "--collector", collector)
        assert (status, limits in card) == (EXIT_HEALTHY, True), card
        assert "would remove 5 of 6" in card
        assert "icekit compact" not in card
    for verb in ("compact", "tune layout", "tune metrics-columns", "tune file-sizes"):
        status, printed = said(*verb.split(), table)
        assert (status, limits in printed) == (EXIT_UNHEALTHY, True), printed
    for more in ((), ("--execute",), ("--trial",)):
        status, printed = said("compact", table, *NOW, *more)
        assert (status, limits in printed) == (EXIT_UNHEALTHY, True), printed
    facts = lake.observe(table)
    proposals = propose(lake, facts)
    assert (
        proposals.proposals,
        "unsupported_columns" in {e.finding for e in proposals.by_hand},
    ) == (
        (),
        True,
    )
    maintenance = plan_maintenance_table(
        lake, facts, diagnose(facts), procedures=("rewrite_manifests", "expire_snapshots")
    )
    assert maintenance.actions == ()
    assert any(limits in note for note in maintenance.notes)
    with pytest.raises(ConversionRefused, match="cannot read column c"):
        plan_conversion(lake, table)
    with pytest.raises(ConversionRefused, match=rf"cannot read column c .* rows of {table} cannot"):
        lake.read_resolved(table)


@pytest.mark.skipif(not ENGINE.has_hilbert, reason="no geometries here")
def test_geometries_are_compacted_and_checked_by_their_bytes(lake: Lake, scratch: str) -> None:
    name = f"{scratch}.places"
    lake.spark.conf.set("spark.sql.geospatial.enabled", "true")
    try:
        lake.spark.sql(
            f"CREATE TABLE lake.{name} (id BIGINT) USING iceberg TBLPROPERTIES "
            "('format-version'='3')"
        )
        add_column(lake, f"lake.{name}", "g", "geometry(OGC:CRS84)", 8)
        add_column(lake, f"lake.{name}", "o", "geography(OGC:CRS84, spherical)", 9)
        point = "X'0101000000000000000000F03F0000000000000040'"
        for n in range(6):
            lake.spark.sql(
                f"INSERT INTO lake.{name} VALUES ({n}, ST_SetSrid(ST_GeomFromWKB({point}), 4326), "
                f"ST_GeogFromWKB({point})), ({n}, null, null)"
            )
    finally:
        lake.spark.conf.unset("spark.sql.geospatial.enabled")

    status, printed = said("compact", name, *NOW, "--execute", "--prove", "full")
    assert (status, "no row changed" in printed) == (EXIT_HEALTHY, True), printed
    rows = lake.spark.sql(f"SELECT id, g, o FROM lake.{name}").collect()
    assert len({(row.id, str(row.g), str(row.o)) for row in rows}) == 12
