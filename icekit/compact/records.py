"""What the ledger keeps of a run and of its actions, and how it is written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from icekit.secrets import mask_data

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
