"""A table of each test's own, for tests that have no other."""

from collections.abc import Iterator
from zlib import crc32

import pytest

from icekit.api import Lake
from tests.resolve.tables import Table


@pytest.fixture
def table(lake: Lake, scratch: str, request: pytest.FixtureRequest) -> Iterator[Table]:
    """Yet to be created; its name is not that of another test's, as Spark remembers a table that
    was dropped.
    """
    made = Table(lake, scratch, f"t{crc32(request.node.nodeid.encode())}")
    yield made
    made.sql("DROP TABLE IF EXISTS {t}")
