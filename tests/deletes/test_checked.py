"""A conversion is checked before its commit: a wrong one is never committed, and what it wrote is
removed.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from icekit.common.errors import ReadersDisagree
from icekit.engine.interrupting import Stop, Stopped
from icekit.rows.deletes import convert as converting
from icekit.rows.deletes import delete_files
from icekit.rows.deletes.conversion_inputs import find_inputs
from icekit.rows.deletes.convert import convert
from icekit.rows.proof import conversion as checking
from icekit.rows.proof.checked import CHECKED_POSITIONS_TAG, CheckedPositions, RowsDiffer
from icekit.rows.proof.conversion import PositionCheck
from icekit.rows.proof.proof import CHECKED
from tests.deletes.tables import Table, unchanged, with_ruled_out_key

pytestmark = pytest.mark.spark

both_versions = pytest.mark.parametrize("version", [2, 3])


def checked(table: Table) -> list[CheckedPositions]:
    """What the summaries of the table's commits say, the oldest first."""
    found = table.sql(
        f"SELECT summary['{CHECKED_POSITIONS_TAG}'] FROM {{t}}.snapshots ORDER BY committed_at"
    )
    return [CheckedPositions.of(text) for (text,) in found if text]


def sick(table: Table, version: int) -> Table:
    """Two partitions and two keys; the deletes apply to two files, and delete 6 of their 20
    rows.
    """
    table.create("id bigint, name string, p string", "p", version=version)
    for p in "ab":
        table.data(f"SELECT id, 'first', '{p}' FROM range(10)", {"p": p})
    commit = table.commit().deletes("id", "SELECT id FROM range(4)", {"p": "a"})
    commit.deletes(
        ["id", "name"],
        "SELECT 5, 'first' UNION ALL SELECT 6, 'first' UNION ALL SELECT 7, 'second'",
        {"p": "b"},
    ).done()
    table.data("SELECT id, 'second', 'a' FROM range(10)", {"p": "a"})
    return table


def two_files_under_a_delete(table: Table, version: int) -> None:
    """Each of the files has the row that is deleted."""
    table.create(version=version)
    for _ in range(2):
        table.data("SELECT id, 'a' FROM range(10)")
    table.commit().deletes("id", "SELECT 1").done()


def sampling(monkeypatch: pytest.MonkeyPatch, deletes: int) -> None:
    """From so many deletes on, a sample of the keys is looked up."""
    monkeypatch.setattr(checking, "_FEW", deletes)
    monkeypatch.setattr(checking, "_SMALL", 0)


def refused(
    table: Table,
    found: str | None,
    *,
    error: type[Exception] = RowsDiffer,
    check: Any = PositionCheck,
    **options: Any,
) -> None:
    """A conversion of the table is refused, and neither the table nor its folder has changed."""
    with unchanged(table), pytest.raises(error, match=found):
        convert(table.spark, table.full, check=check, **options)


def change_positions(
    monkeypatch: pytest.MonkeyPatch, changed: Callable[[dict[int, BitMap64]], object]
) -> None:
    """Let a conversion find other deleted positions than there are."""
    find = converting.deleted_positions
    monkeypatch.setattr(converting, "deleted_positions", lambda *given: changed(find(*given)))


@pytest.mark.parametrize(("version", "many"), [(2, 1_000_000), (2, 0), (3, 0)])
def test_a_commit_says_what_was_checked(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, many: int
) -> None:
    monkeypatch.setattr(checking, "_MANY_POSITIONS", many)
    sick(table, version)

    outcome = table.converts(tmp_path)

    assert outcome.proof is not None
    assert outcome.proof.ok is True
    assert outcome.proof.mode == CHECKED
    assert checked(table) == [
        CheckedPositions(positions=6, resolved=7, sampled=20, one_in=1, files=2, of_files=14)
    ]
    assert "6 deleted positions read back" in repr(outcome.proof)


@pytest.mark.core
@both_versions
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (lambda dead: {**dead, 0: dead[0] - BitMap64([dead[0].min()])}, "1 deleted row would stay"),
        (
            lambda dead: {**dead, 0: dead[0] | BitMap64([dead[0].max() + 1])},
            "rows without a delete would be deleted",
        ),
        (
            lambda dead: {number: some for number, some in dead.items() if number},
            "deleted rows would stay",
        ),
    ],
    ids=["a row too few", "a row too many", "a file too few"],
)
def test_positions_that_are_not_right_are_found(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    changed: Callable[[dict[int, BitMap64]], object],
    found: str,
) -> None:
    sick(table, version)
    change_positions(monkeypatch, changed)

    refused(table, found)

    # As with many keys: a sample of all of them.
    sampling(monkeypatch, 0)
    monkeypatch.setattr(checking, "UNSEEN", 0)
    monkeypatch.setattr(checking, "SAMPLED_KEYS", 1)
    refused(table, "for one key in 1, .* would stay, and .* would be deleted")
    # Without the join, Iceberg's own reader finds it in the files that it reads.
    monkeypatch.setattr(checking.PositionCheck, "_check_looked_up", lambda _: (0, 1))
    refused(table, "Iceberg reads .* before the commit, and would read")


@pytest.mark.parametrize(("version", "many"), [(2, 1_000_000), (2, 0), (3, 0)])
def test_a_delete_file_that_does_not_hold_its_positions_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, many: int
) -> None:
    monkeypatch.setattr(checking, "_MANY_POSITIONS", many)
    sick(table, version)
    name = "position_file_bytes" if version == 2 else "vector_blob"
    write = getattr(delete_files, name)
    monkeypatch.setattr(
        delete_files,
        name,
        lambda *given: write(*given[:-1], BitMap64(one + 1 for one in given[-1])),
    )

    refused(table, "Iceberg reads . deleted positions of .*, but not the . that were found")


def test_a_position_after_the_end_of_its_file_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick(table, 2)
    change_positions(
        monkeypatch,
        lambda dead: {number: some | BitMap64([some.max() + 10]) for number, some in dead.items()},
    )

    refused(table, "has only 10 rows")


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        # Its deletes would be removed, and its rows would come back.
        (lambda files: files[:-1], "where no deleted row was looked for"),
        (
            lambda files: [replace(file, sequence_number=0) for file in files],
            "Iceberg applies other equality deletes to",
        ),
    ],
    ids=["a data file too few", "another sequence number"],
)
def test_a_listing_that_iceberg_does_not_agree_with_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch, changed: Callable[[Any], Any], found: str
) -> None:
    sick(table, 2)

    def other(*given: Any, **options: Any) -> Any:
        listed = find_inputs(*given, **options)
        return listed and replace(listed, data_files=changed(listed.data_files))

    monkeypatch.setattr(converting, "find_inputs", other)

    refused(table, found)


def test_a_delete_file_of_another_partition_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers may not apply it."""
    sick(table, 2)
    write = delete_files.DeleteFileWriter.write
    builder = table.java.FileMetadata.deleteFileBuilder

    def swapped(self: Any, positions: Any) -> Any:
        files, specs = write(self, positions), table.files.table().specs()
        return [
            builder(specs[one.specId()]).copy(one).withPartition(other.partition()).build()
            for one, other in zip(files, reversed(files), strict=True)
        ]

    monkeypatch.setattr(delete_files.DeleteFileWriter, "write", swapped)

    refused(table, "is of another partition")


@both_versions
def test_where_keys_are_many_a_sample_is_looked_up(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, tmp_path: Path
) -> None:
    sampling(monkeypatch, 50)
    monkeypatch.setattr(checking, "UNSEEN", 1)
    monkeypatch.setattr(checking, "SAMPLED_KEYS", 2)
    table.create(version=version).data("SELECT id, 'a' FROM range(400)")
    table.delete("id", "SELECT id FROM range(100)").delete("name", "SELECT 'b'")

    outcome = table.converts(tmp_path)

    (said,) = checked(table)
    assert said.positions == 100
    assert said.one_in == 2
    assert 100 < said.sampled < 300
    assert said.is_sampled
    assert "no difference found" in repr(outcome.proof)
    assert len(table.ids()) == 300


@pytest.mark.parametrize(
    ("rows", "deletes", "unseen"),
    [("7", "id", 2), ("id % 7", "id % 5", 6)],
)
def test_where_the_keys_of_a_sample_are_few_every_key_is_looked_up(
    table: Table, monkeypatch: pytest.MonkeyPatch, rows: str, deletes: str, unseen: int
) -> None:
    sampling(monkeypatch, 50)
    monkeypatch.setattr(checking, "UNSEEN", unseen)
    monkeypatch.setattr(checking.PositionCheck, "_sample_sql", lambda *_: "true")
    table.create().data(f"SELECT {rows}, 'a' FROM range(400)")
    table.delete("id", f"SELECT {deletes} FROM range(100)")

    table.converted()

    assert [(check.one_in, check.sampled) for check in checked(table)] == [(1, 400)]


def test_a_key_set_of_few_deletes_is_looked_up_in_full_beside_one_of_many(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling(monkeypatch, 50)
    monkeypatch.setattr(checking, "UNSEEN", 0)
    # The sample of the many finds nothing wrong.
    monkeypatch.setattr(checking.PositionCheck, "_sampled_positions", lambda *_: ({}, {}))
    table.create().data("SELECT id, if(id = 200, 'b', 'a') FROM range(400)")
    table.delete("id", "SELECT id FROM range(100)").delete("name", "SELECT 'b'")
    change_positions(
        monkeypatch,
        lambda dead: {number: some - BitMap64([some.max()]) for number, some in dead.items()},
    )

    refused(table, "1 deleted row would stay")


@pytest.mark.parametrize(("version", "many"), [(2, 1_000_000), (2, 0), (3, 0)])
def test_a_delete_file_of_another_data_file_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, many: int
) -> None:
    monkeypatch.setattr(checking, "_MANY_POSITIONS", many)
    two_files_under_a_delete(table, version)
    write = delete_files.DeleteFileWriter.write

    def swapped(self: Any, found: Any) -> Any:
        (*one, positions), (*other, others) = found
        return write(self, [(*other, positions), (*one, others)])

    monkeypatch.setattr(delete_files.DeleteFileWriter, "write", swapped)

    refused(table, "deleted positions of .*, but not the 1 that were found")


@pytest.mark.parametrize(("version", "many"), [(2, 1_000_000), (2, 0)])
def test_a_delete_file_with_positions_of_another_data_file_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, many: int
) -> None:
    """Its metadata says that it is for one data file, and its rows name the other."""
    monkeypatch.setattr(checking, "_MANY_POSITIONS", many)
    two_files_under_a_delete(table, version)
    one, other = (path for (path,) in table.sql("SELECT file_path FROM {t}.data_files"))
    write = delete_files.position_file_bytes
    monkeypatch.setattr(
        delete_files,
        "position_file_bytes",
        lambda path, positions: write(other if path == one else one, positions),
    )

    refused(table, "deleted positions of .*, but not the 1 that were found")


def test_a_file_that_was_appended_twice_and_lost_no_row_is_no_obstacle(table: Table) -> None:
    table.create()
    file = table.files.data("SELECT id, 'a' FROM range(3)")
    table.append(file).append(file).data("SELECT 10, 'b'")
    table.delete("id", "SELECT 10 UNION ALL SELECT -5")

    table.converted()

    assert table.ids() == [0, 0, 1, 1, 2, 2]


def test_a_position_deleted_before_that_would_come_back_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a table that is of format version 3 by now: a file with two delete files of its own, and
    two equality deletes of it.
    """
    table.create().data("SELECT id, 'a' FROM range(10)")
    table.sql("DELETE FROM {t} WHERE id = 8")
    table.sql("DELETE FROM {t} WHERE id = 9")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.files.refresh()
    table.delete("id", "SELECT 1").delete("id", "SELECT 9")
    merge = converting.merge_earlier_positions

    def lossy(spark: Any, name: Any, positions: dict[int, BitMap64], found: Any) -> Any:
        dead = dict(positions)
        replaced, before = merge(spark, name, positions, found)
        less = {number: some - BitMap64([some.min()]) for number, some in before.items()}
        positions |= {number: dead[number] | some for number, some in less.items()}
        return replaced, less

    monkeypatch.setattr(converting, "merge_earlier_positions", lossy)

    refused(table, "are not those that Iceberg applies")


def test_an_equality_delete_that_would_go_too_early_is_found(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick(table, 3)
    merge = converting.merge_earlier_positions

    def early(*given: Any) -> Any:
        replaced, before = merge(*given)
        return [*replaced, *given[-1].equality_deletes()], before

    monkeypatch.setattr(converting, "merge_earlier_positions", early)

    refused(table, "would not remove the right delete files", slices=2)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["an error", "a request to stop"])
def test_a_check_that_does_not_end_commits_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    sick(table, 2)
    stop = Stop()
    if is_stopped:
        stop.set()
    else:
        monkeypatch.setattr(checking.PositionCheck, "_fingerprint", lambda *_: 1 // 0)

    refused(
        table,
        None,
        error=Stopped if is_stopped else ZeroDivisionError,
        before_commit=stop.check,
    )


def test_whole_files_are_few_however_many_there_are(table: Table) -> None:
    table.create()
    for n in range(12):
        table.data(f"SELECT id, 'a' FROM range({5 * n}, {5 * n + 5})")
    table.delete("id", "SELECT id * 5 FROM range(12)")

    table.converted()

    (said,) = checked(table)
    assert 2 <= said.files <= 4
    assert said.of_files == 4 * said.files


@pytest.mark.core
def test_a_dropped_key_still_deletes_and_is_checked_before_the_commit(
    table: Table, tmp_path: Path
) -> None:
    """Iceberg's own reader fails at such deletes before 1.12; all read what a conversion makes."""
    table.create().data("SELECT id, string(id) FROM range(4)")
    table.delete("id", "SELECT 1")
    table.sql("ALTER TABLE {t} ADD COLUMN more int")
    table.sql("ALTER TABLE {t} DROP COLUMN id")

    outcome = table.converts(tmp_path)

    assert sorted(table.rows(columns="name")) == [("0",), ("2",), ("3",)]
    assert table.equality_deletes() == 0
    (positions,) = checked(table)
    assert (positions.positions, positions.sampled, positions.files) == (1, 4, 0)
    assert outcome.proof is not None
    assert (outcome.proof.ok, outcome.proof.mode) == (True, CHECKED)


def test_a_delete_that_icebergs_readers_do_not_apply_is_refused(table: Table) -> None:
    """Before the commit: Iceberg orders the bounds of UUIDs as signed numbers, Parquet as unsigned
    ones, so it rules out a file that has the key.
    """
    table.delete("k", f"SELECT '{with_ruled_out_key(table)}'")

    refused(table, "rule these deletes out", error=ReadersDisagree)
