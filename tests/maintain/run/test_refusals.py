"""Whether a failed attempt is tried again, by the class of the failure and by what happened to the
table meanwhile; and how each kind of error ends an action. Pure.
"""

from typing import Any

import pytest

from icekit.common.errors import CloneRefused, EngineFailed, Status
from icekit.engine.interrupting import Stopped
from icekit.health.facts.head import Head
from icekit.maintain.run.failures import Conflict, TooLarge, error_for_failure, status_and_message
from icekit.maintain.run.outside_changes import OutsideChanges, outside_changes
from icekit.rows.proof.checked import RowsDiffer
from tests.maintain.test_execute import of_engine, raised

ICEBERG = "org.apache.iceberg.exceptions."
#: An error of the engine that stays what it is.
RAISED = type(of_engine())


REFUSAL = raised(
    "An error occurred while calling o99.execute",
    ("org.apache.spark.SparkException", "Writing job aborted"),
    (f"{ICEBERG}ValidationException", "Cannot find source column"),
)
NOBODY = OutsideChanges()
WRITER = OutsideChanges(commits=({"snapshot-id": 3},))
DDL = OutsideChanges(definition_changes=("column a was renamed to b",))
ROLLBACK = OutsideChanges(is_start_gone=True)


def causes(
    error: Exception, outside: OutsideChanges, *, attempts: int = 2, has_committed: bool = False
) -> list[type[Exception]]:
    """What an error is for attempts that end with it, one after another."""
    return [
        type(error_for_failure(error, outside, is_repeated=number > 0, has_committed=has_committed))
        for number in range(attempts)
    ]


def test_a_refusal_is_final_if_a_fresh_plan_is_refused_too_and_nobody_changed_the_table() -> None:
    assert causes(REFUSAL, NOBODY) == [Conflict, EngineFailed]
    for outside in (WRITER, DDL, ROLLBACK):
        assert causes(REFUSAL, outside) == [Conflict, Conflict]
    assert causes(REFUSAL, NOBODY, has_committed=True) == [Conflict, Conflict]


@pytest.mark.parametrize(
    ("name", "alone", "beside_a_writer"),
    [
        (f"{ICEBERG}CommitFailedException", [Conflict] * 2, [Conflict] * 2),
        (f"{ICEBERG}CommitStateUnknownException", [Conflict] * 2, [Conflict] * 2),
        ("java.net.SocketTimeoutException", [Conflict] * 2, [Conflict] * 2),
        ("java.lang.OutOfMemoryError", [TooLarge] * 2, [TooLarge] * 2),
        ("java.lang.NullPointerException", [RAISED] * 2, [Conflict, RAISED]),
        (f"{ICEBERG}NotFoundException", [Conflict, RAISED], [Conflict] * 2),
    ],
)
def test_what_a_failure_is_depends_on_its_class_and_on_what_others_changed(
    name: str, alone: list[type[Exception]], beside_a_writer: list[type[Exception]]
) -> None:
    error = of_engine((name, "503"))

    assert causes(error, NOBODY) == alone
    assert causes(error, WRITER) == beside_a_writer


@pytest.mark.parametrize(
    "error",
    [
        of_engine(("java.lang.NullPointerException", None)),
        of_engine(
            ("java.lang.IllegalArgumentException", "Must use DVs for position deletes in V3")
        ),
        RowsDiffer.of("files", "1 row is missing", "The old files stay."),
        KeyError("renamed"),
    ],
)
def test_whatever_fails_is_tried_again_while_another_job_changes_the_definition(
    error: Exception,
) -> None:
    assert causes(error, DDL, attempts=3) == [Conflict] * 3
    assert causes(error, NOBODY) == [type(error)] * 2


def test_a_difference_of_rows_is_not_tried_again_because_a_writer_committed() -> None:
    """Another attempt may miss it: some checks are samples."""
    wrong = RowsDiffer.of("files", "1 row is missing", "The old files stay.")

    assert causes(wrong, WRITER) == [RowsDiffer] * 2


def at(*ids: int, **metadata: Any) -> Head:
    """A table with these commits, oldest first."""
    snapshots: list[dict[str, Any]] = [
        {"snapshot-id": i, "parent-snapshot-id": before, "timestamp-ms": 1000 * i}
        for before, i in zip([None, *ids], ids, strict=False)
    ]
    schema = {"schema-id": 0, "type": "struct", "fields": []}
    return Head(
        {"snapshots": snapshots, "schemas": [schema], "current-schema-id": 0, **metadata},
        snapshots[-1] if snapshots else None,
    )


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
    outside = outside_changes(before, now, own)

    assert outside.has_moved == outside.any == moved


def columns(*fields: tuple[int, str, str]) -> dict[str, Any]:
    """Metadata of a table with these columns."""
    every = [{"id": i, "name": name, "type": kind, "required": False} for i, name, kind in fields]
    return {"schemas": [{"schema-id": 0, "type": "struct", "fields": every}]}


def test_what_changed_is_said_with_when_and_by_whom() -> None:
    before = at(
        1,
        **columns((1, "id", "int"), (2, "name", "string"), (3, "old", "int")),
        **{"last-updated-ms": 1_000},
    )
    now = at(
        1,
        2,
        **columns((1, "id", "long"), (2, "title", "string"), (4, "more", "int")),
        **{
            "format-version": 3,
            "default-spec-id": 1,
            "properties": {"write.delete.mode": "merge-on-read"},
            "last-updated-ms": 61_000,
            "metadata-log": [{"timestamp-ms": 1_000}, {"timestamp-ms": 59_000}],
        },
    )
    now.metadata["snapshots"][1]["summary"] = {"engine-name": "spark", "app-id": "app-7"}

    outside = outside_changes(before, now, [])

    assert outside.definition_changes == (
        "an upgrade from format version None to 3",
        "column old was dropped",
        "column more was added",
        "the type of column id changed from int to long",
        "column name was renamed to title",
        "a new partition spec",
        "property write.delete.mode was set",
    )
    assert outside.text == (
        "the table changed meanwhile: an upgrade from format version None to 3; column old was "
        "dropped; column more was added; 4 more changes of the definition; 1 commit by spark app-7 "
        "(between 1970-01-01 00:00:59 UTC and 00:01:01 UTC)"
    )


def test_a_new_branch_and_an_expiry_of_old_snapshots_are_changes_too() -> None:
    branch = {"refs": {"audit": {"snapshot-id": 9, "type": "branch"}}}

    assert outside_changes(at(1, 2), at(1, 2, **branch), []).has_other_changes
    expired = outside_changes(at(1, 2, 3), at(2, 3), [])
    assert expired.has_other_changes
    assert not expired.has_moved


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
    assert status_and_message(problem) == (status, said)
