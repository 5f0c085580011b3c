"""Let one run at a time work on a table, and define the ledger's records: claims, runs, actions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from icekit.common import frozen
from icekit.common.errors import Status, TableClaimed
from icekit.common.owner import Owner
from icekit.common.secrets import mask_data
from icekit.common.units import span
from icekit.maintain.prediction import Prediction
from icekit.maintain.record.results import Actual

#: Seconds that a claim stays valid after its last heartbeat, and seconds between heartbeats.
LEASE = 120
HEARTBEAT = 20


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@frozen
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

    def is_dead(self, at_ms: int) -> bool:
        """Whether another run may take the claim over at ``at_ms``, by the owner's clock."""
        return at_ms >= self.renewed_ms + LEASE * 1000 or self.owner.has_ended()

    def is_own(self, run_id: str) -> bool:
        """Whether this process holds the claim for that run."""
        return (self.run_id, self.owner) == (run_id, Owner.this_process())

    def refusal(self, wanted_name: str, at_ms: int) -> TableClaimed:
        """The error for another run that wants the table."""
        other_name_text = (
            f" (which that run knows as {self.table})" if self.table != wanted_name else ""
        )
        return TableClaimed(
            f"{wanted_name}{other_name_text} is claimed by run {self.run_id} on {self.owner.host} "
            f"(process {self.owner.pid}), which began {span(max(0, at_ms - self.claimed_ms))} ago and sent "
            f"its last heartbeat {span(max(0, at_ms - self.renewed_ms))} ago. Wait for that run; "
            "or stop it, and continue it with --resume."
        )


if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T", bound="Claim | RunRecord | ActionRecord")


@frozen
class RunRecord:
    """One run over one table; ``table`` is ``catalog.db.table`` as
    :func:`icekit.common.sql.display_name` writes it.

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
    plan: dict[str, Any]
    error: str | None


@frozen
class ActionRecord:
    """One attempt at one action of a run, stored by table, run, action and starting snapshot.

    ``status`` is ``running``, or how it ended: see :class:`icekit.common.errors.Status`.
    ``actual`` is None until something was committed or counted, and ``seconds`` for an action that
    was killed in between. ``snapshot_ids`` are the snapshots that the action has committed, and
    ``commits`` their parents and summaries, as the table had them right after each commit: the
    summary says what was checked before it.
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


def to_json(record: RunRecord | ActionRecord) -> str:
    """Write a record as JSON, with every known secret masked."""
    # mask_data keeps numbers as they are; masking the JSON's own text could break it.
    return json.dumps(mask_data(asdict(record)), sort_keys=True)


@cache
def document_reader(document_type: Any) -> TypeAdapter[Any]:
    """What reads records or plans of a kind; made only when one is read, because a dry run without
    earlier runs should not wait for it.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(document_type)


def from_json(record_type: type[T], record_json: str) -> T:
    """Read a record; ignore fields that this version of icekit does not have."""
    record: T = document_reader(record_type).validate_json(record_json)  # type: ignore[arg-type]  # a class has a hash
    return record


def latest_attempts(records: Iterable[ActionRecord]) -> tuple[ActionRecord, ...]:
    """The newest attempt at each action, by ordinal; ``records`` are in the order of writing.

    An action that was tried again after other commits starts from another snapshot, and has
    another record.
    """
    # Of two records of one attempt, the one written last counts: the sort keeps their order.
    records_in_order = sorted(records, key=lambda record: record.attempts)
    newest_by_action = {record.action_id: record for record in records_in_order}
    return tuple(
        sorted(newest_by_action.values(), key=lambda record: (record.ordinal, record.action_id))
    )
