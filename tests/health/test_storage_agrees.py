"""Spark's remove_orphan_files and the listing without Spark find the same orphans."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.health.facts.storage import StorageFacts
from tests.damage import change_metadata, on_disk
from tests.maintain.tables import MERGE_ON_READ, Named

pytestmark = [pytest.mark.spark, pytest.mark.core]
DAY = 86_400


def date(path: Path, days: float = 30) -> None:
    moment = path.stat().st_mtime - days * DAY
    os.utime(path, (moment, moment))


def orphans(lake: Lake, name: tuple[str, ...]) -> StorageFacts | None:
    """What both find; None if neither decides."""
    in_spark, without = (
        lake.observe(name, storage=True, collector=collector) for collector in ("spark", "local")
    )
    found = [
        each.storage and replace(each.storage, older_than_ms=0) for each in (in_spark, without)
    ]
    assert found[0] == found[1]
    assert (in_spark.unlisted is None) == (without.unlisted is None)
    return found[1]


def test_both_ways_find_the_same_orphans_whatever_the_names_and_ages(
    named: Named, lake: Lake, scratch: str
) -> None:
    table = named("agreement")
    table.create(
        "id bigint, name string, `_part` string",
        "`_part`",
        write_metadata_previous__versions__max="2",
        **MERGE_ON_READ,
    )
    parts = ("a b", "100%", "it's", "k=v/w", 'say "é"')
    values = ", ".join(f"({n}, 'n', {part!r})" for n, part in enumerate(parts))
    table.insert(f"VALUES {values}").insert(f"VALUES {values}")
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.sql("ALTER TABLE {t} CREATE BRANCH work")
    table.sql(f"INSERT OVERWRITE {{t}} VALUES {values.partition('), ')[0]})")
    table.sql(f"CALL {lake.name}.system.compute_table_stats('{scratch}.agreement')")
    table.sql(f"CALL {lake.name}.system.compute_partition_stats('{scratch}.agreement')")
    location = on_disk(lake.observe(table.name).location)
    added = [
        "data/lost",
        "data/_part=x/lost",
        "data/_part=a+b/odd %41 #?'\"é",
        "data/_partial=x/hidden",
        "data/.hidden",
        "_temporary/0/hidden",
        "stray",
        "metadata/lost.avro",
        "metadata/version-hint.text",
    ]
    for path in added:
        (location / path).parent.mkdir(parents=True, exist_ok=True)
        (location / path).write_text(path)
    (location / "data/link").symlink_to(location / "stray")
    (location / "data/nowhere").symlink_to(location / "nothing")
    for file in filter(Path.is_file, location.rglob("*")):
        date(file)
    for path in ("data/young", "data/_part=x/young"):
        (location / path).write_text(path)
    date(location / "data/young", 2.9)

    found = orphans(lake, table.name)

    assert found is not None
    # The metadata files that the log no longer names.
    forgotten = len(list(location.glob("metadata/*.metadata.json"))) - 3
    assert forgotten > 2
    assert found.orphan_count == 6 + forgotten
    assert found.examples[0] == f"file:{location}/data/_part=a+b/odd %41 #?'\"é"


def test_neither_way_decides_where_only_the_scheme_tells_two_files_apart(
    named: Named, lake: Lake
) -> None:
    table = named("undecided").create().fill(1)
    location = on_disk(lake.observe(table.name).location)
    for path in location.rglob("*"):
        date(path)
    listed = next(location.glob("metadata/*.avro"))
    statistics: dict[str, Any] = {
        "snapshot-id": lake.observe(table.name).snapshot_id,
        "statistics-path": f"hdfs://host{listed}",
        "file-size-in-bytes": 7,
        "file-footer-size-in-bytes": 7,
        "blob-metadata": [],
    }

    change_metadata(lake, table.name, lambda json: json.update(statistics=[statistics]))

    in_spark, without = (
        lake.observe(table.name, storage=True, collector=collector)
        for collector in ("spark", "local")
    )
    assert in_spark.storage is without.storage is None
    assert "Unable to determine whether certain files are orphan" in (in_spark.unlisted or "")
    assert "only a person can say whether they are one file" in (without.unlisted or "")
