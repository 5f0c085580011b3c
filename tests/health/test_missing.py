"""Referenced files that are gone from storage, or have another size, are counted, with Spark and
without.
"""

from __future__ import annotations

import dataclasses
import os

import pytest

import icekit
from icekit.api import Lake
from icekit.health import TableFacts
from icekit.health.facts.metadata_file import load_metadata
from icekit.health.facts.storage import MissingCount, MissingFiles, Role
from icekit.health.storage import missing
from tests.damage import on_disk
from tests.maintain.tables import MERGE_ON_READ, Named


@pytest.mark.spark
@pytest.mark.parametrize("version", [2, 3])
def test_what_is_missing_is_counted_with_its_snapshots(
    named: Named, lake: Lake, scratch: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    table = named(f"missing{version}").create(version=version, **MERGE_ON_READ).fill(2)
    table.sql("DELETE FROM {t} WHERE id IN (3, 4)")
    table.sql(f"CALL {lake.name}.system.compute_table_stats('{scratch}.missing{version}')")
    table.fill(1, 8, start=100)

    def observed() -> TableFacts:
        in_spark, without = (
            lake.observe(table.name, storage=True, collector=collector)
            for collector in ("spark", "auto")
        )
        assert in_spark.missing == without.missing
        assert in_spark.unlisted == without.unlisted
        return without

    assert observed().missing == MissingFiles()
    metadata = load_metadata(lake.tables.source(table.name))
    first, *_, last = metadata["snapshots"]
    on_disk(first["manifest-list"]).unlink()
    facts, without_storage = observed(), lake.observe(table.name)

    # It costs only what needs it.
    assert facts.missing is not None
    assert facts.missing.counts == (MissingCount(Role.MANIFEST_LIST, 1, 0, 0),)
    assert facts.missing.examples[0].snapshot_id == first["snapshot-id"]
    assert not facts.missing.fails_scans
    assert facts.storage is None
    assert (facts.unlisted or "").startswith("the manifest list of a snapshot is gone")
    assert icekit.diagnose(facts).names - icekit.diagnose(without_storage).names == {
        "missing_files"
    }

    files = table.sql("SELECT file_path, content, partition.part FROM {t}.files ORDER BY 1")
    for row in files:
        if row.content or row.part == 1:
            on_disk(row.file_path).unlink(missing_ok=True)
    grown = next(row.file_path for row in files if not row.content and row.part == 0)
    size = on_disk(grown).stat().st_size
    os.truncate(on_disk(grown), size + 4)
    on_disk(metadata["statistics"][0]["statistics-path"]).unlink()

    found = observed().missing
    assert found is not None
    deletes = Role.VECTOR if version == 3 else Role.DELETES
    assert [count.role for count in found.counts] == [
        Role.DATA,
        deletes,
        Role.MANIFEST_LIST,
        Role.STATISTICS,
    ]
    assert found.count(Role.DATA).gone_count == 3
    assert found.count(Role.DATA).resized_count == 1
    assert found.count(deletes).record_count == 2
    assert found.fails_scans
    assert [(partition.values, count) for partition, count in found.partitions] == [((1,), 3)]
    (resized,) = (file for file in found.examples if file.path == grown)
    assert (resized.size_in_bytes, resized.actual_bytes) == (size, size + 4)
    gone = [file for file in found.examples if file.actual_bytes is None]
    assert {file.partition for file in gone if file.role is Role.DATA} == {found.partitions[0][0]}
    assert last["snapshot-id"] in {file.snapshot_id for file in found.examples}
    # The first snapshot added one of them.
    assert found.before_id is None

    # Too many to look up.
    monkeypatch.setattr(missing, "MOST_CHECKED", 3)
    unknown = lake.observe(table.name, storage=True, collector="spark").missing
    assert unknown is not None
    assert unknown.unchecked is not None
    assert dataclasses.replace(unknown, unchecked=None) == MissingFiles()
    assert "icekit looks up at most 3" in unknown.unchecked
