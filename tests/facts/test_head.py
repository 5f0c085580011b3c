"""Partitions written lately are found from the manifests that recent commits added."""

import pytest

from icekit.api import Lake
from icekit.facts.files import Partition
from icekit.facts.head import head
from icekit.facts.metadata import Json
from icekit.facts.recent import written_since
from icekit.sql import Identifier, identifier

pytestmark = pytest.mark.spark


def appended_twice(lake: Lake, name: Identifier) -> Json:
    """Make a table by appends to partitions 1 and 2, then to 2 and 3; returns the snapshot between
    them.
    """
    table = identifier(lake.name, *name)
    lake.spark.sql(f"CREATE TABLE {table} (p int, x int) USING iceberg PARTITIONED BY (p)")
    lake.spark.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 1)")
    first = head(lake, name).snapshot
    assert first is not None
    lake.spark.sql(f"INSERT INTO {table} VALUES (2, 2), (3, 2)")
    return first


def test_partitions_that_a_recent_commit_added_to_are_found_and_compactions_do_not_count(
    lake: Lake, scratch: str
) -> None:
    name = (scratch, "recent")
    first = appended_twice(lake, name)
    second = head(lake, name).snapshot
    assert second is not None
    lake.spark.sql(
        f"CALL {identifier(lake.name)}.system.rewrite_data_files(table => '{scratch}.recent', "
        "options => map('rewrite-all', 'true'))"
    )

    at = head(lake, name)
    found = [
        written_since(lake.tables.source(name).read, at.metadata, at.snapshot, since)
        for since in (0, first["timestamp-ms"] + 1)
    ]

    # The compaction rewrote partition 1 last, and moved no row into it. Its own manifests replaced
    # those of the appends.
    assert all(Partition(0, (1,)) not in each for each in found[1:])
    before = head(lake, name).metadata
    of_second = written_since(
        lake.tables.source(name).read, before, second, first["timestamp-ms"] + 1
    )
    assert of_second == {Partition(0, (2,)), Partition(0, (3,))}


def test_a_partition_counts_as_written_although_a_later_commit_moved_its_entries(
    lake: Lake, scratch: str
) -> None:
    name = (scratch, "moved")
    first = appended_twice(lake, name)
    table = identifier(lake.name, *name)
    lake.spark.sql(f"UPDATE {table} SET x = 5 WHERE p = 3")
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.rewrite_manifests('{scratch}.moved')")

    at = head(lake, name)

    written = written_since(
        lake.tables.source(name).read, at.metadata, at.snapshot, first["timestamp-ms"] + 1
    )
    assert written == {Partition(0, (2,)), Partition(0, (3,))}


def test_a_table_without_snapshots_was_written_nowhere(lake: Lake, scratch: str) -> None:
    name = (scratch, "never")
    lake.spark.sql(
        f"CREATE TABLE {identifier(lake.name, *name)} (p int) USING iceberg PARTITIONED BY (p)"
    )

    at = head(lake, name)

    assert written_since(lake.tables.source(name).read, at.metadata, at.snapshot, 0) == frozenset()
