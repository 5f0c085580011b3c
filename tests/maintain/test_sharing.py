"""Orphans are not removed where another table of the catalog keeps files."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icekit.api import Lake
from icekit.catalog.tables import EmbeddedTables
from icekit.compact import Plan, Stop
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds
from icekit.facts.head import head
from icekit.maintain import Retention, plan_maintenance_table
from icekit.run.checkpointed import run
from icekit.sandbox import clone
from icekit.sql import identifier
from tests.commits import in_order

pytestmark = pytest.mark.spark

Make = Callable[..., Any]


def rows(lake: Lake, *table: str) -> int:
    lake.spark.sql(f"REFRESH TABLE {identifier(lake.name, *table)}")
    return lake.spark.sql(f"SELECT * FROM {identifier(lake.name, *table)}").count()


def age(lake: Lake, table: tuple[str, ...], days: float = 10) -> None:
    """Make every file at a table's location some days old."""
    then = time.time() - days * 86_400
    for path in Path(head(lake, table).metadata["location"].removeprefix("file:")).rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture
def swapped(lake: Lake, scratch: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """A table that took another's name and, with it, its location."""
    table, old = (scratch, "a"), (scratch, "a_old")
    name = identifier(lake.name, *table)
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1), (2)")
    lake.spark.sql(f"ALTER TABLE {name} RENAME TO {identifier(*old)}")
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    lake.spark.sql(f"INSERT INTO {name} VALUES (3)")
    age(lake, table)
    return table, old


@pytest.fixture
def littered(lake: Lake, scratch: str, lose: Make) -> tuple[tuple[str, str], Path]:
    """A table, and a file in its folder that no snapshot names."""
    table = (scratch, "littered")
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, *table)} USING iceberg AS SELECT 1 AS id")
    return table, lose(table)


def planned(lake: Lake, table: tuple[str, ...]) -> Plan:
    facts = lake.observe(table, storage=True)
    return plan_maintenance_table(lake, facts, diagnose(facts), procedures=["remove_orphan_files"])


def test_a_table_that_was_swapped_out_is_not_taken_for_orphans(lake: Lake, swapped: Any) -> None:
    table, old = swapped
    location = head(lake, table).metadata["location"]

    facts = lake.observe(table, storage=True)
    findings = diagnose(facts)
    plan = plan_maintenance_table(lake, facts, findings, procedures=["remove_orphan_files"])

    assert findings.names == {"shared_location"}
    assert facts.storage is not None
    assert (facts.storage.orphan_count, facts.storage.examples) == (0, ())
    assert plan.actions == ()
    assert f"shared location with scratch.a_old ({location})" in repr(plan)
    assert (rows(lake, *old), rows(lake, *table)) == (2, 1)


def test_a_table_that_came_after_the_plan_is_looked_for_again(lake: Lake, littered: Any, scratch: str, tmp_path: Path) -> None:
    table, lost = littered
    plan = planned(lake, table)
    assert len(plan.actions) == 1
    metadata_file = lake.tables.source(table).metadata_location
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.register_table(table => '{scratch}.late', metadata_file => '{metadata_file}')")

    outcome = run(lake, plan, execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None)
    lake.spark.sql(f"DROP TABLE {identifier(lake.name, scratch, 'late')}")

    assert outcome.status == "failed"
    assert "shared location with scratch.late" in (outcome.actions[0].error or "")
    assert lost.exists()


def test_a_clone_that_reads_the_table_does_not_keep_its_orphans(lake: Lake, littered: Any, tmp_path: Path) -> None:
    table, lost = littered

    with clone(lake, table):
        outcome = run(lake, planned(lake, table), execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None)

    assert outcome.status == "done", outcome
    assert not lost.exists()


def run_now(lake: Lake, plan: Plan, tmp_path: Path) -> Any:
    return run(lake, plan, execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None)


def moved_away(lake: Lake, table: tuple[str, str], commits: int = 3) -> None:
    """Give a table a location of its own, and let its metadata forget by commits and an expiry where it was."""
    name = identifier(lake.name, *table)
    location = head(lake, table).metadata["location"]
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.metadata.previous-versions-max'='1')")
    lake.spark.sql(f"ALTER TABLE {name} SET LOCATION '{location}_own'")
    for n in range(commits):
        lake.spark.sql(f"INSERT INTO {name} VALUES ({100 + n})")
    lake.spark.sql(
        f"CALL {identifier(lake.name)}.system.expire_snapshots(table => '{'.'.join(table)}', older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
    )
    lake.spark.sql(f"REFRESH TABLE {name}")


def test_a_table_that_moved_away_and_left_files_behind_keeps_them(lake: Lake, swapped: Any, tmp_path: Path) -> None:
    table, old = swapped
    moved_away(lake, old)
    age(lake, table)
    plan = planned(lake, table)
    assert len(plan.actions) == 1
    assert "make sure that no table of another catalog has files there" in plan.actions[0].why

    outcome = run_now(lake, plan, tmp_path)

    assert outcome.status == "failed"
    assert "this table does not name them, but scratch.a_old (" in (outcome.actions[0].error or "")
    assert rows(lake, *old) == 5


def test_orphans_that_another_table_has_taken_in_stay(lake: Lake, littered: Any, scratch: str, tmp_path: Path) -> None:
    table, lost = littered
    data = lost.with_name("written-by-another-job.parquet")
    shutil.copy(next(path for path in lost.parent.glob("*.parquet") if path != lost), data)
    age(lake, table)
    plan = planned(lake, table)
    other = (scratch, "taker")
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, *other)} (id INT) USING iceberg")
    # The whole folder is taken in, and what cannot be read must not be in it then.
    aside = lost.rename(tmp_path / lost.name)
    lake.spark.sql(
        f"CALL {identifier(lake.name)}.system.add_files(table => '{'.'.join(other)}', source_table => '`parquet`.`{data.parent}`')"
    )
    aside.rename(lost)

    outcome = run_now(lake, plan, tmp_path)

    assert outcome.status == "failed"
    assert "but scratch.taker (" in (outcome.actions[0].error or "")
    assert (data.exists(), lost.exists(), rows(lake, *other)) == (True, True, 2)


def test_orphans_stay_where_another_table_cannot_tell_what_it_names(lake: Lake, littered: Any, scratch: str, tmp_path: Path) -> None:
    table, lost = littered
    broken = identifier(lake.name, scratch, "broken")
    lake.spark.sql(f"CREATE TABLE {broken} USING iceberg AS SELECT 1 AS id")
    plan = planned(lake, table)
    (manifest,) = lake.spark.sql(f"SELECT path FROM {broken}.manifests").collect()
    written = Path(manifest[0].removeprefix("file:"))
    written.rename(written.with_suffix(".away"))

    outcome = run_now(lake, plan, tmp_path)
    written.with_suffix(".away").rename(written)

    assert outcome.status == "failed"
    assert "could not check whether another table needs them (scratch.broken cannot be read" in (outcome.actions[0].error or "")
    assert lost.exists()


def expired(lake: Lake, table: tuple[str, str], tmp_path: Path) -> Any:
    """What an expiry of all snapshots but the newest comes to."""
    facts = lake.observe(table)
    thresholds = Thresholds().with_changes(snapshots=1)
    plan = plan_maintenance_table(lake, facts, diagnose(facts, thresholds), Retention(keep_last=1), thresholds=thresholds)
    assert [action.procedure for action in plan.actions] == ["expire_snapshots"]
    return run_now(lake, plan, tmp_path)


def stays_for(lake: Lake, table: tuple[str, str], other: tuple[str, str], tmp_path: Path, *, rows_of: int = 2) -> None:
    """See that an expiry is refused for another table's sake, by its name, and that its rows stay."""
    outcome = expired(lake, table, tmp_path)

    assert outcome.status == "failed"
    assert f"files that would be removed with them are used by {'.'.join(other)} (" in (outcome.actions[0].error or "")
    assert rows(lake, *other) == rows_of


def test_snapshots_that_another_table_has_too_do_not_expire(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    table, other = (scratch, "e"), (scratch, "e_copy")
    name = identifier(lake.name, *table)
    lake.spark.sql(f"CREATE TABLE {name} USING iceberg AS SELECT 1 AS id")
    lake.spark.sql(f"INSERT INTO {name} VALUES (2)")
    metadata_file = lake.tables.source(table).metadata_location
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.register_table(table => '{'.'.join(other)}', metadata_file => '{metadata_file}')")
    # Another's location says nothing of the snapshots that it came with.
    lake.spark.sql(f"ALTER TABLE {identifier(lake.name, *other)} SET LOCATION '{head(lake, table).metadata['location']}_copy'")
    lake.spark.sql(f"INSERT OVERWRITE {name} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)
    lake.spark.sql(f"DROP TABLE {identifier(lake.name, *other)}")
    with clone(lake, table):
        assert expired(lake, table, tmp_path).status == "done"


def taken_in(lake: Lake, source: tuple[str, str], taker: tuple[str, str], folder: str) -> None:
    """Make a table of two rows whose files lie in a folder, and another that takes them in."""
    name, other = identifier(lake.name, *source), identifier(lake.name, *taker)
    lake.spark.sql(f"CREATE TABLE {name} (id INT) USING iceberg TBLPROPERTIES ('write.data.path'='{folder}')")
    for n in (1, 2):
        lake.spark.sql(f"INSERT INTO {name} VALUES ({n})")
    lake.spark.sql(f"CREATE TABLE {other} (id INT) USING iceberg")
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.add_files(table => '{'.'.join(taker)}', source_table => '`parquet`.`{folder}`')")


def test_files_that_another_table_has_taken_in_do_not_go_with_their_snapshots(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    """Wherever they lie."""
    table, other = (scratch, "source"), (scratch, "taker")
    taken_in(lake, table, other, f"{tmp_path}/data")
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)
    lake.spark.sql(f"DROP TABLE {identifier(lake.name, *other)}")
    assert expired(lake, table, tmp_path).status == "done"


def test_files_that_a_table_has_taken_in_do_not_go_while_the_table_that_wrote_them_has_them(
    lake: Lake, scratch: str, aged: Make, tmp_path: Path
) -> None:
    table, other = (scratch, "taker"), (scratch, "source")
    taken_in(lake, other, table, f"{tmp_path}/data")
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)


def forgotten(lake: Lake, table: tuple[str, str], snapshots: int | None = None) -> None:
    """Expire a table's oldest snapshots (all but the newest) without its files, as pyiceberg does."""
    assert isinstance(lake.tables, EmbeddedTables)
    with SqlCatalog(lake.name, uri=f"sqlite:///{lake.tables.path}/catalog.db", warehouse="") as catalog:
        for snapshot in in_order(lake, table)[:-1][:snapshots]:
            catalog.load_table(table).maintenance.expire_snapshots().by_id(int(snapshot["snapshot-id"])).commit()
    lake.spark.sql(f"REFRESH TABLE {identifier(lake.name, *table)}")


def test_manifests_that_another_table_still_has_do_not_go(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    """Of a table that was registered from this one, and has let go of the snapshots that they came with."""
    table, other = (scratch, "first"), (scratch, "second")
    name, copy = identifier(lake.name, *table), identifier(lake.name, *other)
    lake.spark.sql(f"CREATE TABLE {name} USING iceberg AS SELECT 1 AS id")
    metadata_file = lake.tables.source(table).metadata_location
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.register_table(table => '{'.'.join(other)}', metadata_file => '{metadata_file}')")
    lake.spark.sql(f"INSERT INTO {copy} VALUES (2)")
    forgotten(lake, other, 1)
    lake.spark.sql(f"INSERT INTO {name} VALUES (3)")
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.rewrite_manifests('{'.'.join(table)}')")
    aged(table)

    stays_for(lake, table, other, tmp_path)


def append(lake: Lake, table: tuple[str, str], path: str) -> None:
    """Add a file of one column and two rows to a table by Iceberg's own API, under the path that is given."""
    jvm: Any = lake.spark._jvm
    java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lake.spark._jsparkSession, identifier(lake.name, *table))
    size = Path(path.removeprefix("file:")).resolve().stat().st_size
    built = jvm.org.apache.iceberg.DataFiles.builder(java.spec()).withPath(path).withFileSizeInBytes(size).withRecordCount(2)
    java.newAppend().appendFile(built.withFormat("parquet").build()).commit()


def live(lake: Lake, table: tuple[str, str]) -> str:
    """The path of the one live file of a table."""
    ((path,),) = lake.spark.sql(f"SELECT file_path FROM {identifier(lake.name, *table)}.files").collect()
    return str(path)


def of_two_rows(lake: Lake, table: tuple[str, str]) -> str:
    """Make a table of one file; returns its path."""
    lake.spark.sql(
        f"CREATE TABLE {identifier(lake.name, *table)} USING iceberg AS SELECT /*+ COALESCE(1) */ CAST(id AS INT) AS id FROM range(2)"
    )
    return live(lake, table)


def spelled(path: str, how: str, tmp_path: Path) -> str:
    """Another spelling of a file's path."""
    file = Path(path.removeprefix("file:"))
    if how == "linked folder":
        (tmp_path / "linked").symlink_to(file.parent)
        return f"file:{tmp_path}/linked/{file.name}"
    if how == "linked file":
        (tmp_path / "linked.parquet").symlink_to(file)
        return f"file:{tmp_path}/linked.parquet"
    return f"file:{file.parent.parent}/{how}{file.parent.name}/{file.name}"


SPELLINGS = ["/", "./", "other/../", "linked folder", "linked file"]


def test_files_that_another_table_took_by_icebergs_api_do_not_go(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    """It lies elsewhere, and nothing in its metadata file tells of them."""
    table, other = (scratch, "source"), (scratch, "taker")
    path = of_two_rows(lake, table)
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, *other)} (id INT) USING iceberg")
    append(lake, other, path)
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)


def test_files_that_were_taken_in_do_not_go_once_the_name_mapping_is_unset(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    table, other = (scratch, "source"), (scratch, "taker")
    taken_in(lake, table, other, f"{tmp_path}/data")
    lake.spark.sql(f"ALTER TABLE {identifier(lake.name, *other)} UNSET TBLPROPERTIES ('schema.name-mapping.default')")
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)


def test_files_of_a_table_that_was_registered_and_moved_away_do_not_go(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    """Nothing of it names the original any more: neither its location nor its snapshots, nor its metadata log."""
    table, other = (scratch, "first"), (scratch, "second")
    of_two_rows(lake, table)
    metadata_file = lake.tables.source(table).metadata_location
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.register_table(table => '{'.'.join(other)}', metadata_file => '{metadata_file}')")
    sql, name = lake.spark.sql, identifier(lake.name, *other)
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.metadata.previous-versions-max'='1')")
    sql(f"ALTER TABLE {name} SET LOCATION '{head(lake, other).metadata['location']}_own'")
    sql(f"INSERT INTO {name} VALUES (4)")
    sql(f"CALL {identifier(lake.name)}.system.rewrite_manifests('{'.'.join(other)}')")
    forgotten(lake, other)
    assert f"/{scratch}/first/" not in json.dumps(head(lake, other).metadata)
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path, rows_of=3)


@pytest.mark.parametrize("what", ["metadata file", "manifest"])
def test_snapshots_do_not_expire_while_another_table_cannot_be_read(
    lake: Lake, scratch: str, aged: Make, tmp_path: Path, what: str
) -> None:
    table, other = (scratch, "source"), (scratch, "unread")
    path = of_two_rows(lake, table)
    name = identifier(lake.name, *other)
    lake.spark.sql(f"CREATE TABLE {name} (id INT) USING iceberg")
    append(lake, other, path)
    ((manifest,),) = lake.spark.sql(f"SELECT path FROM {name}.manifests").collect()
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)
    away = Path((manifest if what == "manifest" else lake.tables.source(other).metadata_location).removeprefix("file:"))
    away.rename(away.with_suffix(".away"))

    outcome = expired(lake, table, tmp_path)
    away.with_suffix(".away").rename(away)

    assert outcome.status == "failed"
    assert "could not check whether another table needs" in (outcome.actions[0].error or "")
    assert f"{'.'.join(other)} cannot be read" in (outcome.actions[0].error or "")
    assert rows(lake, *other) == 2


@pytest.mark.parametrize("how", SPELLINGS)
def test_snapshots_do_not_expire_however_another_table_spells_their_files(
    lake: Lake, scratch: str, aged: Make, tmp_path: Path, how: str
) -> None:
    table, other = (scratch, "source"), (scratch, "taker")
    path = of_two_rows(lake, table)
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, *other)} (id INT) USING iceberg")
    append(lake, other, spelled(path, how, tmp_path))
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)


@pytest.mark.parametrize("how", SPELLINGS)
def test_orphans_stay_however_another_table_spells_them(lake: Lake, littered: Any, scratch: str, tmp_path: Path, how: str) -> None:
    table, lost = littered
    data = lost.with_name("written-by-another-job.parquet")
    other = (scratch, "taker")
    shutil.copy(of_two_rows(lake, (scratch, "written")).removeprefix("file:"), data)
    age(lake, table)
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, *other)} (id INT) USING iceberg")
    append(lake, other, spelled(f"file:{data}", how, tmp_path))

    outcome = run_now(lake, planned(lake, table), tmp_path)

    assert outcome.status == "failed"
    assert "but scratch.taker (" in (outcome.actions[0].error or "")
    assert (data.exists(), lost.exists(), rows(lake, *other)) == (True, True, 2)


def test_a_folder_of_another_table_that_a_link_leads_to_is_not_taken_for_orphans(
    lake: Lake, littered: Any, scratch: str, tmp_path: Path
) -> None:
    """The listing of a location follows links."""
    table, lost = littered
    other = (scratch, "linked")
    path = Path(of_two_rows(lake, other).removeprefix("file:"))
    age(lake, other)
    (lost.parent / "link").symlink_to(path.parent)

    outcome = run_now(lake, planned(lake, table), tmp_path)

    assert outcome.status == "failed"
    assert "but scratch.linked (" in (outcome.actions[0].error or "")
    assert (path.exists(), lost.exists(), rows(lake, *other)) == (True, True, 2)


def test_a_table_that_only_calls_itself_a_clone_is_no_clone(lake: Lake, scratch: str, aged: Make, tmp_path: Path) -> None:
    """Somebody has kept what was tried on one: its metadata, registered under a name of its own."""
    table, other = (scratch, "source"), (scratch, "kept")
    of_two_rows(lake, table)
    with clone(lake, table) as copy:
        kept = f"{tmp_path}/kept.metadata.json"
        shutil.copy(lake.tables.source(copy.table).metadata_location.removeprefix("file:"), kept)
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.register_table(table => '{'.'.join(other)}', metadata_file => '{kept}')")
    lake.spark.sql(f"INSERT OVERWRITE {identifier(lake.name, *table)} VALUES (3)")
    aged(table)

    stays_for(lake, table, other, tmp_path)


def test_a_stop_ends_the_search_for_other_users(lake: Lake, littered: Any, tmp_path: Path) -> None:
    table, lost = littered
    stop = Stop()

    def progress(said: str) -> None:
        if "looking up 1 orphan" in said:
            stop.set()

    outcome = run(lake, planned(lake, table), execute=True, stop=stop, ledger=str(tmp_path / "ledger.db"), progress=progress)

    assert (outcome.status, outcome.actions[0].status) == ("stopped", "stopped")
    assert lost.exists()
