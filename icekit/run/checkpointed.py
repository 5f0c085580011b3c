"""Run the actions of a plan under a claim, record each before and after, prove it, and block the
table if the proof fails.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from icekit.catalog import Lake
from icekit.compact.actual import is_there, own_commits
from icekit.compact.claims import ActionRecord, RunRecord, now_ms
from icekit.compact.execute import require_api, smaller_parts
from icekit.compact.ledger import Ledger
from icekit.compact.model import CONVERT, Action, Plan
from icekit.compact.outcome import ActionOutcome, Outcome, as_before
from icekit.engine.bridge import iceberg_version, require_classic
from icekit.engine.errors import reason
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.metadata_tables import files_below, metadata_table
from icekit.errors import ParameterError
from icekit.facts.head import head
from icekit.facts.metadata import TARGET, number
from icekit.facts.orphans import ORPHAN_AGE, Say
from icekit.facts.paths import path_sql
from icekit.prove.proof import Check, Proof
from icekit.run.attempt import ActionProgress, Runner, ended_by
from icekit.run.blocked import finding, kept, refuse
from icekit.run.guard import ConversionGuard, DeletesGuard, Guard, ManifestGuard
from icekit.run.limits import Limits
from icekit.run.removals import ExpiryGuard, OrphanGuard
from icekit.sql import Identifier, display_name
from icekit.status import Status
from icekit.units import count, size, span

EXAMPLES = 20


def find_leftovers(
    lake: Lake, table: Identifier, since_ms: int
) -> tuple[tuple[str, ...], str | None]:
    """Data files under the table's location, written since a given moment, that no snapshot names.

    Returns at most twenty paths, and the command that removes all of them once they are three days
    old (a writer may be about to commit younger ones), unless another table keeps files there.
    Raises the errors of :func:`icekit.engine.metadata_tables.files_below`.
    """
    spark, name = lake.spark, lake.sql_name(table)
    metadata = head(lake, table).metadata
    folder = (metadata.get("properties") or {}).get(
        "write.data.path"
    ) or f"{metadata['location'].rstrip('/')}/data"
    written = files_below(spark, name, folder, since_ms)
    known = metadata_table(spark, name, "all_files")
    lost = (
        written.selectExpr("path", f"{path_sql('path')} AS plain")
        .join(known.selectExpr(f"{path_sql('file_path')} AS plain"), "plain", "left_anti")
        .select("path")
    )
    paths = tuple(sorted(str(row[0]) for row in lost.limit(EXAMPLES).collect()))
    if not paths:
        return (), None
    when = dt.datetime.now(dt.UTC) + ORPHAN_AGE
    command = (
        f"icekit maintain {shlex.quote(display_name(table))} --catalog {shlex.quote(lake.name)} "
        "--procedures remove_orphan_files"
    )
    return (
        paths,
        f"{command}, from {when:%Y-%m-%d %H:%M} UTC on (lists them; with --execute removes them)",
    )


_GUARDS: Mapping[str, type[Guard]] = {
    CONVERT: ConversionGuard,
    "rewrite_position_delete_files": DeletesGuard,
    "rewrite_manifests": ManifestGuard,
    "expire_snapshots": ExpiryGuard,
    "remove_orphan_files": OrphanGuard,
}


def guard_of(lake: Lake, action: Action, say: Say, stop: Stop) -> Guard:
    """The guard of an action, by its procedure; calls ``say`` with progress of slow checks;
    ``stop`` ends them.
    """
    return _GUARDS.get(action.procedure, Guard)(lake, action, say, stop)


# What the ledger stores of each commit.
_KEPT_OF_A_COMMIT = ("snapshot-id", "parent-snapshot-id", "summary")


@dataclass
class CheckpointedRun:
    """One run: the claim, the record, the actions in order, the proof; calls ``say`` with progress
    lines; ``stop`` ends it.
    """

    lake: Lake
    plan: Plan
    ledger: Ledger
    limits: Limits
    stop: Stop
    say: Say
    record: RunRecord = field(init=False)
    runner: Runner = field(init=False)
    outcomes: list[ActionOutcome] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    started_ms: int = field(default_factory=now_ms)

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
            started_ms=self.started_ms,
            ended_ms=None,
            plan=kept(self.plan),
            error=None,
        )
        return self._under_claim([(action, None) for action in self.plan.actions])

    def resume(self, record: RunRecord) -> Outcome:
        """Run what is left of a run that ended early."""
        self.record = replace(record, status=Status.RUNNING, ended_ms=None, error=None)
        before = {r.action_id: r for r in self.ledger.actions(record.run_id)}
        self.say(
            f"resuming run {record.run_id} on {self.table}, which began "
            f"{span(max(now_ms() - record.started_ms, 0))} ago"
        )
        return self._under_claim(
            [(action, before.get(action.action_id)) for action in self.plan.actions]
        )

    def _under_claim(self, todo: Sequence[tuple[Action, ActionRecord | None]]) -> Outcome:
        started = time.monotonic()
        uuid = self.plan.table_uuid or head(self.lake, self.plan.table).metadata.get("table-uuid")
        with self.ledger.claimed(self.table, self.record.run_id, uuid) as lost:
            # Checked only now: another run may have ended with a failed proof a moment ago.
            refuse(self.ledger, self.table, uuid)
            now = head(self.lake, self.plan.table)
            if self.plan.table_uuid and now.metadata.get("table-uuid") != self.plan.table_uuid:
                raise ParameterError(
                    f"{self.table} was dropped and created again since it was planned. Plan again."
                )
            version = iceberg_version(self.lake.spark, self.lake.name)
            require_api(self.lake.spark, [action for action, _ in todo])
            self.ledger.save_run(self.record)
            self.runner = Runner(
                self.lake, self.record.run_id, self.limits, self.stop, self.say, lost.is_set
            )
            came_through = False
            try:
                for index, (action, record) in enumerate(todo):
                    self._one(action, record, index, len(todo))
                    if self._disproved or self.stop.is_set:
                        break
                came_through = True
            except Stopped:
                self.stop.set(self.stop.reason or "person")
            except KeyboardInterrupt:
                self.stop.set()
            finally:
                pending = self._pending(todo)
                ended = self._ended(is_whole=came_through and not pending)
                self.ledger.save_run(
                    replace(self.record, status=ended, ended_ms=now_ms(), error=self._error)
                )
            if ended is Status.STOPPED:
                self.say(
                    f"stopped; commits made so far stay. Continue with `{self.plan.resume_command}`"
                )
        leftovers, clean_up = self._leftovers()
        if self.limits.prove == "none" and any(outcome.snapshot_ids for outcome in self.outcomes):
            self.notes.append("Nothing was compared before or after the commits: prove is none.")
        return Outcome(
            self.plan,
            self.record.run_id,
            (*self.outcomes, *pending),
            proof=Proof.of(self.proofs) if self.proofs else None,
            seconds=time.monotonic() - started,
            leftovers=leftovers,
            clean_up=clean_up,
            notes=tuple(self.notes),
            iceberg_version=version,
        )

    def _pending(self, todo: Sequence[tuple[Action, ActionRecord | None]]) -> list[ActionOutcome]:
        begun = {o.action.action_id.split(".")[0] for o in self.outcomes}
        return [
            ActionOutcome(action, Status.PENDING)
            for action, _ in todo
            if action.action_id not in begun
        ]

    def _ended(self, *, is_whole: bool) -> Status:
        """How the run ended, as the ledger stores it; ``is_whole`` if the run reached every
        action.
        """
        if self._disproved:
            return Status.DISPROVED
        if is_whole and all(
            o.status in {Status.DONE, Status.SKIPPED, Status.SPLIT} for o in self.outcomes
        ):
            return Status.DONE
        return Status.STOPPED if self.stop.is_set else Status.FAILED

    def _one(self, action: Action, record: ActionRecord | None, place: int, of: int) -> None:
        """Run one action and its parts; record and prove the result."""
        if record is not None and record.status == Status.DONE:
            if is_there(
                head(self.lake, self.plan.table, action.branch),
                record.snapshot_ids,
                record.started_ms or 0,
            ):
                self.say(f"[{place + 1}/{of}] {action.title}: done before")
                self.outcomes.append(as_before(action, record))
                return
            self.say(
                f"{action.title} was done before, but its commits are no longer in the table's "
                "history (rolled back)"
            )
        if record is None or record.status != Status.SPLIT:
            predicted = action.prediction
            self.say(
                f"[{place + 1}/{of}] {action.title}: {predicted.change}, "
                f"{size(predicted.bytes_in)}{predicted.about}"
            )
        waiting = [(action, record)]
        while waiting:
            part, before = waiting.pop(0)
            parts = self._part(part, before, place)
            waiting = [*((p, None) for p in parts), *waiting]
            if self._disproved or self.stop.is_set:
                self.outcomes += [ActionOutcome(part, Status.PENDING) for part, _ in waiting]
                return

    def _part(self, action: Action, record: ActionRecord | None, place: int) -> Sequence[Action]:
        """Run one part; returns the smaller parts to run instead, if it was too large."""
        progress, started_ms = self._begun(action, record), now_ms()

        def so_far(status: Status, error: str | None = None) -> ActionOutcome:
            return ActionOutcome(
                action,
                status,
                attempts=progress.attempts,
                actual=progress.actual,
                seconds=progress.seconds,
                snapshot_ids=tuple(progress.snapshot_ids),
                error=error,
            )

        def save(outcome: ActionOutcome) -> None:
            is_over = outcome.status is not Status.RUNNING
            self.ledger.save_action(
                ActionRecord(
                    self.record.run_id,
                    action.action_id,
                    ordinal=place,
                    table=self.table,
                    starting_snapshot_id=progress.starting_snapshot_id,
                    status=outcome.status,
                    attempts=outcome.attempts,
                    predicted=action.prediction,
                    actual=outcome.actual if is_over and outcome.actual.any else None,
                    seconds=round(outcome.seconds, 3) if is_over and record is None else None,
                    snapshot_ids=outcome.snapshot_ids,
                    started_ms=started_ms,
                    ended_ms=now_ms() if is_over else None,
                    error=outcome.error,
                    commits=tuple(
                        {key: commit.get(key) for key in _KEPT_OF_A_COMMIT}
                        for commit in progress.commits.values()
                    ),
                )
            )

        save(so_far(Status.RUNNING))
        # What was checked of a commit is known from then on, even if another job lets the commit
        # expire before it is proved.
        progress.on_commit = lambda: save(so_far(Status.RUNNING))
        guard = guard_of(self.lake, action, self.say, self.stop)
        parts: Sequence[Action] = ()
        try:
            status, error = self._done(guard, progress), None
        except (Exception, KeyboardInterrupt) as problem:
            status, error = ended_by(problem, progress.attempts)
            if status is Status.STOPPED:
                self.stop.set(self.stop.reason or "person")
            if status is Status.SPLIT:
                status, parts = self._split(action, problem)
        outcome = so_far(status, error)
        outcome = replace(outcome, status=self._proved(outcome, guard, progress))
        self.outcomes.append(outcome)
        # Recorded only now: a run that is killed during the proof is proved when it is resumed.
        save(outcome)
        return parts

    def _split(self, action: Action, problem: BaseException) -> tuple[Status, Sequence[Action]]:
        """The smaller parts to run instead of an action that was too large, if there are any."""
        parts: Sequence[Action] = ()
        with contextlib.suppress(Exception):
            properties = head(self.lake, self.plan.table).metadata.get("properties") or {}
            floor_bytes = self.limits.retry.floor_files * number(properties, TARGET)
            parts = smaller_parts(self.lake, action, floor_bytes=floor_bytes)
        split = f"split into {count(len(parts), 'part')}"
        self.say(f"  {problem}; " + (split if parts else "it cannot be made smaller"))
        return Status.SPLIT if parts else Status.FAILED, parts

    def _begun(self, action: Action, record: ActionRecord | None) -> ActionProgress:
        """The progress of an action so far: that of a killed run is in the table's history, and in
        its record.
        """
        now = head(self.lake, self.plan.table, action.branch)
        progress = ActionProgress(now.snapshot_id, now.sequence_number)
        if record is not None and record.starting_snapshot_id is not None:
            # The killed run began earlier: its commits are in the lineage.
            progress.starting_snapshot_id = record.starting_snapshot_id
            by_id = {s["snapshot-id"]: s for s in now.lineage()}
            begun = by_id.get(record.starting_snapshot_id)
            progress.starting_sequence_number = int(
                (begun or {}).get("sequence-number") or progress.starting_sequence_number
            )
            progress.attempts = record.attempts
            if record.attempts:
                progress.result = replace(progress.result, manifest_lists=None)
            # Including the commits of the smaller actions that it was split into.
            ids = {
                r.action_id
                for r in self.ledger.actions(self.record.run_id)
                if f"{r.action_id}.".startswith(f"{action.action_id}.")
            }
            progress.commits = {int(commit["snapshot-id"]): commit for commit in record.commits}
            progress.note(own_commits(now, self.record.run_id, ids, among=record.snapshot_ids), now)
        return progress

    def _done(self, guard: Guard, progress: ActionProgress) -> Status:
        """Run what the guard allows of an action until nothing of it is left."""
        # A request to stop also ends the checks of the guard.
        with self.stop.watching(self.lake.spark):
            ready = guard.ready()
        if ready is not None:
            progress.before_call = guard.check
            self.runner.complete(ready, progress)
            guard.commits = progress.commits
            progress.actual = guard.actual(progress.actual, progress.snapshot_ids)
        return Status.DONE if progress.attempts or progress.actual.any else Status.SKIPPED

    def _proved(self, outcome: ActionOutcome, guard: Guard, progress: ActionProgress) -> Status:
        """Report an action, prove it, and return its status; a failed proof blocks the table before
        anything else is recorded.
        """
        try:
            self.say(f"  {outcome.text}")
            guard.result, guard.commits = progress.result, progress.commits
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
            proof = guard.proof(outcome.snapshot_ids, self.limits)
        except Exception as problem:
            # The action is done, and the other actions are not at fault; but it is not proved.
            why = f"Action {outcome.action.action_id} could not be proved: {reason(problem)}"
            proof = Proof(self.plan.name, (), 0.0, kept=(Check(None, why),))
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

    def _leftovers(self) -> tuple[tuple[str, ...], str | None]:
        """Files left by failed attempts, if there were any."""
        if (
            all(
                o.status in {Status.DONE, Status.SKIPPED} and o.attempts <= 1 for o in self.outcomes
            )
            and self.record.started_ms == self.started_ms
        ):
            return (), None
        with contextlib.suppress(Exception):
            return find_leftovers(self.lake, self.plan.table, self.record.started_ms)
        self.notes.append(
            "The table's location could not be listed, so files of failed attempts are not "
            "reported."
        )
        return (), None
