"""One Spark session, one lab: built once, shared by every test that needs them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import icekit
from icekit.api import Lake
from icekit.catalog import session

# Not the person's own lake. The notebooks' tests use it too, so it is built once for both.
LAB = Path(__file__).parents[1] / "build" / "lake"
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
# Workers that run beside each other share the lab's files, and each has a catalog and a scratch of its own.
TEST_LAKE = LAB.with_name(f"lake-{WORKER}") if WORKER else LAB


# Tests do not depend on timings: a busy machine is no falsifying example.
settings.register_profile("icekit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("icekit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """While one worker builds the lab, another runs what needs no Spark; then large files first, so that both end together."""
    if not WORKER:
        return
    tests = Counter(item.path for item in items)
    on_spark = Counter(item.path for item in items if item.get_closest_marker("spark"))
    first = max(on_spark, key=lambda path: on_spark[path], default=None)
    items.sort(key=lambda item: (item.path != first, item.path in on_spark, -tests[item.path], item.path))


@pytest.fixture(scope="session", autouse=True)
def _test_lake() -> Iterator[None]:
    """Point every test, and every process that a test starts, at the tests' own lake."""
    settings = {
        "ICEKIT_LAKE": str(TEST_LAKE),
        # Compiled lightly, code is ready sooner: a fifth of the processor time of many small queries. The cache of
        # code would be small then, and a third of the time go into sweeping it. The first flag is the session's own.
        "ICEKIT_SPARK_CONF": "spark.sql.shuffle.partitions=2 spark.master=local[2] spark.driver.memory=1g 'spark.driver.extraJavaOptions="
        "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC'",
    }
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    yield
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


@pytest.fixture(scope="session")
def lake(_test_lake: None) -> Iterator[Lake]:
    """The lab, with Spark."""
    from icekit.lab import build

    if WORKER:
        _share_the_lab()
    connected = icekit.connect()
    build(connected)
    assert connected.spark is not None
    # A command that a test runs in this process ends with its own lake, and would take the session of all along.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "stop_own", lambda: None)
        yield connected
    connected.close()


def _share_the_lab() -> None:
    """Let one worker build the lab, and begin with a copy of its catalog: the tables' files stay where they are."""
    LAB.mkdir(parents=True, exist_ok=True)
    with (LAB.parent / "lab.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "icekit", "lab"]
        subprocess.run(command, env={**os.environ, "ICEKIT_LAKE": str(LAB)}, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(TEST_LAKE, ignore_errors=True)
    TEST_LAKE.mkdir(parents=True)
    shutil.copy(LAB / "catalog.db", TEST_LAKE)
    # What a run without workers has left there is nobody's: two workers would drop the same files.
    with contextlib.closing(sqlite3.connect(TEST_LAKE / "catalog.db")) as catalog, catalog:
        catalog.execute("DELETE FROM iceberg_tables WHERE table_namespace <> 'lab'")


@pytest.fixture
def scratch(lake: Lake) -> Iterator[str]:
    """A namespace of the test's own; its tables are dropped afterwards."""
    from icekit.sql import identifier

    name = "scratch"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, name)}")
    # Also before: what a run that was killed has left is no business of this test's.
    _drop_all(lake, name)
    yield name
    _drop_all(lake, name)


def _drop_all(lake: Lake, namespace: str) -> None:
    """Drop every table of a namespace, with its files where they can be read: a broken one must not fail the next test."""
    from icekit.sql import identifier

    for table in lake.tables.names_in((namespace,)):
        name = identifier(lake.name, *table)
        try:
            lake.spark.sql(f"DROP TABLE {name} PURGE")
        except Exception:
            # Spark drops nothing that it cannot load.
            from pyiceberg.catalog.sql import SqlCatalog

            with SqlCatalog(lake.name, uri=f"sqlite:///{TEST_LAKE}/catalog.db", warehouse="") as catalog:
                catalog.drop_table(table)
