"""Rewrites in icekit's own way: no row changes, every equality delete is applied, and a wrong
result is never committed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from icekit.api import Lake
from icekit.common.errors import ReadersDisagree
from icekit.engine.bridge import guarded_table, load_latest_table
from icekit.engine.errors import failure_kind
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.spark_conf import ICEBERG
from icekit.engine.staging import Staging
from icekit.maintain.run.rewrite import CheckedRewrite
from icekit.rows.deletes import join
from icekit.rows.deletes.resolved import resolved
from icekit.rows.deletes.ruled_out import checked_match_sql
from icekit.rows.kernel.table_settings import KernelUnavailable
from icekit.rows.proof import checked as checked_rows
from icekit.rows.proof import readers
from icekit.rows.proof.checked import CHECKED_TAG, CheckedRows, RowsDiffer
from icekit.rows.proof.commits import prove_commits, prove_rewrites
from icekit.rows.rewrite import bundles, kernel_work, rewrite_session
from icekit.rows.rewrite.difference import MOST_ROWS, ColumnDifference, column_difference
from icekit.rows.rewrite.group import Group
from icekit.rows.rewrite.kernel_work import KernelGroup, KernelWork
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from tests.commits import in_order, since
from tests.deletes.tables import (
    IN_ORDER,
    Table,
    by_spark,
    of_every_file,
    run,
    unchanged,
    with_keys_of_every_type,
    with_ruled_out_key,
    with_values_of_another_partition,
)
from tests.maintain.tables import refused
from tests.moments import Around
from tests.versions import ENGINE

pytestmark = [pytest.mark.spark, pytest.mark.core]

both_versions = pytest.mark.parametrize("version", [2, 3])


BY_ID = RewriteOrder("sort", (("id",),))


def two_files(table: Table) -> None:
    """Create the table of two rows, in a file each."""
    table.create().insert("VALUES (1, 'a')").insert("VALUES (2, 'b')")


both_ways = pytest.mark.parametrize(
    "few", [0, 1000], ids=["by a join", "by Iceberg's reader"], indirect=True
)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Deletes are applied by a join, however few they are; a test with ``both_ways`` runs both
    ways.
    """
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", getattr(request, "param", 0))


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What writes the new files: the kernel, or Spark."""
    if getattr(request, "param", "Spark") == "Spark":
        by_spark(monkeypatch)


spark_s_way = pytest.mark.usefixtures("writer")


def either_writer(test: Callable[..., None]) -> Any:
    """Run a test with the kernel, and with Spark."""
    both = pytest.mark.parametrize("writer", ["kernel", "Spark"], indirect=True)
    return both(pytest.mark.usefixtures("writer")(test))


def files_in(table: Table) -> set[str]:
    return {str(path) for path in table.location.rglob("*.parquet")}


def ids_as_written(table: Table) -> list[int]:
    return [row["id"] for row in table.sql("SELECT id FROM {t} ORDER BY _file, _pos")]


def checked(table: Table) -> CheckedRows:
    return CheckedRows.of(in_order(table.lake, table.name)[-1]["summary"][CHECKED_TAG])


@both_ways
@both_versions
@either_writer
def test_deletes_of_every_kind_are_applied_and_rows_keep_their_lineage(
    table: Table, version: int
) -> None:
    """Several keys, nulls, a key inserted again, deletes of one partition and of all, by position
    and by vector.
    """
    table.create("id bigint, k int, name string, p int", "", version)
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD p")
    keys = "CASE WHEN id % 4 = 3 THEN NULL ELSE CAST(id % 4 AS int) END"
    commit = table.commit()
    for p in (0, 1):
        commit.data(f"SELECT id, {keys}, 'first', {p} FROM range(40)", {"p": p})
    commit.done()
    table.sql("DELETE FROM {t} WHERE id IN (20, 21) AND p = 0")
    commit = table.commit().deletes("id", "SELECT id * 2 FROM range(4)", {"p": 0})
    commit.deletes(["id", "k"], "SELECT 11, NULL UNION ALL SELECT 12, 1", {"p": 1})
    commit.deletes("id", "SELECT 30", spec=0).data("SELECT 2, 2, 'second', 0", {"p": 0}).done()
    table.commit().deletes("k", "SELECT NULL", {"p": 1}).deletes(
        "id", "SELECT 2 UNION ALL SELECT 1", {"p": 0}
    ).done()

    rows = table.rewritten()

    assert len(rows) == 40 - 2 - 4 - 1 - 1 + 40 - 10 - 1
    assert checked(table).resolved > 0
    assert bool(checked(table).one_in) == (rewrite_session._FEW_APPLIED == 0)


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 2], ids=["by a join", "by Iceberg's reader"], indirect=True)
@both_versions
@spark_s_way
def test_small_groups_are_written_together_unless_a_join_applies_their_deletes(
    table: Table, version: int, around: Around
) -> None:
    """The same key is deleted in some partitions, and lives in others."""
    table.create("id bigint, p int", "p", version)
    commit = table.commit()
    for p in range(5):
        commit.data(f"SELECT id, {p} FROM range(3)", {"p": p})
        commit.data(f"SELECT id + 3, {p} FROM range(3)", {"p": p})
    commit.done()
    table.sql("DELETE FROM {t} WHERE id = 5 AND p = 4")
    commit = table.commit()
    for p in (0, 1):
        commit.deletes("id", "SELECT 1", {"p": p})
    commit.done()
    before, groups = files_in(table), around(Group, "run", lambda: None)

    rows = table.rewritten()
    files = [int(group.group.expectedOutputFiles()) for (group,) in groups]

    # Groups with and without deletes are apart.
    assert (len(files), sum(files)) == ((3, 5) if rewrite_session._FEW_APPLIED == 0 else (2, 5))
    assert len(rows) == 27
    assert len(files_in(table) - before) == 5


@pytest.mark.parametrize("few", [1000], indirect=True)
def test_a_delete_file_whose_metadata_count_no_records_doubles_no_row(table: Table) -> None:
    """Iceberg's reader applies it all the same, and Iceberg's commit would not notice twice two rows
    in place of five.
    """
    table.create().data("SELECT id, 'a' FROM range(5)")
    written = table.files.deletes("id", "SELECT id FROM range(3)")
    builder = table.java.FileMetadata.deleteFileBuilder(table.files.table().spec())
    gateway: Any = table.spark.sparkContext._gateway
    keys = gateway.new_array(gateway.jvm.int, 1)
    keys[0] = 1
    builder = builder.ofEqualityDeletes(keys).withPath(written.location()).withFormat("parquet")
    size = int(written.fileSizeInBytes())
    counted = builder.withFileSizeInBytes(size).withRecordCount(0).build()
    table.files.table().newRowDelta().addDeletes(counted).commit()
    table.files.refresh()

    table.rewritten()

    assert table.ids() == [3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 10**6], ids=["by a join", "by Iceberg's reader"], indirect=True)
def test_a_group_becomes_as_many_files_as_its_live_rows_need(table: Table) -> None:
    """By all its bytes, or those of its delete files, there would be several, each too small."""
    table.create("id bigint, name string")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.target-file-size-bytes' = '100000')")
    for start in range(0, 8000, 1000):
        commit = table.commit().data(f"SELECT id + {start}, uuid() FROM range(1000)")
        commit.deletes("id", f"SELECT id + {start - 1000} FROM range(1000)").done()
    before = files_in(table)

    rows = table.rewritten()

    assert len(rows) == 1000
    assert len(files_in(table) - before) == 1


@pytest.mark.slow
def test_a_delete_file_says_itself_which_partition_value_its_keys_have(table: Table) -> None:
    """A row's partition column has the value of its partition, whatever the data file says; a
    delete's has what its file says.
    """
    with_values_of_another_partition(table)

    rows = table.rewritten()

    assert sorted(rows) == [(0, 7), (2, 7)]


@both_versions
@pytest.mark.parametrize(
    "order",
    [
        RewriteOrder("sort", (("name",), ("id",))),
        RewriteOrder("sort"),
        RewriteOrder("zorder", (("id",), ("name",))),
        RewriteOrder("hilbert", (("id",), ("name",))),
    ],
    ids=["sort", "the table's order", "zorder", "hilbert"],
)
@either_writer
def test_rows_are_sorted_as_iceberg_sorts_them_and_checked_before_the_commit(
    table: Table, request: pytest.FixtureRequest, version: int, order: RewriteOrder
) -> None:
    if order.strategy == "hilbert" and not ENGINE.has_hilbert:
        pytest.skip(f"Iceberg {ICEBERG} has no Hilbert curve on this Spark")
    table.create(version=version)
    table.sql("ALTER TABLE {t} WRITE ORDERED BY name DESC, id")
    table.data("SELECT 99 - id, CAST(id % 3 AS string) FROM range(100)")
    table.delete("id", "SELECT id * 3 FROM range(30)")

    table.rewritten(order=order)

    assert checked(table).rows == 70
    assert checked(table).resolved == 30
    if order.strategy == "sort":
        there = table.sql("SELECT name, id FROM {t} ORDER BY _file, _pos")
        # The table's own order is descending.
        sign = 1 if order.by else -1
        assert there == sorted(there, key=lambda row: (sign * int(row[0]), row[1]))
    # A task of the kernel adds its number to the name of a file.
    names = [
        path.rpartition("/")[2] for (path,) in table.sql("SELECT file_path FROM {t}.data_files")
    ]
    is_by_kernel = "kernel" in request.node.name and order.strategy == "sort"
    assert all((name.count("-") == 4) == is_by_kernel for name in names)
    if order == RewriteOrder("sort"):
        assert table.sql("SELECT DISTINCT sort_order_id FROM {t}.data_files") == [(1,)]


@pytest.mark.slow
def test_rows_are_sorted_without_a_check_and_by_few_files_of_many_parts(table: Table) -> None:
    table.create().data("SELECT 99 - id, 'a' FROM range(100)")
    table.delete("id", "SELECT id FROM range(30)")

    table.rewritten(order=BY_ID, check=False, shuffle_partitions_per_file="3")

    assert ids_as_written(table) == [*range(30, 100)]


@pytest.mark.slow
@both_ways
@pytest.mark.parametrize("order", [IN_ORDER, BY_ID], ids=["in order", "sorted"])
def test_a_group_all_of_whose_rows_are_deleted_leaves_no_file(
    table: Table, order: RewriteOrder
) -> None:
    table.create().data("SELECT id, 'a' FROM range(4)")
    table.delete("id", "SELECT id FROM range(4)")

    assert not table.rewritten(order=order)
    assert table.sql("SELECT * FROM {t}.data_files") == []


@pytest.mark.parametrize("order", [IN_ORDER, BY_ID], ids=["in order", "sorted"])
@spark_s_way
def test_a_file_that_is_not_what_was_written_is_found_before_the_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch, order: RewriteOrder
) -> None:
    """Also where no delete applies: what is read back must be what was read from the old files."""
    two_files(table)
    write = Staging.write

    def lossy(self: Any, frame: Any, *arguments: Any) -> Any:
        return write(self, frame.where("id <> 2"), *arguments)

    monkeypatch.setattr(Staging, "write", lossy)

    refused(table, RowsDiffer, "were to be written", order=order)


@pytest.mark.slow
def test_a_value_that_orc_does_not_give_back_is_named_with_what_helps(table: Table) -> None:
    """Iceberg's ORC files shift fractions of the last second before 1970."""
    table.create("id bigint, at timestamp")
    for n in range(2):
        second = "TIMESTAMP'1969-12-31 23:59:59.25'"
        table.data(
            f"SELECT id + {n * 2}, if(id = 0, {second}, {second} - INTERVAL 1 DAY) FROM range(2)"
        )
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'orc')")

    with unchanged(table), pytest.raises(RowsDiffer) as error:
        table.rewritten()
    assert str(error.value) == (
        "The check before the commit failed, so these files were not committed: of 4 rows, the new "
        "files give back column at, for example 1970-01-01 00:00:00.25 in place of 1969-12-31 "
        "23:59:59.25. Most likely Iceberg's ORC files cannot hold such values (those of ORC shift "
        "fractions of seconds before 1970). Keep these values in Parquet: set "
        "write.format.default=parquet. The old files stay."
    )


@pytest.mark.slow
def test_the_column_and_two_values_of_one_row_tell_what_differs(lake: Lake) -> None:
    """Rows are paired by their other columns; what differs nowhere alone is not explained."""

    def rows(*values: str) -> Any:
        return lake.spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t(id, a, b)")

    before = rows(
        "(1, 'x', array(1))", "(2, 'y', array(2))", "(2, 'y', array(2))", "(3, null, null)"
    )
    changed = rows(
        "(1, 'x', array(1))", "(2, 'y', array(2))", "(2, 'y', array(5))", "(3, null, null)"
    )
    lost = rows("(1, 'x', array(1))", "(2, 'y', array(2))", "(2, 'y', array(2))", "(3, 'z', null)")
    swapped = rows(
        "(1, 'y', array(1))", "(2, 'x', array(2))", "(2, 'y', array(2))", "(3, null, null)"
    )

    assert column_difference(before, before, 4) is None
    assert column_difference(before, changed, 4) == ColumnDifference("b", "[2]", "[5]")
    assert column_difference(before, lost, 4) == ColumnDifference("a", "null", "z")
    assert column_difference(before, swapped, 4) is None
    assert column_difference(before, changed, MOST_ROWS + 1) == ColumnDifference("b")
    assert str(ColumnDifference("b")) == "other values of column b"


@spark_s_way
def test_a_row_that_a_sort_drops_is_found_before_the_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_files(table)
    in_order = Staging.in_group_order
    monkeypatch.setattr(Staging, "in_group_order", lambda *given: in_order(*given).where("id <> 2"))

    refused(table, RowsDiffer, "came out of the sort", order=BY_ID)


@pytest.mark.slow
@spark_s_way
def test_a_value_that_is_changed_on_its_way_is_found_before_the_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest file is read by Iceberg's own reader, with all columns; the rows of older ones may
    all be deleted.
    """
    table.create().data("SELECT id, 'a' FROM range(9)")
    table.commit().deletes("id", "SELECT id FROM range(9)").data(
        "SELECT id, 'b' FROM range(9)"
    ).done()
    marked = Group._rows
    monkeypatch.setattr(
        Group, "_rows", lambda *given: marked(*given).withColumn("name", F.lit("c"))
    )

    refused(table, RowsDiffer, "own reader reads")


@both_versions
@either_writer
def test_rows_stay_in_the_order_of_their_files_and_nothing_is_converted(
    table: Table, version: int
) -> None:
    """A conversion would end a reader of the table's changes."""
    table.create("id bigint, name string, k int", version=version)
    table.data("SELECT 99 - id, 'a', CAST(id % 5 AS int) FROM range(100)")
    table.commit().deletes("id", "SELECT id * 2 FROM range(40)").deletes("k", "SELECT 4").done()
    count = len(table.snapshots())

    table.rewritten()

    ids = ids_as_written(table)
    assert len(ids) == 48
    assert ids == sorted(ids, reverse=True)
    assert len(table.snapshots()) == count + 1
    assert checked(table).resolved == 41


@pytest.mark.slow  # the gate runs the conversion of every type
@pytest.mark.parametrize(("version", "file_format"), [(2, "parquet"), (3, "parquet"), (3, "avro")])
def test_keys_of_every_type_are_matched(table: Table, version: int, file_format: str) -> None:
    left = with_keys_of_every_type(table, version, file_format)

    table.rewritten()

    assert table.ids() == [left]
    assert checked(table).resolved == left


@pytest.mark.slow
def test_keys_promoted_after_the_deletes_were_written_are_matched(table: Table) -> None:
    table.create("id bigint, a int, d decimal(5,2)")
    table.data("SELECT id, CAST(id AS int), CAST(id + 0.25 AS decimal(5,2)) FROM range(6)")
    table.commit().deletes("a", "SELECT 1").deletes("d", "SELECT CAST(2.25 AS decimal(5,2))").done()
    table.sql("ALTER TABLE {t} ALTER COLUMN a TYPE bigint")
    table.sql("ALTER TABLE {t} ALTER COLUMN d TYPE decimal(22,2)")
    table.commit().deletes("a", "SELECT 3L").deletes(
        "d", "SELECT CAST(4.25 AS decimal(22,2))"
    ).done()

    table.rewritten()

    assert table.ids() == [0, 5]


def test_what_only_the_engine_can_resolve_is_left_to_it(table: Table) -> None:
    table.create("id bigint, k int")
    table.data("SELECT id, CAST(id AS int) FROM range(4)")
    table.delete("k", "SELECT 1")
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")

    table.converted(lambda: run(table), left=None)


def test_an_equality_delete_file_that_is_in_the_table_twice_is_left_to_the_engine(
    table: Table,
) -> None:
    """As by a writer that commits once more what it has committed: the newer entry counts."""
    table.create().data("SELECT id, 'a' FROM range(3)")
    delete = table.files.deletes("id", "SELECT 1L")
    for _ in range(2):
        table.files.table().newRowDelta().addDeletes(delete).commit()
        table.files.refresh()
        table.insert("VALUES (1, 'b'), (4, 'b')")
    assert table.ids() == [0, 1, 2, 4, 4]

    table.converted(lambda: run(table), left=None)


@spark_s_way
def test_vectors_are_replaced_also_where_iceberg_cannot_list_what_they_delete(
    table: Table,
) -> None:
    """Its metadata table of position deletes cannot be read once the column of a partition field
    was dropped, and another field is left.
    """
    table.create("id bigint, name string, old int", "name", version=3)
    table.data("SELECT id, 'a', 1 FROM range(9)", {"name": "a"})
    table.sql("DELETE FROM {t} WHERE id IN (3, 4)")
    table.delete("id", "SELECT id * 4 FROM range(3)", {"name": "a"})
    for change in ("ADD PARTITION FIELD old", "DROP PARTITION FIELD old", "DROP COLUMN old"):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.files.refresh()

    table.rewritten()

    assert table.ids() == [1, 2, 5, 6, 7]


@pytest.mark.slow
def test_deletes_by_a_column_that_was_dropped_are_applied(table: Table) -> None:
    """Also where Iceberg's own reader cannot read such a table."""
    table.create("id bigint, k int")
    table.data("SELECT id, CAST(id AS int) FROM range(4)")
    table.delete("k", "SELECT 1")
    table.sql("ALTER TABLE {t} DROP COLUMN k")
    run(table, remove_dangling_deletes="true")

    assert table.ids() == [0, 2, 3]
    assert table.equality_deletes() == 0


@both_versions
@pytest.mark.parametrize("what", ["upsert", "delete by position"])
def test_what_another_writer_commits_meanwhile_stays(
    table: Table, around: Around, version: int, what: str
) -> None:
    table.create(version=version).data("SELECT id, 'a' FROM range(6)")
    table.delete("id", "SELECT 1")
    seen: list[Any] = []

    def happens() -> None:
        if what == "upsert":
            table.commit().deletes("id", "SELECT 2").data("SELECT 2, 'new'").done()
        else:
            table.sql("DELETE FROM {t} WHERE id = 3")
        seen.append(table.rows())

    around(CheckedRewrite, "_commit", happens)
    files = files_in(table)

    if what == "upsert":
        run(table)
    else:
        with pytest.raises(
            Exception, match=r"ValidationException|new delete|added deletes|Found new"
        ):
            run(table)

    assert table.rows() == seen[0]
    if what != "upsert":
        assert len(files_in(table)) <= len(files) + (version < 3), (
            "files of a commit that was refused are removed"
        )
        run(table)
        assert table.rows() == seen[0]


def test_rows_that_get_their_ids_meanwhile_keep_them(table: Table, around: Around) -> None:
    """The first commit after an upgrade gives every row an id; files that were read without ids
    would bring other ones.
    """
    two_files(table)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    seen: list[Any] = []

    def happens() -> None:
        seen.append(table.insert("VALUES (3, 'c')").lineage())

    around(CheckedRewrite, "_commit", happens)

    with pytest.raises(Exception, match="row ids") as error:
        run(table)
    assert failure_kind(error.value) == "refused"
    run(table)

    assert table.lineage() == seen[0]


@pytest.mark.slow
@pytest.mark.parametrize(("unseen", "words"), [(300, "no row changed"), (0, "no difference found")])
def test_the_proof_of_a_commit_says_what_was_checked_before_it_and_agrees_with_a_full_one(
    table: Table, monkeypatch: pytest.MonkeyPatch, unseen: int, words: str
) -> None:
    monkeypatch.setattr("icekit.rows.rewrite.key_sample.UNSEEN", unseen)
    table.create("id bigint, name string, p int", "p")
    table.commit().data("SELECT id, 'a', 1 FROM range(300)", {"p": 1}).data(
        "SELECT id, 'a', 2 FROM range(300)", {"p": 2}
    ).done()
    table.commit().deletes("id", "SELECT id * 3 FROM range(100)", {"p": 1}).done()
    start = len(table.snapshots())

    run(table, remove_dangling_deletes="true")
    made = since(table.lake, table.name, start)
    proof = prove_rewrites(table.lake, table.name, made)

    assert proof.ok
    assert words in repr(proof)
    assert "by Iceberg's own reader" in repr(proof)
    assert prove_commits(table.lake, table.name, list(made)).ok


@pytest.mark.slow
@pytest.mark.parametrize("few", [1000], indirect=True)
def test_few_deletes_are_applied_by_icebergs_own_reader_to_a_small_group_alone(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create().data("SELECT id, 'a' FROM range(9)").delete("id", "SELECT id * 2 FROM range(4)")
    start = len(table.snapshots())

    table.rewritten()
    proof = prove_rewrites(table.lake, table.name, since(table.lake, table.name, start))

    assert "no row changed" in repr(proof)
    assert "Iceberg's own reader applied the equality deletes" in repr(proof)
    assert checked(table).resolved == 4
    assert checked(table).by_reader == 5
    assert checked(table).one_in == 0

    table.insert("VALUES (1, 'b'), (10, 'b')").delete("id", "SELECT 2")
    monkeypatch.setattr(rewrite_session, "SMALL_BYTES", 100)
    run(table, target_file_size_bytes="100", max_file_size_bytes="180")

    assert checked(table).by_reader == 0
    assert checked(table).one_in == 1


@pytest.mark.slow
def test_where_keys_are_few_every_row_under_deletes_is_checked(table: Table) -> None:
    """A sample of ten tenants' keys would mostly be empty, and show nothing."""
    table.create("id bigint, tenant int").data("SELECT id, CAST(id % 10 AS int) FROM range(200)")
    table.commit().deletes("tenant", "SELECT CAST(id AS int) FROM range(4)").done()

    table.rewritten()

    assert checked(table).one_in == 1
    assert checked(table).sampled == 200
    assert not checked(table).is_sampled


def test_nothing_is_written_or_committed_after_a_request_to_stop(table: Table) -> None:
    two_files(table)
    stop = Stop()
    made = guarded_table(table.spark, load_latest_table(table.spark, table.full))
    rewrite = CheckedRewrite(table.spark, of_every_file(table), made, {}, stop=stop)
    stop.set()

    with unchanged(table), pytest.raises(Stopped):
        rewrite.run()


def test_a_commit_that_drops_the_vector_of_a_file_that_stays_is_refused(table: Table) -> None:
    """No comparison of the rewritten rows would show that the rows of another file come back."""
    table.create(version=3).data("SELECT id, 'a' FROM range(10)")
    table.data("SELECT id + 10, 'b' FROM range(10)")
    table.sql("DELETE FROM {t} WHERE id IN (1, 11)")
    assert table.vectors_per_file() == 1
    loaded = load_latest_table(table.spark, table.full)
    tasks = loaded.newScan().planFiles().iterator()
    vector = tasks.next().deletes().get(0)
    row_delta = guarded_table(table.spark, loaded).newRowDelta()

    with unchanged(table), pytest.raises(Exception, match="vector of a data file that stays"):
        row_delta.removeDeletes(vector).commit()

    # A rewrite drops the vectors of the files that it replaces.
    table.rewritten()
    assert table.vectors_per_file() == 0


@both_versions
@pytest.mark.parametrize("way", ["kernel", "Spark"])
def test_a_row_goes_only_by_a_delete_that_the_scan_lists_for_its_file(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, way: str
) -> None:
    """Iceberg compares the bounds of UUIDs as signed numbers, so it rules a delete out for a file
    that has its key: readers show the row.
    """
    high = with_ruled_out_key(table, version)
    table.data(f"SELECT 3, '{high}'").delete("k", f"SELECT '{high}'")
    assert table.ids() == [1, 2]
    if way == "Spark":
        by_spark(monkeypatch)

    refused(table, ReadersDisagree, r"data/.*parquet: rows with the keys")
    with monkeypatch.context() as patch:
        by_spark(patch)
        # An error of another kind, whose text repeats the SQL of the join.
        patch.setattr(
            join,
            "_match_sql",
            lambda *_: checked_match_sql("`gone`", "1L", "CAST(null AS array<bigint>)", "'f'"),
        )
        with pytest.raises(Exception, match=r"UNRESOLVED_COLUMN[\s\S]*raise_error") as error:
            table.rewritten()
        assert not isinstance(error.value, ReadersDisagree)
    with pytest.raises(ReadersDisagree), resolved(table.lake, table.name):
        pass


@pytest.mark.slow
@both_versions
def test_deletes_that_bounds_rule_out_rightly_cost_no_row(table: Table, version: int) -> None:
    """As where keys grow with time: each file is ruled out for most deletes, and none has a row
    with their keys.
    """
    table.create("id bigint, name string", version=version)
    for start in (0, 100, 200):
        commit = table.commit().data(f"SELECT id + {start}, 'a' FROM range(50)")
        commit.deletes("id", f"SELECT id * 2 + {start - 100} FROM range(10)").done()
    table.delete("id", "SELECT 205")

    table.rewritten()

    assert len(table.ids()) == 150 - 20 - 1
    assert checked(table).resolved == 21


@pytest.mark.slow
def test_a_full_proof_does_not_call_rows_equal_that_readers_see_and_its_join_drops(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.delete("k", f"SELECT '{with_ruled_out_key(table)}'")
    start = len(table.snapshots())
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')")
    table.insert("VALUES (3, '00000000-0000-0000-0000-000000000001')")
    monkeypatch.setattr(readers, "HEAP_SHARE", 0.0)

    proof = prove_commits(table.lake, table.name, table.snapshots()[start:])

    assert proof.ok is None
    assert "rule these deletes out" in repr(proof)


@pytest.mark.slow
def test_a_sample_without_rows_or_keys_is_no_sample(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes of many tenants, and rows of one: its key is in one sample of 64."""
    monkeypatch.setattr("icekit.rows.rewrite.key_sample.UNSEEN", 2)
    table.create("id bigint, tenant bigint").data("SELECT id, 7 FROM range(5000)")
    table.commit().deletes("tenant", "SELECT id - 100 FROM range(200) WHERE id <> 107").deletes(
        "id", "SELECT id FROM range(200)"
    ).done()

    table.rewritten()

    # All rows for the key of one tenant, and a sample of them for the other.
    assert 5000 < checked(table).sampled < 5600
    assert checked(table).one_in == 64


def test_a_group_too_large_for_one_task_is_written_by_spark(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_work, "_MOST_BYTES", 0)
    two_files(table)
    table.delete("id", "SELECT 1L")
    before = files_in(table)

    table.rewritten()

    (new,) = files_in(table) - before
    # The kernel's end on the number of a task.
    assert new.rpartition("/")[2].count("-") > 4
    assert table.ids() == [2]


def test_where_spark_writes_the_groups_that_were_to_be_looked_up_others_are(
    table: Table, monkeypatch: pytest.MonkeyPatch, around: Around
) -> None:
    """At least one that the kernel wrote: the other engine would have seen none."""
    monkeypatch.setattr(checked_rows, "LOOKED_UP_RECORDS", 1)
    three_partitions(table)
    commit = table.commit()
    for p in range(3):
        commit.deletes("id", "SELECT 1L", {"p": p})
    commit.done()
    parts = KernelWork._parts

    def refused_parts(work: KernelWork, group: KernelGroup) -> Any:
        if group.is_looked_up:
            raise KernelUnavailable("a test asks for it")
        return parts(work, group)

    monkeypatch.setattr(KernelWork, "_parts", refused_parts)
    looked_up = around(KernelGroup, "look_up", lambda: None)

    table.rewritten()

    assert len(looked_up) == 2
    assert table.ids() == [2, 2, 2]


PARTLY = {"partial-progress.enabled": "true"}


def three_partitions(table: Table) -> None:
    table.create("id bigint, p int", "p")
    for p in range(3):
        table.insert(f"VALUES (1, {p})").insert(f"VALUES (2, {p})")


@pytest.mark.slow
def test_the_first_commit_after_an_upgrade_is_the_only_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives all rows their ids, so that files which were read without would be a conflict."""
    monkeypatch.setattr(bundles, "BUNDLE_GROUPS", 1)
    three_partitions(table)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    start = len(table.snapshots())

    run(table, **PARTLY)

    assert len(table.snapshots()) == start + 1
    assert table.ids() == [1, 1, 1, 2, 2, 2]


@pytest.mark.slow
def test_a_group_that_fails_lets_those_that_were_written_with_it_be_rewritten(
    table: Table,
) -> None:
    three_partitions(table)
    (row,) = table.sql("SELECT max(file_path) FROM {t}.data_files WHERE partition.p = 1")
    Path(str(row[0]).removeprefix("file:")).unlink()

    run(table, **PARTLY)

    files = table.sql("SELECT partition.p, count(*) FROM {t}.data_files GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in files] == [(0, 1), (1, 2), (2, 1)]
