"""Whether a failed attempt is tried again, by the class of the failure and by what happened to the
table meanwhile; and how each kind of error ends an action. Pure.
"""

from typing import Any

import pytest

from icekit.common.errors import CloneRefused, EngineFailed, Status
from icekit.engine.interrupting import Stopped
from icekit.health.head import Head
from icekit.maintain.run.attempt import Conflict, TooLarge, _as_kind, _moved, ended_by
from tests.maintain.test_execute import raised

ICEBERG = "org.apache.iceberg.exceptions."


REFUSAL = raised(
    "An error occurred while calling o99.execute",
    ("org.apache.spark.SparkException", "Writing job aborted"),
    (f"{ICEBERG}ValidationException", "Cannot find source column"),
)


def test_a_refusal_is_final_only_if_nobody_has_changed_the_table() -> None:
    final = _as_kind(REFUSAL, is_final=True)

    assert isinstance(final, EngineFailed)
    assert str(final).startswith(
        "Iceberg refuses this action, and no other commit to this table came in between"
    )
    assert isinstance(_as_kind(REFUSAL, is_final=False), Conflict)


@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{ICEBERG}CommitFailedException", Conflict),
        (f"{ICEBERG}CommitStateUnknownException", Conflict),
        ("java.lang.OutOfMemoryError", TooLarge),
        ("java.lang.NullPointerException", None),
    ],
)
def test_other_failures_are_what_they_are_whoever_has_changed_the_table(
    name: str, kind: type[Exception] | None, *, is_final: bool
) -> None:
    error = raised("x", (name, "503"))
    became = _as_kind(error, is_final=is_final)

    assert isinstance(became, kind) if kind else became is error


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


AGAIN = (
    "Run it again when the catalog answers and fewer writers are active, or with a narrower time "
    "window; the engine logs more."
)


@pytest.mark.parametrize(
    ("problem", "status", "said"),
    [
        (TooLarge("1 group of 3 failed"), Status.SPLIT, "1 group of 3 failed"),
        (Stopped(), Status.STOPPED, None),
        (KeyboardInterrupt(), Status.STOPPED, None),
        (Conflict("a file is gone"), Status.FAILED, f"a file is gone. {AGAIN}"),
        (CloneRefused("The catalog takes no clone."), Status.FAILED, "The catalog takes no clone."),
        (ValueError("of Python"), Status.FAILED, "ValueError: of Python"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_ends_an_action_by_its_kind(
    problem: BaseException, status: Status, said: str | None
) -> None:
    assert ended_by(problem) == (status, said)
