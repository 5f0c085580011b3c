"""Each fault that a rewrite could have is injected, on each path that it can take, and is refused
before the commit.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import functions as F

from icekit.rows.deletes import join
from icekit.rows.kernel import kernel, live_rows
from icekit.rows.kernel.current_schema import in_current_schema
from icekit.rows.kernel.new_files import NewFiles
from icekit.rows.kernel.row_order import in_order
from icekit.rows.proof.checked import RowsDiffer
from icekit.rows.rewrite import group, kernel_work, rewrite_session
from icekit.rows.rewrite.group import Group
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from tests.deletes.tables import Table, by_spark, rewrite

pytestmark = pytest.mark.spark

Patch = Callable[[pytest.MonkeyPatch], None]

_PATHS: Mapping[str, Mapping[str, Any]] = {
    # A fault in one file is found if that file is one of the few that are read twice; here all are.
    "no equality deletes": {"SAMPLED_FILES": 10},
    "together": {"SAMPLED_FILES": 10},
    "by Iceberg's reader": {"_FEW_APPLIED": 10**6},
    "by a join": {"_FEW_APPLIED": 0, "SAMPLED_FILES": 10},
    "sorted": {"_FEW_APPLIED": 0, "SAMPLED_FILES": 10},
}
_JOINS = {"by a join", "sorted"}


@pytest.mark.core("by a join-1-2", "together-0-2")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("path", "key_set"),
    [(path, number) for path in _PATHS for number in range(2 if path in _JOINS else 1)],
)
def test_no_fault_of_a_rewrite_is_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch, path: str, key_set: int, version: int
) -> None:
    by_spark(monkeypatch)
    first = _fill(table, version, path)
    for name, value in _PATHS[path].items():
        monkeypatch.setattr(group if name == "SAMPLED_FILES" else rewrite_session, name, value)
    order = RewriteOrder("sort", (("id",),)) if path == "sorted" else RewriteOrder()
    before, snapshots = table.rows(), table.snapshots()
    for name, fault in _faults(path, key_set, version, first).items():
        with monkeypatch.context() as patch:
            fault(patch)
            try:
                rewrite(table, order=order)
            except RowsDiffer:
                assert (table.rows(), table.snapshots()) == (before, snapshots), name
            else:
                pytest.fail(f"{name} was committed")

    assert table.rewritten(order=order) == before


def _fill(table: Table, version: int, path: str) -> str:
    """Three data files, a delete by position, and deletes of two keys, some of rows that were
    inserted again; returns the name of a data file.
    """
    table.create("id bigint, k int, name string", version=version)
    if path == "together":
        table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
        for name in ("a", "b"):
            table.insert(f"(SELECT id, 1, '{name}' FROM range(12))")
        table.sql("DELETE FROM {t} WHERE id = 7 AND name = 'a'")
        return _file_of(table, "b")
    commit = table.commit().data("SELECT id, CAST(id % 7 AS int), 'a' FROM range(40)")
    commit.data("SELECT id + 40, CAST(id % 7 AS int), 'b' FROM range(40)").done()
    table.sql("DELETE FROM {t} WHERE id = 7")
    commit = table.commit()
    if path != "no equality deletes":
        commit.deletes("id", "SELECT 5 UNION ALL SELECT 45")
        commit.deletes(["k", "name"], "SELECT 3, 'a' UNION ALL SELECT 2, 'b'")
    commit.data(
        "SELECT * FROM VALUES (5, 1, 'c'), (45, 1, 'c'), (90, 3, 'a') AS v(id, k, name)"
    ).done()
    if path != "no equality deletes":
        # Deletes of no row: without them, no file that is newer than the others would be read.
        commit = table.commit().deletes("id", "SELECT 85")
        commit.deletes(["k", "name"], "SELECT 2, 'b'").done()
    return _file_of(table, "b")


def _file_of(table: Table, name: str) -> str:
    (row,) = table.sql(f"SELECT max(_file) FROM {{t}} WHERE name = '{name}'")
    return str(row[0]).rpartition("/")[2]


def _faults(path: str, key_set: int, version: int, file: str) -> Mapping[str, Patch]:
    """What is done to the rows, or to the deletes of a key set, of a rewrite."""
    of_file = F.input_file_name().endswith(file)
    faults: dict[str, Patch] = {
        "row dropped": _rows_changed(after=lambda rows: rows.where("id <> 11")),
        "row altered": _rows_changed(after=lambda rows: _changed(rows, "name", "'other'")),
        "file skipped": _rows_changed(before=lambda rows: rows.where(~of_file)),
        "file read twice": _rows_changed(before=lambda rows: rows.unionByName(rows.where(of_file))),
    }
    if version >= 3:
        faults["row id altered"] = _rows_changed(
            after=lambda rows: _changed(rows, "_row_id", "_row_id + 1000")
        )
    if path == "by Iceberg's reader":
        faults["deletes ignored"] = _deletes_ignored
    if path not in _JOINS:
        return faults
    return (faults if key_set == 0 else {}) | {
        "row kept": _matched(key_set, lambda found: f"{found} AND r.k0 NOT IN (5, 3)"),
        "deletes ignored": _matched(key_set, lambda found: f"{found} AND false"),
        "deletes applied to newer files": _matched(key_set, _newer_too),
    }


def _changed(rows: Any, column: str, value: str) -> Any:
    return rows.withColumn(column, F.expr(f"if(id = 11, {value}, {column})"))


def _same(rows: Any) -> Any:
    return rows


def _rows_changed(
    before: Callable[[Any], Any] = _same, after: Callable[[Any], Any] = _same
) -> Patch:
    marked = Group._rows
    return lambda patch: patch.setattr(
        Group, "_rows", lambda group, rows: after(marked(group, before(rows)))
    )


def _deletes_ignored(patch: pytest.MonkeyPatch) -> None:
    marked = Group._rows

    def plain(group: Any, rows: Any) -> Any:
        del rows
        name = uuid.uuid4().hex
        group.java.stage(group.java.plain(group.tasks), name)
        return marked(group, group.staging.frame(name))

    patch.setattr(Group, "_rows", plain)


def _matched(number: int, change: Callable[[str], str]) -> Patch:
    matches = join._match_sql

    def wrong(key_set: Any, names: Any) -> str:
        found = matches(key_set, names)
        return change(found) if key_set.set_index == number else found

    return lambda patch: patch.setattr(join, "_match_sql", wrong)


def _newer_too(found: str) -> str:
    return found.replace("d.s > r.s", "true")


# --- The kernel


@pytest.mark.core("by a join-2", "no equality deletes-2")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("check", ["no equality deletes", "by Iceberg's reader", "by a join"])
def test_no_fault_of_the_kernel_is_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch, check: str, version: int
) -> None:
    _fill(table, version, check)
    monkeypatch.setattr(group, "SAMPLED_FILES", 10)
    monkeypatch.setattr(kernel_work, "SAMPLED_FILES", 10)
    monkeypatch.setattr(rewrite_session, "_FEW_APPLIED", 0 if check == "by a join" else 10**6)
    before, snapshots = table.rows(), table.snapshots()
    faults = _KERNEL_FAULTS | (_LINEAGE_FAULTS if version >= 3 else {})
    if check != "no equality deletes":
        faults |= _KEY_FAULTS
    for name, fault in faults.items():
        with monkeypatch.context() as patch:
            fault(patch)
            try:
                rewrite(table)
            except RowsDiffer:
                assert (table.rows(), table.snapshots()) == (before, snapshots), name
            else:
                pytest.fail(f"{name} was committed")

    assert table.rewritten() == before
    # By the kernel: a task's number ends the name of each file.
    files = table.sql("SELECT file_path FROM {t}.data_files")
    assert all(path.rpartition("/")[2].count("-") == 4 for (path,) in files)


@pytest.mark.core
def test_no_fault_of_a_sort_by_the_kernel_is_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(table, 2, "no equality deletes")
    by_id = RewriteOrder("sort", (("id",),))
    before, snapshots = table.rows(), table.snapshots()
    faults: dict[str, Callable[[Any], Any]] = {
        "row dropped": lambda rows: rows.slice(1),
        "value altered": lambda rows: _other_value(rows, "name", "z"),
    }
    for name, fault in faults.items():
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "in_order", lambda *given, f=fault: map(f, in_order(*given)))
            with pytest.raises(RowsDiffer):
                rewrite(table, order=by_id)
        assert (table.rows(), table.snapshots()) == (before, snapshots), name

    assert table.rewritten(order=by_id) == before
    files = table.sql("SELECT file_path FROM {t}.data_files")
    assert all(path.rpartition("/")[2].count("-") == 4 for (path,) in files)


def _read_otherwise(change: Callable[[Any], Any]) -> Patch:
    """The rows of old files are not those that are there."""

    def changed(*given: Any) -> Any:
        return change(in_current_schema(*given))

    return lambda patch: patch.setattr(kernel, "in_current_schema", changed)


def _written_otherwise(change: Callable[[Any], list[Any]]) -> Patch:
    """The rows that are written are not those that were read."""
    write = NewFiles.write

    def changed(new_files: Any, rows: Any) -> None:
        for batch in change(rows):
            write(new_files, batch)

    return lambda patch: patch.setattr(NewFiles, "write", changed)


def _other_value(rows: Any, name: str, value: Any) -> Any:
    """The first row with another value."""
    import pyarrow as pa

    index = rows.schema.get_field_index(name)
    column = rows.column(index)
    values = pa.array([value, *column.to_pylist()[1:]], column.type)
    return pa.record_batch(
        [values if i == index else each for i, each in enumerate(rows.columns)], schema=rows.schema
    )


def _nothing_deleted(*_: Any) -> Any:
    return iter(())


def _newer_deleted(files: Any, deletes: Any, folder: str) -> Any:
    import dataclasses

    later = [(path, order + (100 << 32)) for path, order in deletes.paths_and_orders]
    return _deleted(files, dataclasses.replace(deletes, paths_and_orders=later), folder)


def _one_kept(files: Any, deletes: Any, folder: str) -> Any:
    for rows, orders in _deleted(files, deletes, folder):
        yield rows[1:], orders[1:]


def _one_too_many(files: Any, deletes: Any, folder: str) -> Any:
    for rows, orders in _deleted(files, deletes, folder):
        rows = rows.copy()
        rows[:1] = 11
        yield rows, orders


_deleted = live_rows._deleted_by_key
_KERNEL_FAULTS: dict[str, Patch] = {
    "row read otherwise": _read_otherwise(lambda rows: _other_value(rows, "name", "z")),
    "row written otherwise": _written_otherwise(lambda rows: [_other_value(rows, "name", "z")]),
    "row not written": _written_otherwise(lambda rows: [rows.slice(1)]),
    "rows written twice": _written_otherwise(lambda rows: [rows, rows]),
    "positions ignored": lambda patch: patch.setattr(
        live_rows, "_deleted_positions", _nothing_deleted
    ),
}
_LINEAGE_FAULTS: dict[str, Patch] = {
    "row id altered": _written_otherwise(lambda rows: [_other_value(rows, "_row_id", 10**6)]),
    "row id read otherwise": _read_otherwise(lambda rows: _other_value(rows, "_row_id", 10**6)),
}
_KEY_FAULTS: dict[str, Patch] = {
    "deletes ignored": lambda patch: patch.setattr(live_rows, "_deleted_by_key", _nothing_deleted),
    "newer rows deleted": lambda patch: patch.setattr(live_rows, "_deleted_by_key", _newer_deleted),
    "row kept": lambda patch: patch.setattr(live_rows, "_deleted_by_key", _one_kept),
    "another row deleted": lambda patch: patch.setattr(live_rows, "_deleted_by_key", _one_too_many),
}
