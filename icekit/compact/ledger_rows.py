"""Keep the rows of a ledger in an Iceberg table: make it, merge, read and tidy it, patiently where others commit too."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from icekit.catalog.lake import Lake
from icekit.engine.errors import explain, reason
from icekit.errors import IcekitError, LedgerUnusable
from icekit.patience import patiently
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier, literal

T = TypeVar("T")
Row = tuple[str, str, str, str, str]  # kind, key, table_name, run_id, document

COLUMNS = ("kind", "key", "table_name", "run_id", "document", "updated_ms")
# Version 2 keeps claims by the table's UUID; version 1 kept them by its name.
_VERSION_KEY, _VERSION = "icekit.ledger-version", 2
_PROPERTIES = {
    "format-version": "2",
    _VERSION_KEY: str(_VERSION),
    # What a claim's exclusiveness rests on; both are Iceberg's defaults, which a catalog may override.
    **{f"write.{statement}.mode": "copy-on-write" for statement in ("merge", "update", "delete")},
    **{f"write.{statement}.isolation-level": "serializable" for statement in ("merge", "update", "delete")},
    # By whole keys: those cut to 16 characters make the claims of other tables look like conflicts.
    "write.metadata.metrics.column.key": "full",
    # A heartbeat every 20 seconds is a commit; nobody travels back in them.
    "history.expire.max-snapshot-age-ms": str(10 * 60 * 1000),
    "history.expire.min-snapshots-to-keep": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
_PATIENCE_SECONDS = 60.0  # less than a lease
_COMMITS_PER_TIDYING = 100

# Another commit came first, or nobody can say: read again and decide. Connect and py4j bring only text.
_CONFLICT = re.compile(
    r"iceberg\.exceptions\.(?:ValidationException|CommitFailedException|CommitStateUnknownException)|SQLITE_BUSY|database is locked"
)
_NOT_THERE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|NoSuchTableException|NoSuchNamespaceException")
_ALREADY_THERE = re.compile(r"ALREADY_EXISTS|AlreadyExistsException")
#: A dollar sign in a string literal, of which Spark's variable substitution makes nothing.
DOLLAR = "\\u0024"


class Overtaken(Exception):
    """The row read back is not the one just put: another commit came between."""


class Rows:
    """The rows of one ledger (named with its catalog); threads may share them."""

    def __init__(self, lake: Lake, name: Identifier, clock: Callable[[], int]) -> None:
        """``clock`` gives milliseconds since 1970."""
        self.name = name
        self.table = identifier(*name)
        self._lake = lake
        self._clock = clock
        self._is_made = False
        self._commits = 0
        self._counting = threading.Lock()

    def read(self, condition: str, order: str = "updated_ms") -> list[str]:
        """The documents under a condition; none before the first write."""
        return self.patiently(lambda: self.select(condition, order))

    def select(self, condition: str, order: str) -> list[str]:
        """As :meth:`read`, once: for what is itself tried again."""
        if not self._is_there():
            return []
        try:
            # The session may hold an older version of the table.
            self._sql(f"REFRESH TABLE {self.table}")
            rows = self._sql(f"SELECT document FROM {self.table} WHERE {condition} ORDER BY {order}")
        except Exception as error:
            if _NOT_THERE.search(str(error)):
                return []
            raise
        return [str(row[0]) for row in rows]

    def upsert(self, rows: Sequence[Row]) -> None:
        """Put rows in the place of those with their keys, in one commit."""
        self.patiently(lambda: self.merge(rows, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"), writing=True)

    def merge(self, rows: Sequence[Row], clauses: str) -> None:
        """Put rows by one MERGE with these clauses, once."""
        now = self._clock()
        values = ", ".join(f"({', '.join(map(text, row))}, CAST({now} AS BIGINT))" for row in rows)
        keys = ", ".join(text(key) for key in sorted({row[1] for row in rows}))
        kinds = ", ".join(text(kind) for kind in sorted({row[0] for row in rows}))
        self.commit(
            f"MERGE INTO {self.table} t USING (SELECT * FROM VALUES {values} AS s({', '.join(COLUMNS)})) s "
            # The literals are what files are chosen by, and what a conflict is judged by.
            f"ON t.kind = s.kind AND t.key = s.key AND t.kind IN ({kinds}) AND t.key IN ({keys}) {clauses}"
        )

    def commit(self, statement: str) -> None:
        """Run a statement that makes a commit; every hundredth is followed by :meth:`tidy`."""
        self._sql(statement)
        with self._counting:
            self._commits += 1
            is_due = self._commits % _COMMITS_PER_TIDYING == 0
        if is_due:
            self.tidy()

    def tidy(self) -> None:
        """Combine the table's small files and expire its snapshots, if nobody is in the way."""
        catalog, table = self.name[0], display_name(self.name[1:])
        for statement in (
            # Claims are left alone: they are a file each, replaced by the next heartbeat.
            call(catalog, "rewrite_data_files", table=table, where="kind <> 'claim'"),
            call(catalog, "rewrite_manifests", table=table),
            call(catalog, "expire_snapshots", table=table),
        ):
            # A run does not fail because its ledger could not be tidied; the next one does it.
            with contextlib.suppress(Exception):
                self._sql(statement)

    def patiently(self, work: Callable[[], T], *, writing: bool = False) -> T:
        """Do work again while other commits come first, for a minute; ``writing`` makes the table before. Raises LedgerUnusable."""

        def attempt() -> T:
            if writing and not self._is_made:
                self._make()
            return work()

        try:
            return patiently(attempt, _is_conflict, seconds=_PATIENCE_SECONDS, first_wait=0.1, longest_wait=5)
        except IcekitError:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _make(self) -> None:
        """Make the table unless it is there; refuse one that is not a ledger, or a newer one."""
        if not self._is_there():
            properties = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in _PROPERTIES.items())
            try:
                self._sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(*self.name[:-1])}")
                self._sql(
                    f"CREATE TABLE IF NOT EXISTS {self.table} (kind string, key string, table_name string, run_id string, document string, "
                    # Claims and records apart, so that saving an action is no conflict for a claim.
                    f"updated_ms bigint) USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ({properties})"
                )
            except Exception as raced:
                if not _ALREADY_THERE.search(str(raced)):
                    raise
        found = self._sql(f"SHOW TBLPROPERTIES {self.table}")
        version = {row[0]: row[1] for row in found}.get(_VERSION_KEY)
        name = display_name(self.name)
        if version is None:
            raise LedgerUnusable(f"{name} is there and is not icekit's ledger; rename it, or keep the ledger in a file (ICEKIT_LEDGER).")
        if int(version) > _VERSION:
            raise LedgerUnusable(
                f"The ledger {name} was made by a newer icekit (version {version}, and this one knows {_VERSION}); upgrade icekit."
            )
        if int(version) < _VERSION:
            # No earlier icekit may claim by name beside it.
            self._sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ({literal(_VERSION_KEY)} = {literal(str(_VERSION))})")
        self._is_made = True

    def _is_there(self) -> bool:
        # Asked first, as Spark logs a statement that fails.
        return self._is_made or self._lake.spark.catalog.tableExists(self.table)

    def _sql(self, statement: str) -> list[Any]:
        return list(self._lake.spark.sql(statement).collect())

    def _unusable(self, error: Exception) -> IcekitError:
        known = explain(error, self.name)
        in_full = scrub(str(error))
        if isinstance(known, IcekitError):
            said = str(known)
        elif _is_conflict(error):
            said = "other commits came first for a minute; try again."
        else:
            said = f"{reason(error)}."
        return LedgerUnusable(
            f"The ledger {display_name(self.name)} cannot be used: {said} It needs rights to create and write that table; "
            "without them keep the ledger in a file (ICEKIT_LEDGER).",
            detail=in_full,
        )


def text(value: str) -> str:
    """A string literal that Spark's variable substitution (``${…}``) leaves alone."""
    return literal(value).replace("$", DOLLAR)


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, Overtaken) or (not isinstance(error, IcekitError) and _CONFLICT.search(str(error)) is not None)
