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
from icekit.maintain.record.results import actual_of
from icekit.maintain.run.action_progress import ActionProgress
from icekit.maintain.run.lost_files import lost_files
from icekit.maintain.run.outside_changes import OutsideChanges, outside_changes
from icekit.maintain.run.rewrite import RewriteResult
from icekit.maintain.run.smaller_actions import remaining_expiry
from icekit.rows.deletes.convert import is_refused_by_iceberg


class Conflict(Exception):
    """Something was in the way that a fresh plan may survive: another job's change, an answer that
    did not come, or a commit of ours that is missing from the table.
    """


class TooLarge(Exception):
    """A group failed, or the cluster was too small for the action."""


def status_and_message(problem: BaseException) -> tuple[Status, str | None]:
    """How an error ends an action, and the message for it; ``split``: it was too large, and is to
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
    head_before: Head
    head_now: Head
    commits_before: Collection[int]
    end: RewriteResult | Exception


def require_success(
    lake: Lake, attempt: Attempt, action_progress: ActionProgress, say: Callable[[str], None]
) -> None:
    """Raise what the failure of an attempt means; the engine's result goes into the progress."""
    attempt_commits = {
        snapshot_id: commit
        for snapshot_id, commit in action_progress.commits.items()
        if snapshot_id not in attempt.commits_before
    }
    changes_by_others = outside_changes(
        attempt.head_before, attempt.head_now, action_progress.commits
    )
    result = attempt.end
    if isinstance(result, Exception):
        # Unless it certainly committed nothing, nobody knows how much a failed attempt did.
        if attempt.head_now.metadata != attempt.head_before.metadata and not is_refused_by_iceberg(
            result
        ):
            action_progress.is_result_complete = False
        if attempt_commits:
            _require_files(lake, attempt, attempt_commits.keys(), action_progress, say)
        raise _attempt_error(
            lake, result, attempt.action, changes_by_others, action_progress, bool(attempt_commits)
        )
    action_progress.result = result
    if result.slow_reason:
        say(f"  {result.slow_reason}")
    if result.is_idle and not attempt_commits:
        action_progress.attempts -= 1  # there was nothing to do
    _require_all_replaced(result, actual_of(attempt_commits.values()).files_in, changes_by_others)


def _require_files(
    lake: Lake,
    attempt: Attempt,
    commit_ids: Collection[int],
    action_progress: ActionProgress,
    say: Callable[[str], None],
) -> None:
    """Say which commits of a failed attempt are in the table, and see that their files exist;
    raises :class:`~icekit.common.errors.CommitBroken` if some do not.
    """
    action = attempt.action
    action_progress.doubtful_ids |= set(commit_ids)
    for commit_with_lost_files in lost_files(
        lake,
        action.table,
        attempt.head_now,
        action.branch,
        commit_ids,
        data_commit_ids=action_progress.doubtful_ids,
    ):
        raise CommitBroken(
            f"{commit_with_lost_files.text} Nothing else may be lost: do this first."
        )
    say(
        f"  {count_with_verb(len(commit_ids), 'commit', 'is', 'are')} in the table although the "
        "attempt failed, and no file of them is missing"
    )


def _attempt_error(
    lake: Lake,
    failure: Exception,
    action: Action,
    changes_by_others: OutsideChanges,
    action_progress: ActionProgress,
    has_committed: bool,
) -> Exception:
    """What is raised for a failed attempt."""
    if failure_kind(failure) == "full":
        return DiskFull(full_disk_message(lake, failure, action))
    # Another job's expiry came first.
    is_expired = action.procedure == "expire_snapshots" and remaining_expiry(lake, action) != action
    java_class_names = java_classes(failure)
    is_repeated = java_class_names == action_progress.last_failure_classes
    action_progress.last_failure_classes = java_class_names
    return error_for_failure(
        failure,
        changes_by_others,
        is_repeated=is_repeated,
        has_committed=has_committed,
        is_expired=is_expired,
    )


def _require_all_replaced(
    result: RewriteResult, replaced_count: int, changes_by_others: OutsideChanges
) -> None:
    """Raise unless all data files of the plan were replaced: with partial progress an engine only
    logs what failed.
    """
    planned_rewrite = result.planned_rewrite
    missing_count = planned_rewrite.files_in - replaced_count if planned_rewrite else 0
    if planned_rewrite is None or missing_count <= 0:
        return
    if result.failed_groups:
        failed_text = f"{count(result.failed_groups, 'group')} of {planned_rewrite.groups:,} failed"
        if changes_by_others.definition_changes or changes_by_others.is_start_gone:
            raise Conflict(
                message_with_changes(changes_by_others, f"{failed_text}; {result.failure_reason}")
            )
        raise TooLarge(f"{failed_text}; {result.failure_reason}")
    raise Conflict(
        f"a commit failed: {missing_count:,} of "
        f"{count(planned_rewrite.files_in, 'planned data file')} not replaced"
    )


def error_for_failure(
    failure: Exception,
    changes_by_others: OutsideChanges,
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
    failure_class = failure_kind(failure)
    message = reason(failure)
    if failure_class == "capacity":
        return TooLarge(message)
    conflict = Conflict(message_with_changes(changes_by_others, message))
    is_unreadable = isinstance(failure, MetadataUnreadable) or is_file_gone(failure)
    is_icekit_error = isinstance(failure, IcekitError) and not is_unreadable
    if (
        failure_class in {"conflict", "unreachable"}
        or changes_by_others.definition_changes
        or is_expired
    ):
        return conflict
    if is_icekit_error:
        return failure
    if failure_class == "refused" or is_unreadable:
        if changes_by_others.has_moved or has_committed or not is_repeated:
            return conflict
        if failure_class == "refused":
            return EngineFailed(
                f"Iceberg refuses this action, also with a fresh plan: {message}. It would refuse "
                "the next attempt, too."
            )
        return failure
    if is_engine_error(failure) and (
        changes_by_others.is_start_gone or (changes_by_others.any and not is_repeated)
    ):
        return conflict
    return failure


def message_with_changes(changes_by_others: OutsideChanges, message: str) -> str:
    """A reason, and what other jobs changed meanwhile."""
    return f"{changes_by_others.text}: {message}" if changes_by_others.any else message


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


def full_disk_message(lake: Lake, failure: Exception, action: Action) -> str:
    """Sentences that say which disk is full, how much is needed, and what to do."""
    prediction = action.prediction
    # A file that could not be closed holds its space although it was removed.
    collect_garbage(lake.spark)
    if was_writing_for_spark(failure):
        disk = fullest_local_disk(lake.spark)
        disk_owner = "Spark's local directory"
        needed_bytes = max(prediction.shuffle_bytes, prediction.bytes_in)
        advice_text = "set spark.local.dir to a larger disk"
    else:
        location = str(head(lake, action.table).metadata.get("location") or "")
        disk = disk_of(lake.spark, location)
        disk_owner = "the table"
        needed_bytes = prediction.bytes_out
        advice_text = "compact fewer partitions at once (--budget)"
    folder_text = f" ({disk.folder})" if disk else ""
    free_text = f"; {size(disk.free_bytes)} are free now" if disk else ""
    return (
        f"The disk of {disk_owner}{folder_text} is full: {reason(failure)}. This action needs "
        f"about {size(needed_bytes)} there{free_text}. icekit did not try again, and removed what "
        f"this attempt had written as far as it could list it. Free some space, or {advice_text}; then "
        "run it again."
    )
