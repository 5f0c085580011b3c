"""Referenced files that are gone from storage, or have another size, are counted alike on a disk
and in Spark.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import icekit
from icekit.api import Lake
from icekit.facts import TableFacts, collect, missing
from icekit.facts.collect import Collector
from icekit.facts.files import Partition
from icekit.facts.metadata_file import load_metadata
from icekit.facts.storage import MissingCount, MissingFiles, Role
from tests.compact.tables import MERGE_ON_READ, Named
from tests.damage import on_disk
from tests.offline import IDS, lake_in

if TYPE_CHECKING:
    from pyiceberg.table import Table as PyTable

COLLECTORS: tuple[Collector, ...] = ("spark", "local")


@pytest.fixture
def table(tmp_path: Path) -> Iterator[PyTable]:
    """A table of three files, a commit each, written without Spark."""
    with lake_in(tmp_path) as catalog:
        made = catalog.create_table(("db", "t"), IDS)
        for start in range(3):
            made.append(pa.table({"id": list(range(start + 2))}))
        yield made


def data_files(table: PyTable) -> dict[int, Path]:
    """The data files by their records."""
    rows = table.inspect.files().to_pylist()
    return {row["record_count"]: on_disk(row["file_path"]) for row in rows}


def observe() -> TableFacts:
    return icekit.connect().observe("db.t", collector="local", storage=True)


def test_nothing_is_missing_of_a_table_whose_files_are_there(table: PyTable) -> None:
    facts = observe()

    assert facts.missing == MissingFiles()
    assert facts.storage is not None


def test_a_file_that_is_gone_and_one_of_another_size_are_told_with_their_snapshots(
    table: PyTable,
) -> None:
    files, snapshots = data_files(table), [snapshot.snapshot_id for snapshot in table.snapshots()]
    size = files[4].stat().st_size
    files[3].unlink()
    os.truncate(files[4], 10)

    found = observe().missing

    assert found is not None
    assert found.counts == (MissingCount(Role.DATA, gone_count=1, resized_count=1, record_count=7),)
    assert {(f.record_count, f.snapshot_id, f.actual_bytes) for f in found.examples} == {
        (3, snapshots[1], None),
        (4, snapshots[2], 10),
    }
    assert {f.size_in_bytes for f in found.examples if f.record_count == 4} == {size}
    assert found.partitions == ((Partition(0, ()), 1),)
    assert found.before_id == snapshots[0]


def test_no_snapshot_is_from_before_a_file_of_the_first_one(table: PyTable) -> None:
    data_files(table)[2].unlink()

    found = observe().missing

    assert found is not None
    assert found.before_id is None


def test_an_old_manifest_list_that_is_gone_costs_only_what_needs_it(table: PyTable) -> None:
    first = table.snapshots()[0]
    on_disk(first.manifest_list).unlink()

    facts = observe()
    without_storage = icekit.connect().observe("db.t", collector="local")

    assert facts.missing is not None
    assert facts.missing.counts == (MissingCount(Role.MANIFEST_LIST, 1, 0, 0),)
    assert facts.missing.examples[0].snapshot_id == first.snapshot_id
    assert not facts.missing.fails_scans
    assert facts.storage is None
    assert (
        facts.unlisted
        == "the manifest list of a snapshot is gone, so it is not known which files that "
        "snapshot references"
    )
    assert without_storage.data.file_count == 3
    assert icekit.diagnose(facts).names - icekit.diagnose(without_storage).names == {
        "missing_files"
    }


def test_a_snapshot_that_expired_meanwhile_is_no_loss(
    table: PyTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_files(table)[3].unlink()
    look_up = missing.missing_files

    def expiring(*given: object, **more: bool) -> MissingFiles:
        found = look_up(*given, **more)  # type: ignore[arg-type]
        newest = table.current_snapshot()
        assert newest is not None
        table.append(pa.table({"id": [9]}))
        table.maintenance.expire_snapshots().by_id(newest.snapshot_id).commit()
        return found

    monkeypatch.setattr(collect, "missing_files", expiring)

    assert observe().missing == MissingFiles(
        unchecked="the snapshot expired while its files were looked up"
    )


def test_deletion_vectors_are_told_from_delete_files() -> None:
    roles = [
        missing._role({"content": content, "file_format": kind})
        for content, kind in ((0, "PARQUET"), (1, "parquet"), (1, "puffin"), (2, "ORC"))
    ]

    assert roles == [Role.DATA, Role.DELETES, Role.VECTOR, Role.DELETES]


@pytest.mark.spark
@pytest.mark.parametrize("version", [2, 3])
def test_spark_counts_what_is_missing_as_the_disk_does(
    named: Named, lake: Lake, scratch: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    table = named(f"missing{version}").create(version=version, **MERGE_ON_READ).fill(2)
    table.sql("DELETE FROM {t} WHERE id IN (3, 4)")
    table.sql(f"CALL {lake.name}.system.compute_table_stats('{scratch}.missing{version}')")
    table.fill(1, 8, start=100)

    def observed() -> TableFacts:
        by_spark, without_jvm = (
            lake.observe(table.name, collector=each, storage=True) for each in COLLECTORS
        )
        assert by_spark.missing == without_jvm.missing
        assert by_spark.unlisted == without_jvm.unlisted
        return by_spark

    assert observed().missing == MissingFiles()
    metadata = load_metadata(lake.tables.source(table.name))
    files = table.sql("SELECT file_path, content, partition.part FROM {t}.files ORDER BY 1")
    for row in files:
        if row.content or row.part == 1:
            on_disk(row.file_path).unlink(missing_ok=True)
    with on_disk(next(row.file_path for row in files if not row.content and row.part == 0)).open(
        "ab"
    ) as grown:
        grown.write(b"more")
    on_disk(metadata["statistics"][0]["statistics-path"]).unlink()
    first = metadata["snapshots"][0]
    on_disk(first["manifest-list"]).unlink()
    facts = observed()

    found = facts.missing
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
    assert [count for _, count in found.partitions] == [3]
    assert facts.unlisted is not None

    # Too many to look up.
    monkeypatch.setattr(missing, "MOST_CHECKED", 3)
    unknown = lake.observe(table.name, collector="spark", storage=True).missing
    assert unknown is not None
    assert unknown.unchecked is not None
    assert dataclasses.replace(unknown, unchecked=None) == MissingFiles()
    assert "icekit looks up at most 3" in unknown.unchecked
