"""A session that writes, audits and then publishes (``spark.wap.branch``, ``spark.wap.id``): icekit
works on the branch that it is given, main by default.
"""

from collections.abc import Iterator

import pytest

from icekit.common.sql import identifier
from icekit.engine.bridge import temporary_settings
from icekit.maintain.planning.conversion import plan_conversion
from icekit.rows.proof import readers
from icekit.rows.proof.commits import prove_commits
from icekit.sandbox.clones import clone
from tests.maintain.tables import Named, Table, is_proved

pytestmark = [pytest.mark.spark, pytest.mark.core]


@pytest.fixture
def table(named: Named) -> Iterator[Table]:
    """A table with equality deletes, and a branch with more rows."""
    made = named("audited").create("id bigint, name string", "", write_wap_enabled="true")
    for n in range(5):
        made.insert(f"(SELECT id + {10 * n} AS id, 'a' AS name FROM range(10))")
    made.delete("id", "SELECT id * 10 FROM range(3)")
    made.sql("ALTER TABLE {t} CREATE BRANCH audit")
    made.sql(f"INSERT INTO {made.sql_name}.branch_audit SELECT id + 1000, 'b' FROM range(7)")
    made.files.refresh()
    yield made
    made.sql("DROP TABLE {t}")


wap = pytest.mark.parametrize(
    "setting", [{"spark.wap.branch": "audit"}, {"spark.wap.id": "one"}], ids=["branch", "id"]
)


@wap
@pytest.mark.parametrize("converts", [False, True], ids=["compact", "convert"])
def test_main_is_rewritten_and_the_branch_stays(
    table: Table, setting: dict[str, str], converts: bool
) -> None:
    main, audit = table.rows(), table.rows("VERSION AS OF 'audit'")
    snapshots = len(table.snapshots())
    with temporary_settings(table.spark, setting):
        plan = plan_conversion(table.lake, table.name) if converts else table.plan()
        is_proved(table.run(plan))
    table.files.refresh()

    assert (len(main), len(audit)) == (47, 54)
    assert table.rows() == main
    assert table.rows("VERSION AS OF 'audit'") == audit
    assert len(table.snapshots()) == snapshots + 1
    assert table.delete_files("WHERE content = 2") == 0


@wap
def test_a_clone_reads_and_writes_its_own_snapshot(table: Table, setting: dict[str, str]) -> None:
    with temporary_settings(table.spark, setting), clone(table.lake, table.name) as copy:
        name = identifier(*table.lake.sql_name(copy.table))
        table.spark.sql(f"INSERT INTO {name} VALUES (5000, 'c')")

        assert table.spark.table(name).count() == 48
        assert table.spark.sql(f"SELECT * FROM {name} VERSION AS OF 'main'").count() == 48


@pytest.mark.slow
def test_a_proof_by_a_join_reads_the_snapshots_of_the_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On clones, where a session that reads a branch would find the same rows before and after."""
    table.sql("DELETE FROM {t} WHERE id = 7")
    monkeypatch.setattr(readers, "HEAP_SHARE", 0.0)
    with temporary_settings(table.spark, {"spark.wap.branch": "audit"}):
        proof = prove_commits(table.lake, table.name, table.snapshots()[-1:])

    assert proof.ok is False
