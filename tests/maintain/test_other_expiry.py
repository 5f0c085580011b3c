"""What another job removes from a table while a run is at work is no loss, and does not block the
table.
"""

from collections.abc import Callable
from typing import Any

import pytest

from icekit.engine import metadata_tables
from icekit.engine.bridge import load_latest_table
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.retention import Retention
from icekit.maintain.run import guard, run_plan
from icekit.maintain.run import maintenance_proof as maintenance
from icekit.maintain.run.blocked import find_blocking_runs
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from icekit.maintain.run.run_plan import PlanRun
from icekit.rows.rewrite import bundles
from tests.elsewhere import elsewhere
from tests.maintain.tables import Named, Table, is_proved
from tests.moments import Around

pytestmark = [pytest.mark.spark, pytest.mark.core]

Make = Callable[..., Any]
LIMITS = Thresholds(snapshots=1)


@pytest.fixture
def table(named: Named) -> Table:
    """Five commits, each of which replaces the rows of the last, and a tag."""
    made = named("busy").create("id int", by="")
    for n in range(5):
        made.sql(f"INSERT OVERWRITE {{t}} VALUES ({n})")
    made.sql(f"ALTER TABLE {{t}} CREATE TAG audit AS OF VERSION {made.snapshots()[2]}")
    return made


@pytest.fixture
def sick(named: Named, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Two partitions, each of which is a commit."""
    monkeypatch.setattr(bundles, "BUNDLE_GROUPS", 1)
    return named("sick").create().fill()


@pytest.fixture
def old(table: Table, aged: Make) -> Table:
    """The table with a past of ten days."""
    aged(table)
    return table


def other_job(table: Table, *statements: str) -> None:
    """Another job lets all snapshots expire but the newest, after some statements of its own."""
    name = ".".join(table.name)
    expire = (
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => timestamp "
        "'2999-01-01 00:00:00', retain_last => 1)"
    )
    spark = elsewhere(table.spark)
    for statement in (*statements, expire):
        spark.sql(statement.replace("{t}", table.sql_name)).collect()


def drop_tag(table: Table) -> None:
    other_job(table, "ALTER TABLE {t} DROP TAG audit")


def insert(table: Table) -> None:
    other_job(table, "INSERT INTO {t} VALUES (1, 1, 'new')")


def maintained(table: Table, procedure: str = "expire_snapshots") -> Outcome:
    plan = table.maintenance(
        procedure,
        storage=procedure == "remove_orphan_files",
        retention=Retention(keep_last=3),
        thresholds=LIMITS,
    )
    assert [action.procedure for action in plan.actions] == [procedure]
    return table.run(plan)


def is_fine(table: Table, outcome: Outcome) -> None:
    is_proved(outcome)
    assert find_blocking_runs(table.lake, table.name, table.ledger()) == ()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.slow
def test_an_expiry_beside_ours_is_no_loss(old: Table, around: Around, after: bool) -> None:
    """It keeps fewer snapshots, and a tag was dropped."""
    around(PlanRun, "_execute", lambda: drop_tag(old), after=after)

    outcome = maintained(old)

    is_fine(old, outcome)
    assert (
        "2 of 3 snapshots that should stay are no longer in the table; this expiry did not name "
        "them" in repr(outcome.proof)
    )
    assert "no longer in the table: audit" in repr(outcome.proof)
    assert ": this run removed nothing that had to stay, in " in repr(outcome.proof)


@pytest.mark.slow
def test_what_a_call_removed_is_not_known_if_it_committed_and_then_failed(
    old: Table, around: Around
) -> None:
    def and_fail() -> None:
        drop_tag(old)
        raise RuntimeError("CommitStateUnknownException: the catalog does not answer")

    around(PlanRun, "_execute", and_fail, after=True)

    outcome = maintained(old)

    assert outcome.actions[0].status == "unproved"
    assert outcome.proof is not None
    assert outcome.proof.ok is None
    assert "2 of 3 snapshots that should stay are no longer in the table; it is not known" in repr(
        outcome.proof
    )
    # It blocks the passes of a policy until a person has looked, and no run that a person starts.
    assert len(find_blocking_runs(old.lake, old.name, old.ledger())) == 1
    assert old.ledger().disproved_runs() == ()


def test_an_expiry_stopped_while_files_are_deleted_is_proved_when_it_is_resumed(
    old: Table, around: Around
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    around(PlanRun, "_execute", interrupt, after=True)
    assert maintained(old).status == "stopped"

    outcome = old.resume(command="maintain")

    is_fine(old, outcome)
    assert "all 3 snapshots that should stay exist" in repr(outcome.proof)


def limit_age(table: Table, milliseconds: int) -> None:
    """Let snapshots of the branch ``short`` expire after so long."""
    load_latest_table(table.spark, table.full).manageSnapshots().setMaxSnapshotAgeMs(
        "short", milliseconds
    ).commit()


def with_short_branch(table: Table) -> set[int]:
    """A branch with two commits of its own; returns all snapshots."""
    table.sql("ALTER TABLE {t} CREATE BRANCH short")
    for n in range(2):
        table.sql(f"INSERT INTO {{t}}.branch_short VALUES ({n + 10})")
    return {*table.snapshots()}


@pytest.mark.slow
def test_what_passes_the_age_of_its_branch_after_the_look_up_ends_the_expiry(
    old: Table, around: Around
) -> None:
    there = with_short_branch(old)
    around(guard.ExpiryGuard, "action_to_run", lambda: limit_age(old, 1), after=True)

    outcome = maintained(old)

    assert outcome.actions[0].status == "failed"
    assert outcome.actions[0].attempts == 0
    assert "1 snapshot or ref would now expire too, by the age limit of their own branch" in str(
        outcome.actions[0].error
    )
    assert there == {*old.snapshots()}


@pytest.mark.slow
def test_an_expiry_that_comes_before_ours_leaves_it_nothing_to_do(
    old: Table, around: Around
) -> None:
    around(guard.ExpiryGuard, "_check_unused_by_others", lambda: drop_tag(old), after=True)

    outcome = maintained(old)

    is_fine(old, outcome)
    assert outcome.actions[0].attempts == 0
    assert old.rows() == [(4,)]


@pytest.mark.slow
def test_what_commits_push_out_of_the_count_does_not_expire_unchecked(
    old: Table,
    around: Around,
) -> None:
    """Only the snapshots whose files were looked up among those of other tables go."""
    kept = old.snapshots()[-3:]
    writes = ["INSERT INTO {t} VALUES (8)", "INSERT INTO {t} VALUES (9)"]
    around(PlanRun, "_execute", lambda: [old.sql(write) for write in writes])

    outcome = maintained(old)

    is_fine(old, outcome)
    assert {*kept} < {*old.snapshots()}
    assert outcome.actions[0].actual.items_before == 5
    assert outcome.actions[0].actual.items_after == 3


def test_a_rollback_to_a_snapshot_that_was_to_expire_keeps_it(old: Table, around: Around) -> None:
    first = old.snapshots()[0]
    back = f"snapshot_id => {first}"
    around(PlanRun, "_execute", lambda: old.call("rollback_to_snapshot", back))

    outcome = maintained(old)

    assert outcome.status == "failed"
    assert outcome.actions[0].status == "failed"
    assert outcome.proof is None or outcome.proof.ok is not False
    assert old.rows() == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "step", "after"),
    [
        (PlanRun, "_execute", False),
        (guard, "prove_live", False),
        (maintenance, "sample_paths", True),
    ],
)
def test_an_expiry_while_orphans_are_removed_is_no_loss(
    table: Table, around: Around, module: Any, step: str, after: bool
) -> None:
    """The last: after the live files are listed, and before they are looked up."""
    lost = table.location / "data" / "lost.parquet"
    lost.write_bytes(b"nobody's")
    table.age_files()
    around(module, step, lambda: drop_tag(table), after=after)

    outcome = maintained(table, "remove_orphan_files")

    is_fine(table, outcome)
    assert not lost.exists()


def test_a_live_file_that_is_gone_is_missed_however_many_commits_come(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata_tables.sample_paths

    def and_write(*given: Any) -> Any:
        table.sql("INSERT INTO {t} VALUES (9)")
        return real(*given)

    (file,) = table.data_files()
    file.unlink()
    monkeypatch.setattr(maintenance, "sample_paths", and_write)

    looked = maintenance.prove_live(table.lake, table.name)

    assert looked.ok is False
    assert file.name in repr(looked)


@pytest.mark.slow
def test_a_compaction_whose_commit_another_job_let_expire_was_checked(
    sick: Table, around: Around
) -> None:
    """What was checked before a commit is read right after it, and kept in the ledger."""
    before = sick.rows()
    around(guard, "prove_rewrites", lambda: insert(sick))

    outcome = sick.compact()

    is_fine(sick, outcome)
    assert len(sick.snapshots()) == 1
    assert repr(outcome.proof).count("20 rows of the new files read back before the commit") == 2
    assert len(sick.rows()) == len(before) + 1
    (record,) = sick.ledger().actions(outcome.run_id or "")
    assert "icekit.checked" in record.commits[0]["summary"]


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.slow
def test_a_commit_that_expires_before_its_action_ends_blocks_nothing_and_is_known_if_it_was_seen(
    sick: Table, around: Around, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """What nobody has seen is not said to be checked; and nothing is done twice."""
    before = sick.rows()
    if is_seen:
        monkeypatch.setattr(run_plan, "_LOOK_SECONDS", 0)
    around(PlanRun, "_execute", lambda: insert(sick), after=True)

    outcome = sick.run(sick.plan(), limits=Limits(retry=Retry(first_wait=0)))

    assert outcome.status == "done"
    assert find_blocking_runs(sick.lake, sick.name, sick.ledger()) == ()
    assert len(sick.snapshots()) == 1
    assert len(sick.rows()) == len(before) + 1
    assert repr(outcome.proof).count("20 rows of the new files read back") == 2 * is_seen


@pytest.mark.slow
def test_a_resumed_run_knows_what_was_checked_of_a_commit_that_expired(sick: Table) -> None:

    def interrupt(line: str) -> None:
        if line.startswith("  done"):
            raise KeyboardInterrupt

    assert sick.run(sick.plan(), progress=interrupt).status == "stopped"
    insert(sick)

    outcome = sick.resume()

    is_fine(sick, outcome)
    assert repr(outcome.proof).count("20 rows of the new files read back before the commit") == 2
