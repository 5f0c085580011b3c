"""Remember what passes did, in a small SQLite file: each write is one transaction, so a kill loses at most the last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from icekit.compact.ledger import default_path
from icekit.errors import LedgerUnusable
from icekit.schedule.model import Policy
from icekit.schedule.triggers import Seen
from icekit.secrets import scrub_data

# Marks a file as this, in SQLite's own header ("icep").
_APPLICATION = 0x69636570
_TABLES = (
    "CREATE TABLE tables (name TEXT PRIMARY KEY, seen TEXT, last TEXT, begun_ms INTEGER)",
    "CREATE TABLE told (receiver TEXT, name TEXT, document TEXT NOT NULL, PRIMARY KEY (receiver, name))",
)


def state_path(policy: Policy) -> Path:
    """The policy's ``state``, else a file of its own beside the default ledger: by its name and its output's folder."""
    if policy.state is not None:
        return policy.state
    ledger = default_path()
    folder = Path(ledger).parent if str(ledger) != "table" else Path.home() / ".local" / "state" / "icekit"
    mark = hashlib.sha256(str(policy.output).encode()).hexdigest()[:8]
    return folder / f"{policy.name}-{mark}.passes.db"


class State:
    """What is remembered of each table and of what each receiver was told.

    No file is an empty memory: every table is then at its first pass. Reading makes no file. Raises
    :class:`~icekit.errors.LedgerUnusable` for one that cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def seen(self, table: str) -> Seen | None:
        """What the last finished pass of a table saw."""
        found = self._one("SELECT seen FROM tables WHERE name = ?", table)
        return Seen(**json.loads(found)) if found else None

    def last(self, table: str) -> dict[str, Any] | None:
        """The result of a table's last report, as :func:`keep` got it."""
        found = self._one("SELECT last FROM tables WHERE name = ?", table)
        return json.loads(found) if found else None

    def begun_ms(self, table: str) -> int | None:
        """When a pass began to change a table and did not end, in milliseconds since 1970."""
        found = self._one("SELECT begun_ms FROM tables WHERE name = ?", table)
        return None if found is None else int(found)

    def begin(self, table: str, now_ms: int) -> None:
        """Note, before anything is run on a table, that what its ledger holds from now on is this policy's."""
        self._write(
            "INSERT INTO tables (name, begun_ms) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET begun_ms = coalesce(begun_ms, excluded.begun_ms)",
            table,
            now_ms,
        )

    def ended(self, table: str) -> None:
        """Note that nothing of this policy's is left unfinished on a table."""
        self._write("UPDATE tables SET begun_ms = NULL WHERE name = ?", table)

    def keep(self, table: str, last: dict[str, Any], seen: Seen | None = None) -> None:
        """Keep a table's result; ``seen`` only when all that was due is done, so that it counts as passed."""
        document = json.dumps(scrub_data(last))
        self._write(
            "INSERT INTO tables (name, seen, last) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET seen = coalesce(excluded.seen, seen), last = excluded.last",
            table,
            json.dumps(asdict(seen)) if seen else None,
            document,
        )

    def told(self, receiver: str) -> dict[str, dict[str, Any]]:
        """What a receiver was told of each table."""
        rows = self._all("SELECT name, document FROM told WHERE receiver = ?", receiver)
        return {name: json.loads(document) for name, document in rows}

    def tell(self, receiver: str, told: dict[str, dict[str, Any] | None]) -> None:
        """Note what a receiver was told; None forgets a table."""
        with self._transaction() as db:
            for name, document in told.items():
                if document is None:
                    db.execute("DELETE FROM told WHERE receiver = ? AND name = ?", [receiver, name])
                else:
                    db.execute("INSERT OR REPLACE INTO told VALUES (?, ?, ?)", [receiver, name, json.dumps(scrub_data(document))])

    def _one(self, query: str, *given: Any) -> Any:
        rows = self._all(query, *given)
        return rows[0][0] if rows else None

    def _all(self, query: str, *given: Any) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        # Read-only, so that a dry run may be somebody's who may not write it.
        with self._open(f"file:{quote(str(self.path))}?mode=ro") as db:
            # A pass that was killed in its first write leaves an empty file.
            return list(db.execute(query, given)) if _kind_of(db) else []

    def _write(self, statement: str, *given: Any) -> None:
        with self._transaction() as db:
            db.execute(statement, given)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._open(f"file:{quote(str(self.path))}") as db:
            db.execute("BEGIN IMMEDIATE")
            if not _kind_of(db):
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                for table in _TABLES:
                    db.execute(table)
            yield db
            db.execute("COMMIT")

    @contextlib.contextmanager
    def _open(self, uri: str) -> Iterator[sqlite3.Connection]:
        try:
            if not uri.endswith("mode=ro"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=15, isolation_level=None)) as db:
                if _kind_of(db) not in {0, _APPLICATION}:
                    raise sqlite3.DatabaseError("it holds something else")
                yield db
        except (sqlite3.Error, OSError) as error:
            raise LedgerUnusable(
                f"The record of passes {self.path} cannot be used ({error}); make it writable, or move it away: every table is then at its first pass."
            ) from error


def _kind_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA application_id").fetchone()[0])
