"""Let one run at a time work on a table, and define the records and the interface of every ledger: claims, runs, actions."""

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

#: Seconds that a claim stays valid after its last heartbeat, and seconds between heartbeats.
LEASE = 120
HEARTBEAT = 20


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's claim on a table, from ``claimed_ms`` on; it expires when it is not renewed.

    ``table`` is the name that the run uses. ``uuid`` is the table's own, so that two runs cannot
    claim one table under two names of one catalog; None for a table without one.
    """

    table: str
    run_id: str
    owner: Owner
    claimed_ms: int
    renewed_ms: int
    uuid: str | None = None

    @property
    def key(self) -> str:
        """The key that the claim is stored under."""
        return self.uuid or self.table

    @property
    def expires_ms(self) -> int:
        """When the lease ends, in milliseconds since 1970 by the owner's clock."""
        return self.renewed_ms + LEASE * 1000

    def is_dead(self, now: int) -> bool:
        """Whether another run may take the claim over at ``now``."""
        return now >= self.expires_ms or self.owner.has_ended()

    def is_held_by(self, run_id: str, owner: Owner) -> bool:
        """Whether that process holds the claim for that run."""
        return (self.run_id, self.owner) == (run_id, owner)

    def to_json(self) -> str:
        """Write the claim as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, document: str) -> Claim:
        """Read the output of :meth:`to_json`."""
        data = json.loads(document)
        return cls(**{**data, "owner": Owner(**data["owner"])})


def claim_over(there: Sequence[Claim], table: str, uuid: str | None, run_id: str, now: int) -> Claim:
    """The claims that a run's own claim may replace: at most one by the table's UUID, and one by its name.

    (A table without a UUID is claimed by name, and earlier versions claimed every table by name.)
    Raises :class:`~icekit.errors.TableClaimed` when another run holds the table, or
    another living process the same run. Claiming again a table that one holds renews the claim.
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
        f"{table}{known_as} is claimed by run {there.run_id} on {there.owner.host} (process {there.owner.pid}), "
        f"which began {span(max(0, now - there.claimed_ms))} ago and sent its last heartbeat {span(max(0, now - there.renewed_ms))} ago. "
        "Wait for that run; or stop it, and continue it with --resume."
    )


def renewed(there: Sequence[Claim], table: str, run_id: str, now: int) -> Claim:
    """A run's own claim with a new lease; raises :class:`~icekit.errors.ClaimLost` if it is not there.

    A lease that has ended, but that no other run took over, is renewed.
    """
    for one in there:
        if one.is_held_by(run_id, Owner.here()):
            return replace(one, renewed_ms=now)
    taken = (
        f"run {there[0].run_id} on {there[0].owner.host} took the table over" if there else "another run took the table over, and has ended"
    )
    raise ClaimLost(f"Run {run_id} has lost its claim on {table}: {taken}; let that run finish, then continue with --resume.")


class Claims(Protocol):
    """The methods of a ledger that :func:`claimed` needs."""

    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take the table, or raise TableClaimed."""

    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease, or raise ClaimLost."""

    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Release the run's own claim."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim that is kept alive; ``lost`` is set once the run can no longer rely on it."""

    table: str
    run_id: str
    lost: threading.Event


@contextlib.contextmanager
def claimed(
    ledger: Claims, table: str, run_id: str, uuid: str | None = None, *, interval: float = HEARTBEAT, lease: float = LEASE
) -> Iterator[Lease]:
    """Hold a table (of this UUID, if it has one) for a run: claim it, send a heartbeat every ``interval`` seconds, release it.

    Raises :class:`~icekit.errors.TableClaimed` at once if another run holds the table.
    The code inside checks ``lost`` before each action: it is set when another run took
    the table over, and when no heartbeat succeeded for ``lease`` seconds.
    """
    # Read before the claim is made, because its lease begins after this moment.
    sent = time.monotonic()
    ledger.claim(table, run_id, uuid)
    held = Lease(table, run_id, threading.Event())
    ended = threading.Event()

    def arm(since: float) -> threading.Timer:
        # On its own thread, because a heartbeat may hang instead of failing.
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
                # The catalog or the disk may recover before the lease ends.
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
        # A heartbeat in progress would get in the way of the release; a heartbeat after the release does not restore the claim.
        thread.join(timeout=HEARTBEAT)
        # A claim that cannot be released expires by itself, and the error from inside says more.
        with contextlib.suppress(IcekitError):
            ledger.release(table, run_id, uuid)


# --- The ledger's records of a run and of its actions, and their JSON


T = TypeVar("T", bound="RunRecord | ActionRecord")

#: The status of a run (and of its action) whose proof failed; the run keeps it until a person clears it.
DISPROVED = "disproved"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run over one table; ``table`` is ``catalog.db.table`` as :func:`icekit.sql.display_name` writes it.

    ``status`` is ``running``, ``done``, ``stopped``, ``failed``, ``disproved`` (its proof failed;
    ``error`` says what the proof found) or ``cleared`` (a person has looked at the table). A run that was
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
    """One attempt at one action of a run, stored by table, run, action and starting snapshot.

    ``status`` is ``running``, or how it ended: see :data:`icekit.compact.outcome.Status`.
    ``predicted`` and ``actual`` hold ``files_in``, ``bytes_in``, ``files_out``,
    ``bytes_out``, ``delete_files_removed`` and ``seconds``, each absent where unknown.
    ``snapshot_ids`` are the snapshots that the action has committed, and ``commits`` their parents and summaries, as the table had
    them right after each commit: the summary says what was checked before it.
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
    commits: tuple[dict[str, Any], ...] = ()

    @property
    def is_outcome(self) -> bool:
        """Whether the action is done and was measured."""
        return self.status == "done" and self.actual is not None


def key_of(record: RunRecord | ActionRecord) -> str:
    """The key of a record, as a JSON list."""
    if isinstance(record, RunRecord):
        return json.dumps([record.run_id])
    return json.dumps([record.table, record.run_id, record.action_id, record.starting_snapshot_id])


def to_json(record: RunRecord | ActionRecord) -> str:
    """Write a record as JSON, with every known secret masked."""
    # mask_data keeps numbers as they are; masking the JSON's own text could break it.
    return json.dumps(mask_data(asdict(record)), sort_keys=True)


def from_json(kind: type[T], document: str) -> T:
    """Read a record; ignore fields that a later version of icekit added."""
    data = json.loads(document)
    known: dict[str, Any] = {field.name: data.get(field.name) for field in fields(kind)}
    for name in {"snapshot_ids", "commits"}.intersection(known):
        known[name] = tuple(known[name] or ())
    return kind(**known)


def latest(written: Iterable[ActionRecord]) -> tuple[ActionRecord, ...]:
    """The newest attempt at each action, by ordinal; ``written`` is in the order of writing.

    An action that was tried again after other commits starts from another snapshot, and has
    another record.
    """
    newest: dict[str, ActionRecord] = {}
    for record in written:
        before = newest.get(record.action_id)
        if before is None or record.attempt >= before.attempt:
            newest[record.action_id] = record
    return tuple(sorted(newest.values(), key=lambda record: (record.ordinal, record.action_id)))


# --- The interface of every ledger, whatever stores it


class Ledger(ABC):
    """The record of runs, of the attempts at their actions, and of who holds which table.

    Tables are named ``catalog.db.table`` as :func:`icekit.sql.display_name` does. Any
    method raises :class:`~icekit.errors.LedgerUnusable` when the ledger cannot be read or
    written. Every known secret in the texts is masked before they are saved. A ledger that nothing was
    ever written to is empty, and reading it creates nothing.
    """

    @abstractmethod
    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take a table for a run, or raise :class:`~icekit.errors.TableClaimed`.

        A table is claimed by its own ``uuid``, whatever its name; a table without one, by its name.
        A dead claim is taken over: one whose lease has ended, or whose process on this host
        no longer exists. A process may claim again a table that it holds for the same run.
        """

    @abstractmethod
    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease; raises :class:`~icekit.errors.ClaimLost` if another run took the table over."""

    @abstractmethod
    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Release a table; the claim of another process or run stays."""

    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """Every claim on record, by table, including dead ones."""

    @abstractmethod
    def save_run(self, run: RunRecord) -> None:
        """Write a run; replaces its earlier record."""

    @abstractmethod
    def save_actions(self, actions: Iterable[ActionRecord]) -> None:
        """Write many actions at once, each like :meth:`save_action`."""

    def save_action(self, action: ActionRecord) -> None:
        """Write an action; replaces its record with the same starting snapshot."""
        self.save_actions([action])

    @abstractmethod
    def run(self, run_id: str) -> RunRecord | None:
        """A run, or None."""

    @abstractmethod
    def last_run(self, table: str, statuses: Collection[str] | None = None) -> RunRecord | None:
        """The last started run on a table, among those with a status in ``statuses``."""

    @abstractmethod
    def disproved(self) -> tuple[RunRecord, ...]:
        """Every run whose proof failed and that no person has cleared."""

    @abstractmethod
    def actions(self, run_id: str) -> tuple[ActionRecord, ...]:
        """The newest attempt at each action of a run, by ordinal."""

    @abstractmethod
    def outcomes(self, table: str | None = None, limit: int = 200) -> tuple[ActionRecord, ...]:
        """Done and measured actions of one table, or of all tables, that ended last; newest first."""

    def close(self) -> None:  # noqa: B027 - most ledgers have nothing open
        """Close what the ledger opened; a session or catalog that the caller passed in stays open."""


# --- Keep the rows of a ledger in an Iceberg table: create, merge, read and tidy it, and retry where others commit too


LedgerRow = TypeVar("LedgerRow")
Row = tuple[str, str, str, str, str]  # kind, key, table_name, run_id, document

COLUMNS = ("kind", "key", "table_name", "run_id", "document", "updated_ms")
# Version 2 keeps claims by the table's UUID; version 1 kept them by its name.
_VERSION_KEY, _VERSION = "icekit.ledger-version", 2
_PROPERTIES = {
    "format-version": "2",
    _VERSION_KEY: str(_VERSION),
    # The exclusiveness of a claim rests on these; both are Iceberg's defaults, which a catalog may override.
    **{f"write.{statement}.mode": "copy-on-write" for statement in ("merge", "update", "delete")},
    **{f"write.{statement}.isolation-level": "serializable" for statement in ("merge", "update", "delete")},
    # Full keys: keys cut to 16 characters make the claims of other tables look like conflicts.
    "write.metadata.metrics.column.key": "full",
    # A heartbeat every 20 seconds is a commit; nobody needs time travel in them.
    "history.expire.max-snapshot-age-ms": str(10 * 60 * 1000),
    "history.expire.min-snapshots-to-keep": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
_PATIENCE_SECONDS = 60.0  # less than a lease
_COMMITS_PER_TIDYING = 100

# Another commit came first, or the result is unknown: read again and decide. Connect and py4j give only text.
_CONFLICT = re.compile(
    r"iceberg\.exceptions\.(?:ValidationException|CommitFailedException|CommitStateUnknownException)|SQLITE_BUSY|database is locked"
)
_NOT_THERE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|NoSuchTableException|NoSuchNamespaceException")
_ALREADY_THERE = re.compile(r"ALREADY_EXISTS|AlreadyExistsException")
#: A dollar sign in a string literal that Spark's variable substitution ignores.
DOLLAR = "\\u0024"


class LostRace(Exception):
    """The row read back is not the row just written: another commit came between."""


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
        """The documents that match a condition; none before the first write."""
        return self.patiently(lambda: self.select(condition, order))

    def select(self, condition: str, order: str) -> list[str]:
        """As :meth:`read`, without retries: for work that is itself retried."""
        if not self._is_there():
            return []
        try:
            # The session may cache an older version of the table.
            self._sql(f"REFRESH TABLE {self.table}")
            rows = self._sql(f"SELECT document FROM {self.table} WHERE {condition} ORDER BY {order}")
        except Exception as error:
            if _NOT_THERE.search(str(error)):
                return []
            raise
        return [str(row[0]) for row in rows]

    def upsert(self, rows: Sequence[Row]) -> None:
        """Write rows, replacing those with the same keys, in one commit."""
        self.patiently(lambda: self.merge(rows, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"), writing=True)

    def merge(self, rows: Sequence[Row], clauses: str) -> None:
        """Write rows with one MERGE with these clauses, without retries."""
        now = self._clock()
        values = ", ".join(f"({', '.join(map(text, row))}, CAST({now} AS BIGINT))" for row in rows)
        keys = ", ".join(text(key) for key in sorted({row[1] for row in rows}))
        kinds = ", ".join(text(kind) for kind in sorted({row[0] for row in rows}))
        self.commit(
            f"MERGE INTO {self.table} t USING (SELECT * FROM VALUES {values} AS s({', '.join(COLUMNS)})) s "
            # Iceberg uses the literals to select files and to detect conflicts.
            f"ON t.kind = s.kind AND t.key = s.key AND t.kind IN ({kinds}) AND t.key IN ({keys}) {clauses}"
        )

    def commit(self, statement: str) -> None:
        """Run a statement that makes a commit; after every hundredth, run :meth:`tidy`."""
        self._sql(statement)
        with self._counting:
            self._commits += 1
            is_due = self._commits % _COMMITS_PER_TIDYING == 0
        if is_due:
            self.tidy()

    def tidy(self) -> None:
        """Combine the table's small files and expire its snapshots, unless other commits get in the way."""
        catalog, table = self.name[0], display_name(self.name[1:])
        for statement in (
            # Claims are skipped: each is one file, replaced by the next heartbeat.
            call(catalog, "rewrite_data_files", table=table, where="kind <> 'claim'"),
            call(catalog, "rewrite_manifests", table=table),
            call(catalog, "expire_snapshots", table=table),
        ):
            # A run does not fail because its ledger could not be tidied; the next run tidies it.
            with contextlib.suppress(Exception):
                self._sql(statement)

    def patiently(self, work: Callable[[], LedgerRow], *, writing: bool = False) -> LedgerRow:
        """Retry work for a minute while other commits come first; ``writing`` creates the table before. Raises LedgerUnusable."""

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
        """Create the table unless it exists; reject a table that is not a ledger, or a newer ledger."""
        if not self._is_there():
            properties = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in _PROPERTIES.items())
            try:
                self._sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(*self.name[:-1])}")
                self._sql(
                    f"CREATE TABLE IF NOT EXISTS {self.table} (kind string, key string, table_name string, run_id string, document string, "
                    # Claims and records in separate partitions, so that saving an action does not conflict with a claim.
                    f"updated_ms bigint) USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ({properties})"
                )
            except Exception as raced:
                if not _ALREADY_THERE.search(str(raced)):
                    raise
        found = self._sql(f"SHOW TBLPROPERTIES {self.table}")
        version = {row[0]: row[1] for row in found}.get(_VERSION_KEY)
        name = display_name(self.name)
        if version is None:
            raise LedgerUnusable(f"{name} exists but is not an icekit ledger. Rename it, or keep the ledger in a file (ICEKIT_LEDGER).")
        if int(version) > _VERSION:
            raise LedgerUnusable(
                f"The ledger {name} was made by a newer icekit (ledger version {version}; this icekit knows {_VERSION}). Upgrade icekit."
            )
        if int(version) < _VERSION:
            # No earlier icekit may claim by name in the same ledger.
            self._sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ({literal(_VERSION_KEY)} = {literal(str(_VERSION))})")
        self._is_made = True

    def _is_there(self) -> bool:
        # Checked first, because Spark logs a statement that fails.
        return self._is_made or self._lake.spark.catalog.tableExists(self.table)

    def _sql(self, statement: str) -> list[Any]:
        return list(self._lake.spark.sql(statement).collect())

    def _unusable(self, error: Exception) -> IcekitError:
        known = explain(error, self.name)
        in_full = scrub(str(error))
        if isinstance(known, IcekitError):
            said = str(known)
        elif _is_conflict(error):
            said = "for a minute, other commits always came first. Try again."
        else:
            said = f"{reason(error)}."
        return LedgerUnusable(
            f"The ledger {display_name(self.name)} cannot be used: {said} icekit needs rights to create and write that table; "
            "without them keep the ledger in a file (ICEKIT_LEDGER).",
            detail=in_full,
        )


def text(value: str) -> str:
    """A string literal that Spark's variable substitution (``${…}``) ignores."""
    return literal(value).replace("$", DOLLAR)


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, LostRace) or (not isinstance(error, IcekitError) and _CONFLICT.search(str(error)) is not None)
