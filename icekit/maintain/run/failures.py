"""What a failed attempt means: whether a fresh plan may succeed, smaller parts may, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from icekit.common.errors import (
    CatalogUnreachable,
    EngineFailed,
    IcekitError,
    MetadataUnreadable,
    Status,
)
from icekit.common.units import size
from icekit.engine.causes import is_engine_error, was_writing_for_spark
from icekit.engine.disks import collect_garbage, disk_of, fullest_local_disk
from icekit.engine.errors import failure_kind, is_file_gone, reason
from icekit.engine.interrupting import Stopped
from icekit.engine.lake import Lake
from icekit.health.facts.head import head
from icekit.maintain.action import Action
from icekit.maintain.run.outside_changes import OutsideChanges


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
