"""Make the soak's sick table once, and a copy of it for each round that shares its files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from icekit.common.sql import identifier, literal, set_properties_sql
from icekit.engine.lake import Lake
from icekit.health.facts.head import head
from rigs.lab.deletes import UpsertStream
from rigs.lab.workbench import Lab, folder_of

NAMESPACE = "soak"
TEMPLATE = "template"
COLUMNS = "id bigint, part int, value string, amount double"
ROWS_PER_COMMIT = 40


def desk(lake: Lake, name: str, namespace: str = NAMESPACE) -> Lab:
    """A bench for a table outside the lab's namespace."""
    return Lab(lake, lake.spark, None, Path(), name, namespace)


def folder(lake: Lake, name: str, namespace: str = NAMESPACE) -> Path:
    """Where a table's files are."""
    return folder_of(lake, name, namespace)


def create(at: Lab) -> None:
    """Create an empty table that deletes merge-on-read; deletes name a partition, not a file."""
    at.lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(at.lake.name, at.namespace)}")
    modes = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
    # By partition, as Flink does: such a delete also applies by its number to what is rewritten in
    # its own commit's time.
    properties = {
        "format-version": "2",
        "write.delete.granularity": "partition",
        "commit.retry.num-retries": "20",
        **modes,
    }
    at.create("part", properties, columns=COLUMNS)


def rows_sql(first: int, count: int, partitions: int) -> str:
    """Rows with ids from ``first`` on, spread over the partitions."""
    return (
        f"SELECT id, CAST(id % {partitions} AS int) AS part, concat('value ', id) AS value, id / "
        f"3.0D AS amount FROM range({first}, {first + count})"
    )


def upserts(ids: list[int], partitions: int, version: str) -> list[tuple[str, pa.Table]]:
    """Rows that replace those of the same keys, by partition path."""
    found = []
    for part in range(partitions):
        keys = sorted({i for i in ids if i % partitions == part})
        if keys:
            columns = {
                "id": pa.array(keys, pa.int64()),
                "part": pa.array([part] * len(keys), pa.int32()),
                "value": pa.array([f"{version} {key}" for key in keys]),
                "amount": pa.array([key / 3 for key in keys], pa.float64()),
            }
            found.append((f"part={part}", pa.table(columns)))
    return found


def fill(at: Lab, partitions: int, commits: int) -> None:
    """Small files in every partition, equality deletes in half of them, and position deletes last
    of all.
    """
    each = ROWS_PER_COMMIT * partitions
    for commit in range(commits):
        at.sql("INSERT INTO {t} " + rows_sql(commit * each, each, partitions))
    stream = UpsertStream(at, ("id", "part"))
    every = range(0, commits * each, 7)
    stream.commit(
        upserts([i for i in every if i % partitions < partitions // 2], partitions, "corrected")
    )
    at.refresh()
    at.sql("DELETE FROM {t} WHERE id % 11 = 3")


def make_template(
    lake: Lake, partitions: int, commits: int, namespace: str = NAMESPACE, name: str = TEMPLATE
) -> None:
    """Make the table that the rounds copy, from nothing."""
    at = desk(lake, name, namespace)
    at.start()
    create(at)
    fill(at, partitions, commits)


def clone(lake: Lake, name: str, namespace: str = NAMESPACE, template: str = TEMPLATE) -> str:
    """A table of its own over the template's files; what is written to it goes to a folder of its
    own.
    """
    at = desk(lake, name, namespace)
    at.start()
    metadata = lake.tables.source((namespace, template)).metadata_location
    lake.spark.sql(
        f"CALL {identifier(lake.name)}.system.register_table(table => "
        f"{literal(f'{namespace}.{name}')}, metadata_file => {literal(metadata)})"
    )
    where = {
        "write.data.path": str(at.location / "data"),
        "write.metadata.path": str(at.location / "metadata"),
        "gc.enabled": "false",
    }
    lake.spark.sql(set_properties_sql((lake.name, namespace, name), where))
    assert head(lake, (namespace, name)).snapshot_id is not None
    return f"{namespace}.{name}"


def forget(lake: Lake, name: str, namespace: str = NAMESPACE) -> None:
    """Drop a round's table and its own folder; the template's files stay."""
    desk(lake, name, namespace).start()
