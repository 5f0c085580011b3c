"""Keep what a run has done: the outcomes and proofs of its actions, and their records in the
ledger.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from icekit.common.errors import Status
from icekit.common.sql import display_name
from icekit.engine.lake import Lake
from icekit.health.facts.head import Head, head
from icekit.maintain.action import Action
from icekit.maintain.plan import Plan
from icekit.maintain.record.claims import ActionRecord, RunRecord, now_ms
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.run.action_progress import ActionProgress
from icekit.maintain.run.blocked import finding_text, stored_plan
from icekit.maintain.run.options import RunSettings
from icekit.maintain.run.outcome import ActionOutcome, Outcome, run_notes
from icekit.rows.proof.proof import Proof

# How the ledger stores the end of a run; all else has failed.
_RECORDED_STATUSES = {
    Status.DONE: Status.DONE,
    Status.REFUSED: Status.DONE,
    Status.STOPPED: Status.STOPPED,
    Status.DISPROVED: Status.DISPROVED,
}


@dataclass
class RunJournal:
    """The journal of one run; ``earlier_records`` is what a process that ended early has recorded
    of the actions, by their ids.
    """

    ledger: Ledger
    record: RunRecord
    earlier_records: Mapping[str, ActionRecord] = field(default_factory=dict)
    outcomes: list[ActionOutcome] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    def begin_run(self) -> None:
        """Record the run itself."""
        self.ledger.save_run(self.record)

    def begin_action(self, lake: Lake, action: Action, ordinal: int) -> ActionProgress:
        """Record that an action begins, or goes on from its earlier record, and return its
        progress; ``ordinal`` is its place in the plan.
        """
        now = head(lake, action.table, action.branch)
        # The parts of an action that is split begin anew.
        is_part = "." in action.action_id
        record = None if is_part else self.earlier_records.get(action.action_id)
        action_progress = ActionProgress(
            action, now.snapshot_id, now.sequence_number, ordinal, is_resumed=record is not None
        )
        if record is not None:
            action_progress.resume(record, now, self.record.run_id, self.earlier_records)
        self._record_action(action_progress, Status.RUNNING)
        return action_progress

    def note_commits(self, action_progress: ActionProgress, now: Head) -> None:
        """Note the commits of an action, as the table has them now, and record them: what was
        checked of a commit is known from then on, even if another job lets the commit expire before
        it is proved.
        """
        if action_progress.note_commits(
            now, self.record.run_id, {action_progress.action.action_id}
        ):
            self._record_action(action_progress, Status.RUNNING)

    def end_action(self, action_progress: ActionProgress, outcome: ActionOutcome) -> None:
        """Record how an action ended."""
        self.outcomes.append(outcome)
        self._record_action(action_progress, outcome.status, outcome.error)

    def _record_action(
        self, action_progress: ActionProgress, status: Status, error: str | None = None
    ) -> None:
        self.ledger.save_action(action_progress.as_record(self.record, status, error))

    def add_proof(self, proof: Proof) -> None:
        """Add the proof of an action; one that failed blocks the table from now on, also if the
        process is killed before it records the action.
        """
        self.proofs.append(proof)
        if proof.ok is False:
            disproved_record = replace(self.record, status=Status.DISPROVED, error=self.error)
            self.ledger.save_run(disproved_record)

    def end_run(
        self, plan: Plan, settings: RunSettings, start_time: float, iceberg_version: str
    ) -> Outcome:
        """The outcome of the run, with which it is recorded; ``start_time`` is a monotonic one."""
        begun_action_ids = {each.action.action_id.split(".")[0] for each in self.outcomes}
        pending_outcomes = [
            ActionOutcome(action, Status.PENDING)
            for action in plan.actions
            if action.action_id not in begun_action_ids
        ]
        outcome = Outcome(
            plan,
            self.record.run_id,
            (*self.outcomes, *pending_outcomes),
            proof=Proof.of(self.proofs) if self.proofs else None,
            seconds=time.monotonic() - start_time,
            notes=run_notes(plan, self.outcomes, settings.limits.prove),
            iceberg_version=iceberg_version,
        )
        recorded_status = _RECORDED_STATUSES.get(outcome.status, Status.FAILED)
        self.ledger.save_run(
            replace(self.record, status=recorded_status, ended_ms=now_ms(), error=self.error)
        )
        return outcome

    @property
    def is_disproved(self) -> bool:
        """Whether a proof failed."""
        return any(proof.ok is False for proof in self.proofs)

    @property
    def error(self) -> str | None:
        """Why the run failed; findings of its proofs come first."""
        if self.is_disproved:
            return " ".join(finding_text(proof) for proof in self.proofs if proof.ok is False)
        errors = [each.error for each in self.outcomes if each.status is Status.FAILED]
        return next(filter(None, errors), None)


def new_journal(lake: Lake, plan: Plan, ledger: Ledger, run_id: str) -> RunJournal:
    """The journal of a run that begins."""
    record = RunRecord(
        run_id,
        display_name(lake.sql_name(plan.table)),
        plan.table_uuid,
        status=Status.RUNNING,
        started_ms=now_ms(),
        ended_ms=None,
        plan=stored_plan(plan),
        error=None,
    )
    return RunJournal(ledger, record)


def resumed_journal(ledger: Ledger, record: RunRecord) -> RunJournal:
    """The journal of a run that ended early and goes on."""
    running_record = replace(record, status=Status.RUNNING, ended_ms=None, error=None)
    records_by_id = {each.action_id: each for each in ledger.actions(record.run_id)}
    return RunJournal(ledger, running_record, records_by_id)
