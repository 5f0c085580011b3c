"""A clone is at the snapshot asked for, leaves nothing behind, and takes nothing along that the
table needs.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from icekit.api import Lake
from icekit.common.errors import CloneRefused, SnapshotNotFound
from icekit.common.sql import identifier
from icekit.engine.tables import SessionTables
from icekit.sandbox import clones as making
from icekit.sandbox import scratch
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import NAMESPACE, ScratchTable
from tests.damage import on_disk
from tests.elsewhere import elsewhere
from tests.maintain.tables import Named, Table, contents
from tests.sandbox.adopting import FIVE, adopt, insert, told

pytestmark = [pytest.mark.spark, pytest.mark.core, pytest.mark.usefixtures("no_clones")]
CREATE = "CREATE TABLE {t} (id bigint) USING iceberg"


def clones(lake: Lake) -> list[tuple[str, ...]]:
    return lake.tables.names_in((NAMESPACE,))


def rows_of(lake: Lake, name: tuple[str, ...], ref: str = "") -> int:
    return int(
        lake.spark.sql(f"SELECT count(*) FROM {identifier(lake.name, *name)} {ref}").collect()[0][0]
    )


def folder(copy: ScratchTable) -> Path:
    return on_disk(copy.folder)


def refused(
    lake: Lake,
    table: str | tuple[str, ...],
    why: str,
    *,
    error: type[Exception] = CloneRefused,
    **asked: Any,
) -> str:
    """No clone is made; returns the reason."""
    with pytest.raises(error, match=why) as refusal, clone(lake, table, **asked):
        pass
    return str(refusal.value)


@contextlib.contextmanager
def unchanged(table: Table) -> Iterator[None]:
    """The table is what it was after a block, and no clone is left beside it."""
    before, rows = contents(table.location), table.rows()
    yield
    assert contents(table.location) == before
    assert table.rows() == rows
    assert not clones(table.lake)
    assert not (table.location.parent / NAMESPACE).exists()


def test_a_clone_is_gone_also_when_what_it_was_for_failed(lake: Lake, table: Table) -> None:
    def fails() -> None:
        with clone(lake, table.name) as copy:
            lake.spark.sql(f"DELETE FROM {identifier(lake.name, *copy.table)} WHERE id = 1")
            raise ZeroDivisionError

    with unchanged(table), pytest.raises(ZeroDivisionError):
        fails()


@pytest.mark.slow
def test_a_clone_is_at_the_snapshot_branch_or_tag_that_is_asked_for(
    lake: Lake, table: Table
) -> None:
    first = table.snapshot_id()
    table.sql("ALTER TABLE {t} CREATE TAG start")
    table.sql("ALTER TABLE {t} CREATE BRANCH audit")
    table.fill(files=1, rows=3, branch="audit", start=100).fill(files=1, rows=7, start=200)
    before = lake.tables.source(table.name).metadata_location

    for asked, count in ((first, 40), ("start", 40), ("audit", 43), (None, 47)):
        with clone(lake, table.name, snapshot=asked) as copy:
            assert rows_of(lake, copy.table) == count, asked
            assert rows_of(lake, copy.table, "VERSION AS OF 'audit'") == 43
            insert(lake, copy)
            assert rows_of(lake, copy.table) == count + 1
    for absent, why in (("nightly", "known refs: audit, main, start"), (7, "or has expired")):
        refused(lake, table.name, why, error=SnapshotNotFound, snapshot=absent)

    assert lake.tables.source(table.name).metadata_location == before
    assert not clones(lake)


def test_a_table_without_snapshots_or_in_format_version_1_can_be_cloned(
    named: Named, lake: Lake
) -> None:
    table = named("empty").create(version=1)

    with clone(lake, table.name) as copy:
        assert rows_of(lake, copy.table) == 0
    first = table.fill(files=1).snapshot_id()
    table.fill(files=1, start=100)
    with clone(lake, table.name, snapshot=first) as copy:
        assert rows_of(lake, copy.table) == 40


def test_what_another_session_lets_the_table_adopt_of_a_clones_files_stays(
    lake: Lake, table: Table
) -> None:
    with (
        told("has adopted 1 file in .*icekit keeps these and removes the others"),
        clone(lake, table.name) as copy,
    ):
        # Its first file is taken over, its second not.
        insert(lake, copy, FIVE)
        added = adopt(table, copy, by=elsewhere(lake.spark))
        insert(lake, copy, FIVE)

    table.sql("REFRESH TABLE {t}")
    assert len(table.rows()) == 45
    left = contents(folder(copy))
    assert [str(p) for p in left if p.suffix == ".parquet"] == [added.removeprefix("file:")]
    assert not [p for p in left if p.name.endswith((".avro", ".json"))]
    assert not clones(lake)


@pytest.mark.parametrize("how", ["data//", "linked"])
def test_what_the_table_has_adopted_stays_however_it_spells_it(
    lake: Lake, table: Table, tmp_path: Path, how: str
) -> None:
    with told("has adopted 1 file in .*icekit keeps these"), clone(lake, table.name) as copy:
        insert(lake, copy, FIVE)
        (tmp_path / "linked").symlink_to(folder(copy))
        spellings = {
            "data//": ("/data/", "/data//"),
            "linked": (copy.folder, f"file:{tmp_path}/linked"),
        }
        adopt(table, copy, lambda path: path.replace(*spellings[how]))

    table.sql("REFRESH TABLE {t}")
    assert len(table.rows()) == 45


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("ALTER TABLE {t} RENAME TO scratch.swapped_old", CREATE),
            "another table has its name now",
        ),
        (("DROP TABLE {t}",), "no table"),
    ],
    ids=["renamed", "dropped"],
)
def test_the_files_stay_when_nobody_can_tell_whether_the_table_needs_them(
    named: Named, lake: Lake, change: tuple[str, ...], why: str
) -> None:
    table = named("vanishes").create().fill(files=1)
    with (
        told(f"could not check whether scratch.vanishes needs files in .*{why}"),
        clone(lake, table.name) as copy,
    ):
        insert(lake, copy)
        for statement in change:
            table.sql(statement)

    assert contents(folder(copy))
    assert not clones(lake)


def test_other_commits_to_the_table_do_not_hinder_removal(lake: Lake, table: Table) -> None:
    with clone(lake, table.name):
        table.fill(files=1, start=100)

    assert not (table.location.parent / NAMESPACE).exists()
    assert len(table.rows()) == 80


def test_a_catalog_that_takes_no_clone_is_told_with_what_is_lost_and_what_is_not(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of what a catalog in the field answers.
    def refuses(catalog: str, procedure: str, **arguments: str) -> str:
        raise RuntimeError("Location overlaps with another table")

    monkeypatch.setattr(making, "call_sql", refuses)
    with unchanged(table):
        said = refused(lake, table.name, "'lake' does not accept a clone of")

    for part in (
        "Location overlaps",
        "no trials",
        "leave out --trial",
        "copied sample",
    ):
        assert part in said
    assert "\n" not in said


def purging(patch: pytest.MonkeyPatch) -> None:
    """In place of a catalog that deletes a table's files with DROP TABLE, whatever its properties
    say.
    """
    drop, paths = scratch.drop_sql, making.isolating_properties
    patch.setattr(making, "_catalogs_keeping_files", WeakKeyDictionary())
    for module in (scratch, making):
        patch.setattr(module, "drop_sql", lambda table: f"{drop(table)} PURGE")
    patch.setattr(
        making, "isolating_properties", lambda scratch: {**paths(scratch), "gc.enabled": "true"}
    )


def test_a_catalog_that_deletes_files_with_a_table_makes_no_clone(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before the first clone, of a table of icekit's own, and the table stays whole."""
    purging(monkeypatch)

    with unchanged(table):
        refused(lake, table.name, "deletes the files of a table that is dropped")


@pytest.fixture
def hadoop(lake: Lake, tmp_path: Path) -> Iterator[Lake]:
    """A catalog of folders, which registers no tables."""
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(tmp_path),
    }
    for key, value in settings.items():
        lake.spark.conf.set(f"spark.sql.catalog.folders{key}", value)
    lake.spark.sql("CREATE TABLE folders.db.t (id bigint, part int, name string) USING iceberg")
    yield Lake("folders", None, SessionTables("folders", lake.spark), lake.spark)
    for key in settings:
        with contextlib.suppress(Exception):
            lake.spark.conf.unset(f"spark.sql.catalog.folders{key}")


def test_a_catalog_of_folders_refuses_and_the_table_stays_whole(
    hadoop: Lake, tmp_path: Path
) -> None:
    hadoop.spark.sql("INSERT INTO folders.db.t VALUES (1, 1, 'a')")
    before = contents(tmp_path)

    refused(hadoop, "db.t", r"does not accept a clone of db\.t")

    assert contents(tmp_path) == before
    assert rows_of(hadoop, ("db", "t")) == 1
    assert hadoop.tables.names_in(("db",)) == [("db", "t")]
    assert hadoop.tables.names_in(("none",)) == []
