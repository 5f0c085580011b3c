"""Health in a SQLite file: for one machine, without a catalog that may be written to."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from icekit.errors import HistoryUnusable
from icekit.history.store import COLUMNS, DRAWN, LAST, REQUIRED, Health, Lately, Store
from icekit.saving import is_sqlite

T = TypeVar("T")

# Marks a file as icekit's history, in SQLite's own header ("iceh").
_APPLICATION = 0x69636568
_TYPES = {"string": "TEXT", "long": "INTEGER", "timestamp": "INTEGER"}
_BUSY_SECONDS = 15.0
#: Tables asked for in one query; SQLite takes 999 variables or more.
_ASKED = 500


class SqliteStore(Store):
    """One table, ``health``; a column that a later icekit adds is added to the file, and is NULL in older rows.

    Times are milliseconds since 1970. Each call is one transaction on a connection of its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    def append(self, records: Sequence[Health]) -> int:
        """Append what is not there yet, in one transaction."""
        if not records:
            return 0

        def work(connection: sqlite3.Connection) -> int:
            self._make(connection)
            names = list(COLUMNS)
            marks = ", ".join("?" * len(names))
            rows = [[_stored(record)[name] for name in names] for record in records]
            before = connection.total_changes
            connection.executemany(f"INSERT OR IGNORE INTO health ({', '.join(names)}) VALUES ({marks})", rows)
            return connection.total_changes - before

        return self._with(work, writing=True)

    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first."""
        if not self.path.exists():
            return {}

        def work(connection: sqlite3.Connection) -> dict[str, list[Health]]:
            found: dict[str, list[Health]] = {}
            for start in range(0, len(tables), _ASKED):
                asked = tables[start : start + _ASKED]
                ranked = (
                    "SELECT *, row_number() OVER (PARTITION BY table_name ORDER BY observed_at DESC) AS newest FROM health "
                    f"WHERE table_name IN ({', '.join('?' * len(asked))}) AND run_id <> ?"
                )
                query = f"SELECT * FROM ({ranked}) WHERE newest <= ? ORDER BY table_name, observed_at"
                for row in connection.execute(query, (*asked, other_than, count)):
                    kept = dict(row)
                    record = Health.of_plain(kept | {"observed_at_ms": kept["observed_at"]})
                    found.setdefault(record.table_name, []).append(record)
            return found

        return self._with(work, writing=False)

    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Lately]:
        """The last run of each table, and one figure of the newest."""
        last = {name: runs[-1] for name, runs in self.last(tables, 1, other_than=other_than).items()}
        if not last:
            return {}

        def work(connection: sqlite3.Connection) -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            if DRAWN not in {row[1] for row in connection.execute("PRAGMA table_info(health)")}:
                return found
            query = (
                f"SELECT {DRAWN} FROM (SELECT observed_at, {DRAWN} FROM health WHERE table_name = ? AND run_id <> ? "
                f"ORDER BY observed_at DESC LIMIT ?) WHERE {DRAWN} IS NOT NULL ORDER BY observed_at"
            )
            for name in last:
                found[name] = [row[0] for row in connection.execute(query, (name, other_than, count))]
            return found

        points = self._with(work, writing=False)
        return {name: Lately(run, tuple(points.get(name, ()))) for name, run in last.items()}

    def _make(self, connection: sqlite3.Connection) -> None:
        there = {row[1] for row in connection.execute("PRAGMA table_info(health)")}
        if not there:
            columns = ", ".join(f"{n} {_TYPES[kind]}{' NOT NULL' if n in REQUIRED else ''}" for n, (kind, _) in COLUMNS.items())
            connection.execute(f"CREATE TABLE health ({columns}, PRIMARY KEY (table_name, run_id)) WITHOUT ROWID")
            connection.execute("CREATE INDEX health_over_time ON health (table_name, observed_at)")
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            return
        for name, (kind, _) in COLUMNS.items():
            if name not in there:
                connection.execute(f"ALTER TABLE health ADD COLUMN {name} {_TYPES[kind]}")

    def _with(self, work: Callable[[sqlite3.Connection], T], *, writing: bool) -> T:
        try:
            with self._connected(writing=writing) as connection:
                return work(connection)
        except (sqlite3.Error, OSError) as error:
            raise HistoryUnusable(
                f"The history {self.path} cannot be {'written' if writing else 'read'}: {error}; give another file with --history."
            ) from None

    @contextlib.contextmanager
    def _connected(self, *, writing: bool) -> Iterator[sqlite3.Connection]:
        if writing:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if not is_sqlite(self.path):
            raise sqlite3.DatabaseError("file is not a database")
        connection: Any = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            (marked,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if marked != _APPLICATION and tables:
                raise sqlite3.DatabaseError("it is a database of something else")
            connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise


def _stored(record: Health) -> dict[str, Any]:
    return record.plain() | {"observed_at": record.observed_at_ms}
