"""A table takes in what was written to a clone of it."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.engine.bridge import elements, load_table
from icekit.sandbox.scratch import ScratchTable
from tests.maintain.tables import Table


def told(what: str) -> contextlib.AbstractContextManager[object]:
    """Expect a warning somewhere in a block."""
    return pytest.warns(UserWarning, match=what)


FIVE = "SELECT /*+ COALESCE(1) */ id, 1, 'new' FROM range(5)"


def insert(lake: Lake, copy: ScratchTable, rows: str = "VALUES (1, 1, 'new')") -> None:
    lake.spark.sql(f"INSERT INTO {identifier(lake.name, *copy.table)} {rows}")


def adopt(
    table: Table, copy: ScratchTable, path: Callable[[str], str] = str, by: Any = None
) -> str:
    """Let the table (in a session of its own, if one is given) take the file that the clone's
    newest commit added, under this spelling of its path; returns the path.
    """
    spark: Any = table.spark
    made = load_table(spark, table.lake.sql_name(copy.table))
    added = next(elements(made.currentSnapshot().addedDataFiles(made.io())))
    files = spark._jvm.org.apache.iceberg.DataFiles.builder(made.spec()).copy(added)
    spelled = files.withPath(path(added.location())).build()
    name = table.full
    load_table(by or spark, name).newAppend().appendFile(spelled).commit()
    return str(added.location())
