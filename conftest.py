"""One Spark session a process, and one lab, of which each table is built once, when the first test
asks for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import icekit
from icekit.api import Lake
from icekit.engine import session
from icekit.engine.bridge import activate_session
from icekit.learn.lab import unpack_lab
from icekit.sandbox.scratch import NAMESPACE
from tests.golden import Golden
from tests.offline import catalog_of
from tests.shapes import Shapes
from tests.workshop import LAB, one_at_a_time

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
# Processes that run beside each other share the lab's files, and each has a catalog and a scratch
# of its own.
TEST_LAKE = LAB.with_name(f"lake-{WORKER or 'alone'}")


# Tests do not depend on timings: a busy machine is no falsifying example. Nor on chance: each run
# has the same inputs, and what looks further is given a seed (rigs.model).
settings.register_profile(
    "icekit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("icekit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files again")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares what a result looks like with a golden file."""
    return Golden(update=pytestconfig.getoption("--update-golden"))


#: Functions with the mark ``core`` that have been collected, each with the ids of its variants and
#: those that its mark names.
CORE_VARIANTS: dict[str, set[str]] = {}
NAMED_VARIANTS: dict[str, set[str]] = {}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the variants of a core test that the gate leaves out: all but the first, or but those
    that the mark names by their ids (``*``: none).
    """
    core = item.get_closest_marker("core")
    if core is None or item.get_closest_marker("soak") is not None:
        return
    function, _, variant = item.nodeid.removesuffix("]").partition("[")
    variants = CORE_VARIANTS.setdefault(function, set())
    is_first = not variants
    variants.add(variant)
    named = NAMED_VARIANTS.setdefault(function, set(core.args))
    is_chosen = variant in named or "*" in named if named else is_first
    if not is_chosen:
        item.add_marker(pytest.mark.variant)


@pytest.fixture(scope="session", autouse=True)
def _test_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point every test, and every process that a test starts, at the tests' own lake and ledger."""
    settings = {
        "ICEKIT_LAKE": str(TEST_LAKE),
        "ICEKIT_LEDGER": str(tmp_path_factory.mktemp("ledger") / "ledger.db"),
        # Compiled lightly, code is ready sooner: a fifth of the processor time of many small
        # queries. The cache of code would be small then, and a third of the time go into sweeping
        # it. The first flag is the session's own; the last, Java's default, turns icekit's archive
        # of classes off: a test must not depend on what earlier runs have left.
        "ICEKIT_SPARK_CONF": "spark.sql.shuffle.partitions=2 spark.master=local[2] "
        "spark.driver.memory=1g 'spark.driver.extraJavaOptions="
        "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:TieredStopAtLevel=1 "
        "-XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xshare:auto'",
    }
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings.items():
            patch.setenv(key, value)
        yield


@pytest.fixture(scope="session")
def lake(_test_lake: None) -> Iterator[Lake]:
    """The tests' own lake, with Spark; the lab's tables come into it by the marker ``lab``."""
    shutil.rmtree(TEST_LAKE, ignore_errors=True)
    connected = icekit.connect()
    with one_at_a_time("spark"):  # whoever is first fetches the jars
        assert connected.spark is not None
    # A command that a test runs in this process ends with its own lake, and would take the session
    # of all along.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "stop_own_session", lambda: None)
        yield connected
    connected.close()


@pytest.fixture(autouse=True)
def _no_session_is_left() -> Iterator[None]:
    """Stop what a test has started on a lake of its own: Spark would read that lake for the tests
    that follow.

    And have the session of all be the active one again: a DataFrame that is made in another one
    makes that the active one, which a lake of a later test would borrow.
    """
    before = session._own_spark
    yield
    if before is None:
        session.stop_own_session()  # which does nothing to the session that all tests share
    if (own := session._own_spark) is not None:
        from pyspark.sql import SparkSession

        if SparkSession._activeSession is not own:
            SparkSession._activeSession = own
            activate_session(own)


@pytest.fixture(scope="session")
def shapes(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Shapes:
    """Puts back tables of ``scratch`` that an earlier test has built."""
    return Shapes(lake, tmp_path_factory.mktemp("shapes"))


@pytest.fixture(autouse=True)
def _lab_tables(request: pytest.FixtureRequest) -> None:
    """Have the lab's tables that a test asks for by name."""
    names = [str(name) for marker in request.node.iter_markers("lab") for name in marker.args]
    if names:
        unpack_lab(request.getfixturevalue("lake"), names, progress=lambda _: None)


@pytest.fixture
def scratch(lake: Lake) -> Iterator[str]:
    """A namespace of the test's own; its tables are dropped afterwards."""
    from icekit.common.sql import identifier

    name = "scratch"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, name)}")
    # Also before: what a run that was killed has left is no business of this test's. Nothing
    # expires while a table cannot be read.
    for left in (name, NAMESPACE):
        _drop_all(lake, left)
    yield name
    _drop_all(lake, name)


def _drop_all(lake: Lake, namespace: str) -> None:
    """Drop every table of a namespace, with its files; a broken one must not fail the next test.

    Not with PURGE: Spark would look for each file in jobs of its own, which takes as long as many a
    test.
    """
    from icekit.common.sql import identifier

    for table in lake.tables.names_in((namespace,)):
        name = identifier(lake.name, *table)
        try:
            lake.spark.sql(f"DROP TABLE {name}")
        except Exception:
            # Spark drops nothing that it cannot load.
            with catalog_of(TEST_LAKE) as catalog:
                catalog.drop_table(table)
    shutil.rmtree(TEST_LAKE / "warehouse" / namespace, ignore_errors=True)
