"""Metadata tables are read in one place, and as the table is now."""

import ast
import re
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.catalog.spark_conf import ICEBERG
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import MetadataUnreadable
from icekit.facts.manifests import FileCounts, file_counts
from icekit.facts.spark import check_listed
from icekit.sql import identifier
from tests.commits import in_order
from tests.elsewhere import elsewhere

PACKAGE = Path(__file__).parents[2] / "icekit"
# Words that nothing else has, and those that are also keys of a metadata file, fields of facts or
# headings.
ONLY_TABLES = {
    "all_data_files",
    "all_delete_files",
    "all_entries",
    "all_files",
    "all_manifests",
    "metadata_log_entries",
}
NAMES = ONLY_TABLES | set(
    "data_files delete_files entries files history manifests partitions position_deletes refs "
    "snapshots".split()
)
READERS = {"metadata_table", "metadata_table_sql"}
# Statements that are shown to a person, who runs them in a session of their own.
SHOWN = {"diagnose/partitions.py"}
# A part after a table's name that is a column's, or makes another table's name.
COLUMNS = {"tune/merge/narrow.py"}


def called(node: ast.AST) -> str:
    """The name of the function that a call is of; empty for what is none."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "id", getattr(function, "attr", "")))


def reads(source: str) -> list[str]:
    """Where some code names a metadata table but to have it read in the one place: in a text, after
    a table's name, in SQL.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    handed = {
        id(part)
        for node in nodes
        if called(node) in READERS and isinstance(node, ast.Call)
        for part in node.args
    }
    found = []
    for node in nodes:
        is_read = (
            isinstance(node, ast.Constant) and node.value in ONLY_TABLES and id(node) not in handed
        )
        if called(node) == "identifier" and isinstance(node, ast.Call):
            stars = [isinstance(part, ast.Starred) for part in node.args]
            is_read = any(stars) and not stars[-1]
        if isinstance(node, ast.JoinedStr):
            is_read = any(
                map(is_after_a_name, node.values, node.values[1:], [*node.values[2:], None])
            )
        if is_read:
            found.append(ast.unparse(node))
    return found


def is_after_a_name(name: ast.expr, text: ast.expr, following: ast.expr | None) -> bool:
    """Tell whether ``{name}.snapshots`` or ``FROM {name}.{table}`` is in a formatted text."""
    if not isinstance(name, ast.FormattedValue) or not isinstance(text, ast.Constant):
        return False
    written = str(text.value)
    part = re.match(r"\.(\w+)(?!\w|\.)", written)
    quoted = called(name.value) in {"identifier", *READERS}
    return bool(part and part[1] in NAMES) or (
        quoted and written == "." and isinstance(following, ast.FormattedValue)
    )


def test_no_other_module_reads_a_metadata_table() -> None:
    left_out = {*SHOWN, *COLUMNS, "engine/metadata_tables.py"}
    found = {
        f"{path.relative_to(PACKAGE)}: {read}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() not in left_out
        for read in reads(path.read_text(encoding="utf-8"))
    }

    assert not found


@pytest.mark.parametrize(
    "source",
    [
        # As the removal of a clone once read what the table has adopted, and so deleted a live
        # file.
        '''for table, column in (("all_files", "file_path"), ("all_manifests", "path")):
            query = f"SELECT DISTINCT {column} FROM {identifier(*name, table)} WHERE contains({column}, {within})"''',
        'for table in ("files", "snapshots"):\n    spark.table(identifier(*name, table))',
        'spark.sql(f"SELECT * FROM {name}.snapshots")',
        'spark.sql(f"SELECT * FROM {identifier(*name)}.{table} WHERE true")',
        'rows = read(name, "all_manifests")',
    ],
)
def test_a_metadata_table_is_found_however_it_is_named(source: str) -> None:
    assert reads(source)


def test_what_only_looks_like_a_metadata_table_is_none() -> None:
    assert not reads('metadata_table(spark, table, "all_files")')
    assert not reads(
        'metadata.get("snapshots"), identifier(catalog, *table), f"{lake}.history.db {size}.{unit}"'
    )


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
    newest = in_order(lake, (scratch, name))[-1]

    assert metadata_table(lake.spark, table, "entries", int(newest["snapshot-id"])).count() == 2
    assert metadata_table(lake.spark, table, "all_files").count() == 2
    assert metadata_table(lake.spark, table, "snapshots").count() == 2


@pytest.mark.spark
def test_files_that_a_metadata_table_leaves_out_are_told_with_the_version_that_does(
    lake: Lake,
) -> None:
    said = (
        rf"has 2 data files and 1 delete file, but .* Iceberg \({re.escape(ICEBERG)}\) list 2 "
        r"data files and 0 "
    )
    with pytest.raises(MetadataUnreadable, match=said):
        check_listed(lake.spark, ("lake", "db", "t"), 7, FileCounts(2, 1), FileCounts(2, 0))


def test_files_are_counted_by_the_manifest_list_else_by_the_summary_else_not_at_all() -> None:
    data = {"content": 0, "added_files_count": 2, "existing_files_count": 3}
    deletes = {"content": 1, "added_files_count": 1, "existing_files_count": 0}
    summary = {"total-data-files": "9", "total-delete-files": "4"}

    assert file_counts([data, deletes], summary) == FileCounts(5, 1)
    assert file_counts([], None) == FileCounts(0, 0)
    assert file_counts([data, {"content": 0}], summary) == FileCounts(9, 4)
    assert file_counts([{"content": 0}], {}) is None
