"""Orphans are not removed where another table of the catalog keeps files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.engine.interrupting import Stop
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.head import head
from icekit.health.facts.retention import Retention
from icekit.learn.lab import lake_folder
from icekit.maintain.plan import Plan
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.run import guard
from icekit.maintain.run.outcome import Outcome
from icekit.sandbox.clones import clone
from tests.commits import in_order
from tests.damage import on_disk
from tests.maintain.tables import Named, Table
from tests.offline import catalog_of

pytestmark = [pytest.mark.spark, pytest.mark.core]

Make = Callable[..., Any]
ORPHANS = ["remove_orphan_files"]
OVERWRITE = "INSERT OVERWRITE {t} VALUES (3)"


def dotted(table: Table) -> str:
    return ".".join(table.name)


def register(table: Table, metadata_file: str) -> None:
    table.call("register_table", f"metadata_file => '{metadata_file}'")


def add_files(table: Table, folder: object) -> None:
    table.call("add_files", f"source_table => '`parquet`.`{folder}`'")


def location(table: Table) -> str:
    return str(head(table.lake, table.name).metadata["location"])


def metadata_file(table: Table) -> str:
    return table.lake.tables.source(table.name).metadata_location


def rows(table: Table) -> int:
    table.files.refresh()
    return len(table.rows())


@pytest.fixture
def swapped(named: Named) -> tuple[Table, Table]:
    """A table that took another's name and, with it, its location."""
    table, old = named("a"), named("a_old")
    table.create("id BIGINT", by="").sql("INSERT INTO {t} VALUES (1), (2)")
    table.sql(f"ALTER TABLE {{t}} RENAME TO {identifier(*old.name)}")
    table.create("id BIGINT", by="").sql("INSERT INTO {t} VALUES (3)")
    table.age_files()
    return table, old


@pytest.fixture
def littered(named: Named, lose: Make) -> tuple[Table, Path]:
    """A table, and a file in its folder that no snapshot names."""
    table = named("littered")
    table.sql("CREATE TABLE {t} USING iceberg AS SELECT 1 AS id")
    return table, lose(table)


def planned(table: Table) -> Plan:
    return table.maintenance(*ORPHANS, storage=True)


def failed(outcome: Outcome, *said: str) -> None:
    """See that the only action failed, and what its error says."""
    assert outcome.status == "failed"
    for text in said:
        assert text in (outcome.actions[0].error or "")


def test_a_table_that_was_swapped_out_is_not_taken_for_orphans(lake: Lake, swapped: Any) -> None:
    table, old = swapped
    facts = lake.observe(table.name, storage=True)
    findings = diagnose(facts)
    plan = plan_maintenance_table(lake, facts, findings, procedures=ORPHANS)

    assert findings.names == {"shared_location"}
    assert facts.storage is not None
    assert facts.storage.orphan_count == 0
    assert facts.storage.examples == ()
    assert plan.actions == ()
    assert f"shared location with scratch.a_old ({location(table)})" in repr(plan)
    assert rows(old) == 2
    assert rows(table) == 1


@pytest.mark.slow
def test_a_table_that_came_after_the_plan_is_looked_for_again(littered: Any, named: Named) -> None:
    table, lost = littered
    plan, late = planned(table), named("late")
    assert len(plan.actions) == 1
    register(late, metadata_file(table))

    outcome = table.run(plan)
    late.sql("DROP TABLE {t}")

    failed(outcome, "shared location with scratch.late")
    assert lost.exists()


@pytest.mark.slow
def test_a_clone_that_reads_the_table_does_not_keep_its_orphans(lake: Lake, littered: Any) -> None:
    table, lost = littered

    with clone(lake, table.name):
        outcome = table.run(planned(table))

    assert outcome.status == "done", outcome
    assert not lost.exists()


def moved_away(table: Table) -> None:
    """Give a table a location of its own, and let its metadata forget by commits and an expiry
    where it was.
    """
    away = f"{location(table)}_own"
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.previous-versions-max'='1')")
    table.sql(f"ALTER TABLE {{t}} SET LOCATION '{away}'")
    for n in range(3):
        table.sql(f"INSERT INTO {{t}} VALUES ({100 + n})")
    table.call(
        "expire_snapshots",
        "older_than => TIMESTAMP '2999-01-01 00:00:00'",
        "retain_last => 1",
    )
    table.files.refresh()


@pytest.mark.slow
def test_a_table_that_moved_away_and_left_files_behind_keeps_them(swapped: Any) -> None:
    table, old = swapped
    moved_away(old)
    table.age_files()
    plan = planned(table)
    assert len(plan.actions) == 1
    assert "make sure that no table of another catalog has files there" in plan.actions[0].why

    failed(table.run(plan), "files that would be removed are used by scratch.a_old (")
    assert rows(old) == 5


@pytest.mark.slow
def test_orphans_stay_where_another_table_cannot_tell_what_it_names(
    littered: Any, named: Named
) -> None:
    table, lost = littered
    broken = named("broken")
    broken.sql("CREATE TABLE {t} USING iceberg AS SELECT 1 AS id")
    plan = planned(table)
    ((manifest,),) = broken.sql("SELECT path FROM {t}.manifests")
    written = on_disk(manifest)
    written.rename(written.with_suffix(".away"))

    outcome = table.run(plan)
    written.with_suffix(".away").rename(written)

    failed(
        outcome, "could not check whether another table needs them (scratch.broken cannot be read"
    )
    assert lost.exists()


def expired(table: Table) -> Outcome:
    """What an expiry of all snapshots but the newest comes to."""
    limits = Thresholds(snapshots=1)
    return table.run(
        table.maintenance("expire_snapshots", retention=Retention(keep_last=1), thresholds=limits)
    )


@pytest.fixture
def stays_for(aged: Make) -> Make:
    """See that an old table's expiry is refused for another table's sake, by its name, and that its
    rows stay.
    """

    def check(table: Table, other: Table, *, rows_of: int = 2) -> None:
        aged(table)
        failed(expired(table), f"files that would be removed are used by {dotted(other)} (")
        assert rows(other) == rows_of

    return check


def test_snapshots_that_another_table_has_too_do_not_expire(
    lake: Lake, named: Named, stays_for: Make
) -> None:
    table, other = named("e"), named("e_copy")
    table.sql("CREATE TABLE {t} USING iceberg AS SELECT 1 AS id")
    table.sql("INSERT INTO {t} VALUES (2)")
    register(other, metadata_file(table))
    # Another's location says nothing of the snapshots that it came with.
    other.sql(f"ALTER TABLE {{t}} SET LOCATION '{location(table)}_copy'")
    table.sql(OVERWRITE)

    stays_for(table, other)
    other.sql("DROP TABLE {t}")
    with clone(lake, table.name):
        assert expired(table).status == "done"


@pytest.fixture
def taken_in(named: Named, tmp_path: Path) -> tuple[Table, Table]:
    """A table of two rows whose files lie in a folder, and another that takes them in."""
    source, taker = named("source"), named("taker").create("id INT", by="")
    source.create("id INT", by="", write_data_path=f"{tmp_path}/data")
    for n in (1, 2):
        source.sql(f"INSERT INTO {{t}} VALUES ({n})")
    add_files(taker, tmp_path / "data")
    return source, taker


@pytest.mark.parametrize(
    "how",
    [
        "mapped",
        "not mapped",
        "by the table that took them in",
    ],
)
@pytest.mark.slow
def test_files_that_another_table_has_too_do_not_go_with_their_snapshots(
    taken_in: Any, stays_for: Make, how: str
) -> None:
    """Wherever they lie, whether or not a mapping of names tells that it took files in, and
    whichever of the two wrote them.
    """
    table, other = reversed(taken_in) if how.startswith("by") else taken_in
    if how == "not mapped":
        other.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('schema.name-mapping.default')")
    table.sql(OVERWRITE)

    stays_for(table, other)
    other.sql("DROP TABLE {t}")
    assert expired(table).status == "done"


def forgotten(table: Table, snapshots: int | None = None) -> None:
    """Expire a table's oldest snapshots (all but the newest) without its files, as pyiceberg
    does.
    """
    lake = table.lake
    with catalog_of(lake_folder(lake)) as catalog:
        for snapshot in in_order(lake, table.name)[:-1][:snapshots]:
            catalog.load_table(table.name).maintenance.expire_snapshots().by_id(
                int(snapshot["snapshot-id"])
            ).commit()
    table.files.refresh()


@pytest.mark.slow
def test_manifests_that_another_table_still_has_do_not_go(named: Named, stays_for: Make) -> None:
    """Of a table that was registered from this one, and has let go of the snapshots that they came
    with.
    """
    table, other = named("first"), named("second")
    table.sql("CREATE TABLE {t} USING iceberg AS SELECT 1 AS id")
    register(other, metadata_file(table))
    other.sql("INSERT INTO {t} VALUES (2)")
    forgotten(other, 1)
    table.sql("INSERT INTO {t} VALUES (3)")
    table.call("rewrite_manifests")

    stays_for(table, other)


def of_two_rows(table: Table) -> str:
    """Make a table of one file; returns its path."""
    table.sql(
        "CREATE TABLE {t} USING iceberg AS SELECT /*+ COALESCE(1) */ CAST(id AS INT) AS id FROM "
        "range(2)"
    )
    ((path,),) = table.sql("SELECT file_path FROM {t}.files")
    return str(path)


@pytest.fixture
def both(named: Named) -> tuple[Table, Table, str]:
    """A table of one file, another that is empty, and the path of the file."""
    source = named("source")
    return source, named("taker").create("id INT", by=""), of_two_rows(source)


def spelled(path: str, how: str, tmp_path: Path) -> str:
    """Another spelling of a file's path."""
    file = on_disk(path)
    if how == "linked folder":
        (tmp_path / "linked").symlink_to(file.parent)
        return f"file:{tmp_path}/linked/{file.name}"
    if how == "linked file":
        (tmp_path / "linked.parquet").symlink_to(file)
        return f"file:{tmp_path}/linked.parquet"
    return f"file:{file.parent.parent}/{how}{file.parent.name}/{file.name}"


SPELLINGS = ["/", "./", "other/../", "linked folder", "linked file"]


@pytest.mark.slow
def test_files_of_a_table_that_was_registered_and_moved_away_do_not_go(
    scratch: str, named: Named, stays_for: Make
) -> None:
    """Nothing of it names the original any more: neither its location nor its snapshots, nor its
    metadata log.
    """
    table, other = named("first"), named("second")
    of_two_rows(table)
    register(other, metadata_file(table))
    other.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.previous-versions-max'='1')")
    other.sql(f"ALTER TABLE {{t}} SET LOCATION '{location(other)}_own'")
    other.sql("INSERT INTO {t} VALUES (4)")
    other.call("rewrite_manifests")
    forgotten(other)
    assert f"/{scratch}/first/" not in json.dumps(head(other.lake, other.name).metadata)
    table.sql(OVERWRITE)

    stays_for(table, other, rows_of=3)


@pytest.mark.parametrize("what", ["metadata file", "manifest"])
def test_snapshots_do_not_expire_while_another_table_cannot_be_read(
    both: Any, aged: Make, what: str
) -> None:
    table, other, path = both
    other.append_path(path, 2)
    ((manifest,),) = other.sql("SELECT path FROM {t}.manifests")
    table.sql(OVERWRITE)
    aged(table)
    away = on_disk(manifest if what == "manifest" else metadata_file(other))
    away.rename(away.with_suffix(".away"))

    outcome = expired(table)
    away.with_suffix(".away").rename(away)

    failed(
        outcome, "could not check whether another table needs", f"{dotted(other)} cannot be read"
    )
    assert rows(other) == 2


@pytest.mark.slow
@pytest.mark.parametrize("how", ["", *SPELLINGS])
def test_files_that_another_table_took_by_icebergs_api_do_not_go_however_it_spells_them(
    both: Any, stays_for: Make, tmp_path: Path, how: str
) -> None:
    """It lies elsewhere, and nothing in its metadata file tells of them."""
    table, other, path = both
    other.append_path(spelled(path, how, tmp_path) if how else path, 2)
    table.sql(OVERWRITE)

    stays_for(table, other)


@pytest.mark.slow
def test_orphans_stay_however_other_tables_spell_them(
    littered: Any, named: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_NAMED", len(SPELLINGS))
    table, lost = littered
    written = on_disk(of_two_rows(named("written")))
    files, others = [], []
    for number, how in enumerate(SPELLINGS):
        files.append(lost.with_name(f"written-by-another-job-{number}.parquet"))
        shutil.copy(written, files[-1])
        others.append(named(f"taker{number}").create("id INT", by=""))
        others[-1].append_path(spelled(f"file:{files[-1]}", how, tmp_path), 2)
    table.age_files()

    failed(table.run(planned(table)), *(f"{dotted(other)} (" for other in others))
    assert all(file.exists() for file in (*files, lost))
    assert [rows(other) for other in others] == [2] * len(others)


@pytest.mark.slow
def test_a_folder_of_another_table_that_a_link_leads_to_is_not_taken_for_orphans(
    littered: Any, named: Named
) -> None:
    """The listing of a location follows links: what they lead to is not decided, and where Spark
    lists, it is looked up in the other tables.
    """
    table, lost = littered
    other = named("linked")
    path = on_disk(of_two_rows(other))
    other.age_files()
    (lost.parent / "link").symlink_to(path.parent)

    undecided = planned(table)
    assert undecided.actions == ()
    assert "data/link is a link to another folder" in " ".join(undecided.notes)
    by_spark = table.maintenance(*ORPHANS, storage=True, collector="spark")
    failed(table.run(by_spark), "used by scratch.linked (")
    assert path.exists()
    assert lost.exists()
    assert rows(other) == 2


@pytest.mark.slow
def test_a_table_that_only_calls_itself_a_clone_is_no_clone(
    lake: Lake, named: Named, stays_for: Make, tmp_path: Path
) -> None:
    """Somebody has kept what was tried on one: its metadata, registered under a name of its own."""
    table, other = named("source"), named("kept")
    of_two_rows(table)
    with clone(lake, table.name) as copy:
        kept = f"{tmp_path}/kept.metadata.json"
        shutil.copy(on_disk(lake.tables.source(copy.table).metadata_location), kept)
    register(other, kept)
    table.sql(OVERWRITE)

    stays_for(table, other)


@pytest.mark.slow
def test_a_stop_ends_the_search_for_other_users(littered: Any) -> None:
    table, lost = littered
    stop = Stop()

    def progress(said: str) -> None:
        if "looking up 1 orphan" in said:
            stop.set()

    outcome = table.run(planned(table), stop=stop, progress=progress)

    assert outcome.status == "stopped"
    assert outcome.actions[0].status == "stopped"
    assert lost.exists()
