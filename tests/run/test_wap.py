"""A session that writes, audits and then publishes (``spark.wap.branch``, ``spark.wap.id``): icekit
works on the branch that it is given, main by default.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.compact.outcome import Outcome
from icekit.compact.policy import Policy
from icekit.compact.service import plan_table
from icekit.engine.bridge import lent
from icekit.prove.commits import prove_commits
from icekit.run.verbs import convert_equality_deletes, run
from icekit.sandbox.clones import clone
from icekit.sql import identifier
from tests.resolve.tables import Table

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake: Lake, scratch: str) -> Iterator[Table]:
    """A table with equality deletes, and a branch with more rows."""
    made = Table(lake, scratch, "audited").create(write_wap_enabled="true")
    for n in range(5):
        made.insert(f"(SELECT id + {10 * n} AS id, 'a' AS name FROM range(10))")
    made.delete("id", "SELECT id * 10 FROM range(3)")
    made.sql("ALTER TABLE {t} CREATE BRANCH audit")
    made.sql(f"INSERT INTO {made.sql_name}.branch_audit SELECT id + 1000, 'b' FROM range(7)")
    made.files.refresh()
    yield made
    made.sql("DROP TABLE {t}")


@pytest.fixture
def go(table: Table, tmp_path: Path) -> dict[str, Callable[[], Outcome]]:
    """A compaction and a conversion of it."""
    lake, quiet = table.lake, lambda _: None
    book = str(tmp_path / "ledger.db")

    def compact() -> Outcome:
        policy = Policy.of({"leave_alone": "0 minutes"})
        plan = plan_table(
            lake, lake.observe(table.name), policy=policy, ledger=book, progress=quiet
        )
        return run(lake, plan, execute=True, ledger=book, progress=quiet)

    return {
        "compact": compact,
        "convert": lambda: convert_equality_deletes(
            lake, table.name, execute=True, ledger=book, progress=quiet
        ),
    }


wap = pytest.mark.parametrize(
    "setting", [{"spark.wap.branch": "audit"}, {"spark.wap.id": "one"}], ids=["branch", "id"]
)


@wap
@pytest.mark.parametrize("command", ["compact", "convert"])
def test_main_is_rewritten_and_the_branch_stays(
    table: Table, go: dict[str, Callable[[], Outcome]], setting: dict[str, str], command: str
) -> None:
    main, audit, snapshots = (
        table.rows(),
        table.rows("VERSION AS OF 'audit'"),
        len(table.snapshots()),
    )
    with lent(table.spark, setting):
        outcome = go[command]()
    table.files.refresh()

    assert len(main) == 47
    assert len(audit) == 54
    assert outcome.status == "done", outcome
    assert outcome.proof is not None
    assert outcome.proof.ok is True
    assert table.rows() == main
    assert table.rows("VERSION AS OF 'audit'") == audit
    assert len(table.snapshots()) == snapshots + 1
    assert table.equality_deletes() == 0


@wap
def test_a_clone_reads_and_writes_its_own_snapshot(table: Table, setting: dict[str, str]) -> None:
    with lent(table.spark, setting), clone(table.lake, table.name) as copy:
        name = identifier(*table.lake.sql_name(copy.table))
        table.spark.sql(f"INSERT INTO {name} VALUES (5000, 'c')")

        assert table.spark.table(name).count() == 48
        assert table.spark.sql(f"SELECT * FROM {name} VERSION AS OF 'main'").count() == 48


def test_a_proof_by_a_join_reads_the_snapshots_of_the_commit(table: Table) -> None:
    """On clones, where a session that reads a branch would find the same rows before and after."""
    table.sql("DELETE FROM {t} WHERE id = 7")
    with lent(table.spark, {"spark.wap.branch": "audit"}):
        proof = prove_commits(table.lake, table.name, table.snapshots()[-1:], resolve=True)

    assert proof.ok is False
