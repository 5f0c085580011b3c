"""Let one run at a time work on a table, and define the ledger's records: claims, runs, actions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from icekit.compact.actual import Actual
from icekit.compact.model import Prediction
from icekit.errors import ClaimLost, TableClaimed
from icekit.owner import Owner
from icekit.secrets import mask_data
from icekit.status import Status
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


def claim_over(
    there: Sequence[Claim], table: str, uuid: str | None, run_id: str, now: int
) -> Claim:
    """The claims that a run's own claim may replace: at most one by the table's UUID, and one by
    its name.

    (A table without a UUID is claimed by name, and earlier versions claimed every table by name.)
    Raises :class:`~icekit.errors.TableClaimed` when another run holds the table, or
    another living process the same run. Claiming again a table that one holds renews the claim.
    """
    owner = Owner.here()
    for claim in there:
        if not claim.is_held_by(run_id, owner) and not claim.is_dead(now):
            raise _claimed(claim, table, now)
    mine = Claim(table, run_id, owner, now, now, uuid)
    return next(
        (
            replace(claim, renewed_ms=now)
            for claim in there
            if claim.key == mine.key and claim.is_held_by(run_id, owner)
        ),
        mine,
    )


def _claimed(there: Claim, table: str, now: int) -> TableClaimed:
    known_as = f" (which that run knows as {there.table})" if there.table != table else ""
    return TableClaimed(
        f"{table}{known_as} is claimed by run {there.run_id} on {there.owner.host} (process "
        f"{there.owner.pid}), which began {span(max(0, now - there.claimed_ms))} ago and sent its "
        f"last heartbeat {span(max(0, now - there.renewed_ms))} ago. Wait for that run; or stop "
        "it, and continue it with --resume."
    )


def renewed(there: Sequence[Claim], table: str, run_id: str, now: int) -> Claim:
    """A run's own claim with a new lease; raises :class:`~icekit.errors.ClaimLost` if it is not
    there.

    A lease that has ended, but that no other run took over, is renewed.
    """
    for claim in there:
        if claim.is_held_by(run_id, Owner.here()):
            return replace(claim, renewed_ms=now)
    taken = (
        f"run {there[0].run_id} on {there[0].owner.host} took the table over"
        if there
        else "another run took the table over, and has ended"
    )
    raise ClaimLost(
        f"Run {run_id} has lost its claim on {table}: {taken}; let that run finish, then continue "
        "with --resume."
    )


T = TypeVar("T", bound="RunRecord | ActionRecord")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run over one table; ``table`` is ``catalog.db.table`` as :func:`icekit.sql.display_name`
    writes it.

    ``status`` is ``running``, ``done``, ``stopped``, ``failed``, ``disproved`` (its proof failed;
    ``error`` says what the proof found) or ``cleared`` (a person has looked at the table). A run
    that was killed stays ``running`` without a claim. Times are milliseconds since 1970; ``plan``
    is JSON.
    """

    run_id: str
    table: str
    table_uuid: str | None
    status: Status
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

    ``status`` is ``running``, or how it ended: see :class:`icekit.status.Status`.
    ``actual`` is None until something was committed or counted, and ``seconds`` for an action that
    was killed in between. ``snapshot_ids`` are the snapshots that the action has committed, and ``commits`` their parents
    and summaries, as the table had them right after each commit: the summary says what was checked
    before it.
    """

    run_id: str
    action_id: str
    ordinal: int
    table: str
    starting_snapshot_id: int | None
    status: Status
    attempts: int
    predicted: Prediction
    actual: Actual | None
    seconds: float | None
    snapshot_ids: tuple[int, ...]
    started_ms: int | None
    ended_ms: int | None
    error: str | None
    commits: tuple[dict[str, Any], ...] = ()

    @property
    def is_outcome(self) -> bool:
        """Whether the action is done and was measured."""
        return self.status is Status.DONE and self.actual is not None


def key_of(record: RunRecord | ActionRecord) -> str:
    """The key of a record, as a JSON list."""
    if isinstance(record, RunRecord):
        return json.dumps([record.run_id])
    return json.dumps([record.table, record.run_id, record.action_id, record.starting_snapshot_id])


def to_json(record: RunRecord | ActionRecord) -> str:
    """Write a record as JSON, with every known secret masked."""
    # mask_data keeps numbers as they are; masking the JSON's own text could break it.
    return json.dumps(mask_data(asdict(record)), sort_keys=True)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "status": Status,
    "snapshot_ids": tuple,
    "commits": tuple,
    "predicted": lambda figures: Prediction(**figures),
    "actual": lambda figures: Actual(**figures),
}


def from_json(kind: type[T], document: str) -> T:
    """Read a record; ignore fields that a later version of icekit added."""
    data = json.loads(document)
    known: dict[str, Any] = {field.name: data.get(field.name) for field in fields(kind)}
    for name, read in _READERS.items():
        if known.get(name) is not None:
            known[name] = read(known[name])
    return kind(**known)


def latest(written: Iterable[ActionRecord]) -> tuple[ActionRecord, ...]:
    """The newest attempt at each action, by ordinal; ``written`` is in the order of writing.

    An action that was tried again after other commits starts from another snapshot, and has
    another record.
    """
    newest: dict[str, ActionRecord] = {}
    for record in written:
        before = newest.get(record.action_id)
        if before is None or record.attempts >= before.attempts:
            newest[record.action_id] = record
    return tuple(sorted(newest.values(), key=lambda record: (record.ordinal, record.action_id)))
