"""Position deletes that apply to nothing, or not as they should, never make rows permanent."""

from pathlib import Path
from typing import Any

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import DeletesUnmatched, MetadataUnreadable
from icekit.engine.bridge import elements
from icekit.engine.compat import is_at_least
from icekit.engine.spark_conf import ICEBERG
from icekit.engine.staging import Staging
from icekit.health.collect import observe
from icekit.health.diagnose import diagnose
from icekit.maintain.action import REWRITE_NOTHING
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.run.rewrite import CheckedRewrite
from icekit.rows.deletes import dangling
from icekit.rows.deletes.dangling import count_dangling, drop_dangling
from icekit.rows.proof.checked import RowsDiffer
from icekit.rows.proof.commits import prove_commits, prove_rewrites
from icekit.rows.rewrite import rewrite_session
from icekit.rows.rewrite.rewrite_session import NotHere
from tests.commits import in_order, since
from tests.deletes.tables import TAGS, Table, by_spark, run
from tests.maintain.tables import refused
from tests.moments import Around
from tests.positions import data_file, delete_by, vector_of

pytestmark = [pytest.mark.spark, pytest.mark.core]

both_versions = pytest.mark.parametrize("version", [2, 3])
DROPPING = {"remove-dangling-deletes": "true"}
PARTLY = {**DROPPING, "partial-progress.enabled": "true"}


def remove(table: Table, path: str) -> None:
    """Commit that a data file is gone."""
    loaded: Any = table.files.table()
    # With a path, py4j calls a method of the same name that removes the file itself.
    (file,) = (
        task.file()
        for task in elements(loaded.newScan().planFiles())
        if task.file().location() == path
    )
    loaded.newDelete().deleteFile(file).commit()
    table.files.refresh()


def rewritten(table: Table, **options: str) -> int:
    """Rewrite the table as a run does, see that no row changes, and count its rows."""
    before = table.rows()
    run(table, **options)
    assert table.rows() == before
    return before.total()


def filled(table: Table, version: int = 2) -> str:
    table.create(version=version).data("SELECT id, 'a' FROM range(10)")
    return data_file(table)


# --- Paths that match no data file


@pytest.mark.parametrize("names_its_file", [True, False], ids=["of one file", "of a partition"])
@pytest.mark.parametrize(
    "wrong",
    ["hdfs://old:8020{}", "/moved/elsewhere/{name}"],
    ids=["another scheme", "a moved table"],
)
def test_paths_that_are_written_otherwise_stop_a_rewrite_before_its_commit(
    table: Table, wrong: str, names_its_file: bool
) -> None:
    path = filled(table)
    other = wrong.format(path.removeprefix("file:"), name=path.rsplit("/", 1)[1])
    delete_by(table, [(other, n) for n in range(5)], of=path if names_its_file else None)

    refused(table, DeletesUnmatched, r"5 position deletes in .* which the table has as", **PARTLY)


@pytest.mark.parametrize("by_bounds", [True, False], ids=["by bounds", "by reference"])
@pytest.mark.parametrize(
    "own_action", [False, True], ids=["checked here", "by Iceberg's own action"]
)
def test_metadata_that_names_another_path_stops_a_rewrite_too(
    table: Table, monkeypatch: pytest.MonkeyPatch, by_bounds: bool, own_action: bool
) -> None:
    """A scan gives such a delete to no file, so no task of the rewrite lists it."""
    path = filled(table)
    other = "s3a://bucket" + path.removeprefix("file:")
    delete_by(
        table, [(other, n) for n in range(5)], of=None if by_bounds else other, has_bounds=by_bounds
    )
    if own_action:
        monkeypatch.setattr(CheckedRewrite, "run", _not_here)

    what = r"5 position deletes in .* name the data file s3a://.* which the table has as"
    refused(table, DeletesUnmatched, what, **PARTLY)


@pytest.mark.slow
def test_metadata_that_names_a_live_file_or_one_that_is_gone_is_no_fault(table: Table) -> None:
    path = filled(table)
    delete_by(table, [(path, 1)], of=path)
    delete_by(table, [("s3a://bucket/gone.parquet", 1)], of="s3a://bucket/gone.parquet")

    assert rewritten(table) == 9


def _not_here(*_: Any) -> None:
    raise NotHere("a test")


def test_icebergs_own_actions_do_not_lose_them_either(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(table)
    delete_by(table, [("hdfs://old:8020" + path, 1)], of=path)

    refused(table, DeletesUnmatched, "1 position delete in", "rewrite_position_delete_files")
    monkeypatch.setattr(CheckedRewrite, "run", _not_here)
    refused(table, DeletesUnmatched, "1 position delete in")


@pytest.mark.slow
def test_a_path_that_is_of_another_file_of_the_table_is_right(table: Table) -> None:
    """Positions of files that are gone, of files of other groups, and one position twice."""
    path = filled(table)
    table.insert("VALUES (100L, 'b'), (101L, 'b')")
    other = next(
        str(row[0]) for row in table.sql("SELECT file_path FROM {t}.data_files") if row[0] != path
    )
    delete_by(
        table, [(path, 1), (path, 1), (path, 3), (other, 0), ("/gone/of-another-time.parquet", 2)]
    )
    delete_by(table, [(path, 3)], of=path)

    assert rewritten(table, max_file_group_size_bytes="1") == 9


@pytest.mark.slow
def test_deletes_of_files_that_were_replaced_are_no_fault_and_are_dropped(table: Table) -> None:
    """Iceberg's own rewrite keeps the sequence number, so the delete is not older than the new
    file.
    """
    path = filled(table)
    delete_by(table, [(path, n) for n in range(3)], of=path)
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert table.delete_files() == 1

    rewritten(table, rewrite_all="false", **REWRITE_NOTHING, **DROPPING)

    assert table.delete_files() == 0
    assert prove_rewrites(table.lake, table.name, since(table.lake, table.name, -1)).ok
    assert prove_commits(table.lake, table.name, table.snapshots()[-1:]).ok


@pytest.mark.slow
@pytest.mark.parametrize("names_its_file", [True, False], ids=["of one file", "of a partition"])
def test_a_delete_of_a_file_that_the_table_once_had_is_no_fault_where_another_has_its_name(
    table: Table, names_its_file: bool
) -> None:
    """Files that were added from two folders may share a name."""
    path = filled(table)
    first, second = (f"{path.rpartition('/')[0]}/{folder}/part-0.parquet" for folder in "ab")
    for to in (first, second):
        Path(to.removeprefix("file:")).parent.mkdir()
        Path(to.removeprefix("file:")).write_bytes(Path(path.removeprefix("file:")).read_bytes())
        table.append_path(to, 10)
    delete_by(table, [(first, 1)], of=first if names_its_file else None)
    remove(table, first)

    assert rewritten(table, **DROPPING) == 20


def test_a_path_that_is_missing_stops_a_rewrite(table: Table) -> None:
    delete_by(table, [(None, 1), (None, 2)], of=filled(table))

    refused(table, DeletesUnmatched, r"2 position deletes in .* may name no data file")


@pytest.mark.parametrize("wrong", [{"offset": 6}, {"records": 2}], ids=["offset", "records"])
def test_a_vector_that_is_not_what_the_metadata_says_stops_a_rewrite(
    table: Table, wrong: dict[str, int]
) -> None:
    """No reader gives the rows of the table either."""
    vector_of(table, "id = 1", filled(table, 3), **wrong)
    snapshots = table.snapshots()

    with pytest.raises(Exception, match=r"Invalid bitmap|Invalid cardinality"):
        run(table)

    assert table.snapshots() == snapshots


# --- A reader that ignores deletes


@both_versions
@pytest.mark.parametrize(
    "equality", [False, True], ids=["no equality deletes", "and equality deletes"]
)
def test_deletes_that_the_reader_ignores_are_noticed_before_the_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, equality: bool
) -> None:
    by_spark(monkeypatch)
    filled(table, version)
    table.sql("DELETE FROM {t} WHERE id IN (3, 4)")
    if equality:
        table.delete("id", "SELECT 7L")
    stage = Staging.frame

    def ignoring(self: Staging, name: str, options: Any = None) -> Any:
        manager = self.spark._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()  # type: ignore[union-attr]
        bare = self.java.plain(manager.fetchTasks(self.table, name))
        tasks = self.spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for task in bare:
            tasks.add(self.java.task(task.file(), self.spark._jvm.java.util.ArrayList()))  # type: ignore[union-attr]
        self.java.stage(tasks, name)
        return stage(self, name, options)

    monkeypatch.setattr(Staging, "frame", ignoring)

    refused(table, RowsDiffer, "2 rows of the old files are deleted by position, but 0")


@pytest.mark.slow
@pytest.mark.parametrize("records", [5, 12])
def test_a_wrong_number_of_records_in_a_data_file_is_no_fault(table: Table, records: int) -> None:
    path = filled(table)
    remove(table, path)
    table.append_path(path, records)
    # The last is of no row. Iceberg refuses a rewrite that adds more rows than the metadata says
    # are replaced.
    delete_by(table, [(path, n) for n in (0, 1, 2, 3, 4, 7, 30)], of=path)

    assert rewritten(table) == 4


def test_it_is_none_under_equality_deletes_that_spark_applies_either(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are deleted that the file has not, by its metadata."""
    by_spark(monkeypatch)
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", 0)
    path = filled(table)
    remove(table, path)
    table.append_path(path, 5)
    table.delete("id", "SELECT id + 4 FROM range(6)")

    assert rewritten(table) == 4


def test_spark_rewrites_a_group_all_of_whose_rows_are_deleted_twice(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By position, and by key."""
    by_spark(monkeypatch)
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", 0)
    table.create("id bigint, k int").data("SELECT id, 1 FROM range(2)")
    path = data_file(table)
    delete_by(table, [(path, 0), (path, 1)], of=path)
    table.delete("k", "SELECT 1")

    assert rewritten(table) == 0


# --- Deletes that apply to nothing


def test_only_what_a_scan_gives_to_no_file_is_dropped(table: Table) -> None:
    """Among them: a delete of a file that is gone, one with its file's name in another folder, one
    that is older than all data.
    """
    path = filled(table)
    kept = [
        delete_by(table, [(path, 1)], of=path),
        delete_by(table, [("hdfs://old:8020" + path, 1)], of="hdfs://old:8020" + path),
        delete_by(table, [(path, 2), ("/gone.parquet", 1)]),
    ]
    delete_by(table, [("/gone.parquet", 1)], of="/gone.parquet")
    table.delete("id", "SELECT 5L")
    before = table.rows()

    assert count_dangling(table.spark, table.full) == 1
    assert drop_dangling(table.spark, table.full, TAGS) == 1

    table.files.refresh()
    assert {
        row[0] for row in table.sql("SELECT file_path FROM {t}.delete_files WHERE content = 1")
    } == set(kept)
    assert table.equality_deletes() == 1
    assert table.rows() == before
    assert in_order(table.lake, table.name)[-1]["summary"].items() >= TAGS.items()


@pytest.mark.slow
def test_deletes_of_all_partitions_stay_until_no_partition_has_older_data(table: Table) -> None:
    table.create("id bigint, p int").sql("ALTER TABLE {t} ADD PARTITION FIELD p")
    for p in (1, 2):
        table.data(f"SELECT id, {p} FROM range(4)", {"p": p})
    table.delete("id", "SELECT 1L", spec=0)

    assert drop_dangling(table.spark, table.full, {}) == 0
    rewritten(table, **DROPPING)

    assert table.equality_deletes() == 0


@both_versions
def test_a_delete_that_is_filed_under_another_partition_is_not_dropped(
    table: Table, version: int
) -> None:
    """Iceberg 1.11, pyiceberg and DuckDB apply it by its path; 1.12 does not read the table."""
    table.create("id bigint, p int", "p", version).data("SELECT id, 1 FROM range(4)", {"p": 1})
    path = data_file(table)
    if version == 2:
        delete_by(table, [(path, 1)], of=path, part={"p": 2})
    else:
        vector_of(table, "id = 1", path, {"p": 2})
    snapshots = table.snapshots()

    if is_at_least(ICEBERG, 12):
        with pytest.raises(MetadataUnreadable, match="filed under another partition"):
            drop_dangling(table.spark, table.full, {})
        assert table.snapshots() == snapshots
        return
    assert drop_dangling(table.spark, table.full, {}) == 0
    assert rewritten(table, **DROPPING) == 3
    assert not table.delete_files()


def test_a_plan_asks_the_scan_too(table: Table) -> None:
    """The finding counts by partition and sequence number; a plan has nothing to drop where
    something may apply.
    """
    table.create("id bigint, p int", "p").data("SELECT id, 1 FROM range(4)", {"p": 1})
    other = "hdfs://old:8020" + data_file(table)
    delete_by(table, [(other, 1)], of=other, part={"p": 2})
    facts = observe(table.lake, table.name)
    now = CompactionPolicy(leave_alone="0 minutes")

    assert "dangling_deletes" in diagnose(facts).names
    assert plan_table(table.lake, facts, policy=now).actions == ()

    delete_by(table, [("/gone.parquet", 1)], of="/gone.parquet", part={"p": 2})
    (action,) = plan_table(table.lake, observe(table.lake, table.name), policy=now).actions
    assert action.only_drops_deletes
    assert action.prediction.delete_files_removed == 1


def test_deletes_are_not_dropped_when_a_writer_came_first(table: Table, around: Around) -> None:
    """A rewrite that keeps its sequence number may add a file to which an old delete applies."""
    filled(table)
    delete_by(table, [("/gone.parquet", 1)], of="/gone.parquet")
    around(dangling, "_commit", lambda: table.insert("VALUES (1000L, 'late')"))

    with pytest.raises(Exception, match="no longer at snapshot"):
        drop_dangling(table.spark, table.full, {})


@pytest.mark.slow
def test_a_commit_that_dropped_a_delete_which_applied_is_compared_in_full(table: Table) -> None:
    path = filled(table)
    delete_by(table, [(path, 1)], of=path)
    loaded: Any = table.files.table()
    removed = next(elements(loaded.newScan().planFiles())).deletes()[0]
    loaded.newRowDelta().removeDeletes(removed).commit()
    table.files.refresh()

    proof = prove_rewrites(table.lake, table.name, since(table.lake, table.name, -1))

    assert not proof.ok
