"""Define the scheduler's knowledge of a table as one state machine; record what passes did, and let only one pass of a policy run at a time."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import TypeAdapter

from icekit.compact.ledger import default_path
from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY, IcekitError, LedgerUnusable, require
from icekit.schedule.policy import Rule, SchedulePolicy
from icekit.schedule.result import PastAction
from icekit.schedule.study import Watermark
from icekit.secrets import mask_data
from icekit.sqlite import EarlierSchema, SqliteFile
from icekit.units import count, moment, raised, span

# Hours until a failed action is tried again: doubled each time, but at most one night.
_FIRST_HOURS, _MOST_HOURS = 3, 20


class TableState(Enum):
    """What the scheduler knows of a table; :data:`TRANSITIONS` defines which event leads where.

    Each state is saved as soon as it changes, so the next pass continues after a kill. Runs begin only in a pass that has taken the table.

    - ``IDLE``: its last pass left nothing to do, or it had none. A pass takes it once its trigger says that it is due.
    - ``DUE``: a pass has taken it. It returns to ``IDLE`` when everything due is done; waiting work is left to the next pass.
    - ``UNFINISHED``: a run of the policy began, and is not known to have ended. No other run begins before this run is resumed, or dropped
      because the policy no longer allows it; it then succeeds, fails, or is not proved.
    - ``FAILED``: a run or a trial failed. A pass takes it again after some hours, longer each time, or once its rule changes or it is cleared.
    - ``UNPROVED``: a run changed it, and its proof failed or could not be made. It is reported on, and no run begins until a person
      clears it. No other event leaves this state.
    - ``CLEARED``: a person has looked at the failure or the missing proof. The next pass takes it, whether its trigger says due or not.
    """

    IDLE = "idle"
    DUE = "due"
    UNFINISHED = "unfinished"
    FAILED = "failed"
    UNPROVED = "unproved"
    CLEARED = "cleared"


#: A pass takes a table; a run begins and ends; something fails, or is not proved; everything due is done; a person clears the table.
Event = Literal["take", "begin", "end", "fail", "hold", "pass", "clear"]
IDLE, DUE, UNFINISHED, FAILED, UNPROVED, CLEARED = TableState

#: The state that each event leads to. A person may clear a table at any time, also while a pass works on it. After a failed
#: trial, the pass continues with the rule's other actions: a run begins on a table that is FAILED.
TRANSITIONS: Mapping[TableState, Mapping[Event, TableState]] = {
    IDLE: {"take": DUE, "hold": UNPROVED, "clear": IDLE},
    DUE: {"take": DUE, "begin": UNFINISHED, "fail": FAILED, "hold": UNPROVED, "pass": IDLE, "clear": DUE},
    UNFINISHED: {"end": DUE, "fail": FAILED, "hold": UNPROVED, "clear": UNFINISHED},
    FAILED: {"take": DUE, "begin": UNFINISHED, "fail": FAILED, "hold": UNPROVED, "clear": CLEARED},
    UNPROVED: {"take": UNPROVED, "hold": UNPROVED, "pass": UNPROVED, "clear": CLEARED},
    CLEARED: {"take": DUE, "begin": UNFINISHED, "fail": FAILED, "hold": UNPROVED, "pass": CLEARED, "clear": CLEARED},
}


def after(state: TableState, event: Event) -> TableState:
    """The state after an event; raises RuntimeError for an undeclared event."""
    if event not in TRANSITIONS[state]:
        raise RuntimeError(f"a bug in icekit: a table that is {state.value} takes no event {event!r}")
    return TRANSITIONS[state][event]


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that a policy began: ``mark`` is what its rule said then (:func:`mark`)."""

    run_id: str
    action: str
    mark: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure or missing proof of a table; how often in a row, and when (milliseconds since 1970).

    ``run_id`` is the run to look at, possibly another run because of which the ledger blocks the table.
    """

    action: str
    said: str
    mark: str
    at_ms: int
    times: int = 1
    run_id: str | None = None

    def rests_until(self, rule: Rule) -> dt.datetime | None:
        """When the failed action is tried again; None if that may be at once."""
        if mark(rule, self.action) != self.mark:
            return None
        hours = min(_FIRST_HOURS * 2 ** min(self.times - 1, 10), _MOST_HOURS)
        return dt.datetime.fromtimestamp(self.at_ms / 1000, dt.UTC) + dt.timedelta(hours=hours)

    def often(self) -> str:
        """``it failed 2 times``."""
        return f"it failed {count(self.times, 'time')}"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The record of a table: its state, and the details.

    ``run`` is the run that an UNFINISHED table waits for. ``failure`` stays until the table passes or is cleared, so that failures in a row
    are counted. ``seen`` is what its last finished pass saw, ``last`` its result in the last pass that read it.
    """

    state: TableState = TableState.IDLE
    run: StartedRun | None = None
    failure: Failure | None = None
    seen: Watermark | None = None
    last: dict[str, Any] | None = None

    def after(self, event: Event | None, **changed: Any) -> TableRecord:
        """The record after an event (None: the state stays), with the other changes in ``changed``."""
        state = self.state if event is None else after(self.state, event)
        new = replace(self, state=state, **changed)
        run = new.run if state is UNFINISHED else None
        failure = None if state is IDLE or event == "clear" else new.failure
        return replace(new, run=run, failure=failure)


def mark(rule: Rule, action: str) -> str:
    """The settings of a rule for an action, as a short text that changes with them; the proof setting is left out."""
    section = rule.actions.get(action)
    said = section.model_dump_json(exclude={"execute", "prove", "trial"}) if section else ""
    around = rule.model_dump_json(include={"thresholds", "filter_columns", "storage"})
    return hashlib.sha256(json.dumps([said, around]).encode()).hexdigest()[:16]


def how_to_clear(table: str) -> str:
    """The command that allows runs on a table again."""
    return f"`icekit schedule clear POLICY {table}`"


# --- Record what passes did, in a small SQLite file


_TABLES = (
    "CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, document TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS actions (at_ms INTEGER NOT NULL, document TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS told (receiver TEXT, name TEXT, document TEXT NOT NULL, PRIMARY KEY (receiver, name))",
)
_RECORD = TypeAdapter(TableRecord)


#: Number of actions to keep; a page shows fewer.
_ACTIONS = 500


def state_path(policy: SchedulePolicy) -> Path:
    """The policy's ``state``, else a separate file next to the default ledger, named after the policy and its output folder."""
    if policy.state is not None:
        return policy.state
    mark = hashlib.sha256(str(policy.output).encode()).hexdigest()[:8]
    return default_path().parent / f"{policy.name}-{mark}.passes.db"


class State(SqliteFile):
    """The record of each table and of the messages to each receiver.

    Without a file the record is empty: every table is then at its first pass. Raises
    :class:`~icekit.errors.LedgerUnusable` for an unusable file.
    """

    APPLICATION = 0x69636570  # "icep"
    SCHEMA = OLDEST = 1

    def __init__(self, path: Path) -> None:
        self.path = path

    def table(self, name: str) -> TableRecord:
        """The record of a table."""
        return self.read(lambda db: _record(db, name), TableRecord())

    def failed(self) -> tuple[str, ...]:
        """The tables with a failure or a missing proof that neither passed nor were cleared since."""
        rows = self._all("SELECT name, document FROM tables ORDER BY name")
        return tuple(name for name, document in rows if _RECORD.validate_json(document).failure)

    def apply(self, table: str, event: Event | None, **changed: Any) -> TableRecord:
        """Change a table's record by an event, as :meth:`TableRecord.after` does, in one transaction."""

        def work(db: sqlite3.Connection) -> TableRecord:
            record = _record(db, table).after(event, **changed)
            document = json.dumps(mask_data(_RECORD.dump_python(record, mode="json")))
            db.execute("INSERT OR REPLACE INTO tables VALUES (?, ?)", [table, document])
            return record

        return self.write(work)

    def acted(self, did: PastAction) -> None:
        """Record an action that was run; drops the oldest beyond a limit."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO actions VALUES (?, ?)", [did.at_ms, json.dumps(mask_data(asdict(did)))])
            db.execute("DELETE FROM actions WHERE rowid <= (SELECT max(rowid) FROM actions) - ?", [_ACTIONS])

        self.write(work)

    def lately(self, limit: int = 20) -> tuple[PastAction, ...]:
        """The last actions, newest first; ignores fields added by later versions."""
        rows = self._all("SELECT document FROM actions ORDER BY rowid DESC LIMIT ?", limit)
        return tuple(PastAction.of(json.loads(document)) for (document,) in rows)

    def told(self, receiver: str) -> dict[str, dict[str, Any]]:
        """The last messages to a receiver, by table."""
        rows = self._all("SELECT name, document FROM told WHERE receiver = ?", receiver)
        return {name: json.loads(document) for name, document in rows}

    def tell(self, receiver: str, told: dict[str, dict[str, Any] | None]) -> None:
        """Record a message to a receiver; None forgets a table."""

        def work(db: sqlite3.Connection) -> None:
            for name, document in told.items():
                if document is None:
                    db.execute("DELETE FROM told WHERE receiver = ? AND name = ?", [receiver, name])
                else:
                    db.execute("INSERT OR REPLACE INTO told VALUES (?, ?, ?)", [receiver, name, json.dumps(mask_data(document))])

        self.write(work)

    def _all(self, query: str, *given: Any) -> list[tuple[Any, ...]]:
        return self.read(lambda db: list(db.execute(query, given)), [])

    def prepare(self, db: sqlite3.Connection, schema: int | None) -> None:  # noqa: ARG002
        """Create missing tables."""
        for table in _TABLES:
            db.execute(table)

    def unusable(self, error: sqlite3.Error | OSError, *, writing: bool) -> LedgerUnusable:  # noqa: ARG002
        """Why the record cannot be used."""
        way_out = "make it writable, or give another file with `state:` in the policy"
        if isinstance(error, EarlierSchema):
            held = _held_back(self.path)
            look = f"First look at the failed or unfinished runs on {', '.join(held)}, then " if held else ""
            way_out = f"{look}give another file with `state:` in the policy"
        return LedgerUnusable(
            f"The record of passes {self.path} cannot be used ({error}). {raised(way_out)}; with a new file every table is at its first pass."
        )


def _held_back(path: Path) -> tuple[str, ...]:
    """The tables that a record of icekit 0.1 blocks: a run failed, was not proved, or did not end."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as db,
    ):
        return tuple(name for (name,) in db.execute("SELECT DISTINCT name FROM notes ORDER BY name"))
    return ()


def _record(db: sqlite3.Connection, table: str) -> TableRecord:
    row = db.execute("SELECT document FROM tables WHERE name = ?", [table]).fetchone()
    return _RECORD.validate_json(row[0]) if row else TableRecord()


# --- Let only one pass of a policy run at a time, and say which process holds the lock


#: Seconds after which somebody should look at a pass that still runs.
LONGEST = 86_400.0


class AnotherPass(IcekitError):
    """Another pass of the same policy is running: no failure, because the next pass follows, unless it has run for too long."""

    exit_status = EXIT_HEALTHY

    def __init__(self, said: str, *, is_overlong: bool = False) -> None:
        super().__init__(said)
        self.exit_status = EXIT_UNHEALTHY if is_overlong else EXIT_HEALTHY


@contextlib.contextmanager
def one_at_a_time(path: Path, longest: float = LONGEST) -> Iterator[None]:
    """Hold the lock of a record of passes; raises :class:`AnotherPass` at once if it is held.

    ``longest`` is in seconds: a pass that has run for longer may hang, for example on storage that does not answer.

    The operating system releases the lock when the process ends, also after a kill. On a network file system locks are only as
    reliable as the file system; there the ledger's claims still keep two runs off one table.
    """
    require("filelock", "A pass of a policy")
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    holder = path.with_name(path.name + ".pass.json")
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise _another(holder, longest) from None
    try:
        holder.write_text(json.dumps({"since_ms": int(time.time() * 1000), "host": socket.gethostname(), "pid": os.getpid()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _another(holder: Path, longest: float) -> AnotherPass:
    who, seconds = "", 0.0
    # The holder may be gone by now, or not yet written.
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads(holder.read_text())
        seconds = time.time() - float(said["since_ms"]) / 1000
        who = f" since {moment(said['since_ms'])} (process {said['pid']} on {said['host']})"
    if seconds > longest:
        return AnotherPass(
            f"Another pass of this policy is running{who}, for {span(seconds * 1000)} now. Check what it is waiting for, and end its process if it hangs; the next pass continues.",
            is_overlong=True,
        )
    return AnotherPass(f"Another pass of this policy is running{who}. This pass does nothing; the next one runs as usual.")
