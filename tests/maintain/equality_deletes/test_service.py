"""Conversions as people start them: from a script, the terminal, and with what follows."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.common.errors import SnapshotNotFound
from icekit.common.sql import display_name, literal
from icekit.maintain.planning.conversion import plan_conversion
from icekit.rows.proof import readers
from icekit.rows.proof.commits import prove_commits
from tests.commands import command
from tests.deletes.tables import Table
from tests.maintain.tables import is_proved
from tests.moments import Around

pytestmark = pytest.mark.spark
_NUMBERS = itertools.count()


@pytest.fixture
def sick(lake: Lake, scratch: str) -> Table:
    """Two partitions of upserted rows."""
    # A name of its own: Spark remembers a table that was dropped.
    table = Table(lake, scratch, f"odd `name` {next(_NUMBERS)}").create(
        "id bigint, p string, v int", "p"
    )
    for commit in range(3):
        table.insert(
            f"(SELECT id, if(id % 2 = 0, 'even', 'o d/d') AS p, {commit} AS v FROM "
            f"range({commit}, 8))"
        )
        table.delete(
            ["id"],
            f"SELECT id FROM range({commit}, 6, 2)",
            {"p": "even"} if commit % 2 == 0 else {"p": "o d/d"},
        )
    return table


def test_a_dry_run_says_what_would_be_done_and_does_nothing(sick: Table, tmp_path: Path) -> None:
    before = sick.snapshots()
    sick.sql(
        f"CALL lake.system.compute_partition_stats(table => {literal(display_name(sick.name))})"
    )

    outcome = sick.converts(tmp_path, execute=False)

    assert outcome.status == "planned"
    for told in (
        "The snapshot has partition statistics",
        "3 equality delete files (",
        "become at most",
    ):
        assert told in repr(outcome)
    assert sick.snapshots() == before


@pytest.mark.core
def test_a_conversion_is_predicted_and_proved(sick: Table, tmp_path: Path) -> None:
    rows = sick.rows()

    outcome = is_proved(sick.converts(tmp_path))

    assert sick.equality_deletes() == 0
    action = outcome.actions[0]
    assert action.actual.items_before == 3
    assert action.action.prediction.files_in == 3
    assert action.actual.items_after <= action.action.prediction.files_out
    assert (outcome.actual.files_in, outcome.actual.bytes_in) == outcome.plan.files_and_bytes_read
    assert outcome.actual.bytes_out > 0
    assert sick.rows() == rows
    again = plan_conversion(sick.lake, sick.name)
    assert again.actions == ()
    assert "The table has no equality deletes." in again.notes


def test_a_filter_takes_whole_partitions(sick: Table, tmp_path: Path) -> None:
    rows = sick.rows()

    sick.converts(tmp_path, "p = 'even' AND id = 2")

    assert sick.equality_deletes() == 1
    assert sick.rows() == rows
    plan = plan_conversion(sick.lake, sick.name, where="v = 1")
    assert [len(action.partitions) for action in plan.actions] == [1]
    assert any("no partition column" in note for note in plan.notes)


def test_the_rows_can_be_read_without_changing_the_table(sick: Table) -> None:
    rows, snapshots = sick.rows(), sick.snapshots()

    frame = sick.lake.read_resolved(sick.name)

    assert Counter(tuple(row) for row in frame.collect()) == rows
    assert sick.snapshots() == snapshots
    sick.lake.until_closed.close()


@pytest.mark.core
def test_a_proof_by_a_join_agrees_with_the_engine_and_finds_a_lost_row(
    sick: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: Around
) -> None:
    """Where the deletes would not fit the heap, rows are read without them; columns may have been
    renamed since.
    """
    sick.sql("ALTER TABLE {t} RENAME COLUMN v TO w")
    sick.sql("ALTER TABLE {t} RENAME COLUMN id TO v")
    parent = sick.snapshots()[-1]
    outcome = sick.converts(tmp_path)
    ids = outcome.actions[0].snapshot_ids
    joined = around(readers, "resolved_snapshot", lambda: None)

    assert prove_commits(sick.lake, sick.name, ids).ok is True
    assert not joined
    monkeypatch.setattr(readers, "HEAP_SHARE", 0.0)
    assert prove_commits(sick.lake, sick.name, ids).ok is True
    assert [snapshot_id for *_, snapshot_id, _ in joined] == [parent]
    sick.files.refresh()
    sick.sql("DELETE FROM {t} WHERE v = 7")
    assert prove_commits(sick.lake, sick.name, sick.snapshots()[-1:]).ok is False


@pytest.mark.slow
def test_a_file_that_was_appended_twice_is_no_damage_to_a_proof_by_a_join(
    lake: Lake, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(lake, scratch, "twice").create()
    file = table.files.data("SELECT id, 'a' FROM range(3)")
    table.append(file).append(file)
    table.data("SELECT 10, 'b'")
    table.delete("id", "SELECT 10")
    outcome = table.converts(tmp_path)

    monkeypatch.setattr(readers, "HEAP_SHARE", 0.0)
    assert prove_commits(lake, table.name, outcome.actions[0].snapshot_ids).ok is True


def test_a_branch_that_is_not_there_is_named(sick: Table) -> None:
    with pytest.raises(
        SnapshotNotFound, match="'mian' is not a branch of the table; its branches are main"
    ):
        plan_conversion(sick.lake, sick.name, branch="mian")


@pytest.mark.lab("equality_deletes")
def test_the_command_forecasts_plans_and_changes_nothing(lake: Lake) -> None:
    status, said = command("convert", "lab.equality_deletes", "--executor", "4 cores 2g")

    assert status == 0
    for told in ("executor of 4 cores", "96 equality delete files (", "Nothing has run"):
        assert told in said


@pytest.mark.lab("equality_deletes")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--executor", "many"], "Write it as '2 cores 4g'"),
        (["--batch-bytes", "0"], "A batch of 0 is too small"),
        (["--resume"], "no unfinished run"),
    ],
)
def test_what_is_misconfigured_ends_with_2(
    lake: Lake, tmp_path: Path, arguments: list[str], told: str
) -> None:
    ledger = ["--ledger", str(tmp_path / "l.db")]
    status, said = command("convert", "lab.equality_deletes", *arguments, *ledger)

    assert (status, told in said) == (2, True), said


def test_a_table_without_deletes_or_snapshots_is_nothing_to_do(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    table = Table(lake, scratch, "empty").create()

    outcome = table.converts(tmp_path)

    assert outcome.status == "nothing to do"
    assert outcome.exit_status == 0
    assert "The table has no equality deletes." in repr(outcome)


def test_a_table_with_a_dot_in_its_name_is_seen_as_it_is(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    """Iceberg's catalog cache keeps its metadata tables when it is refreshed, and an old one reads
    a new snapshot as empty.
    """
    table = Table(lake, scratch, "dots.in.it").create("id bigint, p string", "p")
    table.insert("VALUES (1, 'a'), (2, 'b')")
    for key, part in ((1, "a"), (2, "b")):
        table.delete(["id"], f"VALUES ({key}L)", {"p": part})
    table.sql("SELECT * FROM {t}.entries")

    table.converts(tmp_path, "p = 'a'")
    left = plan_conversion(lake, table.name)

    assert [action.prediction.files_in for action in left.actions] == [1]


def test_a_conversion_is_predicted_by_what_a_scan_applies(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    table = Table(lake, scratch, f"new keys {next(_NUMBERS)}").create()
    for low in (0, 10):
        table.data(f"SELECT id, 'a' FROM range({low}, {low + 5})")
    table.delete("id", "SELECT id FROM range(100, 120)")
    new_keys = plan_conversion(table.lake, table.name)
    table.delete("id", "SELECT id FROM range(1, 3)")
    some = plan_conversion(table.lake, table.name)

    (of_new_keys,), (of_some,) = new_keys.actions, some.actions
    assert of_new_keys.why.startswith("20 delete records apply to no data file")
    assert new_keys.prediction.change_text == "1 equality delete file → 0 position delete files"
    assert of_some.why.startswith("2 of 22 delete records apply to 1 data file with 5 rows:")
    assert some.prediction.change_text == "2 equality delete files → at most 1 position delete file"
    outcome = is_proved(table.converts(tmp_path))
    assert outcome.actions[0].actual.items_after == 1
    assert (outcome.actual.files_in, outcome.actual.bytes_in) == outcome.plan.files_and_bytes_read
