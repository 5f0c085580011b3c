"""Find the store of a history that a text names: an Iceberg table, a SQLite file, or one table's records handed over as JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from icekit.catalog import Lake
from icekit.catalog.embedded_tables import EmbeddedTables
from icekit.catalog.profile_tables import ProfileTables
from icekit.history.iceberg import IcebergStore
from icekit.history.records import Health
from icekit.history.spark import SparkStore
from icekit.history.sqlite import SqliteStore
from icekit.history.store import LAST, Store
from icekit.saving import naming, slug


def store(where: str, lake: Lake) -> Store | None:
    """The store that a text names: none if empty, ``table``, or a SQLite file; contacts and makes nothing yet."""
    if not where:
        return None
    if where == "table":
        return table_store(lake)
    return SqliteStore(Path(where).expanduser())


@contextlib.contextmanager
def opened(where: str, lake: Lake) -> Iterator[Store | None]:
    """As :func:`store`, for a ``with`` block."""
    yield store(where, lake)


def handed_over(records: Sequence[Health] | None, table: str, folder: Path) -> str:
    """Write what is remembered of a table for its notebook; an empty text where that is nothing."""
    if not records:
        return ""
    path = folder / f"{slug(table)}.history.json"
    with naming(path):
        path.write_text(json.dumps([record.plain() for record in records]), encoding="utf-8")
    return str(path)


def remembered(where: str, lake: Lake, table: str, count: int = LAST) -> tuple[Health, ...]:
    """The newest runs of one table, oldest first; ``where`` may also be a ``.json`` file that a report handed over."""
    if where.endswith(".json"):
        return tuple(Health.of_plain(kept) for kept in json.loads(Path(where).read_text(encoding="utf-8")))
    found = store(where, lake)
    return tuple(found.last([table], count).get(table, ())) if found else ()


def table_store(lake: Lake) -> Store:
    """The table's store: by pyiceberg for a profile and the embedded lake, by Spark for a catalog that only a session knows."""
    if isinstance(lake.tables, ProfileTables):
        tables = lake.tables
        return IcebergStore(lambda: tables.catalog)
    if isinstance(lake.tables, EmbeddedTables):
        path = lake.tables.path
        return IcebergStore(lambda: _embedded(lake.name, str(path)))
    return SparkStore(lake)


def _embedded(name: str, path: str) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(name, uri=f"sqlite:///{path}/catalog.db", warehouse=f"{path}/warehouse")
