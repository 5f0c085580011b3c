"""The ledger as an Iceberg table of the same catalog, for schedulers on several machines.

How a claim is exclusive. A claim is one row, and is put by one MERGE that either inserts it
or replaces exactly the row that was read before (compared by its whole document). As the
MERGE has a WHEN MATCHED clause it is planned copy-on-write as an overwrite, and with
serializable isolation Iceberg refuses its commit if any file that could hold the claim's
row was added or taken away since the snapshot that it read
(``OverwriteFiles.validateNoConflictingData`` and ``validateNoConflictingDeletes``). An
insert-only MERGE is planned as an append, which nothing refuses. Of two that read the same
snapshot one commits; the other is refused, reads again, and finds who was faster. All this
rests on the catalog swapping metadata atomically, which every Iceberg catalog promises.
Measured with four sessions at once: in 12 rounds 36 commits were refused and 12 claims made;
in 4 rounds of insert-only MERGEs none was refused, and each left four claims.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from icekit.catalog.lake import Lake
from icekit.compact.claims import Claim, claim_over, now_ms, renewed
from icekit.compact.ledger_api import Ledger
from icekit.compact.records import ActionRecord, RunRecord, from_json, key_of, latest, to_json
from icekit.errors import IcekitError, LedgerUnusable
from icekit.facts.bridge import explain
from icekit.owner import Owner
from icekit.secrets import scrub
from icekit.sql import call, display_name, identifier, literal

T = TypeVar("T")
Row = tuple[str, str, str, str, str]  # kind, key, table_name, run_id, document

COLUMNS = ("kind", "key", "table_name", "run_id", "document", "updated_ms")
_VERSION_KEY, _VERSION = "icekit.ledger-version", 1
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
_ROWS_PER_MERGE = 200
_COMMITS_PER_TIDYING = 100

# Another commit came first, or nobody can say: read again and decide. Connect and py4j bring only text.
_CONFLICT = re.compile(
    r"iceberg\.exceptions\.(?:ValidationException|CommitFailedException|CommitStateUnknownException)|SQLITE_BUSY|database is locked"
)
_NOT_THERE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|NoSuchTableException|NoSuchNamespaceException")
_ALREADY_THERE = re.compile(r"ALREADY_EXISTS|AlreadyExistsException")


class _Overtaken(Exception):
    """The row read back is not the one just put: another commit came between."""


class TableLedger(Ledger):
    """A ledger in ``<catalog>.<namespace>.ledger``, made by the first write; threads may share it.

    A write takes about a second, as it is a commit;
    clocks of the machines that use it must agree to well within a lease.
    """

    def __init__(self, lake: Lake, namespace: str = "icekit", *, clock: Callable[[], int] = now_ms) -> None:
        """``clock`` gives milliseconds since 1970."""
        self._lake = lake
        self._name = lake.sql_name(lake.identifier(f"{namespace}.ledger"))
        self._table = identifier(*self._name)
        self._clock = clock
        self._is_made = False
        self._commits = 0
        self._counting = threading.Lock()

    def __repr__(self) -> str:
        return f"TableLedger({display_name(self._name)})"

    def claim(self, table: str, run_id: str) -> None:
        """Take a table by one MERGE that replaces what was read, or nothing."""

        def attempt() -> None:
            there = self._claim_on(table)
            self._put_claim(there, claim_over(there, table, run_id, self._clock()), insert=True)

        self._patiently(attempt, writing=True)

    def heartbeat(self, table: str, run_id: str) -> None:
        """Renew the lease, or raise ClaimLost."""

        def attempt() -> None:
            there = self._claim_on(table)
            # It brings back no claim that was taken over and let go meanwhile.
            self._put_claim(there, renewed(there, table, run_id, self._clock()), insert=False)

        self._patiently(attempt, writing=True)

    def release(self, table: str, run_id: str) -> None:
        """Delete the claim that this process holds for this run."""

        def attempt() -> None:
            there = self._claim_on(table)
            if there is not None and there.is_held_by(run_id, Owner.here()):
                self._commit(
                    f"DELETE FROM {self._table} WHERE kind = 'claim' AND key = {_text(table)} AND document = {_text(there.to_json())}"
                )

        self._patiently(attempt)

    def claims(self) -> tuple[Claim, ...]:
        """Every claim on record."""
        return tuple(Claim.from_json(document) for document in self._read("kind = 'claim'", "table_name"))

    def save_run(self, run: RunRecord) -> None:
        """Write a run; once it has ended the table is tidied."""
        self._upsert([("run", key_of(run), run.table, run.run_id, to_json(run))])
        if run.ended_ms is not None:
            self.tidy()

    def save_actions(self, actions: Iterable[ActionRecord]) -> None:
        """Write actions, 200 a commit; those of a plan written together stay in one file."""
        rows = [("action", key_of(action), action.table, action.run_id, to_json(action)) for action in actions]
        for start in range(0, len(rows), _ROWS_PER_MERGE):
            self._upsert(rows[start : start + _ROWS_PER_MERGE])

    def run(self, run_id: str) -> RunRecord | None:
        """A run, or None."""
        found = self._read(f"kind = 'run' AND run_id = {_text(run_id)}")
        return from_json(RunRecord, found[0]) if found else None

    def last_run(self, table: str, statuses: Collection[str] | None = None) -> RunRecord | None:
        """The run over a table that was started last."""
        found = [from_json(RunRecord, d) for d in self._read(f"kind = 'run' AND table_name = {_text(table)}")]
        fitting = [run for run in found if statuses is None or run.status in statuses]
        return max(fitting, key=lambda run: run.started_ms, default=None)

    def actions(self, run_id: str) -> tuple[ActionRecord, ...]:
        """The newest attempt at each action of a run."""
        return latest(from_json(ActionRecord, d) for d in self._read(f"kind = 'action' AND run_id = {_text(run_id)}"))

    def outcomes(self, table: str | None = None, limit: int = 200) -> tuple[ActionRecord, ...]:
        """Done and measured actions, newest first."""
        of_table = "" if table is None else f" AND table_name = {_text(table)}"
        # The column of the JSON, which is a string: a null in it is NULL.
        done = "get_json_object(document, '$.status') = 'done' AND get_json_object(document, '$.actual') IS NOT NULL".replace("$", _DOLLAR)
        ended = f"CAST(get_json_object(document, '{_DOLLAR}.ended_ms') AS BIGINT)"
        found = self._read(f"kind = 'action' AND {done}{of_table}", f"{ended} DESC NULLS LAST, updated_ms DESC LIMIT {limit:d}")
        return tuple(from_json(ActionRecord, document) for document in found)

    def tidy(self) -> None:
        """Combine the table's small files and expire its snapshots, if nobody is in the way."""
        catalog, table = self._name[0], display_name(self._name[1:])
        for statement in (
            # Claims are left alone: they are a file each, replaced by the next heartbeat.
            call(catalog, "rewrite_data_files", table=table, where="kind <> 'claim'"),
            call(catalog, "rewrite_manifests", table=table),
            call(catalog, "expire_snapshots", table=table),
        ):
            # A run does not fail because its ledger could not be tidied; the next one does it.
            with contextlib.suppress(Exception):
                self._sql(statement)

    def _claim_on(self, table: str) -> Claim | None:
        found = self._select(f"kind = 'claim' AND key = {_text(table)}", "updated_ms")
        return Claim.from_json(found[-1]) if found else None

    def _put_claim(self, there: Claim | None, claim: Claim, *, insert: bool) -> None:
        # The WHEN MATCHED clause is there also when nothing is to be replaced: without it the MERGE is an append.
        matched = f"WHEN MATCHED AND t.document = {_text(there.to_json() if there else '')} THEN UPDATE SET *"
        row = ("claim", claim.table, claim.table, claim.run_id, claim.to_json())
        self._merge([row], f"{matched} {'WHEN NOT MATCHED THEN INSERT *' if insert else ''}")
        if self._claim_on(claim.table) != claim:
            raise _Overtaken

    def _upsert(self, rows: Sequence[Row]) -> None:
        self._patiently(lambda: self._merge(rows, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"), writing=True)

    def _merge(self, rows: Sequence[Row], clauses: str) -> None:
        now = self._clock()
        values = ", ".join(f"({', '.join(map(_text, row))}, CAST({now} AS BIGINT))" for row in rows)
        keys = ", ".join(_text(key) for key in sorted({row[1] for row in rows}))
        kinds = ", ".join(_text(kind) for kind in sorted({row[0] for row in rows}))
        self._commit(
            f"MERGE INTO {self._table} t USING (SELECT * FROM VALUES {values} AS s({', '.join(COLUMNS)})) s "
            # The literals are what files are chosen by, and what a conflict is judged by.
            f"ON t.kind = s.kind AND t.key = s.key AND t.kind IN ({kinds}) AND t.key IN ({keys}) {clauses}"
        )

    def _read(self, condition: str, order: str = "updated_ms") -> list[str]:
        return self._patiently(lambda: self._select(condition, order))

    def _select(self, condition: str, order: str) -> list[str]:
        if not self._is_there():
            return []
        try:
            # The session may hold an older version of the table.
            self._sql(f"REFRESH TABLE {self._table}")
            rows = self._sql(f"SELECT document FROM {self._table} WHERE {condition} ORDER BY {order}")
        except Exception as error:
            if _NOT_THERE.search(str(error)):
                return []
            raise
        return [str(row[0]) for row in rows]

    def _commit(self, statement: str) -> None:
        self._sql(statement)
        with self._counting:
            self._commits += 1
            is_due = self._commits % _COMMITS_PER_TIDYING == 0
        if is_due:
            self.tidy()

    def _sql(self, statement: str) -> list[Any]:
        return list(self._lake.spark.sql(statement).collect())

    def _make(self) -> None:
        """Make the table unless it is there; refuse one that is not a ledger, or a newer one."""
        if not self._is_there():
            properties = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in _PROPERTIES.items())
            try:
                self._sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(*self._name[:-1])}")
                self._sql(
                    f"CREATE TABLE IF NOT EXISTS {self._table} (kind string, key string, table_name string, run_id string, document string, "
                    # Claims and records apart, so that saving an action is no conflict for a claim.
                    f"updated_ms bigint) USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ({properties})"
                )
            except Exception as raced:
                if not _ALREADY_THERE.search(str(raced)):
                    raise
        found = self._sql(f"SHOW TBLPROPERTIES {self._table}")
        version = {row[0]: row[1] for row in found}.get(_VERSION_KEY)
        name = display_name(self._name)
        if version is None:
            raise LedgerUnusable(f"{name} is there and is not icekit's ledger; rename it, or keep the ledger in a file (ICEKIT_LEDGER).")
        if int(version) > _VERSION:
            raise LedgerUnusable(
                f"The ledger {name} was made by a newer icekit (version {version}, and this one knows {_VERSION}); upgrade icekit."
            )
        self._is_made = True

    def _is_there(self) -> bool:
        # Asked first, as Spark logs a statement that fails.
        return self._is_made or self._lake.spark.catalog.tableExists(self._table)

    def _patiently(self, work: Callable[[], T], *, writing: bool = False) -> T:
        def attempt() -> T:
            if writing and not self._is_made:
                self._make()
            return work()

        retrying = Retrying(
            retry=retry_if_exception(_is_conflict),
            stop=stop_after_delay(_PATIENCE_SECONDS),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
        )
        try:
            return retrying(attempt)
        except IcekitError:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> IcekitError:
        known = explain(error, self._name)
        text = scrub(str(error))
        if isinstance(known, IcekitError):
            said = str(known)
        elif _is_conflict(error):
            said = "other commits came first for a minute; try again."
        else:
            said = f"{text.strip().splitlines()[0] if text.strip() else type(error).__name__}."
        return LedgerUnusable(
            f"The ledger {display_name(self._name)} cannot be used: {said} It needs rights to create and write that table; "
            "without them keep the ledger in a file (ICEKIT_LEDGER).",
            detail=text,
        )


_DOLLAR = "\\u0024"


def _text(value: str) -> str:
    """A string literal that Spark's variable substitution (``${…}``) leaves alone."""
    return literal(value).replace("$", _DOLLAR)


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, _Overtaken) or (not isinstance(error, IcekitError) and _CONFLICT.search(str(error)) is not None)
