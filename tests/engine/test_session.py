"""A Spark session that is there is used as it is, and never stopped."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import icekit
from icekit.api import Lake
from icekit.common.errors import (
    CatalogUnreachable,
    EngineFailed,
    IcekitError,
    MetadataUnreadable,
    NotATable,
    ProfileError,
    SparkUnavailable,
    TableNotFound,
    trace,
)
from icekit.common.waiting import DeadlineExceeded
from icekit.engine.compat import sql_package
from icekit.engine.errors import environment_error
from icekit.engine.lake import run_in_time
from icekit.engine.session import add_catalog, check_settings
from icekit.engine.spark_conf import ICEBERG, spark_conf
from icekit.engine.tables import SessionTables
from icekit.health.collect import Collector
from tests.elsewhere import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def borrowed(lake: Lake, tmp_path: Path) -> Lake:
    """A session that icekit did not start, with a catalog that no profile knows."""
    session = lake.spark.newSession()
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".jdbc.schema-version": "V1",
        ".uri": f"jdbc:sqlite:file:{tmp_path}/mine.db",
        ".warehouse": str(tmp_path),
    }.items():
        session.conf.set(f"spark.sql.catalog.mine{key}", value)
    session.sql("CREATE NAMESPACE mine.db")
    session.sql("CREATE TABLE mine.db.events AS SELECT id FROM range(3)")
    return icekit.connect("mine", spark=session)


@pytest.mark.core
def test_the_session_runs_the_spark_and_the_iceberg_that_it_was_asked_for(
    lake: Lake, record_property: Callable[[str, object], None]
) -> None:
    """The support matrix has its versions from here (scripts/support-matrix.py)."""
    jvm: Any = lake.spark._jvm
    runs = {
        "spark": str(lake.spark.version),
        "iceberg": str(jvm.org.apache.iceberg.IcebergBuild.version()),
    }
    libraries = {name: version(name) for name in ("pyarrow", "pandas", "numpy")}

    assert runs == {"spark": version("pyspark"), "iceberg": ICEBERG}

    for name, value in {
        **runs,
        **libraries,
        "python": platform.python_version(),
        "java": jvm.System.getProperty("java.version"),
    }.items():
        record_property(name, value)


def test_its_catalogs_need_no_profile(borrowed: Lake) -> None:
    assert isinstance(borrowed.tables, SessionTables)
    assert borrowed.tables.names() == [("db", "events")]
    by_spark, without = (borrowed.observe("db.events", collector=c) for c in ("spark", "local"))
    assert by_spark == without
    assert by_spark.data.record_count == 3


@pytest.mark.parametrize("catalog", ["mine", "spark_catalog"])
def test_a_temporary_view_is_none_of_its_tables(borrowed: Lake, catalog: str) -> None:
    borrowed.spark.range(1).createOrReplaceTempView("passing")
    tables = SessionTables(catalog, borrowed.spark)

    assert "passing" not in {name[-1] for name in (*tables.names(), *tables.names_in(("default",)))}


def test_it_is_not_stopped_and_not_changed(borrowed: Lake) -> None:
    before = settings_of(borrowed.spark)
    borrowed.observe("db.events", collector="spark")
    borrowed.close()

    assert settings_of(borrowed.spark) == before


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

    with pytest.raises(MetadataUnreadable, match="is missing"):
        borrowed.observe("db.events")


@pytest.mark.parametrize("collector", ["spark", "local"])
def test_a_corrupt_manifest_is_told_by_both_collectors(
    borrowed: Lake, tmp_path: Path, collector: Collector
) -> None:
    (path,) = tmp_path.rglob("*-m0.avro")
    path.write_bytes(b"no avro")

    with pytest.raises(MetadataUnreadable, match="corrupt"):
        borrowed.observe("db.events", collector=collector)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.shuffle.partitions", "abc"),
        ("spark.sql.shuffle.partitions", "-1"),
        ("spark.sql.session.timeZone", "Mars"),
    ],
)
def test_a_setting_that_spark_refuses_is_named_before_there_is_a_session(
    lake: Lake, key: str, value: str
) -> None:
    with pytest.raises(SparkUnavailable, match=f"Spark rejects the setting {key}: .*'{value}'"):
        check_settings(
            lake.spark._jvm, {"spark.app.name": "x", "spark.sql.ansi.enabled": "true", key: value}
        )


@pytest.fixture
def secretive(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session that icekit did not start, and a profile of secrets; the catalog's very address is
    one of them.
    """
    for key, value in {
        "URI": f"sqlite:///{tmp_path}/it.db",
        "WAREHOUSE": str(tmp_path),
        "TOKEN": "canary-of-token",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SECRETIVE__{key}", value)
    monkeypatch.setenv(
        "PYICEBERG_CATALOG__SECRETIVE__SPARK.URI",
        f"jdbc:sqlite:file:{tmp_path}/it.db?access_token=canary-of-uri",
    )
    return lake.spark.newSession()


@pytest.mark.core
def test_what_is_secret_of_a_profile_never_becomes_a_setting_of_the_session_and_the_catalog_works(
    secretive: SparkSession,
) -> None:
    active = sql_package(secretive).SparkSession.getActiveSession()
    spark = icekit.connect("secretive", spark=secretive).spark

    assert sql_package(secretive).SparkSession.getActiveSession() == active
    assert "canary" not in str(settings_of(spark))
    assert not {"spark.sql.catalog.secretive.uri", "spark.sql.catalog.secretive.token"} & set(
        settings_of(spark)
    )
    spark.sql("CREATE NAMESPACE secretive.db")
    spark.sql("CREATE TABLE secretive.db.events AS SELECT id FROM range(3)")
    assert spark.table("secretive.db.events").count() == 3
    # Iceberg's rewrites work in a clone of the session.
    spark.sql("INSERT INTO secretive.db.events SELECT id FROM range(3)")
    (row,) = spark.sql(
        "CALL secretive.system.rewrite_data_files(table => 'db.events', options => "
        "map('rewrite-all', 'true'))"
    ).collect()
    assert row["failed_data_files_count"] == 0
    assert row["rewritten_data_files_count"] > 1


@pytest.mark.core
def test_a_profile_that_cannot_be_opened_leaves_nothing_in_the_session_and_shows_no_secret(
    secretive: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PYICEBERG_CATALOG__SECRETIVE__SPARK.URI",
        "jdbc:sqlite:file:/nowhere/it.db?access_token=canary-of-uri",
    )
    connected = icekit.connect("secretive", spark=secretive)

    with pytest.raises(CatalogUnreachable, match="cannot open catalog 'secretive'") as raised:
        _ = connected.spark
    assert "canary" not in f"{trace(raised.value)}"
    assert "secretive" not in str(settings_of(secretive))


class Remote:
    """As much of a session of Spark Connect as a catalog is added to."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, **settings: str) -> None:
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.conf = self

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value


@pytest.mark.core
def test_a_remote_session_with_an_event_log_is_refused_by_the_names_of_what_it_would_show() -> None:
    conf = spark_conf("prod", {"type": "rest", "uri": "http://host", "token": "canary"})
    remote: Any = Remote(spark_eventLog_enabled="true")

    with pytest.raises(
        ProfileError, match=r"'prod'.* event log.* write token there.*cluster's own configuration"
    ):
        add_catalog(remote, conf)
    assert list(remote.settings) == ["spark.eventLog.enabled"]
    remote.set("spark.sql.catalog.prod.token", "canary")
    add_catalog(remote, conf)
    assert remote.get("spark.sql.catalog.prod.uri") == "http://host"


def test_what_spark_fails_at_is_no_bug_of_icekits_and_what_cannot_be_asked_is(lake: Lake) -> None:
    jvm: Any = lake.spark._jvm

    def raised(work: Callable[[], object]) -> IcekitError | None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  of Java's many, the one that comes
            work()
        return environment_error(caught.value)

    divided = raised(lambda: lake.spark.sql("SELECT 1 / (id - id) FROM range(1)").collect())
    assert isinstance(divided, EngineFailed)
    assert "DIVIDE_BY_ZERO" in str(divided)
    missing = raised(lambda: lake.spark.sql("SELECT * FROM nowhere.db.t"))
    assert isinstance(missing, EngineFailed)
    number = raised(lambda: jvm.java.lang.Long.parseLong("x"))
    assert "For input string" in str(number)
    assert "An error occurred while calling" not in str(number)
    absent = raised(lambda: jvm.java.lang.Class.forName("org.nowhere.Absent"))
    assert "lacks a class" in str(absent)
    assert raised(lambda: jvm.java.lang.System.nothing()) is None
    for wrong in ("SELEKT", "SELECT no_such FROM range(1)", "SELECT no_such(1)"):
        assert raised(partial(lake.spark.sql, wrong)) is None


def test_spark_work_of_a_table_whose_time_is_over_is_cancelled(lake: Lake) -> None:
    ended: list[BaseException] = []
    over = threading.Event()
    slow = (
        "SELECT sum(hash(a.id * b.id)) FROM range(0, 10000000, 1, 2) a CROSS JOIN range(0, 10000) b"
    )

    def work(taken: Any) -> None:
        try:
            taken.spark.sql(slow).collect()
        except Exception as error:
            ended.append(error)
        finally:
            over.set()

    with pytest.raises(DeadlineExceeded):
        run_in_time(lake, 1.0, work)
    assert over.wait(60)
    assert "cancel" in str(ended[0]).lower()
