"""What a killed process leaves is found, named with the statement that drops it, and removed; what
may be in use is not.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from icekit.cli.main import main
from icekit.common.sql import call_sql, display_name, set_properties_sql
from icekit.engine import session
from icekit.health.facts.head import head
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import (
    NAMESPACE,
    OWNED,
    ScratchTable,
    ownership,
    remove_stale_clones,
    stale_clones,
)
from icekit.sandbox.trial import Budget, Trial
from tests.damage import on_disk
from tests.maintain.tables import Table, contents
from tests.sandbox.adopting import adopt, insert, told

pytestmark = [pytest.mark.spark, pytest.mark.core, pytest.mark.usefixtures("no_clones")]

VICTIM = """
import sys
import icekit
from icekit.sandbox.clones import clone
from icekit.common.sql import identifier
lake = icekit.connect()
with clone(lake, {table!r}) as copy:
    lake.spark.sql("INSERT INTO " + identifier(lake.name, *copy.table) + " VALUES (1, 1, 'new')")
    print(copy.table[-1], copy.folder, flush=True)
    sys.stdin.read()
"""
# No process has it: the kernel's largest is one less.
NOBODY = 2**22 + 1


def change(lake: Lake, name: tuple[str, ...], **changes: str | int) -> None:
    """Change fields of a scratch table's ownership, or of its owner."""
    written = head(lake, name).metadata["properties"][OWNED]
    lake.spark.sql(set_properties_sql(lake.sql_name(name), {OWNED: changed(written, **changes)}))


def changed(written: str, **changes: str | int) -> str:
    whose = json.loads(written)
    for key, value in changes.items():
        fields = whose["owner"] if key in whose["owner"] else whose
        assert key in fields
        fields[key] = value
    return json.dumps(whose)


@pytest.mark.slow
def test_a_killed_process_leaves_a_clone_that_is_found_and_removed(
    lake: Lake, table: Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a notebook: the session is somebody else's, and is left running.
    monkeypatch.setattr(session, "_own_spark", None)
    before, rows = contents(table.location), table.rows()
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM.format(table=table.name)],
        cwd=Path(icekit.__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert victim.stdout is not None
        name, folder = victim.stdout.readline().split()
        # While it lives its clone is nobody else's business.
        assert stale_clones(lake) == ()
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.communicate()

    (stale,) = stale_clones(lake)
    assert stale.table == (NAMESPACE, name)
    assert stale.ownership is not None
    assert stale.ownership.of == table.name
    assert stale.ownership.scratch == folder
    assert stale.is_dead
    assert stale.ownership.owner.pid == victim.pid
    assert on_disk(folder).exists()

    assert main(["admin", "clones"]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"process {victim.pid} on \S+ has ended", said)
    assert f"DROP TABLE IF EXISTS `lake`.`{NAMESPACE}`.`{name}`" in said
    assert "Nothing was removed. --remove drops the 1 clone" in said
    assert stale_clones(lake) == (stale,)

    assert main(["admin", "clones", "--remove"]) == 0
    assert "1 clone removed" in capsys.readouterr().out
    assert lake.tables.names_in((NAMESPACE,)) == []
    assert not on_disk(folder).parent.exists()
    assert contents(table.location) == before
    table.sql("REFRESH TABLE {t}")
    assert table.rows() == rows


def test_a_clone_of_another_host_is_listed_with_its_age_and_never_removed(
    lake: Lake, table: Table
) -> None:
    with clone(lake, table.name) as copy:
        change(lake, copy.table, host="elsewhere", started_ms=1000)
        (found,) = stale_clones(lake)

        assert not found.is_dead
        assert found.summary(1000 + 3 * 86_400_000).endswith(
            f"of {display_name(table.name)}, 3 days old; process {os.getpid()} on elsewhere cannot be checked "
            "from here"
        )
        assert remove_stale_clones(lake) == ()
        assert lake.tables.names_in((NAMESPACE,)) == [copy.table]


def test_a_clone_that_came_to_life_again_is_not_removed(lake: Lake, table: Table) -> None:
    with clone(lake, table.name) as copy:
        change(lake, copy.table, pid=NOBODY)
        (found,) = stale_clones(lake)
        change(lake, copy.table, pid=os.getpid())

        assert found.is_dead
        assert remove_stale_clones(lake, [found]) == ()


def test_any_table_with_the_owners_properties_counts_and_other_tables_do_not(
    lake: Lake, table: Table
) -> None:
    # Registered by hand, as it writes to the table's own location.
    copy = ScratchTable.new(table.name, f"file:{table.location}")
    made = copy.table
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{NAMESPACE}")
    lake.spark.sql(
        call_sql(
            lake.name,
            "register_table",
            table=display_name(made),
            metadata_file=lake.tables.source(table.name).metadata_location,
        )
    )
    assert stale_clones(lake) == ()
    own = copy.ownership_properties()
    own |= {
        "gc.enabled": "false",
        "write.metadata.path": f"{copy.folder}/metadata",
        OWNED: changed(own[OWNED], pid=NOBODY),
    }
    lake.spark.sql(set_properties_sql(lake.sql_name(made), own))
    before = contents(table.location)

    assert [(c.table, c.ownership and c.ownership.of) for c in stale_clones(lake)] == [
        (made, table.name)
    ]
    assert [c.table for c in remove_stale_clones(lake)] == [made]
    assert contents(table.location) == before
    assert not (table.location.parent / NAMESPACE).exists()


def test_a_folder_that_is_not_the_clones_own_is_never_removed(lake: Lake, table: Table) -> None:
    before = contents(table.location)
    with clone(lake, table.name) as copy:
        change(lake, copy.table, pid=NOBODY, scratch=f"file:{table.location}")

        with pytest.warns(UserWarning, match="has no folder of its own"):
            assert [c.table for c in remove_stale_clones(lake)] == [copy.table]

        assert contents(table.location) == before


def test_what_the_table_has_adopted_of_a_dead_clone_stays(lake: Lake, table: Table) -> None:
    with told("adopted 1 file"), clone(lake, table.name) as copy:
        insert(lake, copy)
        adopt(table, copy)
        change(lake, copy.table, pid=NOBODY)

        assert len(remove_stale_clones(lake)) == 1

    table.sql("REFRESH TABLE {t}")
    assert len(table.rows()) == 41


def test_what_no_table_can_need_is_removed_without_reading_the_tables_manifests(
    lake: Lake, table: Table
) -> None:
    facts, budget = lake.observe(table.name), Budget(3_600)
    trial = Trial(
        lake=lake, facts=facts, budget=budget, sample_bytes=1 << 20, progress=lambda _: None
    )
    with trial.sandboxes(1, always_sample=True) as (box,):
        made = box.table
        folder = on_disk(head(lake, made).metadata["location"])
        assert folder.exists()
        change(lake, made, pid=NOBODY)
        for written in table.location.glob("metadata/*.avro"):
            written.rename(written.with_suffix(".away"))

        assert [c.table for c in remove_stale_clones(lake)] == [made]

        assert not folder.exists()
        for written in table.location.glob("metadata/*.away"):
            written.rename(written.with_suffix(".avro"))


def test_a_clone_whose_metadata_is_gone_is_listed_and_left(lake: Lake, table: Table) -> None:
    with clone(lake, table.name) as copy:
        metadata = on_disk(lake.tables.source(copy.table).metadata_location)
        metadata.rename(metadata.with_suffix(".away"))
        (found,) = stale_clones(lake)
        metadata.with_suffix(".away").rename(metadata)

    assert not found.is_dead
    assert "its metadata cannot be read" in found.summary(0)


@pytest.mark.parametrize("said", ["", "{", "{}", '{"of": "c.db.t", "owner": {"pid": "-1"}}'])
def test_properties_that_say_nothing_sensible_are_no_scratch_tables(said: str) -> None:
    assert ownership({"owner": "x"}) is None
    assert ownership({OWNED: said}) is None
