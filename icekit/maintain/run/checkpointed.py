"""Run the actions of a plan under a claim, record each before and after, prove it, and block the
table if the proof fails.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from icekit.common.command_line import command_line
from icekit.common.errors import ParameterError, Status
from icekit.common.sql import display_name
from icekit.common.units import count, size, span
from icekit.engine.bridge import iceberg_version, require_classic
from icekit.engine.errors import reason
from icekit.engine.interrupting import Stopped
from icekit.health.facts.head import head
from icekit.health.storage.orphans import ORPHAN_AGE
from icekit.iceberg.filter_opens import FilterOpens
from icekit.iceberg.metadata import TARGET, number_property, properties_of
from icekit.maintain.action import Action
from icekit.maintain.plan import Plan
from icekit.maintain.planning.file_order import actual_filter_opens
from icekit.maintain.record.claims import ActionRecord, RunRecord, now_ms
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.record.results import in_history
from icekit.maintain.run.attempt import ActionProgress, Runner
from icekit.maintain.run.blocked import finding, kept, refuse
from icekit.maintain.run.execute import require_api
from icekit.maintain.run.failures import ended_by
from icekit.maintain.run.guard import ExpiryGuard, Guard, OrphanGuard
from icekit.maintain.run.outcome import ActionOutcome, Outcome, recorded_outcome
from icekit.maintain.run.smaller_actions import smaller_parts
from icekit.rows.proof.proof import Check, Proof

_GUARDS: Mapping[str, type[Guard]] = {
    "expire_snapshots": ExpiryGuard,
    "remove_orphan_files": OrphanGuard,
}
# How the ledger stores the end of a run; all else has failed.
_RECORDED_AS = {status: status for status in (Status.DONE, Status.STOPPED, Status.DISPROVED)} | {
    Status.REFUSED: Status.DONE
}
# What the ledger stores of each commit.
_KEPT_OF_A_COMMIT = ("snapshot-id", "parent-snapshot-id", "summary")


@dataclass
class CheckpointedRun(Runner):
    """One run: the claim, the record, the actions in order, the proof."""

    plan: Plan
    ledger: Ledger
    record: RunRecord = field(init=False)
    outcomes: list[ActionOutcome] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    def __post_init__(self) -> None:
        require_classic(self.lake.spark)
        self.table = display_name(self.lake.sql_name(self.plan.table))

    def start(self, run_id: str) -> Outcome:
        """Run every action from the beginning."""
        self.record = RunRecord(
            run_id,
            self.table,
            self.plan.table_uuid,
            status=Status.RUNNING,
            started_ms=now_ms(),
            ended_ms=None,
            plan=kept(self.plan),
            error=None,
        )
        return self._under_claim({})

    def resume(self, record: RunRecord) -> Outcome:
        """Run what is left of a run that ended early."""
        self.record = replace(record, status=Status.RUNNING, ended_ms=None, error=None)
        before = {each.action_id: each for each in self.ledger.actions(record.run_id)}
        self.say(
            f"resuming run {record.run_id} on {self.table}, which began "
            f"{span(max(now_ms() - record.started_ms, 0))} ago"
        )
        return self._under_claim(before)

    def _under_claim(self, before: Mapping[str, ActionRecord]) -> Outcome:
        """Run the actions; ``before`` is what an earlier process recorded of them."""
        started = time.monotonic()
        uuid = self.plan.table_uuid
        with self.ledger.hold(self.table, self.record.run_id, uuid) as lost:
            # Checked only now: another run may have ended with a failed proof a moment ago.
            refuse(self.ledger, self.table, uuid)
            if head(self.lake, self.plan.table).metadata.get("table-uuid") != uuid:
                raise ParameterError(
                    f"{self.table} was dropped and created again since it was planned. Plan again."
                )
            version = iceberg_version(self.lake.spark, self.lake.name)
            require_api(self.lake.spark, self.plan.actions)
            self.ledger.save_run(self.record)
            self.run_id = self.record.run_id
            self.lost = lost
            try:
                for index, action in enumerate(self.plan.actions):
                    self._one(action, before.get(action.action_id), index)
                    if self._disproved or self.stop.is_set:
                        break
            except Stopped:
                self.stop.set(self.stop.reason or "person")
            except KeyboardInterrupt:
                self.stop.set()
            finally:
                outcome = Outcome(
                    self.plan,
                    self.run_id,
                    (*self.outcomes, *self._pending()),
                    proof=Proof.of(self.proofs) if self.proofs else None,
                )
                ended = _RECORDED_AS.get(outcome.status, Status.FAILED)
                self.ledger.save_run(
                    replace(self.record, status=ended, ended_ms=now_ms(), error=self._error)
                )
            if ended is Status.STOPPED:
                self.say(
                    f"stopped; commits made so far stay. Continue with `{self.plan.resume_command}`"
                )
        notes: list[str] = []
        unfinished = {Status.FAILED, Status.STOPPED, Status.SPLIT}
        if any(o.attempts > 1 or (o.attempts and o.status in unfinished) for o in self.outcomes):
            only = "--procedures", "remove_orphan_files"
            notes.append(
                "Failed attempts may have left files that no snapshot names. To list them, once "
                f"they are {ORPHAN_AGE.days} days old: "
                + command_line("maintain", self.lake.name, self.plan.table_name, *only)
            )
        if self.limits.prove == "none" and any(outcome.snapshot_ids for outcome in self.outcomes):
            notes.append("Nothing was compared before or after the commits: prove is none.")
        return replace(
            outcome,
            seconds=time.monotonic() - started,
            notes=tuple(notes),
            iceberg_version=version,
        )

    def _pending(self) -> list[ActionOutcome]:
        begun = {o.action.action_id.split(".")[0] for o in self.outcomes}
        return [
            ActionOutcome(action, Status.PENDING)
            for action in self.plan.actions
            if action.action_id not in begun
        ]

    def _one(self, action: Action, record: ActionRecord | None, number: int) -> None:
        """Run one action and its parts; record and prove the result."""
        title = f"[{number + 1}/{len(self.plan.actions)}] {action.title}"
        if record is not None and record.status == Status.DONE:
            if in_history(
                head(self.lake, self.plan.table, action.branch),
                record.snapshot_ids,
                record.started_ms or 0,
            ):
                self.say(f"{title}: done before")
                self.outcomes.append(recorded_outcome(action, record))
                return
            self.say(
                f"{action.title} was done before, but its commits are no longer in the table's "
                "history (rolled back)"
            )
        if record is None or record.status != Status.SPLIT:
            predicted = action.prediction
            self.say(
                f"{title}: {predicted.change_text}, {size(predicted.bytes_in)}{predicted.duration_suffix}"
            )
        waiting = [(action, record)]
        try:
            while waiting:
                parts = self._part(*waiting[0], number)
                waiting[:1] = [(part, None) for part in parts]
                if self._disproved or self.stop.is_set:
                    break
        finally:
            # Also where an error ends the run: it is not done, and can be resumed.
            self.outcomes += [ActionOutcome(part, Status.PENDING) for part, _ in waiting]

    def _part(self, action: Action, record: ActionRecord | None, number: int) -> Sequence[Action]:
        """Run one part; returns the smaller parts to run instead, if it was too large."""
        progress = self._begun(action, record)
        started_ms = now_ms()

        def save(status: Status, error: str | None = None) -> None:
            is_over = status is not Status.RUNNING
            self.ledger.save_action(
                ActionRecord(
                    self.run_id,
                    action.action_id,
                    ordinal=number,
                    table=self.table,
                    starting_snapshot_id=progress.starting_snapshot_id,
                    status=status,
                    attempts=progress.attempts,
                    predicted=action.prediction,
                    actual=progress.actual if is_over and progress.actual.has_changes else None,
                    seconds=round(progress.seconds, 3) if is_over and record is None else None,
                    snapshot_ids=tuple(progress.commits),
                    started_ms=started_ms,
                    ended_ms=now_ms() if is_over else None,
                    error=error,
                    commits=tuple(
                        {key: commit.get(key) for key in _KEPT_OF_A_COMMIT}
                        for commit in progress.commits.values()
                    ),
                )
            )

        save(Status.RUNNING)
        # What was checked of a commit is known from then on, even if another job lets the commit
        # expire before it is proved.
        progress.on_commit = lambda: save(Status.RUNNING)
        guard = _GUARDS.get(action.procedure, Guard)(self, action, progress)
        parts: Sequence[Action] = ()
        error_class: str | None = None
        try:
            status = self._done(guard, progress)
            error = None
        except (Exception, KeyboardInterrupt) as problem:
            status, error = ended_by(problem)
            error_class = type(problem).__name__ if error else None
            if status is Status.STOPPED:
                self.stop.set(self.stop.reason or "person")
            if status is Status.SPLIT:
                status, parts = self._split(action, problem)
        outcome = ActionOutcome(
            action,
            status,
            progress.attempts,
            progress.actual,
            progress.seconds,
            tuple(progress.commits),
            error,
            error_class,
            filters=self._filters(action, progress),
        )
        outcome = replace(outcome, status=self._proved(outcome, guard))
        self.outcomes.append(outcome)
        # Recorded only now: a run that is killed during the proof is proved when it is resumed.
        save(outcome.status, error)
        return parts

    def _filters(self, action: Action, progress: ActionProgress) -> tuple[FilterOpens, ...]:
        """What filters open of the files that an action took, and of those that it wrote; none if
        its commits cannot be read any more.
        """
        # What the action did does not depend on it.
        with contextlib.suppress(Exception):
            read = self.lake.tables.source(self.plan.table).read
            metadata = head(self.lake, self.plan.table).metadata
            return actual_filter_opens(read, metadata, action, progress.commits.values())
        return ()

    def _split(self, action: Action, problem: BaseException) -> tuple[Status, Sequence[Action]]:
        """The smaller parts to run instead of an action that was too large, if there are any."""
        parts: Sequence[Action] = ()
        split = "it cannot be made smaller"
        try:
            properties = properties_of(head(self.lake, self.plan.table).metadata)
            floor_bytes = self.limits.retry.floor_files * number_property(properties, TARGET)
            parts = smaller_parts(self.lake, action, floor_bytes=floor_bytes)
        except Exception as error:
            split = f"it could not be split ({reason(error)})"
        if parts:
            split = f"split into {count(len(parts), 'part')}"
        self.say(f"  {problem}; {split}")
        return Status.SPLIT if parts else Status.FAILED, parts

    def _begun(self, action: Action, record: ActionRecord | None) -> ActionProgress:
        """The progress of an action so far: that of a killed run is in the table's history, and in
        its record.
        """
        now = head(self.lake, self.plan.table, action.branch)
        progress = ActionProgress(now.snapshot_id, now.sequence_number, action.prediction.unit)
        if record is not None and record.starting_snapshot_id is not None:
            # The killed run began earlier: its commits are in the lineage.
            progress.starting_snapshot_id = record.starting_snapshot_id
            by_id = {s["snapshot-id"]: s for s in now.lineage()}
            begun = by_id.get(record.starting_snapshot_id)
            progress.starting_sequence_number = int(
                (begun or {}).get("sequence-number") or progress.starting_sequence_number
            )
            progress.attempts = record.attempts
            progress.is_counted = not record.attempts
            # Including the commits of the smaller actions that it was split into.
            ids = {
                r.action_id
                for r in self.ledger.actions(self.run_id)
                if f"{r.action_id}.".startswith(f"{action.action_id}.")
            }
            progress.commits = {int(commit["snapshot-id"]): commit for commit in record.commits}
            progress.note(now, self.run_id, ids)
            progress.doubtful = set(progress.commits)
        return progress

    def _done(self, guard: Guard, progress: ActionProgress) -> Status:
        """Run what the guard allows of an action until nothing of it is left."""
        # A request to stop also ends the checks of the guard.
        with self.stop.cancel_jobs_on_stop(self.lake.spark):
            final_action = guard.ready()
        if final_action is not None:
            progress.before_call = guard.check
            self.complete(final_action, progress)
            progress.actual = guard.actual()
        return Status.DONE if progress.attempts or progress.actual.has_changes else Status.SKIPPED

    def _proved(self, outcome: ActionOutcome, guard: Guard) -> Status:
        """Report an action, prove it, and return its status; a failed proof blocks the table before
        anything else is recorded.
        """
        try:
            self.say(f"  {outcome.text}")
            proof = self._proof(outcome, guard)
        except KeyboardInterrupt:
            # Nothing is left to do, but the action is not proved: a resumed run tries the proof
            # again.
            self.stop.set()
            return Status.STOPPED
        finally:
            guard.close()
        if proof is None or proof.ok:
            return outcome.status
        if proof.ok is False:
            # Recorded before the action: if the process is killed now, the table stays blocked.
            self.ledger.save_run(replace(self.record, status=Status.DISPROVED, error=self._error))
            return Status.DISPROVED
        return Status.UNPROVED if outcome.status in {Status.DONE, Status.SPLIT} else outcome.status

    def _proof(self, outcome: ActionOutcome, guard: Guard) -> Proof | None:
        """Compare the action's commits with their parents, or check what it must keep; None if
        there is nothing to compare.
        """
        if self.limits.prove == "none" or (
            not outcome.snapshot_ids and outcome.status != Status.DONE
        ):
            return None
        proof: Proof | None
        try:
            proof = guard.proof()
        except Exception as problem:
            # The action is done, and the other actions are not at fault; but it is not proved.
            why = f"Action {outcome.action.action_id} could not be proved: {reason(problem)}"
            proof = Proof(self.plan.table_name, (), 0.0, maintenance_checks=(Check(None, why),))
        if proof is None:
            return None
        self.proofs.append(proof)
        # If something is wrong, print all of it: a user who keeps only the progress output then has
        # the rollback, too.
        self.say("\n".join(f"  {line}" for line in proof.lines()[: 1 if proof.ok else None]))
        return proof

    @property
    def _disproved(self) -> bool:
        return any(proof.ok is False for proof in self.proofs)

    @property
    def _error(self) -> str | None:
        """Why the run failed; findings of its proofs come first."""
        if self._disproved:
            return " ".join(finding(proof) for proof in self.proofs if proof.ok is False)
        return next((o.error for o in self.outcomes if o.status == Status.FAILED and o.error), None)
