"""Equality deletes by fields inside structs, and by fields that were dropped: Iceberg's own reader
applies them in some queries only, so that icekit resolves them by field id.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from icekit.common.errors import ConversionRefused, ReadersDisagree
from icekit.maintain.run.rewrite import ConvertFirst
from icekit.rows.deletes.keys import KeyColumn
from icekit.rows.proof import readers
from icekit.rows.proof.commits import prove_commits
from icekit.rows.proof.proof import CHECKED
from icekit.rows.rewrite import rewrite_session
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from tests.deletes.tables import Table, add_column, by_spark, rewrite, run, types, unchanged

pytestmark = [pytest.mark.spark, pytest.mark.core]

#: Of each shape: the key, the columns, the value of the struct for a key, what the deletes hold, and
# the column that is dropped after them.
SHAPES = {
    "leaf": (
        "s.k",
        "s struct<k: bigint, x: string>",
        "named_struct('k', {k}, 'x', 'y')",
        "named_struct('k', {k})",
        None,
    ),
    "deep": (
        "s.t.k",
        "s struct<t: struct<k: bigint, x: string>>",
        "named_struct('t', named_struct('k', {k}, 'x', 'y'))",
        "named_struct('t', named_struct('k', {k}))",
        None,
    ),
    "dropped leaf": (
        "s.k",
        "s struct<k: bigint, x: string>",
        "named_struct('k', {k}, 'x', 'y')",
        "named_struct('k', {k})",
        "s.k",
    ),
    "dropped struct": (
        "s.k",
        "s struct<k: bigint, x: string>",
        "named_struct('k', {k}, 'x', 'y')",
        "named_struct('k', {k})",
        "s",
    ),
    "dropped inner struct": (
        "s.t.k",
        "s struct<t: struct<k: bigint>, x: string>",
        "named_struct('t', named_struct('k', {k}), 'x', 'y')",
        "named_struct('t', named_struct('k', {k}))",
        "s.t",
    ),
    "dropped column": ("k", "k bigint", "{k}", "{k}", "k"),
    "beside a required field": (
        "s.k",
        "s struct<k: bigint, x: string not null>",
        "named_struct('k', {k}, 'x', 'y')",
        "named_struct('k', {k})",
        None,
    ),
}
#: The rows that live by the specification.
LIVE = [0, 2, 4, 6, 8, 10]


def with_deletes(table: Table, shape: str, version: int = 2) -> Table:
    """Eleven rows in six files, whose odd keys are deleted."""
    key, ddl, value, deleted, dropped = SHAPES[shape]
    table.create(f"id bigint, {ddl}, v string", version=version)
    commit = table.commit()
    for start in range(0, 11, 2):
        rows = min(2, 11 - start)
        made = value.format(k=f"id + {start}")
        commit.data(f"SELECT id + {start}, {made}, 'a' FROM range({rows})")
    commit.done()
    table.delete(key, f"SELECT {deleted.format(k='id * 2 + 1')} FROM range(5)")
    if dropped:
        table.sql(f"ALTER TABLE {{t}} DROP COLUMN {dropped}")
        table.files.refresh()
    return table


@pytest.mark.core("leaf-2", "dropped struct-3")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_compaction_keeps_the_rows_of_the_specification(
    table: Table, shape: str, version: int
) -> None:
    with_deletes(table, shape, version)
    columns = table.spark.table(table.sql_name).schema
    rewrite(table)
    table.files.refresh()

    assert table.ids() == LIVE
    assert table.spark.table(table.sql_name).schema == columns
    assert table.sql("SELECT count(*) FROM {t}")[0][0] == len(LIVE)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_conversion_keeps_them_and_is_checked_before_its_commit(
    table: Table, shape: str, tmp_path: Path
) -> None:
    with_deletes(table, shape)
    outcome = table.converts(tmp_path)

    assert table.ids() == LIVE
    assert outcome.proof is not None
    assert (outcome.proof.ok, outcome.proof.mode) == (True, CHECKED)


@pytest.mark.slow
def test_small_groups_are_not_written_together_where_icebergs_reader_misreads_their_keys(
    table: Table,
) -> None:
    table.create("id bigint, p int, s struct<k: bigint, x: string>", "p")
    for start in (0, 2):
        commit = table.commit()
        for p in range(2):
            row = f"id + {start}, {p}, named_struct('k', id + {start}, 'x', 'y')"
            commit.data(f"SELECT {row} FROM range(2)", {"p": p})
        commit.done()
    commit = table.commit()
    for p in range(2):
        commit.deletes("s.k", f"SELECT named_struct('k', CAST({p} AS BIGINT))", {"p": p})
    commit.done()

    rewrite(table)
    table.files.refresh()

    rows = sorted(tuple(row) for row in table.sql("SELECT p, id FROM {t}"))
    assert rows == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]


@pytest.mark.slow
def test_the_outcome_says_what_icebergs_reader_showed_instead(table: Table, tmp_path: Path) -> None:
    with_deletes(table, "dropped leaf")
    facts = table.lake.observe(table.name)
    plan = table.lake.plan(facts, leave_alone="0 minutes")
    (action,) = plan.actions
    outcome = table.lake.run(plan, execute=True, ledger=str(tmp_path / "l.db"), progress=print)
    table.files.refresh()

    assert facts.misread_keys == ("s.k",)
    assert "misreads deletes by s.k" in action.why
    assert action.sql.startswith("icekit compact")
    assert table.ids() == LIVE
    assert outcome.proof is not None
    assert outcome.proof.ok
    # Of a few files, chosen at random.
    disagreement = r"showed \d to a query of all columns and \d to one of none"
    assert re.search(disagreement, repr(outcome.proof))


@pytest.mark.slow
def test_rows_of_a_group_are_without_the_dropped_fields_that_only_another_group_needs(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", 0)
    table.create("id bigint, s struct<k: bigint, x: string>, part int", "part")
    commit = table.commit()
    for part in range(2):
        for start in (part * 100, part * 100 + 4):
            made = f"named_struct('k', id + {start}, 'x', 'y')"
            commit.data(f"SELECT id + {start}, {made}, {part} FROM range(4)", {"part": part})
    commit.done()
    table.delete("s.k", "SELECT named_struct('k', 2L)", {"part": 0})
    table.delete("id", "SELECT 102L", {"part": 1})
    table.sql("ALTER TABLE {t} DROP COLUMN s.k")
    table.files.refresh()
    rewrite(table)
    table.files.refresh()

    assert table.ids() == [0, 1, *range(3, 8), 100, 101, *range(103, 108)]


@pytest.mark.parametrize("shape", ["leaf", "dropped leaf"])
def test_a_full_comparison_reads_them_as_the_specification_says(table: Table, shape: str) -> None:
    with_deletes(table, shape)
    before = len(table.snapshots())
    rewrite(table)
    proof = prove_commits(table.lake, table.name, table.snapshots()[before:])

    assert proof.ok
    (commit,) = proof.commits
    assert commit.before is not None
    assert commit.before.row_count == len(LIVE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ("DROP COLUMN s.x", "RENAME COLUMN id TO number"),
        ("RENAME COLUMN s.x TO y", "DROP COLUMN v", "ADD COLUMN v INT"),
        ("ADD COLUMN more INT", "WRITE ORDERED BY more", "RENAME COLUMN s TO struct"),
    ],
    ids=["dropped beside it", "renamed beside it", "sorted by a new column"],
)
def test_a_full_comparison_reads_columns_as_they_were_then(
    table: Table, changes: tuple[str, ...]
) -> None:
    with_deletes(table, "leaf")
    for change in changes:
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.files.refresh()
    before = len(table.snapshots())
    rewrite(table)
    proof = prove_commits(table.lake, table.name, table.snapshots()[before:])

    assert proof.ok
    (commit,) = proof.commits
    assert commit.before is not None
    assert commit.before.row_count == len(LIVE)


@pytest.mark.slow
def test_a_full_comparison_of_what_nobody_can_read_proves_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_deletes(table, "leaf")
    before = len(table.snapshots())
    rewrite(table)

    def refuse(*_: object) -> None:
        raise ConversionRefused("not today")

    monkeypatch.setattr(readers, "resolved_snapshot", refuse)
    proof = prove_commits(table.lake, table.name, table.snapshots()[before:])

    assert proof.ok is None
    assert "deletes by s.k" in repr(proof)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["kernel", "Spark", "sorted"])
def test_each_way_to_rewrite_resolves_a_dropped_field(
    table: Table, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with_deletes(table, "dropped leaf")
    if path == "Spark":
        by_spark(monkeypatch)
    rewrite(table, order=RewriteOrder("sort", (("id",),)) if path == "sorted" else RewriteOrder())
    table.files.refresh()

    assert table.ids() == LIVE


@pytest.mark.slow
def test_fields_are_matched_by_id_whatever_their_names_became(table: Table) -> None:
    table.create("id bigint, s struct<k: int, x: string>, old string")
    table.data("SELECT id, named_struct('k', id, 'x', string(id)), string(id) FROM range(4)")
    commit = table.commit().deletes("s.k", "SELECT named_struct('k', 1)")
    commit.deletes("old", "SELECT '2'").done()
    for change in (
        "ALTER COLUMN s.k TYPE bigint",
        "RENAME COLUMN s.k TO q",
        "ADD COLUMN s.k string",
        "DROP COLUMN old",
        "ADD COLUMN old string",
    ):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.files.refresh()
    table.insert("VALUES (4, named_struct('q', 1, 'x', 'new', 'k', '1'), '2')")
    rewrite(table)
    table.files.refresh()

    assert table.ids() == [0, 3, 4]
    assert table.sql("SELECT s.q, s.k, old FROM {t} WHERE id = 4") == [(1, "1", "2")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "deleted",
    ["NULL", "named_struct('k', cast(NULL AS bigint))"],
    ids=["a null struct", "a struct of a null"],
)
@pytest.mark.parametrize("way", ["compaction", "conversion"])
def test_a_field_of_a_null_struct_is_null(
    table: Table, deleted: str, way: str, tmp_path: Path
) -> None:
    """As the specification says of delete columns; Iceberg's own reader tells the two apart."""
    table.create("id bigint, s struct<k: bigint, x: string>")
    table.data(
        "VALUES (1, NULL), (2, named_struct('k', cast(NULL AS bigint), 'x', 'y')), "
        "(3, named_struct('k', 1L, 'x', 'y'))"
    )
    table.delete("s.k", f"SELECT {deleted}")
    if way == "compaction":
        rewrite(table)
        table.files.refresh()
    else:
        assert table.converts(tmp_path).status == "done"

    assert table.ids() == [3]


@pytest.mark.parametrize("way", ["compaction", "conversion"])
def test_fixed_keys_are_all_applied(table: Table, way: str, tmp_path: Path) -> None:
    """Of several in one delete file, Iceberg 1.12's own reader applies only the last."""
    table.create("id bigint")
    add_column(table, "f", types(table).FixedType.ofLength(3))
    table.data("VALUES (1, X'000001'), (2, X'000002'), (3, X'000003')")
    table.delete("f", "VALUES (X'000001'), (X'000002')")
    if way == "compaction":
        rewrite(table)
        table.files.refresh()
    else:
        assert table.converts(tmp_path).status == "done"

    assert table.lake.observe(table.name).misread_keys == (() if way == "conversion" else ("f",))
    assert table.ids() == [3]


def test_icebergs_reader_is_not_believed_where_its_answer_depends_on_the_query(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a later reader misread other keys. What the kernel writes, it only confirms."""
    by_spark(monkeypatch)
    with_deletes(table, "leaf")
    monkeypatch.setattr(KeyColumn, "is_read_correctly", True)

    with unchanged(table), pytest.raises(ReadersDisagree, match="6 rows to a query of all columns"):
        rewrite(table)


def with_delete_by(table: Table, key: str) -> None:
    """Add an equality delete file by a key that Iceberg's own writers refuse."""
    iceberg_table = table.files.table()
    file = table.files.deletes("id", "SELECT 1")
    gateway: Any = table.spark.sparkContext._gateway
    field_ids = gateway.new_array(gateway.jvm.int, 1)
    field_ids[0] = iceberg_table.schema().findField(key).fieldId()
    builder = table.java.FileMetadata.deleteFileBuilder(iceberg_table.spec()).copy(file)
    changed = builder.ofEqualityDeletes(field_ids).build()
    iceberg_table.newRowDelta().addDeletes(changed).commit()
    table.files.refresh()


@pytest.mark.parametrize(
    ("key", "error"),
    [("l.element.k", ReadersDisagree), ("s.f", ReadersDisagree)],
    ids=["inside a list", "floating-point inside a struct"],
)
def test_what_nobody_can_resolve_is_refused_by_name_before_anything_is_read(
    table: Table, key: str, error: type[Exception], tmp_path: Path
) -> None:
    table.create("id bigint, l array<struct<k: int>>, s struct<f: double>")
    table.data("SELECT id, array(named_struct('k', id)), named_struct('f', id) FROM range(4)")
    with_delete_by(table, key)

    before = table.snapshots()
    with pytest.raises(error, match=r"field \d|s\.f"):
        run(table)
    assert table.converts(tmp_path).status == "failed"
    assert table.snapshots() == before


def test_what_only_the_engine_could_move_is_converted_first(table: Table) -> None:
    with_deletes(table, "dropped leaf")
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    table.files.refresh()

    snapshots_before = table.snapshots()
    with pytest.raises(ConvertFirst, match=r"s\.k"):
        run(table)
    # Iceberg before 1.10 cannot read the rows.
    assert table.snapshots() == snapshots_before


#: Names that a rewrite, or a comparison, gives to columns of its own.
TAKEN = ("icekit order", "ICEKIT File", "icekit key 0", "icekit hash", "icekit keys", "hash", "row")


@pytest.mark.parametrize("way", ["kernel", "Spark"])
def test_columns_may_have_the_names_of_those_that_icekit_adds(
    table: Table, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", 0)
    if way == "Spark":
        by_spark(monkeypatch)
    names = ", ".join(f"`{name}` bigint" for name in TAKEN)
    table.create(f"id bigint, {names}")
    values = ", ".join(f"id * {number}" for number in range(2, 2 + len(TAKEN)))
    for start in range(0, 50, 10):
        table.data(f"SELECT id, {values} FROM range({start}, {start + 10})")
    table.delete("id", "SELECT id * 3 FROM range(10)")
    before = table.rows()
    start = len(table.snapshots())
    assert table.rewritten() == before
    monkeypatch.setattr(readers, "HEAP_SHARE", 0.0)

    assert prove_commits(table.lake, table.name, table.snapshots()[start:]).ok
