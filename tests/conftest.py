"""One Spark session, one lab: built once, shared by every test that needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import icekit
from icekit.catalog import Lake

# Not the person's own lake. The notebooks' tests use it too, so it is built once for both.
TEST_LAKE = Path(__file__).parents[1] / "build" / "lake"


@pytest.fixture(scope="session", autouse=True)
def _test_lake() -> Iterator[None]:
    """Point every test, and every process that a test starts, at the tests' own lake."""
    settings = {
        "ICEKIT_LAKE": str(TEST_LAKE),
        "ICEKIT_SPARK_CONF": "spark.sql.shuffle.partitions=2 spark.master=local[2] spark.driver.memory=1g",
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

    connected = icekit.connect()
    build(connected)
    assert connected.spark is not None
    yield connected
    connected.close()


@pytest.fixture
def scratch(lake: Lake) -> Iterator[str]:
    """A namespace of the test's own; its tables are dropped afterwards."""
    from icekit.sql import identifier

    name = "scratch"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, name)}")
    yield name
    for table in lake.tables.names():
        if table[0] == name:
            lake.spark.sql(f"DROP TABLE {identifier(lake.name, *table)} PURGE")
