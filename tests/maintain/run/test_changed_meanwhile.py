"""Another job changes the table's definition while a rewrite is at work: rows stay right, and the
run goes on with a fresh plan where it has to.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.retention import Retention
from icekit.maintain.plan import Plan
from icekit.maintain.run import execute as executing
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.rewrite import CheckedRewrite
from icekit.rows.deletes import convert as converting
from icekit.rows.rewrite import bundles, group
from tests.deletes.tables import Table as Deleted
from tests.elsewhere import elsewhere
from tests.maintain.tables import Named, Table, is_proved
from tests.moments import Around

pytestmark = pytest.mark.spark

SOON = Limits(Retry(attempts=3, first_wait=0.01, longest_wait=0.02))
CHANGES = {
    "a dropped and added column": ("DROP COLUMN name", "ADD COLUMN name STRING"),
    "a new spec": ("ADD PARTITION FIELD bucket(2, id)",),
    "a renamed sort key": ("RENAME COLUMN name TO title",),
    "a wider type": ("ALTER COLUMN n TYPE bigint",),
    "an upgrade": ("SET TBLPROPERTIES ('format-version' = '3')",),
}


@pytest.fixture
def two_groups(named: Named) -> Table:
    """A table of two partitions, each a group of its own, and the plan of a sort of both."""
    table = named("sick").create("id bigint, part int, name string, n int", "part")
    return table.fill(select="id, cast(id % 2 AS int), concat('x', id), cast(id AS int)")


def one_at_a_time(plan: Plan) -> Plan:
    """The plan with two groups at once, and a commit for each."""
    options = {
        "max-concurrent-file-group-rewrites": "2",
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": "4",
    }
    return dataclasses.replace(
        plan,
        actions=tuple(
            dataclasses.replace(each, options={**each.options, **options}) for each in plan.actions
        ),
    )


def between_two_groups(patch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Have one group begin to write after a change was made and another group was committed."""
    committed, lock, begun = threading.Event(), threading.Lock(), list[object]()
    write, commit = group.Group._write, CheckedRewrite._commit

    def waits(self: Any, *arguments: Any, **options: Any) -> Any:
        with lock:
            begun.append(self)
            is_second = len(begun) == 2
        if is_second:
            committed.wait(60)
        return write(self, *arguments, **options)

    def changes(self: Any, done: Any) -> None:
        if not committed.is_set():
            change()
        commit(self, done)
        committed.set()

    patch.setattr(bundles, "BUNDLE_GROUPS", 1)
    patch.setattr(group.Group, "_write", waits)
    patch.setattr(CheckedRewrite, "_commit", changes)


@pytest.mark.core
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("strategy", ["binpack", "sort"])
def test_a_group_at_work_goes_on_with_the_table_as_it_was_planned(
    two_groups: Table, monkeypatch: pytest.MonkeyPatch, name: str, strategy: str
) -> None:
    policy: dict[str, Any] = {"columns": ["name"]} if strategy == "sort" else {}
    plan = one_at_a_time(two_groups.plan(strategy=strategy, **policy))
    other = elsewhere(two_groups.spark)
    before = Counter(row[0] for row in two_groups.rows())

    def change() -> None:
        for statement in CHANGES[name]:
            other.sql(f"ALTER TABLE {two_groups.sql_name} {statement}").collect()

    between_two_groups(monkeypatch, change)
    outcome = is_proved(two_groups.run(plan, limits=SOON))

    two_groups.files.refresh()
    assert Counter(row[0] for row in two_groups.rows()) == before
    assert two_groups.file_count() == 2
    # The first commit after an upgrade gives all rows ids, also those that were read without.
    assert [action.attempts for action in outcome.actions] == [2 if name == "an upgrade" else 1]
    if name != "a dropped and added column":
        assert two_groups.sql("SELECT count(*) FROM {t} WHERE n IS NULL OR n <> id")[0][0] == 0


@pytest.mark.parametrize("name", ["a renamed sort key", "a renamed partition column"])
def test_a_column_that_was_renamed_since_the_plan_is_known_by_its_id(
    two_groups: Table, name: str
) -> None:
    plan = two_groups.plan(strategy="sort", columns=["name"], max_action_partitions=1)
    assert all(action.where for action in plan.actions)
    column = "name" if name == "a renamed sort key" else "part"
    two_groups.sql(f"ALTER TABLE {{t}} RENAME COLUMN {column} TO other")

    outcome = is_proved(two_groups.run(plan, limits=SOON))

    assert outcome.actual.files_in == 10
    assert two_groups.file_count() == 2


@pytest.mark.parametrize("name", ["a dropped and added column", "a wider type", "an upgrade"])
def test_a_conversion_is_tried_again_if_the_definition_changed(
    table: Deleted, tmp_path: Path, around: Around, name: str
) -> None:
    table.create("id bigint, name string, n int", version=2)
    table.commit().data("SELECT id, 'a', CAST(id AS int) FROM range(5)").done()
    table.commit().deletes("id", "SELECT id * 3 FROM range(3)").done()
    other = elsewhere(table.spark)

    def change() -> None:
        for statement in CHANGES[name]:
            other.sql(f"ALTER TABLE {table.sql_name} {statement}").collect()

    around(converting, "commit", change)
    outcome = is_proved(table.converts(tmp_path, limits=SOON))

    assert table.ids() == [1, 2, 4]
    assert table.equality_deletes() == 0
    # Files of positions cannot be added to format version 3.
    assert outcome.actions[0].attempts == (2 if name == "an upgrade" else 1)


DEFINITIONS = {
    "a renamed partition column": ("RENAME COLUMN k TO kind",),
    "a dropped partition column": ("DROP PARTITION FIELD day", "DROP COLUMN day"),
    "a dropped and added column": ("DROP COLUMN id", "ADD COLUMN id BIGINT"),
    "a new spec": ("ADD PARTITION FIELD bucket(2, id)",),
    "an upgrade": ("SET TBLPROPERTIES ('format-version' = '3')",),
}
STEPS = {
    "rewrite_manifests": "_configured_action",
    "rewrite_position_delete_files": "_configured_action",
    "expire_snapshots": "_configured_expiry",
}


#: When a procedure meets a dropped partition column, and Iceberg would no longer apply the deletes.
UNDER_DELETES = {
    ("planned", "rewrite_manifests"),
    ("planned", "rewrite_position_delete_files"),
    ("loaded", "rewrite_position_delete_files"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("procedure", STEPS)
@pytest.mark.parametrize("moment", ["planned", "loaded"])
def test_maintenance_goes_on_beside_changes_of_the_definition(
    neglected: Table,
    aged: Callable[..., None],
    around: Around,
    moment: str,
    procedure: str,
    name: str,
) -> None:
    aged(neglected)
    other = elsewhere(neglected.spark)
    before = neglected.sql("SELECT count(*) FROM {t}")
    plan = neglected.maintenance(
        procedure,
        retention=Retention(keep_last=3),
        thresholds=Thresholds(snapshots=5, fragmented_manifests=3),
    )
    assert [action.procedure for action in plan.actions] == [procedure]

    def change() -> None:
        for statement in DEFINITIONS[name]:
            other.sql(f"ALTER TABLE {neglected.sql_name} {statement}").collect()

    if moment == "planned":
        change()
        neglected.files.refresh()
    else:
        around(executing, STEPS[procedure], change)
    outcome = neglected.run(plan, limits=SOON)
    (action,) = outcome.actions

    neglected.files.refresh()
    assert neglected.sql("SELECT count(*) FROM {t}") == before
    if name == "a dropped partition column" and (moment, procedure) in UNDER_DELETES:
        assert "partition field `day` was dropped while deletes apply" in str(action.error)
        return
    is_proved(outcome)
    assert action.actual.items_after < action.actual.items_before
    if name != "a dropped and added column":
        assert neglected.sql("SELECT count(DISTINCT id) FROM {t}")[0][0] == before[0][0]


def test_what_another_job_changed_is_said_where_all_attempts_fail(
    sick: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, numbers, lines = elsewhere(sick.spark), iter(range(9)), list[str]()

    def change_and_fail(*_: Any) -> None:
        other.sql(f"ALTER TABLE {sick.sql_name} ADD COLUMN more{next(numbers)} int").collect()
        raise ValueError("odd")

    monkeypatch.setattr(CheckedRewrite, "_commit", change_and_fail)
    before = sick.rows()
    outcome = sick.run(sick.plan(), limits=SOON, progress=lines.append)

    (action,) = outcome.actions
    assert (action.status, action.attempts) == ("failed", 3)
    error = str(action.error)
    assert "the table changed meanwhile: column more2 was added (at 2" in error
    assert "ValueError: odd" in error
    assert "Run it again" in error
    assert "bug in icekit" not in error
    sick.files.refresh()
    assert [row[:3] for row in sick.rows()] == before
