"""A table of one file to clone, and no clone left after a test."""

import shutil
from collections.abc import Iterator

import pytest

from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.engine.lake import embedded_path
from icekit.sandbox.scratch import NAMESPACE
from tests.maintain.tables import Named, Table
from tests.shapes import Shapes


@pytest.fixture
def table(named: Named, shapes: Shapes) -> Table:
    made = named("odd `name`, it's")
    shapes.have(made.name, "of one file", lambda: made.create().fill(files=1))
    return made


@pytest.fixture
def no_clones(lake: Lake) -> Iterator[None]:
    """Take away the clones that a test has left, and what was rightly kept of them."""
    yield
    for name in lake.tables.names_in((NAMESPACE,)):
        lake.spark.sql(f"DROP TABLE {identifier(lake.name, *name)}")
    shutil.rmtree(embedded_path() / "warehouse" / "scratch" / NAMESPACE, ignore_errors=True)
