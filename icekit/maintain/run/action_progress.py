"""Hold what one action has done so far, across its attempts; written as a record of the ledger, and
as an outcome.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from icekit.common.errors import Status
from icekit.engine.lake import Lake
from icekit.health.facts.head import Head, head
from icekit.iceberg.filter_opens import FilterOpens
from icekit.iceberg.metadata import Json, snapshots_by_id
from icekit.maintain.action import Action
from icekit.maintain.planning.file_order import filter_opens_of_added_files
from icekit.maintain.record.claims import ActionRecord, RunRecord, now_ms
from icekit.maintain.record.results import Actual, actual_of, in_history, run_commits
from icekit.maintain.run.outcome import ActionOutcome
from icekit.maintain.run.rewrite import RewriteResult

# What the ledger stores of each commit.
_RECORDED_COMMIT_KEYS = ("snapshot-id", "parent-snapshot-id", "summary")


@dataclass
class ActionProgress:
    """The results of one action so far.

    ``commits`` are its commits by id, oldest first, as the table had them right after each.
    ``ordinal`` is the place of the action in its plan, from 0.
    """

    action: Action
    starting_snapshot_id: int | None
    starting_sequence_number: int
    ordinal: int = 0
    is_resumed: bool = False
    attempts: int = 0
    seconds: float = 0.0
    commits: dict[int, Json] = field(default_factory=dict)
    actual: Actual = field(default_factory=Actual)
    result: RewriteResult = field(default_factory=RewriteResult)
    #: Whether ``result`` covers every attempt that may have changed the table.
    is_result_complete: bool = True
    #: The commits of attempts that failed, or were killed: their files may be gone.
    doubtful_ids: set[int] = field(default_factory=set)
    #: Java's classes of the last failure.
    last_failure_classes: tuple[str, ...] = ()
    started_ms: int = field(default_factory=now_ms)

    def resume(
        self, record: ActionRecord, now: Head, run_id: str, recorded_action_ids: Collection[str]
    ) -> None:
        """Go on from what an earlier process did: it is in the table's history, and in its record.
        ``recorded_action_ids`` are the ids of all actions on record, also of the smaller ones that an
        action was split into.
        """
        if record.starting_snapshot_id is None:
            return
        # The earlier process began earlier: its commits are in the lineage.
        self.starting_snapshot_id = record.starting_snapshot_id
        lineage_snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in now.lineage()}
        starting_snapshot = lineage_snapshots.get(record.starting_snapshot_id) or {}
        self.starting_sequence_number = int(
            starting_snapshot.get("sequence-number") or self.starting_sequence_number
        )
        self.attempts = record.attempts
        self.is_result_complete = not record.attempts
        self.commits = {int(commit["snapshot-id"]): commit for commit in record.commits}
        part_prefix = f"{self.action.action_id}."
        own_action_ids = [
            action_id
            for action_id in recorded_action_ids
            if f"{action_id}.".startswith(part_prefix)
        ]
        self.note_commits(now, run_id, own_action_ids)
        self.doubtful_ids = set(self.commits)

    @contextlib.contextmanager
    def count_time(self) -> Iterator[None]:
        """Add the time of a block to that of the action."""
        start_time = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - start_time

    def note_commits(self, now: Head, run_id: str, action_ids: Collection[str]) -> bool:
        """Add the commits of the action, or of its parts, as the table has them now; those that
        another job has let expire since stay. Says whether the table has any.
        """
        own_snapshots = run_commits(now, run_id, action_ids, snapshot_ids=self.commits)
        current_snapshots = snapshots_by_id(now.metadata)
        expired_commits = {
            snapshot_id: commit
            for snapshot_id, commit in self.commits.items()
            if snapshot_id not in current_snapshots
        }
        self.commits = {
            **expired_commits,
            **{int(commit["snapshot-id"]): commit for commit in own_snapshots},
        }
        self.actual = actual_of(self.commits.values(), self.action.prediction.unit)
        return bool(own_snapshots)

    def as_record(self, run: RunRecord, status: Status, error: str | None = None) -> ActionRecord:
        """The action as the ledger stores it, at work or at its end."""
        is_over = status is not Status.RUNNING
        return ActionRecord(
            run.run_id,
            self.action.action_id,
            ordinal=self.ordinal,
            table=run.table,
            starting_snapshot_id=self.starting_snapshot_id,
            status=status,
            attempts=self.attempts,
            predicted=self.action.prediction,
            actual=self.actual if is_over and self.actual.has_changes else None,
            seconds=round(self.seconds, 3) if is_over and not self.is_resumed else None,
            snapshot_ids=tuple(self.commits),
            started_ms=self.started_ms,
            ended_ms=now_ms() if is_over else None,
            error=error,
            commits=tuple(
                {key: commit.get(key) for key in _RECORDED_COMMIT_KEYS}
                for commit in self.commits.values()
            ),
        )

    def as_outcome(
        self, lake: Lake, status: Status, error: str | None, error_class: str | None
    ) -> ActionOutcome:
        """The outcome of the action, before its proof."""
        return ActionOutcome(
            self.action,
            status,
            attempts=self.attempts,
            actual=self.actual,
            seconds=self.seconds,
            snapshot_ids=tuple(self.commits),
            error=error,
            error_class=error_class,
            filters=self._filter_opens(lake),
        )

    def _filter_opens(self, lake: Lake) -> tuple[FilterOpens, ...]:
        """What filters open of the files that the action took, and of those that it wrote; none if
        its commits cannot be read any more.
        """
        # What the action did does not depend on it.
        with contextlib.suppress(Exception):
            read_file = lake.tables.source(self.action.table).read
            metadata = head(lake, self.action.table).metadata
            return filter_opens_of_added_files(
                read_file, metadata, self.action, self.commits.values()
            )
        return ()


def is_in_table(lake: Lake, action: Action, record: ActionRecord) -> bool:
    """Whether the table still has the commits of an action that an earlier process recorded."""
    now = head(lake, action.table, action.branch)
    return in_history(now, record.snapshot_ids, record.started_ms or 0)
