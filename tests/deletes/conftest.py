"""Tables of the tests of conversions: created again for each, and dropped afterwards."""

import itertools
from collections.abc import Callable

import pytest

from icekit.api import Lake
from tests.deletes.tables import Table

_NUMBERS = itertools.count()


@pytest.fixture
def make(lake: Lake, scratch: str) -> Callable[[], Table]:
    """Names a new table, which is yet to be created."""
    return lambda: Table(lake, scratch, f"t{next(_NUMBERS)}")


@pytest.fixture
def table(make: Callable[[], Table]) -> Table:
    """One such table."""
    return make()
