"""Nothing that is done to a clone deletes or overwrites a file of the table."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from icekit.catalog import Lake
from icekit.clone import NAMESPACE, clone
from icekit.sql import identifier
from tests.compact.tables import Table, contents

pytestmark = pytest.mark.spark

# What a person, a procedure or a writer might do to it; some are refused, which is as good.
ATTEMPTS = (
    "CALL lake.system.expire_snapshots(table => '{name}', older_than => timestamp '2999-01-01 00:00:00', retain_last => 1)",
    "CALL lake.system.remove_orphan_files(table => '{name}', older_than => timestamp '2020-01-01 00:00:00')",
    "CALL lake.system.remove_orphan_files(table => '{name}', older_than => timestamp '2020-01-01 00:00:00', location => '{location}')",
    "DELETE FROM {t} WHERE id < 10",
    "DELETE FROM {t} WHERE part = 1",
    "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    "CALL lake.system.rewrite_manifests('{name}')",
    "INSERT INTO {t} VALUES (1, 1, 'new')",
    "INSERT OVERWRITE {t} VALUES (1, 1, 'only')",
    "TRUNCATE TABLE {t}",
    "CALL lake.system.expire_snapshots(table => '{name}', older_than => timestamp '2999-01-01 00:00:00', retain_last => 1)",
    "DROP TABLE {t} PURGE",
)


def test_no_attempt_on_a_clone_reaches_a_file_of_the_table(lake: Lake, scratch: str, tmp_path: Path) -> None:
    # The table forgets old metadata files at each commit; its clone must not.
    table = Table(lake, scratch, "original", tmp_path).create(write_metadata_delete__after__commit_enabled="true").fill()
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    table.fill(files=1, start=100)
    before, rows, here = contents(table.location), table.rows(), table.snapshot_id()
    done = []
    with clone(lake, table.name) as copy:
        name = identifier(lake.name, *copy.table)
        assert table.sql(f"SELECT count(*) FROM {name}")[0][0] == len(rows)
        for attempt in ATTEMPTS:
            with contextlib.suppress(Exception):
                lake.spark.sql(attempt.format(t=name, name=".".join(copy.table), location=table.location)).collect()
                done.append(attempt.split()[0])
        after = contents(table.location)

    assert {"DELETE", "INSERT", "CALL"} <= set(done)
    assert after == before
    assert contents(table.location) == before
    table.sql("REFRESH TABLE {t}")
    assert (table.rows(), table.snapshot_id()) == (rows, here)
    assert not [n for n in lake.tables.names() if n[0] == NAMESPACE]
    assert not (table.location.parent / NAMESPACE).exists()


def test_a_clone_is_gone_also_when_what_it_was_for_failed(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "odd `name`, it's", tmp_path).create().fill(files=1)
    before = contents(table.location)

    def fails() -> None:
        with clone(lake, table.name) as copy:
            lake.spark.sql(f"DELETE FROM {identifier(lake.name, *copy.table)} WHERE id = 1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    assert contents(table.location) == before
    assert not [n for n in lake.tables.names() if n[0] == NAMESPACE]
