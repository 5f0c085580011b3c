"""A Spark session that is there is used as it is, and never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import icekit
from icekit.catalog import Lake
from icekit.catalog.known import known_catalogs, session_catalogs
from icekit.catalog.session import unusable
from icekit.catalog.session_tables import SessionTables
from icekit.errors import MetadataUnreadable, NotATable, TableNotFound

pytestmark = pytest.mark.spark


@pytest.fixture
def borrowed(lake: Lake, tmp_path: Path) -> Lake:
    """A session that icekit did not start, with a catalog that no profile knows."""
    session = lake.spark.newSession()
    session.conf.set("spark.sql.catalog.mine", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.mine.type", "jdbc")
    session.conf.set("spark.sql.catalog.mine.jdbc.schema-version", "V1")
    session.conf.set("spark.sql.catalog.mine.uri", f"jdbc:sqlite:file:{tmp_path}/mine.db")
    session.conf.set("spark.sql.catalog.mine.warehouse", str(tmp_path))
    session.sql("CREATE NAMESPACE mine.db")
    session.sql("CREATE TABLE mine.db.events AS SELECT id FROM range(3)")
    return icekit.connect("mine", spark=session)


@pytest.mark.parametrize(("key", "value"), [("spark.sql.session.timeZone", "Mars/Base"), ("spark.sql.shuffle.partitions", "many")])
def test_a_setting_that_no_session_takes_is_named_before_there_is_one(lake: Lake, key: str, value: str) -> None:
    said = unusable(lake.spark.sparkContext, {"spark.sql.session.timeZone": "Europe/Berlin", key: value})

    assert said is not None
    assert said.startswith(f"Spark cannot take {key}='{value}' (")
    assert unusable(lake.spark.sparkContext, {"spark.sql.session.timeZone": "+02:00", "spark.app.name": "any"}) is None


def test_its_catalogs_need_no_profile(borrowed: Lake) -> None:
    assert isinstance(borrowed.tables, SessionTables)
    assert borrowed.tables.names() == [("db", "events")]
    by_spark, without = (borrowed.observe("db.events", collector=c) for c in ("spark", "local"))
    assert by_spark == without
    assert by_spark.data.record_count == 3


def test_it_is_offered_among_the_catalogs_that_can_be_chosen(borrowed: Lake) -> None:
    assert "mine" in known_catalogs(borrowed.spark)
    assert "spark_catalog" not in session_catalogs(borrowed.spark)


def test_it_is_not_stopped_and_not_changed(borrowed: Lake) -> None:
    before = {row["key"]: row["value"] for row in borrowed.spark.sql("SET").collect()}
    borrowed.observe("db.events", collector="spark")
    borrowed.close()

    assert {row["key"]: row["value"] for row in borrowed.spark.sql("SET").collect()} == before


def test_its_cache_setting_is_known_to_the_diagnosis(borrowed: Lake, lake: Lake) -> None:
    said = borrowed.session_conf()

    assert said is not None
    assert "spark.sql.iceberg.executor-cache.enabled" in said
    assert lake.session_conf() is None


def test_a_missing_table_is_named_with_near_ones(borrowed: Lake) -> None:
    with pytest.raises(TableNotFound, match=r"did you mean db\.events\?"):
        borrowed.observe("db.evens")


def test_a_view_is_no_table(borrowed: Lake) -> None:
    borrowed.spark.sql("CREATE VIEW mine.db.seen AS SELECT * FROM mine.db.events")

    with pytest.raises(NotATable, match="is a view"):
        borrowed.observe("db.seen")


def test_a_metadata_file_that_is_gone_is_told(borrowed: Lake, tmp_path: Path) -> None:
    for path in tmp_path.rglob("*.metadata.json"):
        path.unlink()

    with pytest.raises(MetadataUnreadable, match="is gone"):
        borrowed.observe("db.events")


@pytest.mark.parametrize("collector", ["spark", "local"])
def test_a_corrupt_manifest_is_told_by_both_collectors(borrowed: Lake, tmp_path: Path, collector: str) -> None:
    (path,) = tmp_path.rglob("*-m0.avro")
    path.write_bytes(b"no avro")

    with pytest.raises(MetadataUnreadable, match="corrupt"):
        borrowed.observe("db.events", collector=collector)
