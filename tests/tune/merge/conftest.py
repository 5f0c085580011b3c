"""A target of each test's own."""

from zlib import crc32

import pytest

from icekit.api import Lake
from tests.tune.merge.targets import Target


@pytest.fixture
def target(lake: Lake, scratch: str, request: pytest.FixtureRequest) -> Target:
    """Yet to be created; its name is not that of another test's."""
    return Target(lake, scratch, f"t{crc32(request.node.nodeid.encode())}")
