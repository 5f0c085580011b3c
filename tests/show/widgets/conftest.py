"""A lake that needs no Spark, and a table of it in view."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import icekit
from icekit.api import Lake
from icekit.show import widgets
from tests.offline import IDS, lake_in


@pytest.fixture(scope="module")
def local_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake without Spark: a table of 12 small files over two days, and one that is fine."""
    with lake_in(tmp_path_factory.mktemp("lake")) as catalog:
        for name, commits in (("sick", 12), ("fine", 1)):
            table = catalog.create_table(("db", name), IDS)
            for _ in range(commits):
                table.append(pa.table({"id": [1, 2, 3]}))
        connected = icekit.connect()
        yield connected
        connected.close()


@pytest.fixture
def view(local_lake: Lake) -> widgets.View:
    return widgets.View(local_lake, local_lake.observe("db.sick"))
