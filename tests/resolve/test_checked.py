"""A conversion is checked before its commit: a wrong one is never committed, and what it wrote is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icekit.prove import conversion as checking
from icekit.prove.conversion import check_positions
from icekit.prove.proof import CHECKED, CHECKED_POSITIONS_TAG, CheckedPositions, RowsDiffer
from icekit.resolve import convert as converting
from icekit.resolve import delete_files
from icekit.resolve.convert import convert
from icekit.resolve.delete_files import Positions
from icekit.run import convert_equality_deletes
from tests.resolve.tables import Table

pytestmark = pytest.mark.spark

both_versions = pytest.mark.parametrize("version", [2, 3])


def checked(table: Table) -> list[CheckedPositions]:
    """What the summaries of the table's commits say, the oldest first."""
    found = table.sql(f"SELECT summary['{CHECKED_POSITIONS_TAG}'] FROM {{t}}.snapshots ORDER BY committed_at")
    return [CheckedPositions.of(text) for (text,) in found if text]


def sick(table: Table, version: int) -> Table:
    """Two partitions and two keys; the deletes apply to two files, and delete 6 of their 20 rows."""
    table.create("id bigint, name string, p string", "p", version=version)
    for p in "ab":
        table.commit().data(f"SELECT id, 'first', '{p}' FROM range(10)", {"p": p}).done()
    commit = table.commit().deletes("id", "SELECT id FROM range(4)", {"p": "a"})
    commit.deletes(["id", "name"], "SELECT 5, 'first' UNION ALL SELECT 6, 'first' UNION ALL SELECT 7, 'second'", {"p": "b"}).done()
    table.commit().data("SELECT id, 'second', 'a' FROM range(10)", {"p": "a"}).done()
    return table


def refused(table: Table, found: str) -> None:
    """A conversion of the table is refused, and neither the table nor its folder has changed."""
    folder = Path(str(table.files.table().location()).removeprefix("file:")) / "data"
    rows, snapshots, files = table.rows(), table.snapshots(), {*folder.rglob("*.*")}

    with pytest.raises(RowsDiffer, match=found):
        convert(table.spark, table.full, check=check_positions)

    assert (table.rows(), table.snapshots(), {*folder.rglob("*.*")}) == (rows, snapshots, files)


@both_versions
def test_a_commit_says_what_was_checked(table: Table, tmp_path: Path, version: int) -> None:
    sick(table, version)

    outcome = convert_equality_deletes(table.lake, table.name, execute=True, ledger=str(tmp_path / "l.db"), progress=lambda _: None)

    assert outcome.proof is not None
    assert (outcome.proof.ok, outcome.proof.mode) == (True, CHECKED)
    assert checked(table) == [CheckedPositions(positions=6, resolved=7, sampled=20, one_in=1, files=2, of_files=14)]
    assert "6 deleted positions read back" in repr(outcome.proof)


@both_versions
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (
            lambda dead: {**dead, 0: Positions.at(dead[0].all()[1:])},
            "0 rows without a delete would be deleted, and 1 deleted row would stay",
        ),
        (lambda dead: {**dead, 0: dead[0].with_more(Positions.at(dead[0].all()[-1:] + 1))}, "1 row without a delete would be deleted"),
        (lambda dead: {number: some for number, some in dead.items() if number}, "deleted rows would stay"),
    ],
    ids=["a row too few", "a row too many", "a file too few"],
)
def test_positions_that_are_not_right_are_found(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, changed: Callable[[Any], Any], found: str
) -> None:
    sick(table, version)
    find = converting.deleted_positions
    monkeypatch.setattr(converting, "deleted_positions", lambda *given: changed(find(*given)))

    refused(table, found)

    # Without the sample, Iceberg's own reader finds it in the files that it reads.
    monkeypatch.setattr(checking._Check, "_sampled", lambda _: (0, 1))
    refused(table, "Iceberg reads .* before the commit, and would read")


@both_versions
def test_a_delete_file_that_does_not_hold_its_positions_is_found(table: Table, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    sick(table, version)
    name = "position_file" if version == 2 else "vector_blob"
    write = getattr(delete_files, name)
    monkeypatch.setattr(delete_files, name, lambda *given: write(*given[:-1], Positions.at(given[-1].all() + 1)))

    refused(table, "Iceberg reads 4 deleted positions of .*, but 4 were to be written|but 2 were to be written")


def test_a_position_after_the_end_of_its_file_is_found(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sick(table, 2)
    find = converting.deleted_positions
    monkeypatch.setattr(
        converting,
        "deleted_positions",
        lambda *given: {number: some.with_more(Positions.at(some.all()[-1:] + 10)) for number, some in find(*given).items()},
    )

    refused(table, "has only 10 rows")


def test_a_data_file_that_was_not_looked_at_is_found(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletes would be removed, and its rows would come back."""
    sick(table, 2)
    find = converting.find
    monkeypatch.setattr(converting, "find", lambda *given, **options: (at := find(*given, **options)) and replace(at, data=at.data[:-1]))

    refused(table, "where no deleted row was looked for")


def test_a_delete_file_of_another_partition_is_found(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers would not apply it."""
    sick(table, 2)
    place = converting._partitions

    def swapped(*given: Any) -> Any:
        where = place(*given)
        return dict(zip(where, reversed(where.values()), strict=True))

    monkeypatch.setattr(converting, "_partitions", swapped)

    refused(table, "is of another partition")


@both_versions
def test_where_keys_are_many_a_sample_is_looked_up(table: Table, monkeypatch: pytest.MonkeyPatch, version: int, tmp_path: Path) -> None:
    monkeypatch.setattr(checking, "UNSEEN", 1)
    monkeypatch.setattr(checking, "SAMPLED_KEYS", 2)
    table.create(version=version).commit().data("SELECT id, 'a' FROM range(400)").done()
    table.delete("id", "SELECT id FROM range(100)").delete("name", "SELECT 'b'")

    outcome = convert_equality_deletes(table.lake, table.name, execute=True, ledger=str(tmp_path / "l.db"), progress=lambda _: None)

    (said,) = checked(table)
    assert (said.positions, said.one_in, 100 < said.sampled < 300, said.is_sampled) == (100, 2, True, True)
    assert "no difference found" in repr(outcome.proof)
    assert len(table.ids()) == 300


def test_earlier_deletes_by_position_stay(table: Table) -> None:
    """The vector of a file is replaced by one with the old positions and the new ones; those of other files stay."""
    sick(table, 3)
    table.sql("DELETE FROM {t} WHERE id = 9")

    table.converted()

    assert [said.positions for said in checked(table)] == [6 + 2]


def test_each_commit_of_several_is_checked(table: Table) -> None:
    ids = table.create().fill_slices(2)
    table.delete("id", f"SELECT id FROM range({ids})")

    table.converted(slices=2)

    assert sum(said.positions for said in checked(table)) == ids
    assert len(checked(table)) == 2


def test_deletes_that_apply_to_no_file_are_removed_after_iceberg_agrees(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.create().delete("id", "SELECT 1").insert("VALUES (1, 'a')")

    table.converted()

    assert [said.positions for said in checked(table)] == [0]
    assert table.ids() == [1]


def test_a_dropped_key_is_compared_in_full_after_the_commit(table: Table, tmp_path: Path) -> None:
    """Iceberg before 1.12 cannot plan such deletes."""
    table.create().commit().data("SELECT id, 'a' FROM range(4)").done()
    table.delete("id", "SELECT 1")
    table.sql("ALTER TABLE {t} ADD COLUMN more int")
    table.sql("ALTER TABLE {t} DROP COLUMN id")

    outcome = convert_equality_deletes(table.lake, table.name, execute=True, ledger=str(tmp_path / "l.db"), progress=lambda _: None)

    assert checked(table) == []
    assert outcome.proof is not None
    assert "in full" in outcome.proof.mode
