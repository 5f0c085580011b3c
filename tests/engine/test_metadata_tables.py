"""Metadata tables are read in one place, and as the table is now."""

import re
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.common.errors import MetadataUnreadable
from icekit.common.sql import identifier
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.spark_conf import ICEBERG
from icekit.health.facts.spark import check_file_counts
from icekit.iceberg.manifests import FileCounts, file_counts
from tests.commits import in_order
from tests.elsewhere import elsewhere

PACKAGE = Path(__file__).parents[2] / "icekit"
NAMES = (
    "all_data_files all_delete_files all_entries all_files all_manifests metadata_log_entries "
    "data_files delete_files entries files history manifests partitions position_deletes refs "
    "snapshots"
).split()
# By one of the readers.
READ = re.compile(r"metadata_table(?:_sql)?\((?:[^()]|\([^()]*\))*\)")
# Anywhere else: a word that nothing else has, a name after a table's, a name as one more part.
NAMED = re.compile(
    rf"""["'](?:{"|".join(NAMES[:6])})["']|\}}\.(?:{"|".join(NAMES)})\b(?!\.)"""
    r"|identifier\(\s*\*(?:[^()]|\([^()]*\))*,\s*[^*)\s]|identifier\([^{}]*\)\}\.\{"
)
# Statements that are shown to a person, who runs them in a session of their own; a column's name.
LEFT_OUT = {"health/diagnose/partitions.py", "tune/merge/narrow.py", "engine/metadata_tables.py"}


def reads(source: str) -> list[str]:
    """Where some code names a metadata table but to have it read in the one place."""
    return [match[0] for match in NAMED.finditer(READ.sub("", source))]


def test_no_other_module_reads_a_metadata_table() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}

    assert {
        f"{name}: {read}"
        for name, path in sources.items()
        if name not in LEFT_OUT
        for read in reads(path.read_text(encoding="utf-8"))
    } == set()


@pytest.mark.parametrize(
    "source",
    [
        # As the removal of a clone once read what the table has adopted, and so deleted a live
        # file.
        'query = f"SELECT DISTINCT {column} FROM {identifier(*name, table)} WHERE true"',
        'spark.sql(f"SELECT * FROM {name}.snapshots")',
        'spark.sql(f"SELECT * FROM {identifier(*name)}.{table} WHERE true")',
        'rows = read(name, "all_manifests")',
    ],
)
def test_a_metadata_table_is_found_however_it_is_named(source: str) -> None:
    assert reads(source)


@pytest.mark.spark
@pytest.mark.core
@pytest.mark.parametrize("name", ["plain", "with.dot"])
def test_what_another_session_has_committed_is_read(lake: Lake, scratch: str, name: str) -> None:
    table = lake.sql_name((scratch, name))
    lake.spark.sql(f"CREATE TABLE {identifier(*table)} (id bigint) USING iceberg")
    lake.spark.sql(f"INSERT INTO {identifier(*table)} VALUES (1)")
    for metadata in ("entries", "all_files", "snapshots"):
        assert metadata_table(lake.spark, table, metadata).count() == 1
    other = elsewhere(lake.spark)
    other.sql(f"INSERT INTO {identifier(*table)} VALUES (2)")
    newest = in_order(lake, (scratch, name))[-1]

    assert metadata_table(lake.spark, table, "entries", int(newest["snapshot-id"])).count() == 2
    assert metadata_table(lake.spark, table, "all_files").count() == 2
    assert metadata_table(lake.spark, table, "snapshots").count() == 2


@pytest.mark.spark
@pytest.mark.core
def test_files_that_a_metadata_table_leaves_out_are_told_with_the_version_that_does(
    lake: Lake,
) -> None:
    said = (
        rf"has 2 data files and 1 delete file, but .* Iceberg \({re.escape(ICEBERG)}\) list 2 "
        r"data files and 0 "
    )
    with pytest.raises(MetadataUnreadable, match=said):
        check_file_counts(lake.spark, ("lake", "db", "t"), 7, FileCounts(2, 1), FileCounts(2, 0))


def test_files_are_counted_by_the_manifest_list_if_it_has_all_counts() -> None:
    data = {"content": 0, "added_files_count": 2, "existing_files_count": 3}
    deletes = {"content": 1, "added_files_count": 1, "existing_files_count": 0}

    assert file_counts([data, deletes]) == FileCounts(5, 1)
    assert file_counts([]) == FileCounts(0, 0)
    assert file_counts([data, {"content": 0}]) is None
