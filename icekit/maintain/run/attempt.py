"""Run one action until it is finished: retry after a conflict, split an action that is too
large.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from icekit.common.errors import (
    CommitBroken,
    DiskFull,
    EngineFailed,
    ParameterError,
)
from icekit.common.sql import display_name
from icekit.common.units import count, count_with_verb
from icekit.engine.causes import java_classes
from icekit.engine.errors import failure_kind, reason
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.lake import Lake
from icekit.health.facts.head import Head, head
from icekit.iceberg.definition import dropped_field_warning
from icekit.iceberg.manifests import is_delete_manifest, manifest_list, may_have_live_files
from icekit.iceberg.metadata import Json, check_clock, columns, schema_of, snapshots_by_id, specs
from icekit.maintain.action import CONVERT, Action
from icekit.maintain.planning.refusals import manifest_refusal, positions_refusal
from icekit.maintain.record.claims import now_ms
from icekit.maintain.record.results import ACTION_TAG, RUN_TAG, Actual, actual_of, run_commits
from icekit.maintain.run.current_names import with_current_names
from icekit.maintain.run.execute import deletes_left, execute
from icekit.maintain.run.failures import (
    Conflict,
    TooLarge,
    cause_of,
    full_disk,
    unreachable_as_conflict,
    with_changes,
)
from icekit.maintain.run.lost_files import lost_files
from icekit.maintain.run.options import Limits
from icekit.maintain.run.outside_changes import OutsideChanges, outside_changes
from icekit.maintain.run.rewrite import RewriteResult
from icekit.maintain.run.smaller_actions import narrowed, only_dangling, partitions_left
from icekit.rows.deletes.convert import is_refused_by_iceberg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The procedures that commit a snapshot.
_COMMITTING = frozenset(
    {"rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests", CONVERT}
)


# A choice: seconds between two looks for commits of an action that is still at work.
_LOOK_SECONDS = 60.0


@dataclass
class ActionProgress:
    """The results of one action so far; kept across its attempts.

    ``commits`` are its commits by id, oldest first, as the table had them right after each;
    ``on_commit`` is called when there are new ones, and ``before_call`` right before the engine is:
    it raises if the action must not run. ``unit`` is what the action's prediction counts.
    """

    starting_snapshot_id: int | None
    starting_sequence_number: int
    unit: str = "file"
    attempts: int = 0
    seconds: float = 0.0
    commits: dict[int, Json] = field(default_factory=dict)
    actual: Actual = field(default_factory=Actual)
    result: RewriteResult = field(default_factory=RewriteResult)
    #: Whether ``result`` covers every attempt that may have changed the table.
    is_counted: bool = True
    #: The commits of attempts that failed, or were killed: their files may be gone.
    doubtful: set[int] = field(default_factory=set)
    #: Java's classes of the last failure.
    last_failure: tuple[str, ...] = ()
    on_commit: Callable[[], None] = lambda: None
    before_call: Callable[[], None] = lambda: None

    def note(self, now: Head, run_id: str, action_ids: Collection[str]) -> None:
        """Add the commits of the action, or of its parts, as the table has them now; those that
        another job has let expire since stay.
        """
        commits = run_commits(now, run_id, action_ids, snapshot_ids=self.commits)
        snapshots = snapshots_by_id(now.metadata)
        missing_commits = {
            each: commit for each, commit in self.commits.items() if each not in snapshots
        }
        self.commits = {
            **missing_commits,
            **{int(commit["snapshot-id"]): commit for commit in commits},
        }
        self.actual = actual_of(self.commits.values(), self.unit)
        if commits:
            self.on_commit()


@dataclass
class Runner:
    """Runs actions of one run on one table; calls ``say`` with progress lines; ``stop`` ends it.

    Under the claim of the run, ``lost`` tells whether another run has taken the table over.
    """

    lake: Lake
    limits: Limits
    stop: Stop
    say: Callable[[str], None]
    run_id: str = field(init=False)
    lost: Callable[[], bool] = field(init=False)

    @property
    def spark(self) -> SparkSession:
        """The session that runs the actions."""
        return self.lake.spark

    def complete(self, action: Action, progress: ActionProgress) -> None:
        """Run an action until the table has nothing left for it to do; ``progress`` is filled
        during the run.

        Conflicts are retried with a fresh plan. Raises :class:`Conflict` when all attempts are
        used, :class:`TooLarge`, :class:`Stopped`, or the engine's error.
        """
        retry = self.limits.retry
        retrying = Retrying(
            stop=stop_after_attempt(retry.attempts),
            wait=wait_random_exponential(multiplier=retry.first_wait, max=retry.longest_wait),
            retry=retry_if_exception_type(Conflict),
            sleep=self.stop.sleep,
            before_sleep=lambda state: self.say(
                "  conflict ("
                + str(state.outcome.exception() if state.outcome else "")
                + "); trying again with a fresh plan"
            ),
            reraise=True,
        )
        for attempt in retrying:
            with attempt, unreachable_as_conflict():
                self._attempt(action, progress)

    def what_is_left(self, action: Action, progress: ActionProgress) -> Action | None:
        """The action cut down to what is left of it in the table; None if nothing is left.

        The engine's planner selects what is left when the action runs; but it may also select files
        that the run itself has written: a rewrite of every file does, and deletes as new as the
        snapshot it started from still apply to its output. So a partition is done if the planner
        selects no file in it from before the run.
        """
        if action.procedure == CONVERT:
            # A batch of several commits may have been killed between them: the table shows what is
            # left.
            return action if not progress.attempts or deletes_left(self.spark, action) else None
        if action.procedure == "expire_snapshots":
            return self._unexpired(action)
        if not progress.actual.has_changes:
            return action
        if action.procedure != "rewrite_data_files":
            return None
        before = progress.starting_sequence_number
        # Format version 1 has no sequence numbers, which tell files from before the run.
        left = partitions_left(self.spark, action, before) if before else None
        if left is None or len(left) == len(action.partitions) > 0:
            return action
        # Dangling deletes are dropped in a separate commit, which a kill may have prevented.
        return narrowed(self.lake, action, left) if left else only_dangling(action)

    def _unexpired(self, action: Action) -> Action | None:
        """An expiry cut down to those of its snapshots that are still in the table: Iceberg may
        fail if most are not.
        """
        named_ids = action.arguments.get("snapshot_ids")
        if not isinstance(named_ids, tuple):
            return action
        snapshots = snapshots_by_id(head(self.lake, action.table).metadata)
        left = tuple(snapshot_id for snapshot_id in named_ids if snapshot_id in snapshots)
        return (
            replace(action, arguments={**action.arguments, "snapshot_ids": left}) if left else None
        )

    def _attempt(self, action: Action, progress: ActionProgress) -> None:
        before = head(self.lake, action.table, action.branch)
        left = self.what_is_left(with_current_names(action, before.metadata), progress)
        if left is None:
            return
        if self.lost():
            self.stop.set("claim")
            raise Stopped
        check_clock(before.metadata, display_name(action.table), now_ms())
        self._check_fragile(left, before)
        self._check_metadata_tables(left, before)
        progress.before_call()
        progress.attempts += 1
        earlier = set(progress.commits)
        started = time.monotonic()
        failure: Exception | None = None
        answer = RewriteResult()
        try:
            answer = execute(
                self.spark,
                left,
                {RUN_TAG: self.run_id, ACTION_TAG: action.action_id},
                stop=self.stop,
                tick=self._tick(action, progress),
                check=self.limits.prove != "none",
            )
        except (Stopped, KeyboardInterrupt):
            raise
        except Exception as error:
            failure = error
        finally:
            progress.seconds += time.monotonic() - started
            # Whatever the engine reported.
            now = self._note(action, progress)
            own_commits = {
                each: commit for each, commit in progress.commits.items() if each not in earlier
            }
        outside = outside_changes(before, now, progress.commits)
        if failure is not None:
            # Unless it certainly committed nothing, nobody knows how much a failed attempt did.
            if now.metadata != before.metadata and not is_refused_by_iceberg(failure):
                progress.is_counted = False
            self._check_commits(action, now, own_commits, progress)
            raise self._cause(failure, left, outside, progress, has_committed=bool(own_commits))
        progress.result = answer
        if answer.slow_because:
            self.say(f"  {answer.slow_because}")
        if answer.is_idle and not own_commits:
            progress.attempts -= 1  # there was nothing to do
        _check(answer, actual_of(own_commits.values()).files_in, outside)

    def _note(self, action: Action, progress: ActionProgress) -> Head:
        """Note the commits of an action, as the table has them now; stops the run if they cannot be
        read: when it is resumed, it finds them, and proves them.
        """
        try:
            now = head(self.lake, action.table, action.branch)
        except Exception as unread:
            self.say(f"  the table could not be read after the attempt ({reason(unread)})")
            raise Stopped from unread
        progress.note(now, self.run_id, {action.action_id})
        return now

    def _check_commits(
        self, action: Action, now: Head, own_ids: Collection[int], progress: ActionProgress
    ) -> None:
        """Say which commits of a failed attempt are in the table, and see that their files exist;
        raises :class:`~icekit.common.errors.CommitBroken` if some do not.
        """
        if not own_ids:
            return
        progress.doubtful |= set(own_ids)
        broken = lost_files(
            self.lake, action.table, now, action.branch, own_ids, with_data=progress.doubtful
        )
        for lost in broken:
            raise CommitBroken(f"{lost.text} Nothing else may be lost: do this first.")
        self.say(
            f"  {count_with_verb(len(own_ids), 'commit', 'is', 'are')} in the table although the attempt "
            "failed, and no file of them is missing"
        )

    def _cause(
        self,
        failure: Exception,
        action: Action,
        outside: OutsideChanges,
        progress: ActionProgress,
        *,
        has_committed: bool,
    ) -> Exception:
        """What is raised for a failed attempt."""
        if failure_kind(failure) == "full":
            return DiskFull(full_disk(self.lake, failure, action))
        # Another job's expiry came first.
        is_expired = action.procedure == "expire_snapshots" and self._unexpired(action) != action
        classes = java_classes(failure)
        is_repeated = classes == progress.last_failure
        progress.last_failure = classes
        return cause_of(
            failure,
            outside,
            is_repeated=is_repeated,
            has_committed=has_committed,
            is_expired=is_expired,
        )

    def _check_fragile(self, action: Action, before: Head) -> None:
        """Refuse a commit that may change which rows are deleted: the column of a partition field
        was dropped, see :func:`~icekit.iceberg.definition.dropped_field_warning`.
        """
        dropped_fields = {
            spec.spec_id: spec.dropped_column_fields
            for spec in specs(before.metadata)
            if spec.dropped_column_fields
        }
        is_whole = action.where is None and action.options.get("rewrite-all") == "true"
        is_whole = is_whole and action.options.get("partial-progress.enabled") != "true"
        if (
            not dropped_fields
            or is_whole
            or before.snapshot is None
            or action.procedure not in _COMMITTING
        ):
            return
        kinds = self._kinds(action, before.snapshot)
        fields = [
            name
            for spec_id, names in dropped_fields.items()
            if {(spec_id, True), (spec_id, False)} <= kinds
            for name in names
        ]
        if fields:
            raise ParameterError(
                f"{dropped_field_warning(fields)} Run icekit compact, which plans that rewrite."
            )

    def _kinds(self, action: Action, snapshot: Json) -> set[tuple[int, bool]]:
        """The specs that a snapshot's manifests have files of, each with whether these are delete
        files.
        """
        location = snapshot.get("manifest-list")
        if location is None:  # of format version 1, which has no deletes
            return set()
        source = self.lake.tables.source(action.table)
        return {
            (manifest["partition_spec_id"], is_delete_manifest(manifest))
            for manifest in manifest_list(source.read(location), location)
            if may_have_live_files(manifest)
        }

    def _check_metadata_tables(self, action: Action, before: Head) -> None:
        """Refuse an action of Iceberg's that reads a metadata table which it cannot read."""
        metadata = before.metadata
        every_spec = specs(metadata)
        refusal = ""
        if action.procedure == "rewrite_manifests":
            default_id = int(metadata.get("default-spec-id", 0))
            spec_id = int(str(action.arguments.get("spec_id", default_id)))
            refusal = manifest_refusal(every_spec, columns(metadata, schema_of(metadata)), spec_id)
        elif action.rewrites_position_deletes:
            refusal = positions_refusal(every_spec)
        if refusal:
            raise EngineFailed(f"Nothing was done. {refusal}")

    def _tick(self, action: Action, progress: ActionProgress) -> Callable[[float], None]:
        """Report from time to time how long the action has taken, and note its commits before they
        can expire.
        """
        reported = [0.0]
        looked = [0.0]

        def tick(seconds: float) -> None:
            if self.lost():
                self.stop.set("claim")
            if seconds - reported[0] >= 10:
                reported[0] = seconds
                self.say(f"  {seconds:.0f} s")
            if seconds - looked[0] >= _LOOK_SECONDS:
                looked[0] = seconds
                # What cannot be read now is read after the attempt.
                with contextlib.suppress(Exception):
                    self._note(action, progress)

        return tick


def _check(answer: RewriteResult, replaced: int, outside: OutsideChanges) -> None:
    """Compare the plan with the data files that were replaced: with partial progress an engine only
    logs what failed.
    """
    planned_rewrite = answer.planned
    missing = planned_rewrite.files_in - replaced if planned_rewrite else 0
    if planned_rewrite is None or missing <= 0:
        return
    if answer.failed_groups:
        failed = f"{count(answer.failed_groups, 'group')} of {planned_rewrite.groups:,} failed"
        if outside.definition or outside.is_gone:
            raise Conflict(with_changes(outside, f"{failed}; {answer.reason}"))
        raise TooLarge(f"{failed}; {answer.reason}")
    raise Conflict(
        f"a commit failed: {missing:,} of {count(planned_rewrite.files_in, 'planned data file')} not "
        "replaced"
    )
