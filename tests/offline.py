"""A lake that is made without Spark, by pyiceberg alone."""

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

#: A table of one column.
IDS = pa.schema([("id", pa.int64())])


def catalog_of(lake: Path) -> SqlCatalog:
    """The catalog of the embedded lake in this folder, which is made where there is none; to be
    closed.
    """
    lake.mkdir(exist_ok=True)
    return SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake / "warehouse"))
