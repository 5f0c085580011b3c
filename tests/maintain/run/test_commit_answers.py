"""Commits whose answer is wrong or lost: whatever the catalog says, the table stays readable, no
row changes, nothing is done twice, and the outcome says what is in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.retention import Retention
from icekit.maintain.plan import Plan
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.run_plan import PlanRun
from tests.answers import MADE, NOT_MADE, answer_commits
from tests.damage import on_disk
from tests.deletes.tables import Table as Deleted
from tests.maintain.tables import Named, Table, is_proved

pytestmark = pytest.mark.spark

SOON = Limits(Retry(attempts=3, first_wait=0.01, longest_wait=0.02))
ANSWERS = [*((answer, True) for answer in MADE), *((answer, False) for answer in NOT_MADE)]


def is_whole(table: Table | Deleted) -> None:
    """See that every file that the current snapshot names is there."""
    table.files.refresh()
    for metadata_table, column in (("manifests", "path"), ("files", "file_path")):
        for row in table.sql(f"SELECT {column} FROM {{t}}.{metadata_table}"):
            assert on_disk(row[0]).exists(), row[0]


@pytest.mark.core
@pytest.mark.parametrize(("answer", "is_made"), ANSWERS)
def test_a_compaction_is_done_once_whatever_the_catalog_answers(
    sick: Table, monkeypatch: pytest.MonkeyPatch, answer: str, is_made: bool
) -> None:
    before, plan = sick.rows(), sick.plan()
    answer_commits(monkeypatch, answer, is_made=is_made)
    outcome = is_proved(sick.run(plan, limits=SOON))

    assert outcome.actual.files_in == plan.prediction.files_in
    assert outcome.actual.commits == outcome.actions[0].actual.commits == 1
    # Iceberg itself repeats a commit that lost a race.
    assert outcome.actions[0].attempts == (1 if is_made or answer == "409" else 2)
    assert sick.rows() == before
    assert sick.file_count() == 2
    is_whole(sick)


def planned(table: Table, procedure: str) -> Plan:
    """A plan of one procedure."""
    plan = table.maintenance(
        procedure,
        retention=Retention(keep_last=3),
        thresholds=Thresholds(snapshots=5, fragmented_manifests=3),
    )
    assert [action.procedure for action in plan.actions] == [procedure]
    return plan


@pytest.mark.parametrize(("answer", "is_made"), [("503", True), ("409", True), ("timeout", False)])
@pytest.mark.parametrize("procedure", ["rewrite_manifests", "rewrite_position_delete_files"])
def test_maintenance_is_done_once_whatever_the_catalog_answers(
    neglected: Table, monkeypatch: pytest.MonkeyPatch, procedure: str, answer: str, is_made: bool
) -> None:
    before, plan = neglected.rows(), planned(neglected, procedure)
    answer_commits(monkeypatch, answer, is_made=is_made)
    outcome = is_proved(neglected.run(plan, limits=SOON))

    assert outcome.actions[0].attempts == (1 if is_made else 2)
    assert neglected.rows() == before
    is_whole(neglected)


@pytest.mark.parametrize(("answer", "is_made"), [("503", True), ("409", True), ("timeout", False)])
def test_an_expiry_removes_its_files_whatever_the_catalog_answers(
    neglected: Table,
    aged: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    is_made: bool,
) -> None:
    aged(neglected)
    before, plan = neglected.rows(), planned(neglected, "expire_snapshots")
    lists = set(neglected.location.rglob("snap-*.avro"))
    answer_commits(monkeypatch, answer, is_made=is_made)
    outcome = is_proved(neglected.run(plan, limits=SOON))

    assert outcome.actions[0].actual.items_after < outcome.actions[0].actual.items_before
    left = len(neglected.sql("SELECT * FROM {t}.snapshots"))
    assert len({path for path in lists if path.exists()}) == left
    assert neglected.rows() == before
    is_whole(neglected)


@pytest.mark.parametrize(("answer", "is_made"), [("503", True), ("timeout", False)])
def test_dangling_deletes_are_dropped_once_whatever_the_catalog_answers(
    named: Named, monkeypatch: pytest.MonkeyPatch, answer: str, is_made: bool
) -> None:
    table = named("sick").under_deletes()
    before, plan = table.rows(), table.plan()
    # The commit of the rewrite, and that of the deletes.
    answer_commits(monkeypatch, answer, is_made=is_made, commits=2)
    is_proved(table.run(plan, limits=SOON))

    assert table.delete_files() == 0
    assert table.rows() == before
    is_whole(table)


@pytest.mark.core
@pytest.mark.parametrize(("answer", "is_made"), [("503", True), ("409", True), ("timeout", False)])
@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_is_done_once_whatever_the_catalog_answers(
    table: Deleted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    answer: str,
    is_made: bool,
) -> None:
    table.create(version=version)
    table.commit().data("SELECT id, 'a' FROM range(5)").done()
    table.commit().data("SELECT 1, 'c'").deletes("id", "SELECT id * 3 FROM range(3)").done()
    before, history = table.rows(), table.history()
    answer_commits(monkeypatch, answer, is_made=is_made)
    outcome = is_proved(table.converts(tmp_path, limits=SOON))

    assert outcome.actual.commits == 1
    assert table.equality_deletes() == 0
    table.hold(before, history)
    is_whole(table)


@pytest.mark.core
def test_a_commit_whose_manifests_are_gone_is_not_proved_and_the_way_back_is_printed(
    sick: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a catalog does that commits, answers with an error and removes what it takes for left
    over.
    """
    before, plan = sick.rows(), sick.plan()
    lines: list[str] = []
    rewrite = PlanRun._execute

    def and_remove(*arguments: Any, **options: Any) -> Any:
        known = set(sick.location.rglob("*.avro"))
        rewrite(*arguments, **options)
        for path in set(sick.location.rglob("*.avro")) - known:
            path.unlink()
        raise RuntimeError("the answer was an error")

    monkeypatch.setattr(PlanRun, "_execute", and_remove)
    outcome = sick.run(plan, limits=SOON, progress=lines.append)

    (action,) = outcome.actions
    said = "\n".join(lines)
    assert (outcome.status, outcome.exit_status, action.attempts) == ("disproved", 1, 1)
    assert outcome.proof is not None
    assert outcome.proof.ok is False
    assert "no row changed" not in said
    (snapshot_id,) = action.snapshot_ids
    assert f"Commit {snapshot_id} is in the table, but 1 file that it added is gone" in said
    statement = said.split("To roll back to its parent: ")[1].split(". The metadata file")[0]
    metadata_file = said.split("The metadata file before it is ")[1].split(". ")[0]
    assert on_disk(metadata_file).exists()
    sick.sql(statement)
    sick.files.refresh()
    assert sick.rows() == before
