"""A lake that is made without Spark, by pyiceberg alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

#: A table of one column.
IDS = pa.schema([("id", pa.int64())])


def catalog_of(lake: Path) -> SqlCatalog:
    """The catalog of the embedded lake in this folder, which is made where there is none; to be
    closed.
    """
    lake.mkdir(exist_ok=True)
    return SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake / "warehouse"))


@contextlib.contextmanager
def lake_in(folder: Path) -> Iterator[SqlCatalog]:
    """The embedded lake that icekit uses meanwhile, with a namespace db."""
    catalog = catalog_of(folder)
    with pytest.MonkeyPatch.context() as patch, catalog:
        patch.setenv("ICEKIT_LAKE", str(folder))
        catalog.create_namespace("db")
        yield catalog
