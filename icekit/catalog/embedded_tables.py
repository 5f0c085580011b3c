"""Find the tables of the embedded lake in its SQLite catalog."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from icekit.catalog.source import DEADLINE_SECONDS, Source, read_local
from icekit.engine.errors import not_found, view_given
from icekit.errors import CatalogUnreachable, TableNotFound
from icekit.sql import Identifier


class EmbeddedTables:
    """The embedded lake, asked with the standard library alone: a first look takes no imports."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return f"embedded lake at {self.path}"

    def _query(self, sql: str, *arguments: str) -> list[tuple[str, ...]]:
        database = self.path / "catalog.db"
        if not database.exists():
            raise TableNotFound(f"There is no embedded lake at {self.path}; build the lab with `make lab`, or set ICEKIT_LAKE.")
        try:
            with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=DEADLINE_SECONDS)) as connection:
                return connection.execute(sql, arguments).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise CatalogUnreachable(f"The embedded lake's catalog {database} cannot be read: {error}.") from None
        except sqlite3.DatabaseError as error:
            raise CatalogUnreachable(f"The embedded lake's catalog {database} is not a catalog: {error}.") from None

    def names(self) -> list[Identifier]:
        """Every table of the embedded lake."""
        rows = self._query("SELECT table_namespace, table_name FROM iceberg_tables WHERE coalesce(iceberg_type, 'TABLE') = 'TABLE'")
        return sorted((*namespace.split("."), table) for namespace, table in rows)

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, by the embedded lake's catalog."""
        return [name for name in self.names() if name[:-1] == namespace]

    def source(self, table: Identifier) -> Source:
        """Look the table up by namespace and name."""
        rows = self._query(
            "SELECT metadata_location, coalesce(iceberg_type, 'TABLE') FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            ".".join(table[:-1]),
            table[-1],
        )
        if not rows:
            raise not_found(table, self.names())
        if rows[0][1] != "TABLE":
            raise view_given(table)
        return Source(rows[0][0], read_local)

    def close(self) -> None:
        """Nothing is kept open."""
