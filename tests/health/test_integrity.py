"""What contradicts itself in a table's manifests is found by both collectors, and cured by the
statements of its finding.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from icekit import diagnose
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import TableContradicted
from icekit.engine.bridge import elements
from icekit.health import TableFacts
from icekit.health.facts.integrity import Contradiction, DeleteState
from icekit.health.facts.metadata_file import load_metadata
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifests import BOUNDS
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.planning.table_plan import plan_table
from tests.child import python
from tests.damage import change_avro
from tests.deletes.tables import Table
from tests.health.both import facts_of
from tests.positions import data_file, delete_by, vector_of

pytestmark = pytest.mark.spark
NOW = CompactionPolicy(leave_alone="0 minutes")


def now(table: Table) -> TableFacts:
    """The facts after a change, without Spark."""
    return table.lake.observe(table.name, collector="local")


def without_dangling(table: Table) -> None:
    """See that deletes apply to nothing and that nothing else is wrong, and drop them by a run."""
    facts = now(table)
    assert [f.name for f in diagnose(facts)] == ["dangling_deletes"]
    assert table.lake.run(plan_table(table.lake, facts, policy=NOW), execute=True).status == "done"
    table.files.refresh()
    assert now(table).has_deletes is False


def refused(table: Table, facts: TableFacts, contradiction: Contradiction) -> tuple[str, ...]:
    """Nothing is planned on the table, and nothing changed; returns the statements of the finding."""
    findings, before = diagnose(facts), table.snapshots()
    assert findings[0].name == contradiction
    with pytest.raises(TableContradicted) as error:
        plan_table(table.lake, facts, findings, NOW)
    assert error.value.contradictions == (contradiction,)
    actions = plan_maintenance_table(table.lake, facts, findings).actions
    assert {action.procedure for action in actions} <= {"rewrite_manifests"}
    assert table.snapshots() == before
    return findings[0].sql


def refused_and_cured(
    table: Table, facts: TableFacts, contradiction: Contradiction, rows: Counter[Any]
) -> None:
    """The same; the statements leave nothing of the finding, and these rows."""
    for statement in refused(table, facts, contradiction):
        table.spark.sql(statement).collect()
    table.files.refresh()
    after = now(table)
    assert after.contradictions == ()
    assert contradiction not in diagnose(after).names
    assert table.rows() == rows


def relist(table: Table, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the records of the current snapshot's manifest list."""
    metadata = load_metadata(table.lake.tables.source(table.name))
    (current,) = (
        s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
    )
    change_avro(current["manifest-list"], change)
    table.files.refresh()


def append_again(table: Table) -> str:
    """Append the first data file once more; returns its path."""
    loaded: Any = table.files.table()
    file = min(
        (task.file() for task in elements(loaded.newScan().planFiles())),
        key=lambda f: str(f.location()),
    )
    loaded.newFastAppend().appendFile(file).commit()
    table.files.refresh()
    return str(file.location())


# --- Files that are listed twice


@pytest.mark.parametrize(
    "by", ["", "p", "bucket(2, id)"], ids=["unpartitioned", "identity", "bucket"]
)
def test_a_data_file_that_is_listed_twice_is_named_refused_and_written_once(
    table: Table, by: str
) -> None:
    table.create("id bigint, p int", by)
    for n in range(2):
        table.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id + {n * 10}, {n} FROM range(10)")
    before = table.rows()
    path = append_again(table)
    snapshots = table.snapshots()
    table.sql("DELETE FROM {t} WHERE id IN (3, 13)")
    facts = facts_of(table)

    (named,) = facts.integrity.duplicates
    assert (named.path, named.kind, named.entry_count) == (path, Kind.DATA, 2)
    assert len(named.snapshot_ids) == 2
    assert set(named.snapshot_ids) < set(snapshots)
    assert facts.integrity.duplicate_data_file_count == 1
    assert sum(table.rows().values()) > sum(before.values())
    rows = Counter({row: 1 for row in before if row[0] not in {3, 13}})
    refused_and_cured(table, facts, Contradiction.DUPLICATE_FILES, rows)


def test_a_manifest_that_is_listed_twice_is_named_and_cured(table: Table) -> None:
    table.create("id bigint").insert("range(10)").insert("range(10, 20)")
    before = table.rows()
    relist(table, lambda records: records.append(records[0]))
    facts = facts_of(table)

    assert len(facts.integrity.duplicate_manifests) == 1
    assert facts.integrity.duplicate_record_count == 10
    refused_and_cured(table, facts, Contradiction.DUPLICATE_FILES, before)


def test_a_delete_file_that_is_listed_twice_is_named_and_cured(table: Table) -> None:
    table.create("id bigint").insert("range(10)").sql("DELETE FROM {t} WHERE id = 3")
    loaded: Any = table.files.table()
    (task,) = elements(loaded.newScan().planFiles())
    loaded.newRowDelta().addDeletes(task.deletes()[0]).commit()
    table.files.refresh()
    facts = facts_of(table)

    assert facts.integrity.duplicate_data_file_count == 0
    assert facts.integrity.duplicate_delete_file_count == 1
    rows = Counter({(n,): 1 for n in range(10) if n != 3})
    refused_and_cured(table, facts, Contradiction.DUPLICATE_FILES, rows)


# --- Deletes that do not apply


def misfile(table: Table, version: int = 2) -> str:
    """Delete a row of a file under a spec that is not the file's; returns the file's path."""
    path, part = data_file(table), {"p": 1, "id_bucket_2": 0}
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    if version == 2:
        delete_by(table, [(path, 1)], has_bounds=True, part=part)
    else:
        vector_of(table, "id % 4 = 1", path, part)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_of_a_file_of_another_spec_is_misfiled_and_a_roll_back_cures_it(
    table: Table, version: int
) -> None:
    table.create("id bigint, p int", "p", version)
    for n in range(2):
        table.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id + {n * 4}, 1 FROM range(4)")
    before, start = table.rows(), table.snapshots()[-1]
    path = misfile(table, version)
    facts = facts_of(table)

    (unapplied,) = facts.unapplied
    (example,) = facts.integrity.misplaced
    assert (unapplied.state, unapplied.file_count) == (DeleteState.MISFILED, 1)
    assert (example.partition.spec_id, example.data_partition.spec_id) == (1, 0)
    assert example.data_path == path
    assert example.snapshot_id == table.snapshots()[-1]
    others = {"dangling_deletes", "position_deletes", "deletion_vectors", "v2_position_deletes"}
    assert not others & diagnose(facts).names
    refused(table, facts, Contradiction.MISFILED_DELETES)
    table.call("rollback_to_snapshot", f"snapshot_id => {start}")
    table.files.refresh()
    assert table.rows() == before
    assert now(table).contradictions == ()


def test_deletes_of_files_that_a_stock_rewrite_replaced_are_dangling(table: Table) -> None:
    table.create("id bigint", write_delete_granularity="file")
    for n in range(2):
        table.insert(f"range({n * 10}, {n * 10 + 10})")
    table.sql("DELETE FROM {t} WHERE id IN (3, 4, 5)")
    before = table.rows()
    assert "position_deletes" in diagnose(now(table)).names
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    table.files.refresh()
    facts = facts_of(table)

    (unapplied,) = facts.unapplied
    assert (unapplied.state, unapplied.record_count) == (DeleteState.DANGLING, 3)
    (action,) = plan_table(table.lake, facts, policy=NOW).actions
    assert action.only_drops_deletes
    assert action.prediction.delete_files_removed == 1
    without_dangling(table)
    assert table.rows() == before


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_that_only_has_dangling_deletes_is_told_by_them(table: Table, version: int) -> None:
    """They have more records than the table has rows."""
    table.create("id bigint", version=version).insert("range(10)")
    for _ in range(3):
        delete_by(
            table, [("/gone.parquet", n) for n in range(5)], of="/gone.parquet"
        ) if version == 2 else vector_of(table, "id = 1", f"/gone{_}.parquet")
    facts = facts_of(table)

    assert [f.name for f in diagnose(facts)] == ["dangling_deletes"]
    assert sum(each.file_count for each in facts.unapplied) == 3


def test_a_delete_by_another_spelling_is_unmatched_until_the_rows_are_deleted_again(
    table: Table,
) -> None:
    table.create("id bigint", write_delete_mode="copy-on-write").insert("range(10)")
    path = data_file(table)
    other = "hdfs://old:8020" + path.removeprefix("file:")
    delete_by(table, [(other, n) for n in range(5)], of=other)
    facts = facts_of(table)

    (example,) = facts.integrity.misplaced
    assert example.state == DeleteState.UNMATCHED
    assert (example.named_path, example.data_path) == (other, path)
    assert [f.name for f in diagnose(facts)] == ["unmatched_deletes"]
    assert plan_table(table.lake, facts, policy=NOW).actions == ()
    table.sql("DELETE FROM {t} WHERE id < 5")
    without_dangling(table)
    assert table.ids() == [5, 6, 7, 8, 9]


# --- Partition summaries that do not cover the entries


@pytest.mark.parametrize(
    ("files", "of_deletes"),
    [(1, False), (3, False), (1, True)],
)
def test_a_summary_that_is_narrower_than_its_entries_is_named_and_cured(
    table: Table, files: int, of_deletes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create("id bigint, data binary", "data")
    if files > 1:  # as if their manifests shared a hash
        monkeypatch.setattr("icekit.health.facts.spark.crc32", len)
    for _ in range(files):
        table.insert("(SELECT id, X'e3bcd1' FROM range(4))")
    if of_deletes:
        table.sql("DELETE FROM {t} WHERE id = 1")
    before, filtered = table.rows(), "WHERE data = X'e3bcd1'"

    def narrower(records: list[dict[str, Any]]) -> None:
        first = next(record for record in records if (record["content"] == 1) is of_deletes)
        first["partitions"][0] |= dict.fromkeys(BOUNDS, bytes.fromhex("bcd1"))

    relist(table, narrower)
    facts = facts_of(table)

    (narrow,) = facts.integrity.narrow_manifests
    assert (narrow.field, narrow.missing) == ("data", None)
    assert (narrow.listed, narrow.held) == (("bcd1", "bcd1"), ("e3bcd1", "e3bcd1"))
    assert (narrow.is_deletes, narrow.is_alone) == (of_deletes, files == 1)
    assert table.rows() == before != table.rows(filtered)
    refused_and_cured(table, facts, Contradiction.MANIFEST_BOUNDS, before)
    assert table.rows(filtered) == before


def test_a_summary_that_denies_nulls_nans_or_decimals_is_named(table: Table) -> None:
    table.create("i int, f double, dec decimal(9, 2)", "i, f, dec")
    table.insert("VALUES (1, 1.5, 1.25), (2, double('NaN'), -1.25), (null, null, null)")
    assert facts_of(table).integrity.narrow_manifest_count == 0

    def deny(records: list[dict[str, Any]]) -> None:
        first, second, third = records[0]["partitions"]
        first["contains_null"] = second["contains_nan"] = False
        third["upper_bound"] = (124).to_bytes(2, "big")

    relist(table, deny)
    found = {each.field: each for each in facts_of(table).integrity.narrow_manifests}

    missing = {name: each.missing for name, each in found.items()}
    assert missing == {"i": "null", "f": "NaN", "dec": None}
    assert found["dec"].listed == ("-1.25", "1.24")


def test_iceberg_1_11_applies_misfiled_deletes_and_its_rewrite_cures_the_table(
    table: Table,
) -> None:
    """The statement of the finding, run by a session of its own."""
    table.create("id bigint, p int", "p").sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 1 FROM range(4)"
    )
    misfile(table)
    statements = diagnose(now(table))[0].sql
    script = (
        f"import icekit\nspark = icekit.connect().spark\nfor statement in {statements!r}:\n    "
        "spark.sql(statement).collect()"
    )
    done = python("-c", script, env={**os.environ, "ICEKIT_ICEBERG": "1.11.0"}, timeout=300)

    assert done.returncode == 0, done.stderr
    table.files.refresh()
    assert table.ids() == [0, 2, 3]
    without_dangling(table)
    assert table.ids() == [0, 2, 3]
