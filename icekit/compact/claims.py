"""Let one run at a time work on a table, and hold what every ledger keeps and promises: claims, runs, actions."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from icekit.catalog import Lake
from icekit.engine.errors import explain, reason
from icekit.errors import ClaimLost, IcekitError, LedgerUnusable, TableClaimed
from icekit.owner import Owner
from icekit.secrets import mask_data, scrub
from icekit.sql import Identifier, call, display_name, identifier, literal
from icekit.sqlite import patiently
from icekit.units import span

#: Seconds that a claim holds after its last heartbeat, and seconds between heartbeats.
LEASE = 120
HEARTBEAT = 20


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's hold on a table, from ``claimed_ms`` on; it lapses when nobody renews it.

    ``table`` is the name that the run knows it by. ``uuid`` is the table's own, so that two names
    of one catalog do not let two runs in; None for a table without one.
    """

    table: str
    run_id: str
    owner: Owner
    claimed_ms: int
    renewed_ms: int
    uuid: str | None = None

    @property
    def key(self) -> str:
        """What the claim is kept by."""
        return self.uuid or self.table

    @property
    def expires_ms(self) -> int:
        """When the lease is over, in milliseconds since 1970 by the owner's clock."""
        return self.renewed_ms + LEASE * 1000

    def is_dead(self, now: int) -> bool:
        """Tell whether it may be taken over at ``now``."""
        return now >= self.expires_ms or self.owner.has_ended()

    def is_held_by(self, run_id: str, owner: Owner) -> bool:
        """Tell whether that process holds it for that run."""
        return (self.run_id, self.owner) == (run_id, owner)

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, document: str) -> Claim:
        """Read what :meth:`to_json` has written."""
        data = json.loads(document)
        return cls(**{**data, "owner": Owner(**data["owner"])})


def claim_over(there: Sequence[Claim], table: str, uuid: str | None, run_id: str, now: int) -> Claim:
    """The claim that a run may put in the place of those that are there: at most one by the table's UUID, and one by its name.

    (By name is how a table without a UUID is claimed, and how earlier versions claimed every table.)
    Raises :class:`~icekit.errors.TableClaimed` when another run holds the table, or
    another living process the same run. Claiming again what one holds renews it.
    """
    owner = Owner.here()
    for one in there:
        if not one.is_held_by(run_id, owner) and not one.is_dead(now):
            raise _claimed(one, table, now)
    mine = Claim(table, run_id, owner, now, now, uuid)
    return next((replace(one, renewed_ms=now) for one in there if one.key == mine.key and one.is_held_by(run_id, owner)), mine)


def _claimed(there: Claim, table: str, now: int) -> TableClaimed:
    known_as = f" (which that run knows as {there.table})" if there.table != table else ""
    return TableClaimed(
        f"{table}{known_as} is being compacted by run {there.run_id} on {there.owner.host} (process {there.owner.pid}), "
        f"which began {span(max(0, now - there.claimed_ms))} ago and gave a sign of life {span(max(0, now - there.renewed_ms))} ago; "
        "wait for it; or stop it, and resume it with --resume."
    )


def renewed(there: Sequence[Claim], table: str, run_id: str, now: int) -> Claim:
    """A run's own claim with a new lease; raises :class:`~icekit.errors.ClaimLost` if it is not there.

    A lease that is over and that nobody took is simply renewed.
    """
    for one in there:
        if one.is_held_by(run_id, Owner.here()):
            return replace(one, renewed_ms=now)
    taken = f"run {there[0].run_id} on {there[0].owner.host} has taken it over" if there else "another run has taken it over, and ended"
    raise ClaimLost(f"Run {run_id} has lost its claim on {table}: {taken}; let that run finish, then resume what is left with --resume.")


class Claims(Protocol):
    """What :func:`claimed` needs of a ledger."""

    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take the table, or raise TableClaimed."""

    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease, or raise ClaimLost."""

    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Let go of the run's own claim."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim that is kept alive; ``lost`` is set once it cannot be relied on any more."""

    table: str
    run_id: str
    lost: threading.Event


@contextlib.contextmanager
def claimed(
    ledger: Claims, table: str, run_id: str, uuid: str | None = None, *, interval: float = HEARTBEAT, lease: float = LEASE
) -> Iterator[Lease]:
    """Hold a table (of this UUID, if it has one) for a run: claim it, send a heartbeat every ``interval`` seconds, release it.

    Raises :class:`~icekit.errors.TableClaimed` at once if another run holds the table.
    What runs inside looks at ``lost`` before each action: it is set when another run took
    the table over, and when no heartbeat got through for ``lease`` seconds.
    """
    # Taken before the claim is made, as its lease begins somewhere after this.
    sent = time.monotonic()
    ledger.claim(table, run_id, uuid)
    held = Lease(table, run_id, threading.Event())
    ended = threading.Event()

    def arm(since: float) -> threading.Timer:
        # On a thread of its own, as a heartbeat may hang instead of failing.
        timer = threading.Timer(max(0.0, since + lease - time.monotonic()), held.lost.set)
        timer.daemon = True
        timer.start()
        return timer

    def beat(timer: threading.Timer) -> None:
        while not ended.wait(interval):
            sent = time.monotonic()
            try:
                ledger.heartbeat(table, run_id, uuid)
            except ClaimLost:
                held.lost.set()
                break
            except Exception:
                # The catalog or the disk may be back before the lease is over.
                continue
            timer.cancel()
            timer = arm(sent)
        timer.cancel()

    thread = threading.Thread(target=beat, args=[arm(sent)], name=f"icekit-claim-{run_id}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        # A heartbeat under way would be in the way of the release; it brings back nothing if it comes later.
        thread.join(timeout=HEARTBEAT)
        # What cannot be released lapses by itself, and what happened inside says more.
        with contextlib.suppress(IcekitError):
            ledger.release(table, run_id, uuid)


# --- What the ledger keeps of a run and of its actions, and how it is written as JSON


T = TypeVar("T", bound="RunRecord | ActionRecord")

#: The status of a run (and of its action) whose proof failed; of the run, until a person clears it.
DISPROVED = "disproved"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run over one table; ``table`` is ``catalog.db.table`` as :func:`icekit.sql.display_name` writes it.

    ``status`` is ``running``, ``done``, ``stopped``, ``failed``, ``disproved`` (its proof failed,
    and ``error`` says what it found) or ``cleared`` (a person has looked at that). A run that was
    killed stays ``running`` without a claim. Times are milliseconds since 1970; ``plan`` is JSON.
    """

    run_id: str
    table: str
    table_uuid: str | None
    status: str
    started_ms: int
    ended_ms: int | None
    starting_snapshot_id: int | None
    plan: dict[str, Any]
    host: str
    pid: int
    error: str | None


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One attempt at one action of a run, kept by table, run, action and starting snapshot.

    ``status`` is ``running``, or how it ended: see :data:`icekit.compact.outcome.Status`.
    ``predicted`` and ``actual`` hold ``files_in``, ``bytes_in``, ``files_out``,
    ``bytes_out``, ``delete_files_removed`` and ``seconds``, each absent where it is not
    known. ``snapshot_ids`` are the snapshots that the action has committed.
    """

    run_id: str
    action_id: str
    ordinal: int
    table: str
    starting_snapshot_id: int | None
    status: str
    attempt: int
    sql: str
    predicted: dict[str, Any]
    actual: dict[str, Any] | None
    snapshot_ids: tuple[int, ...]
    started_ms: int | None
    ended_ms: int | None
    error: str | None

    @property
    def is_outcome(self) -> bool:
        """Tell whether it is done and was measured."""
        return self.status == "done" and self.actual is not None


def key_of(record: RunRecord | ActionRecord) -> str:
    """What a record is kept by, as a JSON list."""
    if isinstance(record, RunRecord):
        return json.dumps([record.run_id])
    return json.dumps([record.table, record.run_id, record.action_id, record.starting_snapshot_id])


def to_json(record: RunRecord | ActionRecord) -> str:
    """Write a record as JSON, with every known secret masked."""
    # mask_data keeps numbers as they are; masking the JSON's own text could break it.
    return json.dumps(mask_data(asdict(record)), sort_keys=True)


def from_json(kind: type[T], document: str) -> T:
    """Read a record; what a later version of icekit has added to it is left out."""
    data = json.loads(document)
    known: dict[str, Any] = {field.name: data.get(field.name) for field in fields(kind)}
    if "snapshot_ids" in known:
        known["snapshot_ids"] = tuple(known["snapshot_ids"] or ())
    return kind(**known)


def latest(written: Iterable[ActionRecord]) -> tuple[ActionRecord, ...]:
    """The newest attempt at each action, by ordinal; ``written`` is in the order of writing.

    An action tried again after others have committed starts from another snapshot, and is
    another record.
    """
    newest: dict[str, ActionRecord] = {}
    for record in written:
        before = newest.get(record.action_id)
        if before is None or record.attempt >= before.attempt:
            newest[record.action_id] = record
    return tuple(sorted(newest.values(), key=lambda record: (record.ordinal, record.action_id)))


# --- What a ledger answers and promises, whatever it is kept in


class Ledger(ABC):
    """The record of runs, of their actions' attempts, and of who holds which table.

    Tables are named ``catalog.db.table`` as :func:`icekit.sql.display_name` does. Any
    method raises :class:`~icekit.errors.LedgerUnusable` when the ledger cannot be read or
    written. Texts are saved with every known secret masked. A ledger that nothing was ever
    written to is empty, and reading it makes nothing.
    """

    @abstractmethod
    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take a table for a run, or raise :class:`~icekit.errors.TableClaimed`.

        A table is claimed by its own ``uuid``, whatever it is called; one without, by its name.
        A dead claim is taken over: one whose lease is over, or whose process on this host
        lives no more. A process may claim again what it holds for the same run.
        """

    @abstractmethod
    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease; raises :class:`~icekit.errors.ClaimLost` if another run took the table over."""

    @abstractmethod
    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Let go of a table; another process's or run's claim stays."""

    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """Every claim on record, by table, also those that are dead."""

    @abstractmethod
    def save_run(self, run: RunRecord) -> None:
        """Write a run, in the place of what was written of it before."""

    @abstractmethod
    def save_actions(self, actions: Iterable[ActionRecord]) -> None:
        """Write many actions at once, as :meth:`save_action` does one."""

    def save_action(self, action: ActionRecord) -> None:
        """Write an action, in the place of its record with the same starting snapshot."""
        self.save_actions([action])

    @abstractmethod
    def run(self, run_id: str) -> RunRecord | None:
        """A run, or None."""

    @abstractmethod
    def last_run(self, table: str, statuses: Collection[str] | None = None) -> RunRecord | None:
        """The run over a table that was started last, among those in a status of ``statuses``."""

    @abstractmethod
    def disproved(self) -> tuple[RunRecord, ...]:
        """Every run whose proof failed and that no person has cleared yet."""

    @abstractmethod
    def actions(self, run_id: str) -> tuple[ActionRecord, ...]:
        """The newest attempt at each action of a run, by ordinal."""

    @abstractmethod
    def outcomes(self, table: str | None = None, limit: int = 200) -> tuple[ActionRecord, ...]:
        """Done and measured actions, of one table or of all, that ended last; newest first."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Let go of what is open; a session or a catalog that was lent stays."""


# --- Keep the rows of a ledger in an Iceberg table: make it, merge, read and tidy it, patiently where others commit too


LedgerRow = TypeVar("LedgerRow")
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


class LostRace(Exception):
    """The row read back is not the one just put: another commit came between."""


class LedgerRows:
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

    def patiently(self, work: Callable[[], LedgerRow], *, writing: bool = False) -> LedgerRow:
        """Do work again while other commits come first, for a minute; ``writing`` makes the table before. Raises LedgerUnusable."""

        def attempt() -> LedgerRow:
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
    return isinstance(error, LostRace) or (not isinstance(error, IcekitError) and _CONFLICT.search(str(error)) is not None)
