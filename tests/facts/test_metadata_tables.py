"""Metadata tables are read in one place, and as the table is now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import MetadataUnreadable
from icekit.facts.manifests import FileCounts, file_counts
from icekit.facts.spark import check_listed
from icekit.sql import identifier
from tests.elsewhere import elsewhere

PACKAGE = Path(__file__).parents[2] / "icekit"
NAMES = (
    "all_data_files|all_delete_files|all_entries|all_files|all_manifests|data_files|delete_files|entries|files|history|manifests"
    "|metadata_log_entries|partitions|position_deletes|refs|snapshots"
)
READ = re.compile(rf"""identifier\(.*['"]({NAMES})['"]|\}}\.({NAMES})\b(?!\.)""")
# Statements that are shown to a person, who runs them in a session of their own.
SHOWN = {"diagnose/files.py", "prove/erasure_actions.py"}


def test_no_other_module_reads_a_metadata_table() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() not in {*SHOWN, "history/store.py"}
        for line in path.read_text(encoding="utf-8").splitlines()
        if READ.search(line)
    }

    assert not found


@pytest.mark.spark
@pytest.mark.parametrize("name", ["plain", "with.dot"])
def test_what_another_session_has_committed_is_read(lake: Lake, scratch: str, name: str) -> None:
    table = lake.sql_name((scratch, name))
    lake.spark.sql(f"CREATE TABLE {identifier(*table)} (id bigint) USING iceberg")
    lake.spark.sql(f"INSERT INTO {identifier(*table)} VALUES (1)")
    for metadata in ("entries", "all_files", "snapshots"):
        assert metadata_table(lake.spark, table, metadata).count() == 1
    other = elsewhere(lake.spark)
    other.sql(f"INSERT INTO {identifier(*table)} VALUES (2)")
    snapshot = other.sql(f"SELECT snapshot_id FROM {identifier(*table, 'snapshots')} ORDER BY committed_at DESC").first()
    assert snapshot is not None

    assert metadata_table(lake.spark, table, "entries", int(snapshot[0])).count() == 2
    assert metadata_table(lake.spark, table, "all_files").count() == 2
    assert metadata_table(lake.spark, table, "snapshots").count() == 2


@pytest.mark.spark
def test_files_that_a_metadata_table_leaves_out_are_told_with_the_version_that_does(lake: Lake) -> None:
    with pytest.raises(
        MetadataUnreadable, match=r"has 2 data files and 1 delete file, but .* Iceberg \(1\.12\.0\) list 2 data files and 0 "
    ):
        check_listed(lake.spark, ("lake", "db", "t"), 7, FileCounts(2, 1), FileCounts(2, 0))


def test_files_are_counted_by_the_manifest_list_else_by_the_summary_else_not_at_all() -> None:
    data = {"content": 0, "added_files_count": 2, "existing_files_count": 3}
    deletes = {"content": 1, "added_files_count": 1, "existing_files_count": 0}
    summary = {"total-data-files": "9", "total-delete-files": "4"}

    assert file_counts([data, deletes], summary) == FileCounts(5, 1)
    assert file_counts([], None) == FileCounts(0, 0)
    assert file_counts([data, {"content": 0}], summary) == FileCounts(9, 4)
    assert file_counts([{"content": 0}], {}) is None
