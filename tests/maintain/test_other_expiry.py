"""What another job removes from a table while a run is at work is no loss, and does not block the
table.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.compact.outcome import Outcome
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds
from icekit.engine import metadata_tables
from icekit.engine.bridge import load_now
from icekit.facts.retention import Retention
from icekit.maintain.plan import plan_maintenance_table
from icekit.prove import maintenance
from icekit.run import attempt, guard, removals
from icekit.run.attempt import Limits, Retry
from icekit.run.blocked import holding
from icekit.run.verbs import resume, run
from tests.commits import in_order
from tests.compact.tables import Table
from tests.elsewhere import elsewhere

pytestmark = pytest.mark.spark

Make = Callable[..., Any]
LIMITS = Thresholds(snapshots=1)


@pytest.fixture
def table(lake: Lake, scratch: str, tmp_path: Path) -> Table:
    """Five commits, each of which replaces the rows of the last, and a tag."""
    made = Table(lake, scratch, "busy", tmp_path).create("id int", by="")
    for n in range(5):
        made.sql(f"INSERT OVERWRITE {{t}} VALUES ({n})")
    made.sql(
        f"ALTER TABLE {{t}} CREATE TAG audit AS OF VERSION "
        f"{in_order(lake, made.name)[2]['snapshot-id']}"
    )
    return made


def other_job(table: Table, *statements: str) -> None:
    """Another job lets all snapshots expire but the newest, after some statements of its own."""
    name = ".".join(table.name)
    expire = (
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => timestamp "
        "'2999-01-01 00:00:00', retain_last => 1)"
    )
    spark = elsewhere(table.lake.spark)
    for statement in (*statements, expire):
        spark.sql(statement.replace("{t}", table.sql_name)).collect()


def around(
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    when: str,
    between: Callable[[], object],
) -> None:
    """Have something happen once, before or after the real step of this name."""
    real = getattr(module, name)
    is_over: list[bool] = []

    def wrapped(*given: Any, **options: Any) -> Any:
        if when == "before" and not is_over:
            is_over.append(True)
            between()
        result = real(*given, **options)
        if when == "after" and not is_over:
            is_over.append(True)
            between()
        return result

    monkeypatch.setattr(module, name, wrapped)


def maintained(table: Table, procedure: str, keep_last: int = 3) -> Outcome:
    facts = table.lake.observe(table.name, storage=procedure == "remove_orphan_files")
    plan = plan_maintenance_table(
        table.lake,
        facts,
        diagnose(facts, LIMITS),
        Retention(keep_last=keep_last),
        thresholds=LIMITS,
        procedures=[procedure],
    )
    assert [action.procedure for action in plan.actions] == [procedure]
    return run(table.lake, plan, execute=True, ledger=str(table.book), progress=lambda _: None)


def is_fine(table: Table, outcome: Outcome) -> None:
    assert outcome.status == "done", outcome
    assert outcome.proof.ok is True
    assert holding(table.lake, table.name, table.ledger()) == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_expiry_beside_ours_is_no_loss(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It keeps fewer snapshots, and a tag was dropped."""
    aged(table.name)
    around(
        monkeypatch,
        attempt,
        "execute",
        when,
        lambda: other_job(table, "ALTER TABLE {t} DROP TAG audit"),
    )

    outcome = maintained(table, "expire_snapshots")

    is_fine(table, outcome)
    assert (
        "2 of 3 snapshots that should stay are no longer in the table; this expiry did not name "
        "them" in repr(outcome.proof)
    )
    assert "no longer in the table: audit" in repr(outcome.proof)
    assert ": this run lost nothing, in " in repr(outcome.proof)


def test_what_a_call_removed_is_not_known_if_it_committed_and_then_failed(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(table.name)

    def and_fail() -> None:
        other_job(table, "ALTER TABLE {t} DROP TAG audit")
        raise RuntimeError("CommitStateUnknownException: the catalog does not answer")

    around(monkeypatch, attempt, "execute", "after", and_fail)

    outcome = maintained(table, "expire_snapshots")

    assert outcome.actions[0].status == "unproved"
    assert outcome.proof.ok is None
    assert "2 of 3 snapshots that should stay are no longer in the table; it is not known" in repr(
        outcome.proof
    )
    # It blocks the passes of a policy until a person has looked, and no run that a person starts.
    assert len(holding(table.lake, table.name, table.ledger())) == 1
    assert table.ledger().disproved() == ()


def test_an_expiry_stopped_while_files_are_deleted_is_proved_when_it_is_resumed(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(table.name)

    def interrupt() -> None:
        raise KeyboardInterrupt

    around(monkeypatch, attempt, "execute", "after", interrupt)
    assert maintained(table, "expire_snapshots").status == "stopped"

    outcome = resume(
        table.lake, table.name, command="maintain", ledger=str(table.book), progress=lambda _: None
    )

    is_fine(table, outcome)
    assert "all 3 snapshots that should stay exist" in repr(outcome.proof)


def limit_age(table: Table, milliseconds: int) -> None:
    """Let snapshots of the branch ``short`` expire after so long."""
    load_now(
        table.lake.spark, table.lake.sql_name(table.name)
    ).manageSnapshots().setMaxSnapshotAgeMs("short", milliseconds).commit()


def with_short_branch(table: Table) -> set[int]:
    """A branch with two commits of its own; returns all snapshots."""
    table.sql("ALTER TABLE {t} CREATE BRANCH short")
    for n in range(2):
        table.sql(f"INSERT INTO {{t}}.branch_short VALUES ({n + 10})")
    return {int(snapshot["snapshot-id"]) for snapshot in in_order(table.lake, table.name)}


def test_what_passes_the_age_of_its_branch_during_the_look_up_is_looked_up_too(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(table.name)
    there = with_short_branch(table)
    monkeypatch.setattr(removals, "_AHEAD_MS", 0)
    looked_up: set[int] = set()
    real = removals.ExpiryGuard._check_unshared

    def wrapped(self: Any, expired: Any) -> None:
        looked_up.update(expired)
        real(self, expired)
        limit_age(table, 1)

    monkeypatch.setattr(removals.ExpiryGuard, "_check_unshared", wrapped)

    outcome = maintained(table, "expire_snapshots")

    is_fine(table, outcome)
    gone = there - {int(snapshot["snapshot-id"]) for snapshot in in_order(table.lake, table.name)}
    assert gone == looked_up
    assert len(gone) == 3


def test_what_passes_the_age_of_its_branch_after_the_look_up_ends_the_expiry(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(table.name)
    there = with_short_branch(table)
    around(monkeypatch, removals.ExpiryGuard, "ready", "after", lambda: limit_age(table, 1))

    outcome = maintained(table, "expire_snapshots")

    assert outcome.actions[0].status == "failed"
    assert outcome.actions[0].attempts == 0
    assert "1 snapshot would now expire too, by the age limit of their own branch" in str(
        outcome.actions[0].error
    )
    assert there == {int(snapshot["snapshot-id"]) for snapshot in in_order(table.lake, table.name)}


def test_an_expiry_that_comes_before_ours_leaves_it_nothing_to_do(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(table.name)
    around(
        monkeypatch,
        removals.ExpiryGuard,
        "_check_unshared",
        "after",
        lambda: other_job(table, "ALTER TABLE {t} DROP TAG audit"),
    )

    outcome = maintained(table, "expire_snapshots")

    is_fine(table, outcome)
    assert outcome.actions[0].attempts == 0
    assert table.rows() == [(4,)]


def test_what_commits_push_out_of_the_count_does_not_expire_unchecked(
    table: Table,
    aged: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the snapshots whose files were looked up among those of other tables go."""
    aged(table.name)
    kept = [int(snapshot["snapshot-id"]) for snapshot in in_order(table.lake, table.name)[-3:]]
    writes = ["INSERT INTO {t} VALUES (8)", "INSERT INTO {t} VALUES (9)"]
    around(
        monkeypatch, attempt, "execute", "before", lambda: [table.sql(write) for write in writes]
    )

    outcome = maintained(table, "expire_snapshots")

    is_fine(table, outcome)
    assert set(kept) < {
        int(snapshot["snapshot-id"]) for snapshot in in_order(table.lake, table.name)
    }
    assert outcome.actions[0].actual.items_before == 5
    assert outcome.actions[0].actual.items_after == 3


def test_a_rollback_to_a_snapshot_that_was_to_expire_keeps_it(
    table: Table, aged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(table.name)
    first = in_order(table.lake, table.name)[0]["snapshot-id"]
    back = f"CALL lake.system.rollback_to_snapshot('{'.'.join(table.name)}', {first})"
    around(monkeypatch, attempt, "execute", "before", lambda: table.sql(back))

    outcome = maintained(table, "expire_snapshots")

    assert outcome.status == "failed"
    assert outcome.actions[0].status == "failed"
    assert outcome.proof is None or outcome.proof.ok is not False
    assert table.rows() == [(0,)]


@pytest.mark.parametrize(
    ("module", "step", "when"),
    [
        (attempt, "execute", "before"),
        (removals, "prove_live", "before"),
        (maintenance, "spread", "after"),
    ],
)
def test_an_expiry_while_orphans_are_removed_is_no_loss(
    table: Table, monkeypatch: pytest.MonkeyPatch, module: Any, step: str, when: str
) -> None:
    """The last: after the live files are listed, and before they are looked up."""
    (table.location / "data" / "lost.parquet").write_bytes(b"nobody's")
    then = time.time() - 10 * 86_400
    for path in table.location.rglob("*"):
        os.utime(path, (then, then))
    around(
        monkeypatch, module, step, when, lambda: other_job(table, "ALTER TABLE {t} DROP TAG audit")
    )

    outcome = maintained(table, "remove_orphan_files")

    is_fine(table, outcome)
    assert not (table.location / "data" / "lost.parquet").exists()


def test_a_live_file_that_is_gone_is_missed_however_many_commits_come(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata_tables.spread

    def and_write(*given: Any) -> Any:
        table.sql("INSERT INTO {t} VALUES (9)")
        return real(*given)

    (file,) = table.data_files()
    file.unlink()
    monkeypatch.setattr(maintenance, "spread", and_write)

    looked = maintenance.prove_live(table.lake, table.name, "remove_orphan_files")

    assert looked.ok is False
    assert file.name in repr(looked)


def test_a_compaction_whose_commit_another_job_let_expire_was_checked(
    lake: Lake, scratch: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """What was checked before a commit is read right after it, and kept in the ledger."""
    table = Table(lake, scratch, "sick", tmp_path).create().fill()
    before = table.rows()
    around(
        monkeypatch,
        guard,
        "prove_rewrites",
        "before",
        lambda: other_job(table, "INSERT INTO {t} VALUES (1, 1, 'new')"),
    )

    outcome = table.compact()

    is_fine(table, outcome)
    assert len(in_order(lake, table.name)) == 1
    assert repr(outcome.proof).count("20 rows of the new files verified before the commit") == 2
    assert len(table.rows()) == len(before) + 1
    (record,) = table.ledger().actions(outcome.run_id or "")
    assert "icekit.checked" in record.commits[0]["summary"]


def test_a_compaction_whose_commit_is_gone_before_it_is_seen_blocks_nothing(
    lake: Lake, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody has seen is not said to be checked; and nothing is done twice."""
    table = Table(lake, scratch, "sick", tmp_path).create().fill()
    before = table.rows()
    around(
        monkeypatch,
        attempt,
        "execute",
        "after",
        lambda: other_job(table, "INSERT INTO {t} VALUES (1, 1, 'new')"),
    )

    outcome = table.run(table.plan(), limits=Limits(retry=Retry(first_wait=0)))

    assert outcome.status == "done"
    assert outcome.proof is None
    assert holding(lake, table.name, table.ledger()) == ()
    assert len(in_order(lake, table.name)) == 1
    assert len(table.rows()) == len(before) + 1


def test_a_commit_that_is_seen_while_its_action_is_at_work_is_known_although_it_expires_before_the_end(
    lake: Lake, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(lake, scratch, "sick", tmp_path).create().fill()
    monkeypatch.setattr(attempt, "_LOOK_SECONDS", 0)
    around(
        monkeypatch,
        attempt,
        "execute",
        "after",
        lambda: other_job(table, "INSERT INTO {t} VALUES (1, 1, 'new')"),
    )

    outcome = table.run(table.plan(), limits=Limits(retry=Retry(first_wait=0)))

    is_fine(table, outcome)
    assert outcome.actual.commits == 2
    assert repr(outcome.proof).count("20 rows of the new files verified before the commit") == 2


def test_a_resumed_run_knows_what_was_checked_of_a_commit_that_expired(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    table = Table(lake, scratch, "sick", tmp_path).create().fill()

    def interrupt(line: str) -> None:
        if line.startswith("  done"):
            raise KeyboardInterrupt

    assert table.run(table.plan(), progress=interrupt).status == "stopped"
    other_job(table, "INSERT INTO {t} VALUES (1, 1, 'new')")

    outcome = resume(lake, table.name, ledger=str(table.book), progress=lambda _: None)

    is_fine(table, outcome)
    assert repr(outcome.proof).count("20 rows of the new files verified before the commit") == 2
