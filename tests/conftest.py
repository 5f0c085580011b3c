"""Tables of each test's own, for tests that have no others."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from icekit.api import Lake
from tests.deletes.tables import Table
from tests.maintain import tables
from tests.moments import Around
from tests.shapes import Shapes


@pytest.fixture
def table(lake: Lake, scratch: str, request: pytest.FixtureRequest) -> Iterator[Table]:
    """Yet to be created; its name is not that of another test's, as Spark remembers a table that
    was dropped.
    """
    made = Table(lake, scratch, f"t{crc32(request.node.nodeid.encode())}")
    yield made
    made.sql("DROP TABLE IF EXISTS {t}")


@pytest.fixture
def named(lake: Lake, scratch: str, tmp_path: Path) -> tables.Named:
    """Names a table with a ledger, which is yet to be created."""
    return lambda name: tables.Table(lake, scratch, name, tmp_path)


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Around:
    return Around(monkeypatch)


@pytest.fixture
def sick(named: tables.Named, shapes: Shapes) -> tables.Table:
    """Five small files in each of two partitions."""
    made = named("sick")
    shapes.have(made.name, "of five files", lambda: made.create().fill())
    return made
