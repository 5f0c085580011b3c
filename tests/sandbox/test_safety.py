"""Nothing that is done to a clone deletes or overwrites a file of the table."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.sql import display_name, identifier
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import NAMESPACE
from tests.maintain.tables import MERGE_ON_READ, Table, contents

pytestmark = [pytest.mark.spark, pytest.mark.core]

LONG_AGO = 978_307_200  # 2001, in seconds since 1970: old enough for every procedure
EXPIRE = (
    "CALL lake.system.expire_snapshots(table => '{name}', older_than => timestamp '2999-01-01 "
    "00:00:00', retain_last => 1)"
)
ORPHANS = (
    "CALL lake.system.remove_orphan_files(table => '{name}', older_than => timestamp '2020-01-01 "
    "00:00:00'{location})"
)
INSERT = "INSERT INTO {t} VALUES (1, 1, 'new')"

#: What deletes files, whatever was done to the clone before.
REFUSED = (
    EXPIRE,
    ORPHANS.replace("{location}", ""),
    ORPHANS.replace("{location}", ", location => '{table}'"),
    "DROP TABLE {t} PURGE",
)

DONE = {
    "delete and rewrite": (
        "DELETE FROM {t} WHERE id < 10",
        "DELETE FROM {t} WHERE part = 1",
        "CALL lake.system.rewrite_position_delete_files(table => '{name}', options => "
        "map('rewrite-all', 'true'))",
        "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', "
        "'true', 'remove-dangling-deletes', 'true'))",
        "CALL lake.system.rewrite_manifests('{name}')",
    ),
    "overwrite": ("INSERT OVERWRITE {t} VALUES (1, 1, 'only')", "TRUNCATE TABLE {t}"),
    "replace": (
        "CREATE OR REPLACE TABLE {t} USING iceberg LOCATION '{table}' AS SELECT 1 AS other",
        INSERT.replace("1, 1, 'new'", "2"),
    ),
    # The table forgets metadata files at each commit; the clone has none to forget but its own.
    "metadata forgotten after commits": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = "
        "'true', 'write.metadata.previous-versions-max' = '1')",
        *[INSERT] * 3,
    ),
    "moved to the table's location": (
        "ALTER TABLE {t} SET LOCATION '{table}'",
        INSERT,
        "DELETE FROM {t} WHERE id = 3",
    ),
    "object storage layout": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.object-storage.enabled' = 'true', "
        "'write.object-storage.path' = '{table}/data', 'write.folder-storage.path' = "
        "'{table}/data')",
        INSERT,
    ),
    "statistics": (
        "CALL lake.system.compute_table_stats('{name}')",
        "CALL lake.system.compute_partition_stats('{name}')",
    ),
    "format version 3": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')",
        "DELETE FROM {t} WHERE id = 3",
        INSERT,
    ),
    "refs and evolution": (
        "ALTER TABLE {t} DROP BRANCH audit",
        "ALTER TABLE {t} DROP TAG start",
        "ALTER TABLE {t} DROP COLUMN name",
        "ALTER TABLE {t} DROP PARTITION FIELD part",
        "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', "
        "'true'))",
    ),
    "paths rewritten": (
        "CALL lake.system.rewrite_table_path(table => '{name}', source_prefix => '{home}', "
        "target_prefix => '/elsewhere')",
    ),
}


@pytest.fixture(scope="module")
def table(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """A table with all kinds of files, an orphan among them, all of them old."""
    lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.safety")
    made = (
        Table(lake, "safety", "original", tmp_path_factory.mktemp("safety"))
        .create(**MERGE_ON_READ)
        .fill(files=2)
    )
    made.sql("ALTER TABLE {t} CREATE TAG start")
    made.sql("ALTER TABLE {t} CREATE BRANCH audit")
    made.fill(files=1, branch="audit", start=500)
    made.sql("DELETE FROM {t} WHERE id % 4 = 0")
    made.sql("CALL lake.system.compute_table_stats('safety.original')")
    here = made.location
    made.sql(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = "
        "'true', 'write.metadata.previous-versions-max' = '1', 'write.object-storage.enabled' = "
        f"'true', 'write.object-storage.path' = '{here}/data', 'write.data.path' = '{here}/data', "
        f"'write.metadata.path' = '{here}/metadata')"
    )
    made.fill(files=1, start=100)
    (here / "data" / "orphan.parquet").write_bytes(b"nobody's")
    for path in contents(here):
        os.utime(path, (LONG_AGO, LONG_AGO))
    yield made
    made.sql("DROP TABLE {t} PURGE")


@pytest.fixture
def untouched(table: Table) -> Iterator[None]:
    """Every file and row of the table is afterwards what it was, and nothing is left beside it."""
    before, rows, here = contents(table.location), table.rows(), table.snapshot_id()
    yield
    assert contents(table.location) == before
    table.sql("REFRESH TABLE {t}")
    assert table.rows() == rows
    assert table.snapshot_id() == here
    assert not [n for n in table.lake.tables.names() if n[0] == NAMESPACE]
    assert not (table.location.parent / NAMESPACE).exists()


def attempt(table: Table, copy: Any, statement: str) -> None:
    at = {"t": identifier(table.lake.name, *copy.table), "name": display_name(copy.table)}
    table.spark.sql(
        statement.format(**at, table=table.location, home=table.location.parent)
    ).collect()


@pytest.mark.core(
    "delete and rewrite",
    "moved to the table's location",
    "object storage layout",
    "paths rewritten",
)
@pytest.mark.parametrize("what", DONE)
@pytest.mark.usefixtures("untouched")
def test_what_writes_to_a_clone_writes_to_its_folder_alone_and_what_deletes_files_is_refused(
    lake: Lake, table: Table, what: str
) -> None:
    before = contents(table.location)
    with clone(lake, table.name) as copy:
        assert lake.spark.table(identifier(lake.name, *copy.table)).count() == len(table.rows())
        for statement in DONE[what]:
            attempt(table, copy, statement)
        assert contents(table.location) == before
        for statement in REFUSED:
            with pytest.raises(Exception, match="GC is disabled"):
                attempt(table, copy, statement)
        assert len(contents(Path(copy.folder.removeprefix("file:")))) > 1


@pytest.mark.usefixtures("untouched")
def test_a_clone_that_is_dropped_in_the_midst_is_gone_and_the_table_is_not(
    lake: Lake, table: Table
) -> None:
    with clone(lake, table.name) as copy:
        attempt(table, copy, INSERT)
        attempt(table, copy, "DROP TABLE {t}")
