"""Conversions of every kind of equality delete: no row changes, in no snapshot, and none of them is
left.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.errors import ConversionRefused
from icekit.common.sql import identifier
from icekit.engine.bridge import temporary_settings
from icekit.engine.metadata_tables import metadata_table
from icekit.rows.deletes import convert as positions
from icekit.rows.deletes import join
from icekit.rows.deletes.convert import convert
from tests.deletes.tables import (
    Table,
    add_column,
    types,
    unchanged,
    with_keys_of_every_type,
    with_values_of_another_partition,
)
from tests.elsewhere import elsewhere

pytestmark = [pytest.mark.spark, pytest.mark.core]

# Both write from the same join. What differs (position delete files or vectors) version 2 shows in
# the tests without a parameter and in those of conflicts; the rest of it runs with `make soak`.
both_versions = pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), 3])

# Keys


@pytest.mark.parametrize(
    ("version", "file_format"),
    [(2, "parquet"), pytest.param(2, "orc", marks=pytest.mark.soak), (3, "avro")],
)
def test_keys_of_every_type_in_files_of_every_format(
    table: Table, version: int, file_format: str
) -> None:
    """Each delete file deletes one row by a column of its type; the table has as many key sets."""
    left = with_keys_of_every_type(table, version, file_format)

    table.converted()

    assert table.ids() == [left]


def of_floats(table: Table, kind: str = "float") -> None:
    table.create(f"id bigint, x {kind}").data("SELECT 1, 1.5").delete("x", "SELECT 1.5")


def of_doubles(table: Table) -> None:
    of_floats(table, "double")


def without_a_key(table: Table) -> None:
    table.create().insert("VALUES (1, 'a')")
    table.commit().deletes([], "SELECT 1", extra=["id"]).done()


def of_a_dropped_partition_column(table: Table) -> None:
    """Iceberg would write nulls for their values, and reads no table in which files and their
    deletes differ in them.
    """
    table.create("id bigint, p int, q int", "p")
    table.data("SELECT id, 1, 1 FROM range(3)", {"p": 1})
    table.delete("id", "SELECT 0", {"p": 1})
    table.sql("ALTER TABLE {t} REPLACE PARTITION FIELD p WITH q")
    table.sql("ALTER TABLE {t} DROP COLUMN p")


def of_a_file_that_was_appended_twice(table: Table) -> None:
    """A delete by key reaches the older copy alone; one by position would reach both."""
    table.create("id bigint")
    data = table.files.data("SELECT id FROM range(3)")
    table.append(data).delete("id", "SELECT 1").append(data)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (of_floats, "floating-point"),
        (of_doubles, "floating-point"),
        (without_a_key, "no key column"),
        (of_a_dropped_partition_column, "was dropped"),
        (of_a_file_that_was_appended_twice, "more than once"),
    ],
)
def test_deletes_that_cannot_be_converted_are_refused(
    table: Table, build: Callable[[Table], None], reason: str
) -> None:
    build(table)

    with unchanged(table), pytest.raises(ConversionRefused, match=reason):
        convert(table.spark, table.full)


def test_composite_and_nested_keys_and_several_key_sets(table: Table) -> None:
    table.create("id bigint, a int, s struct<x: int, t: struct<y: string, z: int>>")
    table.data(
        "SELECT id, a, named_struct('x', x, 't', named_struct('y', y, 'z', z)) FROM VALUES "
        "(1, 1, 1, 'a', 1), (2, 1, 2, 'b', 1), (3, 2, 1, 'c', 1), (4, 2, 3, 'd', 2), "
        "(5, 3, 3, 'd', 3) AS v(id, a, x, y, z)"
    )
    commit = table.commit().deletes(
        ["a", "s.x"], "SELECT 1, named_struct('x', 1) UNION ALL SELECT 2, named_struct('x', 2)"
    )
    # A column that is not of the key does not count.
    commit.deletes("s.t.y", "SELECT named_struct('t', named_struct('y', 'b'))").deletes(
        "id", "SELECT 3, 99", extra=["a"]
    )
    commit.deletes(["id", "s.t.z"], "SELECT 4, named_struct('t', named_struct('z', 2))").done()

    table.converted()

    assert table.ids() == [5]


def test_null_equals_null_in_keys(table: Table) -> None:
    table.create("id bigint, a int, b string")
    table.data("VALUES (1, NULL, NULL), (2, NULL, 'x'), (3, 1, NULL), (4, 1, 'null')")
    table.commit().deletes(["a", "b"], "SELECT 1, NULL UNION ALL SELECT NULL, 'x'").deletes(
        "b", "SELECT CAST(NULL AS string)"
    ).done()

    table.converted()

    assert table.ids() == [4]


def test_key_columns_renamed_moved_and_promoted_after_the_deletes_were_written(
    table: Table,
) -> None:
    table.create("id bigint, a int, d decimal(5,2), s struct<x: int>")
    table.data("SELECT id, id, id + 0.25, named_struct('x', id) FROM range(1, 7)")
    table.commit().deletes("a", "SELECT 1").deletes("d", "SELECT 2.25").deletes(
        "s.x", "SELECT named_struct('x', 3)"
    ).done()
    for change in (
        "ALTER COLUMN a TYPE bigint",
        "ALTER COLUMN d TYPE decimal(12,2)",
        "ALTER COLUMN s.x TYPE bigint",
        "RENAME COLUMN a TO b",
        "RENAME COLUMN d TO a",
        "ALTER COLUMN s FIRST",
        "RENAME COLUMN s.x TO y",
    ):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.commit().deletes("b", "SELECT 4").deletes("a", "SELECT 5.25").done()

    rows = table.converted()

    assert [row[1] for row in rows] == [6]


@pytest.mark.slow
def test_a_key_column_that_was_added_is_null_in_older_rows(table: Table) -> None:
    table.create("id bigint").data("SELECT 1")
    table.sql("ALTER TABLE {t} ADD COLUMN k string")
    table.data("SELECT 2, 'x' UNION ALL SELECT 3, 'y'")
    table.commit().deletes("k", "SELECT 'x' UNION ALL SELECT NULL").done()

    table.converted()

    assert table.ids() == [3]


@pytest.mark.slow
def test_a_key_column_with_an_initial_default(table: Table) -> None:
    table.create("id bigint", version=3).data("SELECT 1")
    lit = table.spark._jvm.org.apache.iceberg.expressions.Expressions.lit  # type: ignore[union-attr]
    add_column(table, "k", types(table).StringType.get(), lit("old"))
    table.data("SELECT 2, 'new' UNION ALL SELECT 3, 'old' UNION ALL SELECT 4, NULL")
    table.commit().deletes("k", "SELECT 'old'").done()

    table.converted()

    assert table.ids() == [2, 4]


@pytest.mark.slow
def test_odd_names_of_columns(table: Table) -> None:
    table.create("id bigint, `a.b` int, `q``q` int, `x \"y` int, `it's/ä` int")
    table.data("SELECT id, int(id = 0), int(id = 1), int(id = 2), int(id = 3) FROM range(5)")
    commit = table.commit()
    for name in ("a.b", "q`q", 'x "y', "it's/ä"):
        commit.deletes(name, "SELECT 1")
    commit.done()

    table.converted()

    assert table.ids() == [4]


@pytest.mark.slow
def test_names_that_differ_by_case_alone(table: Table) -> None:
    with temporary_settings(table.spark, {"spark.sql.caseSensitive": "true"}):
        table.create("id bigint, ID bigint").data("SELECT 1, 2 UNION ALL SELECT 2, 1")
        table.commit().deletes("ID", "SELECT 1").done()

        table.converted()

        assert table.ids() == [1]


# Partitions


def in_partitions(table: Table, parts: Sequence[dict[str, Any]], rows: Sequence[str]) -> None:
    """Write a file for each partition, with as many ids and the same other values, and then
    deletes, in each of another id.
    """
    commit, deletes = table.commit(), table.commit()
    for place, (part, row) in enumerate(zip(parts, rows, strict=True)):
        commit.data(f"SELECT id, {row} FROM range({len(parts)})", part)
        deletes.deletes("id", f"SELECT {place}", part)
    commit.done()
    deletes.done()


ODD = ["a/b c", "it's", "x.y", "", "null", "é%20", "..", "a=b", None]


@pytest.mark.slow
@both_versions
def test_partitions_with_odd_names_and_without_a_value(table: Table, version: int) -> None:
    """Each loses the row with its own number; the null partition is not the one named 'null'."""
    table.create("id bigint, p string", "p", version)
    texts = ["CAST(NULL AS string)" if p is None else repr(p) for p in ODD]
    in_partitions(table, [{"p": p} for p in ODD], texts)

    table.converted()

    left = table.rows()
    assert len(left) == len(ODD) * (len(ODD) - 1)
    assert all(ODD.index(p) != i for i, p in left)


def test_partitions_of_every_transform(table: Table) -> None:
    table.create("id bigint, ts timestamp, s string", "days(ts), bucket(4, id), truncate(2, s)")
    parts = [
        {"ts_day": day, "id_bucket": bucket, "s_trunc": text}
        for day, bucket, text in (
            ("2024-01-01", 0, "ab"),
            ("2024-01-01", 1, "ab"),
            ("1969-12-31", 0, "ab"),
            ("2024-01-01", 0, None),
        )
    ]
    in_partitions(table, parts, ["TIMESTAMP '2024-01-01 00:00:00', 'abc'"] * 4)

    table.converted()

    assert table.ids() == [i for i in range(4) for _ in range(3)]


@pytest.mark.slow
def test_partitions_by_a_moment_that_differ_by_a_microsecond(table: Table) -> None:
    table.create("id bigint, ts timestamp, ntz timestamp_ntz", "ts, ntz")
    moments = ["2024-01-01T00:00:00.000001", "2024-01-01T00:00:00.000002"]
    parts = [{"ts": f"{ts}+00:00", "ntz": ntz} for ts in moments for ntz in moments]
    rows = [f"TIMESTAMP '{part['ts']}', TIMESTAMP_NTZ '{part['ntz']}'" for part in parts]
    in_partitions(table, parts, rows)

    assert len(table.converted()) == 12


@both_versions
def test_deletes_of_an_older_spec_reach_files_of_that_spec_alone_and_global_ones_every_file(
    table: Table, version: int
) -> None:
    table.create("id bigint, p int", "", version)
    table.data("SELECT id, 1 FROM range(5)")
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD p")
    table.commit().data("SELECT id + 10, 1 FROM range(5)", {"p": 1}).data(
        "SELECT id + 20, 2 FROM range(5)", {"p": 2}
    ).done()
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    table.data("SELECT id + 10, 1 FROM range(5)", {"p": 1, "id_bucket_2": 0})
    commit = table.commit().deletes("id", "SELECT 10 UNION ALL SELECT 20", {"p": 1}, spec=1)
    commit.deletes("id", "SELECT 11", {"p": 1, "id_bucket_2": 0}).deletes(
        "id", "SELECT 12", {"p": 1, "id_bucket_2": 1}
    )
    commit.deletes("id", "SELECT 0 UNION ALL SELECT 21 UNION ALL SELECT 14", spec=0).done()
    table.data("SELECT 0, 1", spec=0)

    table.converted()

    assert table.ids() == [0, 1, 2, 3, 4, 10, 11, 12, 12, 13, 13, 20, 22, 23, 24]


@pytest.mark.slow
def test_global_deletes_of_a_spec_whose_only_field_was_dropped(table: Table) -> None:
    """Format version 1 keeps a dropped partition field as one that is always null."""
    table.create("id bigint, p int", "p", 1)
    table.data("SELECT id, 1 FROM range(3)", {"p": 1})
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD p")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")
    table.data("SELECT id + 3, 2 FROM range(3)")
    table.delete("id", "SELECT 0 UNION ALL SELECT 3")

    table.converted()

    assert table.ids() == [1, 2, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        "day = DATE '2024-01-02'",
        pytest.param("d = 2.50", marks=pytest.mark.soak),
        "ts >= TIMESTAMP '2024-01-01 00:00:00.000002'",
        pytest.param("b = X'0B'", marks=pytest.mark.soak),
        pytest.param("other >= TIMESTAMP '2024-01-02 00:00:00'", marks=pytest.mark.soak),
    ],
)
def test_a_filter_chooses_partitions_by_values_of_any_type(
    table: Table, tmp_path: Path, where: str
) -> None:
    table.create(
        "id bigint, day date, d decimal(9,2), ts timestamp, b binary, other timestamp",
        "day, d, ts, b, days(other)",
    )
    parts: list[dict[str, Any]] = [
        {
            "day": f"2024-01-0{i}",
            "d": f"{i}.50",
            "ts": f"2024-01-01T00:00:00.00000{i}+00:00",
            "b": f"0{'AB'[i - 1]}",
            "other_day": f"2024-01-0{i}",
        }
        for i in (1, 2)
    ]
    rows = [
        f"DATE '{part['day']}', {part['d']}, TIMESTAMP '{part['ts']}', X'{part['b']}', "
        f"TIMESTAMP '{part['day']}'"
        for part in parts
    ]
    in_partitions(table, parts, rows)

    table.converted(lambda: table.converts(tmp_path, where), left=1)


# Files without field ids


def add_plain_files(table: Table, folder: Path, rows: str, *by: str) -> None:
    """Let a table adopt Parquet files as Spark writes them without Iceberg."""
    where = f"{folder}/plain"
    table.spark.sql(rows).coalesce(1).write.partitionBy(*by).parquet(where)
    table.call("add_files", f"source_table => '`parquet`.`{where}`'")


@pytest.mark.slow
def test_data_files_without_field_ids(table: Table, tmp_path: Path) -> None:
    table.create()
    add_plain_files(table, tmp_path, "SELECT id, CAST(id AS string) AS name FROM range(5)")
    table.sql("ALTER TABLE {t} RENAME COLUMN name TO title")
    table.commit().deletes("title", "SELECT '3'").deletes("id", "SELECT 4").done()

    table.converted()

    assert table.ids() == [0, 1, 2]


@pytest.mark.slow
@both_versions
def test_keys_with_a_partition_column_that_data_files_do_not_hold(
    table: Table, tmp_path: Path, version: int
) -> None:
    table.create("id bigint, p int", "p", version)
    add_plain_files(table, tmp_path, "SELECT id, CAST(id % 2 AS int) AS p FROM range(6)", "p")
    commit = table.commit().deletes(["id", "p"], "SELECT 2, 0 UNION ALL SELECT 3, 0", {"p": 0})
    commit.deletes("p", "SELECT 1", {"p": 1}).done()

    table.converted()

    assert table.ids() == [0, 4]


@pytest.mark.slow
def test_a_partition_column_has_the_value_of_the_partition_whatever_the_file_says(
    table: Table,
) -> None:
    with_values_of_another_partition(table)

    table.converted()


# Time


@pytest.mark.slow
@both_versions
def test_keys_deleted_twice_and_inserted_again(table: Table, version: int) -> None:
    table.create(version=version)
    table.data("SELECT id, 'first' FROM range(4)")
    table.commit().data("SELECT 1, 'second'").deletes(
        "id", "SELECT 1 UNION ALL SELECT 1 UNION ALL SELECT 9"
    ).done()
    table.commit().data("SELECT 1, 'third' UNION ALL SELECT 2, 'third'").deletes(
        "id", "SELECT 1 UNION ALL SELECT 2"
    ).done()
    table.commit().deletes("id", "SELECT 3").deletes("id", "SELECT 3").done()

    rows = table.converted()

    assert rows == {(0, "first"): 1, (1, "third"): 1, (2, "third"): 1}


@pytest.mark.slow
@both_versions
def test_a_key_deleted_and_inserted_twice_within_one_commit(table: Table, version: int) -> None:
    """Within a checkpoint Flink deletes by position, in files of the same sequence number."""
    table.create()
    table.data("SELECT id, 'old' FROM range(3)")
    commit = (
        table.commit()
        .deletes("id", "SELECT 1")
        .data("SELECT 1, 'once' UNION ALL SELECT 1, 'twice'")
    )
    commit.positions([(commit.last_data_path(), 0)]).done()
    if version == 3:
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.delete("id", "SELECT 0")

    rows = table.converted()

    assert rows == {(1, "twice"): 1, (2, "old"): 1}


def with_two_files(table: Table, version: int = 2) -> tuple[str, str]:
    """Create the table with two files of ten ids; returns their paths."""
    commit = table.create(version=version).commit().data("SELECT id, 'a' FROM range(10)")
    first = commit.last_data_path()
    commit.data("SELECT id + 10, 'b' FROM range(10)").done()
    return first, commit.last_data_path()


@both_versions
def test_existing_position_deletes_and_vectors_stay(table: Table, version: int) -> None:
    """Of one data file and of several, from before and after the table's upgrade."""
    first, second = with_two_files(table)
    table.data("SELECT id + 20, 'c' FROM range(10)").commit().positions([(first, 0)]).positions(
        sorted([(first, 1), (second, 1)])
    ).done()
    if version == 3:
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.sql("DELETE FROM {t} WHERE id IN (12, 22)")
    table.commit().deletes(
        "id", "SELECT 3 UNION ALL SELECT 13 UNION ALL SELECT 12 UNION ALL SELECT 23"
    ).done()

    rows = table.converted()

    assert sorted(row[0] for row in rows) == sorted({*range(30)} - {0, 1, 11, 12, 22, 3, 13, 23})


@pytest.mark.slow
def test_vectors_that_another_session_has_written_stay_whatever_the_table_is_called(
    lake: Lake, scratch: str
) -> None:
    """Iceberg's cache knows the metadata tables of a table with a dot in its name by another, and
    does not refresh them.
    """
    table = (
        Table(lake, scratch, "vectors.dot")
        .create(version=3)
        .insert("VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    )
    table.sql(f"SELECT * FROM {identifier(*table.full, 'position_deletes')}")
    elsewhere(lake.spark).sql(f"DELETE FROM {table.sql_name} WHERE id = 1")
    table.delete("id", "SELECT 2")

    convert(table.spark, table.full)

    table.files.refresh()
    assert table.rows() == {(3, "c"): 1, (4, "d"): 1}
    assert metadata_table(lake.spark, table.full, "delete_files").selectExpr(
        "content", "record_count"
    ).collect() == [(1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("earlier", ["a file of two data files", "a vector"])
def test_nothing_is_merged_where_earlier_positions_cannot_all_be_read(
    table: Table, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    """A metadata table of an older snapshot, as a cache once gave it, knows fewer of them, and no
    reader would look for the others.
    """
    first, second = with_two_files(table, 2 if "file" in earlier else 3)
    (before,) = table.snapshots()
    if table.version == 2:
        table.commit().positions([(first, 1), (second, 1)]).done()
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    else:
        table.sql("DELETE FROM {t} WHERE id IN (1, 11)")
    table.delete("id", "SELECT 3")
    monkeypatch.setattr(
        positions,
        "metadata_table",
        lambda spark, name, which, _: metadata_table(spark, name, which, before),
    )

    reason = r"0 of [12] (rows of 1 position delete file|positions deleted earlier) could be read"
    with unchanged(table), pytest.raises(ConversionRefused, match=reason):
        convert(table.spark, table.full)


@both_versions
@pytest.mark.slow
def test_in_slices(table: Table, version: int) -> None:
    table.create(version=version)
    ids = table.fill_slices(3)
    table.delete("id", f"SELECT id * 5 FROM range({ids})")
    planned = table.files.table().currentSnapshot().sequenceNumber()
    table.delete("id", "SELECT 1")
    commits = len(table.snapshots())

    # Later deletes stay.
    table.converted(slices=3, max_sequence=planned, left=1)

    assert len(table.snapshots()) == commits + 3


@pytest.mark.slow
def test_deletes_with_too_many_keys_to_broadcast(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "BROADCAST_KEYS", 0)
    monkeypatch.setattr(join, "KEYS_PER_TASK", 2)
    table.create("id bigint, name string, p int", "p")
    table.commit().data("SELECT id, 'a', 1 FROM range(9)", {"p": 1}).data(
        "SELECT id, NULL, 2 FROM range(9)", {"p": 2}
    ).done()
    commit = table.commit().deletes("id", "SELECT id * 2 FROM range(5)", {"p": 1})
    commit.deletes(["id", "name"], "SELECT id, NULL FROM range(4)", {"p": 2}).done()

    rows = table.converted()

    assert len(rows) == 4 + 5


# Nothing to do


@pytest.mark.slow
def test_tables_without_equality_deletes_are_left_alone(table: Table) -> None:
    table.create()
    table.converted()
    assert table.snapshots() == []
    # They apply to nothing where there is no data file.
    table.delete("id", "SELECT 1").converted()
    table.insert("VALUES (1, 'a')").sql("DELETE FROM {t} WHERE id = 1")
    table.sql("TRUNCATE TABLE {t}")
    before = table.snapshots()

    table.converted()

    assert table.snapshots() == before


@pytest.mark.slow
def test_deletes_that_are_older_than_every_row_are_dropped(table: Table) -> None:
    """The merging of a commit would drop them too, were there not one row that is older."""
    table.create("id bigint, p int", "p")
    table.data("SELECT 1, 1", {"p": 1})
    table.commit().deletes("id", "SELECT 1", {"p": 2}).deletes("id", "SELECT 1", {"p": 3}).done()
    table.data("SELECT 1, 2", {"p": 2})

    table.converted()

    assert table.ids() == [1, 1]


# Branches


@pytest.mark.slow
@both_versions
def test_a_branch_is_converted_by_itself_and_tags_stay(table: Table, version: int) -> None:
    table.create(version=version).data("SELECT id, 'a' FROM range(5)")
    table.delete("id", "SELECT 1")
    table.sql("ALTER TABLE {t} CREATE TAG before")
    table.sql("ALTER TABLE {t} CREATE BRANCH side")
    table.commit().data("SELECT 1, 'b'").deletes("id", "SELECT 2").done("side")
    table.commit().deletes("id", "SELECT 3").done()

    table.converted(branch="side")

    assert table.equality_deletes() == 2
    assert table.ids() == [0, 2, 4]
    assert table.ids("VERSION AS OF 'before'") == [0, 2, 3, 4]
    table.converted()


@pytest.mark.slow
def test_slices_that_hit_no_row_make_no_commit_and_stop_nothing(table: Table) -> None:
    table.create().insert("(SELECT id, 'a' FROM range(4))")
    table.delete("id", "SELECT 2")
    commits = len(table.snapshots())

    table.converted(slices=8)

    # One file is in one slice, and the last removes the deletes.
    assert len(table.snapshots()) - commits <= 2
