"""Record in SQLite what has been done, so that a killed run can resume."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from icekit.common.errors import ClaimLost, IcekitError, LedgerUnusable, Status
from icekit.common.owner import Owner
from icekit.common.secrets import scrub
from icekit.common.sqlite import NotOurs, OtherSchema, SqliteFile
from icekit.maintain.record.claims import (
    HEARTBEAT,
    LEASE,
    ActionRecord,
    Claim,
    RunRecord,
    T,
    from_json,
    latest_attempts,
    now_ms,
    to_json,
)


def default_ledger_path() -> Path:
    """``ICEKIT_LEDGER``, else ``icekit/ledger.db`` under ``XDG_STATE_HOME`` or
    ``~/.local/state``.
    """
    path_variable = os.environ.get("ICEKIT_LEDGER")
    if path_variable:
        return Path(path_variable).expanduser()
    state_folder = os.environ.get("XDG_STATE_HOME")
    return (
        (Path(state_folder) if state_folder else Path.home() / ".local" / "state")
        / "icekit"
        / "ledger.db"
    )


def open_ledger(ledger: Ledger | str | None) -> Ledger:
    """The given ledger, or the one in a file: that of :func:`default_ledger_path` if None or
    empty.
    """
    if isinstance(ledger, Ledger):
        return ledger
    return Ledger(Path(ledger).expanduser() if ledger else None)


_TABLES = (
    "CREATE TABLE claims (key TEXT PRIMARY KEY, document TEXT NOT NULL)",
    "CREATE TABLE runs (run_id TEXT PRIMARY KEY, table_name TEXT NOT NULL, status TEXT NOT NULL, "
    "started_ms INTEGER NOT NULL, document TEXT NOT NULL)",
    "CREATE TABLE actions (key TEXT PRIMARY KEY, run_id TEXT NOT NULL, table_name TEXT NOT NULL, "
    "is_outcome INTEGER NOT NULL, ended_ms INTEGER, document TEXT NOT NULL)",
    "CREATE INDEX runs_of_table ON runs (table_name, started_ms)",
    "CREATE INDEX actions_of_run ON actions (run_id)",
    "CREATE INDEX outcomes ON actions (is_outcome, ended_ms)",
)


class Ledger(SqliteFile):
    """The record of runs, of the attempts at their actions, and of who holds which table: a file
    for the processes of one machine.

    Tables are named ``catalog.db.table`` as :func:`icekit.common.sql.display_name` does. Any method
    raises :class:`~icekit.common.errors.LedgerUnusable` when the ledger cannot be read or written.
    Every known secret in the texts is masked before they are saved. A ledger that nothing was ever
    written to is empty, and reading it creates nothing.
    """

    APPLICATION_ID = 0x69636564  # "iced"
    SCHEMA_VERSION = 5
    IS_WAL = True
    # The file names tables and contains their SQL: only this user may read it.
    FOLDER_MODE = 0o700

    def __init__(
        self, path: Path | str | None = None, *, clock: Callable[[], int] = now_ms
    ) -> None:
        """``path`` is :func:`default_ledger_path` if None; ``clock`` gives milliseconds since
        1970.
        """
        self.path = Path(path) if path is not None else default_ledger_path()
        self._clock = clock

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take a table for a run, or raise :class:`~icekit.common.errors.TableClaimed`; of two
        processes one comes first.

        A table is claimed by its own ``uuid``, whatever its name; a table without one, by its name.
        A dead claim is taken over: one whose lease has ended, or whose process on this host
        no longer exists. A process may claim again a table that it holds for the same run.
        """

        def work(db: sqlite3.Connection) -> None:
            now = self._clock()
            claims = _claims_on(db, *{uuid or table, table})
            for claim in claims:
                if not claim.is_own(run_id) and not claim.is_dead(now):
                    raise claim.refusal(table, now)
            db.executemany(
                "DELETE FROM claims WHERE key = ?", [[old_claim.key] for old_claim in claims]
            )
            new_claim = Claim(table, run_id, Owner.this_process(), now, now, uuid)
            own_claim_times = [
                c.claimed_ms for c in claims if c.key == new_claim.key and c.is_own(run_id)
            ]
            _put_claim(db, replace(new_claim, claimed_ms=min(own_claim_times, default=now)))

        self.write(work)

    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease, also one that has ended, if no other run took the table over; raises
        :class:`~icekit.common.errors.ClaimLost` otherwise.
        """

        def work(db: sqlite3.Connection) -> None:
            claims = _claims_on(db, uuid or table)
            for claim in claims:
                if claim.is_own(run_id):
                    return _put_claim(db, replace(claim, renewed_ms=self._clock()))
            owner_texts = [f"run {claim.run_id} on {claim.owner.host}" for claim in claims]
            owner_text = owner_texts[0] if owner_texts else "another run, which has ended,"
            raise ClaimLost(
                f"Run {run_id} has lost its claim on {table}: {owner_text} took the table over; let "
                "that run finish, then continue with --resume."
            )

        self.write(work)

    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Release a table that this process holds for this run; the claim of another process or run
        stays.
        """

        def work(db: sqlite3.Connection) -> None:
            if any(claim.is_own(run_id) for claim in _claims_on(db, uuid or table)):
                db.execute("DELETE FROM claims WHERE key = ?", [uuid or table])

        self.write(work)

    @contextlib.contextmanager
    def hold(
        self,
        table: str,
        run_id: str,
        uuid: str | None = None,
        *,
        interval_seconds: float = HEARTBEAT,
        lease_seconds: float = LEASE,
    ) -> Iterator[Callable[[], bool]]:
        """Hold a table (of this UUID, if it has one) for a run: claim it, send a heartbeat every
        ``interval_seconds``, release it.

        Raises :class:`~icekit.common.errors.TableClaimed` at once if another run holds the table.
        The code inside asks before each action whether the claim is lost: another run took the
        table over, or no heartbeat succeeded for ``lease_seconds``.
        """
        # Read before the claim is made, because its lease begins after this moment.
        renewed_at = time.monotonic()
        self.claim(table, run_id, uuid)
        loss_event = threading.Event()
        end_event = threading.Event()

        def send_heartbeats() -> None:
            nonlocal renewed_at
            while not end_event.wait(interval_seconds):
                sent_at = time.monotonic()
                try:
                    self.heartbeat(table, run_id, uuid)
                except ClaimLost:
                    loss_event.set()
                    break
                except Exception:
                    # The disk may recover before the lease ends.
                    continue
                renewed_at = sent_at

        heartbeat_thread = threading.Thread(
            target=send_heartbeats, name=f"icekit-claim-{run_id}", daemon=True
        )
        heartbeat_thread.start()
        try:
            # By the clock, because a heartbeat may hang instead of failing.
            yield lambda: loss_event.is_set() or time.monotonic() - renewed_at >= lease_seconds
        finally:
            end_event.set()
            # A heartbeat in progress would get in the way of the release; a heartbeat after the
            # release does not restore the claim.
            heartbeat_thread.join(timeout=HEARTBEAT)
            # A claim that cannot be released expires by itself, and the error from inside says
            # more.
            with contextlib.suppress(IcekitError):
                self.release(table, run_id, uuid)

    def claims(self) -> tuple[Claim, ...]:
        """Every claim on record, by table, including dead ones."""
        claims = self._records(Claim, "SELECT document FROM claims")
        return tuple(sorted(claims, key=lambda claim: claim.table))

    def save_run(self, run: RunRecord) -> None:
        """Write a run; replaces its earlier record."""
        self._save_row("runs", run.run_id, run.table, run.status, run.started_ms, to_json(run))

    def save_action(self, action: ActionRecord) -> None:
        """Write an action; replaces its record with the same starting snapshot."""
        # A replaced row gets the highest rowid, so rows are in the order of writing.
        row_key = json.dumps(
            [action.table, action.run_id, action.action_id, action.starting_snapshot_id]
        )
        self._save_row(
            "actions",
            row_key,
            action.run_id,
            action.table,
            action.is_outcome,
            action.ended_ms,
            to_json(action),
        )

    def _save_row(self, ledger_table: str, *row: object) -> None:
        placeholders_sql = ", ".join("?" * len(row))
        insert_sql = f"INSERT OR REPLACE INTO {ledger_table} VALUES ({placeholders_sql})"
        self.write(lambda db: db.execute(insert_sql, row))

    def run(self, run_id: str) -> RunRecord | None:
        """A run, or None."""
        return self._run_where("run_id = ?", run_id)

    def last_run(self, table: str) -> RunRecord | None:
        """The last started run on a table."""
        return self._run_where("table_name = ? ORDER BY started_ms DESC, rowid DESC LIMIT 1", table)

    def _run_where(self, condition_sql: str, parameter: str) -> RunRecord | None:
        runs = self._records(
            RunRecord, f"SELECT document FROM runs WHERE {condition_sql}", parameter
        )
        return runs[0] if runs else None

    def disproved_runs(self) -> tuple[RunRecord, ...]:
        """Every run whose proof failed and that no person has cleared, oldest first."""
        return self._records(
            RunRecord,
            "SELECT document FROM runs WHERE status = ? ORDER BY started_ms",
            Status.DISPROVED,
        )

    def unproved_runs(self) -> tuple[RunRecord, ...]:
        """Every run of which an action could not be proved, by its newest attempt, and that no
        person has cleared, oldest first.
        """
        runs = self._records(
            RunRecord,
            "SELECT document FROM runs WHERE status NOT IN ('done', 'cleared', ?) AND EXISTS "
            "(SELECT * FROM actions WHERE actions.run_id = runs.run_id AND "
            "json_extract(actions.document, '$.status') = 'unproved') ORDER BY started_ms",
            Status.DISPROVED,
        )
        return tuple(
            run
            for run in runs
            if any(action.status is Status.UNPROVED for action in self.actions(run.run_id))
        )

    def actions(self, run_id: str) -> tuple[ActionRecord, ...]:
        """The newest attempt at each action of a run, by ordinal."""
        return latest_attempts(
            self._records(
                ActionRecord,
                "SELECT document FROM actions WHERE run_id = ? ORDER BY rowid",
                run_id,
            )
        )

    def outcomes(self, table: str | None = None, max_count: int = 200) -> tuple[ActionRecord, ...]:
        """Done and measured actions of one table, or of all tables, that ended last; newest
        first.
        """
        return self._records(
            ActionRecord,
            "SELECT document FROM actions WHERE is_outcome AND (?1 IS NULL OR table_name = ?1) "
            "ORDER BY ended_ms DESC, rowid DESC LIMIT ?2",
            table,
            max_count,
        )

    def _records(
        self, record_type: type[T], query_sql: str, *parameters: str | int | None
    ) -> tuple[T, ...]:
        document_rows: list[tuple[str]] = self.read(
            lambda db: db.execute(query_sql, parameters).fetchall(), []
        )
        return tuple(from_json(record_type, record_json) for (record_json,) in document_rows)

    def create_tables(self, db: sqlite3.Connection) -> None:
        """Create the tables."""
        for statement in _TABLES:
            db.execute(statement)

    def unusable_error(self, error: sqlite3.Error | OSError, *, is_writing: bool) -> LedgerUnusable:  # noqa: ARG002
        """Why the ledger cannot be used."""
        path = self.path
        message = scrub(str(error))
        error_name = getattr(error, "sqlite_errorname", "")
        is_damaged = error_name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
        if isinstance(error, NotOurs) or (is_damaged and not _begins_like_ledger(path)):
            problem = f"{path} is not an icekit ledger ({message}); icekit did not change it"
            advice = "Give another path with --ledger or ICEKIT_LEDGER"
        elif isinstance(error, OtherSchema) or is_damaged:
            state_text = "is corrupt" if is_damaged else "was written by another version of icekit"
            problem = f"The ledger {path} {state_text} ({message})"
            advice = (
                f"Move it away (and {path.name}-wal and {path.name}-shm next to it) and run "
                "again: icekit creates a new ledger, and plans tables again"
            )
        else:
            problem = f"The ledger {path} cannot be used ({message})"
            advice = (
                "Make it writable, on a local disk with free space; if it stays locked, end the "
                "process that uses it; or give another file with ICEKIT_LEDGER"
            )
        return LedgerUnusable(f"{problem}. {advice}.")


def _claims_on(db: sqlite3.Connection, *keys: str) -> list[Claim]:
    document_rows = db.execute(
        f"SELECT document FROM claims WHERE key IN ({', '.join('?' * len(keys))})", keys
    )
    return [from_json(Claim, claim_json) for (claim_json,) in document_rows]


def _put_claim(db: sqlite3.Connection, claim: Claim) -> None:
    db.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?)", [claim.key, json.dumps(asdict(claim))]
    )


def _begins_like_ledger(path: Path) -> bool:
    """Whether a file begins like an icekit ledger, whatever the state of the rest."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        header_bytes = file.read(72)
        return (
            header_bytes.startswith(b"SQLite format 3\0")
            and int.from_bytes(header_bytes[68:72], "big") == Ledger.APPLICATION_ID
        )
    return False
