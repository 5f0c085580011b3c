"""The life of a run: what happens to the actions of a plan, from the claim to the last record.

A run claims its table, so that no other run works on it, and refuses if the proof of an earlier run
failed. Then it takes the actions of its plan one by one:

1. What an earlier process has done, and the table still has, is not done again.
2. The action is recorded in the ledger before anything is written.
3. Its guard says whether it may run: what removes files looks them up in other tables first.
4. Attempts execute what is left of the action in the table. Each commit is checked before it is
   made, and tagged with the run and the action. After a conflict the next attempt plans anew; an
   action that is too large is split into smaller ones.
5. The commits are proved, and the outcome is recorded. A failed proof blocks the table.

Meanwhile a heartbeat renews the claim. A lost claim, Ctrl-C or the end of the time stops the run;
its commits stay, and a run that is resumed goes on from there. In the end the run is recorded, and
the table is released.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from icekit.common.errors import Status
from icekit.common.units import size
from icekit.engine.bridge import iceberg_version, require_classic
from icekit.engine.interrupting import Stopped
from icekit.engine.lake import Lake
from icekit.health.facts.head import head
from icekit.maintain.action import Action
from icekit.maintain.plan import Plan
from icekit.maintain.record.results import ACTION_TAG, RUN_TAG
from icekit.maintain.run.action_progress import ActionProgress, is_in_table
from icekit.maintain.run.blocked import refuse_blocked
from icekit.maintain.run.current_names import with_current_names
from icekit.maintain.run.execute import executing
from icekit.maintain.run.failures import (
    Attempt,
    Conflict,
    head_or_stop,
    require_success,
    status_and_message,
    unreachable_as_conflict,
)
from icekit.maintain.run.guard import Guard, guard_of, proof_of
from icekit.maintain.run.journal import RunJournal
from icekit.maintain.run.options import RunSettings
from icekit.maintain.run.outcome import ActionOutcome, Outcome, recorded_outcome
from icekit.maintain.run.preconditions import check_action, require_api, require_same_table
from icekit.maintain.run.rewrite import RewriteResult
from icekit.maintain.run.smaller_actions import remaining_action, split_action

# Choices: seconds between two lines about an action at work, and between two looks for its commits.
_SAY_SECONDS = 10.0
_LOOK_SECONDS = 60.0


@dataclass
class PlanRun:
    """One run of a plan."""

    lake: Lake
    plan: Plan
    settings: RunSettings
    journal: RunJournal
    is_claim_lost: Callable[[], bool] = field(init=False)

    def __post_init__(self) -> None:
        require_classic(self.lake.spark)
        self.say = self.settings.say
        self.stop = self.settings.stop

    def run(self) -> Outcome:
        """Claim the table, run the actions, record how the run ended, and release the table."""
        start_time = time.monotonic()
        ledger = self.journal.ledger
        record = self.journal.record
        with ledger.hold(record.table, record.run_id, record.table_uuid) as self.is_claim_lost:
            # Only now: another run may have ended with a failed proof a moment ago.
            refuse_blocked(ledger, record.table, record.table_uuid)
            require_same_table(self.lake, self.plan)
            version = iceberg_version(self.lake.spark, self.lake.name)
            require_api(self.lake.spark, self.plan.actions)
            self.journal.begin_run()
            try:
                for ordinal, action in enumerate(self.plan.actions):
                    self._run_action(action, ordinal)
                    if self.journal.is_disproved or self.stop.is_set:
                        break
            except Stopped:
                self.stop.set(self.stop.reason or "person")
            except KeyboardInterrupt:
                self.stop.set()
            finally:
                outcome = self.journal.end_run(self.plan, self.settings, start_time, version)
            if outcome.status is Status.STOPPED:
                self.say(
                    f"stopped; commits made so far stay. Continue with `{self.plan.resume_command}`"
                )
        return outcome

    def _run_action(self, action: Action, ordinal: int) -> None:
        """Run an action, or the smaller ones that it is split into."""
        record = self.journal.earlier_records.get(action.action_id)
        title = f"[{ordinal + 1}/{len(self.plan.actions)}] {action.title}"
        if record is not None and record.status is Status.DONE:
            if is_in_table(self.lake, action, record):
                self.say(f"{title}: done before")
                self.journal.outcomes.append(recorded_outcome(action, record))
                return
            self.say(
                f"{action.title} was done before, but its commits are no longer in the table's "
                "history (rolled back)"
            )
        if record is None or record.status is not Status.SPLIT:
            change = f"{action.prediction.change_text}, {size(action.prediction.bytes_in)}"
            self.say(f"{title}: {change}{action.prediction.duration_suffix}")
        pending_parts = [action]
        try:
            while pending_parts:
                pending_parts[:1] = self._run_part(pending_parts[0], ordinal)
                if self.journal.is_disproved or self.stop.is_set:
                    break
        finally:
            # Also where an error ends the run: it is not done, and can be resumed.
            self.journal.outcomes += [ActionOutcome(p, Status.PENDING) for p in pending_parts]

    def _run_part(self, action: Action, ordinal: int) -> Sequence[Action]:
        """Record an action, run it as its guard allows, prove it, and record its outcome; returns
        the smaller actions to run instead, if it was too large.
        """
        action_progress = self.journal.begin_action(self.lake, action, ordinal)
        guard = guard_of(self.lake, self.settings, action_progress)
        smaller_parts: Sequence[Action] = ()
        error: str | None = None
        error_class: str | None = None
        try:
            # A request to stop also ends the checks of the guard.
            with self.stop.cancel_jobs_on_stop(self.lake.spark):
                guarded_action = guard.action_to_run()
            if guarded_action is not None:
                self._run_attempts(guarded_action, guard, action_progress)
                action_progress.actual = guard.actual()
            has_run = action_progress.attempts > 0 or action_progress.actual.has_changes
            status = Status.DONE if has_run else Status.SKIPPED
        except (Exception, KeyboardInterrupt) as problem:
            status, error = status_and_message(problem)
            error_class = type(problem).__name__ if error else None
            if status is Status.STOPPED:
                self.stop.set(self.stop.reason or "person")
            if status is Status.SPLIT:
                retry = self.settings.limits.retry
                smaller_parts, split_summary = split_action(self.lake, action, retry)
                status = Status.SPLIT if smaller_parts else Status.FAILED
                self.say(f"  {problem}; {split_summary}")
        executed_outcome = action_progress.as_outcome(self.lake, status, error, error_class)
        proved_outcome = replace(executed_outcome, status=self._prove(executed_outcome, guard))
        # Recorded only now: a run that is killed during the proof is proved when it is resumed.
        self.journal.end_action(action_progress, proved_outcome)
        return smaller_parts

    def _run_attempts(self, action: Action, guard: Guard, action_progress: ActionProgress) -> None:
        """Attempt an action until nothing of it is left; after a conflict again, some times."""
        retry = self.settings.limits.retry
        for attempt in itertools.count(1):
            try:
                with unreachable_as_conflict():
                    self._attempt(action, guard, action_progress)
                return
            except Conflict as conflict:
                if attempt >= retry.attempts:
                    raise
                self.say(f"  conflict ({conflict}); trying again with a fresh plan")
            self.stop.sleep(retry.wait_seconds(attempt))

    def _attempt(self, action: Action, guard: Guard, action_progress: ActionProgress) -> None:
        """Execute what is left of an action; raises what its failure means."""
        head_before = head(self.lake, action.table, action.branch)
        current_action = with_current_names(action, head_before.metadata)
        remaining_part = remaining_action(self.lake, current_action, action_progress)
        if remaining_part is None:
            return
        if self.is_claim_lost():
            self.stop.set("claim")
            raise Stopped
        check_action(self.lake, remaining_part, head_before)
        guard.check_again()
        action_progress.attempts += 1
        commits_before = set(action_progress.commits)
        engine_end: RewriteResult | Exception
        try:
            with action_progress.count_time():
                engine_end = self._execute(remaining_part, action_progress)
        except (Stopped, KeyboardInterrupt):
            raise
        except Exception as error:
            engine_end = error
        finally:
            # Whatever the engine reported.
            head_after = head_or_stop(self.lake, action, self.say)
            self.journal.note_commits(action_progress, head_after)
        attempt = Attempt(remaining_part, head_before, head_after, commits_before, engine_end)
        require_success(self.lake, attempt, action_progress, self.say)

    def _execute(self, action: Action, action_progress: ActionProgress) -> RewriteResult:
        """Execute an action, tagged and checked; meanwhile watch the claim, and note commits before
        they can expire.
        """
        summary_tags = {RUN_TAG: self.journal.record.run_id, ACTION_TAG: action.action_id}
        is_checked = self.settings.limits.prove != "none"
        last_said_seconds = 0.0
        last_look_seconds = 0.0
        with executing(
            self.lake.spark, action, summary_tags, stop=self.stop, check=is_checked
        ) as execution:
            for seconds in execution.elapsed_seconds():
                if self.is_claim_lost():
                    self.stop.set("claim")
                if seconds - last_said_seconds >= _SAY_SECONDS:
                    last_said_seconds = seconds
                    self.say(f"  {seconds:.0f} s")
                if seconds - last_look_seconds >= _LOOK_SECONDS:
                    last_look_seconds = seconds
                    # What cannot be read now is read after the attempt.
                    with contextlib.suppress(Exception):
                        now = head_or_stop(self.lake, action, self.say)
                        self.journal.note_commits(action_progress, now)
        return execution.result()

    def _prove(self, executed_outcome: ActionOutcome, guard: Guard) -> Status:
        """Report an action, prove it, and return its status."""
        try:
            self.say(f"  {executed_outcome.text}")
            proof = proof_of(executed_outcome, guard)
            if proof is not None:
                self.journal.add_proof(proof)
                # If something is wrong, print all of it: a user who keeps only the progress output
                # then has the rollback, too.
                proof_lines = proof.lines()[: 1 if proof.ok else None]
                self.say("\n".join(f"  {line}" for line in proof_lines))
        except KeyboardInterrupt:
            # Nothing is left to do, but the action is not proved: a resumed run tries again.
            self.stop.set()
            return Status.STOPPED
        finally:
            guard.close()
        return executed_outcome.proved_status(proof)
