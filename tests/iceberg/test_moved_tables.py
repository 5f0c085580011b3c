"""Engines read the same rows from a table that has moved, and icekit says the same about it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import icekit
from icekit.common.sql import identifier
from icekit.engine.planner import plan_scan
from icekit.health import TableFacts
from icekit.health.facts.metadata_file import load_metadata
from icekit.learn.lab import lake_folder
from tests.deletes.tables import Table
from tests.iceberg.moving import packed, readable, unpacked
from tests.offline import catalog_of

pytestmark = [pytest.mark.spark, pytest.mark.core]

#: What may differ: the name, and what counts the bytes of rewritten files.
_DIFFERS = ("table", "table_uuid", "location", "metadata_bytes", "metadata_sections", "groups")
_FIVE = "SELECT id, CAST(id % 2 AS INT) AS part FROM range({}, {})"


def _fill(table: Table, version: int, by: str = "part") -> None:
    table.create("id bigint, part int", by, version)
    for n in range(3):
        table.sql(f"INSERT INTO {{t}} {_FIVE.format(n * 10, n * 10 + 10)}")


def _position_deletes(table: Table) -> None:
    _fill(table, 2)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'partition')")
    table.sql("DELETE FROM {t} WHERE id IN (4, 5, 15)")
    table.sql("DELETE FROM {t} WHERE id IN (6, 16)")


def _deletion_vectors(table: Table) -> None:
    _fill(table, 3)
    table.sql("DELETE FROM {t} WHERE id IN (4, 5, 15)")
    table.sql("DELETE FROM {t} WHERE id IN (6, 16)")


def _equality_deletes(table: Table) -> None:
    _fill(table, 2)
    table.delete("id", "SELECT id FROM range(3)", {"part": 0})
    table.delete("id", "SELECT 7L AS id", {"part": 1})
    table.sql("DELETE FROM {t} WHERE id = 15")


def _version_1(table: Table) -> None:
    _fill(table, 1)


def _evolved(table: Table) -> None:
    _fill(table, 2)
    for change in (
        "DROP PARTITION FIELD part",
        "ADD PARTITION FIELD bucket(2, id)",
        "RENAME COLUMN part TO `the part`",
        "ADD COLUMN more decimal(38, 3)",
    ):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.sql("INSERT INTO {t} SELECT id, 1, id FROM range(40, 45)")


def _odd_names(table: Table) -> None:
    columns = "`id/=é` bigint, `odd name` string, day date, at timestamp_ntz, uid binary"
    table.create(columns, "`odd name`, day", 2)
    table.sql(
        "INSERT INTO {t} VALUES (1, 'a/b=c %20', DATE '0001-01-01', TIMESTAMP_NTZ '1969-12-31 "
        "23:59:59.5', X'00ff'), (2, null, DATE '9999-12-31', null, null)"
    )
    table.sql("DELETE FROM {t} WHERE `id/=é` = 2")


SHAPES: tuple[Callable[[Table], None], ...] = (
    _position_deletes,
    _deletion_vectors,
    _equality_deletes,
    _version_1,
    _evolved,
    _odd_names,
)


@pytest.mark.parametrize("build", SHAPES)
def test_a_moved_table_is_the_same_table(
    table: Table, tmp_path: Path, build: Callable[[Table], None]
) -> None:
    build(table)
    source = table.lake.tables.source(table.name)
    folder = lake_folder(table.lake) / "warehouse" / table.name[0] / f"{table.name[1]}_moved"
    moved = unpacked(packed(source.metadata_location, source.read), folder)
    moved.write()
    again = Table(table.lake, table.name[0], f"{table.name[1]}_moved")
    with catalog_of(lake_folder(table.lake)) as catalog:
        catalog.register_table(again.name, moved.metadata_location)
    try:
        _compare(table, again)
        old_folder = load_metadata(source)["location"] + "/"
        texts = {path: readable(content) for path, content in moved.files.items()}
        assert [path for path, text in texts.items() if old_folder.encode() in text] == []
        # It can be written to and cleaned up, and the original stays whole.
        before = _rows(table)
        again.call(
            "expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00'", "retain_last => 1"
        )
        again.sql("DELETE FROM {t}")
        again.sql("DROP TABLE {t} PURGE")
        assert _rows(table) == before
    finally:
        again.sql("DROP TABLE IF EXISTS {t}")


def _compare(table: Table, again: Table) -> None:
    spark = table.spark
    assert _rows(again) == _rows(table) != Counter()
    for snapshot in spark.sql(f"SELECT snapshot_id FROM {table.sql_name}.snapshots").collect():
        version = f"VERSION AS OF {snapshot[0]}"
        assert spark.sql(f"SELECT count(*) FROM {again.sql_name} {version}").first() == (
            spark.sql(f"SELECT count(*) FROM {table.sql_name} {version}").first()
        )
    before, after = table.lake.observe(table.name), table.lake.observe(again.name)
    assert _comparable(after) == _comparable(before)
    assert icekit.diagnose(after).names == icekit.diagnose(before).names
    plans = [plan_scan(spark, facts.sql_name) for facts in (before, after)]
    assert len({(plan.data_files, plan.data_bytes, plan.delete_opens) for plan in plans}) == 1
    rewrites = [table.lake.plan(facts, leave_alone="0 minutes") for facts in (before, after)]
    assert [(each.procedure, each.options) for each in rewrites[0].actions] == [
        (each.procedure, each.options) for each in rewrites[1].actions
    ]


def _rows(table: Table) -> Counter[str]:
    return Counter(map(str, table.sql(f"SELECT * FROM {identifier(*table.full)}")))


def _comparable(facts: TableFacts) -> dict[str, Any]:
    fields = {each.name: getattr(facts, each.name) for each in dataclasses.fields(facts)}
    compared = {
        each.name
        for each in dataclasses.fields(facts)
        if each.compare and each.name not in _DIFFERS
    }
    values = {name: fields[name] for name in compared}
    manifests = values["manifests"]
    values["manifests"] = manifests.data_count, manifests.delete_count, manifests.overlaps
    values["files"] = [
        (group.partition, group.kind, group.file_count, group.record_count)
        for group in facts.groups
    ]
    return values
