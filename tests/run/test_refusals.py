"""Whether a failed attempt is tried again, by the class of the failure and by what happened to the
table meanwhile; pure.
"""

from typing import Any

import pytest

from icekit.engine.errors import FailureKind
from icekit.errors import EngineFailed
from icekit.facts.head import Head
from icekit.run.attempt import ActionProgress, Conflict, TooLarge, _as_kind, _moved
from tests.compact.test_execute import raised

ICEBERG = "org.apache.iceberg.exceptions."


def refusal(words: str = "Cannot find source column") -> Exception:
    chain = [
        ("org.apache.spark.SparkException", "Writing job aborted"),
        (f"{ICEBERG}ValidationException", words),
    ]
    return raised("An error occurred while calling o99.execute", *chain)


def outcome(
    error: Exception,
    progress: ActionProgress | None = None,
    *,
    is_alone: bool = True,
    has_committed: bool = False,
) -> Exception:
    return _as_kind(
        error, progress or ActionProgress(None, 0), is_alone=is_alone, has_committed=has_committed
    )


def test_a_refusal_is_a_conflict_only_if_the_head_moved() -> None:
    alone = outcome(refusal())
    others = outcome(refusal(), is_alone=False)

    assert isinstance(alone, EngineFailed)
    assert str(alone).startswith(
        "Iceberg refuses this action, and no other commit to this table came in between"
    )
    assert isinstance(others, Conflict)
    assert not others.is_alone


def test_a_refusal_after_commits_of_its_own_is_tried_again() -> None:
    error = outcome(refusal(), has_committed=True)

    assert isinstance(error, Conflict)
    assert error.is_alone


def test_the_same_refusal_three_times_in_a_row_is_no_conflict_however_busy_the_table_is() -> None:
    progress = ActionProgress(None, 0)
    kinds = [
        type(outcome(refusal(words), progress, is_alone=False))
        for words in ("a", "b", "b", "a", "a", "a")
    ]

    assert kinds == [Conflict] * 5 + [EngineFailed]


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("name", ["CommitFailedException", "CommitStateUnknownException"])
def test_a_commit_that_lost_a_race_or_whose_answer_is_lost_is_tried_again(
    name: str, *, is_alone: bool
) -> None:
    error = outcome(raised("x", (f"{ICEBERG}{name}", "503")), is_alone=is_alone)

    assert isinstance(error, Conflict)
    assert error.is_alone == is_alone


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (raised("x", ("java.lang.OutOfMemoryError", "heap")), "capacity"),
        (raised("x", ("java.lang.NullPointerException", None)), "other"),
    ],
)
def test_other_failures_are_no_conflict_even_if_the_head_moved(
    error: Exception, kind: FailureKind
) -> None:
    found = outcome(error, is_alone=False)

    assert isinstance(found, TooLarge) if kind == "capacity" else found is error


def at(*ids: int) -> Head:
    """A table with these commits, oldest first."""
    snapshots: list[dict[str, Any]] = [
        {"snapshot-id": i, "parent-snapshot-id": before}
        for before, i in zip([None, *ids], ids, strict=False)
    ]
    return Head({"snapshots": snapshots}, snapshots[-1] if snapshots else None)


@pytest.mark.parametrize(
    ("before", "now", "own", "moved"),
    [
        (at(1, 2), at(1, 2), [], False),
        (at(1, 2), at(1, 2, 3), [3], False),
        (at(1, 2), at(1, 2, 3, 4), [3], True),
        (at(), at(1), [], True),
        (at(), at(1), [1], False),
        (at(1, 2), at(1), [], True),
    ],
    ids=[
        "nothing",
        "own commit",
        "a commit of another",
        "the first commit",
        "own first commit",
        "rolled back",
    ],
)
def test_the_head_moves_by_commits_of_others(
    before: Head, now: Head, own: list[int], *, moved: bool
) -> None:
    assert _moved(before, now, own) == moved
