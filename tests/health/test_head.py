"""Partitions written lately are found from the manifests that recent commits added."""

import pytest

from icekit.health.facts.head import Head, head, partitions_written_within
from icekit.iceberg.partition import Scalar
from tests.deletes.tables import Table


def appended_twice(table: Table) -> Head:
    """Append to partitions 1 and 2, then to 2 and 3; returns the table between them."""
    table.create("p int, x int", "p").sql("INSERT INTO {t} VALUES (1, 1), (2, 1)")
    between = head(table.lake, table.name)
    table.sql("INSERT INTO {t} VALUES (2, 2), (3, 2)")
    return between


def written(table: Table, at: Head, after: Head) -> set[Scalar]:
    """The partitions written since a snapshot, without it."""
    assert at.snapshot is not None
    assert after.snapshot is not None
    now_ms = at.snapshot["timestamp-ms"] + 60_000
    minutes = (now_ms - after.snapshot["timestamp-ms"] - 1) / 60_000
    read = table.lake.tables.source(table.name).read
    return {
        partition.values[0] for partition in partitions_written_within(read, at, minutes, now_ms)
    }


@pytest.mark.spark
def test_partitions_that_a_recent_commit_added_to_are_found_and_compactions_do_not_count(
    table: Table,
) -> None:
    first = appended_twice(table)
    second = head(table.lake, table.name)
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    # The compaction rewrote partition 1 last, and moved no row into it. Its own manifests replaced
    # those of the appends.
    assert 1 not in written(table, head(table.lake, table.name), first)
    assert written(table, second, first) == {2, 3}


@pytest.mark.spark
def test_a_partition_counts_as_written_although_a_later_commit_moved_its_entries(
    table: Table,
) -> None:
    first = appended_twice(table)
    table.sql("UPDATE {t} SET x = 5 WHERE p = 3")
    table.call("rewrite_manifests")

    assert written(table, head(table.lake, table.name), first) == {2, 3}


def test_a_table_without_snapshots_was_written_nowhere() -> None:
    assert partitions_written_within(lambda _: b"", Head({}, None), 60, 0) == frozenset()
