"""What a failed attempt means: whether a fresh plan may succeed, smaller parts may, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from icekit.common import frozen
from icekit.common.errors import (
    CatalogUnreachable,
    CommitBroken,
    DiskFull,
    EngineFailed,
    IcekitError,
    MetadataUnreadable,
    Status,
)
from icekit.common.units import count, count_with_verb, size
from icekit.engine.causes import is_engine_error, java_classes, was_writing_for_spark
from icekit.engine.disks import collect_garbage, disk_of, fullest_local_disk
from icekit.engine.errors import failure_kind, is_file_gone, reason
from icekit.engine.interrupting import Stopped
from icekit.engine.lake import Lake
from icekit.health.facts.head import Head, head
from icekit.maintain.action import Action
from icekit.maintain.record.results import actual
from icekit.maintain.run.action_progress import ActionProgress
from icekit.maintain.run.lost_files import lost_files
from icekit.maintain.run.outside_changes import OutsideChanges, outside_changes
from icekit.maintain.run.rewrite import RewriteResult
from icekit.maintain.run.smaller_actions import remaining_expiry
from icekit.rows.deletes.convert import is_refused


class Conflict(Exception):
    """Something was in the way that a fresh plan may survive: another job's change, an answer that
    did not come, or a commit of ours that is missing from the table.
    """


class TooLarge(Exception):
    """A group failed, or the cluster was too small for the action."""


def ended_by(problem: BaseException) -> tuple[Status, str | None]:
    """How an error ends an action, and what is said of it; ``split``: it was too large, and is to
    be run in smaller parts.
    """
    if isinstance(problem, TooLarge):
        return Status.SPLIT, str(problem)
    if isinstance(problem, (Stopped, KeyboardInterrupt)):
        return Status.STOPPED, None
    if isinstance(problem, Conflict):
        advice = (
            "Run it again when the catalog answers and fewer writers are active, or with a "
            "narrower time window; the engine logs more."
        )
        return Status.FAILED, f"{problem}. {advice}"
    return Status.FAILED, str(problem) if isinstance(problem, IcekitError) else reason(problem)


@frozen
class Attempt:
    """One attempt at an action: the table before and after it, and how it ended.

    ``commits_before`` are the ids of the commits that the action had made until then; ``end`` is
    the engine's result, or its error.
    """

    action: Action
    before: Head
    now: Head
    commits_before: Collection[int]
    end: RewriteResult | Exception


def require_success(
    lake: Lake, attempt: Attempt, progress: ActionProgress, say: Callable[[str], None]
) -> None:
    """Raise what the failure of an attempt means; the engine's result goes into the progress."""
    own_commits = {
        snapshot_id: commit
        for snapshot_id, commit in progress.commits.items()
        if snapshot_id not in attempt.commits_before
    }
    outside = outside_changes(attempt.before, attempt.now, progress.commits)
    result = attempt.end
    if isinstance(result, Exception):
        # Unless it certainly committed nothing, nobody knows how much a failed attempt did.
        if attempt.now.metadata != attempt.before.metadata and not is_refused(result):
            progress.is_counted = False
        if own_commits:
            _require_files(lake, attempt, own_commits.keys(), progress, say)
        raise _meaning(lake, result, attempt.action, outside, progress, bool(own_commits))
    progress.result = result
    if result.slow_because:
        say(f"  {result.slow_because}")
    if result.is_idle and not own_commits:
        progress.attempts -= 1  # there was nothing to do
    _require_all_replaced(result, actual(own_commits.values()).files_in, outside)


def _require_files(
    lake: Lake,
    attempt: Attempt,
    own_ids: Collection[int],
    progress: ActionProgress,
    say: Callable[[str], None],
) -> None:
    """Say which commits of a failed attempt are in the table, and see that their files exist;
    raises :class:`~icekit.common.errors.CommitBroken` if some do not.
    """
    action = attempt.action
    progress.doubtful |= set(own_ids)
    for lost in lost_files(
        lake, action.table, attempt.now, action.branch, own_ids, with_data=progress.doubtful
    ):
        raise CommitBroken(f"{lost.text} Nothing else may be lost: do this first.")
    say(
        f"  {count_with_verb(len(own_ids), 'commit', 'is', 'are')} in the table although the attempt "
        "failed, and no file of them is missing"
    )


def _meaning(
    lake: Lake,
    failure: Exception,
    action: Action,
    outside: OutsideChanges,
    progress: ActionProgress,
    has_committed: bool,
) -> Exception:
    """What is raised for a failed attempt."""
    if failure_kind(failure) == "full":
        return DiskFull(full_disk(lake, failure, action))
    # Another job's expiry came first.
    is_expired = action.procedure == "expire_snapshots" and remaining_expiry(lake, action) != action
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


def _require_all_replaced(result: RewriteResult, replaced: int, outside: OutsideChanges) -> None:
    """Raise unless all data files of the plan were replaced: with partial progress an engine only
    logs what failed.
    """
    planned_rewrite = result.planned
    missing = planned_rewrite.files_in - replaced if planned_rewrite else 0
    if planned_rewrite is None or missing <= 0:
        return
    if result.failed_groups:
        failed = f"{count(result.failed_groups, 'group')} of {planned_rewrite.groups:,} failed"
        if outside.definition or outside.is_gone:
            raise Conflict(with_changes(outside, f"{failed}; {result.reason}"))
        raise TooLarge(f"{failed}; {result.reason}")
    raise Conflict(
        f"a commit failed: {missing:,} of {count(planned_rewrite.files_in, 'planned data file')} not "
        "replaced"
    )


def cause_of(
    failure: Exception,
    outside: OutsideChanges,
    *,
    is_repeated: bool = False,
    has_committed: bool = False,
    is_expired: bool = False,
) -> Exception:
    """A failed attempt's error as a conflict, as too large an action, as a refusal for good, or as
    it is.

    What decides is the class of the error, and what other jobs changed meanwhile. Any error is a
    conflict if they changed the table's definition. So is a refusal, or a file that is gone, if
    they moved the branch; and if they did not, once: ``is_repeated`` is an error of the same
    classes as that of the attempt before. So is, once, an engine's error that says nothing, if they
    changed anything. ``has_committed``: the attempt itself has moved the branch. ``is_expired``:
    snapshots that an expiry was to remove are gone.
    """
    kind = failure_kind(failure)
    message = reason(failure)
    if kind == "capacity":
        return TooLarge(message)
    conflict = Conflict(with_changes(outside, message))
    is_unread = isinstance(failure, MetadataUnreadable) or is_file_gone(failure)
    is_known = isinstance(failure, IcekitError) and not is_unread
    if kind in {"conflict", "unreachable"} or outside.definition or is_expired:
        return conflict
    if is_known:
        return failure
    if kind == "refused" or is_unread:
        if outside.has_moved or has_committed or not is_repeated:
            return conflict
        if kind == "refused":
            return EngineFailed(
                f"Iceberg refuses this action, also with a fresh plan: {message}. It would refuse "
                "the next attempt, too."
            )
        return failure
    if is_engine_error(failure) and (outside.is_gone or (outside.any and not is_repeated)):
        return conflict
    return failure


def with_changes(outside: OutsideChanges, message: str) -> str:
    """A reason, and what other jobs changed meanwhile."""
    return f"{outside.text}: {message}" if outside.any else message


def head_or_stop(lake: Lake, action: Action, say: Callable[[str], None]) -> Head:
    """The table after an attempt; stops the run if it cannot be read: when the run is resumed, it
    finds the commits of the action, and proves them.
    """
    try:
        return head(lake, action.table, action.branch)
    except Exception as unread:
        say(f"  the table could not be read after the attempt ({reason(unread)})")
        raise Stopped from unread


@contextlib.contextmanager
def unreachable_as_conflict() -> Iterator[None]:
    """Raise a catalog or storage that does not answer as a conflict: it may answer next time."""
    try:
        yield
    except CatalogUnreachable as error:
        raise Conflict(str(error).rstrip(".")) from error
    except Exception as error:
        if failure_kind(error) != "unreachable":
            raise
        raise Conflict(reason(error)) from error


def full_disk(lake: Lake, failure: Exception, action: Action) -> str:
    """Sentences that say which disk is full, how much is needed, and what to do."""
    prediction = action.prediction
    # A file that could not be closed holds its space although it was removed.
    collect_garbage(lake.spark)
    if was_writing_for_spark(failure):
        disk = fullest_local_disk(lake.spark)
        whose = "Spark's local directory"
        needed = max(prediction.shuffle_bytes, prediction.bytes_in)
        advice = "set spark.local.dir to a larger disk"
    else:
        location = str(head(lake, action.table).metadata.get("location") or "")
        disk = disk_of(lake.spark, location)
        whose = "the table"
        needed = prediction.bytes_out
        advice = "compact fewer partitions at once (--budget)"
    folder = f" ({disk.folder})" if disk else ""
    free = f"; {size(disk.free_bytes)} are free now" if disk else ""
    return (
        f"The disk of {whose}{folder} is full: {reason(failure)}. This action needs about "
        f"{size(needed)} there{free}. icekit did not try again, and removed what this attempt had "
        f"written as far as it could list it. Free some space, or {advice}; then run it again."
    )
