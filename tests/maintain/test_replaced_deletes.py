"""A deletion vector replaces every position delete of its data file: nothing that icekit counts,
plans, rewrites or checks applies both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit import diagnose
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ReadersDisagree, TableContradicted
from icekit.health.diagnose.findings import Severity
from icekit.health.facts.integrity import DeleteState
from icekit.iceberg.file_kind import Kind
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.planning.table_plan import plan_table
from icekit.rows.proof.proof import CHECKED
from tests.damage import change_avro
from tests.deletes.tables import Table, run
from tests.health.both import facts_of
from tests.positions import add_vector, data_file, delete_by

pytestmark = [pytest.mark.spark, pytest.mark.core]

NOW = CompactionPolicy(leave_alone="0 minutes")


def with_both(table: Table, *, of_file: bool = True) -> Table:
    """Position 3 of forty rows is deleted by a delete file of version 2, of that data file or of
    the partition, and position 7 by a vector that lacks the other: readers show 39 rows.
    """
    table.create("id bigint, name string").data("SELECT id, 'a' FROM range(40)")
    path = data_file(table)
    first = table.snapshots()[-1]
    delete_by(table, [(path, 3)], of=path if of_file else None)
    second = table.snapshots()[-1]
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.files.table().manageSnapshots().setCurrentSnapshot(first).commit()
    table.files.refresh()
    add_vector(table, "id = 7", path, back_to=second)
    assert len(table.ids()) == 39
    assert 3 in table.ids()
    return table


def test_a_replaced_delete_counts_for_nothing_and_a_finding_says_which_rows_came_back(
    table: Table,
) -> None:
    facts = facts_of(with_both(table))
    (finding,) = (f for f in diagnose(facts) if f.name == "replaced_deletes")

    assert facts.total(Kind.POSITION_DELETES).file_count == 0
    assert facts.total(Kind.DELETION_VECTORS).record_count == 1
    assert [each.state for each in facts.unapplied] == [DeleteState.REPLACED]
    assert finding.severity is Severity.CRITICAL
    assert "1 row deleted by 1 file of them, but not by the vector" in finding.evidence
    assert "rewrite_position_delete_files" not in str(finding.sql)


def test_maintenance_leaves_it_and_a_compaction_drops_it(table: Table, tmp_path: Path) -> None:
    with_both(table)
    rows = table.rows()
    facts = table.lake.observe(table.name)
    assert plan_maintenance_table(table.lake, facts).actions == ()
    plan = plan_table(table.lake, facts, policy=NOW)
    outcome = table.lake.run(plan, execute=True, ledger=str(tmp_path / "l.db"))
    table.files.refresh()

    assert [action.only_drops_deletes for action in plan.actions] == [True]
    assert outcome.status == "done"
    assert outcome.proof is not None
    assert outcome.proof.ok
    assert table.rows() == rows
    assert table.delete_files() == 1


@pytest.mark.slow
@pytest.mark.parametrize("of_file", [True, False], ids=["of its file", "of its partition"])
def test_icebergs_own_rewrite_of_position_deletes_commits_no_other_rows(
    table: Table, of_file: bool
) -> None:
    """Iceberg merges the delete file into the vector, although its readers ignore it."""
    with_both(table, of_file=of_file)
    before = table.snapshots()
    rows = table.rows()
    with pytest.raises(ReadersDisagree, match="has a deletion vector, and position deletes that"):
        run(table, "rewrite_position_delete_files")
    table.files.refresh()

    assert (table.rows(), table.snapshots()) == (rows, before)


def test_a_refusal_blames_a_vector_only_where_one_is(table: Table) -> None:
    """A delete is older than its data file, which was removed and added again. Iceberg merges the
    delete into a newer one of the file.
    """
    table.create("id bigint, name string").data("SELECT id + 40, 'a' FROM range(40)")
    file = table.files.data("SELECT id, 'a' FROM range(40)")
    path = str(file.location())
    table.append(file)
    delete_by(table, [(path, 3)])
    table.files.table().newDelete().deleteFile(file).commit()
    table.append(file)
    delete_by(table, [(path, 7)])
    assert len(table.ids()) == 79
    before = table.snapshots()
    rows = table.rows()
    with pytest.raises(ReadersDisagree, match="readers would leave out other rows of") as error:
        run(table, "rewrite_position_delete_files")
    table.files.refresh()

    assert "vector" not in str(error.value)
    assert (table.rows(), table.snapshots()) == (rows, before)


def test_a_rewrite_of_position_deletes_is_compared_before_its_commit(
    table: Table, tmp_path: Path
) -> None:
    table.create("id bigint, name string").data("SELECT id, 'a' FROM range(20)")
    path = data_file(table)
    for position in range(6):
        delete_by(table, [(path, position)])
    rows = table.rows()
    plan = plan_maintenance_table(table.lake, table.lake.observe(table.name))
    outcome = table.lake.run(plan, execute=True, ledger=str(tmp_path / "l.db"))
    table.files.refresh()

    assert [action.procedure for action in plan.actions] == ["rewrite_position_delete_files"]
    assert outcome.proof is not None
    assert (outcome.proof.ok, outcome.proof.mode) == (True, CHECKED)
    assert table.rows() == rows
    assert table.delete_files() == 1


def deleted_by_key(table: Table) -> None:
    table.delete("id", "SELECT 5")


@pytest.mark.parametrize("of_file", [True, False], ids=["of its file", "of its partition"])
@pytest.mark.parametrize("way", [lambda table: run(table), None], ids=["compaction", "conversion"])
def test_rewrites_and_conversions_keep_what_readers_show(
    table: Table, tmp_path: Path, of_file: bool, way: Callable[[Table], None] | None
) -> None:
    with_both(table, of_file=of_file)
    deleted_by_key(table)
    rows = table.rows()
    if way is None:
        assert table.converts(tmp_path).status == "done"
        assert table.vectors_per_file() == 1
        assert table.equality_deletes() == 0
    else:
        way(table)
    table.files.refresh()

    assert table.rows() == rows
    assert 3 in table.ids()


@pytest.mark.slow
def test_two_vectors_of_a_data_file_are_named_and_nothing_is_planned(table: Table) -> None:
    """Iceberg's own writers refuse to add a second one."""
    table.create("id bigint, name string", version=3)
    for start in (0, 10):
        table.data(f"SELECT id + {start}, 'a' FROM range(10)")
    table.sql("DELETE FROM {t} WHERE id IN (1, 11)")
    path = data_file(table)
    (manifest,) = table.sql("SELECT path FROM {t}.manifests WHERE content = 1")[0]

    def name_one_file(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            entry["data_file"]["referenced_data_file"] = path

    change_avro(manifest, name_one_file)
    table.files.refresh()
    facts = facts_of(table)
    findings = diagnose(facts)

    assert findings[0].name == "several_vectors"
    assert {each.state for each in facts.unapplied} == {DeleteState.SEVERAL_VECTORS}
    with pytest.raises(TableContradicted):
        plan_table(table.lake, facts, findings, NOW)
    assert plan_maintenance_table(table.lake, facts, findings).actions == ()
